//! What a recorder knows while it records.

use super::modules::Modules;
use super::recording::{
    Constant, Event, OperandRecord, Operation, Recording, SavedTensor, Source, Target, What, output,
};
use super::threads::Threads;
use retrograd_autograd::observe::{Computed, Saved};
use retrograd_autograd::{Call, Id, Node, Var};
use retrograd_tensor::layout::Layout;
use retrograd_tensor::observe::KernelCall;
use retrograd_tensor::{Real, Shape, Tensor};
use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;
use std::time::Instant;

#[derive(Default)]
pub(super) struct State {
    pub(super) recording: Recording,
    pub(super) began: Option<Instant>,
    /// Bytes in use, beyond those at the beginning.
    pub(super) grown: isize,
    /// The numbers of operations by the ids of their results, with the position of the result.
    by_id: HashMap<Id, (usize, usize)>,
    /// What was computed into the memory at an address that is in use, and the layouts of these tensors.
    pub(super) by_address: HashMap<usize, Vec<(Layout, Made)>>,
    /// Addresses of saved tensors.
    pub(super) kept: HashSet<usize>,
    /// Operations, and the addresses of the tensors that they list.
    pub(super) listed: HashSet<(usize, usize)>,
    pub(super) threads: Threads<Lane>,
    /// Whether a backward pass, or the passes of all shards, have ended.
    pub(super) is_loss_known: bool,
}

/// Who wrote the memory of a tensor.
#[derive(Clone, Copy)]
pub(super) enum Made {
    Leaf(Id),
    /// The number of an operation.
    By(usize),
}

/// What a thread does, outside of shards or in one of them.
#[derive(Default)]
pub(super) struct Lane {
    /// The modules whose forward passes run.
    pub(super) modules: Modules,
    /// The operations whose rules run.
    pub(super) rules: Vec<Id>,
    /// The tensors that the operation that is being recorded has saved so far.
    pub(super) saved: Vec<Saved>,
    /// When the last event was.
    pub(super) since: Option<Instant>,
    /// The kernels since then.
    pub(super) kernels: Vec<KernelCall>,
    /// Addresses and sizes of what was freed since then.
    pub(super) freed: Vec<(usize, usize)>,
}

impl State {
    /// The record until now. What follows would begin another one.
    pub(super) fn take(&mut self) -> Recording {
        let seconds = self.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
        let recording = mem::take(&mut self.recording);
        self.forget();
        Recording { seconds, ..recording }
    }

    /// Forgets all operations and events.
    pub(super) fn forget(&mut self) {
        self.recording.operations.clear();
        self.recording.events.clear();
        self.recording.calls.clear();
        self.by_id.clear();
        self.by_address.clear();
        self.listed.clear();
    }

    pub(super) fn lane(&mut self) -> &mut Lane {
        self.threads.here()
    }

    /// The time and the kernels since the last event.
    fn spent(&mut self) -> (f64, Vec<KernelCall>) {
        let lane = self.lane();
        let seconds = lane.since.take().map_or(0.0, |since| since.elapsed().as_secs_f64());
        (seconds, mem::take(&mut lane.kernels))
    }

    /// Adds what has happened since the last event to the rule of an operation.
    pub(super) fn add_to_rule(&mut self, operation: usize) {
        let (seconds, kernels) = self.spent();
        let record = &mut self.recording.operations[operation];
        record.rule_seconds += seconds;
        record.rule_kernels.extend(kernels);
    }

    pub(super) fn event(&mut self, what: What) {
        let live = self.recording.live.saturating_add_signed(self.grown);
        let at = self.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
        let lane = self.threads.lane();
        self.recording.events.push(Event { what, lane, at, live });
        let lane = self.lane();
        lane.since = Some(Instant::now());
        lane.kernels.clear();
        lane.freed.clear();
    }

    /// Notes what has written the memory of a tensor.
    pub(super) fn made<T: Real>(&mut self, tensor: &Tensor<T>, made: Made) {
        let all = self.by_address.entry(tensor.storage_address()).or_default();
        all.retain(|(layout, _)| layout != tensor.layout());
        all.push((*tensor.layout(), made));
    }

    /// The number of an operation that has computed its results.
    pub(super) fn computed<T: Real>(&mut self, made: &Computed<T>) -> usize {
        let operation = self.recording.operations.len();
        let inputs: Vec<OperandRecord> = made
            .inputs
            .iter()
            .map(|(name, x)| OperandRecord { name, source: self.source(x), shape: *x.shape() })
            .collect();
        for source in inputs.iter().map(|input| input.source) {
            if let Some(id) = source.leaf()
                && !self.recording.parameters.contains_key(&id)
                && let Some(name) = self.lane().modules.parameter(source)
            {
                self.recording.parameters.insert(id, name);
            }
        }
        let lane = self.lane();
        let (saved, rule) = (mem::take(&mut lane.saved), lane.rules.last().copied());
        let saved = self.saved(operation, &saved);
        let (seconds, kernels) = self.spent();
        let id = made.results.first().and_then(Var::id);
        let rule_of = rule.and_then(|id| Some(self.by_id.get(&id)?.0));
        if let Some(rule_of) = rule_of {
            // It is a part of the rule.
            let record = &mut self.recording.operations[rule_of];
            record.rule_seconds += seconds;
            record.rule_kernels.extend(kernels.iter().cloned());
        }
        let module = match rule_of {
            Some(rule_of) => self.recording.operations[rule_of].module.clone(),
            None => self.lane().modules.module_of(inputs.iter().map(|input| input.source)),
        };
        let shapes = made.results.iter().map(|y| *y.shape()).collect();
        let new = self.operation::<T>(made.call.clone(), shapes, inputs);
        let location = Some(made.location);
        let new = Operation { id, location, module, rule_of, saved, seconds, kernels, ..new };
        self.recording.operations.push(new);
        for (i, result) in made.results.iter().enumerate() {
            if let Some(id) = result.id() {
                self.by_id.insert(id, (operation, i));
            }
            self.made(result.value(), Made::By(operation));
        }
        self.event(What::Computed(operation));
        operation
    }

    /// An operation of this thread of which nothing else is known.
    fn operation<T: Real>(
        &mut self,
        call: Call,
        shapes: Vec<Shape>,
        inputs: Vec<OperandRecord>,
    ) -> Operation {
        Operation {
            id: None,
            call,
            shapes,
            dtype: T::DTYPE,
            inputs,
            location: None,
            module: None,
            lane: self.threads.lane(),
            rule_of: None,
            saved: Vec::new(),
            definition: None,
            seconds: 0.0,
            kernels: Vec::new(),
            rule_seconds: 0.0,
            rule_kernels: Vec::new(),
        }
    }

    fn saved(&mut self, operation: usize, saved: &[Saved]) -> Vec<SavedTensor> {
        let mut all = Vec::with_capacity(saved.len());
        for &Saved { which, shape, bytes, address } in saved {
            let made = self.by_address.get(&address).and_then(|all| all.last());
            let is_leaf = matches!(made, Some((_, Made::Leaf(_))));
            let is_new = self.kept.insert(address);
            self.listed.insert((operation, address));
            all.push(SavedTensor { which, shape, bytes, is_shared: is_leaf || !is_new });
        }
        all
    }

    pub(super) fn source<T: Real>(&mut self, x: &Var<T>) -> Source {
        match (x.id(), x.node()) {
            (Some(id), None) => {
                self.made(x.value(), Made::Leaf(id));
                Source::Leaf(id)
            }
            (Some(id), Some(node)) => Source::Output(self.known(node), output(node, id)),
            (None, _) => {
                let all = self.by_address.get(&x.value().storage_address());
                let all = all.map_or(&[][..], Vec::as_slice);
                // The same elements; else others in the same memory.
                let same = all.iter().find(|(layout, _)| layout == x.value().layout());
                Source::Constant(match same.or(all.last()) {
                    None => Constant::Made,
                    Some((_, Made::Leaf(id))) => Constant::DetachedLeaf(*id),
                    Some(&(_, Made::By(operation))) => self.constant_of(operation),
                })
            }
        }
    }

    fn constant_of(&self, operation: usize) -> Constant {
        let Operation { id, inputs, .. } = &self.recording.operations[operation];
        let is_tracked = |x: &OperandRecord| !matches!(x.source, Source::Constant(_));
        match id {
            Some(_) => Constant::DetachedResult(operation),
            None if inputs.iter().any(is_tracked) => Constant::GradDisabled(operation),
            None => Constant::Computed(operation),
        }
    }

    pub(super) fn target<T: Real>(
        &mut self,
        id: Option<Id>,
        node: Option<&Arc<Node<T>>>,
    ) -> Option<Target> {
        Some(match (id?, node) {
            (id, None) => Target::Leaf(id),
            (id, Some(node)) => Target::Output(self.known(node), output(node, id)),
        })
    }

    /// The number of an operation, which may have been computed before the record began.
    pub(super) fn known<T: Real>(&mut self, node: &Arc<Node<T>>) -> usize {
        if let Some((operation, _)) = self.by_id.get(&node.id()) {
            return *operation;
        }
        let source = |id: Option<Id>, node: Option<&Arc<Node<T>>>| match (id, node) {
            (None, _) => Source::Constant(Constant::Made),
            (Some(id), None) => Source::Leaf(id),
            (Some(id), Some(node)) => match self.by_id.get(&node.id()) {
                Some((operation, _)) => Source::Output(*operation, output(node, id)),
                // Its own record follows when its rule is called.
                None => Source::Constant(Constant::Made),
            },
        };
        let inputs = node.input_names().zip(node.inputs());
        let inputs = inputs
            .map(|(name, x)| OperandRecord {
                name,
                source: source(x.id(), x.node()),
                shape: *x.shape(),
            })
            .collect();
        let operation = self.recording.operations.len();
        self.by_id.insert(node.id(), (operation, 0));
        let (call, shapes) = (node.call().clone(), node.outputs().to_vec());
        let new = self.operation::<T>(call, shapes, inputs);
        self.recording.operations.push(Operation { id: Some(node.id()), ..new });
        operation
    }
}
