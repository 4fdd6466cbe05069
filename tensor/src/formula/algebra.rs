//! The operations that formulas are written in.

use crate::element::Float;
use std::ops::Sub;

/// The algebra of formulas: arithmetic, comparisons and elementary functions of numbers of type
/// `T`.
///
/// An algebra is a value; its numbers are of type [`Algebra::V`]. Formulas are functions of
/// [`Expr`](super::Expr)s, which hold both.
///
/// On vectors of `f32` the elementary functions have documented error bounds in units in the last
/// place (ULP), over all arguments from subnormal to infinite. On vectors of `f64` the bounds are the same, but 2
/// for [`Algebra::tanh`]; on single lanes, without AVX, the functions are those of the standard library. NaN gives NaN (but see [`Algebra::powf`]), and odd functions keep the sign of
/// zero. The result in a lane depends on the argument in that lane only.
pub trait Algebra<T: Copy>: Copy {
    /// A number, or a vector of numbers.
    type V: Copy;
    /// A truth value, or a vector of truth values.
    type M: Copy;

    /// The constant `x`, in every lane.
    fn splat(self, x: T) -> Self::V;
    /// A parameter of the operation, in every lane. Text shows its name.
    #[inline(always)]
    fn parameter(self, p: Parameter) -> Self::V
    where
        T: Float,
    {
        self.splat(T::from_f64(p.value()))
    }
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
    /// Nearest integer, ties to even, with the sign of `a` where it is zero.
    fn round(self, a: Self::V) -> Self::V;
    /// The largest integer that is not above `a`.
    #[inline(always)]
    fn floor(self, a: Self::V) -> Self::V
    where
        T: Float,
    {
        let nearest = self.round(a);
        self.select(self.lt(a, nearest), self.sub(nearest, self.splat(T::ONE)), nearest)
    }
    /// The smallest integer that is not below `a`.
    #[inline(always)]
    fn ceil(self, a: Self::V) -> Self::V
    where
        T: Float,
    {
        self.neg(self.floor(self.neg(a)))
    }
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

    /// `e^x`; `f32`: at most 1.5 ULP.
    fn exp(self, x: Self::V) -> Self::V;
    /// `e^x - 1`, accurate near 0; `f32`: at most 2 ULP.
    fn expm1(self, x: Self::V) -> Self::V;
    /// Natural logarithm; `-inf` at 0 and NaN below; `f32`: at most 1 ULP.
    fn ln(self, x: Self::V) -> Self::V;
    /// `ln(1 + x)`, accurate near 0; `-inf` at -1 and NaN below; `f32`: at most 2 ULP.
    fn log1p(self, x: Self::V) -> Self::V;
    /// Hyperbolic tangent; `f32`: at most 3 ULP.
    fn tanh(self, x: Self::V) -> Self::V;
    /// Error function; `f32`: at most 1.5 ULP.
    fn erf(self, x: Self::V) -> Self::V;
    /// Sine of radians; NaN at infinity; `f32`: at most 3 ULP.
    fn sin(self, x: Self::V) -> Self::V;
    /// Cosine of radians; NaN at infinity; `f32`: at most 3 ULP.
    fn cos(self, x: Self::V) -> Self::V;
    /// `x^p` with a constant exponent, with the conventions of `f64::powf` (`x^0` and `1^p` are 1,
    /// even for NaN); `f32`: at most 0.51 ULP.
    fn powf(self, x: Self::V, p: T) -> Self::V;
    /// [`Algebra::powf`] with a parameter as the exponent.
    #[inline(always)]
    fn power(self, x: Self::V, p: Parameter) -> Self::V
    where
        T: Float,
    {
        self.powf(x, T::from_f64(p.value()))
    }
    /// Logistic function `1 / (1 + e^-x)`, without overflow.
    fn sigmoid(self, x: Self::V) -> Self::V;
    /// `ln(1 + e^x)`, without overflow.
    fn softplus(self, x: Self::V) -> Self::V;
    /// The normal distribution function and its density, `Φ(x) = (1 + erf(x/√2)) / 2` and
    /// `φ(x) = e^(-x²/2) / √(2π)`.
    fn normal(self, x: Self::V) -> (Self::V, Self::V);
}

/// A parameter of an operation in its formulas: a number that has a name.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    name: &'static str,
    value: f64,
    /// A literal that is added.
    plus: f64,
}

impl Parameter {
    /// The parameter of this name.
    #[inline(always)]
    pub fn new(name: &'static str, value: f64) -> Parameter {
        Parameter { name, value, plus: 0.0 }
    }
    /// The number.
    #[inline(always)]
    pub fn value(self) -> f64 {
        self.value + self.plus
    }
    /// The name, and the literal that is added to the parameter.
    pub(super) fn text(self) -> (&'static str, f64) {
        (self.name, self.plus)
    }
}

impl Sub<f64> for Parameter {
    type Output = Parameter;
    #[inline(always)]
    fn sub(self, less: f64) -> Parameter {
        Parameter { plus: self.plus - less, ..self }
    }
}

impl PartialEq<f64> for Parameter {
    #[inline(always)]
    fn eq(&self, value: &f64) -> bool {
        self.value() == *value
    }
}
