//! Products that are symmetric.

use super::parallel::gemm;
use super::params::SYMMETRIC_COLUMNS as SIDE;
use super::products::Products;
use super::report::describe;
use super::serial::Gemm;
use crate::cost::Cost;
use crate::matrix::{MatMut, MatRef};
use crate::observe::{self, KernelCall};
use crate::par;
use crate::precision::MatmulPrecision;
use crate::transpose::transpose;

/// `out = a · b`, where the caller knows that the product is symmetric, as that of a matrix and its transpose, or of
/// symmetric matrices that commute: blocks above the diagonal are computed, and copied to those below. The
/// bits are those of [`gemm`], since the terms of an element and of its mirror image are the same.
///
/// # Panics
/// If sizes do not agree or an operand exceeds its slice.
#[inline(never)]
pub fn gemm_symmetric<T: Gemm>(a: MatRef<'_, T>, b: MatRef<'_, T>, out: &mut [T]) {
    let products = Products::one(a, b);
    let (m, k, n) = products.sizes();
    assert_eq!(m, n, "gemm: a symmetric product is square");
    let precision = T::precision(k, n);
    // In split precision, and by matrixmultiply, factors may not be interchangeable.
    let has_mirror_images = precision == MatmulPrecision::F32 && T::kc(k).is_some();
    if n < 2 * SIDE || k == 0 || !has_mirror_images {
        return gemm(&products, false, out);
    }
    let call = observe::begin();
    let mut panels = MatMut::new(out, n, n).blocks(n, SIDE);
    panels.reverse(); // the longest first
    par::each(panels, n * SIDE / 2, Cost::matmul(n, k, precision), |(_, j, out)| {
        let cols = j..j + out.cols();
        let (rows, out) = (0..cols.end, out.into_part(0..cols.end, 0..cols.len()));
        T::gemm(a.part(rows, 0..k), b.part(0..k, cols), false, out);
    });
    for j in (SIDE..n).step_by(SIDE) {
        let (above, below) = out.split_at_mut(j * n);
        transpose(above, j, n as isize, [SIDE.min(n - j), j], below, n);
    }
    observe::end(call, || {
        let whole = describe(&products, false, precision, None);
        let computed =
            (0..n).step_by(SIDE).map(|j| SIDE.min(n - j) * n.min(j + SIDE)).sum::<usize>();
        let detail = "above the diagonal".into();
        KernelCall { detail, flops: 2 * (computed * k) as u64, ..whole }
    });
}
