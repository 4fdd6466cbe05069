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

/// Whether columns of `b` are read where they lie, as far as they fill vectors: if rows lie in
/// order, and all of them stay in the first cache, or lie close together and are met by a few
/// rows only, or are read no more often than they would be copied.
pub(super) fn columns_in_place<const NV: usize>(a: &MatRef<'_, f32>, b: &MatRef<'_, f32>) -> bool {
    let short = b.rows <= SHORT && stay_cached(b.rows, b.row_stride);
    let few = a.rows <= TILE || a.rows <= FEW * NV && b.row_stride <= CLOSE;
    b.col_stride == 1 && b.row_stride >= 0 && (few || short)
}

/// Rows of a product that are few, for each vector of a panel.
const FEW: usize = 128;
/// The distance of rows that lie close together.
const CLOSE: isize = 512;

/// Terms of a sum that is short.
const SHORT: usize = 64;

/// Whether `n` cache lines at this distance find places in the first cache: lines a page apart
/// compete for the same ones.
fn stay_cached(n: usize, stride: isize) -> bool {
    const PAGE: usize = 1024;
    let places = PAGE >> stride.unsigned_abs().trailing_zeros().min(PAGE.trailing_zeros());
    n <= 8 * places
}

/// Rows of the left matrix.
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
                let a = a.part(i..i + height, 0..a.cols);
                assert!(a.is_inside());
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
        let is_whole = |cols: &Range<usize>| cols.len() == NV * F32_LANES;
        let whole = match b.col_stride {
            1 if !in_place => panels::<NV>(b.cols).take_while(is_whole).count(),
            _ => 0,
        };
        let whole = whole * NV * F32_LANES;
        pack::whole_panels::<S, NV>(s, b.part(0..b.rows, 0..whole), room);
        let right = |packed| Right { b, in_place, packed };
        for cols in panels::<NV>(b.cols).filter(|cols| cols.start >= whole) {
            if let Some(at) = right(&[]).place(&cols) {
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
