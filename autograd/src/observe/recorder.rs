//! The observer that makes a [`Recording`].

use super::definition::definition;
use super::hooks::{Saved, input_shapes};
use super::lane::lane;
use super::module::{module_of, parameter};
use super::recording::{
    Constant, Event, OperandRecord, Operation, Recording, SavedTensor, Source, Target, What,
};
use crate::graph::{Edge, Id, Node, Rule, Var};
use crate::operation::Call;
use retrograd_tensor::observe::{KernelCall, Observer, set_default_observer};
use retrograd_tensor::settings::with_observer;
use retrograd_tensor::storage::pool_stats;
use retrograd_tensor::{Real, Tensor};
use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::fmt::{self, Debug};
use std::mem;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

/// Records the operations and events of a closure.
///
/// ```
/// use retrograd_autograd::Var;
/// use retrograd_autograd::observe::{Recorder, What};
/// use retrograd_tensor::Tensor;
///
/// let x = Var::leaf(Tensor::scalar(0.5f32));
/// let (grads, recording) = Recorder::new().record(|| x.tanh().square().backward());
/// let names: Vec<_> = recording.operations.iter().map(|op| op.name()).collect();
/// assert_eq!(names, ["tanh", "square"]);
/// let rules = recording.events.iter().filter_map(|event| match event.what {
///     What::RuleBegan(op) => Some(recording.operations[op].name()),
///     _ => None,
/// });
/// assert_eq!(rules.collect::<Vec<_>>(), ["square", "tanh"]);
/// assert!(grads.get(&x).is_some());
/// ```
#[derive(Default)]
pub struct Recorder {
    state: Mutex<State>,
    watch: Option<Box<Watch>>,
    /// Called when the first backward pass has ended, with all shards, after which nothing is recorded.
    end: Option<Box<End>>,
    has_ended: AtomicBool,
    /// The most operations that are kept. Then all are forgotten.
    most: Option<usize>,
}

type Watch = dyn Fn(&Seen<'_>) + Send + Sync;
type End = dyn Fn(Recording) + Send + Sync;

/// Values at the moment of an event: [`Tensor`]s of f32 or f64, if nothing else is said.
pub enum Seen<'a> {
    /// An operation was computed.
    Computed {
        /// Its number.
        operation: usize,
        /// The operation, and the attributes of the call.
        call: &'a Call,
        /// Where it was called.
        location: &'static Location<'static>,
        /// The sources of its inputs.
        sources: Vec<Source>,
        /// The values of its inputs by name, constants included.
        inputs: Vec<(&'static str, &'a dyn Any)>,
        /// Its results.
        results: Vec<&'a dyn Any>,
    },
    /// A backward pass began.
    Seeded {
        /// The number of the event.
        event: usize,
        /// The variable, a [`Var`] of f32 or f64.
        root: &'a dyn Any,
        /// Its gradient, which was given.
        gradient: &'a dyn Any,
    },
    /// The numbers of all operations so far are used again, because the record of a process would become too
    /// large.
    Forgotten,
    /// The rule of an operation was called.
    RuleBegan {
        /// The number of the operation.
        operation: usize,
        /// The gradients of its results that have arrived.
        gradients: Vec<&'a dyn Any>,
    },
    /// A gradient was propagated.
    Delivered {
        /// The number of the event.
        event: usize,
        /// The number of the operation whose rule it was.
        from: usize,
        /// The name of the operation.
        name: &'static str,
        /// The gradient.
        gradient: &'a dyn Any,
        /// The sum of what the variable has received so far.
        sum: &'a dyn Any,
    },
}

#[derive(Default)]
struct State {
    recording: Recording,
    began: Option<Instant>,
    /// Bytes in use, beyond those at the beginning.
    grown: isize,
    /// The numbers of operations by the ids of their results, with the position of the result.
    by_id: HashMap<Id, (usize, usize)>,
    /// What was computed into the memory at an address that is in use.
    by_address: HashMap<usize, Made>,
    /// Addresses of saved tensors.
    kept: HashSet<usize>,
    /// Operations, and the addresses of the tensors that they list.
    listed: HashSet<(usize, usize)>,
    lanes: HashMap<(ThreadId, usize), Lane>,
    /// Whether a backward pass, or those of all shards, have ended.
    is_loss_known: bool,
}

/// Who wrote the memory of a tensor.
#[derive(Clone, Copy)]
enum Made {
    Leaf(Id),
    /// The number of an operation.
    By(usize),
}

/// What has happened in a lane since its last event.
#[derive(Default)]
struct Lane {
    since: Option<Instant>,
    kernels: Vec<KernelCall>,
    /// Addresses and sizes.
    freed: Vec<(usize, usize)>,
}

/// An operation that has computed its results.
pub(super) struct Computed<'a, T: Real> {
    pub(super) call: Call,
    /// The inputs that were given, by name.
    pub(super) inputs: &'a [(&'static str, &'a Var<T>)],
    pub(super) results: &'a [Var<T>],
    pub(super) saved: Vec<Saved>,
    pub(super) location: &'static Location<'static>,
    /// The operation whose rule called it.
    pub(super) rule: Option<Id>,
}

impl Recorder {
    /// A recorder of operations, times and memory, without values.
    pub fn new() -> Recorder {
        Recorder::default()
    }

    /// Also passes the values of operations and gradients to `watch`, at the moment of their event. A
    /// tensor that it keeps is copied where the computation would change it in place.
    ///
    /// ```
    /// use retrograd_autograd::Var;
    /// use retrograd_autograd::observe::{Recorder, Seen};
    /// use retrograd_tensor::Tensor;
    /// use std::sync::{Arc, Mutex};
    ///
    /// let largest = Arc::new(Mutex::new(0.0f32));
    /// let seen = largest.clone();
    /// let recorder = Recorder::new().watching(move |event| {
    ///     if let Seen::Computed { results, .. } = event
    ///         && let Some(value) = results[0].downcast_ref::<Tensor<f32>>()
    ///     {
    ///         let mut largest = seen.lock().unwrap();
    ///         *largest = largest.max(value.max(..).item());
    ///     }
    /// });
    /// let x = Var::leaf(Tensor::from([1.0f32, 2.0]));
    /// recorder.record(|| x.exp().ln().sum(..));
    /// assert_eq!(*largest.lock().unwrap(), 2.0f32.exp());
    /// ```
    pub fn watching(mut self, watch: impl Fn(&Seen<'_>) + Send + Sync + 'static) -> Recorder {
        self.watch = Some(Box::new(watch));
        self
    }

    /// Recognises the value of a leaf from the beginning. Without this, a leaf that is used as a constant
    /// only (detached, or a frozen parameter) cannot be told from other constants.
    ///
    /// ```
    /// use retrograd_autograd::Var;
    /// use retrograd_autograd::observe::{Constant, Recorder, Source};
    /// use retrograd_tensor::Tensor;
    ///
    /// let (x, w) = (Var::leaf(Tensor::scalar(2.0f32)), Var::leaf(Tensor::scalar(3.0f32)));
    /// let (_, recording) = Recorder::new().leaf(&w).record(|| x.mul(&w.detach()));
    /// let source = recording.operations[0].inputs[1].source;
    /// assert_eq!(source, Source::Constant(Constant::DetachedLeaf(w.id().unwrap())));
    /// ```
    ///
    /// # Panics
    /// If the variable is a constant.
    #[track_caller]
    pub fn leaf<T: Real>(self, leaf: &Var<T>) -> Recorder {
        let id = leaf.id().expect("Recorder::leaf: the variable is a constant");
        self.leaf_at(id, leaf.value().storage_address())
    }

    /// [`Recorder::leaf`] by the address of its memory.
    #[doc(hidden)]
    pub fn leaf_at(self, id: Id, address: usize) -> Recorder {
        self.state().by_address.insert(address, Made::Leaf(id));
        self
    }

    /// Records the process, from now to the end of its first backward pass, or that of all shards if it is in one
    /// ([`sharded`](crate::sharded)), and passes the record to `end`: for environment variables. `false` if the
    /// process has an observer already.
    ///
    /// ```no_run
    /// use retrograd_autograd::observe::Recorder;
    /// Recorder::new().record_first_backward(|recording| println!("{} bytes", recording.peak()));
    /// ```
    pub fn record_first_backward(
        mut self,
        end: impl Fn(Recording) + Send + Sync + 'static,
    ) -> bool {
        self.end = Some(Box::new(end));
        self.install()
    }

    /// Observes the process from now on. Only the last `most` operations or fewer are kept.
    pub(super) fn observe_process(mut self, most: usize) -> bool {
        self.most = Some(most);
        self.install()
    }

    fn install(self) -> bool {
        self.begin();
        set_default_observer(Arc::new(self))
    }

    fn begin(&self) {
        let mut state = self.state();
        state.recording.live = pool_stats().live;
        state.recording.highest = state.recording.live;
        state.began = Some(Instant::now());
    }

    /// A backward pass has ended, or those of all shards, whose loss is given.
    pub(super) fn pass_ended(&self, loss: Option<f64>) {
        let (end, recording) = {
            let Some(mut state) = self.open_state() else { return };
            if !mem::replace(&mut state.is_loss_known, true) && loss.is_some() {
                state.recording.loss = loss;
            }
            let Some(end) = &self.end else { return };
            self.has_ended.store(true, Relaxed);
            (end, state.take())
        };
        end(recording);
    }

    /// Whether nothing is recorded any more.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Relaxed)
    }

    /// Runs `f` and records it: what this thread does, and all work that it distributes. Results have the
    /// bits that they have without a record.
    ///
    /// A record inside of a record has its own numbers, and the outer one contains the same operations and
    /// events. So do the lines of `RETROGRAD_TRACE`.
    pub fn record<R>(self, f: impl FnOnce() -> R) -> (R, Recording) {
        let recorder = Arc::new(self);
        recorder.begin();
        let result = with_observer(recorder.clone(), f);
        let recording = recorder.state().take();
        (result, recording)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, unless the record has ended, which may happen while another thread is in a pass.
    fn open_state(&self) -> Option<MutexGuard<'_, State>> {
        let state = self.state();
        (!self.has_ended()).then_some(state)
    }

    pub(super) fn computed<T: Real>(&self, made: &Computed<'_, T>) {
        let (operation, sources) = {
            let Some(mut state) = self.open_state() else { return };
            if self.most.is_some_and(|most| state.recording.operations.len() >= most) {
                state.forget();
                if let Some(watch) = &self.watch {
                    watch(&Seen::Forgotten);
                }
            }
            let operation = state.computed(made);
            let inputs = &state.recording.operations[operation].inputs;
            (operation, inputs.iter().map(|input| input.source).collect())
        };
        if let Some(watch) = &self.watch {
            watch(&Seen::Computed {
                operation,
                call: &made.call,
                location: made.location,
                sources,
                inputs: made
                    .inputs
                    .iter()
                    .map(|(name, x)| (*name, x.value() as &dyn Any))
                    .collect(),
                results: made.results.iter().map(|y| y.value() as &dyn Any).collect(),
            });
            self.state().lane().rest();
        }
    }

    pub(super) fn seeded<T: Real>(&self, root: &Var<T>, g: &Var<T>) {
        let event = {
            let Some(mut state) = self.open_state() else { return };
            let Some(to) = state.target(&root.edge) else { return };
            state.event(What::Seeded(to));
            if lane() == 0 && state.recording.loss.is_none() && root.value().numel() == 1 {
                state.recording.loss = Some(root.item().to_f64());
            }
            state.recording.events.len() - 1
        };
        if let Some(watch) = &self.watch {
            watch(&Seen::Seeded { event, root, gradient: g.value() });
            self.state().lane().rest();
        }
    }

    pub(super) fn rule_began<T: Real>(
        &self,
        node: &Arc<Node<T>>,
        rule: &dyn Rule<T>,
        grads: &[Option<Var<T>>],
    ) {
        let definition = self.watch.is_some().then(|| definition(node, rule)).flatten();
        let operation = {
            let Some(mut state) = self.open_state() else { return };
            let operation = state.known(node);
            state.recording.operations[operation].definition = definition;
            state.event(What::RuleBegan(operation));
            operation
        };
        if let Some(watch) = &self.watch {
            let gradients = grads.iter().flatten().map(|g| g.value() as &dyn Any).collect();
            watch(&Seen::RuleBegan { operation, gradients });
            self.state().lane().rest();
        }
    }

    /// What is freed from now on was saved by the operation.
    pub(super) fn rule_returned(&self) {
        self.state().lane().freed.clear();
    }

    pub(super) fn rule_ended<T: Real>(&self, node: &Arc<Node<T>>) {
        let Some(mut state) = self.open_state() else { return };
        let operation = state.known(node);
        let Lane { since, kernels, freed } = mem::take(state.lane());
        let record = &mut state.recording.operations[operation];
        record.rule_seconds += since.map_or(0.0, |since| since.elapsed().as_secs_f64());
        record.rule_kernels.extend(kernels);
        let is_listed = |address| state.listed.contains(&(operation, address));
        let unlisted = freed.iter().filter(|(address, _)| !is_listed(*address));
        let unlisted = unlisted.map(|(_, bytes)| bytes).sum();
        let freed = freed.iter().map(|(_, bytes)| bytes).sum();
        state.event(What::RuleEnded { operation, freed, unlisted });
    }

    pub(super) fn delivered<T: Real>(
        &self,
        (node, input): (&Arc<Node<T>>, usize),
        edge: &Edge<T>,
        gradient: &Tensor<T>,
        sum: &Tensor<T>,
        is_added: bool,
    ) {
        let (event, from) = {
            let Some(mut state) = self.open_state() else { return };
            let from = state.known(node);
            let Some(to) = state.target(edge) else { return };
            // Additions are work of the backward pass of this operation.
            let Lane { since, kernels, .. } = mem::take(state.lane());
            let record = &mut state.recording.operations[from];
            record.rule_seconds += since.map_or(0.0, |since| since.elapsed().as_secs_f64());
            record.rule_kernels.extend(kernels);
            state.event(What::Delivered { from, input, to, is_added });
            (state.recording.events.len() - 1, from)
        };
        if let Some(watch) = &self.watch {
            watch(&Seen::Delivered { event, from, name: node.name(), gradient, sum });
            self.state().lane().rest();
        }
    }
}

impl Lane {
    /// The time until now belongs to no event.
    fn rest(&mut self) {
        self.since = Some(Instant::now());
    }
}

impl State {
    /// The record until now. What follows would begin another one.
    fn take(&mut self) -> Recording {
        let seconds = self.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
        let recording = mem::take(&mut self.recording);
        self.forget();
        Recording { seconds, ..recording }
    }

    /// Forgets all operations and events.
    fn forget(&mut self) {
        self.recording.operations.clear();
        self.recording.events.clear();
        self.by_id.clear();
        self.by_address.clear();
        self.listed.clear();
    }

    fn lane(&mut self) -> &mut Lane {
        self.lanes.entry((thread::current().id(), lane())).or_default()
    }

    fn event(&mut self, what: What) {
        let live = self.recording.live.saturating_add_signed(self.grown);
        let at = self.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
        self.recording.events.push(Event { what, lane: lane(), at, live });
        *self.lane() = Lane { since: Some(Instant::now()), ..Lane::default() };
    }

    fn computed<T: Real>(&mut self, made: &Computed<'_, T>) -> usize {
        let operation = self.recording.operations.len();
        let inputs: Vec<OperandRecord> = made
            .inputs
            .iter()
            .map(|&(name, x)| OperandRecord { name, source: self.source(x), shape: *x.shape() })
            .collect();
        for source in inputs.iter().map(|input| input.source) {
            if let Source::Leaf(id) | Source::Constant(Constant::DetachedLeaf(id)) = source
                && !self.recording.parameters.contains_key(&id)
                && let Some(name) = parameter(source)
            {
                self.recording.parameters.insert(id, name);
            }
        }
        let saved = self.saved(operation, &made.saved);
        let Lane { since, kernels, .. } = mem::take(self.lane());
        let seconds = since.map_or(0.0, |since| since.elapsed().as_secs_f64());
        let id = made.results.first().and_then(Var::id);
        let rule_of = made.rule.and_then(|id| Some(self.by_id.get(&id)?.0));
        if let Some(rule_of) = rule_of {
            // It is a part of the rule.
            let record = &mut self.recording.operations[rule_of];
            record.rule_seconds += seconds;
            record.rule_kernels.extend(kernels.iter().cloned());
        }
        let module = match rule_of {
            Some(rule_of) => self.recording.operations[rule_of].module.clone(),
            None => module_of(inputs.iter().map(|input| input.source)),
        };
        self.recording.operations.push(Operation {
            id,
            call: made.call.clone(),
            shapes: made.results.iter().map(|y| *y.shape()).collect(),
            dtype: T::DTYPE,
            inputs,
            location: Some(made.location),
            module,
            lane: lane(),
            rule_of,
            saved,
            definition: None,
            seconds,
            kernels,
            rule_seconds: 0.0,
            rule_kernels: Vec::new(),
        });
        for (i, result) in made.results.iter().enumerate() {
            if let Some(id) = result.id() {
                self.by_id.insert(id, (operation, i));
            }
            self.by_address.insert(result.value().storage_address(), Made::By(operation));
        }
        self.event(What::Computed(operation));
        operation
    }

    fn saved(&mut self, operation: usize, saved: &[Saved]) -> Vec<SavedTensor> {
        let mut all = Vec::with_capacity(saved.len());
        for &Saved { which, shape, bytes, address } in saved {
            let is_leaf = matches!(self.by_address.get(&address), Some(Made::Leaf(_)));
            let is_new = self.kept.insert(address);
            self.listed.insert((operation, address));
            all.push(SavedTensor { which, shape, bytes, is_shared: is_leaf || !is_new });
        }
        all
    }

    fn source<T: Real>(&mut self, x: &Var<T>) -> Source {
        let address = x.value().storage_address();
        match &x.edge {
            Edge::Leaf(id) => {
                self.by_address.insert(address, Made::Leaf(*id));
                Source::Leaf(*id)
            }
            Edge::Node(node, output) => Source::Output(self.known(node), *output),
            Edge::Constant => Source::Constant(match self.by_address.get(&address) {
                None => Constant::Made,
                Some(Made::Leaf(id)) => Constant::DetachedLeaf(*id),
                Some(&Made::By(operation)) => self.constant_of(operation),
            }),
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

    fn target<T: Real>(&mut self, edge: &Edge<T>) -> Option<Target> {
        match edge {
            Edge::Constant => None,
            Edge::Leaf(id) => Some(Target::Leaf(*id)),
            Edge::Node(node, output) => Some(Target::Output(self.known(node), *output)),
        }
    }

    /// The number of an operation, which may have been computed before the record began.
    fn known<T: Real>(&mut self, node: &Arc<Node<T>>) -> usize {
        if let Some((operation, _)) = self.by_id.get(&node.id()) {
            return *operation;
        }
        let source = |edge: &Edge<T>, this: &State| match edge {
            Edge::Constant => Source::Constant(Constant::Made),
            Edge::Leaf(id) => Source::Leaf(*id),
            Edge::Node(node, output) => match this.by_id.get(&node.id()) {
                Some((operation, _)) => Source::Output(*operation, *output),
                // Its own record follows when its rule is called.
                None => Source::Constant(Constant::Made),
            },
        };
        let inputs = input_shapes(node);
        let inputs = inputs
            .map(|(name, edge, shape)| OperandRecord { name, source: source(edge, self), shape })
            .collect();
        let operation = self.recording.operations.len();
        self.by_id.insert(node.id(), (operation, 0));
        self.recording.operations.push(Operation {
            id: Some(node.id()),
            call: node.call().clone(),
            shapes: node.outputs().to_vec(),
            dtype: T::DTYPE,
            inputs,
            location: None,
            module: None,
            lane: lane(),
            rule_of: None,
            saved: Vec::new(),
            definition: None,
            seconds: 0.0,
            kernels: Vec::new(),
            rule_seconds: 0.0,
            rule_kernels: Vec::new(),
        });
        operation
    }
}

impl Observer for Recorder {
    fn allocated(&self, address: usize, bytes: usize) {
        if self.has_ended() {
            return;
        }
        let mut state = self.state();
        state.grown += bytes as isize;
        let live = state.recording.live.saturating_add_signed(state.grown);
        state.recording.highest = state.recording.highest.max(live);
        state.by_address.remove(&address);
        state.kept.remove(&address);
    }

    fn freed(&self, address: usize, bytes: usize) {
        if self.has_ended() {
            return;
        }
        let mut state = self.state();
        state.grown -= bytes as isize;
        state.lane().freed.push((address, bytes));
        state.by_address.remove(&address);
        state.kept.remove(&address);
    }

    fn kernel(&self, call: &KernelCall) {
        if self.has_ended() {
            return;
        }
        self.state().lane().kernels.push(call.clone());
    }
}

impl Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("watches", &self.watch.is_some()).finish_non_exhaustive()
    }
}

impl Debug for Seen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Forgotten => f.write_str("Forgotten"),
            Seen::Computed { operation, .. } => write!(f, "Computed({operation})"),
            Seen::Seeded { event, .. } => write!(f, "Seeded({event})"),
            Seen::RuleBegan { operation, .. } => write!(f, "RuleBegan({operation})"),
            Seen::Delivered { event, .. } => write!(f, "Delivered({event})"),
        }
    }
}
