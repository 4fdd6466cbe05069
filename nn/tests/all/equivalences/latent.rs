//! Differential attention, and multi-head latent attention.

use super::{LEN, Vars, run};
use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::Module;
use retrograd_nn::attention::*;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

pub fn differential(t: &mut Table) {
    let x = [randn(&[2, LEN, 8], 11)];
    let rope = Rope::new(2);
    let sizes = HeadSizes::new(8, 4).key_heads(2).head_width(4);
    let m = DifferentialAttention::<f64>::new(sizes, 2, Some(rope.clone()), &mut Rng::new(7));
    assert!((m.lambda_init() - (0.8 - 0.6 * (-0.6f64).exp())).abs() < 1e-15);
    // exp(0) - exp(b) + λ_init = 0
    for p in [&m.lambda_q1, &m.lambda_k1] {
        p.set(Tensor::zeros([2]));
    }
    m.lambda_q2.set(Tensor::from([1.0, 0.0]));
    m.lambda_k2.set(Tensor::from([(1.0 + m.lambda_init()).ln(), 5.0]));
    assert!(m.lambda().item().abs() < 1e-15, "lambda {}", m.lambda().item());

    // Multi-head attention with the first query and key of every head, by its own projections.
    let spec = Spec::new().causal();
    let rows = |w: &Tensor<f64>| {
        // [2H · d, width] to the first of each two heads
        let w = w.reshape([w.size(0) / 4, 2, 2, 8]).select(1, 0);
        w.reshape([w.size(0) * 2, 8])
    };
    let p = &m.projections;
    let [wq, wk] = [&p.q_proj, &p.k_proj].map(|layer| rows(&layer.weight.value()));
    let wv = p.v_proj.weight.value();
    let split = |x: &Var<f64>, w: &Tensor<f64>, heads: usize| {
        let y = x.matmul(&Var::constant(w.clone()).t());
        y.reshape([2, LEN, heads, w.size(0) / heads]).transpose(1, 2)
    };
    let first = |x: Vars<'_>| {
        let q = rope.rotate(&split(&x[0], &wq, 4), 0);
        let k = rope.rotate(&split(&x[0], &wk, 2), 0);
        attend(&q, &k, &split(&x[0], &wv, 2), &spec)
    };
    t.same(
        "differential, lambda 0 = MHA of first halves, before the norm",
        &x,
        |x| {
            let [first, second] = m.both(&x[0], &spec, &mut Past::none(), &mut eval());
            first - second.mul(&m.lambda())
        },
        first,
    );
    // The same with the norm, the scale and the output projection.
    t.same("differential, lambda 0 = MHA of first halves, whole", &x, run(&m), |x| {
        let normed = first(x).rms_norm(None, 1e-5) * (1.0 - m.lambda_init());
        let joined = normed.transpose(1, 2).reshape([2, LEN, 16]);
        joined.matmul(&p.o_proj.weight.to_var().t())
    });
}

pub fn latent(t: &mut Table) {
    for query_latent in [None, Some(5)] {
        let case = format!("query latent {query_latent:?}");
        let sizes =
            MlaSizes { width: 8, heads: 3, query_latent, latent: 5, nope: 4, rope: 2, value: 6 };
        let mut m = MlaAttention::<f64>::new(sizes, &mut Rng::new(3));
        let x = randn(&[2, LEN, 8], 4);
        let grads = |m: &MlaAttention<f64>| {
            let x = Var::leaf(x.clone());
            let y = m.forward(&x, Spec::new().causal(), &mut eval());
            let g = y.square().sum(..).backward();
            let mut all = vec![g.get(&x).unwrap().clone()];
            all.extend(m.named_parameters().iter().map(|(_, p)| g.by_id(p.id()).unwrap().clone()));
            (y.into_value(), all)
        };
        let naive = grads(&m);
        m.form = MlaForm::Absorbed;
        let absorbed = grads(&m);
        let mut gradients = Worst::default();
        for (a, b) in absorbed.1.iter().zip(&naive.1) {
            gradients.include(Worst::between(a, b).0);
        }
        t.case(&case).push(
            "MLA absorbed = naive, with gradients by parameters",
            Worst::between(&absorbed.0, &naive.0),
            Some(gradients),
            bits(&absorbed.0) == bits(&naive.0),
        );
        // A prompt by one form, steps by the other, and the cache holds r + rope per token.
        let x = Var::constant(x);
        let mut cache = KvCache::new(LEN);
        let spec = Spec::new().causal();
        m.form = MlaForm::Naive;
        let mut parts = vec![m.forward_cached(&x.narrow(1, 0, 5), &spec, &mut cache)];
        m.form = MlaForm::Absorbed;
        for i in 5..LEN {
            parts.push(m.forward_cached(&x.narrow(1, i, 1), &spec, &mut cache));
        }
        let all = Var::cat(&parts.iter().collect::<Vec<_>>(), 1);
        t.case(&case).values("MLA, naive prompt and absorbed steps = full", all.value(), &naive.0);
        let (k, v) = cache.append(&Tensor::zeros([2, 1, 0, 7]), &Tensor::zeros([2, 1, 0, 0]));
        assert_eq!(k.numel() + v.numel(), 2 * LEN * (5 + 2));
    }
}

/// The YaRN of DeepSeek: the attention factor scales the whole score, not the rotation.
pub fn yarn(t: &mut Table) {
    let sizes =
        MlaSizes { width: 8, heads: 2, query_latent: None, latent: 5, nope: 4, rope: 4, value: 3 };
    let x = [randn(&[2, LEN, 8], 11)];
    let yarn = Yarn { attention: 1.3, ..Yarn::new(4.0, 16) };
    let with = |yarn, form| {
        let rope = Rope::new(4).pairing(Pairing::Interleaved).scaling(Scaling::Yarn(yarn));
        let mut m = MlaAttention::new(sizes, &mut Rng::new(2)).with_rope(rope);
        m.form = form;
        m
    };
    let spec = Spec::new().causal();
    for form in [MlaForm::Naive, MlaForm::Absorbed] {
        let (grown, flat) = (with(yarn, form), with(Yarn { attention: 1.0, ..yarn }, form));
        let scaled = spec.clone().scale(1.3 * 1.3 / 8f64.sqrt());
        t.same(&format!("MLA, YaRN = the scale by its square, {form:?}"), &x, run(&grown), |x| {
            flat.forward(&x[0], &scaled, &mut eval())
        });
    }
    let (naive, absorbed) = (with(yarn, MlaForm::Naive), with(yarn, MlaForm::Absorbed));
    t.same("MLA, YaRN, absorbed = naive", &x, run(&absorbed), run(&naive));
}
