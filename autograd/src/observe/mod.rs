//! The events of forward and backward passes: [`GraphEvent`]s, to the
//! [observers](retrograd_tensor::observe) of the thread.
//!
//! ```
//! use retrograd::autograd::observe::GraphEvent;
//! use retrograd::prelude::*;
//! use retrograd::tensor::{observe::{Event, Observer}, settings::with_observer};
//! use std::sync::{Arc, Mutex};
//!
//! #[derive(Default)]
//! struct Rules(Mutex<Vec<&'static str>>);
//!
//! impl Observer for Rules {
//!     fn event(&self, event: &Event<'_>) {
//!         if let Event::Other(event) = event
//!             && let Some(GraphEvent::RuleBegan { node, .. }) = event.downcast_ref::<GraphEvent<f32>>()
//!         {
//!             self.0.lock().unwrap().push(node.name());
//!         }
//!     }
//! }
//!
//! let (x, rules) = (Var::leaf(Tensor::scalar(0.5f32)), Arc::new(Rules::default()));
//! with_observer(rules.clone(), || x.tanh().square().backward());
//! assert_eq!(*rules.0.lock().unwrap(), ["square", "tanh"]);
//! ```
//!
//! The study crate makes recordings of these events. Without an observer, a report costs one read of a static
//! variable.

use crate::graph::{Node, Rule, Var};
use crate::op::Call;
use retrograd_tensor::observe::{Event, is_observed, report};
use retrograd_tensor::{Element, Real, Shape, Tensor};
use std::panic::Location;
use std::sync::Arc;

/// Something that happened to variables with elements of type `T`. It is an [`Event::Other`].
#[derive(Debug)]
pub enum GraphEvent<T: Real> {
    /// An operation was computed.
    Computed(Computed<T>),
    /// A backward pass begins at a variable; it may begin at several.
    Seeded {
        /// The variable that it begins with.
        root: Var<T>,
        /// Its gradient, which was given.
        gradient: Var<T>,
    },
    /// The gradients of the results of an operation are complete, and its rule is going to be called. What is
    /// reported before [`GraphEvent::RuleEnded`] belongs to the rule.
    RuleBegan {
        /// The operation.
        node: Arc<Node<T>>,
        /// The gradients of its results that have arrived.
        gradients: Vec<Option<Var<T>>>,
    },
    /// The rule has returned. It is dropped next, with the tensors that it owns, unless the graph is retained.
    RuleReturned,
    /// The pass has released the rule. It was dropped, unless the graph is retained.
    RuleDropped(Arc<Node<T>>),
    /// A gradient that the rule returned was propagated to an input of the operation.
    Delivered {
        /// The operation.
        node: Arc<Node<T>>,
        /// The position of the input.
        input: usize,
        /// The gradient; for a view, the gradient of its elements.
        gradient: Var<T>,
        /// The sum of the gradients that this input has received so far.
        sum: Var<T>,
        /// Whether there was an earlier gradient. The first one is moved, not added.
        is_added: bool,
    },
    /// All gradients of the rule were propagated, or the pass failed.
    RuleEnded,
    /// A backward pass has ended.
    PassEnded,
    /// The backward passes of all [shards](retrograd_tensor::observe::shard) have ended.
    ShardsEnded {
        /// The loss of all of them.
        loss: T,
    },
}

/// An operation that was computed.
#[derive(Debug)]
pub struct Computed<T: Real> {
    /// The operation, and the attributes of the call.
    pub call: Call,
    /// The inputs that were given, by name.
    pub inputs: Vec<(&'static str, Var<T>)>,
    /// The results.
    pub results: Vec<Var<T>>,
    /// Where it was called.
    pub location: &'static Location<'static>,
}

/// A tensor that the operation that is computed next on this thread keeps for its rule. It is an
/// [`Event::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Which one.
    pub which: Which,
    /// Its shape.
    pub shape: Shape,
    /// Its size in bytes.
    pub bytes: usize,
    /// Where its memory is.
    pub address: usize,
}

/// A tensor of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// An input, by its position.
    Input(usize),
    /// Another tensor, which was named by [`saved`].
    Other(&'static str),
}

#[cold]
#[inline(never)]
fn tell<T: Real>(event: impl FnOnce() -> GraphEvent<T>) {
    report(|tell| tell(&Event::Other(&event())));
}

#[cold]
fn note<E: Element>(which: Which, tensor: &Tensor<E>) {
    let (shape, address) = (*tensor.shape(), tensor.storage_address());
    let bytes = tensor.numel() * size_of::<E>();
    report(|tell| tell(&Event::Other(&Saved { which, shape, bytes, address })));
}

/// An operation saves the value of an input, by its position among those that were given.
#[inline]
pub(crate) fn saved_input<E: Element>(input: usize, tensor: &Tensor<E>) {
    if is_observed() {
        note(Which::Input(input), tensor);
    }
}

/// The tensor, which an operation saves under this name besides its inputs. It is called where the operation is
/// recorded, in [`Var::from_op`](crate::Var::from_op) and the like, so that observers can list the tensor.
///
/// ```
/// use retrograd::autograd::{InputGrads, Op, observe::saved};
/// use retrograd::prelude::*;
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
/// assert_eq!(positive(&x).sum(..).backward().get(&x).unwrap().to_vec(), [1.0, 0.0]);
/// ```
#[inline]
pub fn saved<E: Element>(name: &'static str, tensor: Tensor<E>) -> Tensor<E> {
    if is_observed() {
        note(Which::Other(name), &tensor);
    }
    tensor
}

/// The call of an operation, if it is observed.
#[inline]
pub(crate) fn called(call: &Call) -> Option<Call> {
    is_observed().then(|| call.clone())
}

/// An operation has computed its results.
#[inline]
#[track_caller]
pub(crate) fn computed<T: Real>(
    call: Option<Call>,
    inputs: &[Option<&Var<T>>],
    results: &[Var<T>],
) {
    if let Some(call) = call {
        let location = Location::caller();
        tell(|| {
            let names = call.op.names(inputs.iter().map(Option::is_some));
            let inputs = names.zip(inputs.iter().copied().flatten().cloned()).collect();
            let results = results.to_vec();
            GraphEvent::Computed(Computed { call, inputs, results, location })
        });
    }
}

/// A backward pass begins at a variable.
#[inline]
pub(crate) fn seeded<T: Real>(root: &Var<T>, gradient: &Var<T>) {
    if is_observed() {
        tell(|| GraphEvent::Seeded { root: root.clone(), gradient: gradient.clone() });
    }
}

/// The rule of an operation is going to be called.
#[inline]
pub(crate) fn rule<'a, T: Real>(
    node: &'a Arc<Node<T>>,
    gradients: &[Option<Var<T>>],
) -> ReportedRule<'a, T> {
    let is_reported = is_observed();
    if is_reported {
        tell(|| GraphEvent::RuleBegan { node: node.clone(), gradients: gradients.to_vec() });
    }
    ReportedRule { node, is_reported }
}

/// A rule whose gradients are not propagated yet.
pub(crate) struct ReportedRule<'a, T: Real> {
    node: &'a Arc<Node<T>>,
    is_reported: bool,
}

impl<T: Real> ReportedRule<'_, T> {
    /// Drops the rule, which has returned.
    #[inline]
    pub(crate) fn drop_rule(&self, rule: Arc<dyn Rule<T>>) {
        if self.is_reported {
            tell(|| GraphEvent::<T>::RuleReturned);
        }
        drop(rule);
        if self.is_reported {
            tell(|| GraphEvent::RuleDropped(self.node.clone()));
        }
    }

    /// A gradient that the rule returned for an input is going to be propagated.
    #[inline]
    pub(crate) fn delivery(&self, input: usize, gradient: &Var<T>) -> Delivery<'_, T> {
        let reported = || Box::new((input, gradient.clone()));
        Delivery { rule: self, gradient: self.is_reported.then(reported) }
    }
}

/// The gradient of an input of an operation, if it is observed.
pub(crate) struct Delivery<'a, T: Real> {
    rule: &'a ReportedRule<'a, T>,
    /// The position of the input, and its gradient.
    gradient: Option<Box<(usize, Var<T>)>>,
}

impl<T: Real> Delivery<'_, T> {
    /// It was propagated, to a variable that has received `sum` so far; whether it was added to an earlier one.
    #[inline]
    pub(crate) fn report(self, sum: Option<(&Var<T>, bool)>) {
        if let (Some(gradient), Some((sum, is_added))) = (self.gradient, sum) {
            let ((input, gradient), node, sum) = (*gradient, self.rule.node.clone(), sum.clone());
            tell(|| GraphEvent::Delivered { node, input, gradient, sum, is_added });
        }
    }
}

impl<T: Real> Drop for ReportedRule<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.is_reported {
            tell(|| GraphEvent::<T>::RuleEnded);
        }
    }
}

/// A backward pass has ended.
#[inline]
pub(crate) fn pass_ended<T: Real>() {
    if is_observed() {
        tell(|| GraphEvent::<T>::PassEnded);
    }
}

/// The backward passes of all shards have ended; their loss.
#[doc(hidden)]
pub fn shards_ended<T: Real>(loss: T) {
    if is_observed() {
        tell(|| GraphEvent::ShardsEnded { loss });
    }
}
