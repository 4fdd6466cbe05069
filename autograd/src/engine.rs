//! The backward pass.
//!
//! The engine processes operations in descending order of their ids. An operation has a lower id than the operations
//! that use its outputs, so the gradients of its outputs are complete when it is processed. Its rule maps them to
//! gradients of its inputs. There is no recursion and no sorting, and the order is always the same.

use crate::graph::{Cx, Definition, Edge, Id, Input, Node, Outputs, Rule, Var};
use crate::graph::{InputGrad, InputGrads};
use crate::observe;
use crate::op::{Call, Kind, Op};
use retrograd_tensor::layout::Layout;
use retrograd_tensor::{Real, Shape, Tensor};
use smallvec::smallvec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The variables from which the pass starts, each with its cotangent.
pub(crate) type Seeds<'a, T> = Vec<(&'a Var<T>, Var<T>)>;

/// Gradients of leaves and kept variables: `Some`, as [`Engine::propagate`] adds to them.
pub(crate) type Found<T> = BTreeMap<Id, Option<Var<T>>>;

/// The state of a backward pass.
pub(crate) struct Engine<T: Real> {
    retain: bool,
    /// Whether this is a recorded pass, whose operations extend the graph.
    recorded: bool,
    /// Variables whose gradients are kept, besides leaves.
    keep: Vec<Id>,
    /// No gradient is propagated to variables with lower ids. `None` is the least id.
    oldest: Option<Id>,
    /// Operations to be differentiated, by id.
    pending: BTreeMap<Id, Box<Pending<T>>>,
    found: Found<T>,
}

/// An operation, and the sum so far of the gradients of each of its outputs.
struct Pending<T: Real> {
    node: Arc<Node<T>>,
    grads: Outputs<Option<Var<T>>>,
}

impl<T: Real> Engine<T> {
    pub(crate) fn new(retain: bool, recorded: bool, keep: Vec<Id>, oldest: Option<Id>) -> Self {
        Engine { retain, recorded, keep, oldest, pending: BTreeMap::new(), found: BTreeMap::new() }
    }

    /// The gradients of leaves and kept variables.
    ///
    /// # Errors
    /// If an earlier pass has dropped the rule of an operation with its saved tensors, or if a rule
    /// returns too few gradients, a gradient of a wrong shape, or one for another operation.
    pub(crate) fn run(self, roots: Seeds<'_, T>) -> Result<Found<T>, String> {
        self.run_with(roots, &mut |_, _| {})
    }

    /// [`Engine::run`], which calls `done` after every operation, with the gradients found so far.
    #[inline(never)]
    pub(crate) fn run_with(
        mut self,
        roots: Seeds<'_, T>,
        done: &mut dyn FnMut(&Node<T>, &mut Found<T>),
    ) -> Result<Found<T>, String> {
        for (root, g) in roots {
            observe::seeded(root, &g);
            self.propagate(&root.edge, g);
        }
        while let Some((id, pending)) = self.pending.pop_last() {
            let Pending { node, grads } = *pending;
            for (id, g) in (0..).map(|i| id.offset(i)).zip(&grads) {
                if g.is_some() && self.keep.contains(&id) {
                    self.found.insert(id, g.clone());
                }
            }
            if self.oldest.is_some_and(|oldest| oldest >= id) {
                break;
            }
            let reported = observe::rule(&node, &grads);
            let rule = node.take_rule(self.retain).ok_or_else(|| {
                format!(
                    "backward: the saved tensors of {node:?} were freed by an earlier backward \
                     pass (hint: Backprop::retain_graph keeps them)"
                )
            })?;
            let mut input_grads = self.differentiate(&node, &*rule, grads)?;
            reported.drop_rule(rule);
            // Sums do not depend on the order in which a rule names its inputs.
            input_grads.0.sort_by_key(|g| g.at);
            input_grads.check(&node)?;
            for InputGrad { at, value: mut g, part, .. } in input_grads.0 {
                let input = &node.inputs()[at];
                if part.is_none() {
                    sum_to(&mut g, &input.shape);
                }
                let delivery = reported.delivery(at, &g);
                delivery.report(match part {
                    None => self.propagate(&input.edge, g),
                    Some(layout) => self.propagate_part(input, g, *layout),
                });
            }
            drop(reported);
            done(&node, &mut self.found);
        }
        observe::pass_ended::<T>();
        Ok(self.found)
    }

    /// Gradients of the inputs of an operation. In a recorded pass, a fused operation is replaced by
    /// its definition.
    pub(crate) fn differentiate(
        &self,
        node: &Arc<Node<T>>,
        rule: &dyn Rule<T>,
        mut grads: Outputs<Option<Var<T>>>,
    ) -> Result<InputGrads<T>, String> {
        let definition = rule.definition().filter(|_| self.recorded);
        let given = if definition.is_some() { grads.clone() } else { smallvec![] };
        for (g, shape) in grads.iter_mut().zip(node.outputs()) {
            g.get_or_insert_with(|| Var::constant(Tensor::zeros(shape)));
        }
        let cx = Cx::new(node, self.recorded.then_some(node.inputs()));
        match definition {
            None => Ok(rule.backward(&cx, &grads)),
            Some(definition) => match definition.vjp(&cx, &grads) {
                Some(grads) => Ok(grads),
                None => through_definition(node, definition, given),
            },
        }
    }

    /// Adds a gradient of a leaf or of an output. Returns the sum, and whether there was one before; `None` if the
    /// gradient is not wanted.
    fn propagate(&mut self, edge: &Edge<T>, g: Var<T>) -> Option<(&Var<T>, bool)> {
        if edge.id() < self.oldest {
            return None;
        }
        let sum = match edge {
            Edge::Constant => return None,
            Edge::Leaf(id) => self.found.entry(*id).or_default(),
            Edge::Node(node, output) => {
                let pending = self.pending.entry(node.id()).or_insert_with(|| {
                    let grads = smallvec![None; node.outputs().len()];
                    Box::new(Pending { node: node.clone(), grads })
                });
                &mut pending.grads[*output]
            }
        };
        let Some(sum) = sum else { return Some((sum.insert(g), false)) };
        if self.recorded {
            *sum = sum.add(&g);
        } else {
            // In place, unless another variable shares the storage (copy-on-write).
            sum.value.add_assign(g.value());
        }
        Some((sum, true))
    }

    /// Adds the gradient of a view. Only the first one becomes a tensor with zeros elsewhere.
    fn propagate_part(
        &mut self,
        input: &Input<T>,
        g: Var<T>,
        layout: Layout,
    ) -> Option<(&Var<T>, bool)> {
        if self.recorded || self.sum(&input.edge).is_none() {
            return self.propagate(&input.edge, g.as_strided_adjoint(input.shape, layout));
        }
        let sum = self.sum(&input.edge)?;
        sum.value.as_strided_add_assign(&layout, g.value());
        Some((sum, true))
    }

    /// The sum of the gradients of a leaf or of an output, if there are any yet.
    fn sum(&mut self, edge: &Edge<T>) -> Option<&mut Var<T>> {
        match edge {
            Edge::Constant => None,
            Edge::Leaf(id) => self.found.get_mut(id)?.as_mut(),
            Edge::Node(node, output) => self.pending.get_mut(&node.id())?.grads[*output].as_mut(),
        }
    }
}

/// Sums the gradient of an input over the axes along which the input was broadcast.
pub(crate) fn sum_to<T: Real>(g: &mut Var<T>, shape: &Shape) {
    if g.shape() != shape {
        *g = g.sum_to(*shape);
    }
}

/// The gradients of a fused operation, computed by differentiating its definition. The definition
/// is evaluated on aliases of the inputs. The ids of the aliases are higher than the ids of all earlier
/// operations, so the inner pass ends at them.
pub(crate) fn through_definition<T: Real>(
    node: &Arc<Node<T>>,
    definition: &dyn Definition<T>,
    grads: Outputs<Option<Var<T>>>,
) -> Result<InputGrads<T>, String> {
    let aliases: Vec<Input<T>> = node.inputs().iter().map(alias).collect();
    let cx = Cx { in_definition: true, ..Cx::new(node, Some(&aliases)) };
    let outputs = definition.outputs(&cx);
    let ids: Vec<Option<Id>> = aliases.iter().map(Input::id).collect();
    let wanted: Vec<Id> = ids.iter().flatten().copied().collect();
    let seeds = outputs.iter().zip(grads).filter_map(|(y, g)| Some((y, g?)));
    let oldest = wanted.first().copied();
    let found = Engine::new(true, true, wanted, oldest).run(seeds.collect())?;
    let grad = |(at, id): (usize, &Option<Id>)| {
        // The gradient is 0 if the definition does not depend on the input.
        let zeros = || Var::constant(Tensor::zeros(node.inputs()[at].shape()));
        let value = found.get(id.as_ref()?).cloned().flatten().unwrap_or_else(zeros);
        Some(InputGrad { op: node.id(), at, value, part: None })
    };
    Ok(InputGrads(ids.iter().enumerate().filter_map(grad).collect()))
}

/// The output of a new identity operation on the input; a constant stays a constant.
pub(crate) fn alias<T: Real>(input: &Input<T>) -> Input<T> {
    let edge = match &input.edge {
        Edge::Constant => Edge::Constant,
        _ => identity(input),
    };
    Input { edge, shape: input.shape }
}

/// The output of a new identity operation.
pub(crate) fn identity<T: Real>(input: &Input<T>) -> Edge<T> {
    let (id, inputs) = (Id::reserve(1), smallvec![Input { edge: input.edge.clone(), ..*input }]);
    let (outputs, rule) = (smallvec![input.shape], Arc::new(Alias(id)));
    Edge::Node(Node::new(id, Call::from(&ALIAS), outputs, (inputs, 1), rule), 0)
}

static ALIAS: Op = Op::new("alias", &["x"]).kind(Kind::View).formula("y = x", "dx = g");

struct Alias(Id);

impl<T: Real> Rule<T> for Alias {
    fn backward(&self, _: &Cx<'_, T>, g: &[Option<Var<T>>]) -> InputGrads<T> {
        let value = g[0].clone().expect("the gradient of the output");
        InputGrads(vec![InputGrad { op: self.0, at: 0, value, part: None }])
    }
}
