//! The attention variants that are made of projections, as functions.

use super::{eval, randn};
use retrograd_autograd::Var;
use retrograd_nn::Pass;
use retrograd_nn::attention::*;
use retrograd_tensor::random::Rng;

/// The forward pass of a variant with these projections, of width 8 in 4 heads, from `[B, L, 8]` to `[B, L, 8]`.
pub type Variant = fn(Projections<f64>, &Var<f64>, Spec<f64>, &mut Pass) -> Var<f64>;

/// Variants that are causal without a causal spec.
pub const CAUSAL: [(&str, Variant); 8] = [
    ("ALiBi", |p, x, spec, pass| AlibiAttention::causal(p).forward(x, spec, pass)),
    ("chunked local", |p, x, spec, pass| ChunkedLocalAttention::new(p, 3).forward(x, spec, pass)),
    ("packed", |p, x, spec, pass| {
        let l = x.size(1);
        PackedAttention::new(p).forward(x, &Packed::new(&[l / 3, l - l / 3]), spec, pass)
    }),
    ("prefix of 0", |p, x, spec, pass| PrefixLmAttention::new(p).forward(x, &[0], spec, pass)),
    ("Sparse Transformer, fixed", |p, x, spec, pass| {
        let pattern = SparsePattern::Fixed { stride: 3, summary: 1 };
        let m = SparseTransformerAttention::new(p, pattern, SparseMerge::Heads, 0);
        m.forward(x, spec, pass)
    }),
    ("Sparse Transformer, strided", |p, x, spec, pass| {
        let pattern = SparsePattern::Strided { stride: 2 };
        let m = SparseTransformerAttention::new(p, pattern, SparseMerge::Union, 0);
        m.forward(x, spec, pass)
    }),
    ("Transformer-XL", |p, x, spec, pass| {
        TransformerXlAttention::new(p, &mut Rng::new(5)).forward(x, None, spec, pass)
    }),
    ("Longformer, causal", |p, x, spec, pass| {
        longformer(LongformerAttention::new(p, &[1, 1, 2, 2], 1).causal(), x, spec, pass)
    }),
];

/// Variants that are causal with a causal spec.
pub const MASKED: [(&str, Variant); 21] = [
    ("plain", |p, x, spec, pass| p.forward(x, spec, pass)),
    ("RoPE", |p, x, spec, pass| p.with_rope(Rope::new(2)).forward(x, spec, pass)),
    ("BigBird", |p, x, spec, pass| {
        let layout = BigBirdLayout { block: 2, neighbours: 1, global: 1, random: 1, seed: 4 };
        BigBirdAttention::new(p, layout).forward(x, spec, pass)
    }),
    ("Shaw", |p, x, spec, pass| ShawAttention::new(p, 2, &mut Rng::new(5)).attend(x, spec, pass)),
    ("softcap", |p, x, spec, pass| SoftcapAttention::new(p, 0.7).forward(x, spec, pass)),
    ("QK L2", |p, x, spec, pass| QkL2Attention::new(p, 9).forward(x, spec, pass)),
    ("QK RMS", |p, x, spec, pass| p.with_qk_norm(1e-6).forward(x, spec, pass)),
    ("sinks", |p, x, spec, pass| SinkAttention::new(p).forward(x, spec, pass)),
    ("off by one", |p, x, spec, pass| QuietAttention::new(p).forward(x, spec, pass)),
    ("streaming", |p, x, spec, pass| StreamingAttention::new(p, 1, 2).forward(x, spec, pass)),
    ("gated", |p, x, spec, pass| GatedAttention::new(p, &mut Rng::new(5)).forward(x, spec, pass)),
    ("head scale", |p, x, spec, pass| HeadScaleAttention::new(p).forward(x, spec, pass)),
    ("memory", |p, x, spec, pass| {
        MemoryAttention::new(p, 2, &mut Rng::new(5)).forward(x, spec, pass)
    }),
    ("value residual", |p, x, spec, pass| {
        let first = p.values(x, &mut eval());
        ValueResidualAttention::new(p).forward(x, &first, &spec, pass)
    }),
    ("talking heads", |p, x, spec, pass| {
        let m = TalkingHeadsAttention::new(p);
        m.score_mix.set(randn(&[4, 4], 20));
        m.weight_mix.set(randn(&[4, 4], 21));
        m.forward(x, spec, pass)
    }),
    ("differential", |p, x, spec, pass| {
        let (sizes, rope) = (HeadSizes::new(8, 2), Some(Rope::new(2)));
        let mut m = DifferentialAttention::new(sizes, 1, rope, &mut Rng::new(5));
        m.projections.dropout = p.dropout;
        m.forward(x, spec, pass)
    }),
    ("sigmoid", |p, x, s, pass| normalized(p, Normalizer::Sigmoid { bias: None }, x, s, pass)),
    ("sparsemax", |p, x, spec, pass| normalized(p, Normalizer::Sparsemax, x, spec, pass)),
    ("1.5-entmax", |p, x, spec, pass| normalized(p, Normalizer::Entmax15, x, spec, pass)),
    ("top-k", |p, x, spec, pass| normalized(p, Normalizer::TopK(3), x, spec, pass)),
    ("linear", |p, x, spec, pass| normalized(p, Normalizer::Linear, x, spec, pass)),
];

/// Variants that attend to later tokens, whatever the spec.
pub const NOT_CAUSAL: [(&str, Variant); 2] = [
    ("prefix of 2", |p, x, spec, pass| PrefixLmAttention::new(p).forward(x, &[2], spec, pass)),
    ("Longformer", |p, x, spec, pass| {
        longformer(LongformerAttention::new(p, &[1, 1, 2, 2], 1), x, spec, pass)
    }),
];

/// Causal linear attention, which has no spec.
pub const LINEAR: [(&str, Variant); 3] = [
    ("linear, at once", |p, x, _, pass| linear(p, LinearForm::Quadratic, x, pass)),
    ("linear, by a state", |p, x, _, pass| linear(p, LinearForm::Recurrent, x, pass)),
    ("linear, in chunks", |p, x, _, pass| linear(p, LinearForm::Chunked(3), x, pass)),
];

/// With two global tokens, if there are.
fn longformer(
    m: LongformerAttention<f64>,
    x: &Var<f64>,
    spec: Spec<f64>,
    pass: &mut Pass,
) -> Var<f64> {
    let global: &[usize] = if x.size(1) > 3 { &[0, 3] } else { &[] };
    m.forward(x, global, spec, pass)
}

fn normalized(
    p: Projections<f64>,
    by: Normalizer,
    x: &Var<f64>,
    spec: Spec<f64>,
    pass: &mut Pass,
) -> Var<f64> {
    NormalizedAttention::new(p, by).forward(x, spec, pass)
}

fn linear(p: Projections<f64>, form: LinearForm, x: &Var<f64>, pass: &mut Pass) -> Var<f64> {
    use retrograd_nn::Layer;
    LinearAttention::new(p, Reach::Causal, form).forward(x, pass)
}
