//! Tests of the tensor crate, one module per subject. They are one program because each program
//! would compile the generic kernels again; tests that require a separate process are outside of
//! this folder.

mod bounds;
mod common;

mod arrange;
mod close;
mod describe;
mod display;
mod dual;
mod einsum;
mod elementwise;
mod formula;
mod gemm;
mod index;
mod integers;
mod lanes;
mod layout;
mod linear;
mod machine;
mod mask_join;
mod math;
mod matmul;
#[cfg(not(target_family = "wasm"))] // has no threads
mod par;
mod precision;
mod random;
mod reduce;
mod rows;
mod scatter;
mod sort;
mod views;
