//! Sparse Transformer: two sparse patterns that cover all earlier positions in two steps.

use crate::attention::engine::Mask;
use retrograd_tensor::error::{ErrorKind, assert};

/// The keys of the two kinds of heads, all with `j <= p`.
///
/// ```text
/// strided:  near  p - stride < j          far  (p - j) mod stride = 0
/// fixed:    near  ⌊j / stride⌋ = ⌊p / stride⌋   far  j mod stride >= stride - summary
/// ```
///
/// Two layers (or the two kinds of heads in one layer and the next) connect a query to all earlier
/// positions. The near part of `strided` is as in the authors' code; their paper has one key
/// more. In the far part of `fixed`, queries before the first summary have no key, and outputs 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SparsePattern {
    /// For data with a period, such as images of this width.
    Strided {
        /// The period.
        stride: usize,
    },
    /// For data without one, such as text.
    Fixed {
        /// The length of a block.
        stride: usize,
        /// The number of keys at the end of each block to which all later queries attend.
        summary: usize,
    },
}

impl SparsePattern {
    /// The mask of near keys.
    ///
    /// # Panics
    /// If the stride is 0.
    #[track_caller]
    pub fn near(self) -> Mask {
        self.check();
        match self {
            SparsePattern::Strided { stride } => Mask::window(stride - 1, 0),
            SparsePattern::Fixed { stride, .. } => Mask::causal() & Mask::chunks(stride),
        }
    }

    /// The mask of far keys.
    ///
    /// # Panics
    /// If the stride is 0, or the summary is longer than it.
    ///
    /// ```
    /// use retrograd::nn::attention::{Align, SparsePattern};
    /// let pattern = SparsePattern::Strided { stride: 2 };
    /// let keep = pattern.far().tensor([1, 1, 4, 4], Align::TopLeft);
    /// assert_eq!(keep.select(2, 3).to_vec(), [false, true, false, true]); // every second
    /// ```
    #[track_caller]
    pub fn far(self) -> Mask {
        self.check();
        match self {
            SparsePattern::Strided { stride } => Mask::causal() & Mask::dilated(stride),
            SparsePattern::Fixed { stride, summary } => {
                Mask::causal() & Mask::last_of_each(summary, stride)
            }
        }
    }

    /// The mask of the layer with this index; the index matters where layers alternate.
    #[track_caller]
    pub fn mask(self, merge: SparseMerge, heads: usize, layer: usize) -> Mask {
        match merge {
            SparseMerge::Heads => Mask::by_head(
                (0..heads).map(|h| if h % 2 == 0 { self.near() } else { self.far() }).collect(),
            ),
            SparseMerge::Layers if layer.is_multiple_of(2) => self.near(),
            SparseMerge::Layers => self.far(),
            SparseMerge::Union => self.near() | self.far(),
        }
    }

    #[track_caller]
    fn check(self) {
        let (stride, summary) = match self {
            SparsePattern::Strided { stride } => (stride, 0),
            SparsePattern::Fixed { stride, summary } => (stride, summary),
        };
        assert(stride > 0, "sparse attention", ErrorKind::Value, || {
            "a stride must be at least 1, got 0".into()
        });
        assert(summary <= stride, "sparse attention", ErrorKind::Value, || {
            format!("a summary of {summary} in blocks of {stride}")
        });
    }
}

/// The combination of the two patterns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SparseMerge {
    /// Even heads attend to near keys, odd heads to far keys.
    #[default]
    Heads,
    /// Even layers attend to near keys, odd layers to far keys.
    Layers,
    /// Every head attends to both.
    Union,
}
