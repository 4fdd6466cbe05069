//! The backward pass.
//!
//! The engine processes operations in descending order of their ids. An operation has a lower id
//! than the operations that use its outputs, so the gradients of its outputs are complete when it
//! is processed. Its rule maps them to gradients of its inputs. There is no recursion and no
//! sorting, and the order is always the same.

use crate::graph::{
    Cx, Definition, Edge, Id, Input, InputGrad, InputGrads, Node, Outputs, Rule, Var,
};
use crate::observe::hooks;
use crate::operation::{Call, Kind, Op};
use crate::var::no_grad;
use retrograd_tensor::observe::is_observed;
use retrograd_tensor::{Real, Tensor};
use smallvec::smallvec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The variables from which the pass starts, each with its cotangent.
pub(crate) type Seeds<'a, T> = Vec<(&'a Var<T>, Var<T>)>;

/// Gradients of leaves and kept variables.
pub(crate) type Found<T> = BTreeMap<Id, Var<T>>;

/// The state of a backward pass.
pub(crate) struct Engine<T: Real> {
    retain: bool,
    recording: bool,
    /// Variables whose gradients are kept, besides leaves.
    keep: Vec<Id>,
    /// No gradient is propagated to variables with lower ids.
    oldest: Option<Id>,
    /// Operations to be differentiated, by id.
    pending: BTreeMap<Id, Pending<T>>,
    found: Found<T>,
}

/// An operation, and the sum so far of the gradients of each of its outputs.
struct Pending<T: Real> {
    node: Arc<Node<T>>,
    grads: Outputs<Option<Var<T>>>,
}

impl<T: Real> Engine<T> {
    pub(crate) fn new(retain: bool, recording: bool, keep: Vec<Id>, oldest: Option<Id>) -> Self {
        let (pending, found) = (BTreeMap::new(), BTreeMap::new());
        Engine { retain, recording, keep, oldest, pending, found }
    }

    /// The gradients of leaves and kept variables.
    ///
    /// # Errors
    /// If an earlier pass has dropped the rule of an operation with its saved tensors, or if a rule
    /// returns too few gradients, a gradient of a wrong shape, or one for another operation.
    #[inline(never)]
    pub(crate) fn run(self, roots: Seeds<'_, T>) -> Result<Found<T>, String> {
        self.pass(roots, &mut |_, _| {})
    }

    /// Passes the gradient of each leaf to `f` as soon as all operations that use the leaf have been
    /// differentiated.
    ///
    /// # Errors
    /// As [`Engine::run`].
    #[inline(never)]
    pub(crate) fn run_each(
        self,
        roots: Seeds<'_, T>,
        f: &mut dyn FnMut(Id, Var<T>),
    ) -> Result<(), String> {
        let mut uses = leaf_uses(&roots);
        let rest = self.pass(roots, &mut |node, found| {
            for id in node.inputs().iter().filter_map(leaf) {
                let uses = uses.get_mut(&id).expect("counted");
                *uses -= 1;
                if *uses == 0
                    && let Some(g) = found.remove(&id)
                {
                    f(id, g);
                }
            }
        })?;
        rest.into_iter().for_each(|(id, g)| f(id, g));
        Ok(())
    }

    /// The pass. `done` is called after every operation, with the gradients found so far.
    fn pass(
        mut self,
        roots: Seeds<'_, T>,
        done: &mut dyn FnMut(&Node<T>, &mut Found<T>),
    ) -> Result<Found<T>, String> {
        for (root, g) in roots {
            hooks::seeded(root, &g);
            self.propagate(&root.edge, g);
        }
        while let Some((id, Pending { node, grads })) = self.pending.pop_last() {
            for (id, g) in (0..).map(|i| id.offset(i)).zip(&grads) {
                if let Some(g) = g.as_ref().filter(|_| self.keep.contains(&id)) {
                    self.found.insert(id, g.clone());
                }
            }
            if self.oldest.is_some_and(|oldest| oldest >= id) {
                break;
            }
            let rule = node.rule(self.retain).ok_or_else(|| {
                format!(
                    "backward: the saved tensors of {node:?} were freed by an earlier backward \
                     pass (hint: Backprop::retain_graph keeps them)"
                )
            })?;
            let running = hooks::rule_begins(&node, &*rule, &grads);
            let mut input_grads = self.differentiate(&node, &*rule, grads)?;
            hooks::rule_returned();
            drop(rule);
            hooks::rule_ended(&node);
            // Sums do not depend on the order in which a rule names its inputs.
            input_grads.0.sort_by_key(|g| g.at);
            input_grads.check(&node)?;
            if is_observed() {
                self.deliver_observed(&node, input_grads);
            } else {
                for InputGrad { at, value, .. } in input_grads.0 {
                    let input = &node.inputs()[at];
                    self.propagate(&input.edge, in_shape(input, value));
                }
            }
            drop(running);
            done(&node, &mut self.found);
        }
        hooks::pass_ended();
        Ok(self.found)
    }

    /// Gradients of the inputs of an operation. In a recorded pass, a fused operation is replaced by
    /// its definition.
    fn differentiate(
        &self,
        node: &Arc<Node<T>>,
        rule: &dyn Rule<T>,
        mut grads: Outputs<Option<Var<T>>>,
    ) -> Result<InputGrads<T>, String> {
        if let Some(definition) = rule.definition().filter(|_| self.recording) {
            return through_definition(node, definition, grads);
        }
        for (g, shape) in grads.iter_mut().zip(node.outputs()) {
            g.get_or_insert_with(|| Var::constant(Tensor::zeros(shape)));
        }
        let inputs = self.recording.then_some(node.inputs());
        Ok(rule.backward(&Cx { node, inputs, in_definition: false }, &grads))
    }

    /// Propagates the gradients of the inputs of an operation, and tells the observer of them.
    #[cold]
    #[inline(never)]
    fn deliver_observed(&mut self, node: &Arc<Node<T>>, input_grads: InputGrads<T>) {
        for InputGrad { at, value, .. } in input_grads.0 {
            let input = &node.inputs()[at];
            let g = in_shape(input, value);
            let (gradient, is_added) = (g.value().clone(), self.received(&input.edge).is_some());
            self.propagate(&input.edge, g);
            if let Some(sum) = self.received(&input.edge) {
                hooks::delivered((node, at), &input.edge, &gradient, sum.value(), is_added);
            }
        }
    }

    /// The sum so far of the gradients of a variable.
    fn received(&self, edge: &Edge<T>) -> Option<&Var<T>> {
        match edge {
            Edge::Constant => None,
            Edge::Leaf(id) => self.found.get(id),
            Edge::Node(node, output) => self.pending.get(&node.id())?.grads[*output].as_ref(),
        }
    }

    /// Adds a gradient to that of a leaf, or of an output of an operation.
    fn propagate(&mut self, edge: &Edge<T>, g: Var<T>) {
        if edge.id() < self.oldest {
            return;
        }
        let sum = match edge {
            Edge::Constant => return,
            Edge::Leaf(id) => {
                let Some(sum) = self.found.get_mut(id) else {
                    self.found.insert(*id, g);
                    return;
                };
                sum
            }
            Edge::Node(node, output) => {
                let pending = self.pending.entry(node.id()).or_insert_with(|| Pending {
                    node: node.clone(),
                    grads: smallvec![None; node.outputs().len()],
                });
                let Some(sum) = &mut pending.grads[*output] else {
                    pending.grads[*output] = Some(g);
                    return;
                };
                sum
            }
        };
        if self.recording {
            *sum = sum.add(&g);
        } else {
            // In place, unless another variable shares the storage (copy-on-write).
            sum.leaf_value_mut().add_assign(g.value());
        }
    }
}

/// The gradients that the rule of an operation returns, by input, in the shapes of the inputs. The rule is
/// kept. `None` if it was dropped before, or is wrong.
pub(crate) fn input_gradients<T: Real>(
    node: &Arc<Node<T>>,
    grads: Outputs<Option<Var<T>>>,
) -> Option<Vec<(usize, Var<T>)>> {
    let rule = node.rule(true)?;
    let engine = Engine::new(true, false, Vec::new(), None);
    let all = no_grad(|| engine.differentiate(node, &*rule, grads)).ok()?;
    all.check(node).ok()?;
    let inputs = node.inputs();
    Some(all.0.into_iter().map(|g| (g.at, in_shape(&inputs[g.at], g.value))).collect())
}

/// The gradient of an input, summed over the axes along which the input was broadcast.
fn in_shape<T: Real>(input: &Input<T>, g: Var<T>) -> Var<T> {
    if *g.shape() == input.shape { g } else { g.sum_to(input.shape) }
}

/// The id of an input that is a leaf.
fn leaf<T: Real>(input: &Input<T>) -> Option<Id> {
    match input.edge {
        Edge::Leaf(id) => Some(id),
        _ => None,
    }
}

/// How often the operations below the roots use each leaf.
fn leaf_uses<T: Real>(roots: &Seeds<'_, T>) -> BTreeMap<Id, usize> {
    let node = |edge: &Edge<T>| match edge {
        Edge::Node(node, _) => Some(node.clone()),
        _ => None,
    };
    let (mut uses, mut seen) = (BTreeMap::new(), BTreeSet::new());
    let mut next: Vec<Arc<Node<T>>> = roots.iter().filter_map(|(x, _)| node(&x.edge)).collect();
    while let Some(at) = next.pop() {
        if seen.insert(at.id()) {
            at.inputs().iter().filter_map(leaf).for_each(|id| *uses.entry(id).or_default() += 1);
            next.extend(at.inputs().iter().filter_map(|input| node(&input.edge)));
        }
    }
    uses
}

/// The gradients of a fused operation, computed by differentiating its definition. The definition
/// is evaluated on aliases of the inputs. Their ids are higher than those of all earlier
/// operations, so the inner pass ends at them.
pub(crate) fn through_definition<T: Real>(
    node: &Arc<Node<T>>,
    definition: &dyn Definition<T>,
    grads: Outputs<Option<Var<T>>>,
) -> Result<InputGrads<T>, String> {
    let aliases: Vec<Input<T>> = node.inputs().iter().map(alias).collect();
    let outputs = definition.outputs(&Cx { node, inputs: Some(&aliases), in_definition: true });
    let ids: Vec<Option<Id>> = aliases.iter().map(Input::id).collect();
    let wanted: Vec<Id> = ids.iter().flatten().copied().collect();
    let oldest = wanted.first().copied();
    let seeds = outputs.iter().zip(grads).filter_map(|(y, g)| Some((y, g?))).collect();
    let found = Engine::new(true, true, wanted, oldest).run(seeds)?;
    let grad = |(at, id): (usize, &Option<Id>)| {
        // The gradient is 0 if the definition does not depend on the input.
        let zeros = || Var::constant(Tensor::zeros(node.inputs()[at].shape()));
        let value = found.get(id.as_ref()?).cloned().unwrap_or_else(zeros);
        Some(InputGrad { op: node.id(), at, value })
    };
    Ok(InputGrads(ids.iter().enumerate().filter_map(grad).collect()))
}

/// The output of a new identity operation on the input; a constant stays a constant.
fn alias<T: Real>(input: &Input<T>) -> Input<T> {
    let edge = match &input.edge {
        Edge::Constant => Edge::Constant,
        edge => {
            let inputs = vec![Input { edge: edge.clone(), shape: input.shape }];
            let (id, outputs) = (Id::reserve(1), smallvec![input.shape]);
            let call = Call::from(&ALIAS);
            Edge::Node(Node::new(id, call, outputs, (inputs, 1), Arc::new(Alias { id })), 0)
        }
    };
    Input { edge, shape: input.shape }
}

static ALIAS: Op = Op::new("alias", &["x"]).kind(Kind::View).formula("y = x", "dx = g");

struct Alias {
    id: Id,
}

impl<T: Real> Rule<T> for Alias {
    fn backward(&self, _: &Cx<'_, T>, g: &[Option<Var<T>>]) -> InputGrads<T> {
        let value = g[0].clone().expect("the gradient of the output");
        InputGrads(vec![InputGrad { op: self.id, at: 0, value }])
    }
}
