//! Repetition, rolling, and matrices with given diagonals: compositions of views.

use crate::graph::Var;
use retrograd_tensor::error::OrPanic;
use retrograd_tensor::ops::arrange::{check_diag, diagonal_of_square, repetition, repetitions};
use retrograd_tensor::{Real, Tensor};

/// # Rearrangement
impl<T: Real> Var<T> {
    /// As [`Tensor::repeat`]; the gradient is summed over the repetitions.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([1.0f32, 2.0]));
    /// let dx = x.repeat(&[2, 2]).sum(..).backward().get(&x).unwrap().to_vec();
    /// assert_eq!(dx, [4.0, 4.0]);
    /// ```
    #[track_caller]
    pub fn repeat(&self, times: &[usize]) -> Var<T> {
        self.repeat_axes("repeat", times)
    }

    #[track_caller]
    fn repeat_axes(&self, op: &'static str, times: &[usize]) -> Var<T> {
        let (shape, axes) = repetitions(op, self.shape(), times).or_panic();
        let mut x = self.reshape(shape);
        for (axis, n) in axes {
            x = x.repeat_axis(op, axis, n, false);
        }
        x
    }

    /// As [`Tensor::tile`]; the gradient is summed over the repetitions.
    #[track_caller]
    pub fn tile(&self, times: &[usize]) -> Var<T> {
        let missing = self.rank().saturating_sub(times.len());
        self.repeat_axes("tile", &[&vec![1; missing][..], times].concat())
    }

    /// As [`Tensor::repeat_interleave`]; the gradient is summed over the repetitions.
    #[track_caller]
    pub fn repeat_interleave(&self, axis: isize, n: usize) -> Var<T> {
        let axis = self.shape().axis("repeat_interleave", axis).or_panic();
        self.repeat_axis("repeat_interleave", axis, n, true)
    }

    #[track_caller]
    fn repeat_axis(&self, op: &'static str, axis: usize, n: usize, interleaved: bool) -> Var<T> {
        let shapes = repetition(op, self.shape(), axis, n, interleaved).or_panic();
        self.reshape(shapes[0]).broadcast_to(shapes[1]).reshape(shapes[2])
    }

    /// As [`Tensor::roll`]; the gradient is rolled back.
    #[track_caller]
    pub fn roll(&self, axis: isize, shift: isize) -> Var<T> {
        let size = self.shape()[self.shape().axis("roll", axis).or_panic()];
        let cut = size - shift.rem_euclid(size.max(1) as isize) as usize;
        Var::cat(&[&self.slice(axis, cut..), &self.slice(axis, ..cut)], axis)
    }

    /// As [`Tensor::diag`]; the gradient of a vector is the diagonal of `g`, and of a matrix `g` on its
    /// diagonal.
    #[track_caller]
    pub fn diag(&self, offset: isize) -> Var<T> {
        check_diag(self.shape()).or_panic();
        if self.rank() == 1 { self.diag_embed(offset) } else { self.diagonal(0, 1, offset) }
    }

    /// As [`Tensor::diag_embed`]; the gradient is the diagonal of `g`.
    #[track_caller]
    pub fn diag_embed(&self, offset: isize) -> Var<T> {
        let (whole, layout) = diagonal_of_square("diag_embed", self.shape(), offset).or_panic();
        Var::constant(Tensor::zeros(whole)).as_strided_scatter(layout, self)
    }

    /// As [`Tensor::trace`]; the gradient is `g` on the diagonal, else 0.
    #[track_caller]
    pub fn trace(&self) -> Var<T> {
        self.diagonal(-2, -1, 0).sum(-1)
    }
}
