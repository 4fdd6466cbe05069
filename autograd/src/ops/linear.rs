//! Linear layers, alone and fused with an activation, a residual or a second layer. Their kernels
//! are in [`retrograd_tensor::ops::linear`].

use crate::graph::{Cx, InputGrads, Tangents, Var};
use crate::observe::saved;
use crate::op::{Kind, Op, Product};
use crate::ops::matmul::gradient_of_transpose;
use crate::ops::norm::sum;
use crate::ops::pointwise::PointwiseFn;
use crate::record::{Fused, Slot, constant_result, is_recorded};
use retrograd_tensor::{Real, Tensor};

static LINEAR: Op = Op::new("linear", &["x", "w", "b?", "r?"])
    .kind(Kind::Product("…i,oi->…o"))
    .formula("y = x wᵀ + b + r", "dx = g w\ndw = gᵀ x\ndb = Σ g, over the rows\ndr = g");
static LINEAR_ACTIVATION: Op = Op::new("linear_activation", &["x", "w", "b?"])
    .computes(|shapes| vec![Product::new(["x", "w"], shapes.output, shapes.last("x"))])
    .formula(
        "y = f(u), u = x wᵀ + b",
        "dx = h w, h = g · f'(u)\ndw = hᵀ x\ndb = Σ h, over the rows",
    );
static FEED_FORWARD: Op = Op::new("feed_forward", &["x", "v", "a?", "w", "b?", "r?"])
    .computes(|shapes| {
        let width = shapes.of("v")[0];
        let hidden = Product::new(["x", "v"], shapes.with_last("x", width), shapes.last("x"));
        vec![hidden, Product::new(["u", "w"], shapes.output, width)]
    })
    .formula(
        "y = f(u) wᵀ + b + r, u = x vᵀ + a",
        "dx = h v, h = (g w) · f'(u)\ndv = hᵀ x\nda = Σ h\ndw = gᵀ f(u)\ndb = Σ g\ndr = g",
    );

/// Weight and bias of a linear layer.
pub type Affine<'a, T> = (&'a Var<T>, Option<&'a Var<T>>);

/// # Linear layers
impl<T: Real> Var<T> {
    /// As [`Tensor::linear`]; the gradients are `g · W` for `x`, `gᵀ · x` for `W`, and the sum of the rows
    /// of `g` for `b`.
    #[track_caller]
    pub fn linear(&self, weight: &Var<T>, bias: Option<&Var<T>>) -> Var<T> {
        let value = self.value().linear(weight.value(), bias.map(Var::value));
        self.linear_of(value, weight, bias, None)
    }

    /// As [`Tensor::linear_add`]; the gradients are as for [`Var::linear`], and `g` for the residual.
    #[track_caller]
    pub fn linear_add(&self, weight: &Var<T>, bias: Option<&Var<T>>, residual: &Var<T>) -> Var<T> {
        let bias_value = bias.map(Var::value);
        let value = self.value().linear_add(weight.value(), bias_value, residual.value());
        self.linear_of(value, weight, bias, Some(residual))
    }

    /// Records the node of a linear layer with the result `value`; `bias` and `residual` are
    /// optional addends.
    #[track_caller]
    fn linear_of(
        &self,
        value: Tensor<T>,
        weight: &Var<T>,
        bias: Option<&Var<T>>,
        residual: Option<&Var<T>>,
    ) -> Var<T> {
        let inputs = [Some(self), Some(weight), bias, residual];
        Var::from_op(&LINEAR, value, inputs, |[x, weight, bias, residual]| {
            let (x, weight) = (x.save_if(weight.needs_grad()), weight.save_if(x.needs_grad()));
            let (bias, residual) = (bias.slot(), residual.slot());
            move |cx, g| {
                if let Some(t) = cx.tangents() {
                    let by_x = t.of(&x).map(|t| t.linear(&cx.input(&weight), None));
                    let product = and_by_weight(by_x, || cx.input(&x), t.of(&weight));
                    let addends = [&bias, &residual].map(|addend| t.of(addend).cloned());
                    return InputGrads::tangent([product].into_iter().chain(addends));
                }
                InputGrads::of(&x, || g.matmul(&cx.input(&weight)))
                    .and(&weight, || gradient_of_transpose(&cx.input(&x), g))
                    .and(&bias, || g.clone())
                    .and(&residual, || g.clone())
            }
        })
    }

    /// `f(x · Wᵀ + b)`: [`Var::linear`] and [`Var::map`] in one pass over memory, as
    /// [`Tensor::linear_activation`]. The same pass stores the derivative of `f` for the backward pass.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// use retrograd::tensor::ops::activation::Relu;
    /// let w = Var::leaf(Tensor::from([[1.0f32, 2.0], [-3.0, -4.0]]));
    /// let y = Var::constant(Tensor::from([1.0, 1.0])).linear_activation(&w, None, Relu);
    /// assert_eq!(y.value().to_vec(), [3.0, 0.0]);
    /// assert_eq!(y.sum(..).backward().get(&w).unwrap().to_vec(), [1.0, 1.0, 0.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn linear_activation(
        &self,
        weight: &Var<T>,
        bias: Option<&Var<T>>,
        op: impl Into<PointwiseFn<T>>,
    ) -> Var<T> {
        self.linear_activation_with(weight, bias, op.into())
    }

    #[track_caller]
    #[inline(never)]
    fn linear_activation_with(
        &self,
        weight: &Var<T>,
        bias: Option<&Var<T>>,
        op: PointwiseFn<T>,
    ) -> Var<T> {
        let inputs = [Some(self), Some(weight), bias];
        if !is_recorded(&inputs) {
            return self.linear(weight, bias).apply(&op);
        }
        let (value, derivative) =
            op.linear_activation(self.value(), weight.value(), bias.map(Var::value));
        let [y] = Var::from_fused(&LINEAR_ACTIVATION, [value], inputs, |[x, weight, bias]| {
            LinearActivation {
                x: x.save(),
                weight: weight.save(),
                bias: bias.save(),
                op,
                derivative: saved("derivative", derivative),
            }
        });
        y
    }

    /// `f(x · W₁ᵀ + b₁) · W₂ᵀ + b₂`, the feed-forward network of Vaswani et al. 2017
    /// (arXiv 1706.03762): [`Var::linear_activation`] and [`Var::linear`]. The backward pass multiplies
    /// each block of `ȳ · W₂` by the derivative of `f` while the block is in the cache.
    ///
    /// # Panics
    /// If shapes do not agree.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// use retrograd::tensor::ops::activation::Relu;
    /// let (up, down) = (Var::leaf(Tensor::ones([3, 2])), Var::leaf(Tensor::ones([1, 3])));
    /// let y = Var::constant(Tensor::from([1.0f32, 1.0])).feed_forward((&up, None), Relu, (&down, None));
    /// assert_eq!(y.value().to_vec(), [6.0]);
    /// assert_eq!(y.backward().get(&down).unwrap().to_vec(), [2.0, 2.0, 2.0]);
    /// ```
    #[track_caller]
    pub fn feed_forward(
        &self,
        up: Affine<'_, T>,
        op: impl Into<PointwiseFn<T>>,
        down: Affine<'_, T>,
    ) -> Var<T> {
        self.feed_forward_with(up, op.into(), down, None)
    }

    /// `r + (f(x · W₁ᵀ + b₁) · W₂ᵀ + b₂)` with a residual `r`, which is not broadcast:
    /// [`Var::feed_forward`] and a sum in one pass over memory.
    #[track_caller]
    pub fn feed_forward_add(
        &self,
        up: Affine<'_, T>,
        op: impl Into<PointwiseFn<T>>,
        down: Affine<'_, T>,
        residual: &Var<T>,
    ) -> Var<T> {
        self.feed_forward_with(up, op.into(), down, Some(residual))
    }

    #[track_caller]
    #[inline(never)]
    fn feed_forward_with(
        &self,
        up: Affine<'_, T>,
        op: PointwiseFn<T>,
        down: Affine<'_, T>,
        residual: Option<&Var<T>>,
    ) -> Var<T> {
        let inputs = [Some(self), Some(up.0), up.1, Some(down.0), down.1, residual];
        if !is_recorded(&inputs) {
            let hidden = op.map(&self.value().linear(up.0.value(), up.1.map(Var::value)));
            let value = project_down(&hidden, down, residual);
            return constant_result(&FEED_FORWARD, value, &inputs);
        }
        let (hidden, derivative) =
            op.linear_activation(self.value(), up.0.value(), up.1.map(Var::value));
        let value = project_down(&hidden, down, residual);
        let [y] = Var::from_fused(
            &FEED_FORWARD,
            [value],
            inputs,
            |[x, up, up_bias, down, down_bias, residual]| FeedForward {
                x: x.save(),
                up: up.save(),
                up_bias: up_bias.save(),
                down: down.save(),
                down_bias: down_bias.save(),
                residual: residual.save(),
                op,
                hidden: saved("hidden", hidden),
                derivative: saved("derivative", derivative),
            },
        );
        y
    }
}

/// `h · W₂ᵀ + b₂`, plus the residual if one is given.
#[track_caller]
fn project_down<T: Real>(
    hidden: &Tensor<T>,
    (weight, bias): Affine<'_, T>,
    residual: Option<&Var<T>>,
) -> Tensor<T> {
    let (weight, bias) = (weight.value(), bias.map(Var::value));
    match residual {
        Some(residual) => hidden.linear_add(weight, bias, residual.value()),
        None => hidden.linear(weight, bias),
    }
}

/// `f(x · Wᵀ + b)`, with the derivative of `f` from the forward pass.
struct LinearActivation<T: Real> {
    x: Slot<T>,
    weight: Slot<T>,
    bias: Slot<T>,
    op: PointwiseFn<T>,
    derivative: Tensor<T>,
}

impl<T: Real> Fused<T> for LinearActivation<T> {
    fn vjp(&self, [g]: [&Tensor<T>; 1]) -> InputGrads<T> {
        let dh = g.mul(&self.derivative);
        InputGrads::of(&self.x, || dh.matmul(self.weight.value()))
            .and(&self.weight, || weight_gradient(self.x.value(), &dh))
            .and(&self.bias, || dh.clone())
    }

    fn jvp(&self, t: Tangents<'_, T>) -> Option<[Tensor<T>; 1]> {
        Some([affine_jvp(t, self.x.value(), t.value(&self.x), &self.weight, &self.bias)?
            .mul(&self.derivative)])
    }

    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 1] {
        let bias = cx.optional(&self.bias);
        [cx.input(&self.x).linear(&cx.input(&self.weight), bias.as_ref()).apply(&self.op)]
    }
}

/// `r + (f(x · W₁ᵀ + b₁) · W₂ᵀ + b₂)`, with the hidden layer and the derivative of `f` from the
/// forward pass.
struct FeedForward<T: Real> {
    x: Slot<T>,
    up: Slot<T>,
    up_bias: Slot<T>,
    down: Slot<T>,
    down_bias: Slot<T>,
    residual: Slot<T>,
    op: PointwiseFn<T>,
    hidden: Tensor<T>,
    derivative: Tensor<T>,
}

impl<T: Real> Fused<T> for FeedForward<T> {
    fn vjp(&self, [g]: [&Tensor<T>; 1]) -> InputGrads<T> {
        let outer = InputGrads::of(&self.down, || weight_gradient(&self.hidden, g))
            .and(&self.down_bias, || g.clone())
            .and(&self.residual, || g.clone());
        if ![&self.x, &self.up, &self.up_bias].iter().any(|input| input.needs_grad()) {
            return outer;
        }
        let dh = g.matmul_times(self.down.value(), &self.derivative);
        outer
            .and(&self.x, || dh.matmul(self.up.value()))
            .and(&self.up, || weight_gradient(self.x.value(), &dh))
            .and(&self.up_bias, || dh.clone())
    }

    fn jvp(&self, t: Tangents<'_, T>) -> Option<[Tensor<T>; 1]> {
        let hidden = affine_jvp(t, self.x.value(), t.value(&self.x), &self.up, &self.up_bias);
        let hidden = hidden.map(|t| t.mul(&self.derivative));
        let y = affine_jvp(t, &self.hidden, hidden.as_ref(), &self.down, &self.down_bias);
        Some([sum([y, t.value(&self.residual).cloned()])?])
    }

    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 1] {
        let (up_bias, down_bias) = (cx.optional(&self.up_bias), cx.optional(&self.down_bias));
        let hidden = cx.input(&self.x).linear(&cx.input(&self.up), up_bias.as_ref());
        let y = hidden.apply(&self.op).linear(&cx.input(&self.down), down_bias.as_ref());
        [cx.optional(&self.residual).map_or(y.clone(), |residual| residual.add(&y))]
    }
}

/// The tangent of `x · Wᵀ + b`, where that of `x` is `dx`; `None` if it is 0.
#[track_caller]
fn affine_jvp<T: Real>(
    t: Tangents<'_, T>,
    x: &Tensor<T>,
    dx: Option<&Tensor<T>>,
    weight: &Slot<T>,
    bias: &Slot<T>,
) -> Option<Tensor<T>> {
    let by_x = dx.map(|dx| Var::constant(dx.linear(weight.value(), None)));
    let product = and_by_weight(by_x, || Var::constant(x.clone()), t.of(weight));
    sum([product.map(|t| t.value().clone()), t.value(bias).cloned()])
}

/// The tangent of `x · Wᵀ`, given the part that is due to `x`, and the tangent of `W`.
#[track_caller]
fn and_by_weight<T: Real>(
    by_x: Option<Var<T>>,
    x: impl FnOnce() -> Var<T>,
    dw: Option<&Var<T>>,
) -> Option<Var<T>> {
    match (by_x, dw) {
        (Some(by_x), Some(dw)) => Some(x().linear_add(dw, None, &by_x)),
        (by_x, dw) => by_x.or_else(|| Some(x().linear(dw?, None))),
    }
}

/// `gᵀ · x`: the gradient of the weight of a linear layer, where `g` is the gradient of the output.
#[track_caller]
fn weight_gradient<T: Real>(x: &Tensor<T>, g: &Tensor<T>) -> Var<T> {
    gradient_of_transpose(&Var::constant(x.clone()), &Var::constant(g.clone()))
}
