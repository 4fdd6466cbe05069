//! Pictures of graphs, in Graphviz's language.

use crate::node::Node;
use crate::var::{Edge, Id, Var};
use retrograd_tensor::Real;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// The graph that `roots` were computed by, as a Graphviz document: operations as boxes with
/// the shape of their result, leaves as ellipses. Draw it with `dot -Tsvg`.
///
/// ```
/// use retrograd_autograd::{Var, to_dot};
/// use retrograd_tensor::Tensor;
/// let x = Var::leaf(Tensor::<f32>::ones([2, 3]));
/// let dot = to_dot(&[&x.exp().sum(..)]);
/// assert!(dot.contains("label=\"exp\\n[2, 3]\""));
/// ```
#[inline(never)]
pub fn to_dot<T: Real>(roots: &[&Var<T>]) -> String {
    let mut out = String::from("digraph {\n  rankdir=BT;\n  node [shape=box];\n");
    // Youngest first, like the engine: every node is met before its inputs.
    let mut waiting: BTreeMap<Id, Arc<Node<T>>> = BTreeMap::new();
    let mut leaves: BTreeMap<Id, String> = BTreeMap::new();
    for root in roots {
        match root.edge() {
            Edge::Node(node) => drop(waiting.insert(node.id(), node.clone())),
            Edge::Leaf(id) => drop(leaves.insert(*id, format!("{:?}", root.shape()))),
            Edge::Constant => {}
        }
    }
    while let Some((id, node)) = waiting.pop_last() {
        writeln!(out, "  {} [label=\"{}\\n{:?}\"];", name(id), node.name(), node.shape())
            .expect("strings can be written to");
        for input in &node.inputs {
            let from = match &input.edge {
                Edge::Constant => continue,
                Edge::Leaf(leaf) => {
                    leaves.insert(*leaf, format!("{:?}", input.shape));
                    *leaf
                }
                Edge::Node(parent) => {
                    waiting.insert(parent.id(), parent.clone());
                    parent.id()
                }
            };
            writeln!(out, "  {} -> {};", name(from), name(id)).expect("strings can be written to");
        }
    }
    for (id, shape) in leaves {
        writeln!(out, "  {} [shape=ellipse, label=\"leaf\\n{shape}\"];", name(id))
            .expect("strings can be written to");
    }
    out.push_str("}\n");
    out
}

fn name(id: Id) -> String {
    format!("n{}", id.number())
}
