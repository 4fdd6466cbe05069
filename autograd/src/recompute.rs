//! Recomputation: a part of a forward pass is computed again in the backward pass, so that its saved tensors need
//! not be kept.
//!
//! The graph is that of an ordinary forward pass, with the same operations and ids. Only the rules are replaced: each
//! gets its original from a second run of the closure, when it is called first. So the engine adds the same gradients
//! in the same order, in every kind of pass.

use crate::graph::{Cx, Definition, Id, Input, InputGrads, Node, Outputs, Rule, Tangents, Var};
use retrograd_tensor::settings::{level, with_grad_enabled, with_level};
use retrograd_tensor::simd::Level;
use retrograd_tensor::{MatmulPrecision, Real, Tensor, matmul_precision, with_matmul_precision};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The results of `f`, without the tensors that its operations save for the backward pass: there, `f` is called again
/// and saves them anew, shortly before they are needed. This takes the time of a second forward pass of `f`, and its
/// inputs are kept instead: activation checkpointing, Chen et al. 2016 (arXiv 1604.06174).
///
/// Gradients have the bits of those without recomputation, by the inputs and by all variables that `f` captures:
/// parameters, also those that are used elsewhere, are no inputs. `f` may recompute parts of itself. Derivatives of any
/// order are the same, too; a recorded pass ([`grad`](crate::grad)) keeps what was computed again.
///
/// `f` must compute the same whenever it is called: random numbers come from a key that it captures
/// ([`Var::dropout`]), and captured variables have the same values until the backward pass. Without gradients
/// ([`no_grad`](crate::no_grad)), `f` is called once.
///
/// # Panics
/// In the backward pass, if `f` computes other operations, shapes or results than before, or uses other variables:
/// a captured parameter was updated between the passes, say.
///
/// ```
/// use retrograd::autograd::recompute;
/// use retrograd::prelude::*;
///
/// let (x, w) = (Var::leaf(Tensor::scalar(0.5f32)), Var::leaf(Tensor::scalar(2.0)));
/// let both = |x: &Var, w: &Var| vec![x.mul(w).tanh(), x.exp()];
///
/// let captured = w.clone();
/// let again = recompute(&[&x], move |inputs| both(&inputs[0], &captured));
/// let (usual, again) = (both(&x, &w), again[0].mul(&again[1]).backward());
/// let usual = usual[0].mul(&usual[1]).backward();
/// assert_eq!(again.get(&x), usual.get(&x));
/// assert_eq!(again.get(&w), usual.get(&w));
/// ```
#[doc(alias = "checkpoint")]
pub fn recompute<T: Real>(
    inputs: &[&Var<T>],
    f: impl Fn(&[Var<T>]) -> Vec<Var<T>> + Send + Sync + 'static,
) -> Vec<Var<T>> {
    let inputs: Vec<Var<T>> = inputs.iter().map(|&x| x.clone()).collect();
    let first = Id::reserve(0);
    let results = f(&inputs);
    let nodes = computed_since(first, &results);
    if nodes.is_empty() {
        return results;
    }
    let (f, operations, last) = (Box::new(f), nodes.len(), Mutex::default());
    let (level, precision, sum) = (level(), matmul_precision(), checksum(&results));
    let part = Arc::new(Part { f, inputs, first, operations, level, precision, sum, last });
    for (at, node) in nodes.iter().enumerate() {
        node.replace_rule(|rule| {
            let inputs = node.inputs().iter().map(Input::id).collect();
            let is_fused = rule.definition().is_some();
            Arc::new(Recomputed { part: part.clone(), at, inputs, is_fused })
        });
    }
    results
}

impl<T: Real> Var<T> {
    /// [`recompute`] of one input and one result.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([1.0f32, 2.0]));
    /// let y = x.recompute(|x| x.square().exp());
    /// assert_eq!(y.sum(..).backward().get(&x), x.square().exp().sum(..).backward().get(&x));
    /// ```
    #[doc(alias = "checkpoint")]
    pub fn recompute(&self, f: impl Fn(&Var<T>) -> Var<T> + Send + Sync + 'static) -> Var<T> {
        recompute(&[self], move |inputs| vec![f(&inputs[0])]).remove(0)
    }
}

const HINT: &str = " in the backward pass (hint: the closure must compute the same again, from variables of the same values)";

type Closure<T> = dyn Fn(&[Var<T>]) -> Vec<Var<T>> + Send + Sync;

/// A part of a computation, and what its bits depend on.
struct Part<T: Real> {
    f: Box<Closure<T>>,
    inputs: Vec<Var<T>>,
    /// The variables that the part computes have ids from this one on.
    first: Id,
    /// The number of operations.
    operations: usize,
    level: Level,
    precision: MatmulPrecision,
    /// Of the results.
    sum: u64,
    /// The operations of the last run after the first. Those of the first run refer to this value, and it not to them.
    last: Mutex<Vec<Arc<Node<T>>>>,
}

/// The rule of an operation of a part.
struct Recomputed<T: Real> {
    part: Arc<Part<T>>,
    /// Which operation it is.
    at: usize,
    inputs: Vec<Option<Id>>,
    is_fused: bool,
}

/// The operations with ids from `first` on that the results were computed by, in an order that depends on the
/// structure of the graph alone.
fn computed_since<T: Real>(first: Id, results: &[Var<T>]) -> Vec<Arc<Node<T>>> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mut next: Vec<Arc<Node<T>>> = results.iter().filter_map(Var::node).cloned().collect();
    while let Some(node) = next.pop() {
        if node.id() >= first && seen.insert(node.id()) {
            next.extend(node.inputs().iter().filter_map(|x| x.node().cloned()));
            found.push(node);
        }
    }
    found
}

/// A number that depends on every element. Any NaN is the same one.
fn checksum<T: Real>(results: &[Var<T>]) -> u64 {
    let mut sum = 0u64;
    for result in results {
        for (x, weight) in result.value().contiguous().as_slice().iter().zip((1..).step_by(2)) {
            let x = if x.is_nan() { f64::NAN } else { x.to_f64() };
            sum = sum.wrapping_add(x.to_bits().wrapping_mul(weight));
        }
        sum = sum.rotate_left(1);
    }
    sum
}

impl<T: Real> Part<T> {
    /// Runs the closure again, in the settings of the first run: its operations, and the checksum of its results.
    fn run(&self) -> (Vec<Arc<Node<T>>>, u64) {
        let first = Id::reserve(0);
        let record = || with_grad_enabled(true, || (self.f)(&self.inputs));
        let results = with_level(self.level, || with_matmul_precision(self.precision, record));
        (computed_since(first, &results), checksum(&results))
    }
}

impl<T: Real> Recomputed<T> {
    /// The rule, and the id of the operation that it was recorded with. Only a recorded pass keeps it.
    fn rule(&self, cx: &Cx<'_, T>) -> (Id, Arc<dyn Rule<T>>) {
        let locked = || self.part.last.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = locked().get(self.at).cloned().and_then(|node| self.rule_of(&node, cx));
        kept.unwrap_or_else(|| {
            // Without a lock: while this thread waits for work of the closure, it may be in another pass.
            let (nodes, sum) = self.part.run();
            let (is, was) = (nodes.len(), self.part.operations);
            assert!(is == was, "recompute: {is} operations instead of {was}{HINT}");
            let rule = self.rule_of(&nodes[self.at], cx);
            assert!(sum == self.part.sum, "recompute: other results than before{HINT}");
            *locked() = nodes;
            rule.expect("recompute: the closure runs a backward pass now, and did not before")
        })
    }

    /// The rule of an operation that was computed again, and its id; `None` if it was dropped.
    fn rule_of(&self, is: &Arc<Node<T>>, cx: &Cx<'_, T>) -> Option<(Id, Arc<dyn Rule<T>>)> {
        let (was, first) = (cx.node, Some(self.part.first));
        // Variables that the part computes have other ids now.
        let same_id =
            |(x, was): (&Input<T>, &Option<Id>)| x.id() == *was || x.id() >= first && *was >= first;
        let same = was.name() == is.name()
            && was.outputs() == is.outputs()
            && is.inputs().len() == self.inputs.len()
            && is.inputs().iter().zip(&self.inputs).all(same_id);
        assert!(same, "recompute: `{is:?}` instead of `{was:?}`{HINT}");
        Some((is.id(), is.take_rule(cx.inputs.is_some())?))
    }
}

impl<T: Real> Rule<T> for Recomputed<T> {
    fn backward(&self, cx: &Cx<'_, T>, g: &[Option<Var<T>>]) -> InputGrads<T> {
        let (op, rule) = self.rule(cx);
        let mut grads = rule.backward(&Cx { op, ..*cx }, g);
        grads.0.iter_mut().for_each(|grad| grad.op = cx.op);
        grads
    }

    fn definition(&self) -> Option<&dyn Definition<T>> {
        self.is_fused.then_some(self)
    }
}

impl<T: Real> Definition<T> for Recomputed<T> {
    fn outputs(&self, cx: &Cx<'_, T>) -> Vec<Var<T>> {
        let (op, rule) = self.rule(cx);
        rule.definition().expect("a fused operation").outputs(&Cx { op, ..*cx })
    }

    fn vjp(&self, cx: &Cx<'_, T>, g: &[Option<Var<T>>]) -> Option<InputGrads<T>> {
        let (op, rule) = self.rule(cx);
        let definition = rule.definition().expect("a fused operation");
        let mut grads = definition.vjp(&Cx { op, ..*cx }, g)?;
        grads.0.iter_mut().for_each(|grad| grad.op = cx.op);
        Some(grads)
    }

    /// Forward mode uses the definition.
    fn jvp(&self, _: Tangents<'_, T>) -> Option<Outputs<Tensor<T>>> {
        None
    }
}
