//! Functions of one number; their formulas are in [`retrograd_tensor::ops::unary`].

use crate::graph::Var;
use retrograd_tensor::Real;
#[cfg(doc)]
use retrograd_tensor::Tensor;
use retrograd_tensor::error::{ErrorKind, OrPanic, require};
use retrograd_tensor::ops::unary::*;

/// # Unary functions
impl<T: Real> Var<T> {
    /// As [`Tensor::neg`]; the gradient is `-g`.
    #[track_caller]
    pub fn neg(&self) -> Var<T> {
        self.map(Neg)
    }

    /// As [`Tensor::abs`]; the gradient is `g · sign(x)`, 0 at 0.
    #[track_caller]
    pub fn abs(&self) -> Var<T> {
        self.map(Abs)
    }

    /// As [`Tensor::sign`]; the derivative is 0 everywhere.
    #[track_caller]
    pub fn sign(&self) -> Var<T> {
        self.map(Sign)
    }

    /// As [`Tensor::floor`]; the derivative is 0 everywhere.
    #[track_caller]
    pub fn floor(&self) -> Var<T> {
        self.map(Floor)
    }

    /// As [`Tensor::ceil`]; the derivative is 0 everywhere.
    #[track_caller]
    pub fn ceil(&self) -> Var<T> {
        self.map(Ceil)
    }

    /// As [`Tensor::round`]; the derivative is 0 everywhere.
    #[track_caller]
    pub fn round(&self) -> Var<T> {
        self.map(Round)
    }

    /// As [`Tensor::trunc`]; the derivative is 0 everywhere.
    #[track_caller]
    pub fn trunc(&self) -> Var<T> {
        self.map(Trunc)
    }

    /// As [`Tensor::square`]; the gradient is `2g · x`.
    #[track_caller]
    pub fn square(&self) -> Var<T> {
        self.map(Square)
    }

    /// As [`Tensor::sqrt`]; the gradient is `g / (2y)`, infinite at 0.
    #[track_caller]
    pub fn sqrt(&self) -> Var<T> {
        self.map(Sqrt)
    }

    /// As [`Tensor::rsqrt`]; the gradient is `-g · y³ / 2`.
    #[track_caller]
    pub fn rsqrt(&self) -> Var<T> {
        self.map(Rsqrt)
    }

    /// As [`Tensor::recip`]; the gradient is `-g · y²`.
    #[doc(alias = "reciprocal")]
    #[track_caller]
    pub fn recip(&self) -> Var<T> {
        self.map(Recip)
    }

    /// As [`Tensor::exp`]; the gradient is `g · y`.
    #[track_caller]
    pub fn exp(&self) -> Var<T> {
        self.map(Exp)
    }

    /// As [`Tensor::expm1`]; the gradient is `g · eˣ`.
    #[track_caller]
    pub fn expm1(&self) -> Var<T> {
        self.map(Expm1)
    }

    /// As [`Tensor::ln`]; the gradient is `g / x`.
    #[doc(alias = "log")]
    #[track_caller]
    pub fn ln(&self) -> Var<T> {
        self.map(Ln)
    }

    /// As [`Tensor::log1p`]; the gradient is `g / (1 + x)`.
    #[track_caller]
    pub fn log1p(&self) -> Var<T> {
        self.map(Log1p)
    }

    /// As [`Tensor::sin`]; the gradient is `g · cos(x)`.
    #[track_caller]
    pub fn sin(&self) -> Var<T> {
        self.map(Sin)
    }

    /// As [`Tensor::cos`]; the gradient is `-g · sin(x)`.
    #[track_caller]
    pub fn cos(&self) -> Var<T> {
        self.map(Cos)
    }

    /// As [`Tensor::erf`]; the gradient is `g · 2/√π · e^(-x²)`.
    #[track_caller]
    pub fn erf(&self) -> Var<T> {
        self.map(Erf)
    }

    /// As [`Tensor::powf`]; the gradient is `g · p · x^(p - 1)`, and 0 for `p = 0` even at 0.
    #[track_caller]
    pub fn powf(&self, p: T) -> Var<T> {
        self.map(Powf { p })
    }

    /// As [`Tensor::add_scalar`]; the gradient is `g`.
    #[track_caller]
    pub fn add_scalar(&self, c: T) -> Var<T> {
        self.map(AddScalar { c })
    }

    /// As [`Tensor::mul_scalar`]; the gradient is `g · c`.
    #[track_caller]
    pub fn mul_scalar(&self, c: T) -> Var<T> {
        self.map(MulScalar { c })
    }

    /// As [`Tensor::clamp`]; the gradient is `g` where `lo < x < hi`, and 0 elsewhere, also at the bounds.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([-3.0f32, 0.5, 1.0]));
    /// let y = x.clamp(-1.0, 1.0);
    /// assert_eq!(y.value().to_vec(), [-1.0, 0.5, 1.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 1.0, 0.0]);
    /// ```
    #[doc(alias = "clip")]
    #[track_caller]
    pub fn clamp(&self, lo: T, hi: T) -> Var<T> {
        require(lo <= hi, "clamp", ErrorKind::Value, || {
            format!("bounds {lo} and {hi} are not in order")
        })
        .or_panic();
        self.map(Clamp { lo, hi })
    }
    /// As [`Tensor::nan_to_num`]; the gradient is `g` where `x` is finite, and 0 where a number is
    /// replaced.
    #[track_caller]
    pub fn nan_to_num(&self, nan: T, posinf: T, neginf: T) -> Var<T> {
        self.map(NanToNum { nan, posinf, neginf })
    }
}
