//! Matrices inside slices, and the product of two of them.

use crate::simd::Real;

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

    /// Rows `from..from + n`.
    pub fn row_block(self, from: usize, n: usize) -> MatRef<'a, T> {
        let offset = (self.offset as isize + from as isize * self.row_stride) as usize;
        MatRef { offset, rows: n, ..self }
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

/// An element type that has a matrix product.
pub trait Product: Sized {
    /// `out = a · b + beta · out` on one thread; `out` is row-major, and its old contents do
    /// not count if `beta` is 0.
    ///
    /// # Panics
    /// If sizes do not agree or an operand leaves its slice.
    fn gemm(a: MatRef<'_, Self>, b: MatRef<'_, Self>, beta: Self, out: &mut [Self]);
}

macro_rules! by_matrixmultiply {
    ($t:ty, $f:path) => {
        impl Product for $t {
            fn gemm(a: MatRef<'_, $t>, b: MatRef<'_, $t>, beta: $t, out: &mut [$t]) {
                assert!(a.is_inside() && b.is_inside() && a.cols == b.rows, "gemm: operands");
                assert_eq!(out.len(), a.rows * b.cols, "gemm: size of the output");
                if out.is_empty() {
                    return;
                }
                if a.cols == 0 {
                    // Nothing to add up, and the pointers below might dangle.
                    out.iter_mut().for_each(|x| *x = if beta == 0.0 { 0.0 } else { beta * *x });
                    return;
                }
                // SAFETY: 1. `is_inside` proves that every element of `a` and `b` that the
                // strides reach lies in their slices; 2. `out` holds rows * cols elements,
                // row-major; 3. it is exclusively borrowed, so it overlaps neither operand;
                // 4. with beta = 0 it is written before it is read, and is initialised anyway.
                unsafe {
                    $f(
                        a.rows,
                        a.cols,
                        b.cols,
                        1.0,
                        a.data.as_ptr().add(a.offset),
                        a.row_stride,
                        a.col_stride,
                        b.data.as_ptr().add(b.offset),
                        b.row_stride,
                        b.col_stride,
                        beta,
                        out.as_mut_ptr(),
                        b.cols as isize,
                        1,
                    )
                }
            }
        }
    };
}

by_matrixmultiply!(f32, matrixmultiply::sgemm);
by_matrixmultiply!(f64, matrixmultiply::dgemm);
