//! Functions of one number; their formulas are in [`retrograd_tensor::ops::unary`].

use crate::graph::Var;
use retrograd_tensor::Real;
use retrograd_tensor::ops::unary::*;

impl<T: Real> Var<T> {
    /// `-x`, as a method: the `-` operator does the same.
    #[track_caller]
    pub fn neg(&self) -> Var<T> {
        self.map(Neg)
    }

    /// `|x|`. The derivative at 0 is 0.
    #[track_caller]
    pub fn abs(&self) -> Var<T> {
        self.map(Abs)
    }

    /// -1, 0 or 1; NaN of NaN. The derivative is 0 everywhere.
    #[track_caller]
    pub fn sign(&self) -> Var<T> {
        self.map(Sign)
    }

    /// `x²`
    #[track_caller]
    pub fn square(&self) -> Var<T> {
        self.map(Square)
    }

    /// `√x`, correctly rounded; NaN below 0. The derivative at 0 is infinite.
    #[track_caller]
    pub fn sqrt(&self) -> Var<T> {
        self.map(Sqrt)
    }

    /// `1/√x`; infinite at 0, NaN below.
    #[track_caller]
    pub fn rsqrt(&self) -> Var<T> {
        self.map(Rsqrt)
    }

    /// `1/x`
    #[track_caller]
    pub fn recip(&self) -> Var<T> {
        self.map(Recip)
    }

    /// `eˣ`
    #[track_caller]
    pub fn exp(&self) -> Var<T> {
        self.map(Exp)
    }

    /// `eˣ - 1`, accurate near 0.
    #[track_caller]
    pub fn expm1(&self) -> Var<T> {
        self.map(Expm1)
    }

    /// Natural logarithm; -inf at 0, NaN below.
    #[track_caller]
    pub fn ln(&self) -> Var<T> {
        self.map(Ln)
    }

    /// `ln(1 + x)`, accurate near 0; NaN below -1.
    #[track_caller]
    pub fn log1p(&self) -> Var<T> {
        self.map(Log1p)
    }

    /// Sine, of radians.
    #[track_caller]
    pub fn sin(&self) -> Var<T> {
        self.map(Sin)
    }

    /// Cosine, of radians.
    #[track_caller]
    pub fn cos(&self) -> Var<T> {
        self.map(Cos)
    }

    /// Error function, `2/√π ∫₀ˣ e^(-t²) dt`.
    #[track_caller]
    pub fn erf(&self) -> Var<T> {
        self.map(Erf)
    }

    /// `x^p`. NaN for negative `x` unless `p` is whole; `0⁰ = 1`. The derivative for `p = 0` is
    /// 0 even at 0.
    #[track_caller]
    pub fn powf(&self, p: T) -> Var<T> {
        self.map(Powf { p })
    }

    /// `x + c`
    #[track_caller]
    pub fn add_scalar(&self, c: T) -> Var<T> {
        self.map(AddScalar { c })
    }

    /// `x · c`
    #[track_caller]
    pub fn mul_scalar(&self, c: T) -> Var<T> {
        self.map(MulScalar { c })
    }

    /// `min(max(x, lo), hi)`; NaN of NaN. The derivative is 1 between `lo` and `hi`, and 0 elsewhere,
    /// also at the bounds.
    ///
    /// # Panics
    /// If `lo > hi` or either is NaN.
    #[track_caller]
    pub fn clamp(&self, lo: T, hi: T) -> Var<T> {
        assert!(lo <= hi, "clamp: bounds {lo} and {hi} are not in order");
        self.map(Clamp { lo, hi })
    }
}
