//! Drivers: strides, threads and instruction sets around a formula.
//!
//! A formula knows numbers only. A driver walks any layouts, cuts the work into chunks,
//! dispatches once per chunk to the instruction set, and feeds the formula contiguous
//! slices. The result never depends on layout or threads: the order in which numbers meet
//! is a function of the logical shape alone.
//!
//! | driver | formula | used by |
//! |---|---|---|
//! | [`zip`] | [`zip::Elementwise`]: K numbers to one | unary, binary, ternary operations and their VJPs |
//! | [`fold`] | [`fold::Fold`]: many numbers to one | sum, prod, max, min over any axes |
//! | [`rows`] | [`rows::RowKernel`]: K rows to one row | softmax, norms, cumsum and their VJPs |
//! | [`update`] | [`update::Update`]: W numbers replaced | gradient accumulation, optimisers |
//! | [`squares`] | sums of squares of many tensors | norms of gradients |
//! | [`attention`] | [`attention::Rule`]: which pairs attend | tiled attention |
//! | [`gemm`] | matrix product | matmul |

mod abreast;
pub mod attention;
mod cut;
pub mod fold;
pub mod gemm;
pub mod rows;
pub mod squares;
pub mod update;
pub mod zip;
