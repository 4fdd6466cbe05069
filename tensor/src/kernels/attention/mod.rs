//! AttentionOptions attention: blocks of queries against blocks of keys, without the matrix of weights.
//!
//! The [forward](forward()) pass keeps a running maximum and sum per query (online softmax), and
//! saves only the output and the log-sum-exp. The [backward](backward()) pass computes the
//! weights of a tile again from these. Tiles that the mask leaves empty are skipped, tiles that
//! it leaves whole are computed without looking at it, and of the others the rows and columns
//! between the first and the last pair. Rabe, Staats 2021 (arXiv 2112.05682); Dao et al. 2022
//! (2205.14135).
//!
//! Operands are read where they lie, with any strides, as in a projection to queries, keys and
//! values at once; results lie as a projection of all heads wants to read them. One task makes
//! one part of a result, in a fixed order, so results do not depend on threads. What a query
//! gets does not depend on the other queries, nor on keys that it does not see: its bits are
//! the same when keys are cached.

mod backward;
mod forward;
mod tile;
mod transposed;

pub use backward::{Cotangents, Vjp, backward, backward_packed};
pub use forward::forward;

use crate::cost::Cost;
use crate::kernels::Real;
use crate::matrix::MatRef;
use crate::random::Key;
use crate::tensor::Tensor;
use std::ops::Range;

/// Keys in a tile: as many as [`TileMask::row`] has bits.
pub const TILE: usize = 64;
/// Queries in a tile.
const QUERIES: usize = 32;

/// One pair of a query and a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The sequence.
    pub batch: usize,
    /// The query head.
    pub head: usize,
    /// The position of the query, in the positions of the keys.
    pub query: isize,
    /// The position of the key.
    pub key: usize,
}

/// What a mask leaves of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// No pair: the tile is skipped.
    Empty,
    /// Some pairs, perhaps: each is asked for.
    Partial,
    /// Every pair.
    Full,
}

/// Which pairs attend.
pub trait TileMask: Sync {
    /// Whether this query may see this key.
    fn keep(&self, at: At) -> bool;

    /// What is left of a tile; [`Class::Partial`] is always a right answer.
    fn class(&self, batch: usize, head: usize, queries: Range<isize>, keys: Range<usize>) -> Class;

    /// Which of at most 64 keys from `at.key` on this query may see: bit `i` for key
    /// `at.key + i`.
    fn row(&self, at: At, keys: usize) -> u64 {
        (0..keys).map(|i| u64::from(self.keep(At { key: at.key + i, ..at })) << i).sum()
    }
}

/// Adds to the scores of a query: of the pair that it is given, and of as many keys after it as
/// there are scores.
pub type Bias<'a, T> = dyn Fn(At, &mut [T]) + Sync + 'a;

/// Everything about tiled attention but its tensors.
#[derive(Clone, Copy)]
pub struct AttentionOptions<'a, T> {
    /// Multiplies `q · k`.
    pub scale: T,
    /// `c · tanh(s / c)` of the scaled score.
    pub softcap: Option<T>,
    /// Added to the scores.
    pub bias: Option<&'a Bias<'a, T>>,
    /// Which pairs attend.
    pub mask: &'a dyn TileMask,
    /// Position of query 0.
    pub offset: isize,
    /// One more logit per query head, which takes weight and gives nothing.
    pub sink: Option<&'a [T]>,
    /// Probability and key: weight `(b, h, i, j)` is dropped as element `(b, h, i, j)` of a
    /// tensor `[B, H, Lq, Lk]` would be.
    pub dropout: Option<(f64, Key)>,
}

/// Sizes of a problem. Query head `h` reads key head `h / group`.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    heads: usize,
    key_heads: usize,
    group: usize,
    lq: usize,
    lk: usize,
    dk: usize,
    dv: usize,
}

impl Sizes {
    fn of<T: Real>(q: &Tensor<T>, k: &Tensor<T>, v: &Tensor<T>) -> Sizes {
        let (q, k, v) = (q.shape(), k.shape(), v.shape());
        Sizes {
            batch: q[0],
            heads: q[1],
            key_heads: k[1],
            group: q[1] / k[1].max(1),
            lq: q[2],
            lk: k[2],
            dk: q[3],
            dv: v[3],
        }
    }

    /// The cost of a pair of a query and a key, with `products` pairs of matrix products.
    fn cost(&self, products: usize) -> Cost {
        Cost::attention(products, self.dk + self.dv)
    }
}

/// One head's matrix of a tensor `[B, H, L, D]`, rows `rows` of it.
fn head<'a, T: Real>(x: &'a Tensor<T>, b: usize, h: usize, rows: Range<usize>) -> MatRef<'a, T> {
    let strides = x.layout().strides();
    let at = x.layout().offset() as isize
        + b as isize * strides[0]
        + h as isize * strides[1]
        + rows.start as isize * strides[2];
    MatRef {
        data: x.data(),
        offset: at as usize,
        rows: rows.len(),
        cols: x.shape()[3],
        row_stride: strides[2],
        col_stride: strides[3],
    }
}

/// A range in pieces of at most `step`.
fn pieces(range: Range<usize>, step: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(step).map(move |start| start..(start + step).min(range.end))
}
