//! Running a kernel with the instruction set of a level.

use super::one::One;
use super::portable::Portable;
use super::{Kernel, Lanes, Level};

/// Runs a kernel on `f32` with the vectors of `level`; panics if the CPU does not support it.
#[inline]
pub(crate) fn dispatch_f32<K: Kernel<f32>>(level: Level, k: K) -> K::Out {
    match level {
        Level::Scalar => Portable.run(k),
        #[cfg(target_arch = "aarch64")]
        Level::Neon => match super::neon::Neon::detect() {
            Some(s) => s.run(k),
            None => unsupported(level),
        },
        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        Level::Wasm128 => match super::wasm128::Wasm128::detect() {
            Some(s) => s.run(k),
            None => unsupported(level),
        },
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => match super::avx2::Avx2::detect() {
            Some(s) => s.run(k),
            None => unsupported(level),
        },
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => match super::avx512::Avx512::detect() {
            Some(s) => s.run(k),
            None => unsupported(level),
        },
        _ => unsupported(level),
    }
}

/// Runs a kernel on `f64` with the vectors of `level`, which are single lanes without AVX; panics if the CPU
/// does not support it.
#[inline]
pub(crate) fn dispatch_f64<K: Kernel<f64>>(level: Level, k: K) -> K::Out {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 if K::EIGHT_F64 => match super::avx512::Avx512F64::detect() {
            Some(s) => s.run(k),
            None => unsupported(level),
        },
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 => match super::avx2::Avx2F64::detect() {
            Some(s) => s.run(k),
            None => unsupported(level),
        },
        _ if level.is_available() => One.run(k),
        _ => unsupported(level),
    }
}

/// Runs scalar code, which the compiler vectorises for the instruction set of `level`: a closure by
/// [`inlined!`](super::inlined).
#[inline]
pub(crate) fn vectorized<R>(level: Level, code: impl FnOnce() -> R) -> R {
    struct Code<F>(F);

    impl<R, F: FnOnce() -> R> Kernel<f32> for Code<F> {
        type Out = R;

        #[inline(always)]
        fn run<S: Lanes<f32>>(self, _: S) -> R {
            (self.0)()
        }
    }
    dispatch_f32(level, Code(code))
}

#[cold]
fn unsupported(level: Level) -> ! {
    panic!("SIMD level {level} is not supported by this CPU")
}
