//! Layouts: shape, strides and offset of a tensor in its storage. Views are arithmetic on layouts.

use crate::error::{ErrorKind, Result, ShapeError, require};
use crate::shape::{Axes, MAX_RANK, Shape};
use std::ops::{Bound, RangeBounds};

/// A shape, a stride per axis and an offset, all in elements.
///
/// The element at index `i` is at `offset + Σ iₖ·strideₖ` of its storage. Strides may be
/// negative (flipped), zero (expanded) or anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    shape: Shape,
    strides: [isize; MAX_RANK],
    offset: usize,
}

impl Layout {
    /// The row-major layout without gaps, at offset 0.
    ///
    /// ```
    /// use retrograd::tensor::layout::Layout;
    /// assert_eq!(Layout::contiguous([2, 3].into()).strides(), [3, 1]);
    /// ```
    #[inline]
    pub fn contiguous(shape: Shape) -> Layout {
        let mut strides = [0; MAX_RANK];
        let mut step = 1isize;
        for i in (0..shape.rank()).rev() {
            strides[i] = step;
            step *= shape[i].max(1) as isize;
        }
        Layout { shape, strides, offset: 0 }
    }

    /// The shape.
    #[inline]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The stride of each axis, in elements.
    #[inline]
    pub fn strides(&self) -> &[isize] {
        &self.strides[..self.shape.rank()]
    }

    /// The number of different elements: those along axes of stride 0 are the same.
    pub(crate) fn distinct(&self) -> usize {
        let sizes = self.shape.iter().zip(self.strides());
        sizes.map(|(&size, &stride)| if stride == 0 { size.min(1) } else { size }).product()
    }

    /// The offset of the element at index 0, 0, ...
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Whether the elements are in row-major order without gaps. Strides of axes of size 1 do not
    /// matter; a tensor without elements is contiguous.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        let mut step = 1isize;
        for i in (0..self.shape.rank()).rev() {
            match self.shape[i] {
                0 => return true,
                1 => {}
                d => {
                    if self.strides[i] != step {
                        return false;
                    }
                    step *= d as isize;
                }
            }
        }
        true
    }

    /// Whether every element is inside a storage of `len` elements.
    pub fn fits(&self, len: usize) -> bool {
        if self.shape.numel() == 0 {
            return true;
        }
        let (mut first, mut last) = (self.offset as i128, self.offset as i128);
        for (&d, &s) in self.shape.iter().zip(self.strides()) {
            let far = (d as i128 - 1) * s as i128;
            first += far.min(0);
            last += far.max(0);
        }
        first >= 0 && last < len as i128
    }

    /// Whether it is certain that every element has a position of its own: ordered by their strides, the
    /// elements of each axis are further apart than those of all axes before reach. That holds for views
    /// by ranges of a contiguous layout, in any order of the axes; not if an axis is expanded.
    ///
    /// ```
    /// use retrograd::tensor::layout::Layout;
    /// let layout = Layout::contiguous([4].into());
    /// assert!(layout.slice("every other", 0, 0, 4, -2).unwrap().is_injective());
    /// assert!(!layout.unfold("windows", 0, 2, 1).unwrap().is_injective());
    /// ```
    pub fn is_injective(&self) -> bool {
        if self.shape.numel() == 0 {
            return true;
        }
        let axes = self.shape.iter().zip(self.strides()).filter(|&(&size, _)| size > 1);
        let mut axes: Vec<(usize, usize)> = axes.map(|(&d, s)| (s.unsigned_abs(), d)).collect();
        axes.sort_unstable();
        let mut reach = 0usize;
        axes.into_iter().all(|(stride, size)| {
            let apart = stride > reach;
            reach = reach.saturating_add((size - 1).saturating_mul(stride));
            apart
        })
    }

    /// The position in the storage of the element at an index.
    pub fn position(&self, op: &'static str, index: &[usize]) -> Result<usize> {
        require(index.len() == self.shape.rank(), op, ErrorKind::Rank, || {
            format!(
                "index {index:?} has {} axes, {:?} has {}",
                index.len(),
                self.shape,
                self.shape.rank()
            )
        })?;
        let mut at = self.offset as isize;
        for (axis, (&i, &d)) in index.iter().zip(self.shape.iter()).enumerate() {
            require(i < d, op, ErrorKind::Index, || {
                format!("index {i} is outside 0..{d} on axis {axis} of {:?}", self.shape)
            })?;
            at += i as isize * self.strides[axis];
        }
        Ok(at as usize)
    }

    /// The layout with permuted axes.
    pub fn permute(&self, op: &'static str, axes: &[isize]) -> Result<Layout> {
        let rank = self.shape.rank();
        require(axes.len() == rank, op, ErrorKind::Rank, || {
            format!("{axes:?} names {} axes, {:?} has {rank}", axes.len(), self.shape)
        })?;
        let mut seen = [false; MAX_RANK];
        let mut out = *self;
        let mut dims = [0; MAX_RANK];
        for (to, &axis) in axes.iter().enumerate() {
            let from = self.shape.axis(op, axis)?;
            require(!std::mem::replace(&mut seen[from], true), op, ErrorKind::Axis, || {
                format!("axis {axis} of {:?} is named twice in {axes:?}", self.shape)
            })?;
            dims[to] = self.shape[from];
            out.strides[to] = self.strides[from];
        }
        out.shape = Shape::checked(op, &dims[..rank])?;
        Ok(out)
    }

    /// The layout with two axes exchanged.
    pub fn transpose(&self, op: &'static str, a: isize, b: isize) -> Result<Layout> {
        let (a, b) = (self.shape.axis(op, a)?, self.shape.axis(op, b)?);
        let mut order: Vec<isize> = (0..self.shape.rank() as isize).collect();
        order.swap(a, b);
        self.permute(op, &order)
    }

    /// Every `step`-th element of `start..stop` along an axis; a negative step starts at
    /// `stop - 1`, so `slice(axis, 0, n, -1)` flips.
    ///
    /// ```
    /// use retrograd::tensor::layout::Layout;
    /// let layout = Layout::contiguous([2, 3].into());
    /// let every_other = layout.slice("slice", 1, 0, 3, 2).unwrap();
    /// assert_eq!((every_other.strides(), every_other.shape()[1]), (&[3, 2][..], 2));
    /// ```
    pub fn slice(
        &self,
        op: &'static str,
        axis: isize,
        start: usize,
        stop: usize,
        step: isize,
    ) -> Result<Layout> {
        let axis = self.shape.axis(op, axis)?;
        let size = self.shape[axis];
        require(step != 0, op, ErrorKind::Value, || "a step of 0 never ends".into())?;
        require(start <= stop && stop <= size, op, ErrorKind::Index, || {
            format!("{start}..{stop} is outside 0..{size} on axis {axis} of {:?}", self.shape)
        })?;
        let mut out = *self;
        let count = (stop - start).div_ceil(step.unsigned_abs());
        out.shape = self.shape.with(axis, count)?;
        if count > 0 {
            let first = if step > 0 { start } else { stop - 1 };
            out.offset = self.offset_at(first, axis);
        }
        // A stride is only ever multiplied by an index below `count`; with at most one
        // element it is never used, and must not overflow either.
        out.strides[axis] = if count > 1 { self.strides[axis] * step } else { 0 };
        Ok(out)
    }

    /// [`Layout::slice`] with a range that may be unbounded.
    pub fn slice_range(
        &self,
        op: &'static str,
        axis: isize,
        range: impl RangeBounds<usize>,
        step: isize,
    ) -> Result<Layout> {
        let start = match range.start_bound() {
            Bound::Included(&i) => i,
            Bound::Excluded(&i) => i.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let stop = match range.end_bound() {
            Bound::Included(&i) => i.saturating_add(1),
            Bound::Excluded(&i) => i,
            Bound::Unbounded => self.shape[self.shape.axis(op, axis)?],
        };
        self.slice(op, axis, start, stop, step)
    }

    /// The layout with axes reversed.
    pub fn flip(&self, op: &'static str, axes: impl Axes) -> Result<Layout> {
        axes.resolve(op, &self.shape)?.iter().try_fold(*self, |layout, axis| {
            layout.slice(op, axis as isize, 0, self.shape[axis], -1)
        })
    }

    /// The layout at one index of an axis, which is removed.
    pub fn select(&self, op: &'static str, axis: isize, index: usize) -> Result<Layout> {
        let axis = self.shape.axis(op, axis)?;
        let size = self.shape[axis];
        require(index < size, op, ErrorKind::Index, || {
            format!("index {index} is outside 0..{size} on axis {axis} of {:?}", self.shape)
        })?;
        Ok(Layout { offset: self.offset_at(index, axis), ..self.without(axis) })
    }

    /// The layout without an axis of size 1.
    pub fn squeeze(&self, op: &'static str, axis: isize) -> Result<Layout> {
        let axis = self.shape.axis(op, axis)?;
        require(self.shape[axis] == 1, op, ErrorKind::Mismatch, || {
            format!("axis {axis} of {:?} has size {}, not 1", self.shape, self.shape[axis])
        })?;
        Ok(self.without(axis))
    }

    /// The layout with a new axis of size 1 before `axis`; `-1` appends one.
    pub fn unsqueeze(&self, op: &'static str, axis: isize) -> Result<Layout> {
        let rank = self.shape.rank();
        let at = if axis < 0 { axis + rank as isize + 1 } else { axis };
        require((0..=rank as isize).contains(&at), op, ErrorKind::Axis, || {
            format!("axis {axis} is out of range for a new axis of {:?}", self.shape)
        })?;
        let at = at as usize;
        let mut dims = self.shape.to_vec();
        dims.insert(at, 1);
        let mut out = Layout { shape: Shape::checked(op, &dims)?, ..*self };
        out.strides.copy_within(at..MAX_RANK - 1, at + 1);
        out.strides[at] = 0;
        Ok(out)
    }

    /// The layout broadcast to `shape`: axes of size 1 and missing leading axes have stride 0.
    pub fn broadcast_to(&self, op: &'static str, shape: &Shape) -> Result<Layout> {
        let missing = shape.rank().checked_sub(self.shape.rank());
        let fits = missing.is_some_and(|m| {
            self.shape.iter().zip(&shape[m..]).all(|(&from, &to)| from == to || from == 1)
        });
        let Some(missing) = missing.filter(|_| fits) else {
            let text = format!("{:?} does not broadcast to {shape:?}", self.shape);
            return Err(ShapeError::new(op, ErrorKind::Broadcast, text));
        };
        let mut strides = [0; MAX_RANK];
        for (i, &from) in self.shape.iter().enumerate() {
            strides[missing + i] = if from == shape[missing + i] { self.strides[i] } else { 0 };
        }
        Ok(Layout { shape: *shape, strides, offset: self.offset })
    }

    /// The same elements in the same order with another shape; `None` if no strides express it, so
    /// that the elements must be copied.
    ///
    /// ```
    /// use retrograd::tensor::layout::Layout;
    /// let layout = Layout::contiguous([2, 3].into());
    /// assert_eq!(*layout.reshape([6].into()).unwrap().shape(), [6]);
    /// let t = layout.transpose("t", 0, 1).unwrap();
    /// assert!(t.reshape([6].into()).is_none()); // requires a copy
    /// ```
    pub fn reshape(&self, shape: Shape) -> Option<Layout> {
        assert_eq!(self.shape.numel(), shape.numel());
        if self.shape.numel() == 0 {
            return Some(Layout { offset: self.offset, ..Layout::contiguous(shape) });
        }
        let mut out = Layout { shape, strides: [0; MAX_RANK], offset: self.offset };
        // Groups of old axes that are adjacent in memory, innermost first, each of which must be
        // the product of new axes.
        let mut old = (0..self.shape.rank()).rev().filter(|&i| self.shape[i] != 1).peekable();
        let mut new = (0..shape.rank()).rev().filter(|&i| shape[i] != 1).peekable();
        while let Some(i) = old.next() {
            let (mut size, step) = (self.shape[i], self.strides[i]);
            while let Some(&o) = old.peek() {
                if self.strides[o] != step * size as isize {
                    break;
                }
                size *= self.shape[o];
                old.next();
            }
            let mut step = step;
            while size > 1 {
                let n = new.next()?;
                if size % shape[n] != 0 {
                    return None;
                }
                out.strides[n] = step;
                step *= shape[n] as isize;
                size /= shape[n];
            }
        }
        Some(out)
    }

    /// The elements `i, i + offset` of two axes, as a new last axis.
    pub fn diagonal(&self, op: &'static str, a: isize, b: isize, offset: isize) -> Result<Layout> {
        let (a, b) = (self.shape.axis(op, a)?, self.shape.axis(op, b)?);
        require(a != b, op, ErrorKind::Axis, || {
            format!("axis {a} of {:?} is named twice", self.shape)
        })?;
        let (skip_a, skip_b) = (offset.min(0).unsigned_abs(), offset.max(0).unsigned_abs());
        let len = self.shape[a].saturating_sub(skip_a).min(self.shape[b].saturating_sub(skip_b));
        let rest = self.without(a.max(b)).without(a.min(b));
        let mut dims = rest.shape.to_vec();
        dims.push(len);
        let mut out = Layout { shape: Shape::checked(op, &dims)?, ..rest };
        out.strides[dims.len() - 1] = if len > 1 { self.strides[a] + self.strides[b] } else { 0 };
        if len > 0 {
            // With an element, the skips are less than the sizes.
            out.offset = Layout { offset: self.offset_at(skip_a, a), ..*self }.offset_at(skip_b, b);
        }
        Ok(out)
    }

    /// Windows of `size` elements every `step` along an axis; a new last axis is within the window.
    pub fn unfold(
        &self,
        op: &'static str,
        axis: isize,
        size: usize,
        step: usize,
    ) -> Result<Layout> {
        let axis = self.shape.axis(op, axis)?;
        require(step > 0 && size <= self.shape[axis], op, ErrorKind::Value, || {
            format!("windows of {size} every {step} do not fit axis {axis} of {:?}", self.shape)
        })?;
        let count = (self.shape[axis] - size) / step + 1;
        let mut dims = self.shape.to_vec();
        dims[axis] = count;
        dims.push(size);
        let mut out = Layout { shape: Shape::checked(op, &dims)?, ..*self };
        out.strides[axis] = if count > 1 { self.strides[axis] * step as isize } else { 0 };
        out.strides[dims.len() - 1] = self.strides[axis];
        Ok(out)
    }

    /// The layout shifted by `by` elements.
    pub(crate) fn shifted(&self, by: usize) -> Layout {
        Layout { offset: self.offset + by, ..*self }
    }

    /// The offset of an index of an axis. That of an empty tensor is not used, and stays.
    fn offset_at(&self, index: usize, axis: usize) -> usize {
        match self.shape.numel() {
            0 => self.offset,
            _ => (self.offset as isize + index as isize * self.strides[axis]) as usize,
        }
    }

    fn without(&self, axis: usize) -> Layout {
        let mut strides = self.strides;
        strides.copy_within(axis + 1..MAX_RANK, axis);
        strides[MAX_RANK - 1] = 0;
        Layout { shape: self.shape.without(axis), strides, offset: self.offset }
    }
}
