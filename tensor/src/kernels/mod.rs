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
//! | `rows` | `RowKernel`: K rows to one row | softmax, norms, cumsum and their VJPs |
//! | [`update`] | [`update::Update`]: W numbers replaced in place | gradient accumulation, optimizers |
//! | [`square_sums()`] | sums of squares of many tensors | gradient norms |
//! | [`attention`] | [`attention::TileMask`]: which pairs of queries and keys attend | tiled attention |
//! | `integers` | a function of K integers, or a fold of many | arithmetic on `i64` and `u32` |
//! | `gemm` | matrix multiplication, with an epilogue | matmul, linear layers, attention |
//!
//! [`Real`] is the trait of the element types that kernels are compiled for, [`Number`] the trait of all
//! element types with arithmetic.

pub mod attention;
pub(crate) mod elementwise;
pub mod gemm;
pub(crate) mod integers;
mod lane_arrays;
mod real;
pub(crate) mod reduce;
pub(crate) mod rows;
mod square_sums;
pub mod update;

pub use real::{Case, Number, Real};
pub(crate) use real::{case, level_of};
pub use square_sums::square_sums;
