//! Matrices inside slices: views that a kernel reads from and writes to.

use crate::simd::Real;
use std::marker::PhantomData;
use std::ops::Range;

/// A matrix inside a slice, with any strides.
#[derive(Clone, Copy, Debug)]
pub struct MatRef<'a, T> {
    /// The slice that holds it.
    pub data: &'a [T],
    /// Position of the first element.
    pub offset: usize,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Distance from one row to the next.
    pub row_stride: isize,
    /// Distance from one column to the next.
    pub col_stride: isize,
}

impl<'a, T> MatRef<'a, T> {
    /// Whether every element lies inside the slice.
    pub fn is_inside(&self) -> bool {
        if self.rows == 0 || self.cols == 0 {
            return true;
        }
        let ends = |n: usize, stride: isize| {
            let far = (n - 1) as i128 * stride as i128;
            (far.min(0), far.max(0))
        };
        let (r, c) = (ends(self.rows, self.row_stride), ends(self.cols, self.col_stride));
        let at = self.offset as i128;
        at + r.0 + c.0 >= 0 && at + r.1 + c.1 < self.data.len() as i128
    }

    /// The same matrix, rows and columns exchanged.
    pub fn t(self) -> MatRef<'a, T> {
        MatRef {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }

    /// Rows `rows` of columns `cols`.
    pub fn part(self, rows: Range<usize>, cols: Range<usize>) -> MatRef<'a, T> {
        let (i, j) = (rows.start as isize, cols.start as isize);
        let offset = self.offset as isize + i * self.row_stride + j * self.col_stride;
        MatRef { offset: offset as usize, rows: rows.len(), cols: cols.len(), ..self }
    }
}

impl<T: Real> MatRef<'_, T> {
    /// `out += self · b` over the elements of `b` that are not finite, and of `self` that are
    /// not 0: what a product with those elements replaced by 0 leaves out, if a zero in `self`
    /// means "not there".
    pub fn add_product_with_non_finite(self, b: MatRef<'_, T>, out: &mut [T]) {
        let at = |m: &MatRef<'_, T>, i: usize, j: usize| {
            let place = m.offset as isize + i as isize * m.row_stride + j as isize * m.col_stride;
            m.data[place as usize]
        };
        for k in 0..self.cols {
            for j in (0..b.cols).filter(|&j| !at(&b, k, j).to_f64().is_finite()) {
                for i in (0..self.rows).filter(|&i| at(&self, i, k) != T::ZERO) {
                    out[i * b.cols + j] += at(&self, i, k) * at(&b, k, j);
                }
            }
        }
    }
}

/// A matrix to write, row-major with any distance between rows, that can be cut into parts
/// which different threads write.
#[derive(Debug)]
pub struct MatMut<'a, T> {
    start: *mut T,
    rows: usize,
    cols: usize,
    row_stride: usize,
    data: PhantomData<&'a mut [T]>,
}

// SAFETY: a `MatMut` is an exclusive borrow of its elements, as `&mut [T]` is: parts made by
// splitting share none.
unsafe impl<T: Send> Send for MatMut<'_, T> {}

impl<'a, T> MatMut<'a, T> {
    /// All of a slice as `rows` rows of `cols`.
    ///
    /// # Panics
    /// If the slice has another length.
    pub fn new(data: &'a mut [T], rows: usize, cols: usize) -> Self {
        assert_eq!(data.len(), rows * cols, "MatMut: size of the slice");
        MatMut { start: data.as_mut_ptr(), rows, cols, row_stride: cols, data: PhantomData }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Distance from one row to the next.
    pub fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// Rows `rows` of columns `cols`, borrowed for a while.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn part(&mut self, rows: Range<usize>, cols: Range<usize>) -> MatMut<'_, T> {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "MatMut: rows");
        assert!(cols.start <= cols.end && cols.end <= self.cols, "MatMut: columns");
        // Nothing lies behind the start of a part without elements.
        let at = if rows.is_empty() || cols.is_empty() {
            0
        } else {
            rows.start * self.row_stride + cols.start
        };
        // SAFETY: 1. the part has an element, so its first one lies in the matrix, or the
        // distance is 0.
        let start = unsafe { self.start.add(at) };
        let (rows, cols) = (rows.len(), cols.len());
        MatMut { start, rows, cols, row_stride: self.row_stride, data: PhantomData }
    }

    /// Cut into blocks of at most `rows` rows and `cols` columns, row by row of blocks; each
    /// with its first row and column.
    pub fn blocks(mut self, rows: usize, cols: usize) -> Vec<(usize, usize, MatMut<'a, T>)> {
        let (row_stride, data) = (self.row_stride, PhantomData);
        let mut blocks = Vec::new();
        for i in (0..self.rows).step_by(rows) {
            for j in (0..self.cols).step_by(cols) {
                let part = self.part(i..(i + rows).min(self.rows), j..(j + cols).min(self.cols));
                let (start, rows, cols) = (part.start, part.rows, part.cols);
                // The matrix is consumed and blocks share no element, so each may live as long.
                blocks.push((i, j, MatMut { start, rows, cols, row_stride, data }));
            }
        }
        blocks
    }

    /// One row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&mut self, i: usize) -> &mut [T] {
        let row = self.part(i..i + 1, 0..self.cols);
        // SAFETY: 1. `part` checked that the row is inside; 2. its elements lie one after the
        // other; 3. they are borrowed exclusively, through `self`.
        unsafe { std::slice::from_raw_parts_mut(row.start, row.cols) }
    }

    /// Where the first element is.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.start
    }
}
