//! General matrix multiplication (GEMM), `C = A · B` or `C += A · B`, on matrices in slices.
//!
//! The kernels are our own, except for `f64` on NEON, in the structure of Goto and van de Geijn 2008 (doi 10.1145/1356052.1356053) and of BLIS (Van Zee and van de Geijn
//! 2015, doi 10.1145/2764454). From the outside in:
//!
//! | file | contents |
//! |---|---|
//! | `parallel.rs` | GEMM on all threads, and batches of products |
//! | `symmetric.rs` | symmetric products: the half above the diagonal |
//! | `partition.rs` | the partition of a product into tasks: blocks, or split-K |
//! | `serial.rs` | GEMM on one thread: the choice of a kernel |
//! | `products.rs` | the operands of a product, or of a batch |
//! | `native.rs` | the kernels of the SIMD levels |
//! | `blocked.rs` | the loops over cache blocks around the micro-kernel |
//! | `operands.rs` | which operands are packed and which are read in place |
//! | `pack.rs` | packing of panels |
//! | `micro_kernel.rs` | an MR × NR tile of the product, in registers |
//! | `skinny.rs` | products of at most 8 rows, without packing |
//! | `rows.rs` | products of a few rows and a large right operand |
//! | `portable.rs` | all products in portable code |
//! | `split.rs` | products in split precision, by AMX tiles of `bf16` |
//! | `amx.rs` | the micro-kernels of AMX |
//! | `epilogue.rs` | work on blocks of the product while they are in the cache |
//! | `fallback.rs` | calls into matrixmultiply: `f64` on NEON |
//! | `params.rs` | all tuning parameters |
//! | `kernel.rs` | the kernels that a product may have |
//! | `report.rs` | what is reported of a product: the kernel that ran, and the partition |
//!
//! Every element is computed in the same way: a chain of multiply-adds, fused except in portable code, over each
//! block of [`Gemm::kc`] terms of the sum, and the blocks added in order. So its bits depend on its row of
//! `A` and its column of `B` only: not on tiles, threads, strides or the instruction set, nor on
//! the number of other rows and columns. The same holds in split precision, with another chain: see
//! `split.rs`.

#[cfg(target_arch = "x86_64")]
mod amx;
mod blocked;
mod epilogue;
mod fallback;
mod kernel;
mod micro_kernel;
mod native;
pub(crate) mod operands;
mod pack;
mod parallel;
mod params;
pub(crate) mod partition;
mod portable;
mod products;
mod report;
mod rows;
mod serial;
mod skinny;
#[cfg(target_arch = "x86_64")]
mod split;
mod symmetric;

pub use epilogue::{Epilogue, EpilogueArgs};
pub use kernel::GemmKernel;
pub use parallel::{gemm, gemm_with_epilogue};
pub use products::Products;
pub use report::arithmetic;
pub use serial::Gemm;
pub use symmetric::gemm_symmetric;
