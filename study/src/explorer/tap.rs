//! Observation of the calls of attention on a thread, and changes of one of them: a head switched off,
//! or the weights as variables.
//!
//! Without an observer, a call of attention reads one thread-local flag.

use super::call::{Call, Change};
use super::spec::Spec;
use retrograd_autograd::Var;
use retrograd_autograd::observe::shard_depth;
use retrograd_tensor::{Real, Tensor};
use std::any::Any;
use std::cell::{Cell, RefCell};

/// A call of attention that was observed.
pub(crate) struct Seen<T: Real> {
    /// The operands as constants.
    pub call: Call<T>,
    /// The spec before it was resolved.
    pub spec: Spec<T>,
    /// The number of variables that were created before the call.
    pub number: u64,
}

/// What is changed in the observed calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Experiment {
    /// Nothing.
    None,
    /// The output of a head of a call is 0.
    HeadOff { call: usize, head: usize },
    /// Variables that are 0 are added to the weights of all calls, by the composed path. A gradient
    /// by such a variable is that by the weights.
    Weights,
}

/// What was observed.
pub(crate) struct Observed<T: Real> {
    /// The calls, in order.
    pub calls: Vec<Seen<T>>,
    /// Queries or keys before and after rotary positions were applied.
    pub rotations: Vec<[Tensor<T>; 2]>,
    /// The variables that were added to the weights, by call.
    pub weights: Vec<Var<T>>,
}

struct Tap<T: Real> {
    experiment: Experiment,
    /// Calls in shards of the observed computation are left out: which of them run on this thread is by chance.
    depth: usize,
    observed: Observed<T>,
}

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    /// The [`Tap`] of the innermost scope. Its element type is that of the model.
    static TAP: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// Runs `f`, and returns what was observed of the calls of attention with elements `T` on this thread.
pub(crate) fn observe<T: Real, R>(
    experiment: Experiment,
    f: impl FnOnce() -> R,
) -> (R, Observed<T>) {
    let empty = Observed { calls: Vec::new(), rotations: Vec::new(), weights: Vec::new() };
    let tap = Tap::<T> { experiment, depth: shard_depth(), observed: empty };
    let scope = Scope::enter(Some(Box::new(tap)));
    let result = f();
    let tap = TAP.take().and_then(|tap| tap.downcast::<Tap<T>>().ok());
    drop(scope);
    (result, tap.expect("scopes are nested").observed)
}

/// Runs `f` without observing calls of attention in it: those of a variant that uses their weights for
/// something else.
pub(crate) fn unobserved<R>(f: impl FnOnce() -> R) -> R {
    if !IS_ON.get() {
        return f();
    }
    let _scope = Scope::enter(None);
    f()
}

/// Restores the outer tap when it is dropped, also after a panic.
struct Scope(Option<Box<dyn Any>>);

impl Scope {
    fn enter(tap: Option<Box<dyn Any>>) -> Scope {
        IS_ON.set(tap.is_some());
        Scope(TAP.replace(tap))
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let outer = self.0.take();
        IS_ON.set(outer.is_some());
        TAP.set(outer);
    }
}

fn with<T: Real, R>(f: impl FnOnce(&mut Tap<T>) -> R) -> Option<R> {
    if !IS_ON.get() {
        return None;
    }
    TAP.with_borrow_mut(|tap| {
        let tap =
            tap.as_mut()?.downcast_mut().filter(|tap: &&mut Tap<T>| tap.depth == shard_depth());
        tap.map(f)
    })
}

/// Registers a call, and sets what is changed in it.
pub(super) fn seen<T: Real>(mut call: Call<T>, spec: &Spec<T>) -> Call<T> {
    with(|tap: &mut Tap<T>| {
        let index = tap.observed.calls.len();
        let number = Var::leaf(Tensor::scalar(T::ZERO)).id().map_or(0, |id| id.number());
        tap.observed.calls.push(Seen { call: call.constant(), spec: spec.clone(), number });
        call.change = match tap.experiment {
            Experiment::HeadOff { call, head } if call == index => Change::HeadOff(head),
            Experiment::Weights => {
                let sizes = call.sizes;
                let shape = [sizes.batch, sizes.heads, sizes.lq, sizes.lk];
                let leaf = Var::leaf(Tensor::zeros(shape));
                tap.observed.weights.push(leaf.clone());
                Change::Weights(leaf)
            }
            _ => Change::None,
        };
    });
    call
}

/// Whether the weights are variables, so that the composed path is required.
pub(super) fn weights_are_variables<T: Real>() -> bool {
    with(|tap: &mut Tap<T>| tap.experiment == Experiment::Weights).unwrap_or(false)
}

/// Registers a rotation of queries or keys.
pub(crate) fn rotated<T: Real>(before: &Var<T>, after: &Var<T>) {
    with(|tap: &mut Tap<T>| {
        tap.observed.rotations.push([before.value().clone(), after.value().clone()]);
    });
}
