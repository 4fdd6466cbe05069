//! SIMD: vectors of lanes on every instruction set.
//!
//! A [`Kernel`] is generic over the vector operations [`Lanes`] and runs with the instruction set of a [`Level`], which is selected at run time
//! ([`settings::level`](crate::settings::level)). Results are comparable because:
//!
//! * **An `f32` vector has 16 lanes on every instruction set**: one register on AVX-512, two on
//!   AVX2, four on NEON and in WebAssembly, an array in portable code. Reductions therefore use the same accumulators
//!   and the same reduction tree everywhere.
//! * `fma` is fused on every instruction set except the portable one and WebAssembly's, so AVX2, AVX-512 and NEON
//!   give equal bits; these two also give equal bits, which differ from those by rounding only.
//! * A token (`Avx2`, `Avx512`, ...) proves that the CPU supports the instructions. Only detection
//!   creates one, hence the methods on it are safe.
//!
//! An `f64` vector has 8 lanes with AVX, whose elementary functions are those of `f32` with more coefficients
//! (`math.rs`): equal bits on AVX2 and AVX-512. On the other levels `f64` serves as a reference: the same
//! formulas run on one lane, with the functions of the standard library.

/// A closure that is compiled into its caller, with the instruction set of the caller.
macro_rules! inlined {
    ($($closure:tt)+) => { #[inline(always)] $($closure)+ };
}
pub(crate) use inlined;

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
pub(crate) mod counting;
mod dispatch;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused))]
mod elementary;
mod lanes;
pub(crate) mod level;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
mod math;
mod math_f32;
mod math_f64;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
mod one;
mod portable;
mod prefetch;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(crate) mod wasm128;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use counting::Counting;
pub(crate) use dispatch::{dispatch_f32, dispatch_f64, vectorized};
pub use lanes::{F32_LANES, Kernel, Lanes};
pub use level::{Level, LevelError};
pub(crate) use prefetch::{
    LINE, PREFETCH_DISTANCE, exceeds_private_caches, needs_software_prefetch, prefetch_l1,
    prefetch_l2,
};
