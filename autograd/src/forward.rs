//! Forward mode: tangents are propagated through a recorded graph, from inputs to outputs.
//!
//! The tangent of a result is the sum of the derivatives by its inputs times their tangents. A recorded operation
//! has a rule for the transpose of this product, and forward mode needs no second rule:
//!
//! - of a [`Kind::Pointwise`] operation, the matrix of the derivatives by an input is diagonal and equals its
//!   transpose, so the rule itself is applied to the tangent;
//! - a fused operation is replaced by its definition, unless it has a kernel, [`Fused::jvp`](crate::Fused::jvp);
//! - any other rule is transposed: it is linear in the gradient `u` of the result, and is recorded with `u = 0`; the
//!   derivative of `Σ tᵢ · dxᵢ(u)` by `u` is the tangent of the result (double reverse, of one operation). Products of
//!   matrices avoid that by a tangent of their own, see [`Cx::tangents`].

use crate::engine::{Engine, alias, sum_to};
use crate::graph::{Cx, Definition, Id, InputGrad, Node, Outputs, Rule, Tangents, Var};
use crate::op::Kind;
use crate::record::RESULT;
use crate::var::no_grad;
use retrograd_tensor::settings::with_grad_enabled;
use retrograd_tensor::{Real, Tensor};
use smallvec::smallvec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tangents by id.
pub(crate) type Known<T> = BTreeMap<Id, Var<T>>;

/// The tangents of `outputs`, given tangents of other variables. `None` where an output does not depend on them.
/// `recorded`: the tangents can be differentiated themselves.
pub(crate) fn push<T: Real>(
    outputs: &[Var<T>],
    mut known: Known<T>,
    recorded: bool,
) -> Result<Vec<Option<Var<T>>>, String> {
    let Some(oldest) = known.keys().next().copied() else { return Ok(vec![None; outputs.len()]) };
    let mut nodes: BTreeMap<Id, Arc<Node<T>>> = BTreeMap::new();
    let mut next: Vec<Arc<Node<T>>> = outputs.iter().filter_map(|y| y.node().cloned()).collect();
    while let Some(node) = next.pop() {
        if node.id() > oldest && !nodes.contains_key(&node.id()) {
            next.extend(node.inputs().iter().filter_map(|input| input.node().cloned()));
            nodes.insert(node.id(), node);
        }
    }
    for node in nodes.values() {
        let t: Vec<Option<Var<T>>> =
            node.inputs().iter().map(|x| known.get(&x.id()?).cloned()).collect();
        if t.iter().any(Option::is_some) && !known.contains_key(&node.id()) {
            let tangents = with_grad_enabled(recorded, || of_node(node, &t, recorded))?;
            let ids = (0..).map(|i| node.id().offset(i));
            known.extend(ids.zip(tangents).filter_map(|(id, t)| Some((id, t?))));
        }
    }
    Ok(outputs.iter().map(|y| known.get(&y.id()?).cloned()).collect())
}

/// The tangents of the results of an operation.
fn of_node<T: Real>(
    node: &Arc<Node<T>>,
    t: &[Option<Var<T>>],
    recorded: bool,
) -> Result<Outputs<Option<Var<T>>>, String> {
    let rule = node.take_rule(true).ok_or_else(|| {
        format!("jvp: the saved tensors of {node:?} were freed by an earlier backward pass")
    })?;
    if let Some(definition) = rule.definition() {
        let kernel = if recorded { None } else { definition.jvp(Tangents(t)) };
        return match kernel {
            Some(tangents) => {
                let whole =
                    tangents.iter().zip(node.outputs()).map(|(t, shape)| t.broadcast_to(*shape));
                Ok(whole.map(|t| Some(Var::constant(t))).collect())
            }
            None => through_definition(node, definition, t, recorded),
        };
    }
    let inputs = recorded.then_some(node.inputs());
    let cx = Cx { tangents: Some(t), ..Cx::new(node, inputs) };
    if node.op().kind == Kind::Pointwise
        && let Some(tangent) = pointwise(&cx, &*rule, t)
    {
        return Ok(smallvec![Some(tangent)]);
    }
    transposed(&cx, &*rule, t, recorded)
}

/// The rule of a pointwise operation applied to each tangent; `None` if it reduces gradients that were broadcast.
fn pointwise<T: Real>(cx: &Cx<'_, T>, rule: &dyn Rule<T>, t: &[Option<Var<T>>]) -> Option<Var<T>> {
    let [shape] = cx.node.outputs() else { return None };
    let cx = Cx { tangents: None, ..*cx };
    let mut sum: Option<Var<T>> = None;
    for (at, t) in t.iter().enumerate() {
        let Some(t) = t else { continue };
        let grads = rule.backward(&cx, &[Some(t.broadcast_to(*shape))]);
        let g = grads.0.into_iter().find(|g| g.at == at && g.part.is_none())?.value;
        let g = if g.shape() == shape { g } else { return None };
        sum = Some(sum.map_or(g.clone(), |sum| sum + &g));
    }
    sum
}

/// The transpose of a rule, applied to the tangents.
fn transposed<T: Real>(
    cx: &Cx<'_, T>,
    rule: &dyn Rule<T>,
    t: &[Option<Var<T>>],
    recorded: bool,
) -> Result<Outputs<Option<Var<T>>>, String> {
    let zero = |shape| Var::leaf(Tensor::scalar(T::ZERO).broadcast_to(shape));
    let u: Outputs<Var<T>> = cx.node.outputs().iter().map(|shape| zero(*shape)).collect();
    let given: Outputs<Option<Var<T>>> = u.iter().cloned().map(Some).collect();
    let (mut roots, mut direct) = (Vec::new(), Vec::new());
    with_grad_enabled(true, || {
        for InputGrad { at, mut value, part, .. } in rule.backward(cx, &given).0 {
            if at == RESULT {
                direct.push(value);
            } else if let Some(t) = &t[at] {
                match part {
                    // The gradient of a view is placed; the tangent of a view is a view.
                    Some(layout) if value.id() == u[0].id() => direct.push(t.as_strided(*layout)),
                    Some(layout) => {
                        let shape = *cx.node.inputs()[at].shape();
                        roots.push((value.as_strided_adjoint(shape, *layout), t.clone()));
                    }
                    None => {
                        sum_to(&mut value, cx.node.inputs()[at].shape());
                        roots.push((value, t.clone()));
                    }
                }
            }
        }
    });
    let seeds = roots.iter().filter(|(root, _)| root.is_tracked());
    let seeds: Vec<_> = seeds.map(|(root, t)| (root, t.clone())).collect();
    let ids: Vec<Id> = u.iter().filter_map(Var::id).collect();
    let run = || Engine::new(true, recorded, ids.clone(), ids.first().copied()).run(seeds);
    let mut found = if recorded { run()? } else { no_grad(run)? };
    let mut tangents: Outputs<Option<Var<T>>> =
        ids.iter().map(|id| found.remove(id).flatten()).collect();
    for t in direct {
        let t = if *t.shape() == *u[0].shape() { t } else { t.broadcast_to(*u[0].shape()) };
        let t = if recorded { t } else { t.detach() };
        tangents[0] = Some(tangents[0].take().map_or(t.clone(), |sum| sum + &t));
    }
    Ok(tangents)
}

/// The tangents of the results of a fused operation by its definition, which is recorded on aliases of the inputs.
fn through_definition<T: Real>(
    node: &Arc<Node<T>>,
    definition: &dyn Definition<T>,
    t: &[Option<Var<T>>],
    recorded: bool,
) -> Result<Outputs<Option<Var<T>>>, String> {
    let aliases: Vec<_> = node.inputs().iter().map(alias).collect();
    let cx = Cx { in_definition: true, ..Cx::new(node, Some(&aliases)) };
    let outputs = with_grad_enabled(true, || definition.outputs(&cx));
    let known = aliases.iter().zip(t).filter_map(|(x, t)| Some((x.id()?, t.clone()?)));
    Ok(push(&outputs, known.collect(), recorded)?.into())
}
