//! Activations as layers.

use crate::module::{Call, Layer, Module, Visitor};
use crate::pass::Pass;
use retrograd_autograd::{PointwiseFn, Var};
use retrograd_tensor::Real;
use retrograd_tensor::ops::activation::*;

/// An elementwise nonlinearity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// The identity.
    Identity,
    /// `max(x, 0)`
    Relu,
    /// `max(x, 0)²`; So et al. 2021 (arXiv 2109.08668).
    ReluSquared,
    /// `x`, or `slope · x` below 0.
    LeakyRelu(f64),
    /// `x`, or `alpha · (eˣ - 1)` below 0.
    Elu(f64),
    /// `x · Φ(x)`, exact.
    Gelu,
    /// GELU by tanh, as GPT-2 has it.
    GeluTanh,
    /// `x · sigmoid(x)`
    Silu,
    /// `x · min(max(x + 3, 0), 6) / 6`
    Hardswish,
    /// `1 / (1 + e⁻ˣ)`
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `ln(1 + eˣ)`
    Softplus,
    /// `x · tanh(softplus(x))`
    Mish,
}

impl<T: Real> Module<T> for Activation {
    fn visit(&self, _: &mut Visitor<'_, T>) {}
}

impl Activation {
    /// The operation as a value; `None` for the identity.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// assert_eq!(Activation::Silu.function::<f32>().unwrap().name(), "silu");
    /// ```
    pub fn function<T: Real>(self) -> Option<PointwiseFn<T>> {
        Some(match self {
            Activation::Identity => return None,
            Activation::Relu => Relu.into(),
            Activation::ReluSquared => ReluSquared.into(),
            Activation::LeakyRelu(slope) => LeakyRelu { slope: T::from_f64(slope) }.into(),
            Activation::Elu(alpha) => Elu { alpha: T::from_f64(alpha) }.into(),
            Activation::Gelu => Gelu.into(),
            Activation::GeluTanh => GeluTanh.into(),
            Activation::Silu => Silu.into(),
            Activation::Hardswish => Hardswish.into(),
            Activation::Sigmoid => Sigmoid.into(),
            Activation::Tanh => Tanh.into(),
            Activation::Softplus => Softplus.into(),
            Activation::Mish => Mish.into(),
        })
    }
}

impl<T: Real> Layer<T> for Activation {
    #[track_caller]
    fn forward(&self, x: &Var<T>, _: &mut Pass) -> Var<T> {
        Call::start(self).end(match self.function() {
            Some(function) => x.apply(&function),
            None => x.clone(),
        })
    }
}
