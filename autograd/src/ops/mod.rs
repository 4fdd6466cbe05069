//! The differentiable operations: methods of [`Var`](crate::Var), and their rules.
//!
//! A rule maps the gradient of a result to gradients of the inputs, and leaves the rest (sums over
//! broadcast axes, accumulation, pruning) to the engine. It is written in operations on variables, so
//! that it can be differentiated itself. A [fused](crate::Fused) operation has a kernel and a
//! definition instead.

pub mod activation;
pub mod arrange;
pub mod binary;
pub mod convolution;
pub mod dropout;
pub mod einsum;
pub mod elementwise_loss;
pub mod index;
pub mod join;
pub mod linear;
pub mod loss;
pub mod map_gradient;
pub mod mask;
pub mod matmul;
pub mod norm;
pub mod pointwise;
pub mod quantile;
pub mod recurrence;
pub mod reduce;
pub mod scatter;
pub mod softmax;
pub mod unary;
pub mod vector_norm;
pub mod view;
