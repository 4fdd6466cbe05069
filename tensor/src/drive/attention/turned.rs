//! Keys and values of a tile, transposed: once for all queries that meet them.

use super::TILE;
use crate::matrix::MatRef;
use crate::simd::{self, F32_LANES, Kernel, Lanes, Real, prefetch};
use std::ops::Range;

/// Up to [`TILE`] rows of keys or values as columns `[D, TILE]`. Columns behind the last row that
/// was put in hold anything; nobody sees them.
pub(super) struct Turned<T> {
    data: Vec<T>,
    /// Where they begin: at a cache line.
    start: usize,
    width: usize,
}

impl<T: Real> Turned<T> {
    /// Without memory, until there is something to turn.
    pub fn new(width: usize) -> Turned<T> {
        Turned { data: Vec::new(), start: 0, width }
    }

    /// Puts rows `x`, of the width, in place of what was there.
    pub fn turn(&mut self, x: MatRef<'_, T>) {
        assert!(x.rows <= TILE && x.cols == self.width, "attention: size of a tile");
        if self.data.is_empty() {
            const LINE: usize = 64; // bytes, and more than enough elements
            let size = self.width.next_multiple_of(F32_LANES) * TILE;
            self.data = vec![T::ZERO; size + LINE];
            self.start = self.data.as_ptr().align_offset(LINE);
        }
        if x.col_stride == 1 {
            T::dispatch(simd::level(), Turn { x, out: &mut self.data[self.start..] });
            return;
        }
        for i in 0..x.rows {
            for j in 0..x.cols {
                self.data[self.start + j * TILE + i] = x.at(i, j);
            }
        }
    }

    /// Columns `cols`.
    pub fn of(&self, cols: Range<usize>) -> MatRef<'_, T> {
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

struct Turn<'a, T> {
    x: MatRef<'a, T>,
    out: &'a mut [T],
}

impl<T: Real> Kernel<T> for Turn<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let Turn { x, out } = self;
        for i in (0..x.rows).step_by(S::N) {
            for j in (0..x.cols).step_by(S::N) {
                let mut square = [s.splat(T::ZERO); F32_LANES];
                for r in 0..S::N.min(x.rows - i) {
                    let row = &x.row(i + r)[j..];
                    // Those of the next tile.
                    let ahead = x.row_stride.wrapping_mul(TILE as isize);
                    prefetch(row.as_ptr().wrapping_offset(ahead));
                    square[r] =
                        if row.len() >= S::N { s.load(row) } else { s.load_or(row, T::ZERO) };
                }
                let square = s.transpose(square);
                for c in 0..S::N {
                    s.store(square[c], &mut out[(j + c) * TILE + i..]);
                }
            }
        }
    }
}
