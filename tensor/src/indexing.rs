//! Indices of several axes at once: the argument of [`Tensor::i`](crate::Tensor::i).
//!
//! | index of an axis | meaning | in Python |
//! |---|---|---|
//! | `2`, `-1` | the element, counted from the end if negative; the axis is removed | `2`, `-1` |
//! | `1..3`, `1..`, `..-1`, `-3..`, `1..=-2` | a range, whose bounds may be counted from the end | `1:3`, `1:`, `:-1`, `-3:`, `1:-1` |
//! | `..` | the whole axis | `:` |
//! | `StepBy(1..7, 2)`, `StepBy(.., -1)` | every other element of a range; all, last first | `1:7:2`, `::-1` |
//! | [`Ellipsis`] | all axes that the other indices leave | `...` |
//! | [`NewAxis`] | a new axis of size 1 | `None` |
//!
//! Axes after the last index are whole. Ranges are not clamped: bounds outside the axis are an error.
//!
//! Clippy takes `1..-1` for an empty range of numbers, by the lint `reversed_empty_ranges`; programs that
//! use such ranges allow it.

use crate::error::{ErrorKind, Result, require};
use crate::layout::Layout;
use std::fmt;
use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// The index of one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisIndex {
    /// One element: the axis is removed.
    At(isize),
    /// Every `step`-th element of a range; a negative step starts at its end.
    Range {
        /// The first element.
        start: Bound<isize>,
        /// The last element, or the one after it.
        stop: Bound<isize>,
        /// The distance of elements, not 0.
        step: isize,
    },
    /// All axes that the other indices leave.
    Ellipsis,
    /// A new axis of size 1.
    NewAxis,
}

impl fmt::Display for AxisIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            AxisIndex::At(i) => write!(f, "{i}"),
            AxisIndex::Range { start, stop, step } => {
                match start {
                    Bound::Included(i) => write!(f, "{i}")?,
                    Bound::Excluded(i) => write!(f, "{i}<")?,
                    Bound::Unbounded => {}
                }
                f.write_str("..")?;
                match stop {
                    Bound::Included(i) => write!(f, "={i}")?,
                    Bound::Excluded(i) => write!(f, "{i}")?,
                    Bound::Unbounded => {}
                }
                if step != 1 { write!(f, " by {step}") } else { Ok(()) }
            }
            AxisIndex::Ellipsis => f.write_str("Ellipsis"),
            AxisIndex::NewAxis => f.write_str("NewAxis"),
        }
    }
}

/// All axes that the other indices leave: Python's `...`.
#[derive(Clone, Copy, Debug)]
pub struct Ellipsis;

/// A new axis of size 1: Python's `None`.
#[derive(Clone, Copy, Debug)]
pub struct NewAxis;

/// Every `n`-th element of a range: `StepBy(range, n)`; a negative `n` starts at the end of the range.
#[derive(Clone, Copy, Debug)]
pub struct StepBy<R>(pub R, pub isize);

/// What can be the index of one axis: an integer, a range, [`StepBy`], [`Ellipsis`] or [`NewAxis`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no index of an axis",
    label = "not an integer, a range of integers, `StepBy`, `Ellipsis` or `NewAxis`",
    note = "several indices are a tuple: `x.i((.., -1, 1..3))`",
    note = "by a tensor of indices, `index_select` and `gather` select; by a mask, `masked_select`"
)]
pub trait ToAxisIndex {
    /// The index.
    fn to_axis_index(&self) -> AxisIndex;
}

/// An integer that is an index or a bound.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no index",
    label = "not `i32`, `i64`, `isize` or `usize`"
)]
pub trait IndexInteger: Copy {
    /// The index; one that does not fit is outside every axis, and stays so.
    fn to_index(self) -> isize;
}

macro_rules! integers {
    ($($t:ty)+) => {$(
        impl IndexInteger for $t {
            #[allow(irrefutable_let_patterns)]
            fn to_index(self) -> isize {
                let outside = if self > 0 as $t { isize::MAX } else { isize::MIN };
                self.try_into().unwrap_or(outside)
            }
        }

        impl ToAxisIndex for $t {
            fn to_axis_index(&self) -> AxisIndex {
                AxisIndex::At(self.to_index())
            }
        }
    )+};
}

integers!(i32 i64 isize usize);

macro_rules! ranges {
    ($($range:ty: |$r:ident| $start:expr, $stop:expr;)+) => {$(
        impl<I: IndexInteger> ToAxisIndex for $range {
            fn to_axis_index(&self) -> AxisIndex {
                let $r = self;
                AxisIndex::Range { start: $start, stop: $stop, step: 1 }
            }
        }
    )+};
}

ranges! {
    Range<I>: |r| Bound::Included(r.start.to_index()), Bound::Excluded(r.end.to_index());
    RangeFrom<I>: |r| Bound::Included(r.start.to_index()), Bound::Unbounded;
    RangeTo<I>: |r| Bound::Unbounded, Bound::Excluded(r.end.to_index());
    RangeInclusive<I>: |r| Bound::Included(r.start().to_index()), Bound::Included(r.end().to_index());
    RangeToInclusive<I>: |r| Bound::Unbounded, Bound::Included(r.end.to_index());
}

impl ToAxisIndex for RangeFull {
    fn to_axis_index(&self) -> AxisIndex {
        AxisIndex::Range { start: Bound::Unbounded, stop: Bound::Unbounded, step: 1 }
    }
}

impl<R: ToAxisIndex> ToAxisIndex for StepBy<R> {
    /// # Panics
    /// If the index is not a range.
    #[track_caller]
    fn to_axis_index(&self) -> AxisIndex {
        match self.0.to_axis_index() {
            AxisIndex::Range { start, stop, step } => {
                AxisIndex::Range { start, stop, step: step.saturating_mul(self.1) }
            }
            other => panic!("StepBy: {other} is no range"),
        }
    }
}

impl ToAxisIndex for Ellipsis {
    fn to_axis_index(&self) -> AxisIndex {
        AxisIndex::Ellipsis
    }
}

impl ToAxisIndex for NewAxis {
    fn to_axis_index(&self) -> AxisIndex {
        AxisIndex::NewAxis
    }
}

impl ToAxisIndex for AxisIndex {
    fn to_axis_index(&self) -> AxisIndex {
        *self
    }
}

/// What [`Tensor::i`](crate::Tensor::i) takes: the index of one axis, a tuple of up to eight, or a slice of
/// [`AxisIndex`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no index of a tensor",
    label = "neither the index of an axis nor a tuple of such",
    note = "indices are integers, ranges of integers, `StepBy`, `Ellipsis` and `NewAxis`: \
            `x.i((.., -1, 1..3))`"
)]
pub trait Indices {
    /// The index of each axis.
    #[track_caller]
    fn to_indices(&self) -> Vec<AxisIndex>;
}

impl<I: ToAxisIndex> Indices for I {
    #[track_caller]
    fn to_indices(&self) -> Vec<AxisIndex> {
        vec![self.to_axis_index()]
    }
}

impl Indices for &[AxisIndex] {
    fn to_indices(&self) -> Vec<AxisIndex> {
        self.to_vec()
    }
}

macro_rules! tuples {
    ($($A:ident)+) => {
        impl<$($A: ToAxisIndex),+> Indices for ($($A,)+) {
            #[track_caller]
            #[allow(non_snake_case)]
            fn to_indices(&self) -> Vec<AxisIndex> {
                let ($($A,)+) = self;
                vec![$($A.to_axis_index()),+]
            }
        }
    };
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);

impl Layout {
    /// The layout of the elements at the given indices.
    ///
    /// ```
    /// use retrograd::tensor::{indexing::Indices, layout::Layout};
    /// let layout = Layout::contiguous([2, 3, 5].into());
    /// let view = layout.index("i", &(.., -1, 1..3).to_indices()).unwrap();
    /// assert_eq!((view.shape().to_vec(), view.offset()), (vec![2, 2], 11));
    /// ```
    pub fn index(&self, op: &'static str, indices: &[AxisIndex]) -> Result<Layout> {
        let takes = |index: &&AxisIndex| !matches!(index, AxisIndex::Ellipsis | AxisIndex::NewAxis);
        let taken = indices.iter().filter(takes).count();
        let (shape, rank) = (self.shape(), self.shape().rank());
        require(taken <= rank, op, ErrorKind::Rank, || {
            format!("{taken} indices for {shape:?}, which has rank {rank}")
        })?;
        let ellipses = indices.iter().filter(|i| **i == AxisIndex::Ellipsis).count();
        require(ellipses <= 1, op, ErrorKind::Value, || {
            format!("{ellipses} ellipses: it would not be known which axes each stands for")
        })?;
        // The axis of the result, and that of this layout, which the next index is for.
        let (mut out, mut to, mut from) = (*self, 0, 0);
        for &index in indices {
            match index {
                AxisIndex::At(i) => {
                    let at = resolve(i, shape[from]).filter(|&at| at < shape[from]);
                    out = out.select(op, to, at.ok_or_else(|| outside(op, index, self, from))?)?;
                    from += 1;
                }
                AxisIndex::Range { start, stop, step } => {
                    let size = shape[from];
                    let bounds = first(start, size).zip(end(stop, size));
                    let bounds = bounds.filter(|&(start, stop)| start <= stop && stop <= size);
                    let (start, stop) = bounds.ok_or_else(|| outside(op, index, self, from))?;
                    out = out.slice(op, to, start, stop, step)?;
                    (from, to) = (from + 1, to + 1);
                }
                AxisIndex::Ellipsis => {
                    (from, to) = (from + rank - taken, to + (rank - taken) as isize);
                }
                AxisIndex::NewAxis => {
                    out = out.unsqueeze(op, to)?;
                    to += 1;
                }
            }
        }
        Ok(out)
    }
}

/// A position on an axis, from its end if it is negative; `None` if it is before the start.
fn resolve(i: isize, size: usize) -> Option<usize> {
    if i < 0 { size.checked_sub(i.unsigned_abs()) } else { Some(i as usize) }
}

/// The position of the first element of a range.
fn first(bound: Bound<isize>, size: usize) -> Option<usize> {
    match bound {
        Bound::Included(i) => resolve(i, size),
        Bound::Excluded(i) => resolve(i, size)?.checked_add(1),
        Bound::Unbounded => Some(0),
    }
}

/// The position after the last element of a range.
fn end(bound: Bound<isize>, size: usize) -> Option<usize> {
    match bound {
        Bound::Included(i) => resolve(i, size)?.checked_add(1),
        Bound::Excluded(i) => resolve(i, size),
        Bound::Unbounded => Some(size),
    }
}

fn outside(
    op: &'static str,
    index: AxisIndex,
    layout: &Layout,
    axis: usize,
) -> crate::error::ShapeError {
    let shape = layout.shape();
    let text = format!("{index} is outside 0..{} on axis {axis} of {shape:?}", shape[axis]);
    crate::error::ShapeError::new(op, ErrorKind::Index, text)
}
