//! Software prefetching.
//!
//! Hardware prefetchers stop at page boundaries and follow few streams at a time. Software
//! prefetching pays for many short rows that are pages apart, as in GEMM, and for several large
//! operands that are read side by side, unless the CPU's prefetchers follow these. It does not pay
//! for data in the L2 cache, and the number of outstanding cache lines is limited.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__cpuid;
use std::sync::LazyLock;

/// `f32` elements in a cache line.
pub(crate) const LINE: usize = 16;

/// The prefetch distance, in elements, for operands that exceed the private caches.
pub(crate) const PREFETCH_DISTANCE: usize = 512;

/// Whether the operands of an operation, of `elements` elements each, exceed the private caches of
/// a core.
pub(crate) fn exceeds_private_caches<T>(operands: usize, elements: usize) -> bool {
    operands.saturating_mul(elements).saturating_mul(size_of::<T>()) >= 16 << 20
}

/// Whether to prefetch operands that are read or written sequentially, none of them both: if they
/// [exceed the private caches](exceeds_private_caches), and the hardware prefetchers do not follow
/// them.
pub(crate) fn needs_software_prefetch<T>(operands: usize, elements: usize) -> bool {
    static HARDWARE_SUFFICES: LazyLock<bool> = LazyLock::new(is_zen_5);
    exceeds_private_caches::<T>(operands, elements) && !*HARDWARE_SUFFICES
}

/// Whether this CPU is AMD's Zen 5 or a later one. Softmax, norms and sums of large tensors take
/// 1.1 to 1.5 times as long there with software prefetching.
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe)] // `cpuid` is safe since Rust 1.94
fn is_zen_5() -> bool {
    const FAMILY: u32 = 0x1A;
    // SAFETY: 1. every x86-64 CPU has the instruction.
    let (vendor, version) = unsafe { (__cpuid(0), __cpuid(1).eax) };
    let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
    let family = (version >> 8 & 0xF) + (version >> 20 & 0xFF);
    name.as_flattened() == b"AuthenticAMD" && family >= FAMILY
}

#[cfg(not(target_arch = "x86_64"))]
fn is_zen_5() -> bool {
    false
}

/// Prefetches the cache line at `at`, which may be any address, into the L2 cache.
#[inline(always)]
pub(crate) fn prefetch_l2<T>(at: *const T) {
    prefetch::<false, T>(at);
}

/// Prefetches the cache line at `at`, which may be any address, into the L1 cache, for example for
/// data that will be written.
#[inline(always)]
pub(crate) fn prefetch_l1<T>(at: *const T) {
    prefetch::<true, T>(at);
}

#[inline(always)]
fn prefetch<const L1: bool, T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: hints, which read and write nothing and never fault, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        match L1 {
            true => _mm_prefetch::<_MM_HINT_T0>(at.cast()),
            false => _mm_prefetch::<_MM_HINT_T1>(at.cast()),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
