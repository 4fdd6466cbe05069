//! Reverse-mode automatic differentiation of tensors, to any order.
//!
//! ```
//! use retrograd::prelude::*;
//!
//! let w = Var::leaf(Tensor::from([0.5f32, -1.0]));
//! let x = Var::constant(Tensor::from([[1.0, 2.0], [3.0, 4.0]]));
//! let loss = x.matmul(&w).square().mean(..);
//! let grads = loss.backward(); // a value: nothing to zero, nothing hidden
//! assert_eq!(grads.get(&w).unwrap().to_vec(), [-9.0, -13.0]);
//! ```
//!
//! A [`Var`] is a tensor with a reference to the operation that computed it. [`Var::backward`]
//! differentiates these operations in reverse order; [`grad`] does the same and can be
//! differentiated again. The rules are in [`ops`]. A program adds operations by [`Var::from_op`], or
//! [`Fused`] if it has kernels of its own; [`check`] compares any of them with finite differences.
//!
//! # Contents
//!
//! | subject | items |
//! |---|---|
//! | variables and the graph | [`Var`], [`Node`], [`Input`], [`Id`], [`to_dot`] |
//! | backward passes | [`Var::backward`], [`Backprop`], [`grad`], [`no_grad`], [`sharded`], [`recompute`] |
//! | their result | [`Gradients`] |
//! | derivatives by name | [`vjp`], [`jvp`], [`jacobian`], [`hessian`], [`hvp`], [`gauss_newton_product`], [`per_sample`] |
//! | spectra | [`Hessian`], [`lanczos`], [`power_iteration`], [`trace`], [`diagonal`] |
//! | operations | methods of [`Var`], implemented in [`ops`] |
//! | operations of your own | [`Op`], [`Var::from_op`], [`Fused`], [`InputGrads`], [`PointwiseFn`] |
//! | tests of gradients | [`check`] |
//! | events of forward and backward passes | [`observe`] |
#![forbid(unsafe_code)]

mod algebra;
mod backprop;
pub mod check;
#[doc(hidden)]
pub mod compiled;
mod derivatives;
mod draw;
mod engine;
mod forward;
mod gradients;
mod graph;
mod inspect;
mod leaves;
pub mod observe;
mod op;
pub mod ops;
mod recompute;
mod record;
mod shards;
mod spectrum;
mod var;

pub use algebra::score_on_variables;
pub use backprop::{Backprop, grad};
pub use derivatives::{
    Vars, gauss_newton_product, grad_and_value, hessian, hvp, jacfwd, jacobian, jacrev, jvp,
    jvp_by_double_reverse, vjp,
};
pub use draw::to_dot;
pub use gradients::{GradientKey, Gradients, norm_of_parts};
pub use graph::{Cx, Id, Input, InputGrads, Node, Tangents, Var};
pub use op::{Attribute, Call, Formula, Kind, Op, Product, Shapes};
pub use ops::binary::VarOrNumber;
pub use ops::pointwise::PointwiseFn;
pub use ops::recurrence::Recurrence;
pub use recompute::recompute;
pub use record::{Fused, Operand, Slot, is_recorded};
pub use retrograd_tensor::settings::{grad_enabled, with_grad_enabled};
pub use retrograd_tensor::with_threads;
pub use shards::{mean_clipped_per_sample, pairwise_sum, per_sample, shard_weights, sharded};
pub use spectrum::{Hessian, Tridiagonal, diagonal, lanczos, power_iteration, trace};
pub use var::no_grad;
