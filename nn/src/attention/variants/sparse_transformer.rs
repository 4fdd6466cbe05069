//! Sparse Transformer: two sparse patterns that together reach everything.

use crate::attention::engine::{Mask, Spec};
use crate::attention::parts::incremental::Past;
use crate::attention::parts::projections::Projections;
use crate::module::{Module, Visitor};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::error::{ErrorKind, OrPanic, require};

/// Which keys the two kinds of heads see, all with `j <= p`.
///
/// ```text
/// strided:  near  p - stride < j          far  (p - j) mod stride = 0
/// fixed:    near  ⌊j / stride⌋ = ⌊p / stride⌋   far  j mod stride >= stride - summary
/// ```
///
/// After two layers (or by two heads and a layer) everything before a query has reached it.
/// The near part of `strided` is that of the authors' code; their paper has one key more.
/// The far part of `fixed` leaves the queries before the first summary without a key: that
/// head gives them 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SparsePattern {
    /// For data with a period, such as images of this width.
    Strided {
        /// The period.
        stride: usize,
    },
    /// For data without one, such as text.
    Fixed {
        /// Keys in a block.
        stride: usize,
        /// How many keys at the end of each block everyone after sees.
        summary: usize,
    },
}

impl SparsePattern {
    /// The keys close by.
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

    /// A few keys everywhere.
    ///
    /// # Panics
    /// If the stride is 0, or the summary is longer than it.
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

    /// The mask of a layer: of its index, where layers are interleaved.
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
        require(stride > 0, "sparse attention", ErrorKind::Value, || {
            "a stride must be at least 1, got 0".into()
        })
        .or_panic();
        require(summary <= stride, "sparse attention", ErrorKind::Value, || {
            format!("a summary of {summary} in blocks of {stride}")
        })
        .or_panic();
    }
}

/// How the two patterns come together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SparseMerge {
    /// Even heads see near, odd ones far.
    #[default]
    Heads,
    /// Even layers see near, odd ones far.
    Layers,
    /// Every head sees both.
    Union,
}

/// Causal self-attention to about `√L` keys for each query instead of `L`.
///
/// `[L, width]` or `[B, L, width]` to the same; with a stride near `√L` the work is
/// `O(L √L width)` where whole tiles are left out, which the near pattern does always and the
/// far one if its columns fill tiles. With a stride of at least `L`, near is causal attention
/// (and so is the union); with a stride of 1, far is.
///
/// Parameters: those of [`Projections`]. Child, Gray, Radford, Sutskever 2019 (arXiv
/// 1904.10509).
#[derive(Clone, Debug)]
pub struct SparseTransformerAttention<T: Real = f32> {
    /// Around it.
    pub projections: Projections<T>,
    /// Who sees whom.
    pub mask: Mask,
}

impl<T: Real> SparseTransformerAttention<T> {
    /// For the layer with this index.
    ///
    /// # Panics
    /// If the pattern has a stride of 0 or a summary above it.
    #[track_caller]
    pub fn new(
        projections: Projections<T>,
        pattern: SparsePattern,
        merge: SparseMerge,
        layer: usize,
    ) -> Self {
        let mask = pattern.mask(merge, projections.sizes().heads, layer);
        SparseTransformerAttention { projections, mask }
    }

    /// Attends; `spec` may restrict it further.
    ///
    /// # Panics
    /// If shapes do not fit.
    #[track_caller]
    pub fn forward(&self, x: &Var<T>, spec: impl Into<Spec<T>>, pass: &mut Pass) -> Var<T> {
        let spec = spec.into().mask(self.mask.clone());
        self.projections.attend(x, spec, &mut Past::none(), pass)
    }
}

impl<T: Real> Module<T> for SparseTransformerAttention<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        self.projections.visit(v);
    }
}
