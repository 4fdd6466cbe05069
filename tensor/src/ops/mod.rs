//! Formulas, and the methods of [`Tensor`](crate::Tensor) that apply them.
//!
//! Nothing here knows about strides, threads or instruction sets: that is the drivers' work.
//! A differentiable formula stands beside its vector-Jacobian product (VJP).

pub mod activation;
pub mod binary;
pub mod compare;
pub mod cumulative;
pub mod einsum;
pub mod index;
pub mod join;
pub mod loss;
pub mod mask;
pub mod matmul;
pub mod norm;
pub mod pointwise;
pub mod reduce;
pub mod softmax;
pub mod sort;
pub mod strided;
pub mod unary;
