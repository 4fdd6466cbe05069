//! The tuning parameters of GEMM: block sizes, thresholds and prefetch distances.
//!
//! The names of the block sizes come from BLIS: the product is computed in blocks of MC × NC
//! with KC terms of the sum, and a block in tiles of MR × NR that stay in registers. Sizes were
//! chosen by measurement (`benches/gemm.rs`), for the cache sizes [`L1`] and [`L2`]. Those that stand
//! for an amount of memory are numbers of `f32`, of which [`scaled`] makes half as many `f64`.

use crate::simd::F32_LANES;
use std::ops::Range;

/// Rows of a register tile. With MR × NR = 6 × 64, AVX-512 holds 24 accumulators, 4 vectors of `B`
/// and a broadcast element of `A` in 32 registers; with 6 × 16, AVX2 holds 12, 2 and 1 in 16.
#[cfg(not(target_arch = "wasm32"))]
pub(super) const MR: usize = 6;
/// The same with 2 × 16: 8 accumulators of four lanes, 4 vectors of `B` and one of `A` fit the 16 registers of x86-64.
#[cfg(target_arch = "wasm32")]
pub(super) const MR: usize = 2;
/// Vectors of 16 columns in a register tile: NR is 64 on AVX-512.
#[cfg(target_arch = "x86_64")]
pub(super) const NR_VECTORS_AVX512: usize = 4;
/// The same on instruction sets with registers of less than 16 lanes: NR is 16.
pub(super) const NR_VECTORS: usize = 1;
/// Terms of the sum per iteration of the micro-kernel's loop: with one, the loop counter takes a
/// tenth of the time.
#[cfg(not(target_arch = "wasm32"))]
pub(super) const UNROLL_K: usize = 4;
/// With more, loads of several terms are moved before the products, and accumulators are spilled: 59 % instead of 76 %
/// of the peak in Chromium, which has 15 registers for vectors.
#[cfg(target_arch = "wasm32")]
pub(super) const UNROLL_K: usize = 1;

/// Terms of the sum in a block, at most. Longer chains save passes over the product, but a panel of
/// KC × NR elements of `B` (128 KB on AVX-512) must fit the L2 cache.
pub(super) const KC: usize = 512;
/// Rows of `A` in a block that is read in place: MC × KC elements (240 KB) and a few panels of `B`
/// fit the L2 cache.
pub(super) const MC: usize = 120;
/// Rows of `A` in a packed block: more, since the columns of such an `A` are contiguous and packing
/// reads long stretches of them.
pub(super) const MC_PACKED: usize = 480;
/// Columns of `B` in a block: KC × NC elements (1 MB) are packed at once.
pub(super) const NC: usize = 512;
/// Rows that are packed side by side: four tiles, a multiple of MR.
pub(super) const MR_PACKED: usize = 4 * MR;

/// The number of terms of a block when sums have `k` terms: equal blocks of at most [`KC`]. The
/// last one may have fewer.
#[inline]
pub(super) fn kc(k: usize) -> usize {
    k.div_ceil(k.div_ceil(KC).max(1)).max(1)
}

/// `0..n` in blocks of `size`. (`step_by` would divide, which takes as long as a product of 4 x 4.)
#[inline(always)]
pub(super) fn blocks(n: usize, size: usize) -> Blocks {
    Blocks { start: 0, n, size }
}

/// See [`blocks`].
pub(super) struct Blocks {
    start: usize,
    n: usize,
    size: usize,
}

impl Iterator for Blocks {
    type Item = Range<usize>;

    #[inline(always)]
    fn next(&mut self) -> Option<Range<usize>> {
        let block = self.start..self.n.min(self.start + self.size);
        self.start = block.end;
        if block.is_empty() { None } else { Some(block) }
    }
}

/// Lanes of a vector: as many bytes for every element type.
#[inline(always)]
pub(super) const fn lanes<T>() -> usize {
    scaled::<T>(F32_LANES)
}

/// A number of `f32` elements as the number of `T` of the same size.
#[inline(always)]
pub(super) const fn scaled<T>(n: usize) -> usize {
    n * size_of::<f32>() / size_of::<T>()
}

/// Rows of a product up to which it is computed by rows.
pub(super) const ROWS: usize = 4;
/// Elements of these rows that are computed together: they stay in the L1 cache.
pub(super) const ROW_ELEMENTS: usize = 4096;
/// Elements of a `B` that comes from memory.
pub(super) const LARGE_B: usize = 1 << 22;

/// Terms of a sum up to which tiles are computed along rows of a large product, since long rows are written
/// faster. A block has the rows of a tile and so many columns as their `B` fits the L1 cache.
pub(super) const SHORT_SUM: usize = 16;
/// See [`SHORT_SUM`].
pub(super) const SHORT_SUM_COLUMNS: usize = 2048;
/// The least number of columns of such a product.
pub(super) const SHORT_SUM_WIDTH: usize = 1024;
/// Elements of a product that goes to memory.
pub(super) const LARGE_C: usize = 1 << 19;

/// Columns that portable code computes together: KC rows of them are packed at once.
pub(super) const PORTABLE_COLUMNS: usize = 256;

/// Rows of `A` up to which the skinny kernel is used.
pub(super) const SKINNY_ROWS: usize = 8;
/// Elements of a row of `Bᵀ` that the skinny kernel prefetches ahead, if it has more than
/// [`SKINNY_SHORT`]; if not, it prefetches the rows of the next group.
pub(super) const SKINNY_PREFETCH: usize = 8 * F32_LANES;

/// See [`SKINNY_PREFETCH`].
pub(super) const SKINNY_SHORT: usize = 512;

/// Elements that packing prefetches ahead where it transposes: hardware prefetchers follow only a
/// few of many separate rows.
pub(super) const PACK_PREFETCH: usize = 4 * F32_LANES;
/// Rows that packing prefetches ahead where it copies: hardware prefetchers start anew in each row.
pub(super) const PACK_PREFETCH_ROWS: isize = 4;

/// `A` with contiguous columns is read in place if they are at most this many elements apart ..
pub(super) const A_CLOSE: usize = 128;
/// .. or this many, if the product has at most [`A_FEW_COLUMNS`] columns, so that few passes read
/// it.
pub(super) const A_CLOSE_FEW_PASSES: usize = 768;
/// Columns of a product whose `A` is read in at most two passes.
pub(super) const A_FEW_COLUMNS: usize = 128;

/// Terms of a sum up to which panels of `B` are read in place if they fit the L1 cache.
pub(super) const B_SHORT: usize = 64;
/// Rows of a product up to which panels of `B` are read in place if they fit the L2 cache, per
/// vector of a panel.
pub(super) const B_FEW_ROWS: usize = 128;
/// Distance in elements up to which rows of `B` are close enough for that.
pub(super) const B_CLOSE: usize = 512;

/// Elements from which an operand or the product exceeds the L2 cache and is prefetched.
pub(super) const PREFETCH_FROM: usize = 1 << 17;
/// The same for an `A` that is read only once, by products of at most [`PREFETCH_A_ONCE_COLUMNS`].
pub(super) const PREFETCH_A_ONCE_FROM: usize = PREFETCH_FROM / 4;
/// Columns of a product whose `A` is read once.
pub(super) const PREFETCH_A_ONCE_COLUMNS: usize = 64;
/// Terms of a block from which the product is prefetched: with fewer, the prefetch instructions
/// take longer than they save.
pub(super) const PREFETCH_C_TERMS: usize = 256;

/// Columns of a symmetric product that are computed together, down to the diagonal.
pub(super) const SYMMETRIC_COLUMNS: usize = 64;

/// A set-associative cache.
pub(super) struct Cache {
    /// Elements after which lines map to the same set again: sets times elements of a line.
    pub period: usize,
    /// Lines of a set that the rows of one panel may occupy.
    pub ways: usize,
}

/// L1: 32 KB in 8 ways.
pub(super) const L1: Cache = Cache { period: 1024, ways: 8 };
/// L2: 1 MB in 16 ways, of which rows of `A` and of the product take 4. Of rows of 512 elements,
/// 384 are read in place, and 512, which would occupy 16 ways, are packed.
pub(super) const L2: Cache = Cache { period: 16_384, ways: 12 };

/// Rows and columns per task that the partition divides a product by: MR × 64, or the AMX tiles of
/// split precision.
pub(super) const TASK_UNIT: (usize, usize) = (MR, 64);
/// The same in split precision.
pub(super) const TASK_UNIT_SPLIT: (usize, usize) = (32, 64);
/// Elements of all partial products of split-K, at most.
pub(super) const SPLIT_K_ELEMENTS: usize = 1 << 20;

/// Columns, and terms per sum, from which a product is computed in split precision: half an AMX
/// tile.
pub(super) const SPLIT_PRECISION_FROM: usize = 16;
/// Bytes of packed rows, and of packed columns, in split precision: both fit the L2 cache.
#[cfg(target_arch = "x86_64")]
pub(super) const SPLIT_ROW_BYTES: usize = 512 << 10;
/// See [`SPLIT_ROW_BYTES`].
#[cfg(target_arch = "x86_64")]
pub(super) const SPLIT_COLUMN_BYTES: usize = 1 << 20;
