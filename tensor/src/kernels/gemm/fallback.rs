//! GEMM by the crate matrixmultiply, and products in which M, N or K is 0.

use super::products::Products;
use crate::element::Float;
use crate::matrix::{MatMut, MatRef};

/// Checks the sizes, and computes the products if M, N or K is 0. Returns whether it did so. If K
/// is 0 and `accumulate` is false, they are 0.
///
/// # Panics
/// If sizes do not agree.
#[inline]
pub(super) fn quick_return<T: Float>(
    products: &Products<'_, T>,
    accumulate: bool,
    out: &mut MatMut<'_, T>,
) -> bool {
    let (m, k, n) = products.sizes();
    let (rows, cols) = (out.rows(), out.cols());
    assert_eq!((rows, cols), (products.len() * m, n), "gemm: rows and columns of the output");
    if k == 0 && !accumulate {
        (0..rows).for_each(|i| out.row(i).fill(T::ZERO));
    }
    m == 0 || n == 0 || k == 0
}

/// Whether M, N or K is 0.
pub(super) fn is_empty<T>(a: &MatRef<'_, T>, b: &MatRef<'_, T>) -> bool {
    a.rows == 0 || b.cols == 0 || a.cols == 0
}

/// `out = a · b`, or `out += a · b` if `accumulate`, of each product, by matrixmultiply. M, N and K must
/// not be 0.
pub(super) fn dgemm(products: &Products<'_, f64>, accumulate: bool, out: &mut MatMut<'_, f64>) {
    let trivial = quick_return(products, accumulate, out);
    assert!(!trivial, "gemm: M, N and K must not be 0");
    let (m, k, n) = products.sizes();
    for (i, a, b) in products.iter() {
        let mut out = out.part(i * m..(i + 1) * m, 0..n);
        let row_stride = out.row_stride() as isize;
        // SAFETY: 1. `each` checked that all elements of `a` and `b` are in their slices, and M, N and K
        // are not 0, so the pointers are in bounds; 2. the output has `m` rows of `n` elements,
        // `row_stride` apart; 3. it is borrowed exclusively, so it overlaps neither operand; 4. it
        // is initialised.
        unsafe {
            matrixmultiply::dgemm(
                m,
                k,
                n,
                1.0,
                a.data.as_ptr().add(a.offset),
                a.row_stride,
                a.col_stride,
                b.data.as_ptr().add(b.offset),
                b.row_stride,
                b.col_stride,
                if accumulate { 1.0 } else { 0.0 },
                out.as_mut_ptr(),
                row_stride,
                1,
            )
        }
    }
}
