//! Linear layers, alone and with what follows them, see [`retrograd_tensor::ops::linear`].

use crate::node::{Backward, Cx, Grads};
use crate::ops::matmul::of_right_transposed;
use crate::ops::through;
use crate::var::Var;
use retrograd_tensor::ops::pointwise::Pointwise;
use retrograd_tensor::settings::grad_enabled;
use retrograd_tensor::{Real, Tensor};

/// Weight and bias of a linear layer.
pub type Affine<'a, T> = (&'a Var<T>, Option<&'a Var<T>>);

impl<T: Real> Var<T> {
    /// `x · Wᵀ + b`: `[.., inputs]` with a weight `[outputs, inputs]` and a bias `[outputs]` is
    /// `[.., outputs]`.
    ///
    /// # Panics
    /// If shapes do not agree.
    ///
    /// ```
    /// use retrograd_autograd::Var;
    /// use retrograd_tensor::Tensor;
    /// let w = Var::leaf(Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]));
    /// let y = Var::constant(Tensor::from([1.0, -1.0])).linear(&w, None);
    /// assert_eq!(y.value().to_vec(), [-1.0, -1.0]);
    /// assert_eq!(y.sum(..).backward().get(&w).unwrap().to_vec(), [1.0, -1.0, 1.0, -1.0]);
    /// ```
    #[track_caller]
    pub fn linear(&self, weight: &Var<T>, bias: Option<&Var<T>>) -> Var<T> {
        let value = self.value().linear(weight.value(), bias.map(Var::value));
        self.linear_of(value, weight, [bias, None])
    }

    /// `r + (x · Wᵀ + b)` with a residual `r` `[.., outputs]`: [`Var::linear`] and a sum in one
    /// pass over memory, as at the end of each half of a transformer block.
    ///
    /// # Panics
    /// If shapes do not agree; the residual is not broadcast.
    ///
    /// ```
    /// use retrograd_autograd::Var;
    /// use retrograd_tensor::Tensor;
    /// let (x, w) = (Var::leaf(Tensor::from([1.0f32, -1.0])), Var::leaf(Tensor::eye(2)));
    /// let y = x.linear_add(&w, None, &x);
    /// assert_eq!(y.value().to_vec(), [2.0, -2.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [2.0, 2.0]);
    /// ```
    #[track_caller]
    pub fn linear_add(&self, weight: &Var<T>, bias: Option<&Var<T>>, residual: &Var<T>) -> Var<T> {
        let bias_value = bias.map(Var::value);
        let value = self.value().linear_add(weight.value(), bias_value, residual.value());
        self.linear_of(value, weight, [bias, Some(residual)])
    }

    /// The result `value` of a linear layer, and what was added to the product.
    #[track_caller]
    fn linear_of(&self, value: Tensor<T>, weight: &Var<T>, added: [Option<&Var<T>>; 2]) -> Var<T> {
        let inputs: Vec<_> =
            [self, weight].into_iter().chain(added.into_iter().flatten()).collect();
        Var::from_op(value, &inputs, |needs| Linear {
            x: needs.at(1).then(|| self.value().clone()),
            weight: needs.at(0).then(|| weight.value().clone()),
        })
    }

    /// `f(x · Wᵀ + b)`: [`Var::linear`] and [`Var::map`] in one pass over memory, which also
    /// makes the derivative, so that the backward pass only multiplies.
    ///
    /// # Panics
    /// If shapes do not agree.
    ///
    /// ```
    /// use retrograd_autograd::Var;
    /// use retrograd_tensor::{Tensor, ops::activation::Relu};
    /// let w = Var::leaf(Tensor::from([[1.0f32, 2.0], [-3.0, -4.0]]));
    /// let y = Var::constant(Tensor::from([1.0, 1.0])).linear_map(&w, None, Relu);
    /// assert_eq!(y.value().to_vec(), [3.0, 0.0]);
    /// assert_eq!(y.sum(..).backward().get(&w).unwrap().to_vec(), [1.0, 1.0, 0.0, 0.0]);
    /// ```
    #[track_caller]
    #[inline(never)]
    pub fn linear_map<P: Pointwise<T>>(
        &self,
        weight: &Var<T>,
        bias: Option<&Var<T>>,
        op: P,
    ) -> Var<T> {
        let inputs: Vec<_> = [self, weight].into_iter().chain(bias).collect();
        if !is_recorded(&inputs) {
            return self.linear(weight, bias).map(op);
        }
        let values = (weight.value(), bias.map(Var::value));
        let (value, slope) = self.value().linear_map(values.0, values.1, op);
        Var::from_op(value, &inputs, |_| LinearMap {
            op,
            inputs: inputs.iter().map(|x| x.value().clone()).collect(),
            slope,
        })
    }

    /// `f(x · W₁ᵀ + b₁) · W₂ᵀ + b₂`, the feed-forward network of Vaswani et al. 2017
    /// (arXiv 1706.03762): [`Var::linear_map`] and [`Var::linear`], where in the backward pass
    /// the derivative of `f` is multiplied to each block of a product while it is in the cache.
    ///
    /// # Panics
    /// If shapes do not agree.
    ///
    /// ```
    /// use retrograd_autograd::Var;
    /// use retrograd_tensor::{Tensor, ops::activation::Relu};
    /// let (up, down) = (Var::leaf(Tensor::ones([3, 2])), Var::leaf(Tensor::ones([1, 3])));
    /// let y = Var::constant(Tensor::from([1.0f32, 1.0])).feed_forward((&up, None), Relu, (&down, None));
    /// assert_eq!(y.value().to_vec(), [6.0]);
    /// assert_eq!(y.backward().get(&down).unwrap().to_vec(), [2.0, 2.0, 2.0]);
    /// ```
    #[track_caller]
    pub fn feed_forward<P: Pointwise<T>>(
        &self,
        up: Affine<'_, T>,
        op: P,
        down: Affine<'_, T>,
    ) -> Var<T> {
        self.feed_forward_with(up, op, down, None)
    }

    /// `r + (f(x · W₁ᵀ + b₁) · W₂ᵀ + b₂)` with a residual `r`: [`Var::feed_forward`] and a sum
    /// in one pass over memory.
    ///
    /// # Panics
    /// If shapes do not agree; the residual is not broadcast.
    ///
    /// ```
    /// use retrograd_autograd::Var;
    /// use retrograd_tensor::{Tensor, ops::activation::Relu};
    /// let (x, eye) = (Var::leaf(Tensor::from([1.0f32, -1.0])), Var::leaf(Tensor::eye(2)));
    /// let y = x.feed_forward_add((&eye, None), Relu, (&eye, None), &x);
    /// assert_eq!(y.value().to_vec(), [2.0, -1.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [2.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn feed_forward_add<P: Pointwise<T>>(
        &self,
        up: Affine<'_, T>,
        op: P,
        down: Affine<'_, T>,
        residual: &Var<T>,
    ) -> Var<T> {
        self.feed_forward_with(up, op, down, Some(residual))
    }

    #[track_caller]
    #[inline(never)]
    fn feed_forward_with<P: Pointwise<T>>(
        &self,
        up: Affine<'_, T>,
        op: P,
        down: Affine<'_, T>,
        residual: Option<&Var<T>>,
    ) -> Var<T> {
        let saved: Vec<_> = [self, up.0, down.0].into_iter().chain(up.1).chain(down.1).collect();
        let inputs: Vec<_> = saved.iter().copied().chain(residual).collect();
        let (x, inner, outer) = (self.value(), up.1.map(Var::value), down.1.map(Var::value));
        let (hidden, slope) = match is_recorded(&inputs) {
            true => {
                let (hidden, slope) = x.linear_map(up.0.value(), inner, op);
                (hidden, Some(slope))
            }
            false => (x.linear(up.0.value(), inner).map(op), None),
        };
        let value = match residual {
            Some(residual) => hidden.linear_add(down.0.value(), outer, residual.value()),
            None => hidden.linear(down.0.value(), outer),
        };
        Var::from_op(value, &inputs, |_| FeedForward {
            op,
            inputs: saved.iter().map(|x| x.value().clone()).collect(),
            has: [up.1, down.1, residual].map(|input| input.is_some()),
            hidden,
            slope: slope.expect("made where it is recorded"),
        })
    }
}

/// Whether [`Var::from_op`] will record an operation on these.
fn is_recorded<T: Real>(inputs: &[&Var<T>]) -> bool {
    grad_enabled() && inputs.iter().any(|x| x.is_tracked())
}

/// Each operand is saved only if the other one needs a gradient. Inputs are `x`, the weight, and
/// those of bias and residual that there are.
#[derive(Debug)]
struct Linear<T: Real> {
    x: Option<Tensor<T>>,
    weight: Option<Tensor<T>>,
}

impl<T: Real> Backward<T> for Linear<T> {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        let dx = self.weight.as_ref().map(|w| g.matmul(&cx.input(1, w)));
        let dw = self.x.as_ref().map(|x| of_right_transposed(&cx.input(0, x), g));
        // The bias was broadcast, which the engine undoes; the residual was not.
        let added = (2..cx.inputs()).map(|_| Some(g.clone()));
        [dx, dw].into_iter().chain(added).collect()
    }
}

/// Inputs are `x`, the weight and the bias.
#[derive(Debug)]
struct LinearMap<T: Real, P> {
    op: P,
    inputs: Vec<Tensor<T>>,
    slope: Tensor<T>,
}

impl<T: Real, P: Pointwise<T>> Backward<T> for LinearMap<T, P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        if cx.recording() {
            return through(&connected(cx, &self.inputs), g, |x| {
                x[0].linear(&x[1], x.get(2)).map(self.op)
            });
        }
        let dh = Var::constant(g.value().mul(&self.slope));
        let linear = Linear {
            x: cx.needs(1).then(|| self.inputs[0].clone()),
            weight: cx.needs(0).then(|| self.inputs[1].clone()),
        };
        linear.backward(cx, &dh)
    }
}

/// Inputs are `x`, both weights, and those of both biases and the residual that there are; all
/// but the residual are saved.
#[derive(Debug)]
struct FeedForward<T: Real, P> {
    op: P,
    inputs: Vec<Tensor<T>>,
    has: [bool; 3],
    hidden: Tensor<T>,
    slope: Tensor<T>,
}

impl<T: Real, P: Pointwise<T>> Backward<T> for FeedForward<T, P> {
    fn name(&self) -> &'static str {
        "feed_forward"
    }

    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        let [has_up, has_down, has_residual] = self.has;
        let d_residual = has_residual.then(|| Some(g.clone()));
        if cx.recording() {
            let without_residual = through(&connected(cx, &self.inputs), g, |x| {
                let up = has_up.then(|| &x[3]);
                let down = has_down.then(|| &x[3 + usize::from(has_up)]);
                x[0].linear(&x[1], up).map(self.op).linear(&x[2], down)
            });
            return without_residual.into_iter().chain(d_residual).collect();
        }
        let [x, up, down] = [0, 1, 2].map(|i| Var::constant(self.inputs[i].clone()));
        let d_down =
            cx.needs(2).then(|| of_right_transposed(&Var::constant(self.hidden.clone()), g));
        let inner = (0..2).any(|i| cx.needs(i)) || has_up && cx.needs(3);
        let dh = inner.then(|| Var::constant(g.value().matmul_times(down.value(), &self.slope)));
        let dh = dh.as_ref();
        let dx = dh.filter(|_| cx.needs(0)).map(|dh| dh.matmul(&up));
        let d_up = dh.filter(|_| cx.needs(1)).map(|dh| of_right_transposed(&x, dh));
        [dx, d_up, d_down]
            .into_iter()
            .chain(has_up.then(|| dh.cloned()))
            .chain(has_down.then(|| Some(g.clone())))
            .chain(d_residual)
            .collect()
    }
}

fn connected<T: Real>(cx: &Cx<'_, T>, saved: &[Tensor<T>]) -> Vec<Var<T>> {
    saved.iter().enumerate().map(|(i, x)| cx.input(i, x)).collect()
}
