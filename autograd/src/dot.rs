//! Graphs as Graphviz documents.

use crate::graph::{Edge, Id, Node, Var};
use retrograd_tensor::{Real, Shape};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The graph that `roots` were computed by, as a Graphviz document: operations as boxes with
/// the shapes of their results, leaves as ellipses. `dot -Tsvg` draws it.
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
    let mut graph = Graph { pending: BTreeMap::new(), leaves: BTreeMap::new() };
    for root in roots {
        graph.reach(&root.edge, root.shape());
    }
    // In descending order of ids, as in a backward pass.
    while let Some((id, node)) = graph.pending.pop_last() {
        let shapes: Vec<String> = node.outputs().iter().map(|s| format!("{s:?}")).collect();
        line(&mut out, format!("{} [label=\"{}\\n{}\"]", name(id), node.name(), shapes.join(" ")));
        for input in node.inputs() {
            if let Some(from) = graph.reach(&input.edge, input.shape()) {
                line(&mut out, format!("{} -> {}", name(from), name(id)));
            }
        }
    }
    for (id, shape) in graph.leaves {
        line(&mut out, format!("{} [shape=ellipse, label=\"leaf\\n{shape}\"]", name(id)));
    }
    out.push_str("}\n");
    out
}

/// What was reached from the roots.
struct Graph<T: Real> {
    /// Operations that are not drawn yet.
    pending: BTreeMap<Id, Arc<Node<T>>>,
    /// Shapes of leaves.
    leaves: BTreeMap<Id, String>,
}

impl<T: Real> Graph<T> {
    /// Adds the source of a variable. Gives the id of its box or ellipse; `None` for a constant.
    fn reach(&mut self, edge: &Edge<T>, shape: &Shape) -> Option<Id> {
        match edge {
            Edge::Constant => None,
            Edge::Leaf(id) => {
                self.leaves.insert(*id, format!("{shape:?}"));
                Some(*id)
            }
            Edge::Node(node, _) => {
                self.pending.insert(node.id(), node.clone());
                Some(node.id())
            }
        }
    }
}

fn line(out: &mut String, text: String) {
    *out += &format!("  {text};\n");
}

fn name(id: Id) -> String {
    format!("n{}", id.number())
}
