//! The differentiable operations: methods of [`Var`], and their rules.
//!
//! A rule returns one gradient per input and leaves the rest (broadcasts, accumulation,
//! pruning) to the engine. It is written with operations on variables, so that it can be
//! differentiated itself. Where a fused kernel exists, a first-order pass uses it, and a
//! recorded pass uses the composed form; tests compare the two.

pub mod activation;
pub mod binary;
pub mod dropout;
pub mod einsum;
pub mod index;
pub mod join;
pub mod linear;
pub mod loss;
pub mod mask;
pub mod matmul;
pub mod norm;
pub mod pointwise;
pub mod reduce;
pub mod softmax;
pub mod unary;
pub mod view;

use crate::engine::grad;
use crate::node::{Backward, Cx, Grads};
use crate::var::Var;
use retrograd_tensor::Real;

/// Gradients of a composed form of an operation, as a recorded pass needs them: computes `f`
/// of the inputs with differentiable operations and differentiates that.
///
/// A [`Backward`] rule with a fused kernel calls this when [`Cx::recording`] is true, with
/// [`Cx::input`] for its saved inputs.
pub fn through<T: Real>(
    inputs: &[Var<T>],
    g: &Var<T>,
    f: impl FnOnce(&[Var<T>]) -> Var<T>,
) -> Grads<T> {
    // Aliases are younger than everything else, so that the inner pass ends at them.
    let aliases: Vec<Var<T>> = inputs.iter().map(alias).collect();
    let y = f(&aliases);
    if !y.is_tracked() {
        return vec![None; inputs.len()];
    }
    let tracked: Vec<&Var<T>> = aliases.iter().filter(|x| x.is_tracked()).collect();
    let mut found = grad(&[(&y, Some(g))], &tracked).into_iter();
    aliases.iter().map(|x| x.is_tracked().then(|| found.next().flatten()).flatten()).collect()
}

/// The same value as a new node.
fn alias<T: Real>(x: &Var<T>) -> Var<T> {
    Var::from_op(x.value().clone(), &[x], |_| Alias)
}

#[derive(Debug)]
struct Alias;

impl<T: Real> Backward<T> for Alias {
    fn name(&self) -> &'static str {
        "alias"
    }
    fn backward(&self, _: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![Some(g.clone())]
    }
}
