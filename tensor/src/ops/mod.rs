//! Formulas, and the methods of [`Tensor`](crate::Tensor) that apply them.
//!
//! What is elementwise, a reduction or a row hands a formula to a [driver](crate::kernels), which
//! knows strides, threads and instruction sets. What only moves elements (indexing, joining,
//! masks) walks over layouts itself, in plain loops.
//! A differentiable formula stands beside its vector-Jacobian product (VJP).

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
