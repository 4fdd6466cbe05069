//! Causal attention does not depend on later tokens.

use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_nn::{CausalSelfAttention, GptConfig, Layer};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

/// Changing a token does not change one bit of the outputs before it, and gradients of outputs by later
/// inputs are exactly 0: the Jacobian is block lower triangular.
pub fn causality(t: &mut Table) {
    let rng = || Rng::new(1);
    let s = SelfAttention::new(4, 3, 2, &mut rng());
    let m = mha(4, 2);
    let w = MultiHeadWrapper::new(2, 4, 2, 2, &mut rng());
    let g = Projections::new(HeadSizes::new(4, 4).key_heads(2), &mut rng());
    let p = || Projections::new(HeadSizes::new(4, 2), &mut rng());
    let rope = p().with_rope(Rope::new(2));
    let alibi = AlibiAttention::causal(p());
    let xl = TransformerXlAttention::new(p(), &mut rng());
    let chunked = LinearAttention::new(p(), Reach::Causal, LinearForm::Chunked(3));
    let quadratic = LinearAttention::new(p(), Reach::Causal, LinearForm::Quadratic);
    let sparse = SparsePattern::Fixed { stride: 3, summary: 1 };
    let sparse = SparseTransformerAttention::new(p(), sparse, SparseMerge::Heads, 0);
    let longformer = LongformerAttention::new(p(), &[1, 2], 1).causal();
    let config = GptConfig { width: 4, ..config() };
    let gpt = CausalSelfAttention::new(&config, &mut rng());
    let t5 = T5Attention::decoder(4, 2, &mut rng());
    let shaw = ShawAttention::new(p(), 3, &mut rng());
    let recurrent = LinearAttention::new(p(), Reach::Causal, LinearForm::Recurrent);
    let strided = SparsePattern::Strided { stride: 12 };
    let strided = SparseTransformerAttention::new(p(), strided, SparseMerge::Union, 0);
    let layout = BigBirdLayout { block: 16, neighbours: 1, global: 1, random: 1, seed: 3 };
    let big_bird = BigBirdAttention::new(p(), layout);
    let prefix = PrefixLmAttention::new(p());
    let residual = ValueResidualAttention::new(p());
    let residual = |x: &Var<f64>| {
        let first = residual.projections.values(x, &mut eval());
        residual.forward(x, &first, &Spec::new().causal(), &mut eval())
    };
    let local = ChunkedLocalAttention::new(p(), 40);
    let packed = PackedAttention::new(p());
    let documents = |x: &Var<f64>| {
        let l = x.size(1);
        packed.forward(x, &Packed::new(&[l / 3, l - l / 3]), Mask::full(), &mut eval())
    };
    type Run<'a> = &'a dyn Fn(&Var<f64>) -> Var<f64>;
    let runs: [(&str, Run<'_>); 21] = [
        ("nanoGPT's", &|x| gpt.forward(x, &mut eval())),
        ("T5", &|x| t5.forward(x, Spec::new(), &mut eval())),
        ("Shaw", &|x| shaw.attend(x, Mask::causal(), &mut eval())),
        ("prefix of 0", &|x| prefix.forward(x, &[0], Mask::full(), &mut eval())),
        ("BigBird", &|x| big_bird.forward(x, Mask::causal(), &mut eval())),
        ("value residual", &residual),
        ("chunked local", &|x| local.forward(x, Spec::new(), &mut eval())),
        ("packed", &documents),
        ("self-attention", &|x| s.forward(x, Mask::causal(), &mut eval())),
        ("multi-head", &|x| m.forward(x, x, x, Mask::causal(), &mut eval())),
        ("wrapper", &|x| w.forward(x, Mask::causal(), &mut eval())),
        ("grouped", &|x| g.forward(x, Mask::causal(), &mut eval())),
        ("RoPE", &|x| rope.forward(x, Spec::new().causal(), &mut eval())),
        ("ALiBi", &|x| alibi.forward(x, Spec::new(), &mut eval())),
        ("Transformer-XL", &|x| xl.forward(x, None, Mask::full(), &mut eval())),
        ("linear, at once", &|x| quadratic.forward(x, &mut eval())),
        ("linear, in chunks", &|x| chunked.forward(x, &mut eval())),
        ("linear, by a state", &|x| recurrent.forward(x, &mut eval())),
        ("Sparse Transformer, fixed", &|x| sparse.forward(x, Mask::full(), &mut eval())),
        ("Sparse Transformer, strided", &|x| strided.forward(x, Mask::full(), &mut eval())),
        ("Longformer", &|x| longformer.forward(x, &[0, 3], Mask::full(), &mut eval())),
    ];
    for (name, run) in runs {
        let statement = format!("causal: outputs before t do not depend on t, {name}");
        independent(t, &statement, run, &[5.0, 1e30, f64::NAN]);
    }
    incremental(t);

    let talking = TalkingHeadsAttention::new(uneven());
    talking.score_mix.set(randn(&[4, 4], 20));
    talking.weight_mix.set(randn(&[4, 4], 21));
    let wide = Tensor::eye(8).narrow(0, 0, 4);
    independent(
        t,
        "causal: outputs before t do not depend on t, talking heads",
        &|x| {
            let x = x.matmul(&Var::constant(wide.clone()));
            talking.forward(&x, Spec::new().causal(), &mut eval())
        },
        &[5.0, 9.0, 1e30, f64::NAN],
    );
}

/// The variants that support caches.
fn incremental(t: &mut Table) {
    let rng = || Rng::new(1);
    let p = || Projections::new(HeadSizes::new(4, 2), &mut rng());
    let sizes =
        MlaSizes { width: 4, heads: 2, query_latent: None, latent: 3, nope: 2, rope: 2, value: 3 };
    let mla = |form| {
        let mut m = MlaAttention::new(sizes, &mut rng());
        m.form = form;
        m
    };
    let [naive, absorbed] = [MlaForm::Naive, MlaForm::Absorbed].map(mla);
    let differential =
        DifferentialAttention::new(HeadSizes::new(4, 1), 1, Some(Rope::new(2)), &mut rng());
    let normalizers = [
        Normalizer::Sigmoid { bias: None },
        Normalizer::Sparsemax,
        Normalizer::Entmax15,
        Normalizer::TopK(3),
        Normalizer::Linear,
    ];
    let normalized = normalizers.map(|n| NormalizedAttention::new(p(), n));
    let softcap = SoftcapAttention::new(p(), 0.7);
    let (l2, rms) = (QkL2Attention::new(p(), 9), p().with_qk_norm(1e-6));
    let (sinks, quiet) = (SinkAttention::new(p()), QuietAttention::new(p()));
    let streaming = StreamingAttention::new(p(), 2, 70);
    let (gated, scaled) = (GatedAttention::new(p(), &mut rng()), HeadScaleAttention::new(p()));
    let memory = MemoryAttention::new(p(), 2, &mut rng());
    let mut all: Vec<(String, &dyn Incremental<f64>)> = vec![
        ("MLA, naive".into(), &naive),
        ("MLA, absorbed".into(), &absorbed),
        ("differential".into(), &differential),
        ("softcap".into(), &softcap),
        ("QK L2".into(), &l2),
        ("QK RMS".into(), &rms),
        ("sinks".into(), &sinks),
        ("off by one".into(), &quiet),
        ("streaming".into(), &streaming),
        ("gated".into(), &gated),
        ("head scale".into(), &scaled),
        ("memory".into(), &memory),
    ];
    for m in &normalized {
        all.push((format!("{:?}", m.normalizer), m));
    }
    for (name, m) in all {
        let statement = format!("causal: outputs before t do not depend on t, {name}");
        let spec = Spec::new().causal();
        let run = |x: &Var<f64>| m.forward_dyn(x, &spec, &mut eval());
        independent(t, &statement, &run, &[5.0, 1e30, f64::NAN]);
    }
}

/// Checks a short sequence at every token, and one of several tiles at their boundaries.
fn independent(t: &mut Table, statement: &str, run: &dyn Fn(&Var<f64>) -> Var<f64>, with: &[f64]) {
    independent_at(t, statement, run, with, 7, &[0, 1, 2, 3, 4, 5, 6]);
    independent_at(t, statement, run, with, 140, &[1, 31, 63, 64, 65, 128, 139]);
}

fn independent_at(
    t: &mut Table,
    statement: &str,
    run: &dyn Fn(&Var<f64>) -> Var<f64>,
    with: &[f64],
    length: usize,
    places: &[usize],
) {
    let x = randn(&[2, length, 4], 1);
    let y = run(&Var::constant(x.clone())).into_value();
    for &at in places {
        // The gradient of all outputs before `at` by all inputs from `at` on.
        let leaf = Var::leaf(x.clone());
        let g = run(&leaf).narrow(1, 0, at).sum(..).backward();
        let late = g.get(&leaf).expect("a gradient").narrow(1, at, length - at);
        let late = Worst::between(&late, &Tensor::zeros(late.shape()));
        for &with in with {
            let mut changed = x.clone();
            for sequence in 0..2 {
                let row = 4 * (length * sequence + at);
                changed.make_mut()[row..row + 4].fill(with);
            }
            let changed = run(&Var::constant(changed)).into_value();
            let (before, after) = (y.narrow(1, 0, at), changed.narrow(1, 0, at));
            let same = bits(&before) == bits(&after);
            t.case(format!("t = {at}, {with}")).exact();
            t.push(statement, Worst::between(&after, &before), Some(late), same);
        }
    }
}
