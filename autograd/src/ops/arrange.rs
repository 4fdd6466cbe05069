//! Repetition, rolling, and matrices with given diagonals: compositions of views.

use crate::graph::Var;
use retrograd_tensor::error::OrPanic;
use retrograd_tensor::ops::arrange::{check_diag, diagonal_of_square, repetition, repetitions};
use retrograd_tensor::{Real, Tensor};

/// # Rearrangement
impl<T: Real> Var<T> {
    /// The variable repeated as a whole along each axis, as often as `times` says; see [`Tensor::repeat`].
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([1.0f32, 2.0]));
    /// let y = x.repeat(&[2, 2]);
    /// assert_eq!(y.value().to_vec(), [1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [4.0, 4.0]);
    /// ```
    #[track_caller]
    pub fn repeat(&self, times: &[usize]) -> Var<T> {
        self.repeat_axes("repeat", times)
    }

    #[track_caller]
    fn repeat_axes(&self, op: &'static str, times: &[usize]) -> Var<T> {
        let (shape, times) = repetitions(op, self.shape(), times).or_panic();
        let mut x = self.reshape(shape);
        for (axis, &n) in times.iter().enumerate().filter(|&(_, &n)| n != 1) {
            x = x.repeat_axis(op, axis, n, false);
        }
        x
    }

    /// [`Var::repeat`] for any number of axes: the numbers are those of the last axes, and the others are
    /// not repeated.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([[1.0f32], [2.0]]));
    /// assert_eq!(x.tile(&[2]).value().to_vec(), [1.0, 1.0, 2.0, 2.0]);
    /// ```
    #[track_caller]
    pub fn tile(&self, times: &[usize]) -> Var<T> {
        let missing = self.rank().saturating_sub(times.len());
        self.repeat_axes("tile", &[&vec![1; missing][..], times].concat())
    }

    /// The variable with each slice of an axis `n` times, one after the other.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([1.0f32, 2.0]));
    /// let y = x.repeat_interleave(0, 3);
    /// assert_eq!(y.value().to_vec(), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [3.0, 3.0]);
    /// ```
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

    /// The variable with the elements of an axis moved by `shift` places; those that leave at one end enter
    /// at the other.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([1.0f32, 2.0, 3.0]));
    /// assert_eq!(x.roll(0, 1).value().to_vec(), [3.0, 1.0, 2.0]);
    /// assert_eq!(x.roll(0, -1).value().to_vec(), [2.0, 3.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn roll(&self, axis: isize, shift: isize) -> Var<T> {
        let size = self.shape()[self.shape().axis("roll", axis).or_panic()];
        let cut = size - shift.rem_euclid(size.max(1) as isize) as usize;
        Var::cat(&[&self.slice(axis, cut..), &self.slice(axis, ..cut)], axis)
    }

    /// Of a vector, the square matrix with it as a diagonal, 0 elsewhere; of a matrix, its diagonal. A
    /// positive `offset` is above the main diagonal.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([1.0f32, 2.0]));
    /// let y = x.diag(0);
    /// assert_eq!(y.value().to_vec(), [1.0, 0.0, 0.0, 2.0]);
    /// assert_eq!(y.square().sum(..).backward().get(&x).unwrap().to_vec(), [2.0, 4.0]);
    /// assert_eq!(y.diag(1).value().to_vec(), [0.0]);
    /// ```
    #[track_caller]
    pub fn diag(&self, offset: isize) -> Var<T> {
        check_diag(self.shape()).or_panic();
        if self.rank() == 1 { self.diag_embed(offset) } else { self.diagonal(0, 1, offset) }
    }

    /// Square matrices with the last axis as a diagonal, 0 elsewhere: the inverse of [`Var::diagonal`] of
    /// the last two axes. A positive `offset` is above the main diagonal.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([[1.0f32], [2.0]]));
    /// let y = x.diag_embed(-1); // [2, 2, 2]
    /// assert_eq!(y.value().to_vec(), [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 2.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn diag_embed(&self, offset: isize) -> Var<T> {
        let (whole, layout) = diagonal_of_square("diag_embed", self.shape(), offset).or_panic();
        Var::constant(Tensor::zeros(whole)).as_strided_scatter(layout, self)
    }

    /// The sum of the main diagonal of the last two axes.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]));
    /// let y = x.trace();
    /// assert_eq!(y.item(), 5.0);
    /// assert_eq!(y.backward().get(&x).unwrap().to_vec(), [1.0, 0.0, 0.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn trace(&self) -> Var<T> {
        self.diagonal(-2, -1, 0).sum(-1)
    }
}
