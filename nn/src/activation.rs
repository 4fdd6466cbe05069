//! Activations as layers.

use crate::linear::Linear;
use crate::module::{Layer, Module, Visitor};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::ops::activation::*;
use retrograd_tensor::ops::pointwise::Pointwise;

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
    fn visit(&self, _: &mut Visitor<'_, T>) {}
}

impl Activation {
    /// Gives the operation to `then`, or nothing for the identity.
    #[track_caller]
    fn apply<T: Real, F: Then<T>>(self, then: F) -> Var<T> {
        match self {
            Activation::Identity => then.without(),
            Activation::Relu => then.with(Relu),
            Activation::LeakyRelu(slope) => then.with(LeakyRelu { slope: T::from_f64(slope) }),
            Activation::Elu(alpha) => then.with(Elu { alpha: T::from_f64(alpha) }),
            Activation::Gelu => then.with(Gelu),
            Activation::GeluTanh => then.with(GeluTanh),
            Activation::Silu => then.with(Silu),
            Activation::Sigmoid => then.with(Sigmoid),
            Activation::Tanh => then.with(Tanh),
            Activation::Softplus => then.with(Softplus),
            Activation::Mish => then.with(Mish),
        }
    }

    /// `residual + down(self(up(x)))`, in as few passes over memory as can be; without a residual,
    /// the rest of it.
    #[track_caller]
    #[inline(never)]
    pub(crate) fn between<T: Real>(
        self,
        x: &Var<T>,
        [up, down]: [&Linear<T>; 2],
        residual: Option<&Var<T>>,
    ) -> Var<T> {
        self.apply(Between { x, up, down, residual })
    }
}

/// What is done with an operation that is known when the program runs.
trait Then<T: Real> {
    #[track_caller]
    fn with<P: Pointwise<T>>(self, op: P) -> Var<T>;
    #[track_caller]
    fn without(self) -> Var<T>;
}

struct To<'a, T: Real>(&'a Var<T>);

impl<T: Real> Then<T> for To<'_, T> {
    #[track_caller]
    fn with<P: Pointwise<T>>(self, op: P) -> Var<T> {
        self.0.map(op)
    }
    #[track_caller]
    fn without(self) -> Var<T> {
        self.0.clone()
    }
}

struct Between<'a, T: Real> {
    x: &'a Var<T>,
    up: &'a Linear<T>,
    down: &'a Linear<T>,
    residual: Option<&'a Var<T>>,
}

impl<T: Real> Then<T> for Between<'_, T> {
    #[track_caller]
    fn with<P: Pointwise<T>>(self, op: P) -> Var<T> {
        let [up, down] = [self.up, self.down]
            .map(|layer| (layer.weight.to_var(), layer.bias.as_ref().map(Param::to_var)));
        let (up, down) = ((&up.0, up.1.as_ref()), (&down.0, down.1.as_ref()));
        match self.residual {
            Some(residual) => self.x.feed_forward_add(up, op, down, residual),
            None => self.x.feed_forward(up, op, down),
        }
    }
    #[track_caller]
    fn without(self) -> Var<T> {
        let hidden = self.up.affine(self.x);
        match self.residual {
            Some(residual) => self.down.affine_add(&hidden, residual),
            None => self.down.affine(&hidden),
        }
    }
}

impl<T: Real> Layer<T> for Activation {
    #[track_caller]
    #[inline(never)]
    fn forward(&self, x: &Var<T>, _: &mut Pass) -> Var<T> {
        self.apply(To(x))
    }
}
