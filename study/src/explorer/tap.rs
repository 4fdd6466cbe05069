//! The observer of attention in a forward pass, which may change a call: a head switched off, or the weights as
//! variables.

use crate::locked::locked;
use crate::record::{ModuleNames, ModulePath, Modules, Threads};
use retrograd_autograd::Var;
use retrograd_nn::Module;
use retrograd_nn::attention::observe::{
    AttentionCall, AttentionEvent, Change, Rotation, StateCall,
};
use retrograd_tensor::observe::{Event, Observer};
use retrograd_tensor::settings::with_observer;
use retrograd_tensor::{Real, Tensor};
use std::mem;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// A call of attention that was observed.
pub(super) struct Seen<T: Real> {
    pub call: Arc<AttentionCall<T>>,
    /// Its place among all calls of attention and modules, which begin and end at places of their own.
    pub place: usize,
}

/// A call of a module.
pub(super) struct Called {
    pub module: ModulePath,
    /// The places from its beginning to its end.
    pub places: Range<usize>,
}

/// What is changed in the observed calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Experiment {
    /// Nothing.
    None,
    /// The output of a head of a call is 0.
    HeadOff { call: usize, head: usize },
    /// Variables that are 0 are added to the weights of all calls, by the composed path. A gradient
    /// by such a variable is that by the weights.
    Weights,
}

/// What was observed.
pub(super) struct Observed<T: Real> {
    /// The calls, in order.
    pub calls: Vec<Seen<T>>,
    /// Recurrences, with their places.
    pub states: Vec<(StateCall<T>, usize)>,
    /// The calls of modules, in the order in which they ended.
    pub modules: Vec<Called>,
    /// Queries or keys before and after rotary positions were applied.
    pub rotations: Vec<[Tensor<T>; 2]>,
    /// The variables that were added to the weights, by call.
    pub weights: Vec<Var<T>>,
}

impl<T: Real> Default for Observed<T> {
    fn default() -> Self {
        let (calls, states, modules) = (Vec::new(), Vec::new(), Vec::new());
        Observed { calls, states, modules, rotations: Vec::new(), weights: Vec::new() }
    }
}

struct Tap<T: Real> {
    experiment: Experiment,
    names: Arc<ModuleNames>,
    state: Mutex<State<T>>,
}

struct State<T: Real> {
    /// The last place.
    last: usize,
    threads: Threads<Modules>,
    observed: Observed<T>,
}

/// Runs `f`, and returns what was observed of the calls of attention with elements `T` in it. Calls in shards are
/// left out: their order is by chance.
pub(super) fn observe<T: Real, R>(
    model: &dyn Module<T>,
    experiment: Experiment,
    f: impl FnOnce() -> R,
) -> (R, Observed<T>) {
    let (threads, observed) = (Threads::default(), Observed::default());
    let state = Mutex::new(State { last: 0, threads, observed });
    let tap = Arc::new(Tap { experiment, names: Arc::new(ModuleNames::of(model)), state });
    let result = with_observer(tap.clone(), f);
    let observed = mem::take(&mut tap.state().observed);
    (result, observed)
}

impl<T: Real> Tap<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        locked(&self.state)
    }
}

impl<T: Real> Observer for Tap<T> {
    fn event(&self, event: &Event<'_>) {
        let mut state = self.state();
        match event {
            Event::ShardBegan(_) | Event::ShardEnded => state.threads.see(event),
            Event::ModuleBegan(start) => {
                state.last += 1;
                let at = state.last;
                state.threads.here().begin(start, Some(&self.names), at);
            }
            Event::ModuleEnded(output) => {
                state.last += 1;
                let call = state.threads.here().end().filter(|_| output.is_some());
                if let Some((module, began)) = call.filter(|_| !state.threads.is_in_shard()) {
                    let places = began..state.last;
                    state.observed.modules.push(Called { module, places });
                }
            }
            Event::Other(any) if !state.threads.is_in_shard() => {
                if let Some(event) = any.downcast_ref::<AttentionEvent<T>>() {
                    state.attention(event, self.experiment);
                } else if let Some(StateCall { recurrence, state: before }) =
                    any.downcast_ref::<StateCall<T>>()
                {
                    state.last += 1;
                    let (recurrence, before) = (recurrence.clone(), before.clone());
                    let call = StateCall { recurrence, state: before };
                    let place = state.last;
                    state.observed.states.push((call, place));
                } else if let Some(Rotation { before, after }) = any.downcast_ref::<Rotation<T>>() {
                    state.observed.rotations.push([before.clone(), after.clone()]);
                }
            }
            _ => {}
        }
    }
}

impl<T: Real> State<T> {
    /// Registers a call, and sets what is changed in it.
    fn attention(&mut self, event: &AttentionEvent<T>, experiment: Experiment) {
        let place = self.observed.calls.len();
        self.last += 1;
        self.observed.calls.push(Seen { call: event.call.clone(), place: self.last });
        let change = match experiment {
            Experiment::HeadOff { call, head } if call == place => Change::HeadOff(head),
            Experiment::Weights => {
                let leaf = Var::leaf(Tensor::zeros(event.call.sizes()));
                self.observed.weights.push(leaf.clone());
                Change::Weights(leaf)
            }
            _ => return,
        };
        event.change.replace(change);
    }
}
