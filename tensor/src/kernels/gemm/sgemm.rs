//! `f32` GEMM on one thread, with the kernels of a SIMD level.

use super::blocked::{BlockedGemm, PACKING_BUFFER};
use super::epilogue::EpilogueArgs;
use super::fallback;
use super::kernel::GemmKernel;
use super::params::NR_VECTORS;
#[cfg(target_arch = "x86_64")]
use super::params::NR_VECTORS_AVX512;
use super::skinny::SkinnyGemm;
use crate::matrix::{MatMut, MatRef};
use crate::simd::{self, Level, dispatch_f32};
use std::cell::Cell;

const SUPPORTED: &str = "levels are checked when they are set";

/// `out = a · b`, or `out += a · b` if `accumulate`, and the epilogue, for operands that are not
/// trivial.
pub(super) fn sgemm(
    level: Level,
    a: MatRef<'_, f32>,
    b: MatRef<'_, f32>,
    accumulate: bool,
    mut out: MatMut<'_, f32>,
    epilogue: Option<EpilogueArgs<'_, f32>>,
) {
    match Loops::of(level, &a, &b) {
        Loops::Matrixmultiply => {
            fallback::sgemm(&a, &b, accumulate, &mut out);
            return epilogue.map_or((), |epilogue| epilogue.apply(out));
        }
        Loops::Skinny => {
            dispatch_f32(level, SkinnyGemm { a, b, accumulate, out: out.whole() });
            return epilogue.map_or((), |epilogue| epilogue.apply(out));
        }
        Loops::Blocked => {}
    }
    with_packing_buffer(|buffer| match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => {
            let gemm = BlockedGemm::<NR_VECTORS_AVX512> { a, b, accumulate, out, epilogue, buffer };
            simd::avx512::Avx512::detect().expect(SUPPORTED).run(gemm)
        }
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => {
            let gemm = BlockedGemm::<NR_VECTORS> { a, b, accumulate, out, epilogue, buffer };
            simd::avx2::Avx2::detect().expect(SUPPORTED).run(gemm)
        }
        #[cfg(target_arch = "aarch64")]
        Level::Neon => {
            let gemm = BlockedGemm::<NR_VECTORS> { a, b, accumulate, out, epilogue, buffer };
            simd::neon::Neon::detect().expect(SUPPORTED).run(gemm)
        }
        _ => unreachable!("{SUPPORTED}"),
    });
}

/// The loops that compute a product.
enum Loops {
    Matrixmultiply,
    Skinny,
    Blocked,
}

impl Loops {
    /// The loops for a product that is not empty.
    fn of(level: Level, a: &MatRef<'_, f32>, b: &MatRef<'_, f32>) -> Loops {
        match level {
            Level::Scalar => Loops::Matrixmultiply,
            _ if SkinnyGemm::is_suitable(a, b) => Loops::Skinny,
            _ => Loops::Blocked,
        }
    }
}

/// The kernel of [`sgemm`] for these operands.
pub(super) fn kernel(level: Level, a: &MatRef<'_, f32>, b: &MatRef<'_, f32>) -> GemmKernel {
    match Loops::of(level, a, b) {
        Loops::Matrixmultiply => GemmKernel::Matrixmultiply,
        Loops::Skinny => GemmKernel::Skinny,
        Loops::Blocked => match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => BlockedGemm::<NR_VECTORS_AVX512>::kernel(a, b),
            _ => BlockedGemm::<NR_VECTORS>::kernel(a, b),
        },
    }
}

/// Runs `f` with the packing buffer of this thread, aligned to cache lines. Pages that are never
/// written take no memory.
fn with_packing_buffer<R>(f: impl FnOnce(&mut [f32]) -> R) -> R {
    thread_local! {
        static BUFFER: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
    }
    const LINE: usize = 64;
    let mut buffer = BUFFER.take();
    if buffer.is_empty() {
        buffer = vec![0.0; PACKING_BUFFER + LINE];
    }
    // Loads and stores that cross cache lines take twice as long.
    let start = buffer.as_ptr().align_offset(LINE);
    let result = f(&mut buffer[start..][..PACKING_BUFFER]);
    BUFFER.set(buffer);
    result
}
