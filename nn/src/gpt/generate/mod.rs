//! Generation of tokens: one sequence, a batch of sequences, and sequences longer than the context.

mod sampler;
mod until;

pub use sampler::Sampler;
pub use until::{Until, until};

use super::{Gpt, GptCache};
use retrograd_tensor::error::{ErrorKind, OrPanic, ShapeError, assert};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

/// How generation continues when a sequence is longer than the context of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BeyondContext {
    /// [`BeyondContext::Rolling`] if the model supports it, else [`BeyondContext::Half`].
    #[default]
    Auto,
    /// The cache drops the oldest token for each new one, in constant time per token: a query attends to
    /// the last `context` tokens. The keys and values of these tokens were computed when earlier tokens
    /// were still in the cache, so with two or more layers they depend on more than `context` tokens.
    /// The model must have a cache and no absolute positions ([`Gpt::can_roll`]). Jiang et al. 2023
    /// (arXiv 2310.06825).
    Rolling,
    /// If the context is full, its older half is dropped, and the keys and values of the newer half are
    /// computed again, from position 0 on. A token costs at most twice the time of a token within the
    /// context, in the mean; a query attends to between half of the context and all of it.
    Half,
    /// For each new token, the last `context` tokens are computed again, as in nanoGPT's `generate`. A
    /// token then costs as much as a prompt of `context` tokens.
    Recompute,
}

impl<T: Real> Gpt<T> {
    /// The tokens that continue `prompt`, without end: an iterator that computes each token when it is
    /// requested. The model attends to as many of the last tokens as its context allows;
    /// [`Generate::beyond_context`] chooses how.
    ///
    /// # Panics
    /// If the prompt is empty or has a token outside the vocabulary, or an option of the sampler is out
    /// of range. The iterator panics if the logits do not define a distribution.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let config = GptConfig { vocab: 10, context: 4, layers: 1, heads: 2, width: 8, ..GptConfig::default() };
    /// let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
    /// let mut rng = Rng::new(2);
    /// let tokens: Vec<i64> = model.generate(&[1, 2], Sampler::default(), &mut rng).take(20).collect();
    /// assert_eq!(tokens.len(), 20);
    /// ```
    #[track_caller]
    pub fn generate<'a>(
        &'a self,
        prompt: &[i64],
        sampler: Sampler,
        rng: &'a mut Rng,
    ) -> Generate<'a, T> {
        sampler.check();
        Generate { sequences: Sequences::new(self, &[prompt]), sampler, rng }
    }

    /// `count` tokens for each of several prompts, which are computed as one batch. The prompts may
    /// differ in length: shorter ones are continued while the tokens of longer ones are read. The
    /// tokens of a prompt do not depend on the other prompts, if no sequence is longer than the context.
    ///
    /// # Panics
    /// As [`Gpt::generate`], or if the logits do not define a distribution.
    #[track_caller]
    pub fn generate_batch(
        &self,
        prompts: &[&[i64]],
        count: usize,
        sampler: Sampler,
        rng: &mut Rng,
    ) -> Vec<Vec<i64>> {
        sampler.check();
        let mut sequences = Sequences::new(self, prompts);
        let mut rngs: Vec<Rng> = prompts.iter().map(|_| Rng::new(rng.key().bits(0))).collect();
        let mut made = vec![Vec::with_capacity(count); prompts.len()];
        while made.iter().any(|tokens| tokens.len() < count) {
            let next = sequences
                .step(|row, tokens, logits| sampler.draw_after(tokens, logits, &mut rngs[row]));
            for (tokens, next) in made.iter_mut().zip(next) {
                tokens.extend(next.filter(|_| tokens.len() < count));
            }
        }
        made
    }

    /// Whether [`BeyondContext::Rolling`] is possible: all layers have a cache, no mask depends on
    /// positions in the context, and positions are relative (rotary, ALiBi, T5) or not encoded.
    pub fn can_roll(&self) -> bool {
        self.blocks.iter().all(|block| block.attn.can_roll()) && self.config.positions.is_relative()
    }

    /// The log-probability of each token of `tokens` `[.., L]` after the first one, given those before
    /// it: `[.., L - 1]`. Its mean over a text is the negative cross-entropy.
    ///
    /// # Panics
    /// As [`Gpt::forward`], or if there is no token.
    #[track_caller]
    pub fn log_probs(&self, tokens: &Tensor<i64>) -> Tensor<T> {
        self.check_tokens(tokens, 0);
        let n = tokens.size(-1);
        assert(n > 0, "log_probs", ErrorKind::Mismatch, || "there is no token".into());
        let inputs = tokens.narrow(-1, 0, n - 1);
        let logits =
            retrograd_autograd::no_grad(|| self.forward(&inputs, &mut crate::Pass::eval()));
        let targets = tokens.narrow(-1, 1, n - 1).unsqueeze(-1);
        logits.value().log_softmax(-1).gather(-1, &targets).squeeze(-1)
    }
}

/// The tokens that continue a prompt; see [`Gpt::generate`].
#[derive(Debug)]
pub struct Generate<'a, T: Real = f32> {
    sequences: Sequences<'a, T>,
    sampler: Sampler,
    rng: &'a mut Rng,
}

impl<T: Real> Generate<'_, T> {
    /// Chooses how generation continues beyond the context.
    ///
    /// # Panics
    /// If the model cannot roll ([`Gpt::can_roll`]) and this is [`BeyondContext::Rolling`].
    #[track_caller]
    pub fn beyond_context(mut self, beyond: BeyondContext) -> Self {
        self.sequences.set_beyond(beyond);
        self
    }
}

impl<T: Real> Iterator for Generate<'_, T> {
    type Item = i64;

    #[track_caller]
    fn next(&mut self) -> Option<i64> {
        let Generate { sequences, sampler, rng } = self;
        let next = sequences.step(|_, tokens, logits| sampler.draw_after(tokens, logits, rng));
        next[0]
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

/// Sequences of a batch. The rows are at the same position: a row whose prompt has another token there
/// reads it, and the other rows draw a token.
#[derive(Debug)]
struct Sequences<'a, T: Real> {
    model: &'a Gpt<T>,
    cache: GptCache<T>,
    rows: Vec<Vec<i64>>,
    /// The model attends to `tokens[start..end]` of each row.
    start: usize,
    end: usize,
    /// Tokens from here on are not in the cache yet.
    fresh: usize,
    /// Whether the cache drops old tokens.
    is_rolling: bool,
    /// The number of tokens that are computed again if the context is full.
    kept: usize,
}

impl<'a, T: Real> Sequences<'a, T> {
    #[track_caller]
    fn new(model: &'a Gpt<T>, prompts: &[&[i64]]) -> Self {
        let context = model.config().context;
        let mut rows = Vec::with_capacity(prompts.len());
        for &prompt in prompts {
            assert(!prompt.is_empty(), "generate", ErrorKind::Value, || {
                "the prompt is empty".into()
            });
            let tokens = &prompt[prompt.len().saturating_sub(context)..];
            model.check_tokens(&Tensor::from_vec(tokens.to_vec(), [tokens.len()]), 0);
            rows.push(tokens.to_vec());
        }
        let end = rows.iter().map(Vec::len).min().unwrap_or(0);
        let mut new = Sequences {
            model,
            cache: model.cache(),
            rows,
            start: 0,
            end,
            fresh: 0,
            is_rolling: false,
            kept: 0,
        };
        new.set_beyond(BeyondContext::Auto);
        new
    }

    #[track_caller]
    fn set_beyond(&mut self, beyond: BeyondContext) {
        let (context, can_roll) = (self.model.config().context, self.model.can_roll());
        self.is_rolling = match beyond {
            BeyondContext::Auto => can_roll,
            BeyondContext::Rolling if !can_roll => {
                let detail = "the cache cannot roll: a layer has no cache or an absolute mask, or positions are absolute";
                let error = ShapeError::new("generate", ErrorKind::Value, detail);
                Err(error.hint("BeyondContext::Half works for every model")).or_panic()
            }
            BeyondContext::Rolling => true,
            BeyondContext::Half | BeyondContext::Recompute => false,
        };
        self.kept = match beyond {
            BeyondContext::Recompute => context,
            _ => context.div_ceil(2),
        };
        self.cache = if self.is_rolling { self.model.rolling_cache() } else { self.model.cache() };
        self.fresh = self.start;
    }

    /// Computes the logits after the tokens so far, and appends a token to each row by `draw(row, tokens,
    /// logits)`, unless the prompt of the row has another token. Returns the tokens that were drawn.
    #[track_caller]
    #[inline(never)]
    fn step(&mut self, mut draw: impl FnMut(usize, &[i64], &Tensor<T>) -> i64) -> Vec<Option<i64>> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        if !self.is_rolling && self.end - self.start > self.model.config().context {
            self.start = self.end - self.kept;
            self.cache = self.model.cache();
            self.fresh = self.start;
        }
        let length = self.end - self.fresh;
        let new: Vec<i64> =
            self.rows.iter().flat_map(|row| &row[self.fresh..self.end]).copied().collect();
        let input = Tensor::from_vec(new, [self.rows.len(), length]);
        let logits = self.model.last_logits(&input, &mut self.cache);
        self.fresh = self.end;
        let mut drawn = Vec::with_capacity(self.rows.len());
        for (i, row) in self.rows.iter_mut().enumerate() {
            let next = match row.len() > self.end {
                true => None,
                false => Some(draw(i, row, &logits.select(0, i))),
            };
            row.extend(next);
            drawn.push(next);
        }
        self.end += 1;
        drawn
    }
}
