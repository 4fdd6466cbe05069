//! The operands of a block, as tiles read them: where they lie, or packed.

use super::blocks::TILE;
use super::pack;
use crate::matrix::MatRef;
use crate::simd::{F32_LANES, Lanes, prefetch};
use std::ops::Range;

/// Whether rows of `a` are read where they lie, in a product of `n` columns: if they lie in order,
/// or if columns do that are close together; less close if they are read twice only.
pub fn rows_in_place<T>(a: &MatRef<'_, T>, n: usize) -> bool {
    let distance = a.col_stride.unsigned_abs();
    let close = distance <= if n <= 128 { 768 } else { 128 };
    a.col_stride == 1 || a.row_stride == 1 && close
}

/// Whether columns of `b` are read in place, as far as they fill vectors. Rows of `b` must be
/// contiguous, and one of these must hold:
///
/// * The sum is short, and a panel of columns stays in the first cache.
/// * There are few rows of `a`, rows of `b` are close together, and a panel stays in the second
///   cache between one tile and the next.
/// * There is one tile of rows, so every element is read once, as it would be for packing.
pub(super) fn columns_in_place<const NV: usize>(a: &MatRef<'_, f32>, b: &MatRef<'_, f32>) -> bool {
    let distance = b.row_stride.unsigned_abs();
    let short = b.rows <= SHORT && FIRST.holds(b.rows, distance);
    let few = a.rows <= FEW * NV && distance <= CLOSE && SECOND.holds(b.rows, distance);
    b.col_stride == 1 && b.row_stride >= 0 && (a.rows <= TILE || few || short)
}

/// Rows of a product that are few, for each vector of a panel.
const FEW: usize = 128;
/// The distance of rows that lie close together.
const CLOSE: usize = 512;

/// Terms of a sum that is short.
const SHORT: usize = 64;

/// A set-associative cache, as far as the rows of one panel may fill it.
struct Cache {
    /// Elements after which lines map to the same set again: sets times the length of a line.
    period: usize,
    /// Lines of a set.
    ways: usize,
}

/// 32 KB in 8 ways.
const FIRST: Cache = Cache { period: 1024, ways: 8 };
/// 1 MB in 16 ways. Rows of `a` and of the product take their part of it, so a panel may have 12:
/// of rows of 512 elements, 384 are read in place, and 512, which would take 16 ways, are packed.
const SECOND: Cache = Cache { period: 16_384, ways: 12 };

impl Cache {
    /// Whether `n` lines at this distance stay. Lines at a distance that is a multiple of a large
    /// power of two share few sets.
    fn holds(&self, n: usize, distance: usize) -> bool {
        let sets = self.period >> distance.trailing_zeros().min(self.period.trailing_zeros());
        n <= self.ways * sets
    }
}

/// Rows of the left matrix, all of them inside their slice.
pub(super) enum Left<'a> {
    InPlace(MatRef<'a, f32>),
    Packed { data: &'a [f32], rows: usize, k: usize },
}

impl<'a> Left<'a> {
    /// With room for [`pack::rows_room`] elements, if it is to be packed.
    #[inline(always)]
    pub fn new<S: Lanes<f32>>(
        s: S,
        a: MatRef<'a, f32>,
        in_place: bool,
        room: &'a mut [f32],
    ) -> Left<'a> {
        if in_place {
            assert!(a.is_inside());
            return Left::InPlace(a);
        }
        pack::rows(s, a, room);
        Left::Packed { data: room, rows: a.rows, k: a.cols }
    }

    /// Rows, and terms of the sum.
    pub fn size(&self) -> (usize, usize) {
        match self {
            Left::InPlace(a) => (a.rows, a.cols),
            Left::Packed { rows, k, .. } => (*rows, *k),
        }
    }

    /// Asks for `height` rows from row `i` on, if rows lie in order.
    #[inline(always)]
    pub fn fetch(&self, i: usize, height: usize) {
        if let Left::InPlace(a) = self {
            for i in i..i + height {
                for x in a.row(i).chunks(F32_LANES) {
                    prefetch(x.as_ptr());
                }
            }
        }
    }

    /// `height` rows from row `i` on, and the distances between their rows and columns.
    #[inline(always)]
    pub fn tile(&self, i: usize, height: usize) -> (&[f32], isize, isize) {
        match self {
            Left::InPlace(a) => {
                assert!(i + height <= a.rows);
                let a = a.part(i..i + height, 0..a.cols);
                (&a.data[a.offset..], a.row_stride, a.col_stride)
            }
            Left::Packed { data, rows, k } => {
                let (panel, in_panel) = (i / pack::HEIGHT, i % pack::HEIGHT);
                let step = pack::HEIGHT.min(rows - panel * pack::HEIGHT);
                (&data[panel * pack::panel_step(*k)..][in_panel..step * k], 1, step as isize)
            }
        }
    }
}

/// `0..n` in panels of at most `NV` vectors. None but the only one is a single vector, if it can
/// be helped: a tile that narrow has too few sums under way to keep the units busy.
pub(super) fn panels<const NV: usize>(n: usize) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let left = (n - start).div_ceil(F32_LANES);
        let vectors = if NV > 2 && left == NV + 1 { NV - 1 } else { left.min(NV) };
        let end = n.min(start + vectors * F32_LANES);
        let panel = start..end;
        start = end;
        (!panel.is_empty()).then_some(panel)
    })
}

/// Columns of the right matrix.
pub(super) struct Right<'a> {
    b: MatRef<'a, f32>,
    /// Whether panels that fill their vectors are read where they lie.
    in_place: bool,
    /// The others.
    packed: &'a [f32],
}

impl<'a> Right<'a> {
    /// With room for [`pack::columns_room`] elements.
    #[inline(always)]
    pub fn new<S: Lanes<f32>, const NV: usize>(
        s: S,
        b: MatRef<'a, f32>,
        in_place: bool,
        room: &'a mut [f32],
    ) -> Right<'a> {
        let mut whole = 0;
        if b.col_stride == 1 && !in_place {
            for cols in panels::<NV>(b.cols) {
                if cols.len() < NV * F32_LANES {
                    break;
                }
                whole = cols.end;
            }
        }
        pack::whole_panels::<S, NV>(s, b.part(0..b.rows, 0..whole), room);
        let right = |packed| Right { b, in_place, packed };
        for cols in panels::<NV>(b.cols) {
            if cols.start >= whole
                && let Some(at) = right(&[]).place(&cols)
            {
                pack::columns(s, b.part(0..b.rows, cols), &mut room[at..]);
            }
        }
        right(room)
    }

    /// Where a panel begins in what is packed, if it is.
    fn place(&self, cols: &Range<usize>) -> Option<usize> {
        match self.in_place {
            true if cols.len().is_multiple_of(F32_LANES) => None,
            true => Some(0), // the last one alone
            false => Some(cols.start * self.b.rows),
        }
    }

    pub fn panel(&self, cols: Range<usize>) -> Panel<'_> {
        let step = cols.len().next_multiple_of(F32_LANES);
        if let Some(at) = self.place(&cols) {
            return Panel { data: &self.packed[at..][..self.b.rows * step], step };
        }
        let b = self.b.part(0..self.b.rows, cols);
        Panel { data: &b.data[b.offset..], step: b.row_stride as usize }
    }
}

/// A panel of columns: row `p` begins at `p * step`.
pub(super) struct Panel<'a> {
    pub data: &'a [f32],
    pub step: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `b` `[k, n]` with rows at a distance is read in place by tiles of four vectors.
    fn in_place(m: usize, k: usize, n: usize, distance: usize) -> bool {
        let (a, b) = (vec![0.0; m * k], vec![0.0; k * distance]);
        let b = MatRef { cols: n, row_stride: distance as isize, ..MatRef::new(&b, k, distance) };
        columns_in_place::<4>(&MatRef::new(&a, m, k), &b)
    }

    #[test]
    fn panels_that_would_evict_themselves_are_packed() {
        for (m, k, distance, expected) in [
            (512, 384, 384, true),
            (512, 504, 504, true),
            (512, 512, 512, false), // 16 lines to a set of the second cache
            (256, 512, 512, false),
            (256, 256, 256, true),
            (512, 128, 512, true), // 4 lines to a set
            (6, 512, 512, true),   // every element is read once
            (516, 384, 384, false),
            (512, 512, 520, false), // rows are too far apart
            (4096, 32, 512, false), // 16 lines to a set of the first cache
            (4096, 16, 512, true),
            (4096, 64, 520, true),
        ] {
            assert_eq!(in_place(m, k, 384.min(distance), distance), expected, "{m} {k} {distance}");
        }
    }
}
