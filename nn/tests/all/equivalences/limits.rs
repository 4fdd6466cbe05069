//! The recent variants in special cases that equal plain attention or each other.

use super::{LEN, Vars, by, run};
use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::Linear;
use retrograd_nn::attention::*;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

pub fn limits(t: &mut Table) {
    let x = [randn(&[2, LEN, 8], 11)];
    let plain = by(&uneven(), Mask::causal());

    let capped = SoftcapAttention::new(uneven(), 1e9);
    t.same("softcap to infinity = plain", &x, run(&capped), &plain);

    let streaming = StreamingAttention::new(uneven(), 0, LEN);
    t.same("streaming, window >= L = causal", &x, run(&streaming), &plain);
    let streaming = StreamingAttention::new(uneven(), 0, 3);
    let window = by(&uneven(), Mask::causal() & Mask::window(3, 0));
    t.same("streaming without first tokens = window", &x, run(&streaming), window);

    let talking = TalkingHeadsAttention::new(uneven());
    t.same("talking heads, identities = plain", &x, run(&talking), &plain);
    let scaled = HeadScaleAttention::new(uneven());
    t.same("head scale 1 = plain", &x, run(&scaled), &plain);

    let gated = GatedAttention::new(uneven(), &mut Rng::new(5));
    gated.gate_proj.weight.set(Tensor::zeros([24, 8]));
    gated.gate_proj.bias.as_ref().unwrap().set(Tensor::full([24], 50.0));
    t.same("gates open = plain", &x, run(&gated), &plain);

    let residual = ValueResidualAttention::new(uneven());
    let with = |first: &dyn Fn(&Var<f64>) -> Var<f64>, x: Vars<'_>| {
        let first = residual.projections.values(&first(&x[0]), &mut eval());
        residual.forward(&x[0], &first, &Spec::new().causal_bottom_right(), &mut eval())
    };
    residual.mix.set(Tensor::from([1.0, 0.0]));
    let other = constant(&[2, LEN, 8], 12);
    t.same("value residual, mix (1, 0) = plain", &x, |x| with(&|_| other.clone(), x), &plain);
    residual.mix.set(Tensor::from([0.3, 0.7]));
    t.same("value residual of the same values = plain", &x, |x| with(&|x| x.clone(), x), &plain);

    for (name, normalizer) in
        [("softmax", Normalizer::Softmax), ("top-k, k = L", Normalizer::TopK(LEN))]
    {
        let m = NormalizedAttention::new(uneven(), normalizer);
        t.same(&format!("{name} = plain"), &x, run(&m), &plain);
    }
    norms(t, &x);
}

/// Norms of queries and keys.
fn norms(t: &mut Table, x: &[Tensor<f64>; 1]) {
    let rotated = || uneven().with_rope(Rope::new(4));
    let l2 = QkL2Attention::new(rotated(), LEN);
    let scaled = QkL2Attention::new(rotated(), LEN);
    let scale = |of: &Linear<f64>, by: f64| {
        of.weight.update(|w| *w = w.mul_scalar(by));
    };
    scale(&scaled.projections.q_proj, 1000.0);
    scale(&scaled.projections.k_proj, 0.5);
    // The constant under the root is not scaled.
    t.bound(1e-9).same("QK L2 norm: any scale of projections", x, run(&scaled), run(&l2));

    let l2 = QkL2Attention::new(rotated(), LEN);
    l2.g.set(Tensor::full([1], 6f64.sqrt()));
    let rms = rotated().with_qk_norm(0.0);
    t.bound(1e-9).same("QK L2 norm with g = √D = RMS norm", x, run(&l2), run(&rms));
}

pub fn sinks_and_memory(t: &mut Table) {
    let x = [randn(&[2, LEN, 8], 11)];
    let plain = by(&uneven(), Mask::causal());
    let sink = SinkAttention::new(uneven());
    let quiet = QuietAttention::new(uneven());
    t.same("learned sinks of 0 = off by one", &x, run(&sink), run(&quiet));
    sink.sinks.set(Tensor::full([4], f64::NEG_INFINITY));
    t.same("sinks of -inf = plain", &x, run(&sink), &plain);
    let memory = MemoryAttention::new(uneven(), 0, &mut Rng::new(4));
    t.same("memory of 0 = plain", &x, run(&memory), &plain);
    off_by_one(t);

    let x = [
        randn(&[2, 4, 5, 6], 1),
        randn(&[2, 2, 5, 6], 2),
        randn(&[2, 2, 5, 3], 3),
        randn(&[2, 3, 6], 4),
        randn(&[2, 3, 3], 5),
    ];
    let causal = Spec::new().causal_bottom_right();
    t.same(
        "memory after the keys = memory before them",
        &x,
        |x| attend_with_memory(&x[0], &x[1], &x[2], (&x[3], &x[4]), &causal),
        |x| {
            // Before the other keys, memory is visible under a causal mask.
            let wide = |memory: &Var<f64>, x: &Var<f64>| {
                Var::cat(&[&memory.broadcast_to([2, 2, 3, x.size(-1)]), x], -2)
            };
            attend(&x[0], &wide(&x[3], &x[1]), &wide(&x[4], &x[2]), &causal)
        },
    );
}

/// Softmax plus one equals softmax with an additional key and value of zeros.
fn off_by_one(t: &mut Table) {
    let x = [randn(&[2, 4, 5, 6], 1), randn(&[2, 2, 7, 6], 2), randn(&[2, 2, 7, 3], 3)];
    let zeros = |width: usize| Var::constant(Tensor::zeros([2, 1, width]));
    let (zk, zv) = (zeros(6), zeros(3));
    let mut compare = |statement: &str, case: String, spec: Spec<f64>| {
        t.case(case).same(
            statement,
            &x,
            |x| attend(&x[0], &x[1], &x[2], &spec.clone().sink(Sink::Zero)),
            |x| attend_with_memory(&x[0], &x[1], &x[2], (&zk, &zv), &spec),
        );
    };
    let ids = Tensor::from_fn([2, 7], |i| (i[1] / 3) as i64);
    let masks = [
        Mask::full(),
        Mask::causal(),
        Mask::window(2, 1),
        Mask::lengths(&[0, 4]),
        Mask::documents(&ids),
        Mask::keep(&Tensor::bernoulli([2, 1, 5, 7], 0.4, &mut Rng::new(8))),
    ];
    for mask in masks {
        for path in [Path::Composed, Path::Tiled] {
            let spec = Spec::new().mask(mask.clone()).bias(Bias::alibi(4)).softcap(3.0).path(path);
            let spec = spec.align(Align::BottomRight);
            compare(&format!("off by one = zero key, {path:?}"), format!("{mask:?}"), spec);
        }
    }
    let spec = Spec::new().bias(Bias::Additive(constant(&[4, 5, 7], 4)));
    compare("off by one = zero key, additive bias", String::new(), spec);
}
