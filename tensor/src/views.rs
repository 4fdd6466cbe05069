//! Views of tensors: other layouts of the same storage.

use crate::element::Element;
use crate::error::{ErrorKind, OrPanic, Result, assert};
use crate::indexing::Indices;
use crate::layout::Layout;
use crate::shape::{Axes, IntoShape, Shape};
use crate::tensor::Tensor;
use std::ops::RangeBounds;

/// # Views
///
/// A view has the storage of the tensor and copies no elements.
impl<T: Element> Tensor<T> {
    /// The view whose layout `rule` computes from this tensor's layout.
    ///
    /// # Panics
    /// If the rule fails, or its layout exceeds the storage.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([1.0f32, 2.0, 3.0]);
    /// assert_eq!(x.view_by(|layout| layout.select("second", 0, 1)).item(), 2.0);
    /// ```
    #[track_caller]
    pub fn view_by(&self, rule: impl FnOnce(&Layout) -> Result<Layout>) -> Tensor<T> {
        let layout = rule(self.layout()).or_panic();
        assert(layout.fits(self.data().len()), "view_by", ErrorKind::Layout, || {
            format!("{layout:?} exceeds the storage")
        });
        self.view(layout)
    }

    /// The same elements in row-major order with another shape; one size may be
    /// [`INFER`](crate::INFER). A view if strides allow it, else a copy.
    ///
    /// # Panics
    /// If the number of elements differs.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::<f32>::ones([4, 6]);
    /// assert_eq!(*x.reshape([2, INFER]).shape(), [2, 12]);
    /// ```
    #[doc(alias = "view")]
    #[track_caller]
    pub fn reshape(&self, dims: impl AsRef<[usize]>) -> Tensor<T> {
        let shape = Shape::infer("reshape", self.shape(), dims.as_ref()).or_panic();
        match self.layout().reshape(shape) {
            Some(layout) => self.view(layout),
            None => self.contiguous().view(Layout::contiguous(shape)),
        }
    }

    /// All elements along a single axis.
    ///
    /// # Panics
    /// If a copy is necessary and there is not enough memory.
    #[track_caller]
    pub fn flatten(&self) -> Tensor<T> {
        self.reshape([self.numel()])
    }

    /// The tensor with two axes exchanged.
    #[track_caller]
    pub fn transpose(&self, a: isize, b: isize) -> Tensor<T> {
        self.view(self.layout().transpose("transpose", a, b).or_panic())
    }

    /// The tensor with the last two axes exchanged: the transpose of a matrix, or of each matrix of a batch.
    ///
    /// # Panics
    /// If there are fewer than two.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.t().to_vec(), [1.0, 3.0, 2.0, 4.0]);
    /// ```
    #[doc(alias = "mT")]
    #[track_caller]
    pub fn t(&self) -> Tensor<T> {
        self.view(self.layout().transpose("t", -2, -1).or_panic())
    }

    /// The tensor with permuted axes: axis `i` of the result is axis `axes[i]` of this.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// assert_eq!(*Tensor::<f32>::ones([2, 3, 5]).permute([2, 0, 1]).shape(), [5, 2, 3]);
    /// ```
    #[track_caller]
    pub fn permute(&self, axes: impl AsRef<[isize]>) -> Tensor<T> {
        self.view(self.layout().permute("permute", axes.as_ref()).or_panic())
    }

    /// The elements at indices of several axes: a tuple of integers, ranges, `..`,
    /// [`NewAxis`](crate::NewAxis) and others, see [`indexing`](crate::indexing). Negative numbers count
    /// from the end.
    ///
    /// # Panics
    /// If an index is outside its axis: ranges are not clamped.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::<i64>::arange(0, 24, 1).reshape([2, 3, 4]);
    /// assert_eq!(x.i((.., -1, 1..3)), Tensor::from([[9, 10], [21, 22]]));
    /// assert_eq!(x.i((1, Ellipsis, 0)).to_vec(), [12, 16, 20]);
    /// assert_eq!(x.i((0, 0, StepBy(.., -2))).to_vec(), [3, 1]);
    /// assert_eq!(*x.i((.., NewAxis, 1)).shape(), [2, 1, 4]);
    /// ```
    #[doc(alias = "index")]
    #[doc(alias = "__getitem__")]
    #[track_caller]
    pub fn i(&self, indices: impl Indices) -> Tensor<T> {
        self.view(self.layout().index("i", &indices.to_indices()).or_panic())
    }

    /// A range of an axis.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::<f32>::arange(0.0, 5.0, 1.0);
    /// assert_eq!(x.slice(0, 1..3).to_vec(), [1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If the range is outside the axis: ranges are not clamped.
    #[track_caller]
    pub fn slice(&self, axis: isize, range: impl RangeBounds<usize>) -> Tensor<T> {
        self.slice_step(axis, range, 1)
    }

    /// Every `step`-th element of a range; a negative step starts at the range's end.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([1.0f32, 2.0, 3.0, 4.0]);
    /// assert_eq!(x.slice_step(0, .., 2).to_vec(), [1.0, 3.0]);
    /// assert_eq!(x.slice_step(0, .., -1).to_vec(), [4.0, 3.0, 2.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn slice_step(
        &self,
        axis: isize,
        range: impl RangeBounds<usize>,
        step: isize,
    ) -> Tensor<T> {
        self.view(self.layout().slice_range("slice", axis, range, step).or_panic())
    }

    /// As [`Tensor::slice`] of the range `start..start + len`.
    #[track_caller]
    pub fn narrow(&self, axis: isize, start: usize, len: usize) -> Tensor<T> {
        let stop = start.saturating_add(len);
        self.view(self.layout().slice("narrow", axis, start, stop, 1).or_panic())
    }

    /// The tensor with axes reversed.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.flip(0).to_vec(), [3.0, 4.0, 1.0, 2.0]);
    /// assert_eq!(x.flip([0, 1]).to_vec(), [4.0, 3.0, 2.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn flip(&self, axes: impl Axes) -> Tensor<T> {
        self.view(self.layout().flip("flip", axes).or_panic())
    }

    /// The slice at one index of an axis, which is removed.
    #[track_caller]
    pub fn select(&self, axis: isize, index: usize) -> Tensor<T> {
        self.view(self.layout().select("select", axis, index).or_panic())
    }

    /// The tensor without an axis of size 1.
    #[track_caller]
    pub fn squeeze(&self, axis: isize) -> Tensor<T> {
        self.view(self.layout().squeeze("squeeze", axis).or_panic())
    }

    /// The tensor with a new axis of size 1 before `axis`; `-1` appends one.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::<f32>::ones([2, 3]);
    /// assert_eq!(*x.unsqueeze(0).shape(), [1, 2, 3]);
    /// assert_eq!(*x.unsqueeze(-1).shape(), [2, 3, 1]);
    /// ```
    #[doc(alias = "expand_dims")]
    #[track_caller]
    pub fn unsqueeze(&self, axis: isize) -> Tensor<T> {
        self.view(self.layout().unsqueeze("unsqueeze", axis).or_panic())
    }

    /// The tensor repeated along axes of size 1 and new leading axes, without copying.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1.0f32], [2.0]]);
    /// assert_eq!(x.broadcast_to([2, 3]).to_vec(), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
    /// ```
    #[doc(alias = "expand")]
    #[track_caller]
    pub fn broadcast_to(&self, shape: impl IntoShape) -> Tensor<T> {
        self.view(self.layout().broadcast_to("broadcast_to", &shape.into()).or_panic())
    }

    /// Splits the tensor into pieces of the given sizes along an axis.
    ///
    /// # Panics
    /// If the sizes do not add up to the size of the axis.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let parts = Tensor::from([1.0f32, 2.0, 3.0]).split(0, &[1, 2]);
    /// assert_eq!(parts[1].to_vec(), [2.0, 3.0]);
    /// ```
    #[track_caller]
    pub fn split(&self, axis: isize, sizes: &[usize]) -> Vec<Tensor<T>> {
        let size = self.size(axis);
        let total = sizes.iter().try_fold(0usize, |n, &s| n.checked_add(s));
        assert(total == Some(size), "split", ErrorKind::Mismatch, || {
            let shape = self.shape();
            format!("sizes {sizes:?} do not add up to {size}, axis {axis} of {shape:?}")
        });
        let mut start = 0;
        let piece = |&n: &usize| {
            start += n;
            self.narrow(axis, start - n, n)
        };
        sizes.iter().map(piece).collect()
    }

    /// Splits the tensor into `n` pieces of equal size along an axis; the last one may be smaller,
    /// and as in PyTorch there may be fewer than `n`.
    #[track_caller]
    pub fn chunk(&self, axis: isize, n: usize) -> Vec<Tensor<T>> {
        assert(n > 0, "chunk", ErrorKind::Value, || "needs at least 1 piece, got 0".into());
        let size = self.size(axis);
        let each = size.div_ceil(n).max(1);
        let starts = (0..size.max(1)).step_by(each);
        starts.map(|at| self.narrow(axis, at, each.min(size - at))).collect()
    }

    /// The elements `i, i + offset` of two axes, along a new last axis.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.diagonal(0, 1, 0).to_vec(), [1.0, 4.0]);
    /// ```
    #[track_caller]
    pub fn diagonal(&self, a: isize, b: isize, offset: isize) -> Tensor<T> {
        self.view(self.layout().diagonal("diagonal", a, b, offset).or_panic())
    }

    /// All windows of `size` elements, `step` apart, along an axis, which becomes the axis of windows; a
    /// new last axis is within the window.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([1.0f32, 2.0, 3.0]);
    /// assert_eq!(x.unfold(0, 2, 1).to_vec(), [1.0, 2.0, 2.0, 3.0]);
    /// ```
    #[track_caller]
    pub fn unfold(&self, axis: isize, size: usize, step: usize) -> Tensor<T> {
        self.view(self.layout().unfold("unfold", axis, size, step).or_panic())
    }
}

/// # Views of any layout
impl<T: Element> Tensor<T> {
    /// The elements at the positions of `layout`, counted in row-major order over `self`.
    ///
    /// Every view of a contiguous tensor is of this form.
    ///
    /// # Panics
    /// If the layout exceeds the tensor.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// use retrograd::tensor::layout::Layout;
    /// let x = Tensor::from([1.0f32, 2.0, 3.0]);
    /// let windows = Layout::contiguous([3].into()).unfold("windows", 0, 2, 1).unwrap();
    /// assert_eq!(x.as_strided(&windows).to_vec(), [1.0, 2.0, 2.0, 3.0]);
    /// ```
    #[track_caller]
    pub fn as_strided(&self, layout: &Layout) -> Tensor<T> {
        assert(layout.fits(self.numel()), "as_strided", ErrorKind::Layout, || {
            format!("{layout:?} exceeds the {} elements of {:?}", self.numel(), self.shape())
        });
        let whole = self.contiguous();
        whole.view(layout.shifted(whole.layout().offset()))
    }

    /// A view with one axis moved to the end.
    pub(crate) fn view_moved_last(&self, axis: usize) -> Tensor<T> {
        let mut order: Vec<isize> = (0..self.rank() as isize).collect();
        let moved = order.remove(axis);
        order.push(moved);
        self.permute(order)
    }

    /// The inverse of [`Tensor::view_moved_last`]: a view with the last axis moved to `axis`.
    pub(crate) fn view_moved_back(&self, axis: usize) -> Tensor<T> {
        let mut order: Vec<isize> = (0..self.rank() as isize - 1).collect();
        order.insert(axis, self.rank() as isize - 1);
        self.permute(order)
    }
}
