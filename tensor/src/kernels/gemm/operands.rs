//! The operands of a block: packed, or read in place.

use super::pack;
use super::params::{
    A_CLOSE, A_CLOSE_FEW_PASSES, A_FEW_COLUMNS, B_CLOSE, B_FEW_ROWS, B_SHORT, Cache, L1, L2, MR,
    MR_PACKED, lanes, scaled,
};
use crate::element::Float;
use crate::matrix::MatRef;
use crate::simd::{Lanes, prefetch_l2};
use std::marker::PhantomData;
use std::ops::Range;

/// Whether rows of `a` are read in place in a product of `n` columns: if they are contiguous, or if
/// the columns are contiguous and close together; they may be farther apart if few passes read
/// them.
#[inline]
pub(super) fn a_in_place<T>(a: &MatRef<'_, T>, n: usize) -> bool {
    let distance = a.col_stride.unsigned_abs();
    let close = distance <= if n <= A_FEW_COLUMNS { A_CLOSE_FEW_PASSES } else { A_CLOSE };
    a.col_stride == 1 || a.row_stride == 1 && close
}

/// Whether columns of `b` are read in place, as far as they fill vectors. Rows of `b` must be
/// contiguous, and one of these must hold:
///
/// * Sums are short, and a panel of columns stays in the L1 cache.
/// * `a` has few rows, rows of `b` are close together, and a panel stays in the L2 cache from one
///   tile to the next.
/// * `a` has the rows of one tile, so every element of `b` is read once, as it would be for
///   packing.
#[inline]
pub fn b_in_place<T, const NV: usize>(a: &MatRef<'_, T>, b: &MatRef<'_, T>) -> bool {
    let distance = b.row_stride.unsigned_abs();
    let short = b.rows <= B_SHORT && L1.holds::<T>(b.rows, distance);
    let few_rows =
        a.rows <= B_FEW_ROWS * NV && distance <= B_CLOSE && L2.holds::<T>(b.rows, distance);
    b.col_stride == 1 && b.row_stride >= 0 && (a.rows <= MR || few_rows || short)
}

impl Cache {
    /// Whether `n` lines at this distance stay in the cache. Lines at a distance that is a multiple
    /// of a large power of two share few sets.
    #[inline]
    fn holds<T>(&self, n: usize, distance: usize) -> bool {
        let period = scaled::<T>(self.period);
        let sets = period >> distance.trailing_zeros().min(period.trailing_zeros());
        n <= self.ways * sets
    }
}

/// A block of the left matrix, checked to be inside its slice.
pub(super) enum OperandA<'a, T> {
    InPlace(MatRef<'a, T>),
    Packed { data: &'a [T], rows: usize, k: usize },
}

impl<'a, T: Float> OperandA<'a, T> {
    /// The block, in place or packed into a buffer of [`pack::packed_a_len`] elements.
    #[inline(always)]
    pub fn new<S: Lanes<T>>(
        s: S,
        a: MatRef<'a, T>,
        in_place: bool,
        buffer: &'a mut [T],
    ) -> OperandA<'a, T> {
        if in_place {
            assert!(a.is_inside());
            return OperandA::InPlace(a);
        }
        pack::pack_a(s, a, buffer);
        OperandA::Packed { data: buffer, rows: a.rows, k: a.cols }
    }

    /// The number of rows, and of terms of the sum.
    #[inline(always)]
    pub fn size(&self) -> (usize, usize) {
        match self {
            OperandA::InPlace(a) => (a.rows, a.cols),
            OperandA::Packed { rows, k, .. } => (*rows, *k),
        }
    }

    /// Prefetches `height` rows from row `i` on, if they are read in place. Rows must be
    /// contiguous.
    #[inline(always)]
    pub fn prefetch(&self, i: usize, height: usize) {
        if let OperandA::InPlace(a) = self {
            for i in i..i + height {
                for x in a.row(i).chunks(lanes::<T>()) {
                    prefetch_l2(x.as_ptr());
                }
            }
        }
    }

    /// `height` rows from row `i` on, and the strides of their rows and columns.
    #[inline(always)]
    pub fn tile(&self, i: usize, height: usize) -> (&[T], isize, isize) {
        match self {
            OperandA::InPlace(a) => {
                assert!(i + height <= a.rows);
                let a = a.part(i..i + height, 0..a.cols);
                (&a.data[a.offset..], a.row_stride, a.col_stride)
            }
            OperandA::Packed { data, rows, k } => {
                let (panel, in_panel) = (i / MR_PACKED, i % MR_PACKED);
                let step = MR_PACKED.min(rows - panel * MR_PACKED);
                (&data[panel * pack::panel_step(*k)..][in_panel..step * k], 1, step as isize)
            }
        }
    }
}

/// `0..n` in panels of at most `NV` vectors. Where possible, no panel but the only one is a single
/// vector: such a narrow tile has too few independent accumulators to hide the latency of FMA.
#[inline(always)]
pub(super) fn panels<T, const NV: usize>(n: usize) -> Panels<T, NV> {
    Panels { start: 0, n, elements: PhantomData }
}

/// See [`panels`].
pub(super) struct Panels<T, const NV: usize> {
    start: usize,
    n: usize,
    elements: PhantomData<T>,
}

impl<T, const NV: usize> Iterator for Panels<T, NV> {
    type Item = Range<usize>;

    #[inline(always)]
    fn next(&mut self) -> Option<Range<usize>> {
        let remaining = (self.n - self.start).div_ceil(lanes::<T>());
        let vectors = if NV > 2 && remaining == NV + 1 { NV - 1 } else { remaining.min(NV) };
        let panel = self.start..self.n.min(self.start + vectors * lanes::<T>());
        self.start = panel.end;
        if panel.is_empty() { None } else { Some(panel) }
    }
}

/// A block of the right matrix, in panels of columns.
pub(super) struct OperandB<'a, T> {
    b: MatRef<'a, T>,
    /// Whether panels of whole vectors are read in place.
    in_place: bool,
    /// The packed panels.
    packed: &'a [T],
}

impl<'a, T: Float> OperandB<'a, T> {
    /// The block, its panels in place or packed into a buffer of [`pack::packed_b_len`] elements.
    #[inline(always)]
    pub fn new<S: Lanes<T>, const NV: usize>(
        s: S,
        b: MatRef<'a, T>,
        in_place: bool,
        buffer: &'a mut [T],
    ) -> OperandB<'a, T> {
        let mut whole = 0;
        if b.col_stride == 1 && !in_place {
            for cols in panels::<T, NV>(b.cols) {
                if cols.len() < NV * S::N {
                    break;
                }
                whole = cols.end;
            }
        }
        pack::whole_panels::<T, S, NV>(s, b.part(0..b.rows, 0..whole), buffer);
        let operand = |packed| OperandB { b, in_place, packed };
        for cols in panels::<T, NV>(b.cols) {
            if cols.start >= whole
                && let Some(at) = operand(&[]).packed_at(&cols)
            {
                pack::pack_panel(s, b.part(0..b.rows, cols), &mut buffer[at..]);
            }
        }
        operand(buffer)
    }

    /// The start of a panel in the packed elements, if it is packed.
    #[inline(always)]
    fn packed_at(&self, cols: &Range<usize>) -> Option<usize> {
        match self.in_place {
            true if cols.len().is_multiple_of(lanes::<T>()) => None,
            true => Some(0), // the last panel is the only packed one
            false => Some(cols.start * self.b.rows),
        }
    }

    /// The panel of columns `cols`.
    #[inline(always)]
    pub fn panel(&self, cols: Range<usize>) -> Panel<'_, T> {
        let step = cols.len().next_multiple_of(lanes::<T>());
        if let Some(at) = self.packed_at(&cols) {
            return Panel { data: &self.packed[at..][..self.b.rows * step], step };
        }
        let b = self.b.part(0..self.b.rows, cols);
        Panel { data: &b.data[b.offset..], step: b.row_stride as usize }
    }
}

/// A panel of columns: row `p` starts at `p * step`.
pub(super) struct Panel<'a, T> {
    pub data: &'a [T],
    pub step: usize,
}
