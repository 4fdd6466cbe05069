//! Relative and rotary positions.

use super::{LEN, Vars, around, by, run, with_qkv};
use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_nn::{Layer, Module};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

pub fn alibi(t: &mut Table, with: &str, p: &Projections<f64>) {
    let x = around().1;
    for (name, mut m, mask) in [
        ("ALiBi, slopes 0 = causal", AlibiAttention::causal(p.clone()), Mask::causal()),
        ("ALiBi, symmetric, slopes 0 = full", AlibiAttention::symmetric(p.clone()), Mask::full()),
    ] {
        m.slopes = vec![0.0; 3];
        let plain = by(p, mask);
        t.case(with).same(name, &x, |x| m.forward(&x[0], Spec::new(), &mut eval()), plain);
    }
    let m = AlibiAttention::causal(p.clone());
    let slopes = alibi_slopes(3);
    let bias = move |at: At| -slopes[at.head] * (at.query - at.key as isize) as f64;
    t.case(with).same(
        "ALiBi = its formula, -m (p - j)",
        &x,
        |x| m.forward(&x[0], Spec::new(), &mut eval()),
        by(p, Spec::new().causal().bias(Bias::from_fn("ALiBi", bias))),
    );
}

pub fn relative(t: &mut Table) {
    let (p, x) = around();
    let r = &mut Rng::new(0);
    for (name, m, mask) in [
        ("T5, table 0 = full, scale 1", T5Attention::encoder(6, 3, r), Mask::full()),
        ("T5, causal, table 0 = causal, scale 1", T5Attention::decoder(6, 3, r), Mask::causal()),
    ] {
        m.relative_attention_bias.weight.set(Tensor::zeros([32, 3]));
        let plain = with_qkv(p.clone(), [&m.q, &m.k, &m.v]);
        plain.o_proj.weight.set(m.o.weight.value());
        let spec = Spec::new().mask(mask).scale(1.0);
        t.same(name, &x, |x| m.forward(&x[0], Spec::new(), &mut eval()), by(&plain, spec));
    }

    let m = ShawAttention::new(p.clone(), 2, r);
    m.relative_keys.set(Tensor::zeros([5, 2]));
    m.relative_values.set(Tensor::zeros([5, 2]));
    t.same("Shaw, tables 0 = full", &x, |x| m.forward(&x[0], &mut eval()), by(&p, Mask::full()));

    let m = TransformerXlAttention::new(p.clone(), r);
    for (_, q) in m.named_parameters().iter().filter(|(name, _)| name.starts_with("r_")) {
        q.set(Tensor::zeros(q.shape()));
    }
    t.same(
        "Transformer-XL, u, v and r 0 = causal",
        &x,
        |x| m.forward(&x[0], None, Mask::full(), &mut eval()),
        by(&p, Mask::causal()),
    );
    let m = TransformerXlAttention::new(p.clone(), r);
    let before = Var::constant(randn(&[2, 5, 6], 9));
    t.same(
        "Transformer-XL, memory = one long segment",
        &x,
        |x| m.forward(&x[0], Some(&before), Mask::full(), &mut eval()),
        |x| {
            let all = Var::cat(&[&before, &x[0]], 1);
            m.forward(&all, None, Mask::full(), &mut eval()).slice(1, 5..)
        },
    );
}

pub fn rotary(t: &mut Table) {
    let x = [randn(&[2, 7, 8], 1), randn(&[2, 7, 8], 2)];
    for scaling in [
        Scaling::None,
        Scaling::Linear { factor: 4.0 },
        Scaling::Ntk { factor: 4.0 },
        Scaling::Yarn(Yarn::new(4.0, 32)),
        Scaling::Llama3(Llama3Scaling { factor: 4.0, context: 32, low: 1.0, high: 4.0 }),
    ] {
        for pairing in [Pairing::Half, Pairing::Interleaved] {
            let rope = Rope::new(6).base(50.0).pairing(pairing).scaling(scaling);
            let scores = |at: usize| {
                let rope = rope.clone();
                move |x: Vars<'_>| rope.rotate(&x[0], at).matmul(&rope.rotate(&x[1], at).t())
            };
            t.case(format!("{pairing:?} {scaling:?}"));
            t.same("RoPE: scores, all positions shifted by 100", &x, scores(0), scores(100));
        }
    }
    let rope = Rope::new(8);
    let q = &x[..1];
    t.same(
        "RoPE preserves norms",
        q,
        |q| rope.rotate(&q[0], 3).square().sum(-1),
        |q| q[0].square().sum(-1),
    );
    let at = Tensor::from([[0i64, 1, 2, 3, 0, 1, 2]]);
    t.same(
        "RoPE, positions that restart",
        q,
        |q| rope.rotate_at(&q[0], &at).narrow(1, 4, 3),
        |q| rope.rotate(&q[0].narrow(1, 4, 3), 0),
    );
    let x = [randn(&[2, LEN, 8], 11)];
    t.same(
        "RoPE, width 0 = no positions",
        &x,
        run(&uneven().with_rope(Rope::new(0))),
        by(&uneven(), Mask::causal()),
    );
    pairings(t, &x);
}

fn pairings(t: &mut Table, x: &[Tensor<f64>; 1]) {
    for width in [6, 4, 2, 0] {
        let half = uneven().with_rope(Rope::new(width));
        let weights =
            |p: &Projections<f64>| [&p.q_proj, &p.k_proj].map(|layer| layer.weight.value());
        let before = weights(&half);
        let mut other = uneven().with_rope(Rope::new(width));
        other.convert_pairing(Pairing::Interleaved);
        let statement = format!("RoPE, half = interleaved converted, width {width}");
        t.same(&statement, x, run(&other), run(&half));
        if width == 6 {
            let rope = Rope::new(width).pairing(Pairing::Interleaved);
            let wrong = uneven().with_rope(rope);
            let y = |m| run(m)(&[Var::constant(x[0].clone())]).into_value();
            let off = Worst::between(&y(&wrong), &y(&half)).0;
            assert!(off > 1e-3, "without conversion the difference is only {off:e}");
        }
        other.convert_pairing(Pairing::Half);
        for (after, before) in weights(&other).iter().zip(&before) {
            t.exact().values("RoPE, converted there and back: weights", after, before);
        }
    }
}
