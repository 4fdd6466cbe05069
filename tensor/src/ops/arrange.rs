//! Repetition, rolling, and matrices with given diagonals.

use crate::element::Element;
use crate::error::{ErrorKind, OrPanic, Result, require};
use crate::layout::Layout;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// The shape after leading axes of size 1 were added, and the axes that are repeated with their numbers of
/// repetitions, 0 first: sizes are then never above those of the result. An error if an axis has no number.
#[doc(hidden)]
pub fn repetitions(
    op: &'static str,
    shape: &Shape,
    times: &[usize],
) -> Result<(Shape, Vec<(usize, usize)>)> {
    let missing = times.len().checked_sub(shape.rank());
    require(missing.is_some(), op, ErrorKind::Rank, || {
        format!("{times:?} has no number for every axis of {shape:?}")
    })
    .map_err(|error| error.hint("tile repeats the last axes"))?;
    let dims = [&vec![1; missing.unwrap_or(0)][..], &shape[..]].concat();
    let repeated: Vec<usize> =
        dims.iter().zip(times).map(|(&size, &n)| size.saturating_mul(n)).collect();
    Shape::checked(op, &repeated)?;
    let mut axes: Vec<_> = times.iter().copied().enumerate().filter(|&(_, n)| n != 1).collect();
    axes.sort_by_key(|&(_, n)| n != 0);
    Ok((Shape::checked(op, &dims)?, axes))
}

/// The shapes through which an axis is repeated: of the elements, of their repetition, and of the result.
#[doc(hidden)]
pub fn repetition(
    op: &'static str,
    shape: &Shape,
    axis: usize,
    n: usize,
    interleaved: bool,
) -> Result<[Shape; 3]> {
    let mut dims = shape.to_vec();
    dims[axis] = dims[axis].saturating_mul(n);
    let result = Shape::checked(op, &dims)?;
    if shape.numel() == 0 {
        return Ok([[0].into(), [0].into(), result]);
    }
    let outer: usize = shape[..axis].iter().product();
    let inner: usize = shape[axis + 1..].iter().product();
    let (before, after) =
        if interleaved { (outer * shape[axis], inner) } else { (outer, shape[axis] * inner) };
    Ok([[before, 1, after].into(), [before, n, after].into(), result])
}

/// The layout of a diagonal of square matrices that have `shape` as this diagonal, and their shape.
#[doc(hidden)]
pub fn diagonal_of_square(
    op: &'static str,
    shape: &Shape,
    offset: isize,
) -> Result<(Shape, Layout)> {
    require(shape.rank() > 0, op, ErrorKind::Rank, || "needs at least one axis, got []".into())?;
    let last = shape.rank() - 1;
    let n = shape[last].saturating_add(offset.unsigned_abs());
    let whole = Shape::checked(op, &[&shape[..last], &[n, n]].concat())?;
    Ok((whole, Layout::contiguous(whole).diagonal(op, -2, -1, offset)?))
}

/// # Rearrangement
impl<T: Element> Tensor<T> {
    /// The tensor repeated as a whole along each axis, as often as `times` says; with more numbers than
    /// axes, the first ones are for new leading axes.
    ///
    /// # Panics
    /// If there are fewer numbers than axes, or the result is too large.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([1i64, 2]);
    /// assert_eq!(x.repeat(&[2]).to_vec(), [1, 2, 1, 2]);
    /// assert_eq!(x.repeat(&[2, 1]), Tensor::from([[1, 2], [1, 2]]));
    /// ```
    #[track_caller]
    pub fn repeat(&self, times: &[usize]) -> Tensor<T> {
        self.repeat_axes("repeat", times)
    }

    #[track_caller]
    fn repeat_axes(&self, op: &'static str, times: &[usize]) -> Tensor<T> {
        let (shape, axes) = repetitions(op, self.shape(), times).or_panic();
        let mut x = self.reshape(shape);
        for (axis, n) in axes {
            x = x.repeat_axis(op, axis, n, false);
        }
        x
    }

    /// [`Tensor::repeat`] for any number of axes: the numbers are for the last axes, and the others are
    /// not repeated.
    ///
    /// # Panics
    /// If the result is too large.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1i64], [2]]);
    /// assert_eq!(x.tile(&[2]), Tensor::from([[1, 1], [2, 2]]));
    /// ```
    #[track_caller]
    pub fn tile(&self, times: &[usize]) -> Tensor<T> {
        let missing = self.rank().saturating_sub(times.len());
        self.repeat_axes("tile", &[&vec![1; missing][..], times].concat())
    }

    /// The tensor with each slice of an axis `n` times, one after the other.
    ///
    /// # Panics
    /// If the axis does not exist, or the result is too large.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([1i64, 2]);
    /// assert_eq!(x.repeat_interleave(0, 2).to_vec(), [1, 1, 2, 2]);
    /// ```
    #[track_caller]
    pub fn repeat_interleave(&self, axis: isize, n: usize) -> Tensor<T> {
        let axis = self.shape().axis("repeat_interleave", axis).or_panic();
        self.repeat_axis("repeat_interleave", axis, n, true)
    }

    #[track_caller]
    fn repeat_axis(&self, op: &'static str, axis: usize, n: usize, interleaved: bool) -> Tensor<T> {
        let shapes = repetition(op, self.shape(), axis, n, interleaved).or_panic();
        self.reshape(shapes[0]).broadcast_to(shapes[1]).reshape(shapes[2])
    }

    /// The tensor with the elements of an axis moved by `shift` places; those that leave at one end enter at
    /// the other.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([1i64, 2, 3, 4]);
    /// assert_eq!(x.roll(0, 1).to_vec(), [4, 1, 2, 3]);
    /// assert_eq!(x.roll(0, -1).to_vec(), [2, 3, 4, 1]);
    /// ```
    #[track_caller]
    pub fn roll(&self, axis: isize, shift: isize) -> Tensor<T> {
        let size = self.shape()[self.shape().axis("roll", axis).or_panic()];
        let cut = size - shift.rem_euclid(size.max(1) as isize) as usize;
        Tensor::cat(&[&self.slice(axis, cut.min(size)..), &self.slice(axis, ..cut.min(size))], axis)
    }

    /// Of a vector, the square matrix with it as a diagonal, 0 elsewhere; of a matrix, its diagonal. A
    /// positive `offset` is above the main diagonal.
    ///
    /// # Panics
    /// If the rank is neither 1 nor 2.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([1i64, 2]).diag(0);
    /// assert_eq!(x, Tensor::from([[1, 0], [0, 2]]));
    /// assert_eq!(x.diag(0).to_vec(), [1, 2]);
    /// assert_eq!(Tensor::from([7i64]).diag(1), Tensor::from([[0, 7], [0, 0]]));
    /// ```
    #[track_caller]
    pub fn diag(&self, offset: isize) -> Tensor<T> {
        check_diag(self.shape()).or_panic();
        if self.rank() == 1 { self.diag_embed(offset) } else { self.diagonal(0, 1, offset) }
    }

    /// Square matrices with the last axis as a diagonal, 0 elsewhere: the inverse of
    /// [`Tensor::diagonal`] of the last two axes. A positive `offset` is above the main diagonal.
    ///
    /// # Panics
    /// If there is no axis, or the result is too large.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]).diag_embed(0);
    /// assert_eq!(x.to_vec(), [1, 0, 0, 2, 3, 0, 0, 4]);
    /// ```
    #[track_caller]
    pub fn diag_embed(&self, offset: isize) -> Tensor<T> {
        let (whole, layout) = diagonal_of_square("diag_embed", self.shape(), offset).or_panic();
        Tensor::zeros(whole).as_strided_scatter(&layout, self)
    }
}

/// The rule about ranks of `diag`.
#[doc(hidden)]
pub fn check_diag(shape: &Shape) -> Result<()> {
    require(shape.rank() == 1 || shape.rank() == 2, "diag", ErrorKind::Rank, || {
        format!("{shape:?} must be a vector or a matrix")
    })
    .map_err(|error| error.hint("diag_embed and diagonal take batches"))
}
