//! Normalisation along the last axis.

use crate::node::{Backward, Cx, Grads};
use crate::ops::through;
use crate::var::Var;
use retrograd_tensor::{Real, Tensor};

#[derive(Debug)]
struct LayerNorm<T: Real> {
    x: Tensor<T>,
    weight: Option<Tensor<T>>,
    eps: f64,
}

impl<T: Real> Backward<T> for LayerNorm<T> {
    fn name(&self) -> &'static str {
        "layer_norm"
    }
    /// Inputs: x, then the weight and the bias, each if it is there.
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        let (weight, eps) = (self.weight.as_ref(), self.eps);
        let bias_at = if weight.is_some() { 2 } else { 1 };
        let has_bias = cx.inputs() > bias_at;
        let mut grads = if cx.recording() {
            let mut inputs = vec![cx.input(0, &self.x)];
            inputs.extend(weight.map(|w| cx.input(1, w)));
            through(&inputs, g, |x| composed_layer_norm(&x[0], x.get(1), None, eps))
        } else {
            let (dx, dw, db) = self.x.layer_norm_vjps(weight, eps, g.value());
            let found = [Some(dx), weight.map(|_| dw), has_bias.then_some(db)];
            return found.into_iter().flatten().map(|g| Some(Var::constant(g))).collect();
        };
        grads.extend(has_bias.then(|| Some(g.clone())));
        grads
    }
}

/// Layer normalisation of differentiable operations: the definition that the fused kernels
/// are checked against, and what a recorded pass differentiates.
pub fn composed_layer_norm<T: Real>(
    x: &Var<T>,
    weight: Option<&Var<T>>,
    bias: Option<&Var<T>>,
    eps: f64,
) -> Var<T> {
    let centred = x.sub(&x.mean_keepdim(-1));
    let var = centred.square().mean_keepdim(-1);
    scaled(centred.mul(&(var + T::from_f64(eps)).rsqrt()), weight, bias)
}

#[derive(Debug)]
struct RmsNorm<T: Real> {
    x: Tensor<T>,
    weight: Option<Tensor<T>>,
    eps: f64,
}

impl<T: Real> Backward<T> for RmsNorm<T> {
    fn name(&self) -> &'static str {
        "rms_norm"
    }
    /// Inputs: x, then the weight if it is there.
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        let (weight, eps) = (self.weight.as_ref(), self.eps);
        if cx.recording() {
            let mut inputs = vec![cx.input(0, &self.x)];
            inputs.extend(weight.map(|w| cx.input(1, w)));
            return through(&inputs, g, |x| composed_rms_norm(&x[0], x.get(1), eps));
        }
        let (dx, dw) = self.x.rms_norm_vjps(weight, eps, g.value());
        let found = [Some(dx), weight.map(|_| dw)];
        found.into_iter().flatten().map(|g| Some(Var::constant(g))).collect()
    }
}

/// RMS normalisation of differentiable operations, see [`composed_layer_norm`].
pub fn composed_rms_norm<T: Real>(x: &Var<T>, weight: Option<&Var<T>>, eps: f64) -> Var<T> {
    let square = x.square().mean_keepdim(-1);
    scaled(x.mul(&(square + T::from_f64(eps)).rsqrt()), weight, None)
}

fn scaled<T: Real>(x: Var<T>, weight: Option<&Var<T>>, bias: Option<&Var<T>>) -> Var<T> {
    let x = weight.map_or(x.clone(), |w| x.mul(w));
    bias.map_or(x.clone(), |b| x.add(b))
}

impl<T: Real> Var<T> {
    /// `(x - mean) / √(var + eps) · weight + bias` over the last axis, see
    /// [`Tensor::layer_norm`].
    #[track_caller]
    pub fn layer_norm(&self, weight: Option<&Var<T>>, bias: Option<&Var<T>>, eps: f64) -> Var<T> {
        let value =
            self.value().layer_norm(weight.map(|w| w.value()), bias.map(|b| b.value()), eps);
        let inputs: Vec<&Var<T>> = [Some(self), weight, bias].into_iter().flatten().collect();
        Var::from_op(value, &inputs, |_| LayerNorm {
            x: self.value().clone(),
            weight: weight.map(|w| w.value().clone()),
            eps,
        })
    }

    /// `x / √(mean(x²) + eps) · weight` over the last axis, see [`Tensor::rms_norm`].
    #[track_caller]
    pub fn rms_norm(&self, weight: Option<&Var<T>>, eps: f64) -> Var<T> {
        let value = self.value().rms_norm(weight.map(|w| w.value()), eps);
        let inputs: Vec<&Var<T>> = [Some(self), weight].into_iter().flatten().collect();
        Var::from_op(value, &inputs, |_| RmsNorm {
            x: self.value().clone(),
            weight: weight.map(|w| w.value().clone()),
            eps,
        })
    }
}
