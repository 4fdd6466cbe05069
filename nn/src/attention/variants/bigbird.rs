//! BigBird: blocks that see their neighbours, a few everywhere, and some at random.

use crate::attention::engine::{Mask, Spec};
use crate::attention::parts::incremental::Past;
use crate::attention::parts::projections::Projections;
use crate::module::{Module, Visitor};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::error::{ErrorKind, OrPanic, require};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

/// Which blocks see one another.
///
/// ```
/// use retrograd_nn::attention::BigBirdLayout;
/// let layout = BigBirdLayout { block: 64, neighbours: 1, global: 1, random: 2, seed: 7 };
/// let blocks = layout.blocks(1, 10);
/// assert_eq!(*blocks.shape(), [1, 10, 10]);
/// // Block 5 sees itself and two neighbours, block 0, and two others.
/// let row = blocks.select(0, 0).select(0, 5).to_vec();
/// assert!(row[0] && row[4] && row[5] && row[6]);
/// assert_eq!(row.iter().filter(|sees| **sees).count(), 6);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BigBirdLayout {
    /// Tokens in a block.
    pub block: usize,
    /// Blocks on each side that a block sees besides itself.
    pub neighbours: usize,
    /// First blocks, which see and are seen by all.
    pub global: usize,
    /// Other blocks that a block sees, drawn per head and without repetition.
    pub random: usize,
    /// Of the drawing.
    pub seed: u64,
}

impl BigBirdLayout {
    /// True where a block of queries sees a block of keys: `[heads, n, n]` for `n` blocks.
    pub fn blocks(&self, heads: usize, n: usize) -> Tensor<bool> {
        let mut rng = Rng::new(self.seed);
        let mut sees = vec![false; heads * n * n];
        for (i, row) in sees.chunks_mut(n.max(1)).enumerate() {
            let i = i % n;
            for (j, sees) in row.iter_mut().enumerate() {
                *sees = i.abs_diff(j) <= self.neighbours || i.min(j) < self.global;
            }
            let mut others: Vec<usize> = (0..n).filter(|&j| !row[j]).collect();
            for _ in 0..self.random.min(others.len()) {
                row[others.swap_remove(rng.below(others.len()))] = true;
            }
        }
        Tensor::from_vec(sees, [heads, n, n])
    }

    /// As a mask for `heads` heads and a sequence of this length.
    ///
    /// # Panics
    /// If blocks hold no token.
    #[track_caller]
    pub fn mask(&self, heads: usize, length: usize) -> Mask {
        require(self.block > 0, "BigBird", ErrorKind::Value, || {
            "blocks must hold at least 1 token, got 0".into()
        })
        .or_panic();
        Mask::blocks(self.block, &self.blocks(heads, length.div_ceil(self.block)))
    }
}

/// Self-attention between blocks: neighbours, global ones, and random ones.
///
/// A query in block `a` sees every key of block `b` where
/// `|a - b| <= neighbours`, `min(a, b) < global`, or `b` was drawn for `a`.
///
/// `[L, width]` or `[B, L, width]` to the same; the work is
/// `O(L · block · (2 neighbours + 1 + global + random) · width)`, for blocks of a multiple of
/// the engine's tile of 64. With `global` or `neighbours` at least the number of blocks it is
/// full self-attention. [`Mask::blocks`] takes any other layout.
///
/// Parameters: those of [`Projections`]. Zaheer et al. 2020 (arXiv 2007.14062).
#[derive(Clone, Debug)]
pub struct BigBirdAttention<T: Real = f32> {
    /// Around it.
    pub projections: Projections<T>,
    /// Which blocks see one another.
    pub layout: BigBirdLayout,
}

impl<T: Real> BigBirdAttention<T> {
    /// With a layout.
    pub fn new(projections: Projections<T>, layout: BigBirdLayout) -> Self {
        BigBirdAttention { projections, layout }
    }

    /// Attends; `spec` may restrict it further, by [`Mask::causal`] for a decoder.
    ///
    /// # Panics
    /// If shapes do not fit.
    #[track_caller]
    pub fn forward(&self, x: &Var<T>, spec: impl Into<Spec<T>>, pass: &mut Pass) -> Var<T> {
        let mask = self.layout.mask(self.projections.sizes().heads, x.size(-2));
        self.projections.attend(x, spec.into().mask(mask), &mut Past::none(), pass)
    }
}

impl<T: Real> Module<T> for BigBirdAttention<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        self.projections.visit(v);
    }
}
