//! A recorded step as text: the tape, costs, and a trace for other viewers.

use super::RecordedStep;
use super::data::{Data, EventRow, Node};
use super::differences;
use super::elements::bracketed;
use crate::record::What;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Larger traces are not opened by their viewers.
const MOST_TRACE_BYTES: usize = 50_000_000;

impl RecordedStep {
    /// The forward and the backward pass as text, an operation in a line: in the first part its result and its
    /// inputs, in the second one the variables that its rule delivers gradients to, with a `+` if others had
    /// been delivered before. If there are more than `most` lines, the middle of each part is left out.
    ///
    /// ```
    /// use retrograd::prelude::*;
    ///
    /// let a = Var::leaf(Tensor::scalar(3.0f32));
    /// let step = XRay::new("A diamond").leaf("a", &a).record(|| {
    ///     let b = a.square();
    ///     (&b + &(&b * &a)).backward()
    /// });
    /// let tape = "\
    /// forward
    ///   0 square   scalar  a
    ///   1 mul      scalar  square 0, a
    ///   2 add      scalar  square 0, mul 1
    /// backward
    ///   2 add      -> square 0, mul 1
    ///   1 mul      -> + square 0, a
    ///   0 square   -> + a
    /// ";
    /// assert_eq!(step.tape(30), tape);
    /// ```
    pub fn tape(&self, most: usize) -> String {
        let tape = Tape::new(&self.data);
        let forward: Vec<String> = self
            .data
            .events
            .iter()
            .filter(|e| e.what == "forward")
            .filter_map(|e| tape.forward(e))
            .collect();
        let mut out = String::new();
        let mut part = |title: &str, lines: Vec<String>| {
            if lines.is_empty() {
                return;
            }
            let _ = writeln!(out, "{title}");
            let room = (most / 2).saturating_sub(2).max(2);
            let left_out = lines.len().saturating_sub(room.max(1));
            for (i, line) in lines.iter().enumerate() {
                let first = room.div_ceil(2);
                if left_out == 0 || i < first || i >= first + left_out {
                    let _ = writeln!(out, "{line}");
                } else if i == first {
                    let _ = writeln!(out, "    .. {left_out} operations ..");
                }
            }
        };
        part("forward", forward);
        part("backward", tape.backward());
        out
    }

    /// Time in kernels, arithmetic operations and bytes by operation, forward and backward, the most expensive
    /// first: the least times of the runs, and how far their medians are above them (the spread). With [`XRay::limits`](crate::XRay::limits), a column is the least time that this machine
    /// could take, relative to the time of the forward pass.
    pub fn costs(&self) -> String {
        #[derive(Default)]
        struct Cost {
            calls: usize,
            forward: f64,
            backward: f64,
            median: f64,
            flops: u64,
            bytes: u64,
            least: f64,
        }
        let mut costs = BTreeMap::<&str, Cost>::new();
        for node in self.data.nodes.iter().filter(|n| n.kind == "op") {
            let cost = costs.entry(&node.name).or_default();
            cost.calls += 1;
            cost.forward += node.seconds.unwrap_or(0.0);
            cost.backward += node.backward_seconds.unwrap_or(0.0);
            cost.median += node.medians.map_or(0.0, |[forward, backward]| forward + backward);
            cost.flops += node.flops;
            cost.bytes += node.traffic;
            cost.least += node.least_seconds.unwrap_or(0.0);
        }
        let time = |c: &Cost| c.forward + c.backward;
        let total: f64 = costs.values().map(time).sum();
        let mut rows: Vec<(&str, Cost)> = costs.into_iter().collect();
        rows.sort_by(|a, b| time(&b.1).total_cmp(&time(&a.1)));
        let mut out = format!(
            "{:<22}{:>6}{:>13}{:>13}{:>8}{:>8}{:>12}{:>12}{:>10}\n",
            "operation",
            "calls",
            "forward us",
            "backward us",
            "spread",
            "share",
            "MFLOP",
            "MB",
            "of limit"
        );
        for (name, cost) in rows {
            let limit = match self.data.machine.is_some() && cost.forward > 0.0 {
                true => format!("{:.0}%", 100.0 * cost.least / cost.forward),
                false => "-".into(),
            };
            let spread = match self.data.made.runs > 1 && time(&cost) > 0.0 {
                true => format!("{:.0}%", 100.0 * (cost.median / time(&cost) - 1.0)),
                false => "-".into(),
            };
            let share = if total > 0.0 { 100.0 * time(&cost) / total } else { 0.0 };
            let _ = writeln!(
                out,
                "{name:<22}{:>6}{:>13.1}{:>13.1}{spread:>8}{:>7.1}%{:>12.2}{:>12.2}{limit:>10}",
                cost.calls,
                cost.forward * 1e6,
                cost.backward * 1e6,
                share,
                cost.flops as f64 / 1e6,
                cost.bytes as f64 / 1e6,
            );
        }
        out
    }

    /// What is wrong with the step, a finding in a line: where the first value that is not finite began, parameters
    /// without a gradient and where their way to the result is cut, updates of more than a tenth of the norm of a
    /// parameter, runs of the recorded code that differ, and, with [`XRay::checked`](crate::XRay::checked), gradients
    /// that are not the central difference of the loss. Empty if nothing was found.
    pub fn findings(&self) -> Vec<String> {
        let data = &self.data;
        let tape = Tape::new(data);
        let is_bad =
            |e: &&EventRow| e.value.is_some_and(|v| data.values[v].nan + data.values[v].inf > 0);
        let mut findings = Vec::new();
        if let Some(e) = data.events.iter().find(is_bad) {
            let (values, node) = (&data.values[e.value.expect("bad")], e.node.or(e.to));
            let n = node.expect("events with values have a node");
            let rule = if e.what == "forward" { "" } else { "the backward rule of " };
            let path = &data.modules[data.nodes[n].module].path;
            let module = if path.is_empty() { String::new() } else { format!(" in {path}") };
            let line =
                data.nodes[n].line.as_ref().map_or(String::new(), |line| format!(" ({line})"));
            let range = |input: &super::data::Input| {
                let values = &data.values[data.nodes[input.node?].value?];
                let (min, max) = (values.min?, values.max?);
                Some(format!("{} from {min:.4} to {max:.4}", tape.title(input.node?)))
            };
            let inputs: Vec<String> = data.nodes[n].inputs.iter().filter_map(range).collect();
            findings.push(format!(
                "the first value that is not finite: {rule}`{}`{module}{line} gives {} NaN and {} infinite of {}; \
                 its inputs: {}",
                data.nodes[n].name, values.nan, values.inf, values.count, inputs.join(", ")
            ));
        }
        for node in data.nodes.iter().filter(|node| node.trainable != Some(false)) {
            if let Some(why) = &node.no_gradient {
                findings.push(format!("{} has no gradient: {why}", node.name));
            }
        }
        for node in &data.nodes {
            if let Some(ratio) = node.update.map(|x| x.0).filter(|x| *x > 0.1 || x.is_nan()) {
                findings.push(format!(
                    "{} was changed by {ratio:.3} of its norm in one update (about 0.001 is usual)",
                    node.name
                ));
            }
        }
        findings.extend(differences::findings(data));
        findings
    }

    /// The step in the format of Chrome's trace viewer, which <https://ui.perfetto.dev> opens, too: operations and
    /// rules of all shards with their times, and the memory in use. At most 50 MB; a longer trace ends early,
    /// and says so in `otherData`.
    pub fn chrome_trace(&self) -> String {
        let recording = self.recording();
        let us = |seconds: f64| seconds * 1e6;
        let mut events: Vec<Value> = Vec::new();
        let mut began = BTreeMap::new();
        for event in &recording.events {
            let slice = |name: String, start: f64, end: f64, kernel: Vec<String>| {
                json!({
                    "name": name, "ph": "X", "pid": 1, "tid": event.lane, "ts": us(start),
                    "dur": us(end - start), "args": { "kernels": kernel },
                })
            };
            match event.what {
                What::Computed(op) => {
                    let op = &recording.operations[op];
                    let kernels = op.kernels.iter().map(|k| k.kernel.to_string()).collect();
                    let start = (event.at - op.seconds).max(0.0);
                    events.push(slice(op.name().to_string(), start, event.at, kernels));
                }
                What::RuleBegan(op) => {
                    began.insert(op, event.at);
                }
                What::RuleEnded { operation, .. } => {
                    let start = began.remove(&operation).unwrap_or(event.at);
                    let op = &recording.operations[operation];
                    let kernels = op.rule_kernels.iter().map(|k| k.kernel.to_string()).collect();
                    events.push(slice(format!("{} backward", op.name()), start, event.at, kernels));
                }
                What::Seeded(_) | What::Delivered { .. } => {}
            }
            events.push(json!({
                "name": "bytes in use", "ph": "C", "pid": 1, "ts": us(event.at), "args": { "bytes": event.live },
            }));
        }
        let lanes = recording.operations.iter().map(|op| op.lane + 1).max().unwrap_or(0);
        let name = |lane| {
            json!({
                "name": "thread_name", "ph": "M", "pid": 1, "tid": lane, "args": { "name": format!("shard {lane}") },
            })
        };
        let mut text = String::from("{\"traceEvents\":[");
        let mut is_cut = false;
        for (i, event) in (0..lanes).map(name).chain(events).enumerate() {
            if text.len() > MOST_TRACE_BYTES - 10_000 {
                is_cut = true;
                break;
            }
            if i > 0 {
                text.push(',');
            }
            text += &event.to_string();
        }
        let note = if is_cut {
            "the rest was left out: the file has a limit of 50 MB"
        } else {
            "complete"
        };
        text += &format!("],\"otherData\":{{\"events\":{}}}}}", json!(note));
        text
    }
}

/// Names and columns of the tape.
struct Tape<'a> {
    data: &'a Data,
    /// The number of each operation, in the order of the forward pass.
    places: BTreeMap<usize, usize>,
    width: usize,
    shapes: usize,
}

impl<'a> Tape<'a> {
    fn new(data: &'a Data) -> Self {
        let operations = (0..data.nodes.len()).filter(|&n| data.nodes[n].kind == "op");
        let places: BTreeMap<usize, usize> = operations.zip(0..).collect();
        let nodes = || data.nodes.iter().filter(|n| n.kind == "op");
        let width = nodes().map(|n| n.name.len()).max().unwrap_or(0).max(8);
        let shapes = nodes().map(|n| shape(n).len()).max().unwrap_or(0);
        Tape { data, places, width, shapes }
    }

    fn title(&self, n: usize) -> String {
        let name = &self.data.nodes[n].name;
        self.places.get(&n).map_or_else(|| name.clone(), |place| format!("{name} {place}"))
    }

    fn head(&self, n: usize) -> String {
        format!("{:>3} {:<w$}", self.places[&n], self.data.nodes[n].name, w = self.width)
    }

    fn forward(&self, event: &EventRow) -> Option<String> {
        let n = event.node?;
        let node = &self.data.nodes[n];
        let input = |input: &super::data::Input| {
            let name = input.node.map_or("constant".into(), |n| self.title(n));
            if input.reason.is_some() && input.node.is_some() { format!("({name})") } else { name }
        };
        let inputs: Vec<String> = node.inputs.iter().map(input).collect();
        Some(format!(
            "{} {:<w$}  {}",
            self.head(n),
            shape(node),
            inputs.join(", "),
            w = self.shapes
        ))
    }

    fn backward(&self) -> Vec<String> {
        let mut lines: Vec<(usize, Vec<String>)> = Vec::new();
        for event in &self.data.events {
            match (event.what, event.node, event.to) {
                ("rule", Some(node), _) => lines.push((node, Vec::new())),
                ("moved", Some(_), Some(to)) => {
                    lines.last_mut().into_iter().for_each(|(_, all)| all.push(self.title(to)));
                }
                ("added", Some(_), Some(to)) => {
                    let text = format!("+ {}", self.title(to));
                    lines.last_mut().into_iter().for_each(|(_, all)| all.push(text.clone()));
                }
                _ => {}
            }
        }
        let line = |(node, to): (usize, Vec<String>)| {
            let bad = if self.is_bad(node) { "   not finite" } else { "" };
            format!("{} -> {}{bad}", self.head(node), to.join(", "))
        };
        lines.into_iter().map(line).collect()
    }

    /// Whether a gradient that the rule of a node delivered is not finite.
    fn is_bad(&self, node: usize) -> bool {
        let delivered = self.data.events.iter().filter(|e| e.node == Some(node));
        let mut values = delivered.filter(|e| e.what != "forward").filter_map(|e| e.value);
        values.any(|v| self.data.values[v].nan + self.data.values[v].inf > 0)
    }
}

fn shape(node: &Node) -> String {
    let shape = |s: &Vec<usize>| if s.is_empty() { "scalar".into() } else { bracketed(s) };
    node.shapes.iter().map(shape).collect::<Vec<String>>().join(" ")
}
