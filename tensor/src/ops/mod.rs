//! Operations: formulas, and the methods of [`Tensor`](crate::Tensor) that apply them.
//!
//! Elementwise operations, reductions and row operations pass a formula to a
//! [kernel](crate::kernels), which handles strides, threads and instruction sets. Operations that only
//! move elements (indexing, joining, masks) iterate over layouts in plain loops. The vector-Jacobian
//! product (VJP) of a formula is next to it.

pub mod activation;
pub mod binary;
pub mod compare;
pub mod cumulative;
pub mod einsum;
pub mod formula;
pub mod index;
pub mod join;
pub mod linear;
mod linear_loss;
pub mod loss;
pub mod mask;
pub mod matmul;
pub mod norm;
pub mod pointwise;
pub mod random;
pub mod reduce;
pub mod softmax;
pub mod sort;
pub mod strided;
pub mod unary;
