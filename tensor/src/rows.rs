//! Iteration along the first axis.

use crate::element::Element;
use crate::error::{ErrorKind, OrPanic, Result, require};
use crate::shape::Shape;
use crate::tensor::Tensor;
use std::iter::FusedIterator;
use std::ops::Range;

/// An iterator over the slices of a tensor or a variable along its first axis, by [`Tensor::rows`].
#[derive(Clone, Debug)]
pub struct Rows<'a, X> {
    x: &'a X,
    select: fn(&X, usize) -> X,
    rest: Range<usize>,
}

impl<'a, X> Rows<'a, X> {
    /// The results of `select` for all indices of the first axis; an error if there is none.
    #[doc(hidden)]
    pub fn new(x: &'a X, shape: &Shape, select: fn(&X, usize) -> X) -> Result<Rows<'a, X>> {
        require(shape.rank() > 0, "rows", ErrorKind::Rank, || {
            "needs at least one axis, got []".into()
        })?;
        Ok(Rows { x, select, rest: 0..shape[0] })
    }
}

impl<X> Iterator for Rows<'_, X> {
    type Item = X;

    fn next(&mut self) -> Option<X> {
        self.rest.next().map(|i| (self.select)(self.x, i))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rest.size_hint()
    }

    fn nth(&mut self, n: usize) -> Option<X> {
        self.rest.nth(n).map(|i| (self.select)(self.x, i))
    }
}

impl<X> DoubleEndedIterator for Rows<'_, X> {
    fn next_back(&mut self) -> Option<X> {
        self.rest.next_back().map(|i| (self.select)(self.x, i))
    }
}

impl<X> ExactSizeIterator for Rows<'_, X> {}
impl<X> FusedIterator for Rows<'_, X> {}

/// # Iteration
impl<T: Element> Tensor<T> {
    /// The slices along the first axis, which they do not have; views. `for row in &x` does the same.
    ///
    /// # Panics
    /// If there is no axis.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// let sums: Vec<f32> = x.rows().map(|row| row.sum(..).item()).collect();
    /// assert_eq!(sums, [3.0, 7.0]);
    /// for (i, row) in (&x).into_iter().enumerate() {
    ///     assert_eq!(row, x.select(0, i));
    /// }
    /// assert_eq!(x.t().rows().rev().next().unwrap().to_vec(), [2.0, 4.0]); // the last column
    /// ```
    #[doc(alias = "unbind")]
    #[track_caller]
    pub fn rows(&self) -> Rows<'_, Tensor<T>> {
        Rows::new(self, self.shape(), |x, i| x.select(0, i)).or_panic()
    }
}

impl<'a, T: Element> IntoIterator for &'a Tensor<T> {
    type Item = Tensor<T>;
    type IntoIter = Rows<'a, Tensor<T>>;

    #[track_caller]
    fn into_iter(self) -> Self::IntoIter {
        self.rows()
    }
}
