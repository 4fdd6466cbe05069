//! The feed-forward layers of transformer blocks.

use super::config::GptConfig;
use crate::activation::Activation;
use crate::dropout::Dropout;
use crate::init::{Init, gpt2_residual};
use crate::linear::Linear;
use crate::module::{Call, Layer, visits};
use crate::pass::Pass;
use crate::residual::check_residual;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::random::Rng;

/// A feed-forward layer as a part of a model: a function of each position, `[.., width]` to the same.
pub trait FeedForward<T: Real = f32>: Layer<T> {
    /// `residual + self.forward(x, pass)`.
    ///
    /// # Panics
    /// If the last axis of `x` is not the width, or the residual has another shape.
    fn forward_add(&self, x: &Var<T>, residual: &Var<T>, pass: &mut Pass) -> Var<T> {
        residual + &self.forward(x, pass)
    }
}

/// `dropout(c_proj(activation(c_fc(x))))`; names as in nanoGPT.
#[derive(Clone, Debug)]
pub struct Mlp<T: Real = f32> {
    /// The projection to the inner width.
    pub c_fc: Linear<T>,
    /// The activation.
    pub activation: Activation,
    /// The projection to the width of the residual stream.
    pub c_proj: Linear<T>,
    /// Dropout of the output.
    pub dropout: Dropout,
}

#[track_caller]
fn check(config: &GptConfig) {
    if let Err(e) = config.check() {
        panic!("mlp: {e}");
    }
}

impl<T: Real> Mlp<T> {
    /// A layer of this configuration.
    ///
    /// # Panics
    /// As [`GptConfig::check`].
    #[track_caller]
    pub fn new(config: &GptConfig, rng: &mut Rng) -> Self {
        check(config);
        let (width, inner) = (config.width, config.hidden());
        Mlp {
            c_fc: config.linear(width, inner, Init::Normal { std: 0.02 }, rng),
            activation: config.mlp.activation(),
            c_proj: config.linear(inner, width, gpt2_residual(config.layers), rng),
            dropout: Dropout::new(config.dropout),
        }
    }

    /// `residual + self.forward(x, pass)`, with the sum fused into the projection unless there is
    /// dropout.
    ///
    /// # Panics
    /// If the last axis of `x` is not the width, or the residual has another shape.
    #[track_caller]
    pub fn forward_add(&self, x: &Var<T>, residual: &Var<T>, pass: &mut Pass) -> Var<T> {
        check_residual("mlp", x, residual);
        match self.dropout.key(pass) {
            Some(key) => residual + &self.layers(x, None).dropout(self.dropout.p(), key),
            None => self.layers(x, Some(residual)),
        }
    }

    /// `c_proj(activation(c_fc(x)))`, and a residual if one is given.
    #[track_caller]
    #[inline(never)]
    fn layers(&self, x: &Var<T>, residual: Option<&Var<T>>) -> Var<T> {
        let (up, down) = (self.c_fc.vars(), self.c_proj.vars());
        let (up, down) = ((&up.0, up.1.as_ref()), (&down.0, down.1.as_ref()));
        match (self.activation.function(), residual) {
            (Some(function), Some(residual)) => x.feed_forward_add(up, function, down, residual),
            (Some(function), None) => x.feed_forward(up, function, down),
            (None, Some(residual)) => x.linear(up.0, up.1).linear_add(down.0, down.1, residual),
            (None, None) => x.linear(up.0, up.1).linear(down.0, down.1),
        }
    }
}

visits!(Mlp: module c_fc, module c_proj);

impl<T: Real> Layer<T> for Mlp<T> {
    #[track_caller]
    fn forward(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        Call::start(self).end(self.dropout.forward(&self.layers(x, None), pass))
    }
}

impl<T: Real> FeedForward<T> for Mlp<T> {
    #[track_caller]
    fn forward_add(&self, x: &Var<T>, residual: &Var<T>, pass: &mut Pass) -> Var<T> {
        Mlp::forward_add(self, x, residual, pass)
    }
}

/// `dropout(down_proj(activation(gate_proj(x)) ⊙ up_proj(x)))`; names as in Llama. With SiLU it is
/// SwiGLU, with GELU GeGLU. Shazeer 2020 (arXiv 2002.05202).
#[derive(Clone, Debug)]
pub struct GatedMlp<T: Real = f32> {
    /// The projection to the inner width that the activation is applied to.
    pub gate_proj: Linear<T>,
    /// The other projection to the inner width.
    pub up_proj: Linear<T>,
    /// The activation.
    pub activation: Activation,
    /// The projection to the width of the residual stream.
    pub down_proj: Linear<T>,
    /// Dropout of the output.
    pub dropout: Dropout,
}

impl<T: Real> GatedMlp<T> {
    /// A layer of this configuration.
    ///
    /// # Panics
    /// As [`GptConfig::check`].
    ///
    /// ```
    /// use retrograd::nn::{GatedMlp, MlpKind};
    /// use retrograd::prelude::*;
    /// let config = GptConfig { heads: 2, width: 12, mlp: MlpKind::SwiGlu, ..GptConfig::llama() };
    /// let mlp = GatedMlp::<f32>::new(&config, &mut Rng::new(1));
    /// assert_eq!(mlp.up_proj.weight.shape(), [32, 12]);
    /// ```
    #[track_caller]
    pub fn new(config: &GptConfig, rng: &mut Rng) -> Self {
        check(config);
        let (width, inner) = (config.width, config.hidden());
        let normal = Init::Normal { std: 0.02 };
        GatedMlp {
            gate_proj: config.linear(width, inner, normal, rng),
            up_proj: config.linear(width, inner, normal, rng),
            activation: config.mlp.activation(),
            down_proj: config.linear(inner, width, gpt2_residual(config.layers), rng),
            dropout: Dropout::new(config.dropout),
        }
    }

    /// The product at the inner width.
    #[track_caller]
    fn hidden(&self, x: &Var<T>) -> Var<T> {
        let (weight, bias) = self.gate_proj.vars();
        let gate = match self.activation.function() {
            Some(function) => x.linear_activation(&weight, bias.as_ref(), function),
            None => x.linear(&weight, bias.as_ref()),
        };
        gate.mul(&self.up_proj.affine(x))
    }
}

visits!(GatedMlp: module gate_proj, module up_proj, module down_proj);

impl<T: Real> Layer<T> for GatedMlp<T> {
    #[track_caller]
    fn forward(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        Call::start(self).end(self.dropout.forward(&self.down_proj.affine(&self.hidden(x)), pass))
    }
}

impl<T: Real> FeedForward<T> for GatedMlp<T> {
    #[track_caller]
    fn forward_add(&self, x: &Var<T>, residual: &Var<T>, pass: &mut Pass) -> Var<T> {
        check_residual("mlp", x, residual);
        let hidden = self.hidden(x);
        match self.dropout.key(pass) {
            Some(key) => residual + &self.down_proj.affine(&hidden).dropout(self.dropout.p(), key),
            None => self.down_proj.affine_add(&hidden, residual),
        }
    }
}
