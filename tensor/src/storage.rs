//! Storage: a pool of aligned blocks, which are recycled without being cleared.
//!
//! A block is zeroed once, when it is allocated, so it is always initialised memory. When a storage
//! is dropped, its block goes to the free list of its size class; the next storage of that class
//! reuses it with its old contents. Elements that accept any bit pattern ([`Element::ANY_BITS`])
//! can read such a block safely, and `bool` storages are cleared first. In a training loop, where
//! every step uses the same sizes, the allocator is called in the first step only.
//!
//! The bytes kept for reuse never exceed the peak of the bytes in use.
//!
//! Large blocks start at a multiple of 2 MiB and request huge pages from Linux: the first touch of
//! a page costs about as much as copying it, and an address in a huge page is translated without a
//! page table walk.

use crate::element::Element;
use crate::error::{ErrorKind, OrPanic, Result, ShapeError};
use crate::observe::{self, Event};
use std::alloc::{Layout as Alloc, alloc, alloc_zeroed, dealloc};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Every block starts at a multiple of a cache line, which is also the widest vector.
const ALIGN: usize = 64;
/// The size of a huge page, from which on blocks consist of huge pages.
const HUGE: usize = 2 << 20;
/// The size of an ordinary page.
const PAGE: usize = 4096;
/// Size classes per power of two: a block is at most an eighth larger than requested.
const STEPS: usize = 8;
const CLASSES: usize = 48 * STEPS;
/// The logarithm of the least number of bytes that has no size class, or no address.
const MAX_BITS: u32 = if usize::BITS > 46 { 46 } else { usize::BITS - 1 };

static FREE: [Mutex<Vec<Block>>; CLASSES] = [const { Mutex::new(Vec::new()) }; CLASSES];
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static KEPT: AtomicUsize = AtomicUsize::new(0);
static FRESH: AtomicUsize = AtomicUsize::new(0);
static REUSED: AtomicUsize = AtomicUsize::new(0);

/// Raw memory of one size class, zeroed when it was allocated.
struct Block {
    start: NonNull<u8>,
    class: u16,
    /// Bytes between the start of the allocation and `start`.
    shift: u16,
}

// SAFETY: 1. a block is plain memory owned by whoever holds the value; 2. it has no
// thread-bound state, and sharing a `&Block` gives no access to the memory.
unsafe impl Send for Block {}

/// The counters of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStats {
    /// Bytes in live storages.
    pub live: usize,
    /// The peak of bytes in live storages.
    pub peak: usize,
    /// Bytes kept for reuse.
    pub kept: usize,
    /// Blocks that came from the allocator.
    pub fresh: usize,
    /// Blocks that came from a free list.
    pub reused: usize,
}

/// The counters of the pool of this process.
pub fn pool_stats() -> PoolStats {
    PoolStats {
        live: LIVE.load(Relaxed),
        peak: PEAK.load(Relaxed),
        kept: KEPT.load(Relaxed),
        fresh: FRESH.load(Relaxed),
        reused: REUSED.load(Relaxed),
    }
}

/// Returns all kept blocks to the allocator.
pub fn pool_clear() {
    for class in &FREE {
        let blocks = std::mem::take(&mut *class.lock().unwrap_or_else(|e| e.into_inner()));
        for block in blocks {
            KEPT.fetch_sub(class_bytes(block.class as usize), Relaxed);
            block.free();
        }
    }
}

/// Returns all kept blocks to the allocator, and counts the peak from the bytes that are live now.
pub fn pool_reset() {
    pool_clear();
    PEAK.store(LIVE.load(Relaxed), Relaxed);
}

/// Smallest class whose blocks hold `bytes` (at least one cache line).
fn class_of(bytes: usize) -> usize {
    let lines = bytes.div_ceil(ALIGN).max(1);
    if lines <= STEPS {
        return lines - 1;
    }
    // Eight classes between one power of two and the next.
    let log = (lines - 1).ilog2() as usize;
    let step = 1usize << (log - 3);
    let eighths = (lines - (1 << log)).div_ceil(step);
    (log - 3) * STEPS + STEPS - 1 + eighths
}

/// Bytes of a block of a class.
fn class_bytes(class: usize) -> usize {
    if class < STEPS {
        return (class + 1) * ALIGN;
    }
    let (octave, eighths) = ((class - STEPS) / STEPS, (class - STEPS) % STEPS + 1);
    ((STEPS + eighths) << octave) * ALIGN
}

/// Frees kept blocks of other classes than `wanted` until the limit is met. Classes take turns, so
/// that unused blocks are freed eventually.
#[cold]
fn evict(wanted: usize) {
    static HAND: AtomicUsize = AtomicUsize::new(0);
    for i in 0..2 * CLASSES {
        if KEPT.load(Relaxed) <= PEAK.load(Relaxed) {
            return;
        }
        let class = HAND.fetch_add(1, Relaxed) % CLASSES;
        if class == wanted && i < CLASSES {
            continue;
        }
        let block = FREE[class].lock().unwrap_or_else(|e| e.into_inner()).pop();
        if let Some(block) = block {
            KEPT.fetch_sub(class_bytes(class), Relaxed);
            block.free();
        }
    }
}

/// The allocation of a block of so many bytes; large ones have an extra page for the shift.
fn alloc_layout(bytes: usize) -> Option<Alloc> {
    if bytes < HUGE {
        return Alloc::from_size_align(bytes, ALIGN).ok();
    }
    Alloc::from_size_align(bytes + PAGE, HUGE).ok()
}

/// Zeroed memory, at least one cache line, and its shift; `None` if there is no memory.
///
/// If all large blocks had the same offset in a page, loads from one block would be delayed by
/// recent stores to the same offset in another (4K aliasing), because CPUs compare the low bits of
/// addresses first. So each block is shifted by some cache lines relative to the previous one.
fn fresh(bytes: usize) -> Option<(NonNull<u8>, u16)> {
    static SHIFTS: AtomicUsize = AtomicUsize::new(0);
    let layout = alloc_layout(bytes)?;
    if bytes < HUGE {
        // SAFETY: the size is not zero.
        return NonNull::new(unsafe { alloc_zeroed(layout) }).map(|start| (start, 0));
    }
    // SAFETY: the size is not zero.
    let start = NonNull::new(unsafe { alloc(layout) })?;
    #[cfg(target_os = "linux")]
    // SAFETY: 1. the range starts at a page and lies within the allocation; 2. the advice does
    // not change what the memory holds, and it does not matter whether it is taken.
    unsafe {
        libc::madvise(start.as_ptr().cast(), bytes / HUGE * HUGE, libc::MADV_HUGEPAGE);
    }
    let shift = SHIFTS.fetch_add(1, Relaxed) * 25 * ALIGN % PAGE;
    // SAFETY: the shift is less than a page, by which the allocation is larger than `bytes`.
    let start = unsafe { start.add(shift) };
    // After the advice, so that the first access allocates huge pages.
    // SAFETY: from here to the end of the allocation there are at least so many bytes, and they
    // are ours alone.
    unsafe { start.as_ptr().write_bytes(0, bytes) }
    Some((start, shift as u16))
}

impl Block {
    /// Tells AddressSanitizer that only the first bytes may be accessed, in the builds of `.ci/long address`.
    fn allow(&self, _bytes: usize) {
        #[cfg(exact_blocks)]
        // SAFETY: the range is that of this block; what it holds does not change.
        unsafe {
            unsafe extern "C" {
                fn __asan_poison_memory_region(start: *const u8, bytes: usize);
                fn __asan_unpoison_memory_region(start: *const u8, bytes: usize);
            }
            __asan_poison_memory_region(self.start.as_ptr(), class_bytes(self.class as usize));
            __asan_unpoison_memory_region(self.start.as_ptr(), _bytes);
        }
    }

    fn take(bytes: usize) -> Option<Block> {
        let (class, used) = (class_of(bytes), bytes);
        let bytes = class_bytes(class);
        let recycled = FREE[class].lock().unwrap_or_else(|e| e.into_inner()).pop();
        let block = match recycled {
            Some(block) => {
                KEPT.fetch_sub(bytes, Relaxed);
                REUSED.fetch_add(1, Relaxed);
                block
            }
            None => {
                // If allocation fails, free the kept blocks and try again.
                let (start, shift) = fresh(bytes).or_else(|| {
                    pool_clear();
                    fresh(bytes)
                })?;
                FRESH.fetch_add(1, Relaxed);
                Block { start, class: class as u16, shift }
            }
        };
        block.allow(used);
        let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
        PEAK.fetch_max(live, Relaxed);
        let address = block.start.addr().get();
        observe::report(|tell| tell(&Event::Allocated { address, bytes }));
        Some(block)
    }

    fn give_back(self) {
        let bytes = class_bytes(self.class as usize);
        LIVE.fetch_sub(bytes, Relaxed);
        self.allow(0);
        let address = self.start.addr().get();
        observe::report(|tell| tell(&Event::Freed { address, bytes }));
        let class = self.class as usize;
        let mut free = FREE[class].lock().unwrap_or_else(|e| e.into_inner());
        // If the list cannot grow, free the block instead of aborting.
        if free.try_reserve(1).is_err() {
            drop(free);
            return self.free();
        }
        KEPT.fetch_add(bytes, Relaxed);
        free.push(self);
        drop(free);
        if KEPT.load(Relaxed) > PEAK.load(Relaxed) {
            evict(class);
        }
    }

    fn free(self) {
        let layout =
            alloc_layout(class_bytes(self.class as usize)).expect("the one it was allocated with");
        // SAFETY: 1. `start`, but for the shift, was allocated with this same layout (`fresh`);
        // 2. the block is consumed, so it is freed once.
        unsafe { dealloc(self.start.as_ptr().sub(self.shift.into()), layout) }
    }
}

/// The elements of one or more tensors; it dereferences to a slice.
pub(crate) struct Storage<T: Element> {
    block: Option<Block>,
    len: usize,
    elements: PhantomData<T>,
}

// SAFETY: a storage owns its block and gives access to it only as `&[T]` or, through
// `&mut self`, as `&mut [T]`; elements are `Send + Sync`.
unsafe impl<T: Element> Sync for Storage<T> {}

impl<T: Element> Storage<T> {
    /// [`Storage::recycled`]; panics with its error.
    #[track_caller]
    #[inline(never)]
    pub(crate) fn recycled_or_panic(op: &'static str, len: usize) -> Storage<T> {
        Storage::recycled(op, len).or_panic()
    }

    /// A storage of `len` elements with unspecified values.
    pub(crate) fn recycled(op: &'static str, len: usize) -> Result<Storage<T>> {
        let bytes = len.checked_mul(size_of::<T>()).filter(|&b| b <= isize::MAX as usize);
        let Some(bytes) = bytes else {
            let text = format!("{len} elements of {} do not fit the address space", T::DTYPE);
            return Err(ShapeError::new(op, ErrorKind::Overflow, text));
        };
        if bytes == 0 {
            return Ok(Storage { block: None, len, elements: PhantomData });
        }
        let block =
            (bytes >> MAX_BITS == 0).then(|| Block::take(bytes)).flatten().ok_or_else(|| {
                ShapeError::new(op, ErrorKind::OutOfMemory, format!("no memory for {bytes} bytes"))
            })?;
        if !T::ANY_BITS {
            // SAFETY: the block holds at least `bytes` bytes and is ours alone.
            unsafe { block.start.as_ptr().write_bytes(0, bytes) }
        }
        Ok(Storage { block: Some(block), len, elements: PhantomData })
    }
}

/// An empty vector with room for `len` elements.
pub(crate) fn reserved<T>(op: &'static str, len: usize) -> Result<Vec<T>> {
    let mut out = Vec::new();
    out.try_reserve_exact(len).map_err(|_| {
        let bytes = len.saturating_mul(size_of::<T>());
        ShapeError::new(op, ErrorKind::OutOfMemory, format!("no memory for {bytes} bytes"))
    })?;
    Ok(out)
}

/// A vector of `len` elements that are `x`; panics if there is no memory.
#[track_caller]
pub(crate) fn filled<T: Clone>(op: &'static str, len: usize, x: T) -> Vec<T> {
    let mut out = reserved(op, len).or_panic();
    out.resize(len, x);
    out
}

impl<T: Element> Deref for Storage<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match &self.block {
            None => &[],
            // SAFETY: 1. the block is aligned to 64 and holds `len` elements; 2. it is
            // initialised: zeroed when made, since written only through `&mut [U]` of element
            // types without padding; 3. old contents are valid values of T if `ANY_BITS`,
            // else it was cleared; 4. `&self` keeps it alive and unwritten.
            Some(b) => unsafe { std::slice::from_raw_parts(b.start.as_ptr().cast(), self.len) },
        }
    }
}

impl<T: Element> DerefMut for Storage<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &self.block {
            None => &mut [],
            // SAFETY: as in `deref`, and `&mut self` makes this the only access.
            Some(b) => unsafe { std::slice::from_raw_parts_mut(b.start.as_ptr().cast(), self.len) },
        }
    }
}

impl<T: Element> Drop for Storage<T> {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            block.give_back();
        }
    }
}
