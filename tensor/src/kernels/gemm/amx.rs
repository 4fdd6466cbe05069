//! The micro-kernels of AMX, which multiplies tiles of 16 × 32 and 32 × 16 `bf16` numbers in one
//! instruction.
//!
//! A `bf16` is the upper half of an `f32`, with 8 significant bits. An `f32` is the sum of three of
//! them, each the rounded remainder of the previous ones, so products of tiles add up to a product
//! of `f32` matrices (Henry, Tang and Heinecke 2019, arXiv 1904.06376).
//!
//! Rust has no stable intrinsics for these instructions, so they are inline assembly. The contents
//! of tile registers are live only within a [`Tiles::product`].

use crate::matrix::MatMut;
use crate::simd::avx512::Avx512;
use std::arch::asm;
use std::arch::x86_64::*;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;

/// A token that proves that the CPU supports AMX for bf16 and AVX-512 with bf16, and that the
/// operating system allows this process to use them; only [`Amx::detect`] creates one.
#[derive(Clone, Copy, Debug)]
pub struct Amx(Avx512);

/// One row of a tile: 16 pairs of `bf16`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Line([u32; 16]);

impl Line {
    /// All zeros.
    pub const ZERO: Line = Line([0; 16]);
}

/// Rows of a tile, and pairs in a row.
pub const SIDE: usize = 16;
/// Terms of the sum in a tile.
pub const K_STEP: usize = 2 * SIDE;

/// A computation that multiplies tiles. Mark [`AmxKernel::run`] `#[inline(always)]`, as with
/// [`Kernel`](crate::simd::Kernel).
pub trait AmxKernel {
    /// Runs the computation.
    fn run(self, amx: Amx);
}

/// The tile registers of this thread, configured until this is dropped.
#[derive(Debug)]
pub struct Tiles(PhantomData<*const ()>);

/// Instructions that change tile registers.
macro_rules! tile_asm {
    ($($code:tt)*) => {
        asm!(
            $($code)*
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

impl Amx {
    /// The token, if the CPU supports the instructions and the system allows them; determined once.
    pub fn detect() -> Option<Amx> {
        static FOUND: OnceLock<bool> = OnceLock::new();
        let found = || is_x86_feature_detected!("avx512bf16") && has_tiles() && is_allowed();
        let avx512 = Avx512::detect()?;
        FOUND.get_or_init(found).then_some(Amx(avx512))
    }

    /// Runs `k` inside a function compiled for AVX-512 with bf16.
    pub fn run<K: AmxKernel>(self, k: K) {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
        fn entry<K: AmxKernel>(amx: Amx, k: K) {
            k.run(amx);
        }
        // SAFETY: 1. `self` proves that the CPU has all of these instructions.
        unsafe { entry(self, k) }
    }

    /// Configures the tile registers, which takes a hundred nanoseconds. Code that might use them
    /// in another configuration must not run before the result is dropped.
    ///
    /// # Panics
    /// If this thread has configured them already.
    pub fn tiles(self) -> Tiles {
        /// The operand of `ldtilecfg`.
        #[repr(C, align(64))]
        struct Shapes {
            palette: u8,
            start: u8,
            reserved: [u8; 14],
            row_bytes: [u16; 16],
            rows: [u8; 16],
        }
        const SHAPES: Shapes = {
            let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
            let mut i = 0;
            while i < 8 {
                (row_bytes[i], rows[i]) = (4 * SIDE as u16, SIDE as u8);
                i += 1;
            }
            Shapes { palette: 1, start: 0, reserved: [0; 14], row_bytes, rows }
        };
        assert!(!CONFIGURED.replace(true), "tile registers are in use");
        // SAFETY: 1. `self` proves that the CPU has AMX and the system allows it; 2. the 64 bytes
        // are a valid description of 8 tiles; 3. registers that change are given.
        unsafe { tile_asm!("ldtilecfg [{}]", in(reg) &SHAPES,) };
        Tiles(PhantomData)
    }
}

thread_local! {
    /// Whether this thread has [`Tiles`].
    static CONFIGURED: Cell<bool> = const { Cell::new(false) };
}

impl Drop for Tiles {
    /// Without live tiles, a context switch saves less state.
    fn drop(&mut self) {
        // SAFETY: 1. tiles exist only where the CPU has AMX and the system allows it; 2. registers
        // that change are given.
        unsafe { tile_asm!("tilerelease",) };
        CONFIGURED.set(false);
    }
}

/// Whether the CPU has AMX with bf16, and the system saves tile registers.
#[allow(unused_unsafe)] // `cpuid` is safe since Rust 1.94
fn has_tiles() -> bool {
    const LEAF: u32 = 7;
    const BF16_AND_TILE: u32 = 1 << 22 | 1 << 24;
    const SAVED: u64 = 1 << 17 | 1 << 18;
    // SAFETY: 1. every x86-64 CPU has the instruction.
    let (leaves, basic) = unsafe { (__cpuid(0).eax, __cpuid(1).ecx) };
    if leaves < LEAF || basic & (1 << 27) == 0 {
        return false;
    }
    // SAFETY: 1. as above.
    let features = unsafe { __cpuid_count(LEAF, 0) }.edx;
    // SAFETY: 1. bit 27 above says that the system has enabled this instruction.
    let saved = unsafe { saved_state() };
    features & BF16_AND_TILE == BF16_AND_TILE && saved & SAVED == SAVED
}

/// The state that the system saves for a thread.
///
/// # Safety
/// 1. The system must have enabled `xgetbv`.
#[target_feature(enable = "xsave")]
unsafe fn saved_state() -> u64 {
    // SAFETY: 1. by the caller.
    unsafe { _xgetbv(0) }
}

/// Requests permission to use tile registers, for all threads of this process.
#[cfg(target_os = "linux")]
fn is_allowed() -> bool {
    const ARCH_PRCTL: isize = 158;
    const REQUEST_PERMISSION: usize = 0x1023;
    const TILE_DATA: usize = 18;
    let mut result = ARCH_PRCTL;
    // SAFETY: 1. the call reads and writes no memory of ours; 2. registers that the kernel
    // changes are given.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") result,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result == 0
}

/// Other systems are not supported.
#[cfg(not(target_os = "linux"))]
fn is_allowed() -> bool {
    false
}

impl Amx {
    /// The vector instructions.
    #[inline(always)]
    pub fn lanes(self) -> Avx512 {
        self.0
    }

    /// Splits two vectors into `T` terms of `bf16`: term `t` of lane `i` of both vectors is pair
    /// `i` of line `t * step` of `out`. Each term is the remainder of the previous ones, rounded to
    /// nearest; subnormal numbers are flushed to 0. Returns the maximum of `largest` and the
    /// magnitudes of the first terms, for [`Amx::all_finite`].
    ///
    /// # Panics
    /// If `out` is too short.
    #[inline(always)]
    pub fn split<const T: usize>(
        self,
        (mut x, mut y): (__m512, __m512),
        mut largest: __m512i,
        step: usize,
        out: &mut [Line],
    ) -> __m512i {
        let out = &mut out[..(T - 1) * step + 1];
        // SAFETY: 1. a token exists only where the CPU has AVX-512 F, BW and BF16; 2. a line is
        // 64 bytes, aligned.
        unsafe {
            const ORDER: [u16; 32] = {
                let mut order = [0; 32];
                let mut i = 0;
                while i < 32 {
                    order[i] = (i / 2 + i % 2 * 16) as u16;
                    i += 1;
                }
                order
            };
            let order = _mm512_loadu_si512(ORDER.as_ptr().cast());
            let upper = _mm512_set1_epi32(0xffff_0000_u32 as i32);
            for t in 0..T {
                let halves: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(y, x));
                let pairs = _mm512_permutexvar_epi16(order, halves);
                _mm512_store_si512((&raw mut out[t * step]).cast(), pairs);
                if t == 0 {
                    let magnitudes = _mm512_and_si512(pairs, _mm512_set1_epi16(0x7fff));
                    largest = _mm512_max_epu16(largest, magnitudes);
                }
                x = _mm512_sub_ps(x, _mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)));
                y = _mm512_sub_ps(y, _mm512_castsi512_ps(_mm512_and_si512(pairs, upper)));
            }
        }
        largest
    }

    /// The magnitudes to start [`Amx::split`] with.
    #[inline(always)]
    pub fn zero_magnitudes(self) -> __m512i {
        // SAFETY: 1. a token exists only where the CPU has AVX-512.
        unsafe { _mm512_setzero_si512() }
    }

    /// Whether all numbers that were split are finite, and round to finite `bf16` numbers.
    #[inline(always)]
    pub fn all_finite(self, largest: __m512i) -> bool {
        // SAFETY: 1. a token exists only where the CPU has AVX-512 BW.
        unsafe { _mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(0x7f80)) == 0 }
    }
}

impl Tiles {
    /// `c = a · b` for 32 rows and 32 or 16 columns: the products of terms `s` of `a` and `t` of
    /// `b` for which `s + t < T`, summed in `f32` over all pairs. A step of 32 terms of the sum is
    /// `2 T` tiles of `a` and as many of `b`: for each term those of the upper 16 rows (left 16
    /// columns), then those of the others. A tile has 16 lines: of `a`, one for each row; of `b`,
    /// one for each pair.
    ///
    /// # Panics
    /// If `a` and `b` are not of equal length and whole steps, or `c` has other sizes.
    #[inline(always)]
    pub fn product<const T: usize>(&self, a: &[Line], b: &[Line], c: &mut MatMut<'_, f32>) {
        let step = 2 * T * SIDE;
        assert!(a.len() == b.len() && a.len().is_multiple_of(step) && !a.is_empty());
        assert!(c.rows() == 2 * SIDE && (c.cols() == SIDE || c.cols() == 2 * SIDE));
        let c_row = 4 * c.row_stride();
        let at =
            ProductArgs { a: a.as_ptr(), b: b.as_ptr(), steps: a.len() / step, c: c.as_mut_ptr() };
        // SAFETY: 1. `self` proves that tile registers are there and set up; 2. `steps` steps
        // of `2 T` tiles of 16 lines can be read, by the first assertion; 3. `c` has 32 rows and
        // 16 or 32 columns, borrowed exclusively.
        unsafe {
            match (T, c.cols() == SIDE) {
                (1, false) => one_term(at, c_row),
                (2, false) => two_terms(at, c_row),
                (3, false) => three_terms(at, c_row),
                (1, true) => one_term_narrow(at, c_row),
                (2, true) => two_terms_narrow(at, c_row),
                (3, true) => three_terms_narrow(at, c_row),
                _ => unreachable!("1 to 3 terms"),
            }
        }
    }
}

/// The operands of a product.
struct ProductArgs {
    a: *const Line,
    b: *const Line,
    steps: usize,
    c: *mut f32,
}

/// A loop over all steps. Sums are in `tmm0` to `tmm3`, row by row of tiles; `tmm4` and `tmm5`
/// hold tiles of `a`, `tmm6` and `tmm7` of `b`. Terms are taken in an order in which few tiles are
/// read twice.
macro_rules! product {
    ($name:ident, $terms:literal, [$($body:tt)*], [$($store:literal),*]) => {
        /// # Safety
        /// 1. Tile registers are set up, all 16 x 16 pairs.
        /// 2. `steps`, at least one, steps of tiles can be read from `a` and `b`.
        /// 3. At `c`, 32 rows can be written, `c_row` bytes apart, of as many columns as are
        ///    stored, and no other reference to them is in use.
        #[inline(always)]
        unsafe fn $name(at: ProductArgs, c_row: usize) {
            // SAFETY: 1. to 3. by the caller; 4. registers that change are given.
            unsafe {
                tile_asm!(
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3",
                    "2:",
                    product!(@ $($body)*),
                    concat!("add {a}, 2048*", $terms),
                    concat!("add {b}, 2048*", $terms),
                    "dec {steps}",
                    "jnz 2b",
                    $($store,)*
                    a = inout(reg) at.a => _,
                    b = inout(reg) at.b => _,
                    steps = inout(reg) at.steps => _,
                    line = in(reg) 64usize,
                    c = in(reg) at.c,
                    c_row = in(reg) c_row,
                    lower = in(reg) at.c.wrapping_byte_add(16 * c_row),
                );
            }
        }
    };
    // Reads both tiles of a term of `a`, or of `b`, or the left one; multiplies what was read last.
    (@ $($what:ident $($term:literal)?),*) => {
        concat!($(product!(@@ $what $($term)?)),*)
    };
    (@@ a $term:literal) => {
        concat!("tileloadd tmm4, [{a} + {line} + 2048*", $term, "]\n",
                "tileloadd tmm5, [{a} + {line} + 2048*", $term, " + 1024]\n")
    };
    (@@ b $term:literal) => {
        concat!("tileloadd tmm6, [{b} + {line} + 2048*", $term, "]\n",
                "tileloadd tmm7, [{b} + {line} + 2048*", $term, " + 1024]\n")
    };
    (@@ left $term:literal) => {
        concat!("tileloadd tmm6, [{b} + {line} + 2048*", $term, "]\n")
    };
    (@@ four) => {
        "tdpbf16ps tmm0, tmm4, tmm6\ntdpbf16ps tmm1, tmm4, tmm7
         tdpbf16ps tmm2, tmm5, tmm6\ntdpbf16ps tmm3, tmm5, tmm7\n"
    };
    (@@ two) => {
        "tdpbf16ps tmm0, tmm4, tmm6\ntdpbf16ps tmm2, tmm5, tmm6\n"
    };
}

macro_rules! wide {
    ($name:ident, $terms:literal, $($body:tt)*) => {
        product!($name, $terms, [$($body)*], [
            "tilestored [{c} + {c_row}], tmm0",
            "tilestored [{c} + {c_row} + 64], tmm1",
            "tilestored [{lower} + {c_row}], tmm2",
            "tilestored [{lower} + {c_row} + 64], tmm3"
        ]);
    };
}

macro_rules! narrow {
    ($name:ident, $terms:literal, $($body:tt)*) => {
        product!($name, $terms, [$($body)*], [
            "tilestored [{c} + {c_row}], tmm0",
            "tilestored [{lower} + {c_row}], tmm2"
        ]);
    };
}

wide!(one_term, 1, a 0, b 0, four);
wide!(two_terms, 2, a 0, b 1, four, b 0, four, a 1, four);
wide!(three_terms, 3, a 0, b 2, four, b 1, four, a 1, four, b 0, four, a 2, four, a 0, four);
narrow!(one_term_narrow, 1, a 0, left 0, two);
narrow!(two_terms_narrow, 2, a 0, left 1, two, left 0, two, a 1, two);
narrow!(three_terms_narrow, 3, a 0, left 2, two, left 1, two, a 1, two, left 0, two, a 2, two, a 0, two);
