//! GEMM on one thread: the choice of a kernel by element type, SIMD level and precision.

#[cfg(target_arch = "x86_64")]
use super::amx::Amx;
use super::epilogue::EpilogueArgs;
use super::fallback::{is_empty, quick_return};
use super::kernel::GemmKernel;
use super::native;
use super::params::{self, SPLIT_PRECISION_FROM};
use super::products::Products;
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
    ) {
        Self::multiply(&Products::one(a, b), accumulate, out, epilogue, precision);
    }

    /// [`Gemm::gemm_with_epilogue`] of each product, one below the other in `out`.
    ///
    /// # Panics
    /// As [`Gemm::gemm`].
    fn multiply(
        products: &Products<'_, Self>,
        accumulate: bool,
        out: MatMut<'_, Self>,
        epilogue: Option<EpilogueArgs<'_, Self>>,
        precision: MatmulPrecision,
    );

    /// The precision of a product with `k` terms per sum and `n` columns in the current settings.
    /// It is determined once for all blocks of a product.
    fn precision(k: usize, n: usize) -> MatmulPrecision;

    /// The kernel by which [`Gemm::multiply`] computes a product, in the current settings.
    fn kernel(a: &MatRef<'_, Self>, b: &MatRef<'_, Self>, precision: MatmulPrecision)
    -> GemmKernel;

    /// The number of terms that are accumulated before they are added to the result, when sums have
    /// `k` terms: a sum of partial products of as many terms each has the same bits. `None` if it
    /// is unknown.
    fn kc(k: usize) -> Option<usize>;
}

impl Gemm for f32 {
    fn multiply(
        products: &Products<'_, f32>,
        accumulate: bool,
        mut out: MatMut<'_, f32>,
        epilogue: Option<EpilogueArgs<'_, f32>>,
        precision: MatmulPrecision,
    ) {
        let level = level();
        if quick_return(products, accumulate, &mut out) {
            return epilogue.map_or((), |epilogue| epilogue.apply(out));
        }
        #[cfg(target_arch = "x86_64")]
        if is_split(level, precision) {
            let ((m, _, n), mut epilogue) = (products.sizes(), epilogue);
            for (i, a, b) in products.iter() {
                let rows = i * m..(i + 1) * m;
                let epilogue = epilogue.as_mut().map(|epilogue| epilogue.part(rows.clone(), 0..n));
                split_gemm(a, b, accumulate, out.part(rows, 0..n), epilogue, precision);
            }
            return;
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = precision;
        native::multiply(level, products, accumulate, out, epilogue);
    }

    fn kernel(a: &MatRef<'_, f32>, b: &MatRef<'_, f32>, precision: MatmulPrecision) -> GemmKernel {
        if is_empty(a, b) {
            return GemmKernel::Nothing;
        }
        if is_split(level(), precision) {
            return GemmKernel::Amx(precision);
        }
        native::kernel(level(), a, b)
    }

    fn precision(k: usize, n: usize) -> MatmulPrecision {
        // The number of rows must not matter: a row has the same bits in any product.
        let precision = matmul_precision();
        let large = k.min(n) >= SPLIT_PRECISION_FROM;
        if large && precision.is_supported() { precision } else { MatmulPrecision::F32 }
    }

    fn kc(k: usize) -> Option<usize> {
        Some(params::kc(k))
    }
}

impl Gemm for f64 {
    fn multiply(
        products: &Products<'_, f64>,
        accumulate: bool,
        mut out: MatMut<'_, f64>,
        epilogue: Option<EpilogueArgs<'_, f64>>,
        _: MatmulPrecision,
    ) {
        if quick_return(products, accumulate, &mut out) {
            return epilogue.map_or((), |epilogue| epilogue.apply(out));
        }
        native::multiply(level(), products, accumulate, out, epilogue);
    }

    fn kernel(a: &MatRef<'_, f64>, b: &MatRef<'_, f64>, _: MatmulPrecision) -> GemmKernel {
        if is_empty(a, b) { GemmKernel::Nothing } else { native::kernel(level(), a, b) }
    }

    fn precision(_: usize, _: usize) -> MatmulPrecision {
        MatmulPrecision::F32
    }

    fn kc(k: usize) -> Option<usize> {
        native::has_kernels::<f64>(level()).then(|| params::kc(k))
    }
}

/// Whether a product is computed in split precision.
#[inline]
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
