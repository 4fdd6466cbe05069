//! GEMM on one thread: the choice of a kernel by element type, SIMD level and precision.

#[cfg(target_arch = "x86_64")]
use super::amx::Amx;
use super::epilogue::EpilogueArgs;
use super::fallback::{self, is_empty, quick_return};
use super::kernel::GemmKernel;
use super::params::{self, SPLIT_PRECISION_FROM};
use super::sgemm::{self, sgemm};
#[cfg(target_arch = "x86_64")]
use super::split::split_gemm;
use crate::element::Float;
use crate::matrix::{MatMut, MatRef};
use crate::precision::MatmulPrecision;
use crate::settings::{level, matmul_precision};
use crate::simd::Level;

/// An element type with matrix multiplication.
pub trait Gemm: Float {
    /// `out = a · b`, or `out += a · b` if `accumulate`, on one thread, in precision `F32`.
    ///
    /// # Panics
    /// If sizes do not agree or an operand exceeds its slice.
    fn gemm(a: MatRef<'_, Self>, b: MatRef<'_, Self>, accumulate: bool, out: MatMut<'_, Self>) {
        Self::gemm_with_epilogue(a, b, accumulate, out, None, MatmulPrecision::F32);
    }

    /// [`Gemm::gemm`] followed by an epilogue on every block of the product while it is in the
    /// cache. `precision` is a value of [`Gemm::precision`].
    ///
    /// # Panics
    /// As [`Gemm::gemm`].
    fn gemm_with_epilogue(
        a: MatRef<'_, Self>,
        b: MatRef<'_, Self>,
        accumulate: bool,
        out: MatMut<'_, Self>,
        epilogue: Option<EpilogueArgs<'_, Self>>,
        precision: MatmulPrecision,
    );

    /// The precision of a product with `k` terms per sum and `n` columns in the current settings.
    /// It is determined once for all blocks of a product.
    fn precision(k: usize, n: usize) -> MatmulPrecision;

    /// The kernel by which [`Gemm::gemm_with_epilogue`] computes a product, in the current settings.
    fn kernel(a: &MatRef<'_, Self>, b: &MatRef<'_, Self>, precision: MatmulPrecision)
    -> GemmKernel;

    /// The number of terms that are accumulated before they are added to the result, when sums have
    /// `k` terms: a sum of partial products of as many terms each has the same bits. `None` if it
    /// is unknown.
    fn kc(k: usize) -> Option<usize>;
}

impl Gemm for f32 {
    fn gemm_with_epilogue(
        a: MatRef<'_, f32>,
        b: MatRef<'_, f32>,
        accumulate: bool,
        mut out: MatMut<'_, f32>,
        epilogue: Option<EpilogueArgs<'_, f32>>,
        precision: MatmulPrecision,
    ) {
        let level = level();
        if quick_return(&a, &b, accumulate, &mut out) {
            return epilogue.map_or((), |epilogue| epilogue.apply(out));
        }
        #[cfg(target_arch = "x86_64")]
        if is_split(level, precision) {
            return split_gemm(a, b, accumulate, out, epilogue, precision);
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = precision;
        sgemm(level, a, b, accumulate, out, epilogue);
    }

    fn kernel(a: &MatRef<'_, f32>, b: &MatRef<'_, f32>, precision: MatmulPrecision) -> GemmKernel {
        if is_empty(a, b) {
            return GemmKernel::Nothing;
        }
        if is_split(level(), precision) {
            return GemmKernel::Amx(precision);
        }
        sgemm::kernel(level(), a, b)
    }

    fn precision(k: usize, n: usize) -> MatmulPrecision {
        // The number of rows must not matter: a row has the same bits in any product.
        let precision = matmul_precision();
        let large = k.min(n) >= SPLIT_PRECISION_FROM;
        if large && precision.is_supported() { precision } else { MatmulPrecision::F32 }
    }

    fn kc(k: usize) -> Option<usize> {
        (level() != Level::Scalar).then(|| params::kc(k))
    }
}

impl Gemm for f64 {
    fn gemm_with_epilogue(
        a: MatRef<'_, f64>,
        b: MatRef<'_, f64>,
        accumulate: bool,
        mut out: MatMut<'_, f64>,
        epilogue: Option<EpilogueArgs<'_, f64>>,
        _: MatmulPrecision,
    ) {
        if !quick_return(&a, &b, accumulate, &mut out) {
            fallback::dgemm(&a, &b, accumulate, &mut out);
        }
        if let Some(epilogue) = epilogue {
            epilogue.apply(out);
        }
    }

    fn kernel(a: &MatRef<'_, f64>, b: &MatRef<'_, f64>, _: MatmulPrecision) -> GemmKernel {
        if is_empty(a, b) { GemmKernel::Nothing } else { GemmKernel::Matrixmultiply }
    }

    fn precision(_: usize, _: usize) -> MatmulPrecision {
        MatmulPrecision::F32
    }

    fn kc(_: usize) -> Option<usize> {
        None
    }
}

/// Whether a product is computed in split precision.
fn is_split(level: Level, precision: MatmulPrecision) -> bool {
    precision != MatmulPrecision::F32 && level != Level::Scalar
}

impl MatmulPrecision {
    /// Whether this CPU, at the SIMD level of this thread, multiplies in this precision; if not,
    /// products are computed in `F32`.
    ///
    /// The first call (or product) requests permission to use tile registers from Linux, for the
    /// whole process. From then on the kernel rejects signal stacks (`sigaltstack`) of less than
    /// about 12 KB; if one exists already, it denies the permission. Rust's own are large enough.
    pub fn is_supported(self) -> bool {
        self == MatmulPrecision::F32 || has_bf16()
    }
}

/// Whether AMX can be used at the SIMD level of this thread.
fn has_bf16() -> bool {
    #[cfg(target_arch = "x86_64")]
    return level() == Level::Avx512 && Amx::detect().is_some();
    #[cfg(not(target_arch = "x86_64"))]
    false
}
