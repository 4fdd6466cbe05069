//! The operations that formulas are written in.

use super::Real;

/// The algebra of formulas: arithmetic, comparisons and elementary functions of numbers of type `T`.
///
/// A formula is written once, generic over its algebra, and evaluated in several: on vectors of
/// every instruction set ([`Lanes`](super::Lanes)), and on the variables of a graph, where its own
/// derivative can be taken. The algebra is a value that is passed along; the numbers are of type
/// [`Algebra::V`].
///
/// ```
/// use retrograd_tensor::simd::{Algebra, Real};
///
/// /// x³ + 2x
/// fn cubic<T: Real, A: Algebra<T>>(a: A, x: A::V) -> A::V {
///     a.fma(a.mul(x, x), x, a.mul(a.splat(T::from_f64(2.0)), x))
/// }
/// ```
pub trait Algebra<T: Copy>: Copy {
    /// A number, or a vector of numbers.
    type V: Copy;
    /// A truth value, or a vector of truth values.
    type M: Copy;

    /// The constant `x`, in every lane.
    fn splat(self, x: T) -> Self::V;
    /// `a + b`
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, fused where the instruction set fuses.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `-a` (flips the sign bit).
    fn neg(self, a: Self::V) -> Self::V;
    /// `|a|` (clears the sign bit).
    fn abs(self, a: Self::V) -> Self::V;
    /// -1, 0 or 1, with the sign of zero; NaN of NaN.
    fn sign(self, a: Self::V) -> Self::V;
    /// Correctly rounded square root.
    fn sqrt(self, a: Self::V) -> Self::V;
    /// Smaller of the two; NaN if either is NaN, `b` if they are equal (as zeros of two signs).
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// Larger of the two; NaN if either is NaN, `b` if they are equal (as zeros of two signs).
    fn max(self, a: Self::V, b: Self::V) -> Self::V;

    /// `a < b`, false where either is NaN.
    fn lt(self, a: Self::V, b: Self::V) -> Self::M;
    /// `a <= b`, false where either is NaN.
    fn le(self, a: Self::V, b: Self::V) -> Self::M;
    /// `a == b`, false where either is NaN.
    fn eq(self, a: Self::V, b: Self::V) -> Self::M;
    /// Where `a` is NaN.
    fn is_nan(self, a: Self::V) -> Self::M;
    /// Logical and.
    fn and(self, a: Self::M, b: Self::M) -> Self::M;
    /// Logical or.
    fn or(self, a: Self::M, b: Self::M) -> Self::M;
    /// Logical negation.
    fn not(self, a: Self::M) -> Self::M;
    /// `a` where `m`, else `b`.
    fn select(self, m: Self::M, a: Self::V, b: Self::V) -> Self::V;

    /// `e^x`; see [`Real`] for the errors of this and of the functions below.
    fn exp(self, x: Self::V) -> Self::V;
    /// `e^x - 1`, accurate near 0.
    fn expm1(self, x: Self::V) -> Self::V;
    /// Natural logarithm.
    fn ln(self, x: Self::V) -> Self::V;
    /// `ln(1 + x)`, accurate near 0.
    fn log1p(self, x: Self::V) -> Self::V;
    /// Hyperbolic tangent.
    fn tanh(self, x: Self::V) -> Self::V;
    /// Error function.
    fn erf(self, x: Self::V) -> Self::V;
    /// Sine of radians.
    fn sin(self, x: Self::V) -> Self::V;
    /// Cosine of radians.
    fn cos(self, x: Self::V) -> Self::V;
    /// `x^p` with a constant exponent.
    fn powf(self, x: Self::V, p: T) -> Self::V;
    /// Logistic function `1 / (1 + e^-x)`, without overflow.
    fn sigmoid(self, x: Self::V) -> Self::V;
    /// `ln(1 + e^x)`, without overflow.
    fn softplus(self, x: Self::V) -> Self::V;
    /// The normal distribution function and its density, `Φ(x) = (1 + erf(x/√2)) / 2` and
    /// `φ(x) = e^(-x²/2) / √(2π)`.
    fn normal(self, x: Self::V) -> (Self::V, Self::V);
}

/// `1 / (1 + e^-x)` by `e^-|x|`, which cannot overflow and keeps its digits where the result is tiny.
#[inline(always)]
pub(super) fn sigmoid<T: Real, A: Algebra<T>>(a: A, x: A::V) -> A::V {
    let one = a.splat(T::ONE);
    let e = a.exp(a.neg(a.abs(x)));
    let top = a.select(a.lt(x, a.splat(T::ZERO)), e, one);
    a.div(top, a.add(one, e))
}

/// `ln(1 + e^x)` as `max(x, 0) + ln(1 + e^-|x|)`.
#[inline(always)]
pub(super) fn softplus<T: Real, A: Algebra<T>>(a: A, x: A::V) -> A::V {
    let small = a.log1p(a.exp(a.neg(a.abs(x))));
    a.add(a.max(x, a.splat(T::ZERO)), small)
}

/// The functions of an algebra on vectors, by those of [`Real`].
macro_rules! elementary {
    ($t:ty) => {
        $crate::simd::algebra::elementary!(@ $t; exp expm1 ln log1p tanh erf sin cos);

        #[inline(always)]
        fn sign(self, a: Self::V) -> Self::V {
            let zero = self.or(self.eq(a, self.splat(0.0)), self.is_nan(a));
            self.select(zero, a, $crate::simd::Lanes::copysign(self, self.splat(1.0), a))
        }
        #[inline(always)]
        fn powf(self, x: Self::V, p: $t) -> Self::V {
            <$t as $crate::simd::Real>::pow(self, x, self.splat(p))
        }
        #[inline(always)]
        fn sigmoid(self, x: Self::V) -> Self::V {
            $crate::simd::algebra::sigmoid(self, x)
        }
        #[inline(always)]
        fn softplus(self, x: Self::V) -> Self::V {
            $crate::simd::algebra::softplus(self, x)
        }
        #[inline(always)]
        fn normal(self, x: Self::V) -> (Self::V, Self::V) {
            <$t as $crate::simd::Real>::normal(self, x)
        }
    };
    (@ $t:ty; $($f:ident)+) => {
        $(#[inline(always)]
        fn $f(self, x: Self::V) -> Self::V {
            <$t as $crate::simd::Real>::$f(self, x)
        })+
    };
}
pub(super) use elementary;
