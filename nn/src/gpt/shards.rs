//! A batch of a language model in shards.

use super::Gpt;
use crate::module::scope;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::ops::loss::{CrossEntropy, Reduction};
use retrograd_tensor::{Integer, Real, Tensor};
use std::ops::Range;

/// A batch in shards, by [`Gpt::shards`]: for [`sharded`](retrograd_autograd::sharded) and
/// `DataParallel::gradients` of the crate `distributed`.
#[derive(Debug)]
pub struct Shards<'a, T: Real, I: Integer> {
    model: &'a Gpt<T>,
    tokens: Tensor<I>,
    targets: Tensor<I>,
    passes: Vec<Pass>,
    counts: Vec<usize>,
}

impl<'a, T: Real, I: Integer> Shards<'a, T, I> {
    pub(super) fn new(
        model: &'a Gpt<T>,
        tokens: &Tensor<I>,
        targets: &Tensor<I>,
        passes: Vec<Pass>,
    ) -> Self {
        let (tokens, targets) = (tokens.clone(), targets.clone());
        let mut shards = Shards { model, tokens, targets, passes, counts: Vec::new() };
        shards.counts = (0..shards.passes.len()).map(|i| shards.counted(i)).collect();
        shards
    }

    /// The number of targets that count in each shard.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// The mean loss of a shard.
    #[track_caller]
    pub fn loss(&self, i: usize) -> Var<T> {
        let (tokens, targets) = (self.part(&self.tokens, i), self.part(&self.targets, i));
        self.model.checked_loss(&tokens, &targets, &mut self.passes[i].clone())
    }

    /// The losses of the targets of one sequence, `[1, L]`, 0 where they are ignored, with the dropout of its shard: the
    /// mean over sequences of the gradients of their means is the gradient of the batch, if nothing is ignored.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let sizes = GptConfig { vocab: 10, context: 6, layers: 2, heads: 2, width: 8, ..GptConfig::default() };
    /// let model = Gpt::<f32>::new(GptConfig { dropout: 0.3, ..sizes }, &mut Rng::new(1)).unwrap();
    /// let tokens = Tensor::<i64>::from_fn([5, 6], |i| (7 * i[0] + i[1] * i[1]) as i64 % 10);
    /// let shards = model.shards(&tokens, &tokens, Some(2), &mut Pass::train(1));
    /// let (_, mut rest) = retrograd::autograd::sharded(shards.counts(), |i| shards.loss(i));
    /// for i in 0..5 {
    ///     rest.axpy(-1.0 / 5.0, &shards.token_losses(i).mean(..).backward());
    /// }
    /// assert!(rest.norm() < 1e-6);
    /// ```
    #[track_caller]
    pub fn token_losses(&self, sequence: usize) -> Var<T> {
        let _scope = scope(self.model);
        let i = (0..self.passes.len()).find(|&i| sequence < self.range(i).end).unwrap_or(0);
        // Which elements are dropped depends on their places.
        let is_alone = self.model.config.dropout == 0.0;
        let range = if is_alone { sequence..sequence + 1 } else { self.range(i) };
        let tokens = self.tokens.narrow(0, range.start, range.len());
        let pass = &mut self.passes[i].clone();
        let x = self.model.hidden(&tokens, 0, pass, None, None);
        let logits = self.model.logits(&x.narrow(0, sequence - range.start, 1), pass);
        let options = CrossEntropy { reduction: Reduction::None, ..self.model.cross_entropy() };
        logits.cross_entropy(&self.targets.narrow(0, sequence, 1), options)
    }

    /// The sequences of a shard.
    fn range(&self, i: usize) -> Range<usize> {
        let (sequences, shards) = (self.tokens.size(0), self.passes.len());
        sequences * i / shards..sequences * (i + 1) / shards
    }

    fn part(&self, x: &Tensor<I>, i: usize) -> Tensor<I> {
        x.narrow(0, self.range(i).start, self.range(i).len())
    }

    fn counted(&self, i: usize) -> usize {
        let options = self.model.cross_entropy();
        let targets = self.part(&self.targets, i).contiguous();
        targets.as_slice().iter().filter(|&&target| !options.ignores(target)).count()
    }
}

/// The number of shards of a batch where none is given: 1, 2 or 4, with at least 384 tokens each if there are
/// several. A shard with fewer tokens costs more than it saves.
///
/// ```
/// use retrograd::nn::default_shards;
/// assert_eq!((default_shards(12, 12 * 64), default_shards(2, 10_000)), (2, 2));
/// ```
pub fn default_shards(sequences: usize, tokens: usize) -> usize {
    const TOKENS: usize = 384;
    let most = sequences.min(tokens / TOKENS).clamp(1, 4);
    1 << most.ilog2()
}
