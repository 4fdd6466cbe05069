//! Definitions of fused operations, as text.

use super::recorder::Recorder;
use super::recording::{Operation, Recording, Source};
use crate::graph::{Cx, Edge, Id, Input, Node, Rule};
use crate::operation::Kind;
use retrograd_tensor::Real;
use retrograd_tensor::settings::with_grad_enabled;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Longer texts are cut.
const MOST: usize = 2000;

/// The first result of a fused operation as ordinary operations on its inputs `x0`, `x1`, ..; `None` for other
/// operations. Results that are used several times have a line of their own.
pub(super) fn definition<T: Real>(node: &Arc<Node<T>>, rule: &dyn Rule<T>) -> Option<String> {
    let definition = rule.definition()?;
    let leaf = |input: &Input<T>| Input { edge: Edge::Leaf(Id::reserve(1)), shape: input.shape };
    let inputs: Vec<Input<T>> = node.inputs().iter().map(leaf).collect();
    let cx = Cx { node, inputs: Some(&inputs), in_definition: true };
    let evaluate = || with_grad_enabled(true, || definition.outputs(&cx));
    let (outputs, recording) = Recorder::new().record(evaluate);
    let names = inputs.iter().enumerate().filter_map(|(i, x)| Some((x.id()?, format!("x{i}"))));
    let text = Text { recording: &recording, names: names.collect(), lines: BTreeMap::new() };
    text.of(outputs.first()?.id()?)
}

struct Text<'a> {
    recording: &'a Recording,
    names: BTreeMap<Id, String>,
    /// Names of operations that have a line.
    lines: BTreeMap<usize, String>,
}

impl Text<'_> {
    fn of(mut self, output: Id) -> Option<String> {
        let operations = &self.recording.operations;
        let last = operations.iter().position(|op| op.id == Some(output))?;
        let mut uses = vec![0; operations.len()];
        for op in operations {
            for input in &op.inputs {
                if let Source::Output(from, _) = input.source {
                    uses[from] += 1;
                }
            }
        }
        let mut text = String::new();
        for i in (0..last).filter(|&i| uses[i] > 1) {
            let line = format!("t{} = {}\n", self.lines.len() + 1, self.expression(i, 0));
            text += &line;
            self.lines.insert(i, format!("t{}", self.lines.len() + 1));
        }
        text += &format!("y = {}", self.expression(last, 0));
        if text.len() > MOST {
            let end = (0..=MOST).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
            text.truncate(end);
            text += " ..";
        }
        Some(text)
    }

    /// An operation on its inputs; `outer` is the precedence of the operator around it.
    fn expression(&self, i: usize, outer: u8) -> String {
        let op = &self.recording.operations[i];
        let infix = |symbol: &str, precedence: u8| {
            let (a, b) = (self.input(op, 0, precedence), self.input(op, 1, precedence + 1));
            let text = format!("{a} {symbol} {b}");
            if precedence < outer { format!("({text})") } else { text }
        };
        match (op.name(), op.inputs.len()) {
            ("add", 2) => infix("+", 1),
            ("sub", 2) => infix("−", 1),
            ("mul", 2) => infix("·", 2),
            ("div", 2) => infix("/", 2),
            // The same elements, in another order or shape.
            (_, 1) if op.call.op.kind == Kind::View => self.input(op, 0, outer),
            (name, n) => {
                let inputs: Vec<String> = (0..n).map(|k| self.input(op, k, 0)).collect();
                format!("{name}({})", inputs.join(", "))
            }
        }
    }

    fn input(&self, op: &Operation, k: usize, outer: u8) -> String {
        match op.inputs[k].source {
            Source::Leaf(id) => self.names.get(&id).cloned().unwrap_or_else(|| "c".into()),
            Source::Constant(_) => "c".into(),
            Source::Output(from, _) => match self.lines.get(&from) {
                Some(name) => name.clone(),
                None => self.expression(from, outer),
            },
        }
    }
}
