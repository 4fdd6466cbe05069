//! Reverse-mode automatic differentiation.
#![forbid(unsafe_code)]

pub mod check;
mod engine;
mod gradients;
mod graph;
mod node;
pub mod ops;
mod var;

pub use engine::{Backprop, grad};
pub use gradients::Gradients;
pub use graph::to_dot;
pub use node::{Backward, Cx, Grads, Needs, Node};
pub use ops::through;
pub use var::{Id, Var, grad_enabled, no_grad};
