//! The transformer block.

use super::attention::{CausalAttention, LayerCx};
use super::config::GptConfig;
use super::feed_forward::{FeedForward, GatedMlp, Mlp};
use super::names::Names;
use super::variants;
use crate::attention::{Capture, KvCache, Past};
use crate::module::{Call, Layer, Module, Visitor};
use crate::norm::Norm;
use crate::pass::Pass;
use retrograd_autograd::{Var, no_grad};
use retrograd_tensor::Real;
use retrograd_tensor::random::Rng;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A pre-norm block: `x += attn(ln_1(x))`, then `x += mlp(ln_2(x))`. Each part can be replaced.
///
/// Clones share their parameters, as clones of a [`Param`](crate::Param) do.
#[derive(Clone)]
pub struct Block<T: Real = f32> {
    /// The norm before the attention.
    pub ln_1: Norm<T>,
    /// The attention.
    pub attn: Arc<dyn CausalAttention<T>>,
    /// The norm before the feed-forward layer.
    pub ln_2: Norm<T>,
    /// The feed-forward layer.
    pub mlp: Arc<dyn FeedForward<T>>,
    /// The names of these parts in state dicts.
    pub names: Names,
}

impl<T: Real> Block<T> {
    /// The first block of this configuration.
    ///
    /// # Panics
    /// As [`GptConfig::check`].
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let config = GptConfig {
    ///     vocab: 10, context: 4, layers: 1, heads: 2, width: 8, bias: false, ..GptConfig::default()
    /// };
    /// let block = Block::<f32>::new(&config, &mut Rng::new(1));
    /// let x = Var::constant(Tensor::ones([1, 4, 8]));
    /// assert_eq!(*block.forward(&x, &mut Pass::eval()).shape(), [1, 4, 8]);
    /// ```
    #[track_caller]
    pub fn new(config: &GptConfig, rng: &mut Rng) -> Self {
        Block::of_layer(config, 0, rng)
    }

    /// The block of a layer, counted from 0: its window and some attention variants depend on it.
    ///
    /// # Panics
    /// As [`GptConfig::check`].
    #[track_caller]
    pub fn of_layer(config: &GptConfig, layer: usize, rng: &mut Rng) -> Self {
        if let Err(e) = config.check() {
            panic!("block: {e}");
        }
        Block::with_attention(config, variants::attention(config, layer, rng), rng)
    }

    /// A block with this attention; the configuration determines the other parts.
    #[track_caller]
    pub(crate) fn with_attention(
        config: &GptConfig,
        attn: Arc<dyn CausalAttention<T>>,
        rng: &mut Rng,
    ) -> Self {
        let mlp: Arc<dyn FeedForward<T>> = match config.mlp.is_gated() {
            true => Arc::new(GatedMlp::new(config, rng)),
            false => Arc::new(Mlp::new(config, rng)),
        };
        Block { ln_1: config.norm(), attn, ln_2: config.norm(), mlp, names: config.names }
    }

    /// The output in the context of a model.
    #[track_caller]
    #[inline(never)]
    pub fn run(&self, x: &Var<T>, cx: &mut LayerCx<'_, T>) -> Var<T> {
        let block = Call::start(self);
        let normed = self.ln_1.forward(x, cx.pass);
        let x = Call::start(&*self.attn).end(self.attn.run_add(&normed, x, cx));
        let normed = self.ln_2.forward(&x, cx.pass);
        let y = Call::start(&*self.mlp).end(self.mlp.forward_add(&normed, &x, cx.pass));
        block.end(y)
    }

    /// [`Block::run`] of whole sequences, which is [recomputed](Var::recompute) in the backward pass.
    pub(super) fn recompute(
        &self,
        x: &Var<T>,
        pass: &mut Pass,
        first_values: &mut Option<Var<T>>,
    ) -> Var<T> {
        let (block, before) = (self.clone(), (pass.clone(), first_values.clone()));
        let after = Arc::new(Mutex::new(None));
        let last = after.clone();
        let y = x.recompute(move |x| {
            let (mut pass, mut first) = before.clone();
            let past = Past::none();
            let mut cx = LayerCx { pass: &mut pass, past, first_values: &mut first, capture: None };
            let y = block.run(x, &mut cx);
            *last.lock().unwrap_or_else(PoisonError::into_inner) = Some((pass, first));
            y
        });
        let after = after.lock().unwrap_or_else(PoisonError::into_inner).take();
        (*pass, *first_values) = after.expect("the closure was called");
        y
    }

    /// The output of one block on its own, with its context.
    #[track_caller]
    fn run_alone(
        &self,
        x: &Var<T>,
        past: Past<'_, T>,
        capture: Option<&Capture<T>>,
        pass: &mut Pass,
    ) -> Var<T> {
        self.run(x, &mut LayerCx { pass, past, first_values: &mut None, capture })
    }

    /// The output, and the attention weights `[.., heads, L, L]` of each call of attention.
    #[track_caller]
    pub fn forward_with_weights(
        &self,
        x: &Var<T>,
        pass: &mut Pass,
    ) -> (Var<T>, Vec<retrograd_tensor::Tensor<T>>) {
        let capture = Capture::new();
        let y = self.run_alone(x, Past::none(), Some(&capture), pass);
        (y, capture.take())
    }

    /// The output for the next tokens of a sequence, in evaluation.
    ///
    /// # Panics
    /// If the attention cannot be cached.
    #[track_caller]
    pub fn forward_cached(&self, x: &Var<T>, cache: &mut KvCache<T>) -> Var<T> {
        assert!(self.attn.is_cached(), "block: its attention cannot be cached");
        no_grad(|| self.run_alone(x, Past::cached(cache), None, &mut Pass::eval()))
    }
}

impl<T: Real> Module<T> for Block<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        let names = self.names.block();
        v.module(names.norm_1, &self.ln_1);
        v.module(names.attention, &*self.attn);
        v.module(names.norm_2, &self.ln_2);
        v.module(names.mlp, &*self.mlp);
    }
}

impl<T: Real> Layer<T> for Block<T> {
    #[track_caller]
    fn forward(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        self.run_alone(x, Past::none(), None, pass)
    }
}

impl<T: Real> fmt::Debug for Block<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut block = f.debug_struct("Block");
        self.for_each_parameter(&mut |name, param| {
            block.field(name, &param.shape());
        });
        block.finish()
    }
}
