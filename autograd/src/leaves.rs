//! Gradients of leaves while a backward pass goes on.

use crate::engine::{Engine, Seeds};
use crate::graph::{Edge, Id, Input, Node, Var};
use retrograd_tensor::Real;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Runs a pass, and passes the gradient of each leaf to `f` as soon as all operations that use the leaf have
/// been differentiated.
///
/// # Errors
/// As [`Engine::run`].
#[inline(never)]
pub(crate) fn run_each<T: Real>(
    engine: Engine<T>,
    roots: Seeds<'_, T>,
    f: &mut dyn FnMut(Id, Var<T>),
) -> Result<(), String> {
    let mut uses = leaf_uses(&roots);
    let rest = engine.run_with(roots, &mut |node, found| {
        for id in node.inputs().iter().filter_map(leaf) {
            let uses = uses.get_mut(&id).expect("counted");
            *uses -= 1;
            if *uses == 0
                && let Some(g) = found.remove(&id).flatten()
            {
                f(id, g);
            }
        }
    })?;
    rest.into_iter().filter_map(|(id, g)| Some((id, g?))).for_each(|(id, g)| f(id, g));
    Ok(())
}

/// The id of an input that is a leaf.
fn leaf<T: Real>(input: &Input<T>) -> Option<Id> {
    match input.edge {
        Edge::Leaf(id) => Some(id),
        _ => None,
    }
}

/// How often the operations below the roots use each leaf.
fn leaf_uses<T: Real>(roots: &Seeds<'_, T>) -> BTreeMap<Id, usize> {
    let (mut uses, mut seen) = (BTreeMap::new(), BTreeSet::new());
    let mut next: Vec<Arc<Node<T>>> = roots.iter().filter_map(|(x, _)| x.node().cloned()).collect();
    while let Some(at) = next.pop() {
        if seen.insert(at.id()) {
            at.inputs().iter().filter_map(leaf).for_each(|id| *uses.entry(id).or_default() += 1);
            next.extend(at.inputs().iter().filter_map(|input| input.node().cloned()));
        }
    }
    uses
}
