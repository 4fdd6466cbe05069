//! The two matrix multiplications of attention, `q·kᵀ` and `w·v`. Zero weights are structural:
//! masked keys and values contribute nothing to the result or to any gradient, even if they are
//! NaN or infinite.

use retrograd_autograd::{Backward, Cx, Grads, Var};
use retrograd_tensor::{Real, Tensor};

/// `a · bᵀ` over the last two axes. Its gradient skips zeros as [`mix`] does.
pub(crate) fn scores<T: Real>(a: &Var<T>, b: &Var<T>) -> Var<T> {
    Var::from_op(a.value().matmul(&b.value().t()), &[a, b], |needs| Scores {
        a: needs.at(1).then(|| a.value().clone()),
        b: needs.at(0).then(|| b.value().clone()),
    })
}

/// `a · b` over the last two axes, where a zero in `a` times any element of `b`, even NaN, is 0.
pub(crate) fn mix<T: Real>(a: &Var<T>, b: &Var<T>) -> Var<T> {
    Var::from_op(a.value().matmul_skipping_zeros(b.value()), &[a, b], |needs| Mix {
        a: a.value().clone(),
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
    a: Tensor<T>,
    b: Option<Tensor<T>>,
}

impl<T: Real> Backward<T> for Mix<T> {
    fn name(&self) -> &'static str {
        "attention_mix"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![
            self.b.as_ref().map(|b| where_there(&self.a, &scores(g, &cx.input(1, b)))),
            cx.needs(1).then(|| mix(&cx.input(0, &self.a).t(), g)),
        ]
    }
}

/// Gradients by weights, in which non-finite gradients by weights of 0 are replaced by 0: the pair
/// may be masked, and a NaN would spread to everything that the weights depend on.
fn where_there<T: Real>(weights: &Tensor<T>, g: &Var<T>) -> Var<T> {
    if g.value().numel() == 0 || g.value().abs().max(..).item().to_f64().is_finite() {
        return g.clone();
    }
    let zero = Tensor::scalar(T::ZERO);
    let no_number = g.value().sub(g.value()).ne(&zero);
    g.masked_fill(&no_number.and(&weights.eq(&zero)), T::ZERO)
}
