//! Normalisation along the last axis.

use crate::graph::{Cx, InputGrads, Var};
use crate::op::{Fused, Slot};
use retrograd_tensor::{Real, Tensor};

struct LayerNorm<T: Real> {
    x: Slot<T>,
    weight: Slot<T>,
    bias: Slot<T>,
    eps: f64,
}

impl<T: Real> Fused<T> for LayerNorm<T> {
    const NAME: &'static str = "layer_norm";

    fn vjp(&self, [g]: [&Tensor<T>; 1]) -> InputGrads<T> {
        let (dx, dw, db) = self.x.value().layer_norm_vjps(self.weight.get(), self.eps, g);
        InputGrads::of(&self.x, || dx).and(&self.weight, || dw).and(&self.bias, || db)
    }

    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 1] {
        let x = cx.input(&self.x);
        let centred = x.sub(&x.mean_keepdim(-1));
        let var = centred.square().mean_keepdim(-1);
        let y = centred.mul(&(var + T::from_f64(self.eps)).rsqrt());
        let y = cx.optional(&self.weight).map_or(y.clone(), |weight| y.mul(&weight));
        [cx.optional(&self.bias).map_or(y.clone(), |bias| y.add(&bias))]
    }
}

struct RmsNorm<T: Real> {
    x: Slot<T>,
    weight: Slot<T>,
    eps: f64,
}

impl<T: Real> Fused<T> for RmsNorm<T> {
    const NAME: &'static str = "rms_norm";

    fn vjp(&self, [g]: [&Tensor<T>; 1]) -> InputGrads<T> {
        let (dx, dw) = self.x.value().rms_norm_vjps(self.weight.get(), self.eps, g);
        InputGrads::of(&self.x, || dx).and(&self.weight, || dw)
    }

    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 1] {
        let x = cx.input(&self.x);
        let mean_square = x.square().mean_keepdim(-1);
        let y = x.mul(&(mean_square + T::from_f64(self.eps)).rsqrt());
        [cx.optional(&self.weight).map_or(y.clone(), |weight| y.mul(&weight))]
    }
}

/// # Normalisation
impl<T: Real> Var<T> {
    /// `(x - mean) / √(var + eps) · weight + bias` over the last axis, see
    /// [`Tensor::layer_norm`].
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([[1.0f64, 3.0], [5.0, 5.0]]));
    /// let weight = Var::leaf(Tensor::from([2.0f64, 2.0]));
    /// let y = x.layer_norm(Some(&weight), None, 0.0).narrow(0, 0, 1);
    /// assert_eq!(y.value().to_vec(), [-2.0, 2.0]); // mean 2, standard deviation 1
    /// ```
    #[track_caller]
    pub fn layer_norm(&self, weight: Option<&Var<T>>, bias: Option<&Var<T>>, eps: f64) -> Var<T> {
        let value = self.value().layer_norm(weight.map(Var::value), bias.map(Var::value), eps);
        let [y] = Var::from_fused([value], [Some(self), weight, bias], |[x, weight, bias]| {
            LayerNorm { x: x.save(), weight: weight.save(), bias: bias.save(), eps }
        });
        y
    }

    /// `x / √(mean(x²) + eps) · weight` over the last axis, see [`Tensor::rms_norm`].
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::constant(Tensor::from([[3.0f64, 4.0]]));
    /// assert_eq!((x.rms_norm(None, 0.0) * 12.5f64.sqrt()).value().to_vec(), [3.0, 4.0]);
    /// ```
    #[track_caller]
    pub fn rms_norm(&self, weight: Option<&Var<T>>, eps: f64) -> Var<T> {
        let value = self.value().rms_norm(weight.map(Var::value), eps);
        let [y] = Var::from_fused([value], [Some(self), weight], |[x, weight]| RmsNorm {
            x: x.save(),
            weight: weight.save(),
            eps,
        });
        y
    }
}
