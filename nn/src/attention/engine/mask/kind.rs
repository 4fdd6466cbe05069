//! The kinds of masks, and their combinations.

use retrograd_autograd::observe::saved;
use retrograd_tensor::Tensor;
use retrograd_tensor::kernels::attention::At;
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
    /// `p - left <= j <= p + right`: keys on each side, not counting the position of the query; `None` is
    /// all of a side.
    Window {
        /// Keys before the query.
        left: Option<usize>,
        /// Keys after the query.
        right: Option<usize>,
    },
    /// `(p - j)` is a multiple of the step.
    Dilated(usize),
    /// `j < n`: the first keys.
    First(usize),
    /// Queries at these positions attend to every key, and every query attends to keys at these
    /// positions (the global tokens of Longformer).
    Global(Arc<[usize]>),
    /// `j < n` or `j <= p`, with an `n` per sequence: full attention to a prefix, then causal.
    Prefix(Arc<[usize]>),
    /// `j < n` with an `n` per sequence: padded keys are masked.
    Lengths(Arc<[usize]>),
    /// Queries at these positions attend to every key, the others to none.
    Queries(Arc<[usize]>),
    /// `j mod period >= period - count`: the last keys of every block.
    LastOfEach {
        /// The number of keys of a block.
        count: usize,
        /// The length of a block.
        period: usize,
    },
    /// A mask for each query head.
    ByHead(Arc<[Kind]>),
    /// Query and key belong to the same document, by ids `[B, L]` of positions; for packed
    /// sequences.
    Documents(Tensor<i64>),
    /// `⌊p / n⌋ = ⌊j / n⌋`: attention within chunks.
    Chunks(usize),
    /// Block-sparse attention, by a layout `[1 or H, nq, nk]`.
    Blocks {
        /// Queries and keys in a block.
        size: usize,
        /// True where a block of queries attends to a block of keys.
        layout: Tensor<bool>,
    },
    /// A tensor that broadcasts to `[B, H, Lq, Lk]`, by index, not by position.
    Dense {
        /// True where a pair attends.
        keep: Tensor<bool>,
        /// The position of query 0; set when the mask is resolved for a call.
        offset: isize,
    },
    /// A function of sequence, head, query position and key position, with a name for printing.
    Function(&'static str, Arc<dyn Fn(At) -> bool + Send + Sync>),
    /// A mask where the position of a query is moved by the shift of its sequence, or by one shift for all.
    Shifted(Arc<Kind>, Arc<[isize]>),
    /// Pairs of both masks.
    And(Arc<Kind>, Arc<Kind>),
    /// Pairs of either mask.
    Or(Arc<Kind>, Arc<Kind>),
    /// All other pairs.
    Not(Arc<Kind>),
}

impl Kind {
    /// The mask where the queries of each sequence are moved.
    pub(super) fn shifted(self, shifts: &Arc<[isize]>) -> Kind {
        let part = |kind: &Kind| kind.clone().shifted(shifts);
        match self {
            // These do not depend on the position of the query.
            Kind::Full
            | Kind::First(_)
            | Kind::Lengths(_)
            | Kind::LastOfEach { .. }
            | Kind::Dense { .. } => self,
            Kind::And(a, b) => part(&a) & part(&b),
            Kind::Or(a, b) => part(&a) | part(&b),
            Kind::Not(a) => !part(&a),
            Kind::ByHead(masks) => Kind::ByHead(masks.iter().map(part).collect()),
            _ => Kind::Shifted(Arc::new(self), shifts.clone()),
        }
    }

    /// The mask, whose tensors an operation saves.
    pub(super) fn saved(self) -> Kind {
        let part = |kind: &Kind| Arc::new(kind.clone().saved());
        match self {
            Kind::Documents(ids) => Kind::Documents(saved("documents", ids)),
            Kind::Blocks { size, layout } => Kind::Blocks { size, layout: saved("layout", layout) },
            Kind::Dense { keep, offset } => Kind::Dense { keep: saved("keep", keep), offset },
            Kind::ByHead(masks) => {
                Kind::ByHead(masks.iter().map(|mask| mask.clone().saved()).collect())
            }
            Kind::Shifted(a, shifts) => Kind::Shifted(part(&a), shifts),
            Kind::And(a, b) => Kind::And(part(&a), part(&b)),
            Kind::Or(a, b) => Kind::Or(part(&a), part(&b)),
            Kind::Not(a) => Kind::Not(part(&a)),
            other => other,
        }
    }

    /// Whether a part of the mask is causal.
    pub(super) fn is_causal(&self) -> bool {
        match self {
            Kind::Causal | Kind::Prefix(_) => true,
            Kind::ByHead(masks) => masks.iter().any(Kind::is_causal),
            Kind::And(a, b) | Kind::Or(a, b) => a.is_causal() || b.is_causal(),
            Kind::Not(a) | Kind::Shifted(a, _) => a.is_causal(),
            _ => false,
        }
    }
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
                let all_or = |n: &Option<usize>| n.map_or("all".into(), |n| n.to_string());
                write!(f, "{} keys before the query to {} after", all_or(left), all_or(right))
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
            Kind::Shifted(mask, _) => mask.fmt(f),
            Kind::And(a, b) => write!(f, "({a:?} and {b:?})"),
            Kind::Or(a, b) => write!(f, "({a:?} or {b:?})"),
            Kind::Not(a) => write!(f, "not ({a:?})"),
        }
    }
}
