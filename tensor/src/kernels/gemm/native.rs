//! GEMM on one thread, with the kernels of a SIMD level.

use super::blocked::{BlockedGemm, PACKING_BUFFER, Tiled};
use super::epilogue::EpilogueArgs;
use super::fallback;
use super::kernel::GemmKernel;
use super::params::NR_VECTORS;
#[cfg(target_arch = "x86_64")]
use super::params::NR_VECTORS_AVX512;
use super::portable;
use super::products::Products;
use super::rows::RowGemm;
use super::skinny::SkinnyGemm;
use crate::element::{DType, Float};
use crate::matrix::{MatMut, MatRef};
use crate::simd::{self, Kernel, Level};
use std::cell::Cell;

const SUPPORTED: &str = "levels are checked when they are set";

/// An element type whose products are computed by kernels of a SIMD level.
pub(super) trait Native: Float {
    /// Runs a kernel with the vectors of a level that [`has_kernels`], other than `Scalar`.
    fn run<K: Kernel<Self, Out = ()>>(level: Level, kernel: K);
    /// [`Native::run`] with the tiles of the level.
    fn blocked(level: Level, gemm: BlockedGemm<'_, Self>);
    /// By matrixmultiply, at levels without kernels for this type.
    fn fallback(products: &Products<'_, Self>, accumulate: bool, out: &mut MatMut<'_, Self>);
}

macro_rules! native {
    ($t:ty, $fallback:expr; $($cpu:meta, $level:ident: $token:path, $vectors:ident;)+) => {
        // No level of some architectures has kernels for `f64`.
        #[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
        impl Native for $t {
            fn run<K: Kernel<$t, Out = ()>>(level: Level, kernel: K) {
                match level {
                    $(#[cfg($cpu)]
                    Level::$level => <$token>::detect().expect(SUPPORTED).run(kernel),)+
                    _ => unreachable!("{SUPPORTED}"),
                }
            }

            #[inline]
            fn blocked(level: Level, gemm: BlockedGemm<'_, $t>) {
                match level {
                    $(#[cfg($cpu)]
                    Level::$level => {
                        let kernel = Tiled::<$t, $vectors>(gemm);
                        <$token>::detect().expect(SUPPORTED).run(kernel);
                    })+
                    _ => unreachable!("{SUPPORTED}"),
                }
            }

            fn fallback(products: &Products<'_, $t>, accumulate: bool, out: &mut MatMut<'_, $t>) {
                $fallback(products, accumulate, out);
            }
        }
    };
}

native! {
    f32, |_, _, _| unreachable!("f32 has kernels at every level");
    target_arch = "x86_64", Avx512: simd::avx512::Avx512, NR_VECTORS_AVX512;
    target_arch = "x86_64", Avx2: simd::avx2::Avx2, NR_VECTORS;
    target_arch = "aarch64", Neon: simd::neon::Neon, NR_VECTORS;
    all(target_arch = "wasm32", target_feature = "simd128"), Wasm128: simd::wasm128::Wasm128, NR_VECTORS;
}

native! {
    f64, fallback::dgemm;
    target_arch = "x86_64", Avx512: simd::avx512::Avx512F64, NR_VECTORS_AVX512;
    target_arch = "x86_64", Avx2: simd::avx2::Avx2F64, NR_VECTORS;
}

/// Whether this library has kernels for products of `T` at a level: for `f64` on NEON, matrixmultiply
/// multiplies.
#[inline]
pub(super) fn has_kernels<T: Float>(level: Level) -> bool {
    T::DTYPE == DType::F32 || level != Level::Neon
}

/// `out = a · b`, or `out += a · b` if `accumulate`, of each product, and the epilogue, for operands that
/// are not trivial.
#[inline]
pub(super) fn multiply<T: Native>(
    level: Level,
    products: &Products<'_, T>,
    accumulate: bool,
    mut out: MatMut<'_, T>,
    epilogue: Option<EpilogueArgs<'_, T>>,
) {
    let (a, b) = products.like();
    match Loops::of(level, &a, &b) {
        Loops::Blocked => {
            return with_packing_buffer(|buffer| {
                let gemm = BlockedGemm { products, accumulate, out, epilogue, buffer };
                T::blocked(level, gemm);
            });
        }
        Loops::Portable => with_packing_buffer(|buffer| {
            portable::multiply(products, accumulate, &mut out, buffer);
        }),
        Loops::Rows => with_packing_buffer(|buffer| {
            T::run(level, RowGemm { products, accumulate, out: out.whole(), buffer });
        }),
        Loops::Skinny => T::run(level, SkinnyGemm { products, accumulate, out: out.whole() }),
        Loops::Matrixmultiply => T::fallback(products, accumulate, &mut out),
    }
    if let Some(epilogue) = epilogue {
        epilogue.apply(out);
    }
}

/// The loops that compute a product.
enum Loops {
    Matrixmultiply,
    Portable,
    Rows,
    Skinny,
    Blocked,
}

impl Loops {
    /// The loops for a product that is not empty.
    #[inline]
    fn of<T: Float>(level: Level, a: &MatRef<'_, T>, b: &MatRef<'_, T>) -> Loops {
        match level {
            _ if !has_kernels::<T>(level) => Loops::Matrixmultiply,
            Level::Scalar => Loops::Portable,
            Level::Wasm128 if T::DTYPE == DType::F64 => Loops::Portable,
            _ if SkinnyGemm::is_suitable(a, b) => Loops::Skinny,
            _ if RowGemm::is_suitable(a, b) => Loops::Rows,
            _ => Loops::Blocked,
        }
    }
}

/// The kernel of [`multiply`] for these operands.
pub(super) fn kernel<T: Float>(level: Level, a: &MatRef<'_, T>, b: &MatRef<'_, T>) -> GemmKernel {
    match Loops::of(level, a, b) {
        Loops::Matrixmultiply => GemmKernel::Matrixmultiply,
        Loops::Portable => GemmKernel::Portable,
        Loops::Rows => GemmKernel::Rows,
        Loops::Skinny => GemmKernel::Skinny,
        Loops::Blocked => match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => Tiled::<T, NR_VECTORS_AVX512>::kernel(a, b),
            _ => Tiled::<T, NR_VECTORS>::kernel(a, b),
        },
    }
}

/// Runs `f` with the packing buffer of this thread, aligned to cache lines. Pages that are never
/// written take no memory.
#[inline]
fn with_packing_buffer<T: Float, R>(f: impl FnOnce(&mut [T]) -> R) -> R {
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
    let aligned = &mut buffer[start..][..PACKING_BUFFER];
    // SAFETY: `T` is `f32` or `f64`, as the trait is sealed, which accept any bits.
    let (_, elements, _) = unsafe { aligned.align_to_mut::<T>() };
    let result = f(elements);
    BUFFER.set(buffer);
    result
}
