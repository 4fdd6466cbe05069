//! What tools do with a recorded operation: evaluate its definition, and call its rule.

use crate::engine::{Engine, sum_to};
use crate::graph::{Cx, Edge, Id, Input, Node, Var};
use crate::var::no_grad;
use retrograd_tensor::Real;
use retrograd_tensor::settings::with_grad_enabled;
use std::sync::Arc;

/// # Rules
impl<T: Real> Node<T> {
    /// The definition of a fused operation, evaluated on new leaves instead of its inputs: the identities of
    /// these, and the results as ordinary operations on them. `None` of other operations, and after a backward
    /// pass that did not keep the rule.
    #[doc(hidden)]
    pub fn definition(self: &Arc<Self>) -> Option<(Vec<Id>, Vec<Var<T>>)> {
        let rule = self.take_rule(true)?;
        let definition = rule.definition()?;
        let ids: Vec<Id> = self.inputs().iter().map(|_| Id::reserve(1)).collect();
        let leaves = ids.iter().zip(self.inputs());
        let leaf = |(id, x): (&Id, &Input<T>)| Input { edge: Edge::Leaf(*id), shape: x.shape };
        let inputs: Vec<Input<T>> = leaves.map(leaf).collect();
        let cx = Cx { in_definition: true, ..Cx::new(self, Some(&inputs)) };
        Some((ids, with_grad_enabled(true, || definition.outputs(&cx))))
    }

    /// The gradients that the rule returns, given gradients of the results, by the position of the input, in the
    /// shapes of the inputs. The rule is kept. `None` if it was dropped before, or is wrong.
    #[doc(hidden)]
    pub fn input_gradients(
        self: &Arc<Self>,
        gradients: &[Option<Var<T>>],
    ) -> Option<Vec<(usize, Var<T>)>> {
        let rule = self.take_rule(true)?;
        let engine = Engine::new(true, false, Vec::new(), None);
        let gradients = gradients.iter().cloned().collect();
        let mut all = no_grad(|| engine.differentiate(self, &*rule, gradients)).ok()?;
        all.check(self).ok()?;
        all.0.iter_mut().for_each(|g| sum_to(&mut g.value, self.inputs()[g.at].shape()));
        Some(all.0.into_iter().map(|g| (g.at, g.value)).collect())
    }
}
