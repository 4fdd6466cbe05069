//! Definitions of fused operations, as text.

use retrograd_autograd::{Id, Input, Kind, Node, Var};
use retrograd_tensor::Real;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Longer texts are cut.
const MOST: usize = 2000;

/// The first result of a fused operation as ordinary operations on its inputs `x0`, `x1`, ..; `None` for other
/// operations. Results that are used several times have a line of their own.
pub(super) fn definition<T: Real>(node: &Arc<Node<T>>) -> Option<String> {
    let (inputs, outputs) = node.definition()?;
    let names = inputs.into_iter().enumerate().map(|(i, id)| (id, format!("x{i}")));
    Text { names: names.collect() }.of(outputs.first()?)
}

struct Text {
    /// Names of inputs, and of operations that have a line.
    names: BTreeMap<Id, String>,
}

impl Text {
    fn of<T: Real>(mut self, y: &Var<T>) -> Option<String> {
        let root = y.node()?;
        // The operations in the order of their creation, and how often each is used.
        let (mut nodes, mut uses) = (BTreeMap::from([(root.id(), root)]), BTreeMap::new());
        let mut next = vec![root];
        while let Some(node) = next.pop() {
            for input in node.inputs().iter().filter_map(Input::node) {
                *uses.entry(input.id()).or_insert(0) += 1;
                if nodes.insert(input.id(), input).is_none() {
                    next.push(input);
                }
            }
        }
        let mut text = String::new();
        let several = nodes.into_iter().filter(|(id, _)| uses.get(id).is_some_and(|&n| n > 1));
        for (line, (id, node)) in (1..).zip(several) {
            text += &format!("t{line} = {}\n", self.expression(node, 0));
            self.names.insert(id, format!("t{line}"));
        }
        text += &format!("y = {}", self.expression(root, 0));
        if text.len() > MOST {
            let end = (0..=MOST).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
            text.truncate(end);
            text += " ..";
        }
        Some(text)
    }

    /// An operation on its inputs; `outer` is the precedence of the operator around it.
    fn expression<T: Real>(&self, node: &Node<T>, outer: u8) -> String {
        let inputs = node.inputs();
        let infix = |symbol: &str, precedence: u8| {
            let a = self.input(&inputs[0], precedence);
            let b = self.input(&inputs[1], precedence + 1);
            let text = format!("{a} {symbol} {b}");
            if precedence < outer { format!("({text})") } else { text }
        };
        match (node.name(), inputs.len()) {
            ("add", 2) => infix("+", 1),
            ("sub", 2) => infix("−", 1),
            ("mul", 2) => infix("·", 2),
            ("div", 2) => infix("/", 2),
            // The same elements, in another order or shape.
            (_, 1) if node.op().kind == Kind::View => self.input(&inputs[0], outer),
            (name, _) => {
                let inputs: Vec<String> = inputs.iter().map(|x| self.input(x, 0)).collect();
                format!("{name}({})", inputs.join(", "))
            }
        }
    }

    fn input<T: Real>(&self, x: &Input<T>, outer: u8) -> String {
        let id = x.node().map(|node| node.id()).or(x.id());
        match (id.and_then(|id| self.names.get(&id)), x.node()) {
            (Some(name), _) => name.clone(),
            (None, Some(node)) => self.expression(node, outer),
            (None, None) => "c".into(),
        }
    }
}
