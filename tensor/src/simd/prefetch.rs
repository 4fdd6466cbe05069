//! Asking for memory before it is needed.
//!
//! What a processor fetches ahead by itself ends at a page, and it follows few rows at a time. It
//! pays to ask where many short rows are gone down that lie pages apart, as in a product, and
//! where several large operands are gone through side by side, unless the CPU follows these. It does
//! not pay for what is in the second cache already, and more than some lines at once are waited for.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__cpuid;
use std::sync::LazyLock;

/// Elements of `f32` in a cache line: the distance at which to ask.
pub(crate) const LINE: usize = 16;

/// How many elements ahead to ask for what is far.
pub(crate) const PREFETCH_DISTANCE: usize = 512;

/// Whether so many elements, all that an operation goes through, lie beyond a core's own caches.
pub(crate) fn exceeds_private_caches<T>(operands: usize, elements: usize) -> bool {
    operands.saturating_mul(elements).saturating_mul(size_of::<T>()) >= 16 << 20
}

/// Whether to ask for what [is far](exceeds_private_caches) of operands that are gone through from end to end,
/// none of them read and written: not where the CPU follows these by itself.
pub(crate) fn needs_software_prefetch<T>(operands: usize, elements: usize) -> bool {
    static FOLLOWED: LazyLock<bool> = LazyLock::new(is_zen_5);
    exceeds_private_caches::<T>(operands, elements) && !*FOLLOWED
}

/// Whether this CPU is AMD's Zen 5 or a later one. Softmax, norms and sums of what is far take 1.1 to
/// 1.5 times as long there if they ask for it.
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

/// Asks for the cache line at `at`, which may be anywhere, in the second cache.
#[inline(always)]
pub(crate) fn prefetch_l2<T>(at: *const T) {
    ask::<false, T>(at);
}

/// Asks for the cache line at `at`, which may be anywhere, in the first cache, as for what will be
/// written.
#[inline(always)]
pub(crate) fn prefetch_l1<T>(at: *const T) {
    ask::<true, T>(at);
}

#[inline(always)]
fn ask<const NEAR: bool, T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: hints, which read and write nothing and never fault, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        match NEAR {
            true => _mm_prefetch::<_MM_HINT_T0>(at.cast()),
            false => _mm_prefetch::<_MM_HINT_T1>(at.cast()),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
