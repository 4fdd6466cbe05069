//! BigBird: block-sparse attention to neighbouring, global and random blocks.

use crate::attention::engine::{Mask, Spec};
use crate::attention::parts::incremental::Past;
use crate::attention::parts::projections::Projections;
use crate::module::{Call, visits};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

/// The block layout of [`BigBirdAttention`].
///
/// ```
/// use retrograd::nn::attention::BigBirdLayout;
/// let layout = BigBirdLayout { block: 64, neighbours: 1, global: 1, random: 2, seed: 7 };
/// let blocks = layout.blocks(1, 10);
/// assert_eq!(*blocks.shape(), [1, 10, 10]);
/// // Block 5 attends to itself and two neighbours, block 0, and two others.
/// let row = blocks.select(0, 0).select(0, 5).to_vec();
/// assert!(row[0] && row[4] && row[5] && row[6]);
/// assert_eq!(row.iter().filter(|attends| **attends).count(), 6);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BigBirdLayout {
    /// Tokens in a block.
    pub block: usize,
    /// Blocks on each side that a block attends to besides itself.
    pub neighbours: usize,
    /// The number of first blocks that are global: they attend to all blocks, and all blocks to
    /// them.
    pub global: usize,
    /// Other blocks that a block attends to, sampled per head without replacement.
    pub random: usize,
    /// The seed of the random blocks.
    pub seed: u64,
}

impl BigBirdLayout {
    /// The layout for `n` blocks, `[heads, n, n]`: true where a block of queries attends to a block
    /// of keys.
    pub fn blocks(&self, heads: usize, n: usize) -> Tensor<bool> {
        let mut rng = Rng::new(self.seed);
        let mut attends = vec![false; heads * n * n];
        for (i, row) in attends.chunks_mut(n.max(1)).enumerate() {
            let i = i % n;
            for (j, attends) in row.iter_mut().enumerate() {
                *attends = i.abs_diff(j) <= self.neighbours || i.min(j) < self.global;
            }
            let mut others: Vec<usize> = (0..n).filter(|&j| !row[j]).collect();
            for _ in 0..self.random.min(others.len()) {
                row[others.swap_remove(rng.below(others.len()))] = true;
            }
        }
        Tensor::from_vec(attends, [heads, n, n])
    }

    /// The mask for `heads` heads and a sequence of this length.
    ///
    /// # Panics
    /// If the block size is 0.
    #[track_caller]
    pub fn mask(&self, heads: usize, length: usize) -> Mask {
        assert(self.block > 0, "BigBird", ErrorKind::Value, || {
            "blocks must hold at least 1 token, got 0".into()
        });
        Mask::blocks(self.block, &self.blocks(heads, length.div_ceil(self.block)))
    }
}

/// Self-attention to neighbouring, global and random blocks.
///
/// A query in block `a` attends to every key of block `b` if `|a - b| <= neighbours`,
/// `min(a, b) < global`, or `b` was sampled for `a`.
///
/// `[L, width]` or `[B, L, width]` to the same; the work is
/// `O(L · block · (2 neighbours + 1 + global + random) · width)`, for block sizes that are a
/// multiple of 64, the tile size of the engine. With `global` or `neighbours` at least the number
/// of blocks it is full self-attention. [`Mask::blocks`] supports any other layout.
///
/// Parameters: as [`Projections`]. Zaheer et al. 2020 (arXiv 2007.14062).
#[derive(Clone, Debug)]
pub struct BigBirdAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
    /// The block layout.
    pub layout: BigBirdLayout,
}

impl<T: Real> BigBirdAttention<T> {
    /// A layer with this layout.
    pub fn new(projections: Projections<T>, layout: BigBirdLayout) -> Self {
        BigBirdAttention { projections, layout }
    }

    /// The output for `x`; `spec` may restrict the attention further, by [`Mask::causal`] for a
    /// decoder.
    ///
    /// # Panics
    /// If the shapes do not match.
    #[track_caller]
    pub fn forward(&self, x: &Var<T>, spec: impl Into<Spec<T>>, pass: &mut Pass) -> Var<T> {
        let call = Call::start(self);
        let mask = self.layout.mask(self.projections.sizes().heads, x.size(-2));
        call.end(self.projections.attend(x, spec.into().mask(mask), &mut Past::none(), pass))
    }
}

visits!(BigBirdAttention: all projections);
