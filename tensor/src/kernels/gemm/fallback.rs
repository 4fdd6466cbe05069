//! GEMM by the crate matrixmultiply, and products in which M, N or K is 0.

use crate::matrix::{MatMut, MatRef};

/// Checks the operands, and computes the product if M, N or K is 0. Returns whether it did so. If K
/// is 0 and `accumulate` is false, the product is 0.
///
/// # Panics
/// If sizes do not agree or an operand exceeds its slice.
pub(super) fn quick_return<T: Copy + Default>(
    a: &MatRef<'_, T>,
    b: &MatRef<'_, T>,
    accumulate: bool,
    out: &mut MatMut<'_, T>,
) -> bool {
    assert!(a.is_inside() && b.is_inside(), "gemm: an operand exceeds its slice");
    assert_eq!(a.cols, b.rows, "gemm: columns of the left and rows of the right operand");
    assert_eq!((out.rows(), out.cols()), (a.rows, b.cols), "gemm: rows and columns of the output");
    if a.cols == 0 && !accumulate {
        (0..out.rows()).for_each(|i| out.row(i).fill(T::default()));
    }
    is_empty(a, b)
}

/// Whether M, N or K is 0.
pub(super) fn is_empty<T>(a: &MatRef<'_, T>, b: &MatRef<'_, T>) -> bool {
    a.rows == 0 || b.cols == 0 || a.cols == 0
}

/// Which kernels matrixmultiply chooses: it detects the CPU by itself, whatever the SIMD level.
pub(crate) fn matrixmultiply_cpu() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    return match () {
        () if is_x86_feature_detected!("avx512f") => "AVX-512",
        () if is_x86_feature_detected!("fma") && is_x86_feature_detected!("avx2") => "AVX2 and FMA",
        () if is_x86_feature_detected!("avx") => "AVX",
        () => "SSE2",
    };
    #[cfg(not(target_arch = "x86_64"))]
    std::env::consts::ARCH
}

macro_rules! by_matrixmultiply {
    ($name:ident, $t:ty) => {
        /// `out = a · b`, or `out += a · b` if `accumulate`, by the function of matrixmultiply of
        /// the same name. M, N and K must not be 0.
        pub(super) fn $name(
            a: &MatRef<'_, $t>,
            b: &MatRef<'_, $t>,
            accumulate: bool,
            out: &mut MatMut<'_, $t>,
        ) {
            let trivial = quick_return(a, b, accumulate, out);
            assert!(!trivial, "gemm: M, N and K must not be 0");
            let row_stride = out.row_stride() as isize;
            // SAFETY: 1. `quick_return` checked that all elements of `a` and `b` are in their
            // slices, and M, N and K are not 0, so the pointers are in bounds; 2. the output has `a.rows` rows
            // of `b.cols` elements, `row_stride` apart; 3. it is borrowed exclusively, so it
            // overlaps neither operand; 4. it is initialised.
            unsafe {
                matrixmultiply::$name(
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
                    if accumulate { 1.0 } else { 0.0 },
                    out.as_mut_ptr(),
                    row_stride,
                    1,
                )
            }
        }
    };
}

by_matrixmultiply!(sgemm, f32);
by_matrixmultiply!(dgemm, f64);
