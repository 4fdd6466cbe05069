//! Functions of one number; their formulas are in [`retrograd_tensor::ops::unary`].

use crate::graph::Var;
use crate::ops::pointwise::pointwise_methods;
use retrograd_tensor::Real;
#[cfg(doc)]
use retrograd_tensor::Tensor;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::ops::unary::*;

/// # Unary functions
impl<T: Real> Var<T> {
    pointwise_methods! {
        /// As [`Tensor::neg`]; the gradient is `-g`.
        pub fn neg = Neg;

        /// As [`Tensor::abs`]; the gradient is `g · sign(x)`, 0 at 0.
        pub fn abs = Abs;

        /// As [`Tensor::sign`]; the derivative is 0 everywhere.
        pub fn sign = Sign;

        /// As [`Tensor::floor`]; the derivative is 0 everywhere.
        pub fn floor = Floor;

        /// As [`Tensor::ceil`]; the derivative is 0 everywhere.
        pub fn ceil = Ceil;

        /// As [`Tensor::round`]; the derivative is 0 everywhere.
        pub fn round = Round;

        /// As [`Tensor::trunc`]; the derivative is 0 everywhere.
        pub fn trunc = Trunc;

        /// As [`Tensor::square`]; the gradient is `2g · x`.
        pub fn square = Square;

        /// As [`Tensor::sqrt`]; the gradient is `g / (2y)`, infinite at 0.
        pub fn sqrt = Sqrt;

        /// As [`Tensor::rsqrt`]; the gradient is `-g · y³ / 2`.
        pub fn rsqrt = Rsqrt;

        /// As [`Tensor::recip`]; the gradient is `-g · y²`.
        #[doc(alias = "reciprocal")]
        pub fn recip = Recip;

        /// As [`Tensor::exp`]; the gradient is `g · y`.
        pub fn exp = Exp;

        /// As [`Tensor::expm1`]; the gradient is `g · eˣ`.
        pub fn expm1 = Expm1;

        /// As [`Tensor::ln`]; the gradient is `g / x`.
        #[doc(alias = "log")]
        pub fn ln = Ln;

        /// As [`Tensor::log1p`]; the gradient is `g / (1 + x)`.
        pub fn log1p = Log1p;

        /// As [`Tensor::sin`]; the gradient is `g · cos(x)`.
        pub fn sin = Sin;

        /// As [`Tensor::cos`]; the gradient is `-g · sin(x)`.
        pub fn cos = Cos;

        /// As [`Tensor::erf`]; the gradient is `g · 2/√π · e^(-x²)`.
        pub fn erf = Erf;

        /// As [`Tensor::powf`]; the gradient is `g · p · x^(p - 1)`, and 0 for `p = 0` even at 0.
        pub fn powf(p) = Powf;

        /// As [`Tensor::add_scalar`]; the gradient is `g`.
        pub fn add_scalar(c) = AddScalar;

        /// As [`Tensor::mul_scalar`]; the gradient is `g · c`.
        pub fn mul_scalar(c) = MulScalar;

        /// As [`Tensor::nan_to_num`]; the gradient is `g` where `x` is finite, and 0 where a number is
        /// replaced.
        pub fn nan_to_num(nan, posinf, neginf) = NanToNum;
    }

    /// As [`Tensor::clamp`]; the gradient is `g` where `lo < x < hi`, and 0 elsewhere, also at the bounds.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([-3.0f32, 0.5, 1.0]));
    /// let y = x.clamp(-1.0, 1.0);
    /// assert_eq!(y.value().to_vec(), [-1.0, 0.5, 1.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 1.0, 0.0]);
    /// ```
    #[doc(alias = "clip")]
    #[track_caller]
    pub fn clamp(&self, lo: T, hi: T) -> Var<T> {
        assert(lo <= hi, "clamp", ErrorKind::Value, || {
            format!("bounds {lo} and {hi} are not in order")
        });
        self.map(Clamp { lo, hi })
    }
}
