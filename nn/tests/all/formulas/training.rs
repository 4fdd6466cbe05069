//! Dropout of the weights.

use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_nn::{Dropout, Layer, Pass};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

#[test]
fn dropout_is_a_function_of_the_pass_and_keeps_the_mean() {
    let x = leaf(&[2, 5, 4], 1);
    let s = SelfAttention::new(4, 3, 2, &mut Rng::new(1)).dropout(0.4);
    let a = s.forward(&x, Mask::causal(), &mut Pass::train(1));
    assert_ne!(
        s.forward(&x, Mask::causal(), &mut Pass::train(2)).value().to_vec(),
        a.value().to_vec()
    );
    assert_eq!(
        s.forward(&x, Mask::causal(), &mut Pass::train(1)).value().to_vec(),
        a.value().to_vec()
    );

    let all = SelfAttention::new(4, 3, 2, &mut Rng::new(1)).dropout(1.0);
    let y = all.forward(&x, Mask::full(), &mut Pass::train(1));
    assert!(y.value().to_vec().iter().all(|&y| y == 0.0));

    // The mean over passes is the output without dropout.
    let s = SelfAttention::new(4, 3, 2, &mut Rng::new(1)).dropout(0.4);
    let dry = s.forward(&x, Mask::full(), &mut eval()).into_value();
    let n = 4000;
    let mut sum = Tensor::zeros(dry.shape());
    for seed in 0..n {
        sum = &sum + s.forward(&x, Mask::full(), &mut Pass::train(seed)).value();
    }
    let mean = sum.mul_scalar(1.0 / n as f64);
    close(&format!("mean of {n} passes with dropout 0.4 = none"), 0.06, &mean, &dry);
}

/// Every variant applies the dropout of its projections, in training only.
#[test]
fn dropout_of_projections_applies_in_every_variant() {
    let build = |p: f64| {
        let mut projections = Projections::new(HeadSizes::new(8, 4), &mut Rng::new(1));
        projections.dropout = Dropout::new(p);
        projections
    };
    let rng = || Rng::new(2);
    let spec = Spec::new;
    type Run<'a> = &'a dyn Fn(Projections<f64>, &Var<f64>, &mut Pass) -> Var<f64>;
    let pattern = SparsePattern::Strided { stride: 2 };
    let layout = BigBirdLayout { block: 2, neighbours: 1, global: 1, random: 0, seed: 1 };
    let runs: [(&str, Run<'_>); 22] = [
        ("ALiBi", &|p, x, pass| AlibiAttention::causal(p).forward(x, Spec::new(), pass)),
        ("BigBird", &|p, x, pass| BigBirdAttention::new(p, layout).forward(x, spec(), pass)),
        ("chunked", &|p, x, pass| ChunkedLocalAttention::new(p, 3).forward(x, Spec::new(), pass)),
        ("Longformer", &|p, x, pass| {
            LongformerAttention::new(p, &[1; 4], 2).forward(x, &[1], spec(), pass)
        }),
        ("packed", &|p, x, pass| {
            let x = x.select(0, 0);
            PackedAttention::new(p).forward(&x, &Packed::new(&[2, 4]), spec(), pass)
        }),
        ("prefix", &|p, x, pass| PrefixLmAttention::new(p).forward(x, &[2], spec(), pass)),
        ("Shaw", &|p, x, pass| ShawAttention::new(p, 2, &mut rng()).forward(x, pass)),
        ("sparse", &|p, x, pass| {
            let m = SparseTransformerAttention::new(p, pattern, SparseMerge::Union, 0);
            m.forward(x, spec(), pass)
        }),
        ("Transformer-XL", &|p, x, pass| {
            TransformerXlAttention::new(p, &mut rng()).forward(x, None, spec(), pass)
        }),
        ("pooling", &|p, x, pass| AttentionPool::new(p, 2, &mut rng()).forward(x, &spec(), pass)),
        ("RoPE", &|p, x, pass| p.with_rope(Rope::new(2)).forward(x, spec(), pass)),
        ("sinks", &|p, x, pass| SinkAttention::new(p).forward(x, spec(), pass)),
        ("streaming", &|p, x, pass| StreamingAttention::new(p, 1, 2).forward(x, spec(), pass)),
        ("softcap", &|p, x, pass| SoftcapAttention::new(p, 3.0).forward(x, spec(), pass)),
        ("talking heads", &|p, x, pass| TalkingHeadsAttention::new(p).forward(x, spec(), pass)),
        ("gated", &|p, x, pass| GatedAttention::new(p, &mut rng()).forward(x, spec(), pass)),
        ("memory", &|p, x, pass| MemoryAttention::new(p, 2, &mut rng()).forward(x, spec(), pass)),
        ("QK L2", &|p, x, pass| QkL2Attention::new(p, 6).forward(x, spec(), pass)),
        ("QK RMS", &|p, x, pass| p.with_qk_norm(1e-6).forward(x, spec(), pass)),
        ("head scale", &|p, x, pass| HeadScaleAttention::new(p).forward(x, spec(), pass)),
        ("value residual", &|p, x, pass| {
            let first = p.values(x, &mut eval());
            ValueResidualAttention::new(p).forward(x, &first, &spec(), pass)
        }),
        ("differential", &|p, x, pass| {
            let sizes = HeadSizes::new(8, 2);
            let mut m = DifferentialAttention::new(sizes, 0, None, &mut rng());
            m.projections.dropout = p.dropout;
            m.forward(x, spec(), pass)
        }),
    ];
    let x = constant(&[2, 6, 8], 3);
    for (name, run) in runs {
        let of = |p: f64, mut pass: Pass| run(build(p), &x, &mut pass).into_value().to_vec();
        let dry = of(0.0, Pass::train(1));
        assert_eq!(of(0.5, Pass::eval()), dry, "{name}: dropout in evaluation");
        assert_ne!(of(0.5, Pass::train(1)), dry, "{name}: no dropout in training");
        let nothing = of(1.0, Pass::train(1));
        assert!(nothing.iter().all(|&y| y == 0.0), "{name}: with dropout 1, the output is not 0");
    }
}
