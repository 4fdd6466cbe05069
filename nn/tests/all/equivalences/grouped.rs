//! Heads that share keys and values.

use super::Vars;
use crate::common::variants::{CAUSAL, LINEAR, MASKED, NOT_CAUSAL};
use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_nn::{Layer, Linear, Module};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

/// The rows of a projection to `key_heads` heads, for each of 4 heads that share them.
fn repeat(p: &Linear<f64>, key_heads: usize) -> Tensor<f64> {
    let (rows, width) = (p.weight.shape()[0], p.weight.shape()[1]);
    let d = rows / key_heads;
    let w = p.weight.value().reshape([key_heads, 1, d, width]);
    w.broadcast_to([key_heads, 4 / key_heads, d, width]).contiguous().reshape([4 * d, width])
}

pub fn grouped(t: &mut Table) {
    let x = [randn(&[2, 5, 8], 1)];
    let m = mha(8, 4);
    let g = m.grouped(4);
    t.same(
        "GQA(Hk = H) = MHA",
        &x,
        |x| g.forward_with_weights(&x[0], Mask::causal(), &mut eval()),
        |x| m.forward_with_weights(&x[0], &x[0], &x[0], Mask::causal(), &mut eval()),
    );

    for key_heads in [1, 2, 4] {
        let g = Projections::new(HeadSizes::new(8, 4).key_heads(key_heads), &mut Rng::new(2));
        let m = mha(8, 4);
        let (k, v) = (repeat(&g.k_proj, key_heads), repeat(&g.v_proj, key_heads));
        let mut state = m.state_dict();
        let all = Tensor::cat(&[&g.q_proj.weight.value(), &k, &v], 0);
        state.insert("in_proj_weight".into(), all);
        state.insert("in_proj_bias".into(), Tensor::zeros([24]));
        state.insert("out_proj.weight".into(), g.o_proj.weight.value());
        state.insert("out_proj.bias".into(), Tensor::zeros([8]));
        m.load_state_dict(&state).unwrap();
        let ours = |x: Vars<'_>| g.forward(&x[0], Mask::causal(), &mut eval());
        t.same(&format!("GQA({key_heads}) = MHA with repeated keys"), &x, ours, |x| {
            m.forward(&x[0], &x[0], &x[0], Mask::causal(), &mut eval())
        });
        // Pooling the repeated heads gives the original groups.
        let back = m.grouped(key_heads);
        t.same(&format!("GQA({key_heads}) = pooled from that MHA"), &x, ours, |x| {
            back.forward(&x[0], Mask::causal(), &mut eval())
        });
    }

    let g = Projections::new(HeadSizes::new(8, 4).key_heads(1), &mut Rng::new(2));
    t.same(
        "GQA(1) = MQA",
        &x,
        |x| g.forward(&x[0], Mask::causal(), &mut eval()),
        |x| {
            // As in Shazeer's paper: one k and v for all heads, by einsum.
            let q = g.q_proj.forward(&x[0], &mut eval()).reshape([2, 5, 4, 2]);
            let k = g.k_proj.forward(&x[0], &mut eval());
            let v = g.v_proj.forward(&x[0], &mut eval());
            let s = Var::einsum("bqhd,bkd->bhqk", &[&q, &k]) * 0.5f64.sqrt();
            let w = s.masked_softmax(-1, &Tensor::ones([5, 5]).tril(0));
            let o = Var::einsum("bhqk,bkd->bqhd", &[&w, &v]).reshape([2, 5, 8]);
            g.o_proj.forward(&o, &mut eval())
        },
    );
    shared_projections(t, &x);
}

/// A variant over [`Projections`] with shared key heads equals the same variant with repeated key
/// heads.
fn shared_projections(t: &mut Table, x: &[Tensor<f64>]) {
    let few = Projections::new(HeadSizes::new(8, 4).key_heads(2), &mut Rng::new(2));
    let mut all = Projections::new(HeadSizes::new(8, 4), &mut Rng::new(0));
    (all.q_proj, all.o_proj) = (few.q_proj.clone(), few.o_proj.clone());
    all.k_proj.weight.set(repeat(&few.k_proj, 2));
    all.v_proj.weight.set(repeat(&few.v_proj, 2));

    // Memory has keys of its own for each key head.
    let masked = MASKED.into_iter().filter(|(name, _)| *name != "memory");
    for (name, run) in masked.chain(CAUSAL).chain(NOT_CAUSAL).chain(LINEAR) {
        t.same(
            &format!("shared key heads = repeated ones, {name}"),
            x,
            |x| run(few.clone(), &x[0], Spec::new(), &mut eval()),
            |x| run(all.clone(), &x[0], Spec::new(), &mut eval()),
        );
    }
}
