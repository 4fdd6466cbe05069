//! The operands of a product, or of a batch of products.

use crate::element::Float;
use crate::loop_nest::{Cursor, LoopNest};
use crate::matrix::{MatRef, Reach};
use std::ops::Range;

/// One product `a · b`, or a batch of products of matrices with the same sizes and strides.
#[derive(Clone, Copy, Debug)]
pub struct Products<'a, T> {
    a: MatRef<'a, T>,
    b: MatRef<'a, T>,
    /// Where the matrices of each product start; `None` for a single product.
    starts: Option<&'a LoopNest<2>>,
    /// Whether the products are those of `bᵀ` and `aᵀ`.
    turned: bool,
    first: usize,
    len: usize,
}

impl<'a, T: Float> Products<'a, T> {
    /// The product of `a` and `b`.
    #[inline]
    pub fn one(a: MatRef<'a, T>, b: MatRef<'a, T>) -> Products<'a, T> {
        Products { a, b, starts: None, turned: false, first: 0, len: 1 }
    }

    /// `len` products, of matrices like `a` and `b` that start at the elements of a loop nest.
    pub fn batch(
        a: MatRef<'a, T>,
        b: MatRef<'a, T>,
        starts: &'a LoopNest<2>,
        len: usize,
    ) -> Products<'a, T> {
        Products { a, b, starts: Some(starts), turned: false, first: 0, len }
    }

    /// The number of products.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Rows of the left matrices, terms of a sum, and columns of the right matrices.
    ///
    /// # Panics
    /// If the matrices do not fit.
    #[inline(always)]
    pub fn sizes(&self) -> (usize, usize, usize) {
        let (a, b) = self.like();
        assert_eq!(a.cols, b.rows, "gemm: columns of the left and rows of the right operand");
        (a.rows, a.cols, b.cols)
    }

    /// Two matrices with the sizes and strides of every pair.
    #[inline(always)]
    pub fn like(&self) -> (MatRef<'a, T>, MatRef<'a, T>) {
        if self.turned { (self.b.t(), self.a.t()) } else { (self.a, self.b) }
    }

    /// The transposed products: `bᵀ · aᵀ` of each pair.
    pub fn turned(self) -> Products<'a, T> {
        Products { turned: !self.turned, ..self }
    }

    /// Some of the products.
    pub fn part(self, range: Range<usize>) -> Products<'a, T> {
        assert!(range.end <= self.len, "gemm: a part of a batch");
        Products { first: self.first + range.start, len: range.len(), ..self }
    }

    /// Each product, of matrices that are inside their slices.
    ///
    /// # Panics
    /// When one is not.
    #[inline(always)]
    #[allow(clippy::manual_map)] // a closure might stay a call
    pub fn iter(&self) -> Iter<'_, 'a, T> {
        let starts = match self.starts {
            Some(starts) => Some(starts.cursor(self.first)),
            None => None,
        };
        let reach = (self.a.reach(), self.b.reach());
        Iter { products: self, starts, reach, next: 0 }
    }
}

/// The products of [`Products::iter`], each with its number.
#[derive(Debug)]
pub struct Iter<'p, 'a, T> {
    products: &'p Products<'a, T>,
    starts: Option<Cursor<'a, 2>>,
    reach: (Reach, Reach),
    next: usize,
}

impl<'a, T: Float> Iterator for Iter<'_, 'a, T> {
    type Item = (usize, MatRef<'a, T>, MatRef<'a, T>);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let Products { a, b, turned, len, .. } = *self.products;
        let i = self.next;
        if i == len {
            return None;
        }
        self.next += 1;
        let [x, y] = match &mut self.starts {
            Some(starts) => starts.next(1).1,
            None => [a.offset, b.offset],
        };
        let (a, b) = (MatRef { offset: x, ..a }, MatRef { offset: y, ..b });
        let inside = a.reaches_inside(self.reach.0) && b.reaches_inside(self.reach.1);
        assert!(inside, "gemm: an operand exceeds its slice");
        Some(if turned { (i, b.t(), a.t()) } else { (i, a, b) })
    }
}
