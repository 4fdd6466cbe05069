//! Masks: which query attends to which key.
//!
//! A mask is never a bare boolean: some libraries read `true` as "attend" and others as "do not
//! attend". [`Mask::keep`] and [`Mask::drop`] name the two, and `keep_pairs`, `keep_keys` the axes.

mod align;
mod evaluate;
mod kind;
mod resolved;

pub use align::Align;
pub(crate) use resolved::{CachedPositions, Sizes};

use kind::Kind;
use retrograd_tensor::Tensor;
use retrograd_tensor::error::{ErrorKind, OrPanic, Result, assert, require};
use retrograd_tensor::kernels::attention::{At, Class, TileMask};
use std::fmt;
use std::ops::{BitAnd, BitOr, Not, Range};
use std::sync::Arc;

/// Which pairs of a query and a key attend; composed with `&`, `|` and `!`.
///
/// ```
/// use retrograd::nn::attention::Mask;
/// let local = Mask::causal() & Mask::window(3, 0);      // the last four tokens
/// let with_sinks = Mask::causal() & (Mask::window(3, 0) | Mask::first(2));
/// let odd = Mask::from_fn("odd keys", |at| at.key % 2 == 1);
/// println!("{:?}", with_sinks & !odd);
/// ```
#[derive(Clone)]
pub struct Mask(Kind);

/// Constructors.
impl Mask {
    /// Every pair.
    pub fn full() -> Mask {
        Mask(Kind::Full)
    }

    /// Causal: keys up to the position of the query. The positions of queries follow from
    /// [`Align`], which has to be given where there are more or fewer queries than keys and no cache.
    ///
    /// ```
    /// use retrograd::nn::attention::{Align, Mask};
    /// let keep = Mask::causal().tensor([1, 1, 3, 3], Align::TopLeft);
    /// assert_eq!(keep.to_vec(), [true, false, false, true, true, false, true, true, true]);
    /// ```
    pub fn causal() -> Mask {
        Mask(Kind::Causal)
    }

    /// A sliding window: `left` keys before the position of the query, the key at its position, and
    /// `right` keys after it. A side that is `None` has no bound. The `sliding_window = w` of
    /// Hugging Face's transformers and of Mistral counts the query, too: it is `window(w - 1, 0)`.
    ///
    /// ```
    /// use retrograd::nn::attention::{Align, Mask};
    /// let keep = Mask::window(1, 0).tensor([1, 1, 3, 3], Align::TopLeft);
    /// assert_eq!(keep.to_vec(), [true, false, false, true, true, false, false, true, true]);
    /// let keep = Mask::window(None, 1).tensor([1, 1, 3, 3], Align::TopLeft);
    /// assert_eq!(keep.to_vec(), [true, true, false, true, true, true, true, true, true]);
    /// ```
    pub fn window(left: impl Into<Option<usize>>, right: impl Into<Option<usize>>) -> Mask {
        Mask(Kind::Window { left: left.into(), right: right.into() })
    }

    /// Dilated: keys whose distance from the query is a multiple of `step`.
    ///
    /// # Panics
    /// If `step` is 0.
    #[track_caller]
    pub fn dilated(step: usize) -> Mask {
        assert(step > 0, "mask", ErrorKind::Value, || {
            "a dilation must be at least 1, got 0".into()
        });
        Mask(Kind::Dilated(step))
    }

    /// The first `n` keys.
    ///
    /// ```
    /// use retrograd::nn::attention::{Align, Mask};
    /// let keep = Mask::first(1).tensor([1, 1, 2, 3], Align::TopLeft);
    /// assert_eq!(keep.to_vec(), [true, false, false, true, false, false]);
    /// ```
    pub fn first(n: usize) -> Mask {
        Mask(Kind::First(n))
    }

    /// Global tokens: queries at these positions attend to every key, and every query attends to
    /// keys at these positions.
    ///
    /// ```
    /// use retrograd::nn::attention::{Align, Mask};
    /// let keep = Mask::global(&[1]).tensor([1, 1, 2, 3], Align::TopLeft);
    /// assert_eq!(keep.to_vec(), [false, true, false, true, true, true]);
    /// ```
    pub fn global(positions: &[usize]) -> Mask {
        Mask(Kind::Global(positions.into()))
    }

    /// Queries at these positions attend to every key, the others to none.
    pub fn queries(positions: &[usize]) -> Mask {
        Mask(Kind::Queries(positions.into()))
    }

    /// The last `count` keys of every block of `period`.
    ///
    /// # Panics
    /// If `period` is 0, or below `count`.
    ///
    /// ```
    /// use retrograd::nn::attention::{Align, Mask};
    /// let keep = Mask::last_of_each(1, 2).tensor([1, 1, 1, 4], Align::TopLeft);
    /// assert_eq!(keep.to_vec(), [false, true, false, true]);
    /// ```
    #[track_caller]
    pub fn last_of_each(count: usize, period: usize) -> Mask {
        assert(period > 0 && count <= period, "mask", ErrorKind::Value, || {
            format!("the last {count} keys of every block of {period}")
        });
        Mask(Kind::LastOfEach { count, period })
    }

    /// A mask for each query head.
    ///
    /// ```
    /// use retrograd::nn::attention::{Align, Mask};
    /// let mask = Mask::by_head(vec![Mask::full(), Mask::first(1)]);
    /// let keep = mask.tensor([1, 2, 1, 2], Align::TopLeft);
    /// assert_eq!(keep.to_vec(), [true, true, true, false]);
    /// ```
    pub fn by_head(masks: Vec<Mask>) -> Mask {
        Mask(Kind::ByHead(masks.into_iter().map(|mask| mask.0).collect()))
    }

    /// Prefix-LM: every query attends to the prefix of its sequence; beyond it, the mask is causal.
    ///
    /// ```
    /// use retrograd::nn::attention::{Align, Mask};
    /// let keep = Mask::prefix(&[2]).tensor([1, 1, 3, 3], Align::TopLeft);
    /// assert_eq!(keep.to_vec(), [true, true, false, true, true, false, true, true, true]);
    /// ```
    pub fn prefix(lengths: &[usize]) -> Mask {
        Mask(Kind::Prefix(lengths.into()))
    }

    /// Padding: keys below the length of their sequence, with one length per sequence or one for
    /// all.
    ///
    /// ```
    /// use retrograd::nn::attention::{Align, Mask};
    /// let keep = Mask::lengths(&[1, 3]).tensor([2, 1, 1, 3], Align::TopLeft);
    /// assert_eq!(keep.to_vec(), [true, false, false, true, true, true]);
    /// ```
    pub fn lengths(lengths: &[usize]) -> Mask {
        Mask(Kind::Lengths(lengths.into()))
    }

    /// Packed documents: keys of the same document as the query, by the ids `[B, L]` of all
    /// positions of queries and keys.
    ///
    /// # Panics
    /// If the ids have another rank than 2.
    ///
    /// ```
    /// use retrograd::nn::attention::{Align, Mask};
    /// use retrograd::prelude::*;
    /// let mask = Mask::documents(&Tensor::from([[0i64, 0, 1]]));
    /// let keep = mask.tensor([1, 1, 3, 3], Align::TopLeft);
    /// assert_eq!(keep.select(-2, 2).to_vec(), [false, false, true]);
    /// ```
    #[track_caller]
    pub fn documents(ids: &Tensor<i64>) -> Mask {
        assert(ids.rank() == 2, "mask", ErrorKind::Rank, || {
            format!("document ids must be [batch, length], got {:?}", ids.shape())
        });
        Mask(Kind::Documents(ids.contiguous()))
    }

    /// Attention within chunks of `n` positions.
    ///
    /// # Panics
    /// If `n` is 0.
    ///
    /// ```
    /// use retrograd::nn::attention::{Align, Mask};
    /// let keep = Mask::chunks(2).tensor([1, 1, 3, 4], Align::TopLeft);
    /// assert_eq!(keep.to_vec(), [true, true, false, false, true, true, false, false, false, false, true, true]);
    /// ```
    #[track_caller]
    pub fn chunks(n: usize) -> Mask {
        assert(n > 0, "mask", ErrorKind::Value, || {
            "chunks must hold at least 1 position, got 0".into()
        });
        Mask(Kind::Chunks(n))
    }

    /// Block-sparse: a block of `size` queries attends to a block of keys where `layout` is true.
    /// The layout must cover all positions of queries and keys.
    ///
    /// # Panics
    /// If `size` is 0 or the layout is not `[nq, nk]` or `[H, nq, nk]`.
    ///
    /// ```
    /// use retrograd::nn::attention::{Align, Mask};
    /// use retrograd::prelude::*;
    /// let layout = Tensor::from([[true, false], [true, true]]);
    /// let keep = Mask::blocks(2, &layout).tensor([1, 1, 4, 4], Align::TopLeft);
    /// assert_eq!(keep.select(-2, 1).to_vec(), [true, true, false, false]);
    /// ```
    #[track_caller]
    pub fn blocks(size: usize, layout: &Tensor<bool>) -> Mask {
        assert(size > 0, "mask", ErrorKind::Value, || {
            "blocks must hold at least 1 position, got 0".into()
        });
        assert((2..=3).contains(&layout.rank()), "mask", ErrorKind::Rank, || {
            format!("a layout must be [nq, nk] or [H, nq, nk], got {:?}", layout.shape())
        });
        let layout = if layout.rank() == 2 { layout.unsqueeze(0) } else { layout.clone() };
        Mask(Kind::Blocks { size, layout: layout.contiguous() })
    }

    /// By a tensor that is **true where a pair attends** (as in `scaled_dot_product_attention`), with
    /// four axes `[B, H, Lq, Lk]`, each of this size or 1.
    ///
    /// A matrix has constructors of its own, [`Mask::keep_pairs`] for `[Lq, Lk]` and
    /// [`Mask::keep_keys`] for `[B, Lk]`: if `B = Lq`, its shape would not tell them apart.
    ///
    /// # Panics
    /// If it does not have four axes.
    ///
    /// ```
    /// use retrograd::nn::attention::{Align, Mask};
    /// use retrograd::prelude::*;
    /// let keep = Tensor::from_fn([2, 1, 1, 2], |i| i[0] == i[3]);
    /// let mask = Mask::keep(&keep).tensor([2, 1, 1, 2], Align::TopLeft);
    /// assert_eq!(mask.to_vec(), [true, false, false, true]);
    /// ```
    #[track_caller]
    pub fn keep(keep: &Tensor<bool>) -> Mask {
        require(keep.rank() == 4, "mask", ErrorKind::Rank, || {
            format!("a mask must be [batch, heads, queries, keys], got {:?}", keep.shape())
        })
        .map_err(|error| {
            error.hint(match keep.rank() {
                2 => {
                    "keep_pairs or drop_pairs if it is [queries, keys], keep_keys or drop_keys if \
                      it is padding, [batch, keys]"
                }
                3 => "unsqueeze(0) if its first axis is heads, unsqueeze(1) if it is the batch",
                _ => "axes on which the mask is the same have size 1",
            })
        })
        .or_panic();
        Mask(Kind::Dense { keep: keep.clone(), offset: 0 })
    }

    /// By a tensor that is **true where a pair does not attend** (as in
    /// `nn.MultiheadAttention`), with four axes `[B, H, Lq, Lk]`, each of this size or 1; see
    /// [`Mask::keep`].
    ///
    /// # Panics
    /// If it does not have four axes.
    ///
    /// ```
    /// use retrograd::nn::attention::{Align, Mask};
    /// use retrograd::prelude::*;
    /// let drop = Tensor::from_fn([1, 1, 1, 2], |i| i[3] == 0); // PyTorch's nn.MultiheadAttention
    /// assert_eq!(Mask::drop(&drop).tensor([1, 1, 1, 2], Align::TopLeft).to_vec(), [false, true]);
    /// ```
    #[track_caller]
    pub fn drop(drop: &Tensor<bool>) -> Mask {
        Mask::keep(&!drop)
    }

    /// By a matrix `[Lq, Lk]` that is **true where a pair attends**, the same for all sequences and
    /// heads.
    ///
    /// # Panics
    /// If it is not a matrix.
    #[track_caller]
    pub fn keep_pairs(keep: &Tensor<bool>) -> Mask {
        assert(keep.rank() == 2, "mask", ErrorKind::Rank, || {
            format!("a mask of pairs must be [queries, keys], got {:?}", keep.shape())
        });
        Mask::keep(&keep.unsqueeze(0).unsqueeze(0))
    }

    /// By a matrix `[Lq, Lk]` that is **true where a pair does not attend**: a boolean `attn_mask` of
    /// `nn.MultiheadAttention`.
    ///
    /// # Panics
    /// If it is not a matrix.
    #[track_caller]
    pub fn drop_pairs(drop: &Tensor<bool>) -> Mask {
        Mask::keep_pairs(&!drop)
    }

    /// Padding, by `[B, Lk]` that is **true where a key of a sequence is attended to**, the same for
    /// all heads and queries: an `attention_mask` of `transformers`. [`Mask::lengths`] is padding at
    /// the end by its length, for which tiles of padding are skipped.
    ///
    /// # Panics
    /// If it is not a matrix.
    ///
    /// ```
    /// use retrograd::nn::attention::{Align, Mask};
    /// use retrograd::prelude::*;
    /// // Two sequences of two queries; the first key of the first is padding.
    /// let keep = Tensor::from([[false, true], [true, true]]);
    /// let mask = Mask::keep_keys(&keep).tensor([2, 1, 2, 2], Align::TopLeft);
    /// assert_eq!(mask.to_vec(), [false, true, false, true, true, true, true, true]);
    /// ```
    #[track_caller]
    pub fn keep_keys(keep: &Tensor<bool>) -> Mask {
        assert(keep.rank() == 2, "mask", ErrorKind::Rank, || {
            format!("a mask of keys must be [batch, keys], got {:?}", keep.shape())
        });
        Mask::keep(&keep.unsqueeze(1).unsqueeze(1))
    }

    /// Padding, by `[B, Lk]` that is **true where a key of a sequence is padding**: the
    /// `key_padding_mask` of `nn.MultiheadAttention`.
    ///
    /// # Panics
    /// If it is not a matrix.
    #[doc(alias = "key_padding_mask")]
    #[track_caller]
    pub fn drop_keys(drop: &Tensor<bool>) -> Mask {
        Mask::keep_keys(&!drop)
    }

    /// A mask that is a function of sequence, head, query position and key position: true where
    /// a pair attends. `name` is for printing.
    ///
    /// ```
    /// use retrograd::nn::attention::{Align, Mask};
    /// let even = Mask::from_fn("even", |at| at.key % 2 == 0);
    /// assert_eq!(even.tensor([1, 1, 1, 3], Align::TopLeft).to_vec(), [true, false, true]);
    /// ```
    pub fn from_fn(name: &'static str, f: impl Fn(At) -> bool + Send + Sync + 'static) -> Mask {
        Mask(Kind::Function(name, Arc::new(f)))
    }
}

impl Mask {
    /// As a tensor, true where a pair attends, `[B or 1, H or 1, Lq, Lk]`, for these sizes.
    ///
    /// # Panics
    /// If the mask does not fit the sizes.
    #[track_caller]
    pub fn tensor(&self, [batch, heads, lq, lk]: [usize; 4], align: Align) -> Tensor<bool> {
        let sizes = Sizes { batch, heads, lq, lk };
        let offset = align.offset(lq, lk);
        let mask = self.resolved(sizes, None, offset).or_panic();
        mask.dense(sizes, offset).unwrap_or_else(|| Tensor::ones([1, 1, lq, lk]))
    }
}

impl Mask {
    /// The mask checked against the sizes of a call, or the reason why it does not fit. Keys of
    /// the result are counted by their index among those that a cache holds.
    pub(crate) fn resolved(
        &self,
        sizes: Sizes,
        cached: Option<CachedPositions>,
        offset: isize,
    ) -> Result<Mask> {
        self.0.resolved(sizes, cached, offset).map(Mask)
    }

    /// The mask where the queries of each sequence are moved by its shift, or all by one.
    pub(crate) fn shifted(self, shifts: &Arc<[isize]>) -> Mask {
        Mask(self.0.shifted(shifts))
    }

    /// Whether a part of the mask is causal.
    pub(crate) fn is_causal(&self) -> bool {
        self.0.is_causal()
    }

    /// Whether every pair attends, whatever the sizes.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self.0, Kind::Full)
    }

    /// Whether the mask depends on the sequence, and on the head.
    pub(crate) fn depends(&self) -> (bool, bool) {
        self.0.depends()
    }

    /// The numbers of sequences and heads that the mask is made for; 1 where it is for any number.
    pub(crate) fn counts(&self) -> (usize, usize) {
        self.0.counts()
    }

    /// The mask, whose tensors an operation saves.
    pub(crate) fn saved(self) -> Mask {
        Mask(self.0.saved())
    }

    /// A resolved mask as a tensor `[B or 1, H or 1, Lq, Lk]`, true where a pair attends; `None`
    /// if every pair does.
    pub(crate) fn dense(&self, sizes: Sizes, offset: isize) -> Option<Tensor<bool>> {
        self.0.dense(sizes, offset)
    }
}

/// Of a resolved mask.
impl TileMask for Mask {
    fn keep(&self, at: At) -> bool {
        self.0.keep(at)
    }

    fn row(&self, at: At, keys: usize) -> u64 {
        self.0.row(at, keys)
    }

    fn class(&self, batch: usize, head: usize, queries: Range<isize>, keys: Range<usize>) -> Class {
        self.0.class(batch, head, queries, keys)
    }
}

impl BitAnd for Mask {
    type Output = Mask;
    fn bitand(self, other: Mask) -> Mask {
        Mask(self.0 & other.0)
    }
}

impl BitOr for Mask {
    type Output = Mask;
    fn bitor(self, other: Mask) -> Mask {
        Mask(self.0 | other.0)
    }
}

impl Not for Mask {
    type Output = Mask;
    fn not(self) -> Mask {
        Mask(!self.0)
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
