//! A backward pass in the wrong order, for comparison.

use super::recording::output;
use retrograd_autograd::{Gradients, Id, Node, Var};
use retrograd_tensor::{Real, Tensor};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Differentiates a scalar in the order of a naive recursion, which is **wrong** if a result is used
/// twice: for study only.
///
/// The recursion calls the rule of an operation whenever a gradient arrives, with the sum of what has arrived
/// so far. A result that is used twice is then differentiated twice, and the second time passes on what the
/// first time has passed on already. [`Var::backward`] calls a rule when all gradients have arrived.
///
/// Returns the gradients of leaves, and the number of calls of rules: the engine calls the rule of each
/// operation once.
///
/// `None` if the graph is so large or so shared that more than `most` calls are needed: their number may grow
/// exponentially. The rules are kept, so the graph can be differentiated afterwards.
///
/// ```
/// use retrograd::prelude::*;
/// use retrograd::study::record::naive_backward;
///
/// // b = a², y = b + b · a with a = 3: y' = 2a + 3a² = 33
/// let a = Var::leaf(Tensor::scalar(3.0f32));
/// let b = a.square();
/// let y = &b + &(&b * &a);
/// let (gradients, calls) = naive_backward(&y, 100).unwrap();
/// // b receives 1, then 3: its rule passes on 1 · 6, then (1 + 3) · 6.
/// assert_eq!(gradients.get(&a).unwrap().item(), 39.0);
/// assert_eq!(calls, 4); // add, square, mul, square
/// assert_eq!(y.backward().get(&a).unwrap().item(), 33.0);
/// ```
pub fn naive_backward<T: Real>(root: &Var<T>, most: usize) -> Option<(Gradients<T>, usize)> {
    let mut sums = BTreeMap::<Id, Vec<Option<Var<T>>>>::new();
    let mut found = BTreeMap::<Id, Tensor<T>>::new();
    let mut calls = 0;
    // The recursion in a loop: what is still to be delivered, the next one last.
    let mut pending =
        vec![(Target::new(root.id(), root.node())?, Var::constant(Tensor::ones(root.shape())))];
    while let Some((target, g)) = pending.pop() {
        match target {
            Target::Leaf(id) => {
                let sum =
                    found.remove(&id).map_or_else(|| g.value().clone(), |sum| &sum + g.value());
                found.insert(id, sum);
            }
            Target::Output(node, output) => {
                if calls == most {
                    return None;
                }
                calls += 1;
                let delivered = rule_with(&node, output, g, &mut sums)?;
                pending.extend(delivered.into_iter().rev());
            }
        }
    }
    Some((found.into_iter().collect(), calls))
}

/// A leaf, or an output of an operation.
enum Target<T: Real> {
    Leaf(Id),
    Output(Arc<Node<T>>, usize),
}

impl<T: Real> Target<T> {
    /// `None` of a constant.
    fn new(id: Option<Id>, node: Option<&Arc<Node<T>>>) -> Option<Self> {
        Some(match (id?, node) {
            (id, None) => Target::Leaf(id),
            (id, Some(node)) => Target::Output(node.clone(), output(node, id)),
        })
    }
}

/// Adds a gradient to what a node has received, and calls its rule with the sum so far.
fn rule_with<T: Real>(
    node: &Arc<Node<T>>,
    output: usize,
    g: Var<T>,
    sums: &mut BTreeMap<Id, Vec<Option<Var<T>>>>,
) -> Option<Vec<(Target<T>, Var<T>)>> {
    let sums = sums.entry(node.id()).or_insert_with(|| vec![None; node.outputs().len()]);
    let sum = match &sums[output] {
        Some(sum) => Var::constant(sum.value() + g.value()),
        None => g,
    };
    sums[output] = Some(sum);
    let delivered = node.input_gradients(sums)?.into_iter();
    let target = |(at, g): (usize, Var<T>)| {
        let input = &node.inputs()[at];
        Some((Target::new(input.id(), input.node())?, g))
    };
    Some(delivered.filter_map(target).collect())
}
