//! Heads that share keys and values.

use super::Vars;
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

    type Run<'a> = &'a dyn Fn(Projections<f64>, &Var<f64>) -> Var<f64>;
    let rotated: Run<'_> = &|p, x| {
        let p = p.with_rope(Rope::new(2));
        PrefixLmAttention::new(p).forward(x, &[2], Mask::full(), &mut eval())
    };
    let runs: [(&str, Run<'_>); 9] = [
        ("prefix-LM with RoPE", rotated),
        ("ALiBi", &|p, x| AlibiAttention::causal(p).forward(x, Spec::new(), &mut eval())),
        ("chunked local", &|p, x| {
            ChunkedLocalAttention::new(p, 3).forward(x, Spec::new(), &mut eval())
        }),
        ("Sparse Transformer", &|p, x| {
            let pattern = SparsePattern::Strided { stride: 2 };
            let m = SparseTransformerAttention::new(p, pattern, SparseMerge::Heads, 0);
            m.forward(x, Mask::full(), &mut eval())
        }),
        ("BigBird", &|p, x| {
            let layout = BigBirdLayout { block: 2, neighbours: 0, global: 1, random: 1, seed: 4 };
            BigBirdAttention::new(p, layout).forward(x, Mask::full(), &mut eval())
        }),
        ("Longformer", &|p, x| {
            let m = LongformerAttention::new(p, &[1, 1, 2, 2], 1);
            m.forward(x, &[1], Mask::full(), &mut eval())
        }),
        ("Shaw", &|p, x| {
            let m = ShawAttention::new(p, 2, &mut Rng::new(5));
            m.forward(x, &mut eval())
        }),
        ("Transformer-XL", &|p, x| {
            let m = TransformerXlAttention::new(p, &mut Rng::new(5));
            m.forward(x, None, Mask::full(), &mut eval())
        }),
        ("linear", &|p, x| {
            let m = LinearAttention::new(p, Reach::Causal, LinearForm::Chunked(2));
            m.forward(x, &mut eval())
        }),
    ];
    for (name, run) in runs {
        t.same(
            &format!("shared key heads = repeated ones, {name}"),
            x,
            |x| run(few.clone(), &x[0]),
            |x| run(all.clone(), &x[0]),
        );
    }
}
