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

/// `q · kᵀ` over the last two axes. Its gradient skips zeros as [`mix`] does.
pub(crate) fn scores<T: Real>(q: &Var<T>, k: &Var<T>) -> Var<T> {
    let value = q.value().matmul(&k.value().t());
    Var::from_op(&SCORES, value, [q, k], |[q, k]| {
        let (q, k) = (q.save_if(k.needs_grad()), k.save_if(q.needs_grad()));
        move |cx, g| {
            InputGrads::of(&q, || mix(g, &cx.input(&k))).and(&k, || mix(&g.t(), &cx.input(&q)))
        }
    })
}

/// `p · v` over the last two axes, where a zero in `p` times any element of `v`, even NaN, is 0.
pub(crate) fn mix<T: Real>(p: &Var<T>, v: &Var<T>) -> Var<T> {
    let value = p.value().matmul_skipping_zeros(v.value());
    Var::from_op(&MIX, value, [p, v], |[p, v]| {
        let (p, v) = (p.save(), v.save_if(p.needs_grad()));
        move |cx, g| {
            InputGrads::of(&p, || zero_if_masked(p.value(), &scores(g, &cx.input(&v))))
                .and(&v, || mix(&cx.input(&p).t(), g))
        }
    })
}

/// Gradients by weights, in which non-finite gradients by weights of 0 are replaced by 0: the pair
/// may be masked, and a NaN would spread to everything that the weights depend on.
fn zero_if_masked<T: Real>(weights: &Tensor<T>, g: &Var<T>) -> Var<T> {
    // A sum with a NaN or an infinite term is not finite.
    if g.value().sum(..).item().to_f64().is_finite() {
        return g.clone();
    }
    let zero = Tensor::scalar(T::ZERO);
    let no_number = g.value().sub(g.value()).ne(&zero);
    g.masked_fill(&no_number.and(&weights.eq(&zero)), T::ZERO)
}
