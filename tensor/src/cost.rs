//! The cost model: estimated times of work, from which chunk sizes and the use of threads follow.
//!
//! This file is the only table of costs. The unit of time is the picosecond, on one core with
//! AVX-512. The estimates decide how work is divided, never what it computes. Chunk sizes must not
//! depend on the number of threads, since the order of floating-point sums does depend on chunks.

use crate::precision::MatmulPrecision;

/// Estimated time of work per element, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost(pub u32);

/// Work below this estimate stays on one thread: waking another thread takes longer than it saves.
pub const PARALLEL_THRESHOLD: u64 = 25_000_000;
/// The same threshold on a thread of the pool, whose idle threads steal work without being woken
/// unless they have slept for long.
pub const PARALLEL_THRESHOLD_IN_POOL: u64 = 12_000_000;
/// Target time of a chunk.
const CHUNK: u64 = 20_000_000;
/// Target time of a chunk of whole matrix products in a batch: smaller, because an uneven division
/// between threads costs more than one more chunk.
const CHUNK_OF_PRODUCTS: u64 = 7_000_000;

/// A multiply-add of `f32` matrix multiplication: about 120 GFLOP/s.
pub(crate) const FMA: usize = 16;
/// Loading an element of a matrix in place, from beyond the innermost cache.
pub(crate) const LOAD: usize = 20 * FMA;
/// Packing an element of a matrix.
pub(crate) const PACK: usize = 28 * FMA;
/// Loading an element and transposing it in registers.
pub(crate) const TRANSPOSE: usize = 8 * FMA;
/// Starting a task: about a microsecond.
pub(crate) const TASK: usize = (1 << 16) * FMA;

impl Cost {
    /// Reading and writing: copies, sums, comparisons.
    pub const MOVE: Cost = Cost(250);
    /// A few arithmetic operations: products, roots, quotients.
    pub const CHEAP: Cost = Cost(300);
    /// One or two polynomials: exponentials, logarithms, GELU.
    pub const COSTLY: Cost = Cost(1_500);
    /// Scalar code, element by element: gathers, powers, sorting.
    pub const SCALAR: Cost = Cost(3_000);

    /// An element of the product of `m` rows and `k` terms per sum, in a precision. The time to
    /// load the right matrix is divided among the rows.
    pub(crate) fn matmul(m: usize, k: usize, precision: MatmulPrecision) -> Cost {
        const LOAD_RIGHT: usize = 130;
        let per_term = match precision {
            MatmulPrecision::F32 => FMA,
            MatmulPrecision::Bf16x6 => 7,
            MatmulPrecision::Bf16x3 => 4,
            MatmulPrecision::Bf16 => 2,
        };
        let time = k as u64 * (per_term + LOAD_RIGHT / m) as u64;
        Cost(u32::try_from(time).unwrap_or(u32::MAX).saturating_add(200))
    }

    /// A pair of a query and a key in tiled attention: `products` matrix products over vectors
    /// whose widths add up to `width`.
    pub(crate) fn attention(products: usize, width: usize) -> Cost {
        Cost((1_000 + 20 * products * width) as u32)
    }

    /// A sum of `n` terms that are read from memory.
    pub(crate) fn sum_of(n: usize) -> Cost {
        Cost(u32::try_from(n).unwrap_or(u32::MAX).saturating_mul(100))
    }

    /// An element among the `k` selected ones when `n` elements are sorted: about `n · log2(n)`
    /// comparisons in all.
    pub(crate) fn sort(n: usize, k: usize) -> Cost {
        let time = u64::from(Cost::CHEAP.0) * n as u64 * u64::from(1 + n.ilog2()) / k as u64;
        Cost(time.min(u32::MAX.into()) as u32)
    }

    /// `n` times this cost, for operations that process `n` elements for each one that they write.
    pub(crate) fn times(self, n: usize) -> Cost {
        Cost(u32::try_from(n).unwrap_or(u32::MAX).saturating_mul(self.0))
    }

    /// The estimated time of `elements` elements, in picoseconds.
    pub(crate) fn of(self, elements: usize) -> u64 {
        elements as u64 * self.0 as u64
    }

    /// The number of units, of `elements` elements each, in a chunk: at least 1, and a function of
    /// sizes only.
    pub fn units_per_chunk(self, elements: usize) -> usize {
        (CHUNK / self.of(elements).max(1)).max(1) as usize
    }

    /// The number of matrix products, of `elements` elements each, in a chunk: at least 1.
    pub(crate) fn products_per_chunk(self, elements: usize) -> usize {
        (CHUNK_OF_PRODUCTS / self.of(elements).max(1)).max(1) as usize
    }

    /// The number of elements in a chunk of elementwise work: a multiple of 1024.
    pub fn chunk_len(self) -> usize {
        (self.units_per_chunk(1) / 1024 * 1024).max(1024)
    }
}
