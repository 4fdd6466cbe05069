//! Matrices in slices: the operands of GEMM and attention.

use crate::element::Float;
use crate::simd::{LINE, prefetch_l1};
use std::marker::PhantomData;
use std::ops::Range;

/// The least and the greatest distance of an element of a matrix from the first one: (0, -1) if there is
/// none, `None` if they exceed `isize`.
pub(crate) type Reach = Option<(isize, isize)>;

/// An immutable matrix in a slice, with any strides.
#[derive(Clone, Copy, Debug)]
pub struct MatRef<'a, T> {
    /// The slice.
    pub data: &'a [T],
    /// The index of the first element.
    pub offset: usize,
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub cols: usize,
    /// The distance from one row to the next.
    pub row_stride: isize,
    /// The distance from one column to the next.
    pub col_stride: isize,
}

impl<'a, T> MatRef<'a, T> {
    /// A whole slice as `rows` contiguous rows of `cols` elements.
    ///
    /// # Panics
    /// If the slice has another length.
    #[inline]
    pub fn new(data: &'a [T], rows: usize, cols: usize) -> Self {
        assert_eq!(data.len(), rows * cols, "MatRef: size of the slice");
        MatRef { data, offset: 0, rows, cols, row_stride: cols as isize, col_stride: 1 }
    }

    /// Whether every element lies inside the slice.
    #[inline(always)]
    pub fn is_inside(&self) -> bool {
        self.reaches_inside(self.reach())
    }

    /// See [`Reach`].
    #[inline(always)]
    pub(crate) fn reach(&self) -> Reach {
        if self.rows == 0 || self.cols == 0 {
            return Some((0, -1));
        }
        let (Ok(i), Ok(j)) = (isize::try_from(self.rows - 1), isize::try_from(self.cols - 1))
        else {
            return None;
        };
        let (r, c) = (i.checked_mul(self.row_stride)?, j.checked_mul(self.col_stride)?);
        Some((r.min(0).checked_add(c.min(0))?, r.max(0).checked_add(c.max(0))?))
    }

    /// Whether every element of a matrix of this [reach](MatRef::reach) lies inside the slice.
    #[inline(always)]
    pub(crate) fn reaches_inside(&self, reach: Reach) -> bool {
        let (Some((least, greatest)), Ok(at)) = (reach, isize::try_from(self.offset)) else {
            return false;
        };
        greatest < 0 || at + least >= 0 && greatest < self.data.len() as isize - at
    }

    /// The transposed matrix.
    #[inline]
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
    #[inline(always)]
    pub fn part(self, rows: Range<usize>, cols: Range<usize>) -> MatRef<'a, T> {
        let (i, j) = (rows.start as isize, cols.start as isize);
        let offset = self.offset as isize + i * self.row_stride + j * self.col_stride;
        MatRef { offset: offset as usize, rows: rows.len(), cols: cols.len(), ..self }
    }
}

impl<'a, T> MatRef<'a, T> {
    /// A contiguous row.
    ///
    /// # Panics
    /// If the row does not exist or is not contiguous.
    #[inline(always)]
    pub fn row(&self, i: usize) -> &'a [T] {
        assert!(i < self.rows && (self.col_stride == 1 || self.cols <= 1), "MatRef: row");
        if self.cols == 0 {
            return &[];
        }
        &self.data[(self.offset as isize + i as isize * self.row_stride) as usize..][..self.cols]
    }
}

impl<T: Float> MatRef<'_, T> {
    /// Element `(i, j)`.
    #[inline(always)]
    pub fn at(&self, i: usize, j: usize) -> T {
        let place = i as isize * self.row_stride + j as isize * self.col_stride;
        self.data[(self.offset as isize + place) as usize]
    }

    /// Whether no element is NaN or infinite.
    #[inline]
    pub fn is_finite(&self) -> bool {
        if self.col_stride != 1 {
            let places = (0..self.rows).flat_map(|i| (0..self.cols).map(move |j| (i, j)));
            return { places }.all(|(i, j)| self.at(i, j).to_f64().is_finite());
        }
        // `x * 0` is 0 if and only if `x` is finite; the sums are vectorised.
        let (mut sums, mut rest) = ([T::ZERO; 16], T::ZERO);
        for i in 0..self.rows {
            let (whole, tail) = self.row(i).as_chunks::<16>();
            for x in whole {
                for k in 0..16 {
                    sums[k] += x[k] * T::ZERO;
                }
            }
            for x in tail {
                rest += *x * T::ZERO;
            }
        }
        sums.iter().all(|&sum| sum == T::ZERO) && rest == T::ZERO
    }

    /// The elements in row-major order, with NaN and infinities replaced by 0.
    pub fn without_non_finite(&self) -> Vec<T> {
        let places = (0..self.rows).flat_map(|i| (0..self.cols).map(move |j| (i, j)));
        let only_finite = |x: T| if x.to_f64().is_finite() { x } else { T::ZERO };
        places.map(|(i, j)| only_finite(self.at(i, j))).collect()
    }

    /// `out += self · b`, restricted to the non-finite elements of `b` and the elements of `self`
    /// that are not 0. Together with the product where non-finite elements are replaced by 0, this
    /// is a matrix product in which `0 · x` is 0 for every `x`.
    pub fn add_product_with_non_finite(self, b: MatRef<'_, T>, mut out: MatMut<'_, T>) {
        for k in 0..self.cols {
            for j in (0..b.cols).filter(|&j| !b.at(k, j).to_f64().is_finite()) {
                for i in (0..self.rows).filter(|&i| self.at(i, k) != T::ZERO) {
                    out.row(i)[j] += self.at(i, k) * b.at(k, j);
                }
            }
        }
    }
}

/// A mutable matrix with contiguous rows at any distance, which can be divided into disjoint parts
/// for different threads.
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
    /// A whole slice as `rows` contiguous rows of `cols` elements.
    ///
    /// # Panics
    /// If the slice has another length.
    #[inline]
    pub fn new(data: &'a mut [T], rows: usize, cols: usize) -> Self {
        assert_eq!(data.len(), rows * cols, "MatMut: size of the slice");
        MatMut { start: data.as_mut_ptr(), rows, cols, row_stride: cols, data: PhantomData }
    }

    /// The number of rows.
    #[inline]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    #[inline]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The distance from one row to the next.
    #[inline]
    pub fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// Rows `rows` of columns `cols`, which share elements with `self`.
    ///
    /// # Panics
    /// If a range is out of bounds.
    #[inline(always)]
    fn sub(&self, rows: Range<usize>, cols: Range<usize>) -> MatMut<'a, T> {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "MatMut: rows");
        assert!(cols.start <= cols.end && cols.end <= self.cols, "MatMut: columns");
        // A part without elements has no address in the matrix.
        let empty = rows.is_empty() || cols.is_empty();
        let at = if empty { 0 } else { rows.start * self.row_stride + cols.start };
        // SAFETY: 1. the part has an element, so its first one lies in the matrix, or the
        // distance is 0.
        let start = unsafe { self.start.add(at) };
        let (rows, cols) = (rows.len(), cols.len());
        MatMut { start, rows, cols, row_stride: self.row_stride, data: PhantomData }
    }

    /// Rows `rows` of columns `cols`, borrowed from `self`.
    ///
    /// # Panics
    /// If a range is out of bounds.
    #[inline(always)]
    pub fn part(&mut self, rows: Range<usize>, cols: Range<usize>) -> MatMut<'_, T> {
        self.sub(rows, cols)
    }

    /// The whole matrix, borrowed from `self`.
    #[inline]
    pub fn whole(&mut self) -> MatMut<'_, T> {
        self.part(0..self.rows, 0..self.cols)
    }

    /// Rows `rows` of columns `cols`, in place of the whole matrix.
    ///
    /// # Panics
    /// If a range is out of bounds.
    #[inline]
    pub fn into_part(self, rows: Range<usize>, cols: Range<usize>) -> MatMut<'a, T> {
        self.sub(rows, cols)
    }

    // The methods below consume a matrix, and their parts share no elements.

    /// Disjoint blocks of at most `rows` rows and `cols` columns in row-major order, each with its
    /// first row and column.
    ///
    /// # Panics
    /// If a block has no rows or no columns.
    pub fn blocks(self, rows: usize, cols: usize) -> Vec<(usize, usize, MatMut<'a, T>)> {
        let down = (0..self.rows).step_by(rows).map(|i| i..(i + rows).min(self.rows));
        let across = |_| (0..self.cols).step_by(cols).map(|j| j..(j + cols).min(self.cols));
        down.flat_map(|i| across(()).map(move |j| (i.clone(), j)))
            .map(|(i, j)| (i.start, j.start, self.sub(i, j)))
            .collect()
    }

    /// `down` by `across` disjoint blocks of equal sizes, possibly empty, in row-major order.
    ///
    /// # Panics
    /// If rows or columns are not divisible by the numbers of blocks.
    pub fn grid(self, down: usize, across: usize) -> Vec<MatMut<'a, T>> {
        let (rows, cols) = (self.rows / down.max(1), self.cols / across.max(1));
        assert!(rows * down == self.rows && cols * across == self.cols, "MatMut: unequal blocks");
        let place = |n: usize, i: usize| n * i..n * (i + 1);
        (0..down * across)
            .map(|i| self.sub(place(rows, i / across), place(cols, i % across)))
            .collect()
    }

    /// Disjoint bands of at most `rows` rows.
    ///
    /// # Panics
    /// If a band has no rows.
    pub fn bands(self, rows: usize) -> Vec<MatMut<'a, T>> {
        (0..self.rows)
            .step_by(rows)
            .map(|i| self.sub(i..(i + rows).min(self.rows), 0..self.cols))
            .collect()
    }

    /// The first `at` columns, and the others.
    ///
    /// # Panics
    /// If a range is out of bounds.
    #[inline]
    pub fn split_cols(self, at: usize) -> (MatMut<'a, T>, MatMut<'a, T>) {
        (self.sub(0..self.rows, 0..at), self.sub(0..self.rows, at..self.cols))
    }

    /// Sets every element.
    #[inline]
    pub fn fill(&mut self, x: T)
    where
        T: Copy,
    {
        // Hardware prefetchers do not follow separate rows.
        const ROWS_AHEAD: usize = 16;
        let ahead = self.row_stride.wrapping_mul(ROWS_AHEAD);
        for i in 0..self.rows {
            let more = i + ROWS_AHEAD < self.rows;
            let row = self.row(i);
            if more {
                for line in row.chunks(LINE) {
                    prefetch_l1(line.as_ptr().wrapping_add(ahead));
                }
            }
            row.fill(x);
        }
    }

    /// One row.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    pub fn row(&mut self, i: usize) -> &mut [T] {
        let row = self.sub(i..i + 1, 0..self.cols);
        // SAFETY: 1. `part` checked that the row is inside; 2. its elements lie one after the
        // other; 3. they are borrowed exclusively, through `self`.
        unsafe { std::slice::from_raw_parts_mut(row.start, row.cols) }
    }

    /// The address of the first element.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.start
    }
}
