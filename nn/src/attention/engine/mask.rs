//! Masks as rules: which query may see which key.
//!
//! A mask is never a bare boolean: half of the world reads `true` as "keep" and the other half
//! as "drop". [`Mask::keep`] and [`Mask::drop`] say which.

use retrograd_tensor::Tensor;
use retrograd_tensor::drive::attention::{At, Class, Rule};
use std::fmt;
use std::ops::{BitAnd, BitOr, Not, Range};
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
    /// Query and key belong to one document. Ids `[B, L]` by position, with `L >= Lk`; sequences
    /// packed one after the other.
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

    /// Documents by id per position, `[B, L]`.
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

    /// Blocks of `size` positions that see one another where `layout` is true.
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
        match self.fitted(sizes, offset) {
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

/// Sizes that a mask is checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub batch: usize,
    pub heads: usize,
    pub lq: usize,
    pub lk: usize,
}

impl Mask {
    /// The mask ready for use with these sizes, or what does not fit.
    pub(crate) fn fitted(&self, sizes: Sizes, offset: isize) -> Result<Mask, String> {
        let per_sequence = |what: &str, n: usize| match n {
            n if n == sizes.batch || n == 1 => Ok(()),
            n => Err(format!("{n} {what} for a batch of {}", sizes.batch)),
        };
        Ok(match self {
            Mask::Prefix(n) => {
                per_sequence("prefixes", n.len())?;
                self.clone()
            }
            Mask::Lengths(n) => {
                per_sequence("lengths", n.len())?;
                if let Some(long) = n.iter().find(|&&n| n > sizes.lk) {
                    return Err(format!("a length of {long} for {} keys", sizes.lk));
                }
                self.clone()
            }
            Mask::Documents(ids) => {
                per_sequence("rows of document ids", ids.shape()[0])?;
                if ids.shape()[1] < sizes.lk {
                    return Err(format!("document ids {:?} for {} keys", ids.shape(), sizes.lk));
                }
                self.clone()
            }
            Mask::Blocks { size, layout } => {
                let (heads, nk) = (layout.shape()[0], layout.shape()[2]);
                if heads != 1 && heads != sizes.heads {
                    return Err(format!("a layout for {heads} heads, of {}", sizes.heads));
                }
                if nk * size < sizes.lk {
                    return Err(format!("a layout of {nk} blocks of {size} for {} keys", sizes.lk));
                }
                self.clone()
            }
            Mask::Dense { keep, .. } => {
                let Sizes { batch, heads, lq, lk } = sizes;
                let want = [batch, heads, lq, lk];
                let fits =
                    keep.shape().iter().zip(&want).all(|(&have, &want)| have == want || have == 1);
                if keep.rank() != 4 || !fits {
                    return Err(format!(
                        "a mask of shape {:?} does not broadcast to {want:?}",
                        keep.shape()
                    ));
                }
                Mask::Dense { keep: keep.broadcast_to(want), offset }
            }
            Mask::ByHead(masks) => {
                if masks.len() != sizes.heads {
                    return Err(format!("masks for {} heads, of {}", masks.len(), sizes.heads));
                }
                let fitted: Result<_, _> = masks.iter().map(|m| m.fitted(sizes, offset)).collect();
                Mask::ByHead(fitted?)
            }
            Mask::And(a, b) => a.fitted(sizes, offset)? & b.fitted(sizes, offset)?,
            Mask::Or(a, b) => a.fitted(sizes, offset)? | b.fitted(sizes, offset)?,
            Mask::Not(a) => !a.fitted(sizes, offset)?,
            _ => self.clone(),
        })
    }

    /// Whether the answer depends on the sequence, and on the head.
    fn depends(&self) -> (bool, bool) {
        match self {
            Mask::Prefix(n) | Mask::Lengths(n) => (n.len() > 1, false),
            Mask::Documents(ids) => (ids.shape()[0] > 1, false),
            Mask::Blocks { layout, .. } => (false, layout.shape()[0] > 1),
            Mask::Dense { keep, .. } => {
                let varies =
                    |axis: usize| keep.shape()[axis] > 1 && keep.layout().strides()[axis] != 0;
                (varies(0), varies(1))
            }
            Mask::ByHead(masks) => (masks.iter().any(|m| m.depends().0), masks.len() > 1),
            Mask::Rule(..) => (true, true),
            Mask::And(a, b) | Mask::Or(a, b) => {
                let (a, b) = (a.depends(), b.depends());
                (a.0 || b.0, a.1 || b.1)
            }
            Mask::Not(a) => a.depends(),
            _ => (false, false),
        }
    }

    /// Number of sequences and heads that it is for, as far as it says.
    pub(crate) fn counts(&self) -> (usize, usize) {
        match self {
            Mask::Prefix(n) | Mask::Lengths(n) => (n.len().max(1), 1),
            Mask::Documents(ids) => (ids.shape()[0].max(1), 1),
            Mask::Blocks { layout, .. } => (1, layout.shape()[0].max(1)),
            Mask::Dense { keep, .. } => (keep.shape()[0].max(1), keep.shape()[1].max(1)),
            Mask::ByHead(masks) => {
                (masks.iter().map(|m| m.counts().0).max().unwrap_or(1), masks.len().max(1))
            }
            Mask::And(a, b) | Mask::Or(a, b) => {
                let (a, b) = (a.counts(), b.counts());
                (a.0.max(b.0), a.1.max(b.1))
            }
            Mask::Not(a) => a.counts(),
            _ => (1, 1),
        }
    }

    /// A fitted mask as a tensor `[B or 1, H or 1, Lq, Lk]`, true where a pair attends; `None`
    /// if every pair does.
    pub(crate) fn dense(&self, sizes: Sizes, offset: isize) -> Option<Tensor<bool>> {
        let queries = offset..offset + sizes.lq as isize;
        let whole = |b, h| self.class(b, h, queries.clone(), 0..sizes.lk) == Class::Full;
        let (by_batch, by_head) = self.depends();
        let (nb, nh) =
            (if by_batch { sizes.batch } else { 1 }, if by_head { sizes.heads } else { 1 });
        if (0..nb).all(|b| (0..nh).all(|h| whole(b, h))) {
            return None;
        }
        Some(Tensor::from_fn([nb, nh, sizes.lq, sizes.lk], |i| {
            self.keep(At { batch: i[0], head: i[1], query: i[2] as isize + offset, key: i[3] })
        }))
    }
}

/// An entry per sequence, or one for all.
fn entry(list: &[usize], batch: usize) -> usize {
    if list.len() == 1 { list[0] } else { list[batch] }
}

impl Rule for Mask {
    fn keep(&self, at: At) -> bool {
        let (p, j) = (at.query, at.key as isize);
        match self {
            Mask::Full => true,
            Mask::Causal => j <= p,
            Mask::Window { left, right } => p - j <= *left as isize && j - p <= *right as isize,
            Mask::Dilated(step) => (p - j).rem_euclid(*step as isize) == 0,
            Mask::First(n) => at.key < *n,
            Mask::Global(set) => set.iter().any(|&g| g == at.key || g as isize == p),
            Mask::Queries(set) => set.iter().any(|&g| g as isize == p),
            Mask::LastOfEach { count, period } => at.key % period >= period - count,
            Mask::ByHead(masks) => masks[at.head].keep(at),
            Mask::Prefix(n) => j <= p || at.key < entry(n, at.batch),
            Mask::Lengths(n) => at.key < entry(n, at.batch),
            Mask::Documents(ids) => {
                let b = if ids.shape()[0] == 1 { 0 } else { at.batch };
                let inside = 0 <= p && p < ids.shape()[1] as isize;
                inside && ids.at(&[b, p as usize]) == ids.at(&[b, at.key])
            }
            Mask::Chunks(n) => p.div_euclid(*n as isize) == j / *n as isize,
            Mask::Blocks { size, layout } => {
                let h = if layout.shape()[0] == 1 { 0 } else { at.head };
                let row = p.div_euclid(*size as isize);
                let inside = 0 <= row && row < layout.shape()[1] as isize;
                inside && layout.at(&[h, row as usize, at.key / size])
            }
            Mask::Dense { keep, offset } => {
                let i = p - offset;
                keep.at(&[at.batch, at.head, i as usize, at.key])
            }
            Mask::Rule(_, f) => f(at),
            Mask::And(a, b) => a.keep(at) && b.keep(at),
            Mask::Or(a, b) => a.keep(at) || b.keep(at),
            Mask::Not(a) => !a.keep(at),
        }
    }

    fn row(&self, at: At, keys: usize) -> u64 {
        let (p, first) = (at.query, at.key as isize);
        // Keys at positions `from..to`.
        let span = |from: isize, to: isize| {
            let below = |n: isize| match n.clamp(0, keys as isize) {
                64 => u64::MAX,
                n => (1 << n) - 1,
            };
            below(to.saturating_sub(first)) & !below(from.saturating_sub(first))
        };
        let far = isize::MAX;
        match self {
            Mask::Full => span(0, far),
            Mask::Causal => span(0, p.saturating_add(1)),
            Mask::Window { left, right } => {
                let [left, right] = [left, right].map(|&n| isize::try_from(n).unwrap_or(far));
                span(p.saturating_sub(left), p.saturating_add(right).saturating_add(1))
            }
            Mask::First(n) => span(0, *n as isize),
            Mask::Lengths(n) => span(0, entry(n, at.batch) as isize),
            Mask::Prefix(n) => span(0, (p.saturating_add(1)).max(entry(n, at.batch) as isize)),
            Mask::Chunks(n) => {
                let n = *n as isize;
                let start = p.div_euclid(n).saturating_mul(n);
                span(start, start.saturating_add(n))
            }
            Mask::ByHead(masks) => masks[at.head].row(at, keys),
            Mask::And(a, b) => a.row(at, keys) & b.row(at, keys),
            Mask::Or(a, b) => a.row(at, keys) | b.row(at, keys),
            Mask::Not(a) => !a.row(at, keys) & span(0, far),
            // The others, pair by pair.
            _ => (0..keys).map(|i| u64::from(self.keep(At { key: at.key + i, ..at })) << i).sum(),
        }
    }

    fn class(&self, batch: usize, head: usize, queries: Range<isize>, keys: Range<usize>) -> Class {
        if queries.is_empty() || keys.is_empty() {
            return Class::Empty;
        }
        // First and last query and key, as positions.
        let (p0, p1) = (queries.start, queries.end - 1);
        let (j0, j1) = (keys.start as isize, keys.end as isize - 1);
        let of = |all: bool, none: bool| match (all, none) {
            (true, _) => Class::Full,
            (_, true) => Class::Empty,
            _ => Class::Partial,
        };
        let below = |n: usize| of(j1 < n as isize, j0 >= n as isize);
        match self {
            Mask::Full => Class::Full,
            Mask::Causal => of(j1 <= p0, j0 > p1),
            Mask::Window { left, right } => {
                let (left, right) = (*left as isize, *right as isize);
                of(p1 - j0 <= left && j1 - p0 <= right, p0 - j1 > left || j0 - p1 > right)
            }
            Mask::Dilated(step) => of(*step == 1, false),
            Mask::First(n) => below(*n),
            Mask::Lengths(n) => below(entry(n, batch)),
            Mask::Prefix(n) => match (
                Mask::Causal.class(batch, head, queries, keys.clone()),
                below(entry(n, batch)),
            ) {
                (Class::Full, _) | (_, Class::Full) => Class::Full,
                (Class::Empty, Class::Empty) => Class::Empty,
                _ => Class::Partial,
            },
            Mask::Global(set) => {
                let hit = |&g: &usize| keys.contains(&g) || queries.contains(&(g as isize));
                of(false, !set.iter().any(hit))
            }
            Mask::Queries(set) => {
                let inside = |p: isize| set.iter().any(|&g| g as isize == p);
                let hit = set.iter().any(|&g| queries.contains(&(g as isize)));
                of(hit && queries.clone().all(inside), !hit)
            }
            Mask::LastOfEach { count, period } => {
                // Places in the first block that the keys reach into, and perhaps beyond it.
                let (first, last) = (keys.start % period, keys.start % period + keys.len() - 1);
                let start = period - count;
                of(*count == *period || first >= start && last < *period, last < start)
            }
            Mask::ByHead(masks) => masks[head].class(batch, head, queries, keys),
            Mask::Documents(ids) => {
                let b = if ids.shape()[0] == 1 { 0 } else { batch };
                if p0 < 0 || p1 >= ids.shape()[1] as isize {
                    return Class::Partial;
                }
                let row = ids.select(0, b);
                let span = |from: usize, to: usize| {
                    let part = row.as_slice()[from..=to].iter();
                    (*part.clone().min().expect("not empty"), *part.max().expect("not empty"))
                };
                let (q, k) = (span(p0 as usize, p1 as usize), span(j0 as usize, j1 as usize));
                of(q == k && q.0 == q.1, q.1 < k.0 || k.1 < q.0)
            }
            Mask::Chunks(n) => {
                let n = *n as isize;
                let (q, k) = ((p0.div_euclid(n), p1.div_euclid(n)), (j0 / n, j1 / n));
                of(q == k && q.0 == q.1, q.1 < k.0 || k.1 < q.0)
            }
            Mask::Blocks { size, layout } => {
                let size = *size as isize;
                let h = if layout.shape()[0] == 1 { 0 } else { head };
                let (rows, cols) = (layout.shape()[1] as isize, layout.shape()[2] as isize);
                let (mut all, mut none) = (true, true);
                for i in p0.div_euclid(size)..=p1.div_euclid(size) {
                    for j in j0 / size..=j1 / size {
                        let inside = 0 <= i && i < rows && j < cols;
                        let sees = inside && layout.at(&[h, i as usize, j as usize]);
                        (all, none) = (all && sees, none && !sees);
                    }
                }
                of(all, none)
            }
            Mask::Dense { .. } | Mask::Rule(..) => Class::Partial,
            Mask::And(a, b) => {
                match (
                    a.class(batch, head, queries.clone(), keys.clone()),
                    b.class(batch, head, queries, keys),
                ) {
                    (Class::Empty, _) | (_, Class::Empty) => Class::Empty,
                    (Class::Full, Class::Full) => Class::Full,
                    _ => Class::Partial,
                }
            }
            Mask::Or(a, b) => {
                match (
                    a.class(batch, head, queries.clone(), keys.clone()),
                    b.class(batch, head, queries, keys),
                ) {
                    (Class::Full, _) | (_, Class::Full) => Class::Full,
                    (Class::Empty, Class::Empty) => Class::Empty,
                    _ => Class::Partial,
                }
            }
            Mask::Not(a) => match a.class(batch, head, queries, keys) {
                Class::Empty => Class::Full,
                Class::Full => Class::Empty,
                Class::Partial => Class::Partial,
            },
        }
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
