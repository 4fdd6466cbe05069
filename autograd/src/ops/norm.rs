//! Normalisation along the last axis, or the last axes.

use crate::graph::{Cx, InputGrads, Tangents, Var};
use crate::op::Op;
use crate::record::{Fused, Slot};
use retrograd_tensor::error::{ErrorKind, OrPanic, assert};
use retrograd_tensor::{Axes, Real, Shape, Tensor};

static LAYER_NORM: Op = Op::new("layer_norm", &["x", "w?", "b?"]).formula("y = n · w + b, n = (x − mean) / √(var + ε), over the last axis", "dx = (h − mean(h) − n · mean(h · n)) / √(var + ε), h = g · w\ndw = Σ g · n, over the rows\ndb = Σ g");
static RMS_NORM: Op = Op::new("rms_norm", &["x", "w?"]).formula(
    "y = n · w, n = x / √(mean(x²) + ε), over the last axis",
    "dx = (h − n · mean(h · n)) / √(mean(x²) + ε), h = g · w\ndw = Σ g · n, over the rows",
);

struct LayerNorm<T: Real> {
    x: Slot<T>,
    weight: Slot<T>,
    bias: Slot<T>,
    eps: f64,
}

impl<T: Real> Fused<T> for LayerNorm<T> {
    fn vjp(&self, [g]: [&Tensor<T>; 1]) -> InputGrads<T> {
        let (dx, dw, db) = self.x.value().layer_norm_vjps(self.weight.get(), self.eps, g);
        InputGrads::of(&self.x, || dx).and(&self.weight, || dw).and(&self.bias, || db)
    }

    fn jvp(&self, t: Tangents<'_, T>) -> Option<[Tensor<T>; 1]> {
        let x = self.x.value();
        let by_x = |t: &Tensor<T>| x.layer_norm_vjps(None, self.eps, t).0;
        let terms =
            weighted(t, [&self.x, &self.weight], by_x, || x.layer_norm(None, None, self.eps));
        Some([sum([terms, t.value(&self.bias).cloned()])?])
    }

    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 1] {
        let x = cx.input(&self.x);
        let mut centred = x.clone();
        let (_, root, _) = over_root(&x, self.eps, |x| {
            centred = x.sub(&x.mean_keepdim(-1));
            centred.square().mean_keepdim(-1)
        });
        let y = centred.mul(&root);
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
    fn vjp(&self, [g]: [&Tensor<T>; 1]) -> InputGrads<T> {
        let (dx, dw) = self.x.value().rms_norm_vjps(self.weight.get(), self.eps, g);
        InputGrads::of(&self.x, || dx).and(&self.weight, || dw)
    }

    fn jvp(&self, t: Tangents<'_, T>) -> Option<[Tensor<T>; 1]> {
        let x = self.x.value();
        let by_x = |t: &Tensor<T>| x.rms_norm_vjps(None, self.eps, t).0;
        Some([weighted(t, [&self.x, &self.weight], by_x, || x.rms_norm(None, self.eps))?])
    }

    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 1] {
        let x = cx.input(&self.x);
        let (x, root, _) = over_root(&x, self.eps, |x| x.square().mean_keepdim(-1));
        let y = x.mul(&root);
        [cx.optional(&self.weight).map_or(y.clone(), |weight| y.mul(&weight))]
    }
}

/// The tangent of `n · w` by `x` and `w`, where the Jacobian of `n` is symmetric, so that its product with a vector is
/// its VJP.
#[track_caller]
fn weighted<T: Real>(
    t: Tangents<'_, T>,
    [x, weight]: [&Slot<T>; 2],
    vjp: impl Fn(&Tensor<T>) -> Tensor<T>,
    n: impl Fn() -> Tensor<T>,
) -> Option<Tensor<T>> {
    let by_x = t.value(x).map(vjp).map(|t| weight.get().map_or(t.clone(), |weight| t.mul(weight)));
    sum([by_x, t.value(weight).map(|t| n().mul(t))])
}

/// The sum of the terms that there are.
#[track_caller]
pub(super) fn sum<T: Real, const N: usize>(terms: [Option<Tensor<T>>; N]) -> Option<Tensor<T>> {
    terms.into_iter().flatten().reduce(|a, b| a.add(&b))
}

/// `x` and `1 / √(square(x) + eps)` over the last axis, whose product neither overflows nor vanishes: of
/// elements multiplied by powers of two, which are returned, where squares overflow or vanish.
#[doc(hidden)]
#[track_caller]
pub fn over_root<T: Real>(
    x: &Var<T>,
    eps: f64,
    mut square: impl FnMut(&Var<T>) -> Var<T>,
) -> (Var<T>, Var<T>, Option<Var<T>>) {
    let squares = square(x) + T::from_f64(eps);
    let axes = (-1).resolve("over_root", x.shape()).or_panic();
    let Some(scales) = x.value().scales_of_powers("over_root", squares.value(), axes, 32) else {
        return (x.clone(), squares.rsqrt(), None);
    };
    let eps = scales.mul_scalar(T::from_f64(eps)).mul(&scales);
    let scales = Var::constant(scales);
    let x = x.mul(&scales);
    let root = square(&x).add(&Var::constant(eps)).rsqrt();
    (x, root, Some(scales))
}

/// # Normalisation
impl<T: Real> Var<T> {
    /// As [`Tensor::layer_norm`]; with `n = (x - mean) / √(var + eps)` and `u = g · weight`, the gradient
    /// is `(u - mean(u) - n · mean(u · n)) / √(var + eps)`.
    #[track_caller]
    pub fn layer_norm(&self, weight: Option<&Var<T>>, bias: Option<&Var<T>>, eps: f64) -> Var<T> {
        let value = self.value().layer_norm(weight.map(Var::value), bias.map(Var::value), eps);
        let (call, inputs) = (LAYER_NORM.with("ε", eps), [Some(self), weight, bias]);
        let [y] = Var::from_fused(call, [value], inputs, |[x, weight, bias]| LayerNorm {
            x: x.save(),
            weight: weight.save(),
            bias: bias.save(),
            eps,
        });
        y
    }

    /// As [`Tensor::rms_norm`]; with `n = x / √(mean(x²) + eps)` and `u = g · weight`, the gradient is
    /// `(u - n · mean(u · n)) / √(mean(x²) + eps)`.
    #[track_caller]
    pub fn rms_norm(&self, weight: Option<&Var<T>>, eps: f64) -> Var<T> {
        let value = self.value().rms_norm(weight.map(Var::value), eps);
        let (call, inputs) = (RMS_NORM.with("ε", eps), [Some(self), weight]);
        let [y] = Var::from_fused(call, [value], inputs, |[x, weight]| RmsNorm {
            x: x.save(),
            weight: weight.save(),
            eps,
        });
        y
    }

    /// [`Var::layer_norm`] over the last axes, of the sizes `normalized_shape`, together: PyTorch's
    /// `layer_norm(x, normalized_shape, ..)`. `weight` and `bias` have that shape.
    ///
    /// # Panics
    /// If `normalized_shape` is empty or not the sizes of the last axes, or as [`Var::layer_norm`].
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([[1.0f64, 3.0], [3.0, 1.0]]));
    /// let weight = Var::leaf(Tensor::from([[1.0f64, 2.0], [3.0, 4.0]]));
    /// let y = x.layer_norm_over(&[2, 2], Some(&weight), None, 0.0);
    /// assert_eq!(y.value().to_vec(), [-1.0, 2.0, 3.0, -4.0]); // mean 2, standard deviation 1
    /// ```
    #[track_caller]
    pub fn layer_norm_over(
        &self,
        normalized_shape: &[usize],
        weight: Option<&Var<T>>,
        bias: Option<&Var<T>>,
        eps: f64,
    ) -> Var<T> {
        let over = Over::new("layer_norm_over", self, normalized_shape);
        let (weight, bias) = (over.parameter("weight", weight), over.parameter("bias", bias));
        let y = over.flat(self).layer_norm(weight.as_ref(), bias.as_ref(), eps);
        y.reshape(self.shape())
    }

    /// [`Var::layer_norm_over`], and the mean and the inverse deviation `1 / √(var + eps)` that it
    /// multiplies by, both with the normalised axes kept as axes of size 1: PyTorch's
    /// `native_layer_norm`. Gradients flow through all three (in PyTorch through the first).
    ///
    /// # Panics
    /// As [`Var::layer_norm_over`].
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([[1.0f64, 5.0], [7.0, 8.0]]));
    /// let (y, mean, inverse) = x.layer_norm_with_stats(&[2], None, None, 0.0);
    /// assert_eq!(mean.value().to_vec(), [3.0, 7.5]);
    /// assert_eq!(inverse.value().to_vec(), [0.5, 2.0]);
    /// assert_eq!(y.value(), ((x - mean) * inverse).value());
    /// ```
    #[track_caller]
    pub fn layer_norm_with_stats(
        &self,
        normalized_shape: &[usize],
        weight: Option<&Var<T>>,
        bias: Option<&Var<T>>,
        eps: f64,
    ) -> (Var<T>, Var<T>, Var<T>) {
        let y = self.layer_norm_over(normalized_shape, weight, bias, eps);
        let over = Over::new("layer_norm_with_stats", self, normalized_shape);
        let x = over.flat(self);
        let (_, root, scales) = over_root(&x, eps, |x| x.var_keepdim(-1, 0));
        let inverse = scales.map_or(root.clone(), |scales| root.mul(&scales));
        let kept = over.kept();
        (y, x.mean_keepdim(-1).reshape(kept), inverse.reshape(kept))
    }

    /// [`Var::rms_norm`] over the last axes together, as [`Var::layer_norm_over`].
    #[track_caller]
    pub fn rms_norm_over(
        &self,
        normalized_shape: &[usize],
        weight: Option<&Var<T>>,
        eps: f64,
    ) -> Var<T> {
        let over = Over::new("rms_norm_over", self, normalized_shape);
        let weight = over.parameter("weight", weight);
        over.flat(self).rms_norm(weight.as_ref(), eps).reshape(self.shape())
    }
}

/// The last axes of a variable, normalised together.
struct Over<'a> {
    op: &'static str,
    shape: Shape,
    normalized: &'a [usize],
}

impl<'a> Over<'a> {
    #[track_caller]
    fn new<T: Real>(op: &'static str, x: &Var<T>, normalized: &'a [usize]) -> Self {
        let shape = *x.shape();
        let fits = !normalized.is_empty() && shape.ends_with(normalized);
        assert(fits, op, ErrorKind::Mismatch, || {
            format!(
                "a normalized_shape of {normalized:?} is not that of the last axes of {shape:?}"
            )
        });
        Over { op, shape, normalized }
    }

    /// The other axes, followed by these.
    fn and(&self, axes: &[usize]) -> Shape {
        let others = self.shape.rank() - self.normalized.len();
        [&self.shape[..others], axes].concat().into()
    }

    /// The normalised axes as one.
    #[track_caller]
    fn flat<T: Real>(&self, x: &Var<T>) -> Var<T> {
        x.reshape(self.and(&[self.normalized.iter().product()]))
    }

    /// The shape with normalised axes of size 1.
    fn kept(&self) -> Shape {
        self.and(&vec![1; self.normalized.len()])
    }

    /// A weight or bias, as a vector.
    #[track_caller]
    fn parameter<T: Real>(&self, name: &str, x: Option<&Var<T>>) -> Option<Var<T>> {
        let x = x?;
        assert(x.shape()[..] == *self.normalized, self.op, ErrorKind::Mismatch, || {
            format!("{name} has shape {:?}, not {:?}", x.shape(), self.normalized)
        });
        Some(x.flatten())
    }
}
