//! Graphs as Graphviz documents.

use crate::graph::{Edge, Id, Node, Var};
use retrograd_tensor::{Real, Shape};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// The graph that `roots` were computed by, as a Graphviz document: operations as boxes with
/// the shapes of their results, leaves as ellipses. `dot -Tsvg` draws it.
///
/// ```
/// use retrograd::autograd::to_dot;
/// use retrograd::prelude::*;
/// let x = Var::leaf(Tensor::<f32>::ones([2, 3]));
/// let dot = to_dot(&[&x.exp().sum(..)]);
/// assert!(dot.contains("label=\"exp\\n[2, 3]\""));
/// ```
#[inline(never)]
pub fn to_dot<T: Real>(roots: &[&Var<T>]) -> String {
    document(&Outline::of(roots))
}

fn document(outline: &Outline) -> String {
    let name = |id: Id| format!("n{}", id.number());
    let mut out = String::from("digraph {\n  rankdir=BT;\n  node [shape=box];\n");
    for (id, drawn) in &outline.boxes {
        let (shape, label) = match drawn.operation {
            Some(operation) => ("", operation),
            None => ("shape=ellipse, ", "leaf"),
        };
        let shapes = drawn.shapes();
        let _ = writeln!(out, "  {} [{shape}label=\"{label}\\n{shapes}\"];", name(*id));
    }
    for (from, to) in &outline.edges {
        let _ = writeln!(out, "  {} -> {};", name(*from), name(*to));
    }
    out.push_str("}\n");
    out
}

/// What is drawn of a graph.
struct Outline {
    /// Leaves and operations, in the order of their ids.
    boxes: BTreeMap<Id, Drawn>,
    /// From what is used to what uses it: by operation, its latest one first, and then by input.
    edges: Vec<(Id, Id)>,
}

/// A leaf, or an operation.
struct Drawn {
    /// `None` for a leaf.
    operation: Option<&'static str>,
    shapes: Vec<Shape>,
}

impl Outline {
    /// The graph that `roots` were computed by.
    fn of<T: Real>(roots: &[&Var<T>]) -> Outline {
        let mut outline = Outline { boxes: BTreeMap::new(), edges: Vec::new() };
        let mut pending = BTreeMap::new();
        for root in roots {
            outline.reach(&root.edge, root.shape(), &mut pending);
        }
        // In descending order of ids, as in a backward pass.
        while let Some((id, node)) = pending.pop_last() {
            let drawn = Drawn { operation: Some(node.name()), shapes: node.outputs().to_vec() };
            outline.boxes.insert(id, drawn);
            for input in node.inputs() {
                if let Some(from) = outline.reach(&input.edge, input.shape(), &mut pending) {
                    outline.edges.push((from, id));
                }
            }
        }
        outline
    }

    /// Adds a leaf, or an operation to those that are pending. Gives its id; `None` for a constant.
    fn reach<T: Real>(
        &mut self,
        edge: &Edge<T>,
        shape: &Shape,
        pending: &mut BTreeMap<Id, Arc<Node<T>>>,
    ) -> Option<Id> {
        match edge {
            Edge::Constant => None,
            Edge::Leaf(id) => {
                self.boxes.insert(*id, Drawn { operation: None, shapes: vec![*shape] });
                Some(*id)
            }
            Edge::Node(node, _) => {
                pending.insert(node.id(), node.clone());
                Some(node.id())
            }
        }
    }
}

impl Drawn {
    /// The shapes of the results.
    fn shapes(&self) -> String {
        let shapes: Vec<String> = self.shapes.iter().map(|s| format!("{s:?}")).collect();
        shapes.join(" ")
    }
}
