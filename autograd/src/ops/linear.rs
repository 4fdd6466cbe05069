//! Linear layers, alone and with what follows them, see [`retrograd_tensor::ops::linear`].

use crate::node::{Backward, Cx, Grads};
use crate::ops::matmul::of_right_transposed;
use crate::ops::pointwise::Differentiable;
use crate::ops::through;
use crate::var::{Var, grad_enabled};
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
        Var::from_op(value, &with_bias([self, weight], bias), |needs| Linear {
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
    pub fn linear_map<P: Differentiable<T>>(
        &self,
        weight: &Var<T>,
        bias: Option<&Var<T>>,
        op: P,
    ) -> Var<T> {
        let inputs = with_bias([self, weight], bias);
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
    pub fn feed_forward<P: Differentiable<T>>(
        &self,
        up: Affine<'_, T>,
        op: P,
        down: Affine<'_, T>,
    ) -> Var<T> {
        let inputs: Vec<_> = [self, up.0, down.0].into_iter().chain(up.1).chain(down.1).collect();
        if !is_recorded(&inputs) {
            return self.linear(up.0, up.1).map(op).linear(down.0, down.1);
        }
        let (hidden, slope) = self.value().linear_map(up.0.value(), up.1.map(Var::value), op);
        let value = hidden.linear(down.0.value(), down.1.map(Var::value));
        Var::from_op(value, &inputs, |_| FeedForward {
            op,
            inputs: inputs.iter().map(|x| x.value().clone()).collect(),
            biases: [up.1.is_some(), down.1.is_some()],
            hidden,
            slope,
        })
    }
}

fn with_bias<'a, T: Real>(inputs: [&'a Var<T>; 2], bias: Option<&'a Var<T>>) -> Vec<&'a Var<T>> {
    inputs.into_iter().chain(bias).collect()
}

fn is_recorded<T: Real>(inputs: &[&Var<T>]) -> bool {
    grad_enabled() && inputs.iter().any(|x| x.is_tracked())
}

/// Each operand is saved only if the other one needs a gradient. Inputs are `x`, the weight and
/// the bias.
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
        // The bias was broadcast, which the engine undoes.
        let db = (cx.inputs() > 2).then(|| Some(g.clone()));
        [dx, dw].into_iter().chain(db).collect()
    }
}

/// Inputs are `x`, the weight and the bias.
#[derive(Debug)]
struct LinearMap<T: Real, P> {
    op: P,
    inputs: Vec<Tensor<T>>,
    slope: Tensor<T>,
}

impl<T: Real, P: Differentiable<T>> Backward<T> for LinearMap<T, P> {
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

/// Inputs are `x`, both weights, and those biases that there are.
#[derive(Debug)]
struct FeedForward<T: Real, P> {
    op: P,
    inputs: Vec<Tensor<T>>,
    biases: [bool; 2],
    hidden: Tensor<T>,
    slope: Tensor<T>,
}

impl<T: Real, P: Differentiable<T>> Backward<T> for FeedForward<T, P> {
    fn name(&self) -> &'static str {
        "feed_forward"
    }

    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        let [has_up, has_down] = self.biases;
        if cx.recording() {
            return through(&connected(cx, &self.inputs), g, |x| {
                let up = has_up.then(|| &x[3]);
                let down = has_down.then(|| &x[3 + usize::from(has_up)]);
                x[0].linear(&x[1], up).map(self.op).linear(&x[2], down)
            });
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
            .collect()
    }
}

fn connected<T: Real>(cx: &Cx<'_, T>, saved: &[Tensor<T>]) -> Vec<Var<T>> {
    saved.iter().enumerate().map(|(i, x)| cx.input(i, x)).collect()
}
