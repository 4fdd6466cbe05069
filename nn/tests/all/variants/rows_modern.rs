//! The variants of recent language models.

use super::{grouped, row, small};
use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_tensor::random::Rng;

/// The `eps` of norms. With a smaller one, the curvature at short vectors would be too large for finite
/// differences.
const EPS: f64 = 0.1;

/// Heads that are wider than the part that is rotated.
fn rotated(sizes: HeadSizes, rope: Rope, rng: &mut Rng) -> Projections<f64> {
    Projections::new(sizes.head_width(6), rng).with_rope(rope)
}

fn differential(
    sizes: HeadSizes,
    layer: usize,
    rope: Option<Rope>,
    rng: &mut Rng,
) -> DifferentialAttention<f64> {
    let mut m = DifferentialAttention::new(sizes, layer, rope, rng);
    assert_eq!(m.subln.eps, 1e-5);
    m.subln.eps = EPS;
    m
}

fn mla(form: MlaForm, query_latent: Option<usize>, rng: &mut Rng) -> MlaAttention<f64> {
    let sizes =
        MlaSizes { width: 4, heads: 2, query_latent, latent: 3, nope: 2, rope: 2, value: 3 };
    let mut m = MlaAttention::new(sizes, rng).with_eps(EPS);
    m.form = form;
    m
}

fn normalized(normalizer: Normalizer, rng: &mut Rng) -> NormalizedAttention<f64> {
    NormalizedAttention::new(small(rng), normalizer)
}

rows! { |m, x| m.forward(&x[0], Spec::new().causal(), &mut eval());
    rope_half, [[2, 3, 4]], |r| small(r).with_rope(Rope::new(2));
    rope_interleaved_grouped, [[2, 3, 4]], |r| {
        let rope = Rope::new(4).pairing(Pairing::Interleaved);
        rotated(HeadSizes::new(4, 2).key_heads(1), rope, r)
    };
    rope_partial_yarn, [[2, 3, 4]], |r| {
        let rope = Rope::new(4).scaling(Scaling::Yarn(Yarn::new(4.0, 16)));
        rotated(HeadSizes::new(4, 2), rope, r)
    };
    softcap, [[2, 3, 4]], |r| SoftcapAttention::new(small(r).with_rope(Rope::new(2)), 0.7);
    qk_l2, [[2, 3, 4]], |r| QkL2Attention::new(small(r), 3);
    qk_l2_rope, [[2, 3, 4]], |r| QkL2Attention::new(grouped(r).with_rope(Rope::new(2)), 3);
    qk_rms_norm, [[2, 3, 4]], |r| small(r).with_rope(Rope::new(2)).with_qk_norm(1e-6);
    sink, [[2, 3, 4]], |r| SinkAttention::new(grouped(r));
    quiet, [[2, 3, 4]], |r| QuietAttention::new(small(r));
    streaming, [[2, 3, 4]], |r| StreamingAttention::new(small(r), 1, 0);
    memory, [[2, 3, 4]], |r| MemoryAttention::new(small(r), 2, r);
    talking_heads, [[2, 3, 4]], |r| TalkingHeadsAttention::new(small(r));
    differential_one_head, [[2, 3, 4]], |r| differential(HeadSizes::new(4, 1), 1, None, r);
    differential_grouped_rope, [[2, 3, 4]], |r| {
        let sizes = HeadSizes::new(4, 2).head_width(4).key_heads(1);
        differential(sizes, 0, Some(Rope::new(2)), r)
    };
    mla_naive, [[2, 3, 4]], |r| mla(MlaForm::Naive, None, r);
    mla_naive_query_latent, [[2, 3, 4]], |r| mla(MlaForm::Naive, Some(3), r);
    mla_absorbed, [[2, 3, 4]], |r| mla(MlaForm::Absorbed, None, r);
    mla_absorbed_query_latent, [[2, 3, 4]], |r| mla(MlaForm::Absorbed, Some(3), r);
    gated, [[2, 3, 4]], |r| GatedAttention::new(small(r), r);
    head_scale, [[2, 3, 4]], |r| HeadScaleAttention::new(small(r));
    sigmoid, [[2, 3, 4]], |r| normalized(Normalizer::Sigmoid { bias: None }, r);
    sigmoid_bias, [[2, 3, 4]], |r| normalized(Normalizer::Sigmoid { bias: Some(-1.0) }, r);
    sparsemax, [[2, 3, 4]], |r| normalized(Normalizer::Sparsemax, r);
    entmax, [[2, 3, 4]], |r| normalized(Normalizer::Entmax15, r);
    top_k, [[2, 3, 4]], |r| normalized(Normalizer::TopK(2), r);
    linear, [[2, 3, 4]], |r| normalized(Normalizer::Linear, r);
}
rows! { |m, x| m.forward(&x[0], &x[1], &Spec::new().causal(), &mut eval());
    value_residual, [[2, 3, 4], [2, 2, 3, 2]], |r| ValueResidualAttention::new(small(r));
}
rows! { |m, x| m.forward(&x[0], &Spec::new().mask(Mask::lengths(&[3, 2])), &mut eval());
    pool, [[2, 3, 4]], |r| AttentionPool::new(grouped(r), 2, r);
}
rows! { |m, x| m.forward(&x[0], 0).square();
    learned_positions, [[2, 3, 4]], |r| LearnedPositions::new(3, 4, r);
}
rows! { |m, x| m.forward(&x[0], 7).square();
    sinusoidal_positions, [[2, 3, 5]], |_| SinusoidalPositions::default();
}

#[test]
fn row_state_rules() {
    fn rule<R: StateRule<f64> + Sync>(
        name: &str,
        build: impl Fn(StateSizes, &mut Rng) -> R + Sync,
    ) {
        let sizes = StateSizes { key_width: 2, ..StateSizes::new(4, 2) };
        let run = |rule: &R, x: &[Var<f64>]| rule.forward(&x[0], &mut eval());
        row(name, |rng| build(sizes, rng), &[&[2, 3, 4]], run);
    }
    rule("Retention, GatedProjections", Retention::new);
    rule("GatedLinearAttention, LowRank", GatedLinearAttention::new);
    rule("Mamba2", Mamba2::new);
    rule("DeltaNet, DeltaProjections", DeltaNet::new);
    rule("GatedDeltaNet", GatedDeltaNet::new);
    rule("KimiDeltaAttention", |sizes, rng| {
        let mut rule = KimiDeltaAttention::new(sizes, rng);
        rule.projections.o_norm.eps = EPS;
        rule
    });
    rule("Rwkv7", |sizes, rng| Rwkv7::new(sizes, (0, 2), rng));
    row(
        "ShortConv",
        |rng| ShortConv::new(3, 2, rng),
        &[&[2, 4, 3]],
        |conv, x| {
            let (mut pass, mut state, mut first) = (eval(), RecurrentState::default(), None);
            conv.forward(&x[0], &mut StateCx::new(&mut pass, &mut state, &mut first))
        },
    );
}
