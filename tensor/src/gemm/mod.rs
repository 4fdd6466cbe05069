//! Matrix products on one thread.
//!
//! For `f32`, where the CPU has fused multiply-add, the kernels are our own, after Goto and van
//! de Geijn 2008 (doi 10.1145/1356052.1356053):
//!
//! | file | what |
//! |---|---|
//! | `blocks.rs` | cuts the product into blocks that fit the caches |
//! | `operands.rs` | tells what of the operands is read where it lies, and what is copied |
//! | `pack.rs` | copies blocks into the order in which they are read |
//! | `tile.rs` | makes a tile of the product in registers |
//! | `few.rs` | a few rows, where copying would take longer than multiplying |
//! | `finish.rs` | what else is done to a block before it leaves the cache |
//! | `split.rs` | blocks, copies and tiles of factors that are split into terms of `bf16` |
//!
//! Every element is made in the same way: a chain of fused multiply-adds over each block of
//! [`Product::depth`] terms of the sum, and the blocks added in order. So its bits depend on its
//! row of `a`, its column of `b` and nothing else: not on tiles, threads, strides or the
//! instruction set, nor on how many other rows and columns there are.
//!
//! So it is with split factors ([`MatmulPrecision`]), with another chain: see `split.rs`. These
//! exist on one instruction set only.
//!
//! `f64`, and `f32` in portable code, go through matrixmultiply.

mod blocks;
mod few;
mod finish;
mod operands;
mod pack;
#[cfg(target_arch = "x86_64")]
mod split;
mod tile;

use crate::matrix::{MatMut, MatRef};
use crate::precision::{MatmulPrecision, matmul_precision};
#[cfg(target_arch = "x86_64")]
use crate::simd::amx::{Amx, Line};
use crate::simd::{self, Level, Real};
use blocks::Blocks;
use few::Few;
#[cfg(target_arch = "x86_64")]
use split::Split;
use std::cell::Cell;

pub use blocks::{TILE as ROWS_OF_A_TILE, WIDTH as COLUMNS_AT_ONCE};
pub use finish::{Finish, Then};
pub use operands::rows_in_place;

/// Whether columns of `b` are read where they lie, and transposed in registers.
pub fn columns_in_registers<T>(a: &MatRef<'_, T>, b: &MatRef<'_, T>) -> bool {
    Few::suits(a, b)
}

/// An element type that has a matrix product.
pub trait Product: Sized {
    /// `out = a · b`, or `out += a · b` if `add`, on one thread.
    ///
    /// # Panics
    /// If sizes do not agree or an operand leaves its slice.
    fn gemm(a: MatRef<'_, Self>, b: MatRef<'_, Self>, add: bool, out: MatMut<'_, Self>) {
        Self::gemm_then(a, b, add, out, None, MatmulPrecision::F32);
    }

    /// [`Product::gemm`], and what is to be done with the product while it is in the cache; made
    /// as `precision`, an answer of [`Product::precision`], says.
    ///
    /// # Panics
    /// As [`Product::gemm`].
    fn gemm_then(
        a: MatRef<'_, Self>,
        b: MatRef<'_, Self>,
        add: bool,
        out: MatMut<'_, Self>,
        then: Option<Then<'_, Self>>,
        precision: MatmulPrecision,
    );

    /// How a product of `k` terms in a sum and `n` columns is made under the settings in force. To
    /// be asked once for all parts of a product.
    fn precision(k: usize, n: usize) -> MatmulPrecision;

    /// How many terms of a sum of `k` are added up before they are added to the result: a
    /// product may be put together from products of so many, and have the same bits. `None` if
    /// that is not known.
    fn depth(k: usize) -> Option<usize>;
}

impl Product for f32 {
    fn gemm_then(
        a: MatRef<'_, f32>,
        b: MatRef<'_, f32>,
        add: bool,
        mut out: MatMut<'_, f32>,
        then: Option<Then<'_, f32>>,
        precision: MatmulPrecision,
    ) {
        let level = simd::level();
        let trivial = is_trivial(&a, &b, add, &mut out);
        if trivial || level == Level::Scalar {
            if !trivial {
                by_matrixmultiply!(matrixmultiply::sgemm, a, b, add, out);
            }
            return then.into_iter().for_each(|then| then.run(out.part(0..a.rows, 0..b.cols)));
        }
        #[cfg(target_arch = "x86_64")]
        if precision != MatmulPrecision::F32 {
            return by_splitting(a, b, add, out, then, precision);
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = precision;
        if Few::suits(&a, &b) {
            f32::dispatch(level, Few { a, b, add, out: out.part(0..a.rows, 0..b.cols) });
            return then.map_or((), |then| then.run(out));
        }
        with_room(|room| match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                let blocks = Blocks::<4> { a, b, add, out, then, room };
                simd::avx512::Avx512::detect().expect(PRESENT).run(blocks)
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => {
                let blocks = Blocks::<1> { a, b, add, out, then, room };
                simd::avx2::Avx2::detect().expect(PRESENT).run(blocks)
            }
            #[cfg(target_arch = "aarch64")]
            Level::Neon => {
                let blocks = Blocks::<1> { a, b, add, out, then, room };
                simd::neon::Neon::detect().expect(PRESENT).run(blocks)
            }
            _ => unreachable!("{PRESENT}"),
        });
    }

    fn precision(k: usize, n: usize) -> MatmulPrecision {
        // Half of what tiles hold. Rows do not matter: a row is made in the same way alone.
        const LEAST: usize = 16;
        let precision = matmul_precision();
        let large = k.min(n) >= LEAST;
        if large && precision.is_supported() { precision } else { MatmulPrecision::F32 }
    }

    fn depth(k: usize) -> Option<usize> {
        (simd::level() != Level::Scalar).then(|| blocks::depth(k))
    }
}

/// Whether products of `bf16` can be made here and now.
pub(crate) fn has_bf16() -> bool {
    #[cfg(target_arch = "x86_64")]
    return simd::level() == Level::Avx512 && Amx::detect().is_some();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// The product of operands that are split into terms.
#[cfg(target_arch = "x86_64")]
fn by_splitting(
    a: MatRef<'_, f32>,
    b: MatRef<'_, f32>,
    add: bool,
    out: MatMut<'_, f32>,
    then: Option<Then<'_, f32>>,
    precision: MatmulPrecision,
) {
    thread_local! {
        static ROOM: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    }
    let mut room = ROOM.take();
    room.resize(split::ROOM, Line::ZERO);
    let amx = Amx::detect().expect("precisions are checked when they are chosen");
    match precision {
        MatmulPrecision::F32 | MatmulPrecision::Bf16x6 => {
            amx.run(Split::<3> { a, b, add, out, then, room: &mut room });
        }
        MatmulPrecision::Bf16x3 => {
            amx.run(Split::<2> { a, b, add, out, then, room: &mut room });
        }
        MatmulPrecision::Bf16 => amx.run(Split::<1> { a, b, add, out, then, room: &mut room }),
    }
    ROOM.set(room);
}

const PRESENT: &str = "levels are checked when they are set";

/// Runs `f` with room for packing, which every thread keeps to itself: memory that is not
/// written takes no place.
fn with_room<R>(f: impl FnOnce(&mut [f32]) -> R) -> R {
    thread_local! {
        static ROOM: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
    }
    const LINE: usize = 64;
    let mut room = ROOM.take();
    if room.is_empty() {
        room = vec![0.0; blocks::ROOM + LINE];
    }
    // Vectors that straddle cache lines take twice as long.
    let start = room.as_ptr().align_offset(LINE);
    let result = f(&mut room[start..][..blocks::ROOM]);
    ROOM.set(room);
    result
}

impl Product for f64 {
    fn gemm_then(
        a: MatRef<'_, f64>,
        b: MatRef<'_, f64>,
        add: bool,
        mut out: MatMut<'_, f64>,
        then: Option<Then<'_, f64>>,
        _: MatmulPrecision,
    ) {
        if !is_trivial(&a, &b, add, &mut out) {
            by_matrixmultiply!(matrixmultiply::dgemm, a, b, add, out);
        }
        then.into_iter().for_each(|then| then.run(out.part(0..a.rows, 0..b.cols)));
    }

    fn precision(_: usize, _: usize) -> MatmulPrecision {
        MatmulPrecision::F32
    }

    fn depth(_: usize) -> Option<usize> {
        None
    }
}

/// Checks the operands; and if nothing is to be multiplied, does what is to be done.
fn is_trivial<T: Copy + Default>(
    a: &MatRef<'_, T>,
    b: &MatRef<'_, T>,
    add: bool,
    out: &mut MatMut<'_, T>,
) -> bool {
    assert!(a.is_inside() && b.is_inside() && a.cols == b.rows, "gemm: operands");
    assert_eq!((out.rows(), out.cols()), (a.rows, b.cols), "gemm: size of the output");
    if a.cols == 0 && !add {
        (0..out.rows()).for_each(|i| out.row(i).fill(T::default()));
    }
    a.rows == 0 || b.cols == 0 || a.cols == 0
}

/// The product by a function of matrixmultiply, after [`is_trivial`].
macro_rules! by_matrixmultiply {
    ($f:path, $a:ident, $b:ident, $add:ident, $out:ident) => {{
        let row_stride = $out.row_stride() as isize;
        // SAFETY: 1. `is_trivial` checked that every element of `a` and `b` that the strides
        // reach lies in their slices, and that there are some; 2. the output has `a.rows` rows
        // of `b.cols` elements, `row_stride` apart; 3. it is borrowed exclusively, so it
        // overlaps neither operand; 4. it is initialised.
        unsafe {
            $f(
                $a.rows,
                $a.cols,
                $b.cols,
                1.0,
                $a.data.as_ptr().add($a.offset),
                $a.row_stride,
                $a.col_stride,
                $b.data.as_ptr().add($b.offset),
                $b.row_stride,
                $b.col_stride,
                if $add { 1.0 } else { 0.0 },
                $out.as_mut_ptr(),
                row_stride,
                1,
            )
        }
    }};
}
use by_matrixmultiply;
