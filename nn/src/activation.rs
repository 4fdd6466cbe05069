//! Activations as layers.

use crate::module::{Layer, Module, Walk};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;

/// An elementwise nonlinearity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// The identity.
    Identity,
    /// `max(x, 0)`
    Relu,
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
    fn walk(&self, _: &mut Walk<'_, T>) {}
}

impl<T: Real> Layer<T> for Activation {
    fn forward(&self, x: &Var<T>, _: &mut Pass) -> Var<T> {
        match *self {
            Activation::Identity => x.clone(),
            Activation::Relu => x.relu(),
            Activation::LeakyRelu(slope) => x.leaky_relu(T::from_f64(slope)),
            Activation::Elu(alpha) => x.elu(T::from_f64(alpha)),
            Activation::Gelu => x.gelu(),
            Activation::GeluTanh => x.gelu_tanh(),
            Activation::Silu => x.silu(),
            Activation::Sigmoid => x.sigmoid(),
            Activation::Tanh => x.tanh(),
            Activation::Softplus => x.softplus(),
            Activation::Mish => x.mish(),
        }
    }
}
