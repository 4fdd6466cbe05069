//! What becomes of a product while it still lies in the cache.

use crate::matrix::MatMut;
use std::ops::Range;

/// Work on blocks of a product, each as soon as it is complete. Blocks are as tiles, caches and
/// threads cut them: every element is met once, in no particular order.
pub trait Finish<T>: Sync {
    /// `block` begins at row and column `at` of the product; `also` is the same block of a
    /// second result, if there is one.
    fn finish(&self, at: (usize, usize), block: MatMut<'_, T>, also: Option<MatMut<'_, T>>);
}

/// A [`Finish`] and where it works.
pub struct Then<'a, T> {
    /// What is done.
    pub finish: &'a dyn Finish<T>,
    /// Row and column where the product at hand begins in the whole one.
    pub at: (usize, usize),
    /// The second result, of the size of the product at hand.
    pub also: Option<MatMut<'a, T>>,
}

impl<T> Then<'_, T> {
    /// For a part of the product.
    pub fn part(&mut self, rows: Range<usize>, cols: Range<usize>) -> Then<'_, T> {
        let at = (self.at.0 + rows.start, self.at.1 + cols.start);
        Then { finish: self.finish, at, also: self.also.as_mut().map(|m| m.part(rows, cols)) }
    }

    /// Does it, to the product at hand.
    pub fn run(self, product: MatMut<'_, T>) {
        self.finish.finish(self.at, product, self.also);
    }
}
