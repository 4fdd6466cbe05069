//! A decoder-only language model from parts: by default as in nanoGPT.
//!
//! `GptConfig` (`config.rs`) has its sizes and the kind of each part; `attention_kind.rs` lists the variants by
//! name with the options that each supports, and `variants.rs` makes a layer of one; `causal.rs` is nanoGPT's fused
//! attention, the default. A layer of a user's own implements `CausalAttention` (`attention.rs`) and is passed to
//! `Gpt::with_attention`. `names.rs` names parameters as GPT-2 or as Llama does.

mod attention;
mod attention_kind;
mod block;
mod cache;
mod causal;
mod config;
mod feed_forward;
mod generate;
mod names;
mod shards;
mod variants;

pub use attention::{CausalAttention, LayerCx, attention_layer};
pub use attention_kind::AttentionKind;
pub(crate) use attention_kind::by_name;
pub use block::Block;
pub use cache::GptCache;
pub use causal::CausalSelfAttention;
pub(crate) use config::named;
pub use config::{GptConfig, MlpKind, NormKind, Positions, RopeConfig};
pub use feed_forward::{FeedForward, GatedMlp, Mlp};
pub use generate::{BeyondContext, Generate, Sampler, Until, until};
pub use names::Names;
pub use shards::{Shards, default_shards};

use crate::attention::{Capture, KvCache, Past, SinusoidalPositions};
use crate::checkpoint;
use crate::config_error::ConfigError;
use crate::dropout::Dropout;
use crate::embedding::Embedding;
use crate::init::Init;
use crate::linear::Linear;
use crate::module::{Layer, Module, Visitor, scope};
use crate::norm::Norm;
use crate::pass::Pass;
use retrograd_autograd::{Gradients, Var, grad_enabled, no_grad, sharded};
use retrograd_tensor::error::{ErrorKind, OrPanic, ShapeError, assert};
use retrograd_tensor::ops::loss::CrossEntropy;
use retrograd_tensor::par::span;
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Integer, Real, Tensor};
use std::sync::Arc;

/// The first element with a property, and its index in row-major order.
fn find_first<I: Integer>(x: &Tensor<I>, property: impl Fn(I) -> bool) -> Option<(usize, I)> {
    let x = x.contiguous();
    x.as_slice().iter().copied().enumerate().find(|&(_, element)| property(element))
}

/// An error if memory for so many elements of a part of a model cannot be allocated at once. What is
/// built from them then can, unless another part of the program takes the memory.
fn check_memory<T: Real>(part: &str, elements: f64) -> Result<(), ConfigError> {
    let bytes = elements * size_of::<T>() as f64;
    checkpoint::check_memory(bytes as usize).map_err(|_| {
        ConfigError(format!(
            "no memory for {part}, which takes {bytes:.1e} bytes (hint: a smaller vocab, context or \
             width takes less)"
        ))
    })
}

/// From this vocabulary on, the loss does not store the logits of a whole batch.
const LARGE_VOCAB: usize = 8192;

/// A GPT: token and position embeddings, blocks, a norm, and a head that computes the logits of the
/// next token. [`GptConfig`] chooses the parts.
///
/// By default parameters are named as in nanoGPT (`transformer.wte.weight`, ..,
/// `transformer.h.0.attn.c_attn.weight`, .., `lm_head.weight`). They are initialised as in GPT-2:
/// normal with deviation 0.02, projections into the residual stream smaller by `√(2·layers)`,
/// biases 0. Radford et al. 2019.
///
/// ```
/// use retrograd::prelude::*;
///
/// let config = GptConfig {
///     vocab: 10, context: 8, layers: 2, heads: 2, width: 16,
///     bias: false, ..GptConfig::default()
/// };
/// let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
/// let tokens = Tensor::from([[1i64, 2, 3, 4]]);
/// let logits = model.forward(&tokens, &mut Pass::eval());
/// assert_eq!(*logits.shape(), [1, 4, 10]);
/// ```
#[derive(Clone, Debug)]
pub struct Gpt<T: Real = f32> {
    config: GptConfig,
    wte: Embedding<T>,
    /// Learned positions, if there are any.
    wpe: Option<Embedding<T>>,
    dropout: Dropout,
    blocks: Vec<Block<T>>,
    ln_f: Norm<T>,
    lm_head: Linear<T>,
    ignore_index: Option<i64>,
}

impl<T: Real> Gpt<T> {
    /// A model with randomly initialised parameters.
    ///
    /// # Errors
    /// As [`GptConfig::check`], or if there is no memory for a parameter.
    #[track_caller]
    pub fn new(config: GptConfig, rng: &mut Rng) -> Result<Self, ConfigError> {
        Gpt::build(config, rng, None)
    }

    /// A model whose layers have this attention: `attention` is called with the number of each layer,
    /// counted from 0. [`attention_layer`](crate::attention_layer) makes one of an
    /// [`Incremental`](crate::attention::Incremental). The configuration determines the other parts. Its
    /// options for attention have an effect only where the layer takes them:
    /// [`GptConfig::projections`] has the key heads, biases, dropout, QK-norm, rotary positions and initialisation.
    /// Windows are left to the layer.
    ///
    /// # Errors
    /// As [`GptConfig::check`], or if there is no memory for a parameter.
    #[track_caller]
    pub fn with_attention(
        config: GptConfig,
        rng: &mut Rng,
        mut attention: impl FnMut(usize, &mut Rng) -> Arc<dyn CausalAttention<T>>,
    ) -> Result<Self, ConfigError> {
        Gpt::build(config, rng, Some(&mut attention))
    }

    #[track_caller]
    fn build(
        config: GptConfig,
        rng: &mut Rng,
        mut attention: Option<AttentionOfLayer<'_, T>>,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let normal = Init::Normal { std: 0.02 };
        let (vocab, width) = (config.vocab, config.width);
        let block = |layer| check_memory::<T>(&format!("block {layer}"), config.block_elements());
        // Before time is spent on the tables.
        block(0)?;
        let table = |name: &str, rows: usize| {
            // It is sampled, scaled and replaced.
            let elements = 3.0 * rows as f64 * width as f64;
            check_memory::<T>(&format!("{name} [{rows}, {width}]"), elements)
        };
        table("the token embedding", vocab)?;
        let wte = Embedding::new(vocab, width, rng).init(normal, rng);
        let lm_head = match config.tied {
            true => Linear::tied(&wte.weight),
            false => {
                table("the head", vocab)?;
                Linear::without_bias(width, vocab, rng).init(normal, rng)
            }
        };
        let wpe = match config.positions {
            Positions::Learned => {
                table("the positions", config.context)?;
                Some(Embedding::new(config.context, width, rng).init(normal, rng))
            }
            _ => None,
        };
        let mut blocks = Vec::new();
        // A loop: in a closure, a panic would not report the line of the caller.
        for layer in 0..config.layers {
            block(layer)?;
            let attn = match &mut attention {
                Some(attention) => attention(layer, rng),
                None => variants::attention(&config, layer, rng),
            };
            blocks.push(Block::with_attention(&config, attn, rng));
        }
        let dropout = Dropout::new(config.dropout);
        let ln_f = config.norm();
        let ignore_index = CrossEntropy::default().ignore_index;
        Ok(Gpt { wpe, dropout, blocks, ln_f, wte, lm_head, config, ignore_index })
    }

    /// The blocks.
    pub fn blocks(&self) -> &[Block<T>] {
        &self.blocks
    }

    /// Sets the target that the loss ignores: -100 by default, as in PyTorch; -1 in nanoGPT; `None`
    /// if every target counts. It is not part of the configuration or of checkpoints.
    pub fn with_ignore_index(mut self, ignore_index: Option<i64>) -> Self {
        self.ignore_index = ignore_index;
        self
    }

    /// The target that the loss ignores, see [`Gpt::with_ignore_index`].
    pub fn ignore_index(&self) -> Option<i64> {
        self.ignore_index
    }

    /// The same model, of which so many blocks are recomputed, see [`GptConfig::recompute`].
    pub fn with_recompute(mut self, blocks: usize) -> Self {
        self.config.recompute = blocks;
        self
    }

    /// The shape of the model.
    pub fn config(&self) -> &GptConfig {
        &self.config
    }

    /// Logits `[.., L, vocab]` for tokens `[.., L]`.
    ///
    /// # Panics
    /// If the sequence is longer than the context, or a token is outside the vocabulary.
    #[track_caller]
    pub fn forward<I: Integer>(&self, tokens: &Tensor<I>, pass: &mut Pass) -> Var<T> {
        self.run(tokens, 0, pass, None, None)
    }

    /// An empty cache for the keys and values of one sequence, or of one batch, up to the context.
    pub fn cache(&self) -> GptCache<T> {
        GptCache::new(KvCache::new(self.config.context), self.config.layers, self.is_cached())
    }

    /// An empty cache for sequences of any length, in which every token attends to the last `context`
    /// tokens; see [`BeyondContext::Rolling`]. At most `context` tokens may be given at once.
    ///
    /// # Panics
    /// If [`Gpt::can_roll`] is false.
    #[track_caller]
    pub fn rolling_cache(&self) -> GptCache<T> {
        assert(self.can_roll(), "gpt", ErrorKind::Value, || {
            "the cache cannot roll: a layer has no cache or an absolute mask, or positions are absolute".into()
        });
        GptCache::new(KvCache::sliding(self.config.context - 1), self.config.layers, true)
    }

    /// Whether the attention of every layer can be cached. If not, [`Gpt::forward_cached`] computes the
    /// whole sequence in each call.
    pub fn is_cached(&self) -> bool {
        self.blocks.iter().all(|block| block.attn.is_cached())
    }

    /// Logits `[.., L, vocab]` for the next tokens `[.., L]` after those in the cache, to which
    /// their keys and values are appended. Without gradients, in evaluation. Any division of a
    /// sequence into steps gives the logits of [`Gpt::forward`]: in `f32` bit for bit, except at
    /// the portable SIMD level; there, and in `f64`, up to rounding.
    ///
    /// # Panics
    /// As [`Gpt::forward`], of all tokens together.
    #[track_caller]
    #[inline(never)]
    pub fn forward_cached<I: Integer>(
        &self,
        tokens: &Tensor<I>,
        cache: &mut GptCache<T>,
    ) -> Var<T> {
        let x = self.hidden_cached(tokens, cache);
        no_grad(|| self.logits(&x, &mut Pass::eval()))
    }

    /// The logits `[B, vocab]` of the last of the next tokens `[B, L]`.
    #[track_caller]
    fn last_logits(&self, tokens: &Tensor<i64>, cache: &mut GptCache<T>) -> Tensor<T> {
        let x = self.hidden_cached(tokens, cache);
        let last = x.narrow(-2, tokens.size(-1) - 1, 1);
        no_grad(|| self.logits(&last, &mut Pass::eval())).value().select(-2, 0)
    }

    /// The input of the head for the next tokens.
    #[track_caller]
    fn hidden_cached<I: Integer>(&self, tokens: &Tensor<I>, cache: &mut GptCache<T>) -> Var<T> {
        let start = cache.position();
        self.check_tokens(tokens, if cache.is_rolling() { 0 } else { start });
        no_grad(|| match cache {
            GptCache::Layers(layers) => {
                self.hidden(tokens, start, &mut Pass::eval(), Some(layers), None)
            }
            GptCache::Tokens(earlier) => {
                let all = cache::append(earlier, tokens);
                let x = self.hidden(&all, 0, &mut Pass::eval(), None, None);
                *earlier = Some(all);
                x.narrow(-2, start, tokens.size(-1))
            }
        })
    }

    /// The mean cross-entropy of predicting `targets` `[.., L]` from tokens `[.., L]`, without
    /// ignored targets ([`Gpt::with_ignore_index`]). With a vocabulary of 8192 or more, the logits
    /// are computed in parts, see [`Var::linear_cross_entropy`].
    ///
    /// # Panics
    /// As [`Gpt::forward`], or if shapes differ or a target is neither in the vocabulary nor
    /// ignored.
    #[track_caller]
    pub fn loss<I: Integer>(
        &self,
        tokens: &Tensor<I>,
        targets: &Tensor<I>,
        pass: &mut Pass,
    ) -> Var<T> {
        self.check_targets(targets);
        self.checked_loss(tokens, targets, pass)
    }

    #[track_caller]
    fn checked_loss<I: Integer>(
        &self,
        tokens: &Tensor<I>,
        targets: &Tensor<I>,
        pass: &mut Pass,
    ) -> Var<T> {
        let _scope = scope(self);
        let options = self.cross_entropy();
        if self.config.vocab < LARGE_VOCAB || self.config.logit_softcap.is_some() {
            return self.forward(tokens, pass).cross_entropy(targets, options);
        }
        let x = self.hidden(tokens, 0, pass, None, None);
        x.linear_cross_entropy(&self.lm_head.weight.to_var(), targets, options)
    }

    /// [`Gpt::loss`] of a batch of sequences `[B, L]`, and its gradients.
    ///
    /// The batch is split into [`Gpt::shards`], whose forward and backward passes run in parallel; see
    /// [`sharded`]. Their number depends on the sizes of the batch alone, so results do not depend on the
    /// number of threads. They differ from `loss(..).backward()` by rounding, and by the pattern
    /// of dropout.
    ///
    /// # Panics
    /// As [`Gpt::loss`], or if tokens have another rank than 2.
    #[track_caller]
    pub fn loss_and_gradients<I: Integer>(
        &self,
        tokens: &Tensor<I>,
        targets: &Tensor<I>,
        pass: &mut Pass,
    ) -> (T, Gradients<T>) {
        let shards = self.shards(tokens, targets, None, pass);
        sharded(shards.counts(), |i| shards.loss(i))
    }

    /// The batch of [`Gpt::loss_and_gradients`] in `number` shards of about equal numbers of sequences; without
    /// a number, in 1, 2 or 4, with at least 384 tokens each if there are several.
    ///
    /// # Panics
    /// As [`Gpt::loss_and_gradients`], or if there are fewer sequences than shards.
    ///
    /// ```
    /// use retrograd::autograd::sharded;
    /// use retrograd::prelude::*;
    /// let config = GptConfig { vocab: 10, context: 4, layers: 1, heads: 2, width: 8, ..GptConfig::default() };
    /// let model = Gpt::<f64>::new(config, &mut Rng::new(1)).unwrap();
    /// let (tokens, targets) = (Tensor::from([[1i64, 2], [3, 4]]), Tensor::from([[2i64, 3], [4, 5]]));
    /// let shards = model.shards(&tokens, &targets, Some(2), &mut Pass::eval());
    /// assert_eq!(shards.counts(), [2, 2]); // targets
    /// let (loss, _) = sharded(shards.counts(), |i| shards.loss(i));
    /// assert!((loss - model.loss(&tokens, &targets, &mut Pass::eval()).item()).abs() < 1e-12);
    /// ```
    #[track_caller]
    pub fn shards<I: Integer>(
        &self,
        tokens: &Tensor<I>,
        targets: &Tensor<I>,
        number: Option<usize>,
        pass: &mut Pass,
    ) -> Shards<'_, T, I> {
        let valid = tokens.rank() == 2 && tokens.shape() == targets.shape();
        assert(valid, "gpt", ErrorKind::Rank, || {
            format!(
                "needs tokens and targets [batch, length], got {:?} and {:?}",
                tokens.shape(),
                targets.shape()
            )
        });
        let sequences = tokens.size(0);
        let _span = span("cut into shards");
        self.check_tokens(tokens, 0);
        self.check_targets(targets);
        let number = number.unwrap_or_else(|| default_shards(sequences, tokens.numel()));
        assert((1..=sequences.max(1)).contains(&number), "gpt", ErrorKind::Value, || {
            format!("a batch of {sequences} sequences cannot be split into {number} shards")
        });
        Shards::new(self, tokens, targets, pass.split(number))
    }

    fn cross_entropy(&self) -> CrossEntropy {
        CrossEntropy { ignore_index: self.ignore_index, ..CrossEntropy::default() }
    }

    /// Checks targets before the forward pass, with an error that names the option.
    #[track_caller]
    fn check_targets<I: Integer>(&self, targets: &Tensor<I>) {
        let vocab = self.config.vocab;
        let options = self.cross_entropy();
        let wrong = |target: I| target.index_in(vocab).is_none() && !options.ignores(target);
        if let Some((at, target)) = find_first(targets, wrong) {
            let ignored = self.ignore_index.map_or("none".into(), |i| i.to_string());
            let detail = format!(
                "target {target} at position {at} is outside 0..{vocab}, and the ignored target \
                 (ignore_index) is {ignored}"
            );
            let error = ShapeError::new("gpt", ErrorKind::Index, detail);
            Err(error.hint("Gpt::with_ignore_index sets it")).or_panic()
        }
    }

    /// Checks that there is a sequence of tokens, and that it ends within the context.
    #[track_caller]
    fn check_length<I: Integer>(&self, tokens: &Tensor<I>, start: usize) {
        assert(tokens.rank() > 0, "gpt", ErrorKind::Rank, || {
            "needs a sequence of tokens, got rank 0".into()
        });
        let (length, context) = (start + tokens.size(-1), self.config.context);
        assert(length <= context, "gpt", ErrorKind::Index, || {
            format!("a sequence of {length} tokens is longer than the context of {context}")
        });
    }

    /// The attention weights `[.., heads, L, L]` of every block; `heads` is 0 where the attention has no
    /// weights.
    #[track_caller]
    pub fn attention_maps<I: Integer>(&self, tokens: &Tensor<I>) -> Vec<Tensor<T>> {
        self.check_tokens(tokens, 0);
        let capture = Capture::new();
        let mut maps = Vec::new();
        no_grad(|| self.run(tokens, 0, &mut Pass::eval(), None, Some((&capture, &mut maps))));
        maps
    }

    /// The logits of tokens from position `start` on.
    #[track_caller]
    #[inline(never)]
    fn run<I: Integer>(
        &self,
        tokens: &Tensor<I>,
        start: usize,
        pass: &mut Pass,
        caches: Option<&mut [KvCache<T>]>,
        maps: Option<Maps<'_, T>>,
    ) -> Var<T> {
        let _scope = scope(self);
        let x = self.hidden(tokens, start, pass, caches, maps);
        self.logits(&x, pass)
    }

    /// The logits, from the input of the head.
    #[track_caller]
    fn logits(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        let logits = self.lm_head.forward(x, pass);
        match self.config.logit_softcap.map(T::from_f64) {
            Some(c) => (logits / c).tanh() * c,
            None => logits,
        }
    }

    /// Checks tokens from position `start` on before a closure or a shard uses them, so that errors
    /// are reported at the caller's line.
    #[track_caller]
    fn check_tokens<I: Integer>(&self, tokens: &Tensor<I>, start: usize) {
        self.check_length(tokens, start);
        let vocab = self.config.vocab;
        if let Some((at, token)) = find_first(tokens, |token| token.index_in(vocab).is_none()) {
            let detail = format!("token {token} at position {at} is outside 0..{vocab}");
            Err(ShapeError::new("gpt", ErrorKind::Index, detail)).or_panic()
        }
    }

    /// The input of the head, `[.., L, width]`.
    #[track_caller]
    #[inline(never)]
    fn hidden<I: Integer>(
        &self,
        tokens: &Tensor<I>,
        start: usize,
        pass: &mut Pass,
        mut caches: Option<&mut [KvCache<T>]>,
        mut maps: Option<Maps<'_, T>>,
    ) -> Var<T> {
        self.check_length(tokens, 0);
        let mut x = self.wte.forward(tokens);
        if let Some(wpe) = &self.wpe {
            let positions =
                Tensor::<i64>::indices(start + tokens.size(-1)).narrow(0, start, tokens.size(-1));
            x = x + wpe.forward(&positions);
        } else if self.config.positions == Positions::Sinusoidal {
            x = SinusoidalPositions::default().forward(&x, start);
        }
        let shape = *x.shape();
        let batched = shape.rank() == 3;
        let mut x = self.dropout.forward(&x, pass);
        if !batched {
            // Layers take a batch of sequences.
            let batch = shape[..shape.rank() - 2].iter().product();
            x = x.reshape([batch, tokens.size(-1), self.config.width]);
        }
        let mut first_values = None;
        for (i, block) in self.blocks.iter().enumerate() {
            let past = match &mut caches {
                Some(caches) => Past::cached(&mut caches[i]),
                None => Past::none(),
            };
            let capture = maps.as_ref().map(|(capture, _)| *capture);
            x = match i < self.config.recompute && grad_enabled() && capture.is_none() {
                true => block.recompute(&x, pass, &mut first_values),
                false => {
                    let mut cx = LayerCx { pass, past, first_values: &mut first_values, capture };
                    block.run(&x, &mut cx)
                }
            };
            if let Some((capture, maps)) = &mut maps {
                maps.push(joined(capture.take(), tokens));
            }
        }
        let x = if batched { x } else { x.reshape(shape) };
        self.ln_f.forward(&x, pass)
    }
}

/// The attention of each layer, given by the user.
type AttentionOfLayer<'a, T> = &'a mut dyn FnMut(usize, &mut Rng) -> Arc<dyn CausalAttention<T>>;

/// Where attention weights are collected: a list for each block.
type Maps<'a, T> = (&'a Capture<T>, &'a mut Vec<Tensor<T>>);

/// The weights of the calls of attention in one block, `[B, heads, L, L]` or `[B, L, L]` each, as one
/// tensor with the leading axes of the tokens.
fn joined<T: Real, I: Integer>(weights: Vec<Tensor<T>>, tokens: &Tensor<I>) -> Tensor<T> {
    let (leading, length) = (&tokens.shape()[..tokens.rank() - 1], tokens.size(-1));
    let batch: usize = leading.iter().product();
    // Learned keys, if there are any, come after the keys of the tokens.
    let heads = |w: &Tensor<T>| if w.rank() == 3 { 1 } else { w.size(-3) };
    let parts: Vec<Tensor<T>> = weights
        .iter()
        .map(|w| w.reshape([batch, heads(w), length, w.size(-1)]).narrow(-1, 0, length))
        .collect();
    let all = match parts.is_empty() {
        true => Tensor::zeros([batch, 0, length, length]),
        false => Tensor::cat(&parts.iter().collect::<Vec<_>>(), 1),
    };
    all.reshape([leading, &[all.size(1), length, length]].concat())
}

impl<T: Real> Module<T> for Gpt<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        let names = self.config.names.model();
        v.scope(names.scope, |v| {
            v.module(names.tokens, &self.wte);
            if let Some(wpe) = &self.wpe {
                v.module(names.positions, wpe);
            }
            v.list(names.blocks, &self.blocks);
            v.module(names.norm, &self.ln_f);
        });
        v.module(names.head, &self.lm_head);
    }
}
