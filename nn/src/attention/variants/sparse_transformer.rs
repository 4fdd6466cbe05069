//! Sparse Transformer: two sparse patterns that cover all earlier positions in two steps.

use crate::attention::engine::{Mask, Spec};
use crate::attention::parts::incremental::{Incremental, Past};
use crate::attention::parts::projections::Projections;
use crate::module::{Call, Module, Visitor};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::error::{ErrorKind, OrPanic, require};

/// The keys of the two kinds of heads, all with `j <= p`.
///
/// ```text
/// strided:  near  p - stride < j          far  (p - j) mod stride = 0
/// fixed:    near  ⌊j / stride⌋ = ⌊p / stride⌋   far  j mod stride >= stride - summary
/// ```
///
/// Two layers (or the two kinds of heads in one layer and the next) connect a query to all earlier
/// positions. The near part of `strided` is that of the authors' code; their paper has one key
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
    /// # use retrograd_nn::attention::{Align, SparsePattern};
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
    ///
    /// ```
    /// # use retrograd_nn::attention::{Align, SparseMerge, SparsePattern};
    /// let pattern = SparsePattern::Strided { stride: 2 };
    /// let keep = pattern.mask(SparseMerge::Union, 1, 0).tensor([1, 1, 4, 4], Align::TopLeft);
    /// assert!(keep.at(&[0, 0, 3, 1]) && keep.at(&[0, 0, 3, 2]));
    /// ```
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

/// Causal self-attention to about `√L` keys for each query instead of `L`.
///
/// `[L, width]` or `[B, L, width]` to the same; with a stride near `√L` the work is `O(L √L width)`
/// where masked tiles are skipped: always for the near pattern, and for the far pattern if its
/// columns fill tiles. With a stride of at least `L`, near is causal attention (and so is the
/// union); with a stride of 1, far is.
///
/// Parameters: those of [`Projections`]. Child, Gray, Radford, Sutskever 2019 (arXiv
/// 1904.10509).
#[derive(Clone, Debug)]
pub struct SparseTransformerAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
    /// The mask.
    pub mask: Mask,
}

impl<T: Real> SparseTransformerAttention<T> {
    /// The layer with this index.
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

    /// The output for `x`; `spec` may restrict the attention further.
    ///
    /// # Panics
    /// If the shapes do not match.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_nn::Pass;
    /// # use retrograd_nn::attention::{HeadSizes, Projections, SparseMerge, SparsePattern, SparseTransformerAttention, Spec};
    /// # use retrograd_tensor::Tensor;
    /// # use retrograd_tensor::random::Rng;
    /// # let mut rng = Rng::new(1);
    /// # let projections = Projections::<f64>::new(HeadSizes::new(8, 2), &mut rng);
    /// # let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let pattern = SparsePattern::Strided { stride: 2 };
    /// let attention = SparseTransformerAttention::new(projections, pattern, SparseMerge::Heads, 0);
    /// let y = attention.forward(&x, Spec::new(), &mut Pass::eval());
    /// assert_eq!(*y.shape(), [1, 4, 8]);
    /// ```
    #[track_caller]
    pub fn forward(&self, x: &Var<T>, spec: impl Into<Spec<T>>, pass: &mut Pass) -> Var<T> {
        Call::start(self).end(self.run(x, &spec.into(), &mut Past::none(), pass))
    }
}

impl<T: Real> Incremental<T> for SparseTransformerAttention<T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T> {
        self.projections.attend(x, spec.clone().mask(self.mask.clone()), past, pass)
    }
}

impl<T: Real> Module<T> for SparseTransformerAttention<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        self.projections.visit(v);
    }
}
