//! Reverse-mode automatic differentiation of tensors, to any order.
//!
//! ```
//! use retrograd_autograd::Var;
//! use retrograd_tensor::Tensor;
//!
//! let w = Var::leaf(Tensor::from([0.5f32, -1.0]));
//! let x = Var::constant(Tensor::from([[1.0, 2.0], [3.0, 4.0]]));
//! let loss = x.matmul(&w).square().mean(..);
//! let grads = loss.backward(); // a value: nothing to zero, nothing hidden
//! assert_eq!(grads.get(&w).unwrap().to_vec(), [-9.0, -13.0]);
//! ```
//!
//! A [`Var`] is a tensor that remembers where it came from. [`Var::backward`] walks the graph from
//! the youngest operation to the oldest; [`grad`] does the same and can be differentiated again.
//! The rules are in [`ops`]; [`check`] compares any of them, and those of users
//! ([`Backward`]), with finite differences.
#![forbid(unsafe_code)]

mod algebra;
pub mod check;
#[doc(hidden)]
pub mod compiled;
mod engine;
mod gradients;
mod graph;
mod node;
pub mod ops;
mod shards;
mod var;

pub use engine::{Backprop, grad};
pub use gradients::{GradientKey, Gradients};
pub use graph::to_dot;
pub use node::{Backward, Cx, Grads, Needs, Node};
pub use ops::through;
pub use retrograd_tensor::settings::{grad_enabled, with_grad_enabled};
pub use retrograd_tensor::with_threads;
pub use shards::sharded;
pub use var::{Id, Var, no_grad};
