//! The two matrix multiplications of attention, `q·kᵀ` and `w·v`. Zero weights are structural:
//! masked keys and values contribute nothing to the result or to any gradient, even if they are
//! NaN or infinite.

use retrograd_autograd::{InputGrads, Kind, Op, Var};
use retrograd_tensor::{Real, Tensor};

static SCORES: Op = Op::new("attention_scores", &["q", "k"])
    .kind(Kind::Product("…qc,…kc->…qk"))
    .formula("y = q kᵀ, 0 where masked", "dq = g k\ndk = gᵀ q");
static MIX: Op = Op::new("attention_mix", &["p", "v"])
    .kind(Kind::Product("…qk,…kd->…qd"))
    .formula("y = p v, without masked elements", "dp = g vᵀ\ndv = pᵀ g");

/// `a · bᵀ` over the last two axes. Its gradient skips zeros as [`mix`] does.
pub(crate) fn scores<T: Real>(a: &Var<T>, b: &Var<T>) -> Var<T> {
    let value = a.value().matmul(&b.value().t());
    Var::from_op(&SCORES, value, [a, b], |[a, b]| {
        let (a, b) = (a.save_if(b.needs_grad()), b.save_if(a.needs_grad()));
        move |cx, g| {
            InputGrads::of(&a, || mix(g, &cx.input(&b))).and(&b, || mix(&g.t(), &cx.input(&a)))
        }
    })
}

/// `a · b` over the last two axes, where a zero in `a` times any element of `b`, even NaN, is 0.
pub(crate) fn mix<T: Real>(a: &Var<T>, b: &Var<T>) -> Var<T> {
    let value = a.value().matmul_skipping_zeros(b.value());
    Var::from_op(&MIX, value, [a, b], |[a, b]| {
        let (a, b) = (a.save(), b.save_if(a.needs_grad()));
        move |cx, g| {
            InputGrads::of(&a, || zero_if_masked(a.value(), &scores(g, &cx.input(&b))))
                .and(&b, || mix(&cx.input(&a).t(), g))
        }
    })
}

/// Gradients by weights, in which non-finite gradients by weights of 0 are replaced by 0: the pair
/// may be masked, and a NaN would spread to everything that the weights depend on.
fn zero_if_masked<T: Real>(weights: &Tensor<T>, g: &Var<T>) -> Var<T> {
    if g.value().numel() == 0 || g.value().abs().max(..).item().to_f64().is_finite() {
        return g.clone();
    }
    let zero = Tensor::scalar(T::ZERO);
    let no_number = g.value().sub(g.value()).ne(&zero);
    g.masked_fill(&no_number.and(&weights.eq(&zero)), T::ZERO)
}
