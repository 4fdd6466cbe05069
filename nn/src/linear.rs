//! Linear layers.

use crate::init::Init;
use crate::module::{Layer, Module, Visitor};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::error::OrPanic;
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Shape};

/// `y = x · Wᵀ + b`: `[.., inputs]` to `[.., outputs]`.
///
/// Parameters: `weight` `[outputs, inputs]` and, unless the layer has none, `bias` `[outputs]`,
/// both uniform on `±1/√inputs` initially, as in PyTorch.
#[derive(Clone, Debug)]
pub struct Linear<T: Real = f32> {
    /// `[outputs, inputs]`
    pub weight: Param<T>,
    /// `[outputs]`
    pub bias: Option<Param<T>>,
}

impl<T: Real> Linear<T> {
    /// A layer with a bias.
    ///
    /// # Panics
    /// If there is no memory for so many weights.
    #[track_caller]
    pub fn new(inputs: usize, outputs: usize, rng: &mut Rng) -> Self {
        let layer = Linear::without_bias(inputs, outputs, rng);
        let bound = 1.0 / (inputs.max(1) as f64).sqrt();
        let bias = Param::new(Init::Uniform { bound }.sample([outputs], rng));
        Linear { bias: Some(bias), ..layer }
    }

    /// A layer without a bias.
    ///
    /// # Panics
    /// If there is no memory for so many weights.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let layer = Linear::<f32>::without_bias(3, 2, &mut Rng::new(1));
    /// layer.weight.set(Tensor::from([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]]));
    /// let x = Var::constant(Tensor::from([1.0, 2.0, 3.0]));
    /// assert_eq!(layer.forward(&x, &mut Pass::eval()).value().to_vec(), [1.0, 6.0]);
    /// ```
    #[track_caller]
    pub fn without_bias(inputs: usize, outputs: usize, rng: &mut Rng) -> Self {
        let shape = Shape::checked("linear", &[outputs, inputs]).or_panic();
        let weight = Param::new(Init::TorchLinear.sample(shape, rng));
        Linear { weight, bias: None }
    }

    /// Samples the weight anew, and sets the bias to 0 if there is one.
    #[track_caller]
    pub fn init(self, init: Init, rng: &mut Rng) -> Self {
        self.weight.set(init.sample(self.weight.shape(), rng));
        if let Some(bias) = &self.bias {
            bias.set(Init::Constant(0.0).sample(bias.shape(), rng));
        }
        self
    }

    /// A layer without a bias whose weight is shared with another module.
    pub fn tied(weight: &Param<T>) -> Self {
        Linear { weight: weight.clone(), bias: None }
    }

    /// The weight and the bias as variables.
    pub(crate) fn vars(&self) -> (Var<T>, Option<Var<T>>) {
        (self.weight.to_var(), self.bias.as_ref().map(Param::to_var))
    }

    /// `x · Wᵀ + b`
    #[track_caller]
    pub(crate) fn affine(&self, x: &Var<T>) -> Var<T> {
        let (weight, bias) = self.vars();
        x.linear(&weight, bias.as_ref())
    }

    /// `residual + (x · Wᵀ + b)`
    #[track_caller]
    pub(crate) fn affine_add(&self, x: &Var<T>, residual: &Var<T>) -> Var<T> {
        let (weight, bias) = self.vars();
        x.linear_add(&weight, bias.as_ref(), residual)
    }
}

impl<T: Real> Module<T> for Linear<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        v.param("weight", &self.weight);
        v.optional("bias", &self.bias);
    }
    fn is_one_operation(&self) -> bool {
        true
    }
}

impl<T: Real> Layer<T> for Linear<T> {
    /// # Panics
    /// If the last axis of `x` is not `inputs`.
    #[track_caller]
    fn forward(&self, x: &Var<T>, _: &mut Pass) -> Var<T> {
        self.affine(x)
    }
}
