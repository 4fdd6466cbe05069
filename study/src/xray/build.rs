//! From a recording to the data of the page.

use super::collect::Collected;
use super::data::*;
use super::elements::Evaluated;
use super::names::Names;
use super::values::{Number, Values};
use crate::conditions::cpu_model;
use crate::record::{Constant, Event, Operation, Recording, Source, Target, What, Which};
use retrograd_autograd::Id;
use retrograd_tensor::machine::Roofline;
use retrograd_tensor::observe::KernelCall;
use retrograd_tensor::{DType, settings, threads};
use std::collections::{BTreeMap, BTreeSet};

/// The version of the format of [`Data`].
const VERSION: u32 = 1;

/// The part of a recording that the page shows: the first lane.
pub(super) struct Shown<'a> {
    pub(super) recording: &'a Recording,
    /// Numbers of operations.
    operations: Vec<usize>,
    /// Numbers of events.
    pub(super) events: Vec<usize>,
    pub(super) leaves: Vec<Id>,
    /// The number of lanes.
    lanes: usize,
}

impl<'a> Shown<'a> {
    pub(super) fn of(recording: &'a Recording) -> Shown<'a> {
        let all = &recording.operations;
        let operations = shown_operations(all);
        let concerns = |event: &Event| match event.what {
            What::Computed(op)
            | What::RuleBegan(op)
            | What::RuleEnded { operation: op, .. }
            | What::Delivered { from: op, .. } => operations.binary_search(&op).is_ok(),
            What::Seeded(_) => true,
        };
        let in_lane = |event: &Event| event.lane == 0 && concerns(event);
        let events = 0..recording.events.len();
        let events: Vec<usize> = events.filter(|&i| in_lane(&recording.events[i])).collect();
        let mut leaves = Vec::new();
        for &op in &operations {
            for id in all[op].inputs.iter().filter_map(|input| input.source.leaf()) {
                if !leaves.contains(&id) {
                    leaves.push(id);
                }
            }
        }
        let lanes = all.iter().map(|op| op.lane + 1).max().unwrap_or(1);
        Shown { recording, operations, events, leaves, lanes }
    }

    /// The number of the node of an operation.
    fn node(&self, operation: usize) -> Option<usize> {
        Some(self.leaves.len() + self.operations.binary_search(&operation).ok()?)
    }

    fn leaf(&self, id: Id) -> Option<usize> {
        self.leaves.iter().position(|leaf| *leaf == id)
    }

    fn target(&self, to: Target) -> Option<usize> {
        match to {
            Target::Leaf(id) => self.leaf(id),
            Target::Output(op, _) => self.node(op),
        }
    }

    /// The event without times and sizes.
    fn outline(&self, event: usize) -> (&'static str, Option<usize>, Option<usize>) {
        match self.recording.events[event].what {
            What::Computed(op) => ("forward", self.node(op), None),
            What::Seeded(to) => ("seed", None, self.target(to)),
            What::RuleBegan(op) => ("rule", self.node(op), None),
            What::RuleEnded { operation, .. } => ("end", self.node(operation), None),
            What::Delivered { from, to, is_added, .. } => {
                (if is_added { "added" } else { "moved" }, self.node(from), self.target(to))
            }
        }
    }

    /// The first event in which another record of the same closure differs.
    pub(super) fn difference(&self, other: &Shown<'_>) -> Option<usize> {
        let name = |shown: &Shown<'_>, event| {
            let (what, node, to) = shown.outline(event);
            let op = node.and_then(|n| shown.operations.get(n.checked_sub(shown.leaves.len())?));
            (what, node, to, op.map(|&op| shown.recording.operations[op].name()))
        };
        let most = self.events.len().max(other.events.len());
        (0..most).find(|&i| match (self.events.get(i), other.events.get(i)) {
            (Some(&a), Some(&b)) => name(self, a) != name(other, b),
            _ => true,
        })
    }
}

/// The operations of the first lane that are recorded on the graph, and the constants that they use. If
/// there are none, all operations.
fn shown_operations(all: &[Operation]) -> Vec<usize> {
    let in_lane: Vec<usize> = (0..all.len()).filter(|&i| all[i].lane == 0).collect();
    let mut shown: BTreeSet<usize> =
        in_lane.iter().copied().filter(|&i| all[i].id.is_some()).collect();
    if shown.is_empty() {
        return in_lane.into_iter().filter(|&i| all[i].rule_of.is_none()).collect();
    }
    let mut next: Vec<usize> = shown.iter().copied().collect();
    while let Some(op) = next.pop() {
        for input in &all[op].inputs {
            if let Source::Constant(Constant::GradDisabled(from) | Constant::Computed(from)) =
                input.source
                && all[from].lane == 0
                && shown.insert(from)
            {
                next.push(from);
            }
        }
    }
    shown.into_iter().collect()
}

/// What the page is made from.
pub(super) struct Sources<'a> {
    pub(super) title: &'a str,
    pub(super) names: &'a Names,
    /// The records with times and memory, the shortest first.
    pub(super) runs: Vec<Shown<'a>>,
    /// The record with values, whose events are the same.
    pub(super) values: Shown<'a>,
    pub(super) collected: Collected,
    pub(super) roofline: Option<&'a Roofline>,
    pub(super) updates: &'a BTreeMap<Id, f64>,
    pub(super) warnings: Vec<String>,
}

pub(super) fn build(sources: Sources<'_>) -> Data {
    let Sources { title, names, runs, values: seen, mut collected, roofline, .. } = sources;
    let clock = &runs[0];
    let mut data = Data { xray: VERSION, title: title.to_string(), ..Data::default() };
    data.left_out = sources.warnings;
    if clock.lanes > 1 {
        data.left_out.push(format!(
            "{} of the batch, which {} the same operations at the same time (memory is that of all shards)",
            if clock.lanes == 2 { "shard 2".into() } else { format!("shards 2 to {}", clock.lanes) },
            if clock.lanes == 2 { "runs" } else { "run" },
        ));
    }
    let all = &clock.recording.operations;
    let shown: Vec<&Operation> = clock.operations.iter().map(|&op| &all[op]).collect();
    data.made = Made {
        version: env!("CARGO_PKG_VERSION"),
        cpu: cpu_model().unwrap_or_default(),
        level: settings::level().name().to_string(),
        threads: threads(),
        dtype: shown.first().map_or(String::new(), |op| op.dtype.to_string()),
        shards: clock.lanes,
        runs: runs.len(),
        loss: seen.recording.loss.map(Number),
    };
    data.modules = names.modules.clone();
    if data.modules.is_empty() {
        let (path, type_name) = (String::new(), "program".into());
        data.modules.push(ModuleRow { path, type_name, parent: -1 });
    }
    let attributed = names.attribute(&shown);
    let mut gradients = Gradients::new(clock);

    for (i, &id) in clock.leaves.iter().enumerate() {
        let leaf = names.leaves.get(&id);
        let result = seen.leaves.get(i).and_then(|id| collected.leaves.remove(id));
        let recorded = || clock.recording.parameters.get(&id).cloned();
        let name = leaf.map(|leaf| leaf.names[0].clone()).or_else(recorded);
        let module = name.as_deref().map_or(0, |name| names.module_of(name));
        let mut node = Node {
            kind: "leaf",
            name: name.unwrap_or_else(|| format!("leaf {}", i + 1)),
            module,
            shapes: vec![leaf_shape(&shown, id)],
            trainable: leaf.map(|leaf| leaf.is_trainable),
            update: sources.updates.get(&id).copied().map(Number),
            ..Node::default()
        };
        match (result, leaf) {
            (Some(result), _) => {
                node.value = Some(push(&mut data.values, result.values));
                node.elements = result.elements;
            }
            (None, Some(leaf)) => node.value = Some(push(&mut data.values, leaf.values.clone())),
            (None, None) => {}
        }
        data.nodes.push(node);
    }
    for (i, op) in shown.iter().enumerate() {
        let mut node = operation_node(clock, op, attributed[i], names, roofline);
        let times = |of: fn(&Operation) -> &[KernelCall]| {
            let in_kernels = |run: &Shown<'_>| {
                let kernels = of(&run.recording.operations[run.operations[i]]);
                kernels.iter().map(|call| call.seconds).sum()
            };
            least_and_median(runs.iter().map(in_kernels).collect())
        };
        let (forward, backward) = (times(|op| &op.kernels), times(|op| &op.rule_kernels));
        node.seconds = op.location.map(|_| forward[0]);
        node.backward_seconds = (op.rule_seconds > 0.0).then_some(backward[0]);
        node.medians = (runs.len() > 1).then_some([forward[1], backward[1]]);
        node.formula = op.call.formula().map(|f| {
            let row = FormulaRow { forward: f.forward, backward: f.backward };
            data.formulas.iter().position(|known| *known == row).unwrap_or_else(|| {
                data.formulas.push(row);
                data.formulas.len() - 1
            })
        });
        let number = clock.operations[i];
        let called = all.iter().filter(|inner| inner.rule_of == Some(number) && inner.lane == 0);
        node.rule = called.map(|inner| inner.name().to_string()).collect();
        node.inside = seen.recording.operations[seen.operations[i]].definition.clone();
        if let Some(result) = collected.results.remove(&seen.operations[i]) {
            node.value = Some(push(&mut data.values, result.values));
            node.elements = result.elements;
        }
        data.nodes.push(node);
    }
    for (i, &event) in clock.events.iter().enumerate() {
        let (what, node, to) = clock.outline(event);
        let mut row = EventRow { what, node, to, ..EventRow::default() };
        row.live = clock.recording.events[event].live;
        if let What::RuleEnded { freed, .. } = clock.recording.events[event].what {
            row.freed = Some(freed);
        }
        row.gradients = gradients.after(event);
        if what == "forward" {
            row.value = node.and_then(|node| data.nodes[node].value);
        }
        if let (Some(to), Some(found)) = (to, collected.gradients.remove(&seen.events[i])) {
            let terms = terms(&seen, seen.events[i], &collected);
            for (e, (element, part)) in
                data.nodes[to].elements.iter_mut().zip(&found.parts).enumerate()
            {
                // Not if the rule is that of another operation with this name.
                let is_this = |(_, x): &&Evaluated| (x - part).abs() <= 0.01 * part.abs();
                if let Some((text, _)) = terms.and_then(|terms| terms.get(e)).filter(is_this) {
                    element.terms.push((element.parts.len(), text.clone()));
                }
                element.parts.push((node, Number(*part)));
            }
            row.value = Some(push(&mut data.values, found.sum));
        }
        data.events.push(row);
    }
    data.memory.before = clock.recording.live;
    data.machine = roofline.map(|r| MachineRow {
        gflops: r.peak.gflops.all,
        memory: r.memory.iter().map(|m| (m.name, m.read.all.max(m.copy.all))).collect(),
    });
    explain_missing(&mut data, names, clock);
    data.lesson = lesson(&data, &collected, &seen);
    data
}

/// The least of the times of all runs, and their median. Other programs only make a run longer.
fn least_and_median(mut times: Vec<f64>) -> [f64; 2] {
    times.sort_by(f64::total_cmp);
    [times[0], times[times.len() / 2]]
}

/// The explained elements of the gradient that an event delivered, if it belongs to an input of a product.
fn terms<'a>(
    seen: &Shown<'_>,
    event: usize,
    collected: &'a Collected,
) -> Option<&'a Vec<Evaluated>> {
    let What::Delivered { from, input, .. } = seen.recording.events[event].what else {
        return None;
    };
    collected.products.get(&from)?.get(input)
}

fn push(all: &mut Vec<Values>, values: Values) -> usize {
    all.push(values);
    all.len() - 1
}

fn leaf_shape(operations: &[&Operation], id: Id) -> Vec<usize> {
    let mut inputs = operations.iter().flat_map(|op| &op.inputs);
    let found = inputs.find(|input| input.source.leaf() == Some(id));
    found.map_or(Vec::new(), |input| input.shape.to_vec())
}

fn operation_node(
    shown: &Shown<'_>,
    op: &Operation,
    module: usize,
    names: &Names,
    roofline: Option<&Roofline>,
) -> Node {
    // Inputs of which there may be any number have no letters.
    let symbol = |i: usize| Some(op.inputs[i].name).filter(|name| !name.ends_with(".."));
    let inputs = op.inputs.iter().enumerate().map(|(i, input)| {
        let symbol = symbol(i);
        let mut row = Input { shape: input.shape.to_vec(), symbol, ..Input::default() };
        match input.source {
            Source::Leaf(id) => row.node = shown.leaf(id),
            Source::Output(from, output) => {
                row.node = shown.node(from);
                row.output = (output > 0).then_some(output);
                row.reason = row.node.is_none().then(|| "computed in another shard".into());
            }
            Source::Constant(why) => {
                let (node, reason) = match why {
                    Constant::Made => (None, "made as a constant"),
                    Constant::DetachedResult(from) => {
                        (shown.node(from), "detached: the value without its history")
                    }
                    Constant::DetachedLeaf(id) => (
                        shown.leaf(id),
                        match names.leaves.get(&id).map(|leaf| leaf.is_trainable) {
                            Some(true) => "detached: the value without its history",
                            Some(false) => "frozen",
                            None => "frozen or detached",
                        },
                    ),
                    Constant::GradDisabled(from) => {
                        (shown.node(from), "computed while gradients were disabled")
                    }
                    Constant::Computed(from) => (shown.node(from), "computed from constants"),
                };
                (row.node, row.reason) = (node, Some(reason.into()));
            }
        }
        row
    });
    let saved = op.saved.iter().map(|tensor| Saved {
        name: match tensor.which {
            Which::Input(i) => symbol(i).map_or_else(|| format!("input {i}"), str::to_string),
            Which::Other(name) => name.into(),
        },
        shape: tensor.shape.to_vec(),
        bytes: tensor.bytes,
        shared: tensor.is_shared,
    });
    let sum = |of: fn(&KernelCall) -> u64| op.kernels.iter().map(of).sum();
    let least = |r: &Roofline| {
        let bound = |c: &KernelCall| r.bound(c.threads, c.dtype, c.flops as f64, c.bytes() as f64);
        op.kernels.iter().map(|call| bound(call).seconds).sum()
    };
    let kernels: Vec<String> = op.kernels.iter().map(|call| call.kernel.to_string()).collect();
    Node {
        kind: "op",
        name: op.name().to_string(),
        module,
        shapes: op.shapes.iter().map(|s| s.to_vec()).collect(),
        inputs: inputs.collect(),
        constants: op.call.numbers().map(|(name, x)| (name, Number(x))).collect(),
        line: op.location.map(|at| format!("{}:{}", at.file(), at.line())),
        saved: saved.collect(),
        flops: sum(|call| call.flops),
        traffic: sum(KernelCall::bytes),
        least_seconds: roofline.map(least),
        kernel: (!kernels.is_empty()).then(|| kernels.join("; ")),
        ..Node::default()
    }
}

/// The bytes of gradients that are alive.
struct Gradients<'a> {
    shown: &'a Shown<'a>,
    bytes: usize,
    next: usize,
}

impl<'a> Gradients<'a> {
    fn new(shown: &'a Shown<'a>) -> Self {
        Gradients { shown, bytes: 0, next: 0 }
    }

    fn size(&self, to: Target) -> usize {
        let all = &self.shown.recording.operations;
        let (elements, dtype) = match to {
            Target::Output(op, i) => (all[op].shapes[i].numel(), all[op].dtype),
            Target::Leaf(id) => {
                let inputs = all.iter().flat_map(|op| op.inputs.iter().map(move |x| (op, x)));
                let this = |source| matches!(source, Source::Leaf(leaf) if leaf == id);
                let found = inputs.clone().find(|(_, input)| this(input.source));
                let Some((op, input)) = found else { return 0 };
                (input.shape.numel(), op.dtype)
            }
        };
        elements * if dtype == DType::F64 { 8 } else { 4 }
    }

    /// After an event; events of other lanes before it are included.
    fn after(&mut self, event: usize) -> usize {
        while self.next <= event {
            match self.shown.recording.events[self.next].what {
                What::Seeded(to) | What::Delivered { to, is_added: false, .. } => {
                    self.bytes += self.size(to);
                }
                What::RuleEnded { operation, .. } => {
                    // Those of its results, of which at least one had arrived.
                    let sizes = self.size(Target::Output(operation, 0));
                    self.bytes = self.bytes.saturating_sub(sizes);
                }
                _ => {}
            }
            self.next += 1;
        }
        self.bytes
    }
}

/// Says of each parameter without a gradient where the way to the loss is cut.
fn explain_missing(data: &mut Data, names: &Names, shown: &Shown<'_>) {
    let has_backward = data.events.iter().any(|e| e.what == "rule");
    if !has_backward {
        return;
    }
    let received: Vec<bool> = (0..data.nodes.len())
        .map(|n| data.events.iter().any(|e| e.to == Some(n) && e.what != "forward"))
        .collect();
    for n in 0..shown.leaves.len() {
        if received[n] {
            continue;
        }
        data.nodes[n].no_gradient = Some(match data.nodes[n].trainable {
            Some(false) => "it is frozen".into(),
            _ => first_cut(data, n, &received),
        });
    }
    // Parameters that no operation uses.
    for (id, leaf) in &names.leaves {
        if shown.leaf(*id).is_none() {
            let why = if leaf.is_trainable {
                "no operation of this step uses it"
            } else {
                "it is frozen, and not used"
            };
            data.nodes.push(Node {
                kind: "leaf",
                name: leaf.names[0].clone(),
                module: names.module_of(&leaf.names[0]),
                shapes: vec![leaf.shape.clone()],
                trainable: Some(leaf.is_trainable),
                value: Some(push(&mut data.values, leaf.values.clone())),
                no_gradient: Some(why.into()),
                ..Node::default()
            });
        }
    }
}

/// Follows the uses of a node to the first one through which no gradient comes back.
fn first_cut(data: &Data, from: usize, received: &[bool]) -> String {
    let (mut next, mut seen) = (vec![from], vec![from]);
    let mut unused = None;
    while let Some(n) = next.pop() {
        let mut is_used = false;
        for (user, node) in data.nodes.iter().enumerate() {
            for input in node.inputs.iter().filter(|input| input.node == Some(n)) {
                is_used = true;
                let line = node.line.as_deref().map_or(String::new(), |line| format!(" ({line})"));
                if let Some(reason) = &input.reason {
                    return format!(
                        "`{}`{line} uses `{}` as a constant: {reason}",
                        node.name, data.nodes[n].name
                    );
                }
                if !received.get(user).copied().unwrap_or(false) && !seen.contains(&user) {
                    seen.push(user);
                    next.push(user);
                }
            }
        }
        if !is_used && n != from {
            unused = Some(n);
        }
    }
    match unused {
        Some(n) => {
            let node = &data.nodes[n];
            let line = node.line.as_deref().map_or(String::new(), |line| format!(" ({line})"));
            format!(
                "the result of `{}`{line} is not used by the variable that was differentiated",
                node.name
            )
        }
        None => "no operation of this step uses it".into(),
    }
}

/// Gradients of a small graph by naive recursion beside the right ones.
fn lesson(data: &Data, collected: &Collected, seen: &Shown<'_>) -> Option<Lesson> {
    let naive = collected.naive.as_ref()?;
    let rows: Vec<LessonRow> = seen
        .leaves
        .iter()
        .enumerate()
        .filter_map(|(n, id)| {
            let last = data.events.iter().rev().find(|e| e.to == Some(n))?;
            let (right, wrong) = (&data.values[last.value?], naive.gradients.get(id)?);
            Some(LessonRow {
                name: data.nodes[n].name.clone(),
                uses: data.events.iter().filter(|e| e.to == Some(n)).count(),
                right: right.norm,
                wrong: wrong.norm,
                // Sums in another order have other roundings.
                equal: (right.norm - wrong.norm).abs() <= 1e-4 * right.norm.abs().max(1e-12),
            })
        })
        .collect();
    let is_finite = |v: &Values| v.nan + v.inf == 0;
    if !data.values.iter().all(is_finite) {
        return None;
    }
    let visits = data.events.iter().filter(|e| e.what == "rule").count();
    (!rows.is_empty()).then_some(Lesson { rows, visits, naive_visits: naive.calls })
}
