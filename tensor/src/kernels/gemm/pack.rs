//! Packing: copies of blocks in the order in which the micro-kernel reads them.

use super::params::{MR_PACKED, PACK_PREFETCH, PACK_PREFETCH_ROWS};
use crate::element::Float;
use crate::matrix::MatRef;
use crate::simd::{F32_LANES, Lanes, prefetch_l2};

/// The buffer length for packing `k` rows of `cols` columns of the right matrix.
pub(super) const fn packed_b_len(k: usize, cols: usize) -> usize {
    k * cols.next_multiple_of(F32_LANES) + F32_LANES
}

/// The buffer length for packing `rows` rows of `k` columns of the left matrix.
pub(super) const fn packed_a_len(k: usize, rows: usize) -> usize {
    rows.div_ceil(MR_PACKED) * panel_step(k) + 2 * F32_LANES
}

/// The distance between packed panels of `k` columns. The padding between panels keeps the parts
/// that are written together in different sets of the cache.
pub(super) const fn panel_step(k: usize) -> usize {
    MR_PACKED * k + F32_LANES
}

/// Packs a panel of columns, row after row, each padded with zeros to whole vectors.
///
/// # Panics
/// If `out` has fewer elements than [`packed_b_len`].
#[inline(always)]
pub(super) fn pack_panel<T: Float, S: Lanes<T>>(s: S, b: MatRef<'_, T>, out: &mut [T]) {
    panel(s, b, b.cols.next_multiple_of(S::N), out);
}

/// [`pack_panel`] for consecutive panels of `NV` vectors, of a matrix with contiguous rows: row by
/// row through all panels, since hardware prefetchers follow long rows.
///
/// # Panics
/// If `out` has fewer elements than [`packed_b_len`].
#[inline(always)]
pub(super) fn whole_panels<T: Float, S: Lanes<T>, const NV: usize>(
    s: S,
    b: MatRef<'_, T>,
    out: &mut [T],
) {
    let step = NV * S::N;
    for p in 0..b.rows {
        for (i, piece) in row(b, p).chunks_exact(step).enumerate() {
            let out = &mut out[(i * b.rows + p) * step..][..step];
            let ahead =
                piece.as_ptr().wrapping_offset(b.row_stride.wrapping_mul(PACK_PREFETCH_ROWS));
            for j in (0..step).step_by(S::N) {
                prefetch_l2(ahead.wrapping_add(j));
                s.store(s.load(&piece[j..]), &mut out[j..]);
            }
        }
    }
}

/// Packs panels of [`MR_PACKED`] rows, each column after column; the last panel has the remaining
/// rows.
///
/// # Panics
/// If `out` has fewer elements than [`packed_a_len`].
#[inline(always)]
pub(super) fn pack_a<T: Float, S: Lanes<T>>(s: S, a: MatRef<'_, T>, out: &mut [T]) {
    let (k, whole) = (a.cols, a.rows / MR_PACKED * MR_PACKED);
    if a.row_stride == 1 {
        // All panels at once, since a contiguous column contains elements of every panel.
        for p in 0..k {
            let (pieces, _) = row(a.t(), p)[..whole].as_chunks::<MR_PACKED>();
            for (i, piece) in pieces.iter().enumerate() {
                let ahead =
                    piece.as_ptr().wrapping_offset(a.col_stride.wrapping_mul(PACK_PREFETCH_ROWS));
                let out = &mut out[i * panel_step(k) + p * MR_PACKED..];
                for j in (0..MR_PACKED).step_by(S::N) {
                    prefetch_l2(ahead.wrapping_add(j));
                    let is_whole = j + S::N <= MR_PACKED;
                    let x = &piece[j..];
                    s.store(
                        if is_whole { s.load(x) } else { s.load_or(x, T::ZERO) },
                        &mut out[j..],
                    );
                }
            }
        }
    } else {
        for i in 0..whole / MR_PACKED {
            let columns = a.part(i * MR_PACKED..(i + 1) * MR_PACKED, 0..k).t();
            panel(s, columns, MR_PACKED, &mut out[i * panel_step(k)..]);
        }
    }
    if whole < a.rows {
        let columns = a.part(whole..a.rows, 0..k).t();
        panel(s, columns, a.rows - whole, &mut out[whole / MR_PACKED * panel_step(k)..]);
    }
}

/// Row `p` of a matrix with contiguous rows.
#[inline(always)]
fn row<T>(b: MatRef<'_, T>, p: usize) -> &[T] {
    &b.data[(b.offset as isize + p as isize * b.row_stride) as usize..][..b.cols]
}

/// Copies row `p` of `b` to `p * step` of `out`, a vector at a time. Whole vectors are written:
/// the next row overwrites the excess, where `step` is less than the length of the vectors.
#[inline(always)]
fn panel<T: Float, S: Lanes<T>>(s: S, b: MatRef<'_, T>, step: usize, out: &mut [T]) {
    let whole = b.cols / S::N * S::N;
    if b.col_stride == 1 {
        for p in 0..b.rows {
            let out = &mut out[p * step..];
            let (row, last) = row(b, p).split_at(whole);
            for j in (0..whole).step_by(S::N) {
                s.store(s.load(&row[j..]), &mut out[j..]);
            }
            if !last.is_empty() {
                s.store(s.load_or(last, T::ZERO), &mut out[whole..]);
            }
        }
        return;
    }
    // Squares of vectors first, if columns are contiguous, row by row of blocks, since each row of
    // `out` overwrites the excess of the previous one.
    let at = |p: usize, j: usize| {
        (b.offset as isize + p as isize * b.row_stride + j as isize * b.col_stride) as usize
    };
    let whole_blocks = if b.row_stride == 1 { b.rows / S::N * S::N } else { 0 };
    for p in (0..whole_blocks).step_by(S::N) {
        for j in (0..b.cols).step_by(S::N) {
            let mut block = [s.splat(T::ZERO); F32_LANES];
            for i in 0..S::N.min(b.cols - j) {
                let x = &b.data[at(p, j + i)..];
                block[i] = s.load(x);
                prefetch_l2(x.as_ptr().wrapping_add(PACK_PREFETCH));
            }
            let block = s.transpose(block);
            for i in 0..S::N {
                s.store(block[i], &mut out[(p + i) * step + j..]);
            }
        }
    }
    for p in whole_blocks..b.rows {
        for j in (0..b.cols).step_by(S::N) {
            let mut row = [T::ZERO; F32_LANES];
            for i in 0..S::N.min(b.cols - j) {
                row[i] = b.data[at(p, j + i)];
            }
            s.store(s.load(&row), &mut out[p * step + j..]);
        }
    }
}
