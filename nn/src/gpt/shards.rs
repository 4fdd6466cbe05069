//! A batch of a language model in shards.

use super::Gpt;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::{Integer, Real, Tensor};

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

    fn part(&self, x: &Tensor<I>, i: usize) -> Tensor<I> {
        let (sequences, shards) = (x.size(0), self.passes.len());
        let first = sequences * i / shards;
        x.narrow(0, first, sequences * (i + 1) / shards - first)
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
