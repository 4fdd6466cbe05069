//! Asking for memory before it is needed.
//!
//! What a processor fetches ahead by itself ends at a page, and it follows few rows at a time. It
//! pays to ask where many short rows are gone down that lie pages apart, as in a product, and
//! where several large operands are gone through side by side.

/// How many elements ahead to ask for what is far.
pub(crate) const FAR_AHEAD: usize = 512;

/// Whether so many elements, all that an operation goes through, lie beyond a core's own caches.
pub(crate) fn is_far<T>(elements: usize) -> bool {
    elements * size_of::<T>() >= 16 << 20
}

/// Asks for the cache line at `at`, which may be anywhere, in the second cache.
#[inline(always)]
pub(crate) fn fetch_to_read<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which reads and writes nothing and never faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Asks for the cache line at `at`, which may be anywhere, in the first cache and for oneself.
#[inline(always)]
pub(crate) fn fetch_to_write<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as in `fetch_to_read`; the hint to write is one to read where it is not known.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
