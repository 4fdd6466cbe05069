//! Kernels: strides, threads and instruction sets around a formula.
//!
//! A formula is defined on numbers. A kernel iterates over operands of any layout, divides the work
//! into chunks, dispatches once per chunk to the instruction set, and applies the formula to
//! contiguous slices. Results never depend on layouts or threads: the order of operations is a
//! function of the logical shape alone.
//!
//! | kernel | formula | used by |
//! |---|---|---|
//! | `elementwise` | `Elementwise`: K numbers to one | unary, binary, ternary operations and their VJPs |
//! | `reduce` | `Reducer`: many numbers to one | sum, prod, max, min over any axes |
//! | `reduce_terms` | `Reducer` of `Elementwise` terms | norms, variances, logsumexp |
//! | `rows` | `RowKernel`: K rows to one row | softmax, norms, cumsum and their VJPs |
//! | [`update`] | [`update::Update`]: W numbers replaced in place | gradient accumulation, optimizers |
//! | [`square_sums()`] | sums of squares of many tensors | gradient norms |
//! | [`attention`] | [`attention::TileMask`]: which pairs of queries and keys attend | tiled attention |
//! | [`recurrence`] | decays, a rank-1 transition, keys, values | linear attention with decay, delta rules |
//! | `integers` | a function of K integers, or a fold of many | arithmetic on `i64` and `u32` |
//! | `gemm` | matrix multiplication, with an epilogue | matmul, linear layers, attention |
//!
//! [`Real`] is the trait of the element types that kernels are compiled for, [`Number`] the trait of all
//! element types with arithmetic.
//!
//! # Rules for kernels, each from a measurement
//!
//!
//! - A closure passed to `map_or`, `array::from_fn` or an iterator adapter may stay a call in a function with target
//!   features, even if it is marked `#[inline(always)]`; a plain loop does not (`kernels/lane_arrays.rs`). An array of
//!   accumulators that is indexed by a loop which is not unrolled is stored in memory. `.ci/disassembly` finds both.
//! - Masked stores of AVX2 are slow on AMD CPUs: a branch to an unmasked store for whole vectors makes micro-kernels 5 to
//!   18 % faster, and softmax of short rows up to 39 %. In loops that write several rows at once it costs more than it saves.
//! - An operation whose result is subnormal takes over a hundred cycles. The usual case is `exp` of a masked score.
//! - Rows whose distance is a multiple of 4096 bytes map to the same sets of the L1 cache, and evict each other.
//! - With a busy hyperthread a loop gets half of the issue slots. Strides that are known at compile time, and unrolling
//!   the loop over `K` by four, made GEMM a tenth faster.
//! - Hardware prefetchers stop at a 4 KB page and follow few streams. GEMM prefetches each tile of `C` and the next rows of
//!   `A` (a tenth faster). Operations that stream several large operands prefetch 2 KB ahead (`simd/prefetch.rs`): a fifth to
//!   two thirds faster beyond 16 MB, but slower on AMD's Zen 5, where it is not done. Prefetching what is in L2 costs time.
//! - An epilogue should read rows of some kilobytes: in strips of 256 bytes the prefetchers do not start.

pub mod attention;
pub(crate) mod elementwise;
pub mod gemm;
pub(crate) mod integers;
mod lane_arrays;
mod real;
pub mod recurrence;
pub(crate) mod reduce;
pub(crate) mod reduce_terms;
pub(crate) mod rows;
mod square_sums;
pub mod update;

pub use real::{Case, Number, Real};
pub(crate) use real::{case, level_of};
pub use square_sums::square_sums;
