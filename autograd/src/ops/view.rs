//! Views. Their adjoints are views too, or put elements back where they came from.

use crate::node::{Backward, Cx, Grads};
use crate::var::Var;
use retrograd_tensor::error::{OrPanic, Result};
use retrograd_tensor::layout::Layout;
use retrograd_tensor::shape::inverse_order;
use retrograd_tensor::{Real, Shape};
use std::ops::RangeBounds;

#[derive(Debug)]
struct Reshape;

impl<T: Real> Backward<T> for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![Some(g.reshape(cx.input_shape(0)))]
    }
}

#[derive(Debug)]
struct Permute {
    back: Vec<isize>,
}

impl<T: Real> Backward<T> for Permute {
    fn name(&self) -> &'static str {
        "permute"
    }
    fn backward(&self, _: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![Some(g.permute(&self.back))]
    }
}

/// The engine sums the gradient to the shape of the input; there is nothing left to do.
#[derive(Debug)]
struct Broadcast;

impl<T: Real> Backward<T> for Broadcast {
    fn name(&self) -> &'static str {
        "broadcast_to"
    }
    fn backward(&self, _: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![Some(g.clone())]
    }
}

/// Any other view, as a layout over the contiguous elements of its input.
#[derive(Debug)]
struct Strided {
    name: &'static str,
    layout: Layout,
}

impl<T: Real> Backward<T> for Strided {
    fn name(&self) -> &'static str {
        self.name
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![Some(g.as_strided_adjoint(*cx.input_shape(0), self.layout))]
    }
}

/// The adjoint of a view; and the view is the adjoint of this.
#[derive(Debug)]
struct StridedAdjoint {
    layout: Layout,
}

impl<T: Real> Backward<T> for StridedAdjoint {
    fn name(&self) -> &'static str {
        "as_strided_adjoint"
    }
    fn backward(&self, _: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![Some(g.as_strided(self.layout))]
    }
}

impl<T: Real> Var<T> {
    /// The view that `f` makes of a contiguous layout of this shape.
    #[track_caller]
    fn strided(&self, name: &'static str, f: impl Fn(&Layout) -> Result<Layout>) -> Var<T> {
        let layout = f(&Layout::contiguous(*self.shape())).or_panic();
        Var::from_op(self.value().view_by(f), &[self], |_| Strided { name, layout })
    }

    /// The elements where `layout` says, counting in row-major order.
    #[track_caller]
    pub fn as_strided(&self, layout: Layout) -> Var<T> {
        let value = self.value().as_strided(&layout);
        Var::from_op(value, &[self], |_| Strided { name: "as_strided", layout })
    }

    /// The adjoint of [`Var::as_strided`]: a variable of `shape`, 0 but where `layout`
    /// points, where the elements of `self` are added.
    #[track_caller]
    pub fn as_strided_adjoint(&self, shape: Shape, layout: Layout) -> Var<T> {
        let value = self.value().as_strided_adjoint(shape, &layout);
        Var::from_op(value, &[self], |_| StridedAdjoint { layout })
    }

    /// The same elements in row-major order under another shape; one size may be
    /// [`INFER`](retrograd_tensor::INFER).
    #[track_caller]
    pub fn reshape(&self, dims: impl AsRef<[usize]>) -> Var<T> {
        Var::from_op(self.value().reshape(dims), &[self], |_| Reshape)
    }

    /// All elements along one axis.
    #[track_caller]
    pub fn flatten(&self) -> Var<T> {
        self.reshape([self.value().numel()])
    }

    /// Axes in another order: axis `i` of the result is axis `axes[i]` of this.
    #[track_caller]
    pub fn permute(&self, axes: impl AsRef<[isize]>) -> Var<T> {
        let axes = axes.as_ref();
        let value = self.value().permute(axes);
        Var::from_op(value, &[self], |_| {
            let from_0 = |&axis| self.shape().axis("permute", axis).or_panic() as isize;
            let order: Vec<isize> = axes.iter().map(from_0).collect();
            Permute { back: inverse_order(&order) }
        })
    }

    /// Two axes exchanged.
    #[track_caller]
    pub fn transpose(&self, a: isize, b: isize) -> Var<T> {
        let (a, b) = (self.shape().axis("transpose", a), self.shape().axis("transpose", b));
        let mut order: Vec<isize> = (0..self.rank() as isize).collect();
        order.swap(a.or_panic(), b.or_panic());
        self.permute(order)
    }

    /// The last two axes exchanged.
    #[track_caller]
    pub fn t(&self) -> Var<T> {
        self.transpose(-2, -1)
    }

    /// Repeated along axes of size 1 and new leading axes.
    #[track_caller]
    pub fn broadcast_to(&self, shape: impl Into<Shape>) -> Var<T> {
        let shape = shape.into();
        if *self.shape() == shape {
            return self.unchanged();
        }
        Var::from_op(self.value().broadcast_to(shape), &[self], |_| Broadcast)
    }

    /// Without an axis of size 1.
    #[track_caller]
    pub fn squeeze(&self, axis: isize) -> Var<T> {
        let value = self.value().squeeze(axis);
        Var::from_op(value, &[self], |_| Reshape)
    }

    /// With a new axis of size 1 before `axis`; `-1` appends one.
    #[track_caller]
    pub fn unsqueeze(&self, axis: isize) -> Var<T> {
        let value = self.value().unsqueeze(axis);
        Var::from_op(value, &[self], |_| Reshape)
    }

    /// A range of an axis.
    #[track_caller]
    pub fn slice(&self, axis: isize, range: impl RangeBounds<usize> + Clone) -> Var<T> {
        self.slice_step(axis, range, 1)
    }

    /// Every `step`-th element of a range; a negative step starts at the range's end.
    #[track_caller]
    pub fn slice_step(
        &self,
        axis: isize,
        range: impl RangeBounds<usize> + Clone,
        step: isize,
    ) -> Var<T> {
        self.strided("slice", |layout| layout.slice_range("slice", axis, range.clone(), step))
    }

    /// `len` elements of an axis from `start`.
    #[track_caller]
    pub fn narrow(&self, axis: isize, start: usize, len: usize) -> Var<T> {
        let stop = start.saturating_add(len);
        self.strided("narrow", |layout| layout.slice("narrow", axis, start, stop, 1))
    }

    /// An axis reversed.
    #[track_caller]
    pub fn flip(&self, axis: isize) -> Var<T> {
        self.slice_step(axis, .., -1)
    }

    /// One index of an axis, which vanishes.
    #[track_caller]
    pub fn select(&self, axis: isize, index: usize) -> Var<T> {
        self.strided("select", |layout| layout.select("select", axis, index))
    }

    /// The elements `i, i + offset` of two axes, along a new last axis.
    #[track_caller]
    pub fn diagonal(&self, offset: isize, a: isize, b: isize) -> Var<T> {
        self.strided("diagonal", |layout| layout.diagonal("diagonal", offset, a, b))
    }

    /// Windows of `size` elements every `step` along an axis, which then counts windows; a
    /// new last axis runs inside the window.
    #[track_caller]
    pub fn unfold(&self, axis: isize, size: usize, step: usize) -> Var<T> {
        self.strided("unfold", |layout| layout.unfold("unfold", axis, size, step))
    }

    /// Cut into pieces of the given sizes along an axis.
    ///
    /// # Panics
    /// If the sizes do not add up to that of the axis.
    #[track_caller]
    pub fn split(&self, axis: isize, sizes: &[usize]) -> Vec<Var<T>> {
        let size = self.size(axis);
        let total = sizes.iter().try_fold(0usize, |n, &s| n.checked_add(s));
        assert!(
            total == Some(size),
            "split: sizes {sizes:?} do not add up to {size}, axis {axis} of {:?}",
            self.shape()
        );
        let mut start = 0;
        let piece = |&n: &usize| {
            start += n;
            self.narrow(axis, start - n, n)
        };
        sizes.iter().map(piece).collect()
    }

    /// Cut into `n` pieces along an axis, of equal size but for a smaller last one; as in
    /// PyTorch there may be fewer than `n`.
    #[track_caller]
    pub fn chunk(&self, n: usize, axis: isize) -> Vec<Var<T>> {
        assert!(n > 0, "chunk: needs at least 1 piece, got 0");
        let size = self.size(axis);
        let each = size.div_ceil(n).max(1);
        let starts = (0..size.max(1)).step_by(each);
        starts.map(|at| self.narrow(axis, at, each.min(size - at))).collect()
    }
}
