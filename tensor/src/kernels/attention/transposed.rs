//! Keys and values of a tile, transposed once for all tiles of queries.

use super::TILE;
use crate::kernels::Real;
use crate::matrix::MatRef;
use crate::settings;
use crate::simd::{F32_LANES, Kernel, Lanes, prefetch_l2};
use std::ops::Range;

/// Up to [`TILE`] rows of keys or values as columns `[D, TILE]`. The contents of columns without a
/// row are unspecified; they are masked.
pub(super) struct TransposedTile<T> {
    data: Vec<T>,
    /// The index of the first element, aligned to a cache line.
    start: usize,
    width: usize,
}

impl<T: Real> TransposedTile<T> {
    /// An empty tile, which allocates memory when it is first written.
    pub fn new(width: usize) -> TransposedTile<T> {
        TransposedTile { data: Vec::new(), start: 0, width }
    }

    /// Replaces the contents by rows `x`, of length `width`.
    pub fn transpose_from(&mut self, x: MatRef<'_, T>) {
        assert!(x.rows <= TILE && x.cols == self.width, "attention: size of a tile");
        if self.data.is_empty() {
            const LINE: usize = 64; // bytes, and more than enough elements
            let size = self.width.next_multiple_of(F32_LANES) * TILE;
            self.data = vec![T::ZERO; size + LINE];
            self.start = self.data.as_ptr().align_offset(LINE);
        }
        if x.col_stride == 1 {
            T::dispatch(settings::level(), Transpose { x, out: &mut self.data[self.start..] });
            return;
        }
        for i in 0..x.rows {
            for j in 0..x.cols {
                self.data[self.start + j * TILE + i] = x.at(i, j);
            }
        }
    }

    /// The columns `cols`.
    pub fn columns(&self, cols: Range<usize>) -> MatRef<'_, T> {
        debug_assert!(cols.end <= TILE);
        MatRef {
            data: &self.data,
            offset: self.start + cols.start,
            rows: self.width,
            cols: cols.len(),
            row_stride: TILE as isize,
            col_stride: 1,
        }
    }
}

struct Transpose<'a, T> {
    x: MatRef<'a, T>,
    out: &'a mut [T],
}

impl<T: Real> Kernel<T> for Transpose<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let Transpose { x, out } = self;
        for i in (0..x.rows).step_by(S::N) {
            for j in (0..x.cols).step_by(S::N) {
                let mut block = [s.splat(T::ZERO); F32_LANES];
                for r in 0..S::N.min(x.rows - i) {
                    let row = &x.row(i + r)[j..];
                    // The rows of the next tile.
                    let ahead = x.row_stride.wrapping_mul(TILE as isize);
                    prefetch_l2(row.as_ptr().wrapping_offset(ahead));
                    block[r] =
                        if row.len() >= S::N { s.load(row) } else { s.load_or(row, T::ZERO) };
                }
                let block = s.transpose(block);
                for c in 0..S::N {
                    s.store(block[c], &mut out[(j + c) * TILE + i..]);
                }
            }
        }
    }
}
