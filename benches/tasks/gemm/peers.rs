//! Matrix multiplication by other crates, with all threads.

use retrograd::tensor::cost::Cost;
use retrograd::tensor::par;

/// A dense matrix with its strides.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: isize,
    col_stride: isize,
}

impl<'a> Matrix<'a> {
    /// A matrix in row-major order or, if it is transposed, in column-major order.
    pub fn new(data: &'a [f32], [rows, cols]: [usize; 2], transposed: bool) -> Matrix<'a> {
        assert_eq!(data.len(), rows * cols, "a dense matrix");
        let [row_stride, col_stride] =
            if transposed { [1, rows as isize] } else { [cols as isize, 1] };
        Matrix { data, rows, cols, row_stride, col_stride }
    }

    fn end(&self) -> isize {
        let far = |n: usize, stride: isize| (n as isize - 1) * stride;
        far(self.rows, self.row_stride) + far(self.cols, self.col_stride)
    }

    fn row_block(self, first: usize, rows: usize) -> Matrix<'a> {
        let data = &self.data[first * self.row_stride as usize..];
        Matrix { data, rows, ..self }
    }
}

/// Writes the row-major product into the slice.
pub type Product = fn(Matrix<'_>, Matrix<'_>, &mut [f32]);

/// The matrix multiplication of a crate.
pub fn named(name: &str) -> Option<Product> {
    match name {
        "matrixmultiply" => Some(by_matrixmultiply),
        "gemm-avx2" => Some(by_gemm_avx2),
        "gemm-avx512" => Some(by_gemm_avx512),
        "gemmkit" => Some(by_gemmkit),
        _ => None,
    }
}

fn check(a: &Matrix<'_>, b: &Matrix<'_>, out: &[f32]) {
    assert_eq!((a.cols, a.rows * b.cols), (b.rows, out.len()), "sizes of a product");
    for m in [a, b] {
        assert!(m.rows > 0 && m.cols > 0 && m.end() < m.data.len() as isize, "inside its slice");
    }
}

/// The crate runs on one thread, so rows are divided evenly among threads.
fn by_matrixmultiply(a: Matrix<'_>, b: Matrix<'_>, out: &mut [f32]) {
    check(&a, &b, out);
    let n = b.cols;
    let rows = a.rows.div_ceil(par::threads());
    let cost = Cost(u32::try_from(a.cols * 10).unwrap_or(u32::MAX));
    par::fill(out, rows * n, cost, |first, out| {
        let a = a.row_block(first / n, out.len() / n);
        check(&a, &b, out);
        // SAFETY: 1. `check` shows that no element of `a` and `b` lies outside of its slice, as
        // strides are not negative; 2. `out` holds rows * n elements, is row-major and borrowed
        // exclusively; 3. with beta = 0 it is not read.
        unsafe {
            matrixmultiply::sgemm(
                a.rows,
                a.cols,
                n,
                1.0,
                a.data.as_ptr(),
                a.row_stride,
                a.col_stride,
                b.data.as_ptr(),
                b.row_stride,
                b.col_stride,
                0.0,
                out.as_mut_ptr(),
                n as isize,
                1,
            );
        }
    });
}

macro_rules! by_gemm {
    ($name:ident, $kernel:ident, $common:ident, $doc:literal) => {
        #[doc = $doc]
        fn $name(a: Matrix<'_>, b: Matrix<'_>, out: &mut [f32]) {
            check(&a, &b, out);
            let (m, k, n) = (a.rows, a.cols, b.cols);
            let threads = $common::Parallelism::Rayon(par::threads());
            // Its kernels write columns: the transpose of the product is that of `b` and `a`
            // transposed.
            // SAFETY: 1. `check` shows that no element of `a` and `b` lies outside of its slice,
            // as strides are not negative; 2. `out` holds m * n elements and is borrowed
            // exclusively; 3. it is not read, since `read_dst` is false.
            unsafe {
                $kernel::gemm::f32::get_gemm_fn()(
                    n,
                    m,
                    k,
                    out.as_mut_ptr(),
                    n as isize,
                    1,
                    false,
                    b.data.as_ptr(),
                    b.row_stride,
                    b.col_stride,
                    a.data.as_ptr(),
                    a.row_stride,
                    a.col_stride,
                    0.0,
                    1.0,
                    false,
                    false,
                    false,
                    threads,
                );
            }
        }
    };
}

by_gemm!(by_gemm_avx2, gemm_f32_018, gemm_common_018, "Version 0.18, which has AVX2 only.");
by_gemm!(by_gemm_avx512, gemm_f32, gemm_common, "Version 0.19 with its feature for AVX-512.");

fn by_gemmkit(a: Matrix<'_>, b: Matrix<'_>, out: &mut [f32]) {
    use gemmkit::{MatMut, MatRef, Parallelism::Rayon};
    fn view(m: Matrix<'_>) -> MatRef<'_, f32> {
        MatRef::new(m.data, m.rows, m.cols, m.row_stride, m.col_stride)
    }
    let out = MatMut::from_row_major(out, a.rows, b.cols);
    gemmkit::gemm(1.0, view(a), view(b), 0.0, out, Rayon(par::threads()));
}
