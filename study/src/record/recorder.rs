//! The observer that makes a [`Recording`].

use super::definition::definition;
use super::modules::ModuleNames;
use super::recording::{ModuleCall, ModulePath, Operation, Recording, Source, What};
use super::state::{Made, State};
use crate::locked::locked;
use retrograd_autograd::observe::{Computed, GraphEvent, Saved};
use retrograd_autograd::{Call, Id, Node, Var};
use retrograd_nn::Module;
use retrograd_tensor::layout::Layout;
use retrograd_tensor::observe::{self, Observer, observe_process};
use retrograd_tensor::settings::with_observer;
use retrograd_tensor::storage::pool_stats;
use retrograd_tensor::{Real, Tensor};
use std::any::Any;
use std::fmt::{self, Debug};
use std::mem;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// Records the operations and events of a closure.
///
/// ```
/// use retrograd::prelude::*;
/// use retrograd::study::record::{Recorder, What};
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
    /// The model, if it is known.
    names: Option<Arc<ModuleNames>>,
}

type Watch = dyn Fn(&Seen<'_>) + Send + Sync;
type End = dyn Fn(Recording) + Send + Sync;

/// Values at the moment of an event: [`Tensor`]s of f32 or f64, if nothing else is said.
#[derive(Debug)]
pub enum Seen<'a> {
    /// An operation was computed.
    Computed {
        /// Its number.
        operation: usize,
        /// The operation, and the attributes of the call.
        call: &'a Call,
        /// Where it was called.
        location: &'static Location<'static>,
        /// The module that it belongs to, see [`Operation::module`].
        module: Option<ModulePath>,
        /// The shard that computed it.
        lane: usize,
        /// The sources of its inputs.
        sources: Vec<Source>,
        /// The names of its inputs that are parameters.
        names: Vec<Option<String>>,
        /// The values of its inputs by name, constants included.
        inputs: Vec<(&'static str, &'a dyn Any)>,
        /// Its results.
        results: Vec<&'a dyn Any>,
    },
    /// A backward pass began.
    Seeded {
        /// The number of the event.
        event: usize,
        /// The shard in which it began.
        lane: usize,
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
        /// The shard that called it.
        lane: usize,
        /// The gradients of its results that have arrived.
        gradients: Vec<&'a dyn Any>,
    },
    /// A gradient was propagated.
    Delivered {
        /// The number of the event.
        event: usize,
        /// The shard in which it was.
        lane: usize,
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

impl Recorder {
    /// A recorder of operations, times and memory, without values.
    pub fn new() -> Recorder {
        Recorder::default()
    }

    /// Also passes the values of operations and gradients to `watch`, at the moment of their event. A
    /// tensor that it keeps is copied where the computation would change it in place.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// use retrograd::study::record::{Recorder, Seen};
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
    /// # Panics
    /// If the variable is a constant.
    #[track_caller]
    pub fn leaf<T: Real>(self, leaf: &Var<T>) -> Recorder {
        let id = leaf.id().expect("Recorder::leaf: the variable is a constant");
        self.leaf_at(id, leaf.value().storage_address(), *leaf.value().layout())
    }

    /// [`Recorder::leaf`] by the place of its elements.
    pub(crate) fn leaf_at(self, id: Id, address: usize, layout: Layout) -> Recorder {
        self.state().by_address.entry(address).or_default().push((layout, Made::Leaf(id)));
        self
    }

    /// Gives [modules](Operation::module) the paths that they have in this model, and recognises its parameters
    /// from the beginning. Without a model, the outermost module whose forward pass is reported is the model.
    pub fn model<T: Real>(mut self, model: &dyn Module<T>) -> Recorder {
        self.names = Some(Arc::new(ModuleNames::of(model)));
        model.for_each_parameter(&mut |_, param| {
            self.state().made(&param.value(), Made::Leaf(param.id()));
        });
        self
    }

    /// Records the process, from now to the end of its first backward pass, or of the passes of all shards if it is in one
    /// ([`sharded`](retrograd_autograd::sharded)), and passes the record to `end`.
    pub fn record_first_backward(mut self, end: impl Fn(Recording) + Send + Sync + 'static) {
        self.end = Some(Box::new(end));
        self.observe();
    }

    /// Observes the process from now on. Only the last `most` operations or fewer are kept.
    pub(super) fn observe_process(mut self, most: usize) {
        self.most = Some(most);
        self.observe();
    }

    fn observe(self) {
        self.begin();
        observe_process(Arc::new(self));
    }

    fn begin(&self) {
        let mut state = self.state();
        state.recording.live = pool_stats().live;
        state.recording.highest = state.recording.live;
        state.began = Some(Instant::now());
    }

    /// A backward pass has ended, or the passes of all shards, whose loss is given. The pass of one shard, and a pass
    /// that a rule runs itself, are parts of another computation.
    fn pass_ended(&self, loss: Option<f64>) {
        let (end, recording) = {
            let Some(mut state) = self.open_state() else { return };
            if state.threads.is_in_shard() || !state.lane().rules.is_empty() {
                return;
            }
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
    fn has_ended(&self) -> bool {
        self.has_ended.load(Relaxed)
    }

    /// Runs `f` and records it: what this thread does, and all work that it distributes. Results have the
    /// bits that they have without a record.
    ///
    /// A record inside of a record has its own numbers, and the outer one contains the same operations and
    /// events. So do the lines of `RETROGRAD_TRACE`.
    pub fn record<R>(self, f: impl FnOnce() -> R) -> (R, Recording) {
        let (result, recording, ()) = self.record_with(f, |_, _| ());
        (result, recording)
    }

    /// [`Recorder::record`], with the source of the result.
    pub(crate) fn record_source<T: Real>(
        self,
        f: impl FnOnce() -> Var<T>,
    ) -> (Var<T>, Recording, Source) {
        self.record_with(f, |state, result| state.source(result))
    }

    fn record_with<R, X>(
        self,
        f: impl FnOnce() -> R,
        look: impl FnOnce(&mut State, &R) -> X,
    ) -> (R, Recording, X) {
        let recorder = Arc::new(self);
        recorder.begin();
        let result = with_observer(recorder.clone(), f);
        let mut state = recorder.state();
        let seen = look(&mut state, &result);
        (result, state.take(), seen)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// The state, unless the record has ended, which may happen while another thread is in a pass.
    fn open_state(&self) -> Option<MutexGuard<'_, State>> {
        let state = self.state();
        (!self.has_ended()).then_some(state)
    }

    fn computed<T: Real>(&self, made: &Computed<T>) {
        let (watch, seen) = {
            let Some(mut state) = self.open_state() else { return };
            if self.most.is_some_and(|most| state.recording.operations.len() >= most) {
                state.forget();
                if let Some(watch) = &self.watch {
                    watch(&Seen::Forgotten);
                }
            }
            let operation = state.computed(made);
            let Some(watch) = &self.watch else { return };
            let Operation { inputs, module, lane, .. } =
                state.recording.operations[operation].clone();
            let sources: Vec<Source> = inputs.iter().map(|input| input.source).collect();
            let modules = &state.lane().modules;
            let seen = Seen::Computed {
                operation,
                call: &made.call,
                location: made.location,
                module,
                lane,
                names: sources.iter().map(|source| modules.parameter(*source)).collect(),
                sources,
                inputs: made
                    .inputs
                    .iter()
                    .map(|(name, x)| (*name, x.value() as &dyn Any))
                    .collect(),
                results: made.results.iter().map(|y| y.value() as &dyn Any).collect(),
            };
            (watch, seen)
        };
        self.watched(watch, &seen);
    }

    /// Passes values to the watcher, whose time belongs to no event.
    fn watched(&self, watch: &Watch, seen: &Seen<'_>) {
        watch(seen);
        self.state().lane().since = Some(Instant::now());
    }

    fn seeded<T: Real>(&self, root: &Var<T>, g: &Var<T>) {
        let (event, lane) = {
            let Some(mut state) = self.open_state() else { return };
            let Some(to) = state.target(root.id(), root.node()) else { return };
            state.event(What::Seeded(to));
            let lane = state.threads.lane();
            if lane == 0 && state.recording.loss.is_none() && root.value().numel() == 1 {
                state.recording.loss = Some(root.item().to_f64());
            }
            (state.recording.events.len() - 1, lane)
        };
        if let Some(watch) = &self.watch {
            self.watched(watch, &Seen::Seeded { event, lane, root, gradient: g.value() });
        }
    }

    fn rule_began<T: Real>(&self, node: &Arc<Node<T>>, grads: &[Option<Var<T>>]) {
        let definition = self.watch.is_some().then(|| definition(node)).flatten();
        let (operation, lane) = {
            let Some(mut state) = self.open_state() else { return };
            let operation = state.known(node);
            state.recording.operations[operation].definition = definition;
            state.lane().rules.push(node.id());
            state.event(What::RuleBegan(operation));
            (operation, state.threads.lane())
        };
        if let Some(watch) = &self.watch {
            let gradients = grads.iter().flatten().map(|g| g.value() as &dyn Any).collect();
            self.watched(watch, &Seen::RuleBegan { operation, lane, gradients });
        }
    }

    fn rule_dropped<T: Real>(&self, node: &Arc<Node<T>>) {
        let Some(mut state) = self.open_state() else { return };
        let operation = state.known(node);
        let freed = mem::take(&mut state.lane().freed);
        state.add_to_rule(operation);
        let is_listed = |address| state.listed.contains(&(operation, address));
        let unlisted = freed.iter().filter(|(address, _)| !is_listed(*address));
        let unlisted = unlisted.map(|(_, bytes)| bytes).sum();
        let freed = freed.iter().map(|(_, bytes)| bytes).sum();
        state.event(What::RuleEnded { operation, freed, unlisted });
    }

    fn delivered<T: Real>(
        &self,
        (node, input): (&Arc<Node<T>>, usize),
        (gradient, sum): (&Tensor<T>, &Tensor<T>),
        is_added: bool,
    ) {
        let (event, from, lane) = {
            let Some(mut state) = self.open_state() else { return };
            let from = state.known(node);
            let x = &node.inputs()[input];
            let Some(to) = state.target(x.id(), x.node()) else { return };
            // Additions are work of the backward pass of this operation.
            state.add_to_rule(from);
            state.event(What::Delivered { from, input, to, is_added });
            (state.recording.events.len() - 1, from, state.threads.lane())
        };
        if let Some(watch) = &self.watch {
            let name = node.name();
            self.watched(watch, &Seen::Delivered { event, lane, from, name, gradient, sum });
        }
    }

    fn graph<T: Real>(&self, event: &GraphEvent<T>) {
        match event {
            GraphEvent::Computed(call) => self.computed(call),
            GraphEvent::Seeded { root, gradient } => self.seeded(root, gradient),
            GraphEvent::RuleBegan { node, gradients } => self.rule_began(node, gradients),
            // What is freed from now on was saved by the operation.
            GraphEvent::RuleReturned => self.state().lane().freed.clear(),
            GraphEvent::RuleDropped(node) => self.rule_dropped(node),
            GraphEvent::Delivered { node, input, gradient, sum, is_added } => {
                self.delivered((node, *input), (gradient.value(), sum.value()), *is_added);
            }
            GraphEvent::RuleEnded => drop(self.state().lane().rules.pop()),
            GraphEvent::PassEnded => self.pass_ended(None),
            GraphEvent::ShardsEnded { loss } => self.pass_ended(Some(loss.to_f64())),
        }
    }
}

impl Observer for Recorder {
    fn event(&self, event: &observe::Event<'_>) {
        if self.has_ended() {
            return;
        }
        match *event {
            observe::Event::Allocated { address, bytes } => {
                let mut state = self.state();
                state.grown += bytes as isize;
                let live = state.recording.live.saturating_add_signed(state.grown);
                state.recording.highest = state.recording.highest.max(live);
                state.by_address.remove(&address);
                state.kept.remove(&address);
            }
            observe::Event::Freed { address, bytes } => {
                let mut state = self.state();
                state.grown -= bytes as isize;
                state.lane().freed.push((address, bytes));
                state.by_address.remove(&address);
                state.kept.remove(&address);
            }
            observe::Event::Kernel(call) => self.state().lane().kernels.push(call.clone()),
            observe::Event::ShardBegan(_) | observe::Event::ShardEnded => {
                let mut state = self.state();
                state.threads.see(event);
                state.lane().since = Some(Instant::now());
            }
            observe::Event::ModuleBegan(start) => {
                let mut state = self.state();
                let at = state.recording.operations.len();
                state.lane().modules.begin(start, self.names.as_ref(), at);
            }
            observe::Event::ModuleEnded(output) => {
                let mut state = self.state();
                if let Some((module, began)) = state.lane().modules.end() {
                    let operations = began..state.recording.operations.len().max(began);
                    let (output, lane) = (output.copied(), state.threads.lane());
                    state.recording.calls.push(ModuleCall { module, operations, output, lane });
                }
            }
            observe::Event::Other(any) => {
                if let Some(event) = any.downcast_ref::<GraphEvent<f32>>() {
                    self.graph(event);
                } else if let Some(event) = any.downcast_ref::<GraphEvent<f64>>() {
                    self.graph(event);
                } else if let Some(saved) = any.downcast_ref::<Saved>() {
                    self.state().lane().saved.push(*saved);
                }
            }
            _ => {}
        }
    }
}

impl Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("watches", &self.watch.is_some()).finish_non_exhaustive()
    }
}
