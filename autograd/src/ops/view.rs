//! Views. Their adjoints are views too, or put elements back where they came from.

use crate::graph::{InputGrads, Var};
use crate::op::{Kind, Op};
use retrograd_tensor::error::{OrPanic, Result};
use retrograd_tensor::indexing::Indices;
use retrograd_tensor::layout::Layout;
use retrograd_tensor::shape::inverse_order;
use retrograd_tensor::{Axes, IntoShape, Real, Rows, Shape, Tensor};
use std::ops::RangeBounds;

static RESHAPE: Op = Op::new("reshape", &["x"])
    .kind(Kind::View)
    .formula("y = x in another shape", "dx = g in the shape of x");
static PERMUTE: Op = Op::new("permute", &["x"])
    .kind(Kind::View)
    .formula("y = x with its axes in another order", "dx = g with its axes in the order of x");
static BROADCAST_TO: Op = Op::new("broadcast_to", &["x"])
    .kind(Kind::View)
    .formula("y = x, repeated along axes", "dx = Σ g, over these axes");
static NARROW: Op =
    Op::new("narrow", &["x"]).formula("y = x, a range of an axis", "dx = g in this range, else 0");
static SELECT: Op = Op::new("select", &["x"])
    .formula("y = x at one index of an axis", "dx = g at this index, else 0");
static SLICE: Op = Op::new("slice", &["x"])
    .formula("y = x, every n-th index of a range", "dx = g at these indices, else 0");
static INDEX: Op = Op::new("index", &["x"])
    .formula("y = x at ranges and indices", "dx = g at these places, else 0");
static DIAGONAL: Op = Op::new("diagonal", &["x"]).formula("y_i = x_ii", "dx_ii = g_i, else 0");
static UNFOLD: Op = Op::new("unfold", &["x"])
    .formula("y = x, overlapping windows of an axis", "dx = Σ g, over the windows of an element");
static AS_STRIDED: Op = Op::new("as_strided", &["x"])
    .kind(Kind::View)
    .formula("y = x at strides", "dx = Σ g, where elements of y are the same element of x");
static AS_STRIDED_ADJOINT: Op = Op::new("as_strided_adjoint", &["x"])
    .formula("y = Σ x, scattered to strides", "dx = g at these strides");
static FLIP: Op =
    Op::new("flip", &["x"]).formula("y = x, reversed along axes", "dx = g, reversed along them");

/// # Views
impl<T: Real> Var<T> {
    /// The node of a reshape, whose result is `value`.
    #[track_caller]
    fn reshaped(&self, value: Tensor<T>) -> Var<T> {
        Var::from_op(&RESHAPE, value, [self], |[x]| {
            let x = x.slot();
            move |cx, g| InputGrads::of(&x, || g.reshape(cx.shape(&x)))
        })
    }

    /// The view that `f` makes of a contiguous layout of this shape.
    #[track_caller]
    fn strided(&self, op: &'static Op, f: impl Fn(&Layout) -> Result<Layout>) -> Var<T> {
        let layout = f(&Layout::contiguous(*self.shape())).or_panic();
        self.strided_as(op, self.value().view_by(f), layout)
    }

    /// The view `value`, which is `layout` over the contiguous elements of this.
    #[track_caller]
    fn strided_as(&self, op: &'static Op, value: Tensor<T>, layout: Layout) -> Var<T> {
        Var::from_op(op, value, [self], |[x]| {
            let x = x.slot();
            move |_, g| InputGrads::of_view(&x, g, layout)
        })
    }

    /// As [`Tensor::as_strided`]; the gradient is [`Var::as_strided_adjoint`] of `g`.
    #[track_caller]
    pub fn as_strided(&self, layout: Layout) -> Var<T> {
        let value = self.value().as_strided(&layout);
        self.strided_as(&AS_STRIDED, value, layout)
    }

    /// As [`Tensor::as_strided_adjoint`]; the gradient is [`Var::as_strided`] of `g`.
    #[track_caller]
    pub fn as_strided_adjoint(&self, shape: Shape, layout: Layout) -> Var<T> {
        let value = self.value().as_strided_adjoint(shape, &layout);
        Var::from_op(&AS_STRIDED_ADJOINT, value, [self], |[x]| {
            let x = x.slot();
            move |_, g| InputGrads::of(&x, || g.as_strided(layout))
        })
    }

    /// As [`Tensor::reshape`]; the gradient is `g` in the shape of `self`.
    #[doc(alias = "view")]
    #[track_caller]
    pub fn reshape(&self, dims: impl AsRef<[usize]>) -> Var<T> {
        self.reshaped(self.value().reshape(dims))
    }

    /// As [`Tensor::flatten`]; the gradient is `g` in the shape of `self`.
    #[track_caller]
    pub fn flatten(&self) -> Var<T> {
        self.reshape([self.value().numel()])
    }

    /// As [`Tensor::permute`]; the gradient is `g` with its axes permuted back.
    #[track_caller]
    pub fn permute(&self, axes: impl AsRef<[isize]>) -> Var<T> {
        let axes = axes.as_ref();
        let value = self.value().permute(axes);
        let positive = |&axis| self.shape().axis("permute", axis).or_panic() as isize;
        Var::from_op(&PERMUTE, value, [self], |[x]| {
            let order: Vec<isize> = axes.iter().map(positive).collect();
            let (x, inverse) = (x.slot(), inverse_order(&order));
            move |_, g| InputGrads::of(&x, || g.permute(&inverse))
        })
    }

    /// As [`Tensor::transpose`]; the gradient is `g` with the axes exchanged back.
    #[track_caller]
    pub fn transpose(&self, a: isize, b: isize) -> Var<T> {
        let (a, b) = (self.shape().axis("transpose", a), self.shape().axis("transpose", b));
        let mut order: Vec<isize> = (0..self.rank() as isize).collect();
        order.swap(a.or_panic(), b.or_panic());
        self.permute(order)
    }

    /// As [`Tensor::t`]; the gradient is `gᵀ`.
    #[doc(alias = "mT")]
    #[track_caller]
    pub fn t(&self) -> Var<T> {
        self.transpose(-2, -1)
    }

    /// As [`Tensor::broadcast_to`]; the gradient is summed over the repetitions, [`Tensor::sum_to`].
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([[1.0f32], [2.0]]));
    /// let y = x.broadcast_to([2, 3]);
    /// assert_eq!(y.value().to_vec(), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [3.0, 3.0]);
    /// ```
    #[doc(alias = "expand")]
    #[track_caller]
    pub fn broadcast_to(&self, shape: impl IntoShape) -> Var<T> {
        let shape = shape.into();
        if *self.shape() == shape {
            return self.unchanged();
        }
        Var::from_op(&BROADCAST_TO, self.value().broadcast_to(shape), [self], |[x]| {
            let x = x.slot();
            // The engine sums the gradient to the shape of the input.
            move |_, g| InputGrads::of(&x, || g.clone())
        })
    }

    /// As [`Tensor::squeeze`]; the gradient is `g` with the axis.
    #[track_caller]
    pub fn squeeze(&self, axis: isize) -> Var<T> {
        self.reshaped(self.value().squeeze(axis))
    }

    /// As [`Tensor::unsqueeze`]; the gradient is `g` without the axis.
    #[doc(alias = "expand_dims")]
    #[track_caller]
    pub fn unsqueeze(&self, axis: isize) -> Var<T> {
        self.reshaped(self.value().unsqueeze(axis))
    }

    /// As [`Tensor::i`]; the gradient is `g` at the indices, else 0.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]));
    /// let y = x.i((-1, ..2)); // the first two of the last row
    /// assert_eq!(y.value().to_vec(), [4.0, 5.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 0.0, 0.0, 1.0, 1.0, 0.0]);
    /// ```
    #[doc(alias = "index")]
    #[doc(alias = "__getitem__")]
    #[track_caller]
    pub fn i(&self, indices: impl Indices) -> Var<T> {
        let indices = indices.to_indices();
        self.strided(&INDEX, |layout| layout.index("i", &indices))
    }

    /// As [`Tensor::slice`]; the gradient is `g` in the range, else 0.
    #[track_caller]
    pub fn slice(&self, axis: isize, range: impl RangeBounds<usize> + Clone) -> Var<T> {
        self.slice_step(axis, range, 1)
    }

    /// As [`Tensor::slice_step`]; the gradient is `g` at the selected elements, else 0.
    #[track_caller]
    pub fn slice_step(
        &self,
        axis: isize,
        range: impl RangeBounds<usize> + Clone,
        step: isize,
    ) -> Var<T> {
        self.strided(&SLICE, |layout| layout.slice_range("slice", axis, range.clone(), step))
    }

    /// As [`Tensor::narrow`]; the gradient is `g` in the range, else 0.
    #[track_caller]
    pub fn narrow(&self, axis: isize, start: usize, len: usize) -> Var<T> {
        let stop = start.saturating_add(len);
        self.strided(&NARROW, |layout| layout.slice("narrow", axis, start, stop, 1))
    }

    /// As [`Tensor::flip`]; the gradient is `g` with the axes reversed.
    #[track_caller]
    pub fn flip(&self, axes: impl Axes) -> Var<T> {
        self.strided(&FLIP, |layout| layout.flip("flip", axes))
    }

    /// As [`Tensor::rows`]; the gradient of `self` has the gradients of the slices. `for row in &x` does
    /// the same.
    #[doc(alias = "unbind")]
    #[track_caller]
    pub fn rows(&self) -> Rows<'_, Var<T>> {
        Rows::new(self, self.shape(), |x, i| x.select(0, i)).or_panic()
    }

    /// As [`Tensor::select`]; the gradient is `g` at the index, else 0.
    #[track_caller]
    pub fn select(&self, axis: isize, index: usize) -> Var<T> {
        self.strided(&SELECT, |layout| layout.select("select", axis, index))
    }

    /// As [`Tensor::diagonal`]; the gradient is `g` on the diagonal, else 0.
    #[track_caller]
    pub fn diagonal(&self, a: isize, b: isize, offset: isize) -> Var<T> {
        self.strided(&DIAGONAL, |layout| layout.diagonal("diagonal", a, b, offset))
    }

    /// As [`Tensor::unfold`]; the gradient of an element is summed over the windows that it is in.
    #[track_caller]
    pub fn unfold(&self, axis: isize, size: usize, step: usize) -> Var<T> {
        self.strided(&UNFOLD, |layout| layout.unfold("unfold", axis, size, step))
    }

    /// As [`Tensor::split`]; the gradient of each piece is added to its range.
    #[track_caller]
    pub fn split(&self, axis: isize, sizes: &[usize]) -> Vec<Var<T>> {
        self.pieces(axis, self.value().split(axis, sizes))
    }

    /// As [`Tensor::chunk`]; the gradient of each piece is added to its range.
    #[track_caller]
    pub fn chunk(&self, axis: isize, n: usize) -> Vec<Var<T>> {
        self.pieces(axis, self.value().chunk(axis, n))
    }

    /// The variables of consecutive pieces of the value along an axis.
    #[track_caller]
    fn pieces(&self, axis: isize, values: Vec<Tensor<T>>) -> Vec<Var<T>> {
        let (all, mut start) = (Layout::contiguous(*self.shape()), 0);
        let piece = |value: Tensor<T>| {
            let stop = start + value.size(axis);
            let layout = all.slice("narrow", axis, start, stop, 1).or_panic();
            start = stop;
            self.strided_as(&NARROW, value, layout)
        };
        values.into_iter().map(piece).collect()
    }
}

impl<'a, T: Real> IntoIterator for &'a Var<T> {
    type Item = Var<T>;
    type IntoIter = Rows<'a, Var<T>>;

    #[track_caller]
    fn into_iter(self) -> Self::IntoIter {
        self.rows()
    }
}
