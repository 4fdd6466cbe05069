//! Functions of one number; their formulas are in [`retrograd_tensor::ops::unary`].

use crate::graph::Var;
use retrograd_tensor::Real;
use retrograd_tensor::error::{ErrorKind, OrPanic, require};
use retrograd_tensor::ops::unary::*;

/// # Unary functions
impl<T: Real> Var<T> {
    /// `-x`, as a method: the `-` operator does the same.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::constant(Tensor::from([1.0f32, -2.0]));
    /// assert_eq!(x.neg().value().to_vec(), [-1.0, 2.0]);
    /// ```
    #[track_caller]
    pub fn neg(&self) -> Var<T> {
        self.map(Neg)
    }

    /// `|x|`. The derivative at 0 is 0.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([-2.0f32, 0.0, 3.0]));
    /// let y = x.abs();
    /// assert_eq!(y.value().to_vec(), [2.0, 0.0, 3.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [-1.0, 0.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn abs(&self) -> Var<T> {
        self.map(Abs)
    }

    /// -1, 0 or 1; NaN of NaN. The derivative is 0 everywhere.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::constant(Tensor::from([-2.0f32, 0.0, 3.0]));
    /// assert_eq!(x.sign().value().to_vec(), [-1.0, 0.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn sign(&self) -> Var<T> {
        self.map(Sign)
    }

    /// The largest integer that is not above `x`. The derivative is 0.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([-1.5f32, 1.5]));
    /// let y = x.floor();
    /// assert_eq!(y.value().to_vec(), [-2.0, 1.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn floor(&self) -> Var<T> {
        self.map(Floor)
    }

    /// The smallest integer that is not below `x`. The derivative is 0.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([-1.5f32, 1.5]));
    /// let y = x.ceil();
    /// assert_eq!(y.value().to_vec(), [-1.0, 2.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn ceil(&self) -> Var<T> {
        self.map(Ceil)
    }

    /// The nearest integer, and the even one of two that are equally near. The derivative is 0.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([0.5f32, 1.5]));
    /// let y = x.round();
    /// assert_eq!(y.value().to_vec(), [0.0, 2.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn round(&self) -> Var<T> {
        self.map(Round)
    }

    /// The integer part: `x` rounded towards 0. The derivative is 0.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([-1.5f32, 1.5]));
    /// let y = x.trunc();
    /// assert_eq!(y.value().to_vec(), [-1.0, 1.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn trunc(&self) -> Var<T> {
        self.map(Trunc)
    }

    /// `x²`
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([-2.0f32, 3.0]));
    /// let y = x.square();
    /// assert_eq!(y.value().to_vec(), [4.0, 9.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [-4.0, 6.0]);
    /// ```
    #[track_caller]
    pub fn square(&self) -> Var<T> {
        self.map(Square)
    }

    /// `√x`, correctly rounded; NaN below 0. The derivative at 0 is infinite.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([4.0f32, 0.0]));
    /// let y = x.sqrt();
    /// assert_eq!(y.value().to_vec(), [2.0, 0.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.25, f32::INFINITY]);
    /// ```
    #[track_caller]
    pub fn sqrt(&self) -> Var<T> {
        self.map(Sqrt)
    }

    /// `1/√x`; infinite at 0, NaN below.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([4.0f32, 1.0]));
    /// let y = x.rsqrt();
    /// assert_eq!(y.value().to_vec(), [0.5, 1.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [-0.0625, -0.5]);
    /// ```
    #[track_caller]
    pub fn rsqrt(&self) -> Var<T> {
        self.map(Rsqrt)
    }

    /// `1/x`
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([4.0f32, -0.5]));
    /// let y = x.recip();
    /// assert_eq!(y.value().to_vec(), [0.25, -2.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [-0.0625, -4.0]);
    /// ```
    #[doc(alias = "reciprocal")]
    #[track_caller]
    pub fn recip(&self) -> Var<T> {
        self.map(Recip)
    }

    /// `eˣ`
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([0.0f32, f32::NEG_INFINITY]));
    /// let y = x.exp();
    /// assert_eq!(y.value().to_vec(), [1.0, 0.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [1.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn exp(&self) -> Var<T> {
        self.map(Exp)
    }

    /// `eˣ - 1`, accurate near 0.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::constant(Tensor::scalar(1e-20f64));
    /// assert_eq!(x.expm1().item(), 1e-20);
    /// assert_eq!((x.exp() - 1.0).item(), 0.0); // cancellation
    /// ```
    #[track_caller]
    pub fn expm1(&self) -> Var<T> {
        self.map(Expm1)
    }

    /// Natural logarithm; -inf at 0, NaN below.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([1.0f32, 4.0]));
    /// let y = x.ln();
    /// assert_eq!(y.value().to_vec(), [0.0, 4f32.ln()]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [1.0, 0.25]);
    /// ```
    #[doc(alias = "log")]
    #[track_caller]
    pub fn ln(&self) -> Var<T> {
        self.map(Ln)
    }

    /// `ln(1 + x)`, accurate near 0; NaN below -1.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::constant(Tensor::from([0.0f64, 1e-20]));
    /// assert_eq!(x.log1p().value().to_vec(), [0.0, 1e-20]);
    /// ```
    #[track_caller]
    pub fn log1p(&self) -> Var<T> {
        self.map(Log1p)
    }

    /// Sine, of radians.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// use std::f64::consts::PI;
    /// let x = Var::leaf(Tensor::from([0.0, PI / 2.0]));
    /// let y = x.sin();
    /// assert_eq!(y.value().to_vec(), [0.0, 1.0]);
    /// assert!((y.sum(..).backward().get(&x).unwrap().at(&[0]) - 1.0).abs() < 1e-12);
    /// ```
    #[track_caller]
    pub fn sin(&self) -> Var<T> {
        self.map(Sin)
    }

    /// Cosine, of radians.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([0.0f32]));
    /// let y = x.cos();
    /// assert_eq!(y.value().to_vec(), [1.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.0]);
    /// ```
    #[track_caller]
    pub fn cos(&self) -> Var<T> {
        self.map(Cos)
    }

    /// Error function, `2/√π ∫₀ˣ e^(-t²) dt`.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::constant(Tensor::from([0.0f64, 10.0, -10.0]));
    /// assert_eq!(x.erf().value().to_vec(), [0.0, 1.0, -1.0]);
    /// ```
    #[track_caller]
    pub fn erf(&self) -> Var<T> {
        self.map(Erf)
    }

    /// `x^p`. NaN for negative `x` unless `p` is whole; `0⁰ = 1`. The derivative for `p = 0` is
    /// 0 even at 0.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([3.0f32, 0.0]));
    /// let y = x.powf(2.0);
    /// assert_eq!(y.value().to_vec(), [9.0, 0.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [6.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn powf(&self, p: T) -> Var<T> {
        self.map(Powf { p })
    }

    /// `x + c`
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::constant(Tensor::from([1.0f32, 2.0]));
    /// assert_eq!(x.add_scalar(0.5).value().to_vec(), [1.5, 2.5]);
    /// ```
    #[track_caller]
    pub fn add_scalar(&self, c: T) -> Var<T> {
        self.map(AddScalar { c })
    }

    /// `x · c`
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([1.0f32, 2.0]));
    /// let y = x.mul_scalar(3.0);
    /// assert_eq!(y.value().to_vec(), [3.0, 6.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [3.0, 3.0]);
    /// ```
    #[track_caller]
    pub fn mul_scalar(&self, c: T) -> Var<T> {
        self.map(MulScalar { c })
    }

    /// `min(max(x, lo), hi)`; NaN of NaN. The derivative is 1 between `lo` and `hi`, and 0 elsewhere,
    /// also at the bounds.
    ///
    /// # Panics
    /// If `lo > hi` or either is NaN.
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
    /// `x` with other numbers for NaN, `∞` and `-∞`; see [`Tensor::nan_to_num`]. The derivative is 0 where a
    /// number is replaced.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([f32::NAN, f32::INFINITY, 2.0]));
    /// let y = x.nan_to_num(0.0, 9.0, -9.0);
    /// assert_eq!(y.value().to_vec(), [0.0, 9.0, 2.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 0.0, 1.0]);
    /// ```
    ///
    /// [`Tensor::nan_to_num`]: retrograd_tensor::Tensor::nan_to_num
    #[track_caller]
    pub fn nan_to_num(&self, nan: T, posinf: T, neginf: T) -> Var<T> {
        self.map(NanToNum { nan, posinf, neginf })
    }
}
