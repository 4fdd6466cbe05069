//! Epilogues: work on blocks of a product while they are still in the cache.

use crate::matrix::MatMut;
use std::ops::Range;

/// Work on a product, block by block, each as soon as it is complete. The blocks depend on tiles,
/// caches and threads: every element is in exactly one block, and their order is unspecified.
pub trait Epilogue<T>: Sync {
    /// Works on `block`, which starts at row and column `origin` of the product; `aux` is the same
    /// block of the auxiliary output, if there is one.
    fn apply(&self, origin: (usize, usize), block: MatMut<'_, T>, aux: Option<MatMut<'_, T>>);

    /// What is computed, with the product.
    fn name(&self) -> &'static str;

    /// The number of elements that it reads, besides the product, and of operations on each element of
    /// the product.
    fn traffic(&self) -> (usize, usize);
}

/// An [`Epilogue`] with its arguments for a part of the product.
pub struct EpilogueArgs<'a, T> {
    /// The work.
    pub epilogue: &'a dyn Epilogue<T>,
    /// The row and column of the whole product where the part starts.
    pub origin: (usize, usize),
    /// The auxiliary output, of the size of the part.
    pub aux: Option<MatMut<'a, T>>,
}

impl<T> EpilogueArgs<'_, T> {
    /// The arguments for rows `rows` and columns `cols` of the part.
    pub fn part(&mut self, rows: Range<usize>, cols: Range<usize>) -> EpilogueArgs<'_, T> {
        let origin = (self.origin.0 + rows.start, self.origin.1 + cols.start);
        let aux = self.aux.as_mut().map(|m| m.part(rows, cols));
        EpilogueArgs { epilogue: self.epilogue, origin, aux }
    }

    /// Applies the epilogue to the part.
    pub fn apply(self, product: MatMut<'_, T>) {
        self.epilogue.apply(self.origin, product, self.aux);
    }
}
