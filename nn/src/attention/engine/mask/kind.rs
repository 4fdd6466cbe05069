//! The kinds of masks, and their combinations.

use retrograd_tensor::Tensor;
use retrograd_tensor::drive::attention::At;
use std::fmt;
use std::ops::{BitAnd, BitOr, Not};
use std::sync::Arc;

/// Which pairs of a query at position `p` and a key at position `j` attend.
#[derive(Clone)]
pub(super) enum Kind {
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
    ByHead(Arc<[Kind]>),
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
        /// The position of query 0; set when the mask is resolved for a call.
        offset: isize,
    },
    /// A function of sequence, head, query position and key position, with a name for printing.
    Function(&'static str, Arc<dyn Fn(At) -> bool + Send + Sync>),
    /// Both.
    And(Arc<Kind>, Arc<Kind>),
    /// Either.
    Or(Arc<Kind>, Arc<Kind>),
    /// The opposite.
    Not(Arc<Kind>),
}

impl BitAnd for Kind {
    type Output = Kind;
    fn bitand(self, other: Kind) -> Kind {
        match (self, other) {
            (Kind::Full, other) | (other, Kind::Full) => other,
            (a, b) => Kind::And(Arc::new(a), Arc::new(b)),
        }
    }
}

impl BitOr for Kind {
    type Output = Kind;
    fn bitor(self, other: Kind) -> Kind {
        Kind::Or(Arc::new(self), Arc::new(other))
    }
}

impl Not for Kind {
    type Output = Kind;
    fn not(self) -> Kind {
        Kind::Not(Arc::new(self))
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Full => f.write_str("every key"),
            Kind::Causal => f.write_str("keys up to the query"),
            Kind::Window { left, right } => {
                write!(f, "{left} keys before the query to {right} after")
            }
            Kind::Dilated(step) => write!(f, "keys a multiple of {step} away"),
            Kind::First(n) => write!(f, "the first {n} keys"),
            Kind::Global(set) => write!(f, "global tokens {set:?}"),
            Kind::Queries(set) => write!(f, "queries {set:?}"),
            Kind::LastOfEach { count, period } => {
                write!(f, "the last {count} keys of every {period}")
            }
            Kind::ByHead(masks) => {
                f.write_str("by head: ")?;
                f.debug_list().entries(masks.iter()).finish()
            }
            Kind::Prefix(n) => write!(f, "prefixes {n:?} whole, then causal"),
            Kind::Lengths(n) => write!(f, "keys below {n:?}"),
            Kind::Documents(ids) => write!(f, "documents by ids {:?}", ids.shape()),
            Kind::Chunks(n) => write!(f, "chunks of {n}"),
            Kind::Blocks { size, layout } => {
                write!(f, "blocks of {size} by layout {:?}", layout.shape())
            }
            Kind::Dense { keep, .. } => write!(f, "a dense mask {:?}", keep.shape()),
            Kind::Function(name, _) => write!(f, "function \"{name}\""),
            Kind::And(a, b) => write!(f, "({a:?} and {b:?})"),
            Kind::Or(a, b) => write!(f, "({a:?} or {b:?})"),
            Kind::Not(a) => write!(f, "not ({a:?})"),
        }
    }
}
