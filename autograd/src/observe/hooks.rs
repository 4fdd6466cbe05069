//! The places of the library from which a recorder is told what happens. Each costs one read of a static
//! variable if the process has no observer.

use super::lane::shard_depth;
use super::recorder::{Computed, Recorder};
use super::recording::Which;
use crate::graph::{Edge, Id, Node, Rule, Var};
use crate::operation::Call;
use retrograd_tensor::observe::{is_observed, report};
use retrograd_tensor::{Element, Real, Shape, Tensor};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::{Arc, Once};

thread_local! {
    /// Tensors that the operation being recorded has saved so far.
    static SAVED: RefCell<Vec<Saved>> = const { RefCell::new(Vec::new()) };
    /// The operation whose rule runs on this thread, by the id of its node.
    static RULE: Cell<Option<Id>> = const { Cell::new(None) };
}

/// Completed when `RETROGRAD_XRAY` has been read, or the first backward pass has ended.
static PAGE_REQUEST: Once = Once::new();

/// Calls `f` with each recorder of this thread, the innermost first.
#[cold]
#[inline(never)]
fn tell(f: impl Fn(&Recorder)) {
    report(|observer| {
        let any: &dyn Any = observer;
        let recorder = any.downcast_ref::<Recorder>();
        if let Some(recorder) = recorder.filter(|recorder| !recorder.has_ended()) {
            f(recorder);
        }
    });
}

/// A tensor that an operation saves.
pub(super) struct Saved {
    pub(super) which: Which,
    pub(super) shape: Shape,
    pub(super) bytes: usize,
    pub(super) address: usize,
}

#[cold]
fn note<E: Element>(which: Which, tensor: &Tensor<E>) {
    let (shape, address) = (*tensor.shape(), tensor.storage_address());
    let bytes = tensor.numel() * size_of::<E>();
    SAVED.with_borrow_mut(|saved| saved.push(Saved { which, shape, bytes, address }));
}

/// An operation saves the value of an input, by its position among those that were given.
#[inline]
pub(crate) fn saved_input<E: Element>(input: usize, tensor: &Tensor<E>) {
    if is_observed() {
        note(Which::Input(input), tensor);
    }
}

/// The tensor, which an operation saves under this name besides its inputs. It is called where the operation is
/// recorded, in [`Var::from_op`](crate::Var::from_op) and the like, so that a
/// [`Recording`](super::Recording) lists the tensor.
///
/// ```
/// use retrograd_autograd::observe::{Which, record, saved};
/// use retrograd_autograd::{InputGrads, Op, Var};
/// use retrograd_tensor::Tensor;
///
/// static POSITIVE: Op = Op::new("positive", &["x"]);
///
/// /// x where it is positive, else 0
/// fn positive(x: &Var) -> Var {
///     let mask = x.value().le(&Tensor::scalar(0.0));
///     Var::from_op(&POSITIVE, x.value().masked_fill(&mask, 0.0), [x], |[x]| {
///         let (x, mask) = (x.slot(), saved("mask", mask));
///         move |_, g| InputGrads::of(&x, || g.masked_fill(&mask, 0.0))
///     })
/// }
///
/// let x = Var::leaf(Tensor::from([1.0f32, -1.0]));
/// let (_, recording) = record(|| positive(&x));
/// assert_eq!(recording.operations[0].saved[0].which, Which::Other("mask"));
/// ```
#[inline]
pub fn saved<E: Element>(name: &'static str, tensor: Tensor<E>) -> Tensor<E> {
    if is_observed() {
        note(Which::Other(name), &tensor);
    }
    tensor
}

/// An operation has computed its results.
#[inline]
#[track_caller]
pub(crate) fn computed<T: Real, R: AsRef<[Var<T>]>>(
    call: Option<Call>,
    inputs: &[Option<&Var<T>>],
    results: impl FnOnce() -> R,
) {
    if let Some(call) = call {
        tell_computed(call, inputs, results, Location::caller());
    }
}

/// The call of an operation, if it is observed.
#[inline]
pub(crate) fn seen(call: &Call) -> Option<Call> {
    is_observed().then(|| call.clone())
}

#[cold]
#[inline(never)]
fn tell_computed<T: Real, R: AsRef<[Var<T>]>>(
    call: Call,
    inputs: &[Option<&Var<T>>],
    results: impl FnOnce() -> R,
    location: &'static Location<'static>,
) {
    let (saved, results) = (SAVED.take(), results());
    let names = call.op.names(inputs.iter().map(Option::is_some));
    let inputs: Vec<_> = names.zip(inputs.iter().flatten().copied()).collect();
    let (results, rule) = (results.as_ref(), RULE.get());
    let computed = Computed { call, inputs: &inputs, results, saved, location, rule };
    tell(|recorder| recorder.computed(&computed));
}

/// A backward pass begins at a variable.
#[inline]
pub(crate) fn seeded<T: Real>(root: &Var<T>, g: &Var<T>) {
    if is_observed() {
        tell(|recorder| recorder.seeded(root, g));
    }
}

/// The rule of an operation is called.
#[inline]
pub(crate) fn rule_begins<T: Real>(
    node: &Arc<Node<T>>,
    rule: &dyn Rule<T>,
    grads: &[Option<Var<T>>],
) -> Option<RunningRule> {
    if !is_observed() {
        return None;
    }
    tell(|recorder| recorder.rule_began(node, rule, grads));
    Some(RunningRule(RULE.replace(Some(node.id()))))
}

/// A rule whose gradients are not propagated yet. What is computed until this value is dropped belongs to
/// its operation.
pub(crate) struct RunningRule(Option<Id>);

impl Drop for RunningRule {
    fn drop(&mut self) {
        RULE.set(self.0);
    }
}

/// A backward pass has ended. Those of shards, and those that a rule runs itself, are parts of another
/// computation.
#[inline]
pub(crate) fn pass_ended() {
    tell_ended(None);
    if !PAGE_REQUEST.is_completed() {
        PAGE_REQUEST.call_once(say_page_request_was_not_read);
    }
}

/// Notes that `RETROGRAD_XRAY` has been read: nobody who records the first backward pass reads it later.
#[doc(hidden)]
pub fn page_request_was_read() {
    PAGE_REQUEST.call_once(|| ());
}

#[cold]
fn say_page_request_was_not_read() {
    if std::env::var_os("RETROGRAD_XRAY").is_some_and(|value| value != *"" && value != *"0") {
        eprintln!(
            "RETROGRAD_XRAY: nothing is recorded, because no `nn::Param` was made before the first backward pass (hint: \
             `study::record_if_requested` begins the record without one)"
        );
    }
}

/// The backward passes of all shards have ended; their loss.
#[doc(hidden)]
pub fn shards_ended<T: Real>(loss: T) {
    tell_ended(Some(loss.to_f64()));
}

fn tell_ended(loss: Option<f64>) {
    if is_observed() && RULE.get().is_none() && shard_depth() == 0 {
        tell(|recorder| recorder.pass_ended(loss));
    }
}

/// A rule has returned, and is dropped next.
#[inline]
pub(crate) fn rule_returned() {
    if is_observed() {
        tell(Recorder::rule_returned);
    }
}

/// A rule has returned, and was dropped.
#[inline]
pub(crate) fn rule_ended<T: Real>(node: &Arc<Node<T>>) {
    if is_observed() {
        tell(|recorder| recorder.rule_ended(node));
    }
}

/// The gradient of an input is propagated. `sum` is what its variable has received so far, this
/// gradient included.
#[inline]
pub(crate) fn delivered<T: Real>(
    from: (&Arc<Node<T>>, usize),
    edge: &Edge<T>,
    gradient: &Tensor<T>,
    sum: &Tensor<T>,
    is_added: bool,
) {
    if is_observed() {
        tell(|recorder| recorder.delivered(from, edge, gradient, sum, is_added));
    }
}

/// The shapes of the inputs of a node.
pub(super) fn input_shapes<T: Real>(
    node: &Node<T>,
) -> impl Iterator<Item = (&'static str, &Edge<T>, Shape)> {
    let inputs = node.input_names().zip(node.inputs());
    inputs.map(|(name, input)| (name, &input.edge, *input.shape()))
}
