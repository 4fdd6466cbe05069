//! Norms of any exponent, and vectors divided by their norm.

use super::reduce::spread;
use crate::graph::{InputGrads, Var};
use crate::observe::saved;
use crate::op::Op;
use retrograd_tensor::error::OrPanic;
use retrograd_tensor::ops::vector_norm::{check_normalize, check_vector_norm};
use retrograd_tensor::{Axes, AxisSet, Real, Tensor};

static VECTOR_NORM: Op = Op::new("vector_norm", &["x"])
    .formula("y = (Σ |x|^p)^(1/p)", "dx = g · sign(x) · |x|^(p − 1) / y^(p − 1)");

/// # Norms
impl<T: Real> Var<T> {
    /// As [`Tensor::vector_norm`]. The derivative is `sign(x) · (|x| / ‖x‖)^(p-1)`, and 0 where `x` or the
    /// norm is 0. For `∞` and `-∞` it is `sign(x)`, in equal shares for all elements of that magnitude; for
    /// 0 it is 0.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([3.0f32, -4.0, 4.0]));
    /// let y = x.vector_norm(.., f64::INFINITY);
    /// assert_eq!(y.item(), 4.0);
    /// assert_eq!(y.backward().get(&x).unwrap().to_vec(), [0.0, -0.5, 0.5]);
    /// ```
    #[track_caller]
    pub fn vector_norm(&self, axes: impl Axes, p: f64) -> Var<T> {
        let axes = check_vector_norm(self.shape(), axes, p).or_panic();
        if p == 1.0 {
            return self.abs().sum(axes);
        } else if p == 2.0 {
            return self.norm(axes);
        }
        let value = self.value().vector_norm(axes, p);
        let output = value.clone();
        Var::from_op(VECTOR_NORM.with("axes", axes).with("p", p), value, [self], |[x]| {
            let (x, output) = (x.save(), saved("y", output));
            move |cx, g| {
                InputGrads::of(&x, || {
                    let input = cx.input(&x);
                    let sign = input.value().sign();
                    if p == 0.0 || p.is_infinite() {
                        let slope = match p {
                            0.0 => sign.zeros_like(),
                            _ => shares(input.value(), &sign, &output, axes),
                        };
                        return spread(g, input.shape(), axes).mul(&Var::constant(slope));
                    }
                    let at_zero = input.value().eq(T::ZERO);
                    let magnitude = input.abs().masked_fill(&at_zero, T::ONE);
                    let no_norm = output.eq(T::ZERO);
                    let norm = cx.output(&output).masked_fill(&no_norm, T::ONE);
                    let ratio = magnitude.div(&spread(&norm, input.shape(), axes));
                    let g = spread(&g.masked_fill(&no_norm, T::ZERO), input.shape(), axes);
                    g.mul(&ratio.powf(T::from_f64(p - 1.0))).mul(&Var::constant(sign))
                })
            }
        })
    }

    /// As [`Tensor::vector_norm_keepdim`]; the gradient is as for [`Var::vector_norm`].
    #[track_caller]
    pub fn vector_norm_keepdim(&self, axes: impl Axes, p: f64) -> Var<T> {
        let axes = check_vector_norm(self.shape(), axes, p).or_panic();
        self.vector_norm(axes, p).reshape(self.shape().reduced(axes, true))
    }

    /// As [`Tensor::normalize`]; the norm has a gradient where it is above `eps`.
    #[track_caller]
    pub fn normalize(&self, axes: impl Axes, p: f64, eps: f64) -> Var<T> {
        check_normalize(eps).or_panic();
        self.div(&self.vector_norm_keepdim(axes, p).clamp(T::from_f64(eps), T::INFINITY))
    }
}

/// The signs of the elements whose magnitude is the norm, or which are NaN, divided by their number; 0 for
/// the others.
fn shares<T: Real>(x: &Tensor<T>, sign: &Tensor<T>, norm: &Tensor<T>, axes: AxisSet) -> Tensor<T> {
    let kept = x.shape().reduced(axes, true);
    let chosen = x.abs().eq(norm.reshape(kept)).or(&x.isnan());
    let count = chosen.where_(&Tensor::scalar(T::ONE), &Tensor::scalar(T::ZERO)).sum_keepdim(axes);
    chosen.where_(&sign.div(&count), &Tensor::scalar(T::ZERO))
}
