//! Tests of the tensor crate, a module a subject. They are one program because each would
//! compile the generic kernels anew; what needs a process of its own stands beside the folder.

mod common;

mod display;
mod dual;
mod elementwise;
mod gemm;
mod index;
mod lanes;
mod linear;
mod mask_join;
mod math;
mod matmul;
mod precision;
mod random;
mod reduce;
mod rows;
mod sort;
mod views;
