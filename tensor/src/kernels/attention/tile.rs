//! A tile of scores: its visible pairs, and the kernels that work on it.

use super::{At, AttentionOptions, Class, QUERIES, Sizes, TILE};
use crate::kernels::rows::{splat, update_row};
use crate::kernels::{Real, level_of};
use crate::matrix::{MatMut, MatRef};
use crate::observe::{KernelCall, Size};
use crate::settings;
use crate::simd::{F32_LANES, Kernel, Lanes, inlined};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The elements of a tile, in rows of `TILE`.
#[repr(align(64))]
pub struct TileBuffer<T>(pub(super) [T; QUERIES * TILE]);

impl<T: Real> TileBuffer<T> {
    /// All 0.
    #[inline(always)]
    pub(super) fn new() -> TileBuffer<T> {
        TileBuffer([T::ZERO; QUERIES * TILE])
    }

    /// The elements of a tile as a matrix.
    pub(super) fn of(&self, tile: &Tile) -> MatRef<'_, T> {
        let (rows, cols) = (tile.rows.len(), tile.cols.len());
        MatRef { data: &self.0, offset: 0, rows, cols, row_stride: TILE as isize, col_stride: 1 }
    }

    /// Multiplies the elements of a tile by the elements of another buffer.
    pub(super) fn multiply(&mut self, tile: &Tile, by: &TileBuffer<T>) {
        for i in 0..tile.rows.len() {
            let row = i * TILE..i * TILE + tile.cols.len();
            let (x, y) = (&mut self.0[row.clone()], &by.0[row]);
            for j in 0..x.len() {
                x[j] *= y[j];
            }
        }
    }

    /// Writes the matrix product of `rows` and `cols`, which may have more columns than the tile.
    pub(super) fn set_product<'a>(&mut self, rows: MatRef<'a, T>, cols: MatRef<'a, T>) {
        let out = MatMut::new(&mut self.0, QUERIES, TILE);
        T::gemm(rows, cols, false, out.into_part(0..rows.rows, 0..cols.cols));
    }
}

/// A tile: the queries (rows) and keys (columns) of one head that are computed together.
pub struct Tile {
    pub(super) batch: usize,
    pub(super) head: usize,
    pub(super) rows: Range<usize>,
    pub(super) cols: Range<usize>,
    /// The visible keys of each query, as bits.
    pub(super) visible: [u64; QUERIES],
    /// Whether some pairs are masked.
    pub(super) partial: bool,
}

impl Tile {
    /// The columns of the tile relative to key `first`, extended to whole vectors of `f32`.
    pub(super) fn whole_cols(&self, first: usize) -> Range<usize> {
        let start = self.cols.start - first;
        start..start + self.cols.len().next_multiple_of(F32_LANES)
    }

    /// The number of columns, rounded up to whole vectors; the excess is masked.
    #[inline(always)]
    pub(super) fn width<T: Real, S: Lanes<T>>(&self) -> usize {
        self.cols.len().next_multiple_of(S::N)
    }
}

impl<T: Real> AttentionOptions<'_, T> {
    /// The tile of at most [`QUERIES`] rows and [`TILE`] columns, unless it is fully masked.
    pub(super) fn tile(
        &self,
        (batch, head): (usize, usize),
        rows: Range<usize>,
        cols: Range<usize>,
    ) -> Option<Tile> {
        let position = |i: usize| i as isize + self.offset;
        let queries = position(rows.start)..position(rows.end);
        let all = u64::MAX >> (64 - cols.len());
        let mut tile = Tile { batch, head, rows, cols, visible: [all; QUERIES], partial: false };
        match self.mask.class(batch, head, queries, tile.cols.clone()) {
            Class::Empty => return None,
            Class::Full => return Some(tile),
            Class::Partial => tile.partial = true,
        }
        let mut any = 0;
        for (i, visible) in tile.rows.clone().zip(&mut tile.visible) {
            let at = At { batch, head, query: position(i), key: tile.cols.start };
            *visible = self.mask.row(at, tile.cols.len()) & all;
            any |= *visible;
        }
        if any == 0 {
            return None;
        }
        // Only columns that are visible to some query, from a whole vector on.
        let from = any.trailing_zeros() as usize / F32_LANES * F32_LANES;
        let to = 64 - any.leading_zeros();
        tile.cols = tile.cols.start + from..tile.cols.start + to as usize;
        tile.visible.iter_mut().for_each(|visible| *visible >>= from);
        Some(tile)
    }

    /// The dropout factors of the weights of a tile, 0 or `1/(1-p)`; `None` without dropout.
    pub(super) fn dropout_factors<'a>(
        &self,
        sizes: &Sizes,
        tile: &Tile,
        z: Option<&'a mut TileBuffer<T>>,
    ) -> Option<&'a TileBuffer<T>> {
        let ((p, key), z) = (self.dropout?, z?);
        let (threshold, kept) = (crate::random::threshold(p), T::from_f64(1.0 / (1.0 - p)));
        for (i, row) in tile.rows.clone().zip(z.0.chunks_exact_mut(TILE)) {
            let row_of_all = (tile.batch * sizes.heads + tile.head) * sizes.lq + i;
            let first = row_of_all * sizes.lk + tile.cols.start;
            let row = &mut row[..tile.cols.len()];
            key.fill(
                settings::level(),
                first as u64,
                row,
                inlined!(|words, _, out| {
                    let words = &words[..out.len()];
                    for i in 0..out.len() {
                        out[i] = if u64::from(words[i]) < threshold { T::ZERO } else { kept };
                    }
                }),
            );
        }
        Some(z)
    }
}

/// `out += a · b` with weights `a`. If `guarded`, a zero weight multiplied by a non-finite element
/// of `b` is 0.
pub(super) fn add_product<T: Real>(
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    guarded: bool,
    mut out: MatMut<'_, T>,
) {
    if !guarded || b.is_finite() {
        return T::gemm(a, b, true, out);
    }
    let (rows, cols) = (0..out.rows(), 0..out.cols());
    let finite = b.without_non_finite();
    let finite = MatRef::new(&finite, b.rows, b.cols);
    T::gemm(a, finite, true, out.part(rows, cols));
    a.add_product_with_non_finite(b, out);
}

/// The state of online softmax: for each query the running maximum of the scores, and the running
/// sum of their exponentials relative to it.
pub(super) struct OnlineSoftmax<T> {
    pub running_max: [T; QUERIES],
    pub running_sum: [T; QUERIES],
    /// The factor by which the last tile rescales earlier results.
    pub rescale: [T; QUERIES],
}

impl<T: Real> OnlineSoftmax<T> {
    /// The state before the first key, which includes the sink, if there is one.
    pub fn new(sink: Option<T>) -> OnlineSoftmax<T> {
        let (running_max, sum) = sink.map_or((T::NEG_INFINITY, T::ZERO), |sink| (sink, T::ONE));
        let sum = if running_max == T::NEG_INFINITY { T::ZERO } else { sum };
        OnlineSoftmax {
            running_max: [running_max; QUERIES],
            running_sum: [sum; QUERIES],
            rescale: [T::ONE; QUERIES],
        }
    }

    /// Replaces the scores `factor · s` of a tile by weights relative to the new maximum.
    pub fn step(&mut self, tile: &Tile, s: &mut TileBuffer<T>, factor: T) {
        T::dispatch(settings::level(), Step { online: self, tile, s: &mut s.0, factor });
    }
}

struct Step<'a, T> {
    online: &'a mut OnlineSoftmax<T>,
    tile: &'a Tile,
    s: &'a mut [T],
    factor: T,
}

impl<T: Real> Kernel<T> for Step<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let Step { online, tile, s: scores, factor } = self;
        let (width, factor) = (tile.width::<T, S>(), s.splat(factor));
        let low = s.splat(T::NEG_INFINITY);
        for i in 0..tile.rows.len() {
            let row = &mut scores[i * TILE..i * TILE + width];
            let mut max = low;
            for at in (0..width).step_by(S::N) {
                let visible = s.mask_from_bits(tile.visible[i] >> at);
                let x = s.select(visible, s.mul(s.load(&row[at..]), factor), low);
                s.store(x, &mut row[at..]);
                max = s.max(max, x);
            }
            let (old, tile_max) = (online.running_max[i], s.max_lane(max));
            let new = if tile_max > old || tile_max.is_nan() { tile_max } else { old };
            online.rescale[i] = T::ONE;
            if new == T::NEG_INFINITY {
                row.fill(T::ZERO);
                continue;
            }
            if new != old {
                online.rescale[i] = T::from_f64((old - new).to_f64().exp());
                online.running_max[i] = new;
            }
            let new = s.splat(new);
            let mut sum = s.splat(T::ZERO);
            for at in (0..width).step_by(S::N) {
                let p = s.exp(s.sub(s.load(&row[at..]), new));
                s.store(p, &mut row[at..]);
                sum = s.add(sum, p);
            }
            online.running_sum[i] = online.running_sum[i] * online.rescale[i] + s.sum(sum);
        }
    }
}

/// Multiplies each row of a matrix by a factor.
pub(super) fn scale_rows<T: Real>(mut x: MatMut<'_, T>, by: &[T]) {
    struct Scale<'a, 'b, T>(&'a mut MatMut<'b, T>, &'a [T]);
    impl<T: Real> Kernel<T> for Scale<'_, '_, T> {
        type Out = ();
        #[inline(always)]
        fn run<S: Lanes<T>>(self, s: S) {
            for i in 0..self.0.rows() {
                let by = splat(s, self.1[i]);
                update_row(s, self.0.row(i), inlined!(|x| x * by));
            }
        }
    }
    T::dispatch(settings::level(), Scale(&mut x, by));
}

/// `Σ a ∘ b` of each row of two matrices with contiguous rows.
pub(super) fn row_dots<T: Real>(a: MatRef<'_, T>, b: MatRef<'_, T>, out: &mut [T]) {
    struct Dots<'a, T>(MatRef<'a, T>, MatRef<'a, T>, &'a mut [T]);
    impl<T: Real> Kernel<T> for Dots<'_, T> {
        type Out = ();
        #[inline(always)]
        fn run<S: Lanes<T>>(self, s: S) {
            for (i, out) in self.2.iter_mut().enumerate() {
                let (a, b) = (self.0.row(i), self.1.row(i));
                let mut sum = s.splat(T::ZERO);
                let whole = a.len() / S::N * S::N;
                for at in (0..whole).step_by(S::N) {
                    sum = s.fma(s.load(&a[at..]), s.load(&b[at..]), sum);
                }
                if whole < a.len() {
                    let (a, b) = (s.load_or(&a[whole..], T::ZERO), s.load_or(&b[whole..], T::ZERO));
                    sum = s.fma(a, b, sum);
                }
                *out = s.sum(sum);
            }
        }
    }
    T::dispatch(settings::level(), Dots(a, b, out));
}

/// The backward pass of a tile. It replaces the scores `factor · s` by the weights after dropout,
/// and `dp`, the gradients of these weights, by the gradients of the products of queries and keys.
pub(super) struct TileGradients<'a, T: Real> {
    pub tile: &'a Tile,
    pub factor: T,
    /// Log-sum-exp of the queries of the tile.
    pub lse: &'a [T],
    /// `D` of the queries of the tile.
    pub dots: &'a [T],
    /// The derivative of all scores with respect to the products, if there are no `derivatives`.
    pub derivative: T,
    /// The derivative of each score with respect to its product.
    pub derivatives: Option<&'a TileBuffer<T>>,
    /// The dropout factors of the weights.
    pub dropout: Option<&'a TileBuffer<T>>,
    pub s: &'a mut TileBuffer<T>,
    pub dp: &'a mut TileBuffer<T>,
}

impl<'a, T: Real> TileGradients<'a, T> {
    /// Computes the replacements.
    pub fn compute(self) {
        T::dispatch(settings::level(), self);
    }
}

impl<T: Real> Kernel<T> for TileGradients<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let width = self.tile.width::<T, S>();
        let (zero, factor, derivative) =
            (s.splat(T::ZERO), s.splat(self.factor), s.splat(self.derivative));
        for i in 0..self.tile.rows.len() {
            let row = i * TILE..i * TILE + width;
            if self.lse[i] == T::NEG_INFINITY {
                for at in row.step_by(S::N) {
                    s.store(zero, &mut self.s.0[at..]);
                    s.store(zero, &mut self.dp.0[at..]);
                }
                continue;
            }
            let (lse, dot) = (s.splat(self.lse[i]), s.splat(self.dots[i]));
            for at in row.step_by(S::N) {
                let visible = s.mask_from_bits(self.tile.visible[i] >> (at - i * TILE));
                let x = s.sub(s.mul(s.load(&self.s.0[at..]), factor), lse);
                let p = s.select(visible, s.exp(x), zero);
                let (mut dp, mut dropped) = (s.load(&self.dp.0[at..]), p);
                if let Some(factors) = self.dropout {
                    let factors = s.load(&factors.0[at..]);
                    (dp, dropped) = (s.mul(dp, factors), s.mul(p, factors));
                }
                let derivative = match self.derivatives {
                    Some(derivatives) => s.load(&derivatives.0[at..]),
                    None => derivative,
                };
                let ds = s.mul(s.mul(p, s.sub(dp, dot)), derivative);
                // The gradient of a weight of 0 is 0, even if the other factors are non-finite.
                let ds = s.select(s.eq(p, zero), zero, ds);
                s.store(dropped, &mut self.s.0[at..]);
                s.store(ds, &mut self.dp.0[at..]);
            }
        }
    }
}

/// What the tasks of a call have done, for its report.
#[derive(Debug, Default)]
pub(super) struct TileCounts {
    full: AtomicU64,
    partial: AtomicU64,
    skipped: AtomicU64,
    /// Pairs of queries and keys in the tiles that were computed. A partial tile is narrowed to the
    /// columns that some query attends to.
    pairs: AtomicU64,
}

impl TileCounts {
    /// Counts a tile that is skipped, if tiles are counted.
    pub(super) fn skip(counts: Option<&TileCounts>) {
        if let Some(counts) = counts {
            counts.skipped.fetch_add(1, Relaxed);
        }
    }

    /// Counts a tile that is computed, if tiles are counted.
    pub(super) fn add(counts: Option<&TileCounts>, tile: &Tile) {
        if let Some(counts) = counts {
            let count = if tile.partial { &counts.partial } else { &counts.full };
            count.fetch_add(1, Relaxed);
            counts.pairs.fetch_add((tile.rows.len() * tile.cols.len()) as u64, Relaxed);
        }
    }

    /// The report of a call that has computed `products` matrix products over vectors of the keys' width
    /// and of the values' width.
    pub(super) fn describe<T: Real>(
        &self,
        operation: &'static str,
        sizes: &Sizes,
        products: (usize, usize),
    ) -> KernelCall {
        let [full, partial, skipped, pairs] =
            [&self.full, &self.partial, &self.skipped, &self.pairs].map(|n| n.load(Relaxed));
        let Sizes { batch, heads, lq, lk, dk, dv, .. } = *sizes;
        let size = Size::Attention { batch, heads, queries: lq, keys: lk, width: dk };
        KernelCall {
            detail: format!("tiles: {full} full, {partial} partial, {skipped} skipped"),
            level: level_of::<T>(settings::level()),
            flops: 2 * pairs * (products.0 * dk + products.1 * dv) as u64,
            ..KernelCall::new(operation, "tiled", T::DTYPE, size)
        }
    }
}
