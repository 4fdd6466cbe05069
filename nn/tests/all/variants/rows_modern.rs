//! The variants of recent language models.

use super::{grouped, row, small};
use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_tensor::random::Rng;

fn incremental<M: Incremental<f64> + Sync>(name: &str, build: impl Fn(&mut Rng) -> M + Sync) {
    row(name, build, &[&[2, 3, 4]], |m, x| m.forward(&x[0], Spec::new().causal(), &mut eval()));
}

/// The `eps` of norms. With a smaller one, the curvature at short vectors would be too large for finite
/// differences.
const EPS: f64 = 0.1;

fn mla_sizes(query_latent: Option<usize>) -> MlaSizes {
    MlaSizes { width: 4, heads: 2, query_latent, latent: 3, nope: 2, rope: 2, value: 3 }
}

#[test]
fn row_rope() {
    incremental("RoPE, half", |rng| small(rng).with_rope(Rope::new(2)));
    incremental("RoPE, interleaved, grouped", |rng| {
        let proj = Projections::new(HeadSizes::new(4, 2).key_heads(1).head_width(6), rng);
        proj.with_rope(Rope::new(4).pairing(Pairing::Interleaved))
    });
    incremental("RoPE, partial, YaRN", |rng| {
        let proj = Projections::new(HeadSizes::new(4, 2).head_width(6), rng);
        proj.with_rope(Rope::new(4).scaling(Scaling::Yarn(Yarn::new(4.0, 16))))
    });
}

#[test]
fn row_positions() {
    row(
        "LearnedPositions",
        |rng| LearnedPositions::new(3, 4, rng),
        &[&[2, 3, 4]],
        |m, x| m.forward(&x[0], 0).square(),
    );
    row(
        "SinusoidalPositions",
        |_| SinusoidalPositions::default(),
        &[&[2, 3, 5]],
        |m, x| m.forward(&x[0], 7).square(),
    );
}

#[test]
fn row_softcap_and_norms() {
    incremental("SoftcapAttention", |rng| {
        SoftcapAttention::new(small(rng).with_rope(Rope::new(2)), 0.7)
    });
    incremental("QkL2Attention", |rng| QkL2Attention::new(small(rng), 3));
    incremental("QkL2Attention, RoPE", |rng| {
        QkL2Attention::new(grouped(rng).with_rope(Rope::new(2)), 3)
    });
    incremental("QK RMS norm", |rng| small(rng).with_rope(Rope::new(2)).with_qk_norm(1e-6));
}

#[test]
fn row_sinks() {
    incremental("SinkAttention", |rng| SinkAttention::new(grouped(rng)));
    incremental("QuietAttention", |rng| QuietAttention::new(small(rng)));
    incremental("StreamingAttention", |rng| StreamingAttention::new(small(rng), 1, 0));
    incremental("MemoryAttention", |rng| MemoryAttention::new(small(rng), 2, rng));
}

#[test]
fn row_talking_heads() {
    incremental("TalkingHeadsAttention", |rng| TalkingHeadsAttention::new(small(rng)));
}

#[test]
fn row_differential() {
    incremental("DifferentialAttention", |rng| {
        let mut m = DifferentialAttention::new(HeadSizes::new(4, 1), 1, None, rng);
        assert_eq!(m.subln.eps, 1e-5);
        m.subln.eps = EPS;
        m
    });
    incremental("DifferentialAttention, grouped, RoPE", |rng| {
        let sizes = HeadSizes::new(4, 2).head_width(4).key_heads(1);
        let mut m = DifferentialAttention::new(sizes, 0, Some(Rope::new(2)), rng);
        m.subln.eps = EPS;
        m
    });
}

#[test]
fn row_mla() {
    for form in [MlaForm::Naive, MlaForm::Absorbed] {
        for query_latent in [None, Some(3)] {
            incremental(&format!("MlaAttention, {form:?}, {query_latent:?}"), |rng| {
                let mut m = MlaAttention::new(mla_sizes(query_latent), rng).with_eps(EPS);
                m.form = form;
                m
            });
        }
    }
}

#[test]
fn row_gated() {
    incremental("GatedAttention", |rng| GatedAttention::new(small(rng), rng));
    incremental("HeadScaleAttention", |rng| HeadScaleAttention::new(small(rng)));
    row(
        "ValueResidualAttention",
        |rng| ValueResidualAttention::new(small(rng)),
        &[&[2, 3, 4], &[2, 2, 3, 2]],
        |m, x| m.forward(&x[0], &x[1], &Spec::new().causal(), &mut eval()),
    );
}

#[test]
fn row_pooling() {
    row(
        "AttentionPool",
        |rng| AttentionPool::new(grouped(rng), 2, rng),
        &[&[2, 3, 4]],
        |m, x| m.forward(&x[0], &Spec::new().mask(Mask::lengths(&[3, 2])), &mut eval()),
    );
}

#[test]
fn row_normalizers() {
    for normalizer in [
        Normalizer::Sigmoid { bias: None },
        Normalizer::Sigmoid { bias: Some(-1.0) },
        Normalizer::Sparsemax,
        Normalizer::Entmax15,
        Normalizer::TopK(2),
        Normalizer::Linear,
    ] {
        incremental(&format!("NormalizedAttention, {normalizer:?}"), |rng| {
            NormalizedAttention::new(small(rng), normalizer)
        });
    }
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
