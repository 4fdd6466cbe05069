//! Norms of any exponent, and vectors divided by their norm.

use crate::error::{ErrorKind, OrPanic, Result, require};
use crate::kernels::Real;
use crate::shape::{Axes, AxisSet, Shape};
use crate::tensor::Tensor;

/// The axes of a norm; an error if the exponent is NaN, or if there is no such norm of no elements.
#[doc(hidden)]
pub fn check_vector_norm(shape: &Shape, axes: impl Axes, p: f64) -> Result<AxisSet> {
    let op = "vector_norm";
    let axes = axes.resolve(op, shape)?;
    require(!p.is_nan(), op, ErrorKind::Value, || "the exponent p must not be NaN".into())?;
    let is_empty = axes.iter().any(|i| shape[i] == 0);
    require(p >= 0.0 && p.is_finite() || !is_empty, op, ErrorKind::Empty, || {
        format!("an axis of {shape:?} is empty, so it has no norm of exponent {p}")
    })?;
    Ok(axes)
}

/// The number below which [`Tensor::normalize`] does not divide; an error if it is negative or NaN.
#[doc(hidden)]
pub fn check_normalize(eps: f64) -> Result<()> {
    require(eps >= 0.0, "normalize", ErrorKind::Value, || format!("eps = {eps} must be at least 0"))
}

/// # Norms
impl<T: Real> Tensor<T> {
    /// The norm of exponent `p` over axes, `(Σ|x|ᵖ)^(1/p)`: `Σ|x|` for 1, the Euclidean norm for 2, the
    /// largest and the smallest magnitude for `∞` and `-∞`, and the number of elements other than 0 for 0.
    ///
    /// # Panics
    /// If `p` is NaN, or if an axis is empty and `p` is negative or infinite.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[3.0f32, -4.0], [0.0, 2.0]]);
    /// assert_eq!(x.vector_norm(-1, 1.0).to_vec(), [7.0, 2.0]);
    /// assert_eq!(x.vector_norm(-1, 2.0).to_vec(), [5.0, 2.0]);
    /// assert_eq!(x.vector_norm(.., f64::INFINITY).item(), 4.0);
    /// ```
    #[track_caller]
    pub fn vector_norm(&self, axes: impl Axes, p: f64) -> Tensor<T> {
        let axes = check_vector_norm(self.shape(), axes, p).or_panic();
        match p {
            0.0 => {
                self.ne(T::ZERO).where_(&Tensor::scalar(T::ONE), &Tensor::scalar(T::ZERO)).sum(axes)
            }
            1.0 => self.abs().sum(axes),
            2.0 => self.norm(axes),
            f64::INFINITY => self.abs().max(axes),
            f64::NEG_INFINITY => self.abs().min(axes),
            _ => {
                let powers = |x: &Tensor<T>| x.abs().powf(T::from_f64(p)).sum(axes);
                let (sums, scales) = self.sums_of_powers("vector_norm", axes, 0, powers);
                sums.powf(T::from_f64(1.0 / p)).unscaled(&scales)
            }
        }
    }

    /// [`Tensor::vector_norm`], axes kept with size 1.
    #[track_caller]
    pub fn vector_norm_keepdim(&self, axes: impl Axes, p: f64) -> Tensor<T> {
        let axes = check_vector_norm(self.shape(), axes, p).or_panic();
        self.vector_norm(axes, p).reshape(self.shape().reduced(axes, true))
    }

    /// `x / max(‖x‖ₚ, eps)`, with the [norm of exponent `p`](Tensor::vector_norm) over axes: vectors of length
    /// 1, but of what is shorter than `eps`. PyTorch's `eps` is 1e-12.
    ///
    /// # Panics
    /// If `eps` is negative or NaN, or there is no such norm.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[3.0f32, 4.0], [0.0, 0.0]]);
    /// assert_eq!(x.normalize(-1, 2.0, 1e-12).to_vec(), [0.6, 0.8, 0.0, 0.0]);
    /// assert_eq!(x.normalize(-1, f64::INFINITY, 1e-12).to_vec(), [0.75, 1.0, 0.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn normalize(&self, axes: impl Axes, p: f64, eps: f64) -> Tensor<T> {
        check_normalize(eps).or_panic();
        self.div(&self.vector_norm_keepdim(axes, p).clamp(T::from_f64(eps), T::INFINITY))
    }
}
