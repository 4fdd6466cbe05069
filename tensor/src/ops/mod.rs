//! Operations: formulas, and the methods of [`Tensor`](crate::Tensor) that apply them.
//!
//! Elementwise operations, reductions and row operations pass a formula to a
//! [kernel](crate::kernels), which handles strides, threads and instruction sets. Operations that
//! only move elements (indexing, joining, masks) iterate over layouts in plain loops. The
//! vector-Jacobian product (VJP) of a formula is next to it.

pub mod activation;
pub mod arrange;
pub mod binary;
pub mod close;
pub mod compare;
mod convolution;
mod cumulative;
pub mod einsum;
pub mod histogram;
mod index;
mod join;
pub mod linear;
mod linear_loss;
mod logit_loss;
pub mod loss;
mod mask;
pub mod matmul;
mod norm;
pub mod pointwise;
mod random;
mod reduce;
pub mod scatter;
mod softmax;
mod sort;
mod strided;
pub mod unary;
pub mod vector_norm;
