//! Masks as rules: which query may see which key.
//!
//! A mask is never a bare boolean: half of the world reads `true` as "keep" and the other half
//! as "drop". [`Mask::keep`] and [`Mask::drop`] say which.

mod fitted;
mod rule;

pub(crate) use fitted::{Held, Sizes};

use retrograd_tensor::Tensor;
use retrograd_tensor::kernels::attention::At;
use std::fmt;
use std::ops::{BitAnd, BitOr, Not};
use std::sync::Arc;

/// Where queries stand among the keys, if there are not as many of both.
///
/// The position of query `i` is `i + offset`; masks and position biases speak of positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// Query 0 stands at key 0: offset 0.
    TopLeft,
    /// The last query stands at the last key: offset `Lk - Lq`. What a cache needs.
    #[default]
    BottomRight,
    /// Query 0 stands at this key.
    Offset(isize),
}

impl Align {
    /// The position of query 0.
    pub fn offset(self, lq: usize, lk: usize) -> isize {
        match self {
            Align::TopLeft => 0,
            Align::BottomRight => lk as isize - lq as isize,
            Align::Offset(n) => n,
        }
    }
}

/// A rule that says which pairs of a query and a key attend, composed with `&`, `|` and `!`.
///
/// With `p` the position of the query ([`Align`]) and `j` that of the key:
///
/// ```
/// use retrograd_nn::attention::Mask;
/// let local = Mask::causal() & Mask::window(3, 0);      // the last four tokens
/// let with_sinks = Mask::causal() & (Mask::window(3, 0) | Mask::first(2));
/// let odd = Mask::rule("odd keys", |at| at.key % 2 == 1);
/// println!("{:?}", with_sinks & !odd);
/// ```
#[derive(Clone)]
pub enum Mask {
    /// Every pair.
    Full,
    /// `j <= p`
    Causal,
    /// `p - left <= j <= p + right`: as many keys on each side, the query's own not counted.
    /// (A "sliding window of w tokens" is often `left = w - 1`.)
    Window {
        /// Keys before the query.
        left: usize,
        /// Keys after the query.
        right: usize,
    },
    /// `(p - j)` is a multiple of the step.
    Dilated(usize),
    /// `j < n`: the first keys, for everyone.
    First(usize),
    /// Queries at these positions see everything, and everything sees keys at these positions
    /// (Longformer's global tokens).
    Global(Arc<[usize]>),
    /// `j < n` with an `n` per sequence, and `j <= p` beyond: a prefix that is seen whole.
    Prefix(Arc<[usize]>),
    /// `j < n` with an `n` per sequence: padded keys are not seen.
    Lengths(Arc<[usize]>),
    /// Queries at these positions see every key, the others none.
    Queries(Arc<[usize]>),
    /// `j mod period >= period - count`: the last keys of every block.
    LastOfEach {
        /// How many keys of a block.
        count: usize,
        /// Keys in a block.
        period: usize,
    },
    /// A mask for each query head.
    ByHead(Arc<[Mask]>),
    /// Query and key belong to one document. Ids `[B, L]` by position; sequences packed one after
    /// the other.
    Documents(Tensor<i64>),
    /// `⌊p / n⌋ = ⌊j / n⌋`: chunks that do not see one another.
    Chunks(usize),
    /// Pairs of blocks that see one another, by `[nq, nk]` or `[H, nq, nk]`.
    Blocks {
        /// Queries and keys in a block.
        size: usize,
        /// True where a block of queries sees a block of keys.
        layout: Tensor<bool>,
    },
    /// True where a pair attends; broadcast to `[B, H, Lq, Lk]`. By index, not by position.
    Dense {
        /// True where a pair attends.
        keep: Tensor<bool>,
        /// The offset it was made for is known only when it is used.
        offset: isize,
    },
    /// A rule of the user's, with a name for printing.
    Rule(&'static str, Arc<dyn Fn(At) -> bool + Send + Sync>),
    /// Both.
    And(Arc<Mask>, Arc<Mask>),
    /// Either.
    Or(Arc<Mask>, Arc<Mask>),
    /// The opposite.
    Not(Arc<Mask>),
}

/// Makers.
impl Mask {
    /// Keys up to the query.
    pub fn causal() -> Mask {
        Mask::Causal
    }

    /// `left` keys before the query, its own, and `right` after it.
    pub fn window(left: usize, right: usize) -> Mask {
        Mask::Window { left, right }
    }

    /// Every `step`-th key, counted from the query.
    ///
    /// # Panics
    /// If `step` is 0.
    #[track_caller]
    pub fn dilated(step: usize) -> Mask {
        assert!(step > 0, "mask: a dilation must be at least 1, got 0");
        Mask::Dilated(step)
    }

    /// The first `n` keys.
    pub fn first(n: usize) -> Mask {
        Mask::First(n)
    }

    /// Tokens that see and are seen by all.
    pub fn global(positions: &[usize]) -> Mask {
        Mask::Global(positions.into())
    }

    /// Queries at these positions see every key, the others none.
    pub fn queries(positions: &[usize]) -> Mask {
        Mask::Queries(positions.into())
    }

    /// The last `count` keys of every block of `period`.
    ///
    /// # Panics
    /// If `period` is 0, or below `count`.
    #[track_caller]
    pub fn last_of_each(count: usize, period: usize) -> Mask {
        assert!(
            period > 0 && count <= period,
            "mask: the last {count} keys of every block of {period}"
        );
        Mask::LastOfEach { count, period }
    }

    /// A mask for each query head.
    pub fn by_head(masks: Vec<Mask>) -> Mask {
        Mask::ByHead(masks.into())
    }

    /// A prefix per sequence that is seen whole; beyond it, causal.
    pub fn prefix(lengths: &[usize]) -> Mask {
        Mask::Prefix(lengths.into())
    }

    /// Keys below the length of their sequence.
    pub fn lengths(lengths: &[usize]) -> Mask {
        Mask::Lengths(lengths.into())
    }

    /// Documents by id per position, `[B, L]`, as far as queries and keys reach.
    ///
    /// # Panics
    /// If the ids have another rank than 2.
    #[track_caller]
    pub fn documents(ids: &Tensor<i64>) -> Mask {
        assert!(
            ids.rank() == 2,
            "mask: document ids must be [batch, length], got {:?}",
            ids.shape()
        );
        Mask::Documents(ids.contiguous())
    }

    /// Chunks of `n` positions that do not see one another.
    ///
    /// # Panics
    /// If `n` is 0.
    #[track_caller]
    pub fn chunks(n: usize) -> Mask {
        assert!(n > 0, "mask: chunks must hold at least 1 position, got 0");
        Mask::Chunks(n)
    }

    /// Blocks of `size` positions that see one another where `layout` is true; it must reach as
    /// far as queries and keys do.
    ///
    /// # Panics
    /// If `size` is 0 or the layout is not `[nq, nk]` or `[H, nq, nk]`.
    #[track_caller]
    pub fn blocks(size: usize, layout: &Tensor<bool>) -> Mask {
        assert!(size > 0, "mask: blocks must hold at least 1 position, got 0");
        let layout = match layout.rank() {
            2 => layout.unsqueeze(0),
            3 => layout.clone(),
            _ => panic!("mask: a layout must be [nq, nk] or [H, nq, nk], got {:?}", layout.shape()),
        };
        Mask::Blocks { size, layout: layout.contiguous() }
    }

    /// By a tensor that is **true where a pair attends** (as in `scaled_dot_product_attention`),
    /// broadcast to `[B, H, Lq, Lk]`.
    pub fn keep(keep: &Tensor<bool>) -> Mask {
        let mut keep = keep.clone();
        while keep.rank() < 4 {
            keep = keep.unsqueeze(0);
        }
        Mask::Dense { keep, offset: 0 }
    }

    /// By a tensor that is **true where a pair does not attend** (as in
    /// `nn.MultiheadAttention`), broadcast to `[B, H, Lq, Lk]`.
    pub fn drop(drop: &Tensor<bool>) -> Mask {
        Mask::keep(&!drop)
    }

    /// By a function of sequence, head, query position and key position.
    pub fn rule(name: &'static str, f: impl Fn(At) -> bool + Send + Sync + 'static) -> Mask {
        Mask::Rule(name, Arc::new(f))
    }
}

impl Mask {
    /// As a tensor, true where a pair attends, `[B or 1, H or 1, Lq, Lk]`, for these sizes.
    ///
    /// ```
    /// use retrograd_nn::attention::{Align, Mask};
    /// let keep = Mask::causal().tensor([1, 1, 3, 3], Align::TopLeft);
    /// assert_eq!(keep.to_vec(), [true, false, false, true, true, false, true, true, true]);
    /// ```
    ///
    /// # Panics
    /// If the mask does not fit the sizes.
    #[track_caller]
    pub fn tensor(&self, [batch, heads, lq, lk]: [usize; 4], align: Align) -> Tensor<bool> {
        let sizes = Sizes { batch, heads, lq, lk };
        let offset = align.offset(lq, lk);
        match self.fitted(sizes, None, offset) {
            Ok(mask) => mask.dense(sizes, offset).unwrap_or_else(|| Tensor::ones([1, 1, lq, lk])),
            Err(why) => panic!("mask: {why}"),
        }
    }
}

impl BitAnd for Mask {
    type Output = Mask;
    fn bitand(self, other: Mask) -> Mask {
        match (self, other) {
            (Mask::Full, other) | (other, Mask::Full) => other,
            (a, b) => Mask::And(Arc::new(a), Arc::new(b)),
        }
    }
}

impl BitOr for Mask {
    type Output = Mask;
    fn bitor(self, other: Mask) -> Mask {
        Mask::Or(Arc::new(self), Arc::new(other))
    }
}

impl Not for Mask {
    type Output = Mask;
    fn not(self) -> Mask {
        Mask::Not(Arc::new(self))
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mask::Full => f.write_str("every key"),
            Mask::Causal => f.write_str("keys up to the query"),
            Mask::Window { left, right } => {
                write!(f, "{left} keys before the query to {right} after")
            }
            Mask::Dilated(step) => write!(f, "keys a multiple of {step} away"),
            Mask::First(n) => write!(f, "the first {n} keys"),
            Mask::Global(set) => write!(f, "global tokens {set:?}"),
            Mask::Queries(set) => write!(f, "queries {set:?}"),
            Mask::LastOfEach { count, period } => {
                write!(f, "the last {count} keys of every {period}")
            }
            Mask::ByHead(masks) => {
                f.write_str("by head: ")?;
                f.debug_list().entries(masks.iter()).finish()
            }
            Mask::Prefix(n) => write!(f, "prefixes {n:?} whole, then causal"),
            Mask::Lengths(n) => write!(f, "keys below {n:?}"),
            Mask::Documents(ids) => write!(f, "documents by ids {:?}", ids.shape()),
            Mask::Chunks(n) => write!(f, "chunks of {n}"),
            Mask::Blocks { size, layout } => {
                write!(f, "blocks of {size} by layout {:?}", layout.shape())
            }
            Mask::Dense { keep, .. } => write!(f, "a dense mask {:?}", keep.shape()),
            Mask::Rule(name, _) => write!(f, "rule \"{name}\""),
            Mask::And(a, b) => write!(f, "({a:?} and {b:?})"),
            Mask::Or(a, b) => write!(f, "({a:?} or {b:?})"),
            Mask::Not(a) => write!(f, "not ({a:?})"),
        }
    }
}
