//! Copies of blocks in the order in which tiles read them.

use crate::matrix::MatRef;
use crate::simd::{F32_LANES as N, Lanes, prefetch};

/// Elements that [`columns`] writes at most.
pub(super) const fn columns_room(k: usize, cols: usize) -> usize {
    k * cols.next_multiple_of(N) + N
}

/// Elements that [`rows`] writes at most.
pub(super) const fn rows_room(k: usize, rows: usize) -> usize {
    rows.div_ceil(HEIGHT) * panel_step(k) + 2 * N
}

/// Rows that are packed side by side: four tiles.
pub(super) const HEIGHT: usize = 24;

/// Distance between panels of `k` columns. Panels are apart by some elements, or parts of them
/// that are written together would often lie in the same set of the cache.
pub(super) const fn panel_step(k: usize) -> usize {
    HEIGHT * k + N
}

/// A panel of columns, row after row, each filled up with zeros to a multiple of 16.
///
/// # Panics
/// If `out` has less than [`columns_room`].
#[inline(always)]
pub(super) fn columns<S: Lanes<f32>>(s: S, b: MatRef<'_, f32>, out: &mut [f32]) {
    panel(s, b, b.cols.next_multiple_of(N), out);
}

/// [`columns`] for several panels of `NV` vectors, one after the other, of a matrix whose rows lie
/// in order: row by row through all of them, as long rows are fetched ahead by themselves.
///
/// # Panics
/// If `out` has less than [`columns_room`].
#[inline(always)]
pub(super) fn whole_panels<S: Lanes<f32>, const NV: usize>(
    s: S,
    b: MatRef<'_, f32>,
    out: &mut [f32],
) {
    let step = NV * N;
    for p in 0..b.rows {
        for (i, piece) in row(b, p).chunks_exact(step).enumerate() {
            let out = &mut out[(i * b.rows + p) * step..][..step];
            let ahead = piece.as_ptr().wrapping_offset(b.row_stride.wrapping_mul(ROWS_AHEAD));
            for j in (0..step).step_by(N) {
                prefetch(ahead.wrapping_add(j));
                s.store(s.load(&piece[j..]), &mut out[j..]);
            }
        }
    }
}

/// Panels of [`HEIGHT`] rows one after the other, each column after column; a last panel has
/// the rows that are left.
///
/// # Panics
/// If `out` has less than [`rows_room`].
#[inline(always)]
pub(super) fn rows<S: Lanes<f32>>(s: S, a: MatRef<'_, f32>, out: &mut [f32]) {
    let (k, whole) = (a.cols, a.rows / HEIGHT * HEIGHT);
    if a.row_stride == 1 {
        // All panels at once, since what lies in a row of memory is part of every panel.
        for p in 0..k {
            let (pieces, _) = row(a.t(), p)[..whole].as_chunks::<HEIGHT>();
            for (i, piece) in pieces.iter().enumerate() {
                let ahead = piece.as_ptr().wrapping_offset(a.col_stride.wrapping_mul(ROWS_AHEAD));
                prefetch(ahead);
                prefetch(ahead.wrapping_add(N));
                let out = &mut out[i * panel_step(k) + p * HEIGHT..];
                s.store(s.load(piece), out);
                s.store(s.load_or(&piece[N..], 0.0), &mut out[N..]);
            }
        }
    } else {
        for i in 0..whole / HEIGHT {
            let columns = a.part(i * HEIGHT..(i + 1) * HEIGHT, 0..k).t();
            panel(s, columns, HEIGHT, &mut out[i * panel_step(k)..]);
        }
    }
    if whole < a.rows {
        let columns = a.part(whole..a.rows, 0..k).t();
        panel(s, columns, a.rows - whole, &mut out[whole / HEIGHT * panel_step(k)..]);
    }
}

/// How far ahead of what is copied memory is asked for: rows that lie apart are not fetched ahead
/// by themselves when there are many.
const AHEAD: usize = 4 * N;

/// The same in rows: what a CPU fetches ahead by itself it begins anew in each of them. What is in a
/// cache already loses nothing here.
const ROWS_AHEAD: isize = 4;

/// Row `p` of a matrix whose rows are not scattered.
#[inline(always)]
fn row(b: MatRef<'_, f32>, p: usize) -> &[f32] {
    &b.data[(b.offset as isize + p as isize * b.row_stride) as usize..][..b.cols]
}

/// Row `p` of `b` at `p * step` of `out`, 16 columns at a time. Whole vectors are written: what
/// is too much is covered by the next row, if `step` does not leave room for it.
#[inline(always)]
fn panel<S: Lanes<f32>>(s: S, b: MatRef<'_, f32>, step: usize, out: &mut [f32]) {
    let whole = b.cols / N * N;
    if b.col_stride == 1 {
        for p in 0..b.rows {
            let out = &mut out[p * step..];
            let (row, last) = row(b, p).split_at(whole);
            for j in (0..whole).step_by(N) {
                s.store(s.load(&row[j..]), &mut out[j..]);
            }
            if !last.is_empty() {
                s.store(s.load_or(last, 0.0), &mut out[whole..]);
            }
        }
        return;
    }
    // Squares of 16 by 16 first, if columns lie in a row. Row by row of squares, as each row of
    // `out` covers what the one before wrote too much.
    let at = |p: usize, j: usize| {
        (b.offset as isize + p as isize * b.row_stride + j as isize * b.col_stride) as usize
    };
    let squares = if b.row_stride == 1 { b.rows / N * N } else { 0 };
    for p in (0..squares).step_by(N) {
        for j in (0..b.cols).step_by(N) {
            let mut square = [s.splat(0.0); N];
            for i in 0..N.min(b.cols - j) {
                let x = &b.data[at(p, j + i)..];
                square[i] = s.load(x);
                prefetch(x.as_ptr().wrapping_add(AHEAD));
            }
            let square = s.transpose(square);
            for i in 0..N {
                s.store(square[i], &mut out[(p + i) * step + j..]);
            }
        }
    }
    for p in squares..b.rows {
        for j in (0..b.cols).step_by(N) {
            let mut row = [0.0; N];
            for i in 0..N.min(b.cols - j) {
                row[i] = b.data[at(p, j + i)];
            }
            s.store(s.load(&row), &mut out[p * step + j..]);
        }
    }
}
