//! Numbers with operators, in which formulas are written.

use super::{Algebra, Parameter};
use crate::element::Float;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};

/// A number of an [`Algebra`], with the operators and methods of one. Literals are `f64`, which are
/// rounded to the element type `T`.
///
/// ```
/// use retrograd::tensor::Real;
/// use retrograd::tensor::formula::{Algebra, Dual, Expr};
/// use retrograd::tensor::settings::level;
/// use retrograd::tensor::simd::{Kernel, Lanes};
///
/// /// `x³ - 2x` above 0, else 0
/// fn cubic<T: Real, A: Algebra<T>>(x: Expr<T, A>) -> Expr<T, A> {
///     x.gt(0.0).select(x * x * x - 2.0 * x, 0.0)
/// }
///
/// /// Its value and derivative at 2.
/// struct AtTwo;
/// impl Kernel<f64> for AtTwo {
///     type Out = (f64, f64);
///     fn run<S: Lanes<f64>>(self, s: S) -> (f64, f64) {
///         let two = Expr::new(Dual(s), (s.splat(2.0), s.splat(1.0)));
///         let (y, derivative) = cubic(two).value();
///         (s.max_lane(y), s.max_lane(derivative))
///     }
/// }
/// assert_eq!(f64::dispatch(level(), AtTwo), (4.0, 10.0));
/// ```
pub struct Expr<T: Copy, A: Algebra<T>> {
    algebra: A,
    value: A::V,
}

/// A truth value of an [`Algebra`]: the result of a comparison of [`Expr`]s.
pub struct Truth<T: Copy, A: Algebra<T>> {
    algebra: A,
    value: A::M,
}

impl<T: Copy, A: Algebra<T>> Clone for Expr<T, A> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Copy, A: Algebra<T>> Copy for Expr<T, A> {}

impl<T: Copy, A: Algebra<T>> Clone for Truth<T, A> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Copy, A: Algebra<T>> Copy for Truth<T, A> {}

/// An operand of a formula: an [`Expr`], a literal, or a [`Parameter`].
pub trait ExprOperand<T: Copy, A: Algebra<T>>: Copy {
    /// The operand as a number of the algebra.
    fn in_algebra(self, a: A) -> A::V;
}

impl<T: Copy, A: Algebra<T>> ExprOperand<T, A> for Expr<T, A> {
    #[inline(always)]
    fn in_algebra(self, _: A) -> A::V {
        self.value
    }
}

impl<T: Float, A: Algebra<T>> ExprOperand<T, A> for f64 {
    #[inline(always)]
    fn in_algebra(self, a: A) -> A::V {
        a.splat(T::from_f64(self))
    }
}

impl<T: Float, A: Algebra<T>> ExprOperand<T, A> for Parameter {
    #[inline(always)]
    fn in_algebra(self, a: A) -> A::V {
        a.parameter(self)
    }
}

/// Operators between expressions, and between an expression and a number.
macro_rules! operators {
    ($($Op:ident $f:ident)+) => {$(
        impl<T: Float, A: Algebra<T>, R: ExprOperand<T, A>> $Op<R> for Expr<T, A> {
            type Output = Self;
            #[inline(always)]
            fn $f(self, right: R) -> Self {
                self.with(self.algebra.$f(self.value, right.in_algebra(self.algebra)))
            }
        }
        operators!(@on_the_left f64 $Op $f);
        operators!(@on_the_left Parameter $Op $f);
    )+};
    (@on_the_left $Number:ident $Op:ident $f:ident) => {
        impl<T: Float, A: Algebra<T>> $Op<Expr<T, A>> for $Number {
            type Output = Expr<T, A>;
            #[inline(always)]
            fn $f(self, right: Expr<T, A>) -> Expr<T, A> {
                $Op::$f(right.constant(self), right)
            }
        }
    };
}

operators!(Add add Sub sub Mul mul Div div);

impl<T: Copy, A: Algebra<T>> Neg for Expr<T, A> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        self.with(self.algebra.neg(self.value))
    }
}

/// Functions of one number, as documented at [`Algebra`].
macro_rules! functions {
    ($($(#[$doc:meta])* $f:ident)+) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $f(self) -> Self {
            self.with(self.algebra.$f(self.value))
        }
    )+};
}

/// Comparisons, as documented at [`Algebra`].
macro_rules! comparisons {
    ($($(#[$doc:meta])* $f:ident)+) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $f(self, right: impl ExprOperand<T, A>) -> Truth<T, A> {
            self.truth(self.algebra.$f(self.value, right.in_algebra(self.algebra)))
        }
    )+};
}

impl<T: Float, A: Algebra<T>> Expr<T, A> {
    /// The number `value`.
    #[inline(always)]
    pub fn new(algebra: A, value: A::V) -> Self {
        Expr { algebra, value }
    }

    /// The algebra.
    #[inline(always)]
    pub fn algebra(self) -> A {
        self.algebra
    }

    /// The value in the algebra.
    #[inline(always)]
    pub fn value(self) -> A::V {
        self.value
    }

    /// The number `x` in the algebra of this one.
    #[inline(always)]
    pub fn constant(self, x: impl ExprOperand<T, A>) -> Self {
        self.with(x.in_algebra(self.algebra))
    }

    functions! {
        /// `|x|`
        abs
        /// -1, 0 or 1, with the sign of zero.
        sign
        /// Correctly rounded square root.
        sqrt
        /// Nearest integer, ties to even.
        round
        /// The largest integer that is not above this number.
        floor
        /// The smallest integer that is not below this number.
        ceil
        /// `eˣ`
        exp
        /// `eˣ - 1`, accurate near 0.
        expm1
        /// Natural logarithm.
        ln
        /// `ln(1 + x)`, accurate near 0.
        log1p
        /// Hyperbolic tangent.
        tanh
        /// Error function.
        erf
        /// Sine of radians.
        sin
        /// Cosine of radians.
        cos
        /// `1 / (1 + e⁻ˣ)`, without overflow.
        sigmoid
        /// `ln(1 + eˣ)`, without overflow.
        softplus
    }

    comparisons! {
        /// `self < right`, false where either is NaN.
        lt
        /// `self <= right`, false where either is NaN.
        le
        /// `self == right`, false where either is NaN.
        eq
    }

    /// `self > right`, false where either is NaN.
    #[inline(always)]
    pub fn gt(self, right: impl ExprOperand<T, A>) -> Truth<T, A> {
        self.with(right.in_algebra(self.algebra)).lt(self)
    }

    /// Where this is NaN.
    #[inline(always)]
    pub fn is_nan(self) -> Truth<T, A> {
        self.truth(self.algebra.is_nan(self.value))
    }

    /// Smaller of the two; NaN if either is NaN.
    #[inline(always)]
    pub fn min(self, right: impl ExprOperand<T, A>) -> Self {
        self.with(self.algebra.min(self.value, right.in_algebra(self.algebra)))
    }

    /// Larger of the two; NaN if either is NaN.
    #[inline(always)]
    pub fn max(self, right: impl ExprOperand<T, A>) -> Self {
        self.with(self.algebra.max(self.value, right.in_algebra(self.algebra)))
    }

    /// `self · factor + addend`, fused where the instruction set fuses.
    #[inline(always)]
    pub fn mul_add(self, factor: impl ExprOperand<T, A>, addend: impl ExprOperand<T, A>) -> Self {
        let (factor, addend) = (factor.in_algebra(self.algebra), addend.in_algebra(self.algebra));
        self.with(self.algebra.fma(self.value, factor, addend))
    }

    /// `xᵖ`, with the conventions of `f64::powf`.
    #[inline(always)]
    pub fn powf(self, p: f64) -> Self {
        self.with(self.algebra.powf(self.value, T::from_f64(p)))
    }

    /// [`Expr::powf`] with a parameter as the exponent.
    #[inline(always)]
    pub fn power(self, p: Parameter) -> Self {
        self.with(self.algebra.power(self.value, p))
    }

    /// The normal distribution function and its density, `Φ(x)` and `φ(x)`.
    #[inline(always)]
    pub fn normal(self) -> (Self, Self) {
        let (cdf, density) = self.algebra.normal(self.value);
        (self.with(cdf), self.with(density))
    }

    /// An operation of the algebra on two numbers.
    #[inline(always)]
    pub fn zip(self, right: Self, f: impl Fn(A, A::V, A::V) -> A::V) -> Self {
        self.with(f(self.algebra, self.value, right.value))
    }

    #[inline(always)]
    fn truth(self, value: A::M) -> Truth<T, A> {
        Truth { algebra: self.algebra, value }
    }
}

impl<T: Copy, A: Algebra<T>> Expr<T, A> {
    #[inline(always)]
    fn with(self, value: A::V) -> Self {
        Expr { algebra: self.algebra, value }
    }
}

impl<T: Copy, A: Algebra<T>> Truth<T, A> {
    /// `a` where this is true, else `b`.
    #[inline(always)]
    pub fn select(self, a: impl ExprOperand<T, A>, b: impl ExprOperand<T, A>) -> Expr<T, A> {
        let (a, b) = (a.in_algebra(self.algebra), b.in_algebra(self.algebra));
        Expr { algebra: self.algebra, value: self.algebra.select(self.value, a, b) }
    }
}

impl<T: Copy, A: Algebra<T>> BitAnd for Truth<T, A> {
    type Output = Self;
    #[inline(always)]
    fn bitand(self, right: Self) -> Self {
        Truth { value: self.algebra.and(self.value, right.value), ..self }
    }
}

impl<T: Copy, A: Algebra<T>> BitOr for Truth<T, A> {
    type Output = Self;
    #[inline(always)]
    fn bitor(self, right: Self) -> Self {
        Truth { value: self.algebra.or(self.value, right.value), ..self }
    }
}

impl<T: Copy, A: Algebra<T>> Not for Truth<T, A> {
    type Output = Self;
    #[inline(always)]
    fn not(self) -> Self {
        Truth { value: self.algebra.not(self.value), ..self }
    }
}
