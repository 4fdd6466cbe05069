//! The two products of attention, whose zeros are structural: what is not attended to has no
//! part in the result, NaN and infinities included.

use retrograd_autograd::{Backward, Cx, Grads, Var};
use retrograd_tensor::{Real, Tensor};

/// `a · bᵀ` over the last two axes. Its gradient treats zeros as [`mix`] does.
pub(crate) fn scores<T: Real>(a: &Var<T>, b: &Var<T>) -> Var<T> {
    Var::from_op(a.value().matmul(&b.value().t()), &[a, b], |needs| Scores {
        a: needs.at(1).then(|| a.value().clone()),
        b: needs.at(0).then(|| b.value().clone()),
    })
}

/// `a · b` over the last two axes, where a zero in `a` annihilates whatever stands in `b`.
pub(crate) fn mix<T: Real>(a: &Var<T>, b: &Var<T>) -> Var<T> {
    Var::from_op(a.value().matmul_skipping_zeros(b.value()), &[a, b], |needs| Mix {
        a: needs.at(1).then(|| a.value().clone()),
        b: needs.at(0).then(|| b.value().clone()),
    })
}

#[derive(Debug)]
struct Scores<T: Real> {
    a: Option<Tensor<T>>,
    b: Option<Tensor<T>>,
}

impl<T: Real> Backward<T> for Scores<T> {
    fn name(&self) -> &'static str {
        "attention_scores"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![
            self.b.as_ref().map(|b| mix(g, &cx.input(1, b))),
            self.a.as_ref().map(|a| mix(&g.t(), &cx.input(0, a))),
        ]
    }
}

#[derive(Debug)]
struct Mix<T: Real> {
    a: Option<Tensor<T>>,
    b: Option<Tensor<T>>,
}

impl<T: Real> Backward<T> for Mix<T> {
    fn name(&self) -> &'static str {
        "attention_mix"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![
            self.b.as_ref().map(|b| scores(g, &cx.input(1, b))),
            self.a.as_ref().map(|a| mix(&cx.input(0, a).t(), g)),
        ]
    }
}
