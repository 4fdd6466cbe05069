//! Graphs as Graphviz documents.

use super::Outline;
use crate::graph::{Id, Var};
use retrograd_tensor::Real;
use std::fmt::Write;

/// The graph that `roots` were computed by, as a Graphviz document: operations as boxes with
/// the shapes of their results, leaves as ellipses. `dot -Tsvg` draws it; [`to_svg`](crate::to_svg) needs no
/// other program.
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
