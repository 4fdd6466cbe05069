//! Equivalences: special cases of each variant, and equivalent computations, compared in outputs and in
//! gradients by every input.
//!
//! They are printed as one table:
//! `cargo test -p retrograd-nn --test all equivalences -- --nocapture`. A new equivalence is a
//! line in one of the files of this folder.

use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::Linear;
use retrograd_nn::attention::*;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

mod cached;
mod causality;
mod grouped;
mod latent;
mod limits;
mod linear;
mod luong;
mod masks;
mod multi_head;
mod order;
mod packed;
mod paths;
mod positions;
mod self_attention;

#[test]
fn equivalences_hold() {
    let t = &mut Table::default();
    self_attention::self_attention(t);
    multi_head::multi_head(t);
    grouped::grouped(t);
    order::order(t);
    causality::causality(t);
    let p = around().0;
    for (with, p) in [("no positions", p.clone()), ("RoPE", p.with_rope(Rope::new(2)))] {
        masks::masks(t, with, &p);
        masks::longformer(t, with, &p);
        packed::packed(t, with, &p);
        positions::alibi(t, with, &p);
    }
    masks::minus_infinity(t);
    positions::relative(t);
    positions::rotary(t);
    limits::limits(t);
    limits::sinks_and_memory(t);
    latent::differential(t);
    latent::latent(t);
    latent::yarn(t);
    luong::additive_and_luong(t);
    luong::local(t);
    linear::linear(t);
    paths::tiled(t);
    paths::log_sum_exp(t);
    paths::second_order(t);
    paths::dropout(t);
    paths::threads(t);
    cached::cached(t);
    t.check("equivalences");
}

type Vars<'a> = &'a [Var<f64>];

/// Projections of width 6 in 3 heads, and an input for them.
fn around() -> (Projections<f64>, [Tensor<f64>; 1]) {
    let p = Projections::new(HeadSizes::new(6, 3), &mut Rng::new(3));
    (p, [randn(&[2, 9, 6], 4)])
}

/// Other layers for queries, keys and values.
fn with_qkv(mut p: Projections<f64>, [q, k, v]: [&Linear<f64>; 3]) -> Projections<f64> {
    (p.q_proj, p.k_proj, p.v_proj) = (q.clone(), k.clone(), v.clone());
    p
}

/// Self-attention between projections, with this spec.
fn by<S: Into<Spec<f64>>>(p: &Projections<f64>, spec: S) -> impl Fn(Vars<'_>) -> Var<f64> + use<S> {
    let (p, spec) = (p.clone(), spec.into());
    move |x| p.attend(&x[0], &spec, &mut Past::none(), &mut eval())
}

/// The length of inputs for [`uneven`] projections.
const LEN: usize = 9;

/// A causal forward pass.
fn run<M: Incremental<f64>>(m: &M) -> impl Fn(Vars<'_>) -> Var<f64> {
    move |x| m.forward(&x[0], Spec::new().causal(), &mut eval())
}
