//! Tiled attention (FlashAttention): tiles of queries and keys, without the matrix of weights.
//!
//! The [forward](forward()) pass computes a running maximum and sum per query (online softmax), and
//! saves only the output and the log-sum-exp. The [backward](backward()) pass recomputes the
//! weights of a tile from these. Tiles that are fully masked are skipped, and tiles without masked
//! pairs are computed without the mask; other tiles are restricted to the columns between the first
//! and the last visible key. Rabe, Staats 2021 (arXiv 2112.05682); Dao et al. 2022 (2205.14135).
//!
//! Operands are read in place, with any strides, for example as views of a joint projection of
//! queries, keys and values; results have the memory layout `[B, L, H, D]` that an output
//! projection reads. One task computes one part of a result, in a fixed order, so results do not
//! depend on threads. The output of a query depends neither on other queries nor on keys that it
//! does not see: its bits are the same with a key-value cache.

mod backward;
mod contextual;
mod forward;
mod relative;
pub(crate) mod rule;
mod scores;
mod tile;
mod transposed;

pub use backward::{Cotangents, Vjp, backward, backward_packed};
pub use contextual::contextual_positions;
pub use forward::forward;
pub use relative::{relative_products, relative_values};
pub use rule::{Derivatives, PairPositions, Per, ScoreRule, TileRule, by_formula};

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

/// The class of a tile under a mask. Under two masks it is the smaller (and) or the larger (or) one of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// No pair attends: the tile is skipped.
    Empty,
    /// Possibly some pairs: the mask is evaluated for each of them.
    Partial,
    /// Every pair attends.
    Full,
}

/// A mask: which pairs of queries and keys attend, pair by pair and tile by tile.
pub trait TileMask: Sync {
    /// Whether the query attends to the key.
    fn keep(&self, at: At) -> bool;

    /// The class of a tile; [`Class::Partial`] is always correct.
    fn class(&self, batch: usize, head: usize, queries: Range<isize>, keys: Range<usize>) -> Class;

    /// The mask of at most 64 keys from `at.key` on: bit `i` is set if the query attends to key
    /// `at.key + i`.
    fn row(&self, at: At, keys: usize) -> u64 {
        (0..keys).map(|i| u64::from(self.keep(At { key: at.key + i, ..at })) << i).sum()
    }
}

/// A function that adds a bias to the scores of a query and consecutive keys, from the given pair
/// on.
pub type BiasFn<'a, T> = dyn Fn(At, &mut [T]) + Sync + 'a;

/// The options of tiled attention.
#[derive(Clone, Copy)]
pub struct AttentionOptions<'a, T> {
    /// The factor of `q · k`.
    pub scale: T,
    /// The cap `c` in `c · tanh(s / c)` of the scaled score.
    pub softcap: Option<T>,
    /// The bias of the scores.
    pub bias: Option<&'a BiasFn<'a, T>>,
    /// The rules of scores, in this order, after the bias.
    pub rules: &'a [Box<dyn TileRule<T> + 'a>],
    /// Which pairs attend.
    pub mask: &'a dyn TileMask,
    /// The position of query 0 among the keys.
    pub offset: isize,
    /// An additional logit per query head (attention sink), with a value of 0.
    pub sink: Option<&'a [T]>,
    /// Probability and key of dropout: weight `(b, h, i, j)` is dropped as element `(b, h, i, j)`
    /// of a tensor `[B, H, Lq, Lk]` is.
    pub dropout: Option<(f64, Key)>,
}

/// The sizes of the operands. Query head `h` uses key head `h / group`.
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

/// The bytes of the elements of all tensors.
fn bytes<T: Real>(tensors: &[&Tensor<T>]) -> u64 {
    tensors.iter().map(|x| x.distinct_bytes()).sum()
}

/// Rows `rows` of the matrix of one head of a tensor `[B, H, L, D]`.
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

/// A range in parts of at most `step`.
fn pieces(range: Range<usize>, step: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(step).map(move |start| start..(start + step).min(range.end))
}
