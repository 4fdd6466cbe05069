//! Invalid arguments of modules: the message of the panic, and that its location is the caller's line, not one of the
//! library.

use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_nn::init::Init;
use retrograd_nn::{Dropout, Layer, LayerNorm, Module, Pass, RmsNorm};
use retrograd_support::panics_with;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

fn rng() -> Rng {
    Rng::new(1)
}

fn heads(width: usize, heads: usize) -> Projections<f64> {
    Projections::new(HeadSizes::new(width, heads), &mut rng())
}

fn p() -> Projections<f64> {
    heads(8, 2)
}

fn x(shape: &[usize]) -> Var<f64> {
    constant(shape, 1)
}

fn s() -> Spec<f64> {
    Spec::new()
}

/// A value after a change.
fn with<M>(mut m: M, change: impl FnOnce(&mut M)) -> M {
    change(&mut m);
    m
}

#[track_caller]
fn qkv(spec: Spec<f64>) -> Var<f64> {
    let x = x(&[2, 5, 4]);
    attend(&x, &x, &x, &spec)
}

#[test]
fn sizes_of_heads_are_checked() {
    let config = MultiHeadConfig::new(8, 4);
    let multi_head = |config: &MultiHeadConfig| MultiHeadAttention::<f64>::new(config, &mut rng());
    panics_with! {
        heads(7, 2) => "2 heads do not divide a width of 7";
        HeadSizes::new(10, 3) => "3 heads do not divide a width of 10";
        HeadSizes::new(12, 6).key_heads(4) => "6 query heads are not a multiple of 4 key heads";
        HeadSizes::new(12, 0) => "0 heads";
        multi_head(&MultiHeadConfig::new(6, 4)) => "4 heads do not divide a width of 6";
        multi_head(&MultiHeadConfig::new(6, 0)) => "0 heads do not divide a width of 6";
        mha(8, 4).grouped(3) => "4 query heads are not a multiple of 3 key heads";
        multi_head(&MultiHeadConfig { key_width: 5, ..config }).grouped(2) =>
            "keys of width 5 and values of width 8 for queries of 8";
        MultiHeadWrapper::<f64>::new(0, 4, 2, 2, &mut rng()) => "at least 1 head";
        DifferentialAttention::<f64>::new(HeadSizes::new(6, 2), 0, None, &mut rng()) =>
            "a head of width 3 is odd";
        LongformerAttention::new(p(), &[1, 1, 2], 1) => "3 dilations for 2 heads";
        LongformerAttention::new(p().with_qk_norm(1e-5), &[1, 1], 1) =>
            "no QK-norm of the projections here: the global projections have none";
    }
}

#[test]
fn shapes_of_inputs_are_checked() {
    let m = mha(4, 2);
    let run =
        |q: &Var<f64>, k: &Var<f64>, v: &Var<f64>, mask| m.forward(q, k, v, mask, &mut eval());
    let (x5, wide, long) = (x(&[2, 5, 4]), x(&[2, 5, 3]), x(&[2, 6, 4]));
    let (more, deep) = (x(&[3, 5, 4]), x(&[1, 2, 5, 4]));
    let same = |mask| run(&x5, &x5, &x5, mask);
    let longformer = LongformerAttention::new(heads(4, 1), &[1], 2);
    let packed = PackedAttention::new(heads(4, 1));
    let location =
        LuongAttention::<f64, _>::new(LuongLocation::new(4, 3, &mut rng()), 4, 4, &mut rng());
    let single = SelfAttention::new(4, 3, 2, &mut rng());
    let renormalized = RenormalizedSelfAttention::new(4, 3, 2, &mut rng());
    let small = Mask::keep_pairs(&Tensor::ones([4, 4]));
    let prefix = PrefixLmAttention::new(p());
    let positions = LearnedPositions::<f64>::new(4, 8, &mut rng());
    panics_with! {
        run(&x5, &wide, &x5, Mask::full()) =>
            "key must be [length, 4] or [batch, length, 4], got [2, 5, 3]";
        run(&x5, &x5, &long, Mask::full()) => "k and v have different lengths";
        run(&x5, &more, &more, Mask::full()) => "batch sizes differ";
        same(Mask::keep_pairs(&Tensor::ones([5, 4]))) =>
            "[1, 1, 5, 4] does not broadcast to [2, 2, 5, 5]";
        same(Mask::lengths(&[6, 1])) => "a length of 6 for 5 keys";
        same(Mask::lengths(&[1, 2, 3])) => "3 lengths for a batch of 2";
        run(&deep, &deep, &deep, Mask::full()) => "got [1, 2, 5, 4]";
        single.forward(&wide, Mask::full(), &mut eval()) => "linear";
        renormalized.forward(&x5, &small, &mut eval()) => "does not broadcast to [2, 1, 5, 5]";
        longformer.forward(&x(&[5, 4]), &[5], Mask::full(), &mut eval()) =>
            "global token 5 in a sequence of 5";
        packed.forward(&x(&[5, 4]), &Packed::new(&[2, 2]), Mask::full(), &mut eval()) =>
            "5 tokens for documents of 4";
        Packed::from_cu_seqlens(&[0, 4, 3]) => "[0, 4, 3]";
        location.context(&x(&[2, 4]), &x(&[5, 4]), Mask::full()) =>
            "a source of 5 positions, made for 3";
        prefix.forward(&x(&[1, 1, 3, 8]), &[1], Mask::full(), &mut eval()) =>
            "[length, width] or [batch, length, width], got [1, 1, 3, 8]";
        positions.forward(&x(&[3, 8]), 2) => "2 to 5 are beyond the context of 4";
        positions.forward_at(&x(&[2, 8]), &Tensor::from([0i64, 4])) =>
            "4 is beyond the context of 4";
    }
    let state = mha(4, 2).state_dict();
    let config = MultiHeadConfig { value_width: 3, ..MultiHeadConfig::new(4, 2) };
    let error = MultiHeadAttention::new(&config, &mut rng()).load_state_dict(&state).unwrap_err();
    assert_eq!(error.missing, ["q_proj_weight", "k_proj_weight", "v_proj_weight"]);
    assert_eq!(error.unexpected, ["in_proj_weight"]);
}

#[test]
fn parts_of_a_spec_are_checked() {
    let buckets = Buckets { count: 8, max_distance: 16, bidirectional: true };
    let near = Buckets { max_distance: 2, ..buckets };
    let table = |shape: &[usize], buckets| Rule::buckets(x(shape), buckets);
    let few = "8 buckets require a max_distance above 2, got 2";
    let later = |mask| qkv(Spec::from(mask).align(Align::Offset(2)));
    // With memory keys, too.
    let config = MultiHeadConfig { zero_attn: true, ..MultiHeadConfig::new(4, 2) };
    let zero_attn = MultiHeadAttention::<f64>::new(&config, &mut rng());
    let memory = MemoryAttention::new(heads(4, 2), 2, &mut rng());
    let (alibi, q) = (s().bias(Bias::alibi(3)), x(&[5, 4]));
    panics_with! {
        qkv(alibi.clone()) => "3 slopes, 2 heads";
        zero_attn.forward(&q, &q, &q, alibi.clone(), &mut eval()) => "3 slopes, 2 heads";
        memory.forward(&q, &alibi, &mut eval()) => "3 slopes, 2 heads";
        qkv(s().bias(Bias::Additive(x(&[5, 4])))) => "[5, 4] does not broadcast to [1, 2, 5, 5]";
        qkv(s().mask(Mask::by_head(vec![Mask::full()]))) => "masks for 1 heads, of 2";
        table(&[8, 2], buckets) => "a table of 8 buckets must be [H, 8], got [8, 2]";
        qkv(s().rule(table(&[3, 8], buckets))) =>
            "bias: s + a: operand 1 by distance [3, 8] for 1 sequences, 2 heads";
        qkv(s().rule(Rule::slopes(x(&[3])))) =>
            "slope of distance: s − a · |i − j|: operand 1 by head [3]";
        qkv(s().rule(Rule::gaussian(x(&[5]), x(&[2, 4])))) => "operand 2 by query [2, 4]";
        qkv(s().rule(Rule::contextual(x(&[5, 0])))) => "operand 1 by query [5, 0]";
        qkv(s().rule(Rule::relative_values(x(&[2, 7]), |_| 0))) => "values of width 4";
        qkv(s().rule(Rule::relative_products(x(&[5, 3]), x(&[2, 4]), |_| 0))) => "operand 2 by";
        qkv(s().rule(Rule::relative_values(x(&[2, 4]), |_| 2))) =>
            "relative values: v + r: index 2 for the distance -4 from query to key, of 2 values";
        table(&[2, 8], near) => few;
        T5Attention::<f64>::with_buckets(4, 2, near, &mut rng()) => few;
        SparsePattern::Fixed { stride: 3, summary: 4 }.far() => "a summary of 4 in blocks of 3";
        Mask::dilated(0) => "a dilation must be at least 1, got 0";
        Mask::chunks(0) => "chunks must hold at least 1 position, got 0";
        Mask::last_of_each(0, 0) => "the last 0 keys of every block of 0";
        Mask::last_of_each(3, 2) => "the last 3 keys of every block of 2";
        Mask::blocks(0, &Tensor::ones([5, 5])) => "blocks must hold at least 1 position";
        Mask::blocks(1, &Tensor::ones([5])) => "must be [nq, nk] or [H, nq, nk], got [5]";
        Mask::documents(&Tensor::zeros([5])) => "must be [batch, length], got [5]";
        later(Mask::blocks(2, &Tensor::ones([3, 3]))) => "3 blocks of 2 for 7 queries";
        later(Mask::documents(&Tensor::zeros([1, 6]))) => "ids [1, 6] for 7 positions";
    }
    for (why, mask) in [
        // Without the error, queries beyond the layout or the ids would be fully masked.
        ("2 blocks of 2 for 5 queries", Mask::blocks(2, &Tensor::ones([2, 3]))),
        ("2 blocks of 2 for 5 keys", Mask::blocks(2, &Tensor::ones([3, 2]))),
    ] {
        panics_with! {
            qkv(Spec::from(mask.clone())) => why;
            qkv(Spec::from(!(Mask::full() | mask.clone()))) => why;
        }
    }
    let no_softmax =
        [Normalizer::Sparsemax, Normalizer::TopK(1), Normalizer::Sigmoid { bias: None }];
    for n in no_softmax {
        panics_with! {
            qkv(s().normalizer(n).sink(Sink::Zero)) => "a sink requires the normalizer Softmax";
        }
    }
}

/// Parts of a spec that a variant sets itself.
#[test]
fn parts_of_the_variant_are_rejected_in_the_spec() {
    let (x, pass, r) = (x(&[5, 8]), || eval(), &mut rng());
    let eye = Some(Var::constant(Tensor::eye(2)));
    let top = || s().align(Align::Offset(1));
    let luong = LuongAttention::new(LuongDot, 8, 8, r);
    let xl = TransformerXlAttention::new(p(), r);
    let top_k = NormalizedAttention::new(p(), Normalizer::TopK(2));
    let linear = NormalizedAttention::new(p(), Normalizer::Linear);
    let no_linear =
        "the normalizer Linear cannot be combined with a scale, softcap, bias, rule or mix";
    panics_with! {
        SoftcapAttention::new(p(), 3.0).forward(&x, s().softcap(2.0), &mut pass()) =>
            "SoftcapAttention: a softcap in the spec";
        SinkAttention::new(p()).forward(&x, s().sink(Sink::Zero), &mut pass()) =>
            "SinkAttention: a sink in the spec";
        QuietAttention::new(p()).forward(&x, s().sink(Sink::Zero), &mut pass()) =>
            "QuietAttention: a sink in the spec";
        top_k.forward(&x, s().normalizer(Normalizer::Sparsemax), &mut pass()) =>
            "NormalizedAttention: a normalizer in the spec";
        TalkingHeadsAttention::new(p()).forward(&x, s().mix_heads(None, eye), &mut pass()) =>
            "TalkingHeadsAttention: mixed heads in the spec";
        LuongLocalM::new(luong.clone(), 2).forward(&x, &x, top(), &mut pass()) =>
            "LuongLocalM: an alignment in the spec";
        xl.forward(&x, None, top(), &mut pass()) =>
            "TransformerXlAttention: an alignment in the spec";
        linear.forward(&x, s().scale(1.0), &mut pass()) => no_linear;
        linear.forward(&x, s().softcap(1.0), &mut pass()) => no_linear;
        linear.forward(&x, s().bias(Bias::alibi(2)), &mut pass()) => no_linear;
    }
    assert_panics("the tiled path cannot: a variant adds to the scores", || {
        luong.context(&x, &x, s().path(Path::Tiled))
    });
}

/// Options of projections that a variant does not support are rejected by its constructor, and by
/// its forward pass if they are set later.
#[test]
fn unsupported_options_of_projections_are_rejected() {
    let rotated = || p().with_rope(Rope::new(2));
    let dropping = || with(p(), |p| p.dropout = Dropout::new(0.1));
    let (x, pass) = (x(&[3, 8]), || eval());
    let linear = |p| LinearAttention::new(p, Reach::Causal, LinearForm::Recurrent);
    let shaw = with(ShawAttention::new(p(), 2, &mut rng()), |m| m.projections = rotated());
    let xl = with(TransformerXlAttention::new(p(), &mut rng()), |m| m.projections = rotated());
    let pool = with(AttentionPool::new(p(), 2, &mut rng()), |m| m.projections = rotated());
    let spec = s().dropout(0.2, &mut Pass::train(1));
    panics_with! {
        ShawAttention::new(rotated(), 2, &mut rng()) => "ShawAttention: no rotary positions";
        shaw.forward(&x, &mut pass()) => "ShawAttention: no rotary positions";
        TransformerXlAttention::new(rotated(), &mut rng()) =>
            "TransformerXlAttention: no rotary positions";
        xl.forward(&x, None, Mask::full(), &mut pass()) =>
            "TransformerXlAttention: no rotary positions";
        linear(rotated()) => "LinearAttention: no rotary positions";
        linear(dropping()) => "a dropout of 0.1, and no weights to drop";
        with(linear(p()), |m| m.projections = dropping()).forward(&x, &mut pass()) =>
            "a dropout of 0.1, and no weights to drop";
        with(linear(p()), |m| m.projections = rotated()).step(&x, &mut None, &mut pass()) =>
            "a state has no position";
        AttentionPool::new(uneven().with_rope(Rope::new(2)), 2, &mut rng()) => "no positions";
        pool.forward(&x, &s(), &mut pass()) => "latents have no positions";
        PrefixLmAttention::new(dropping()).forward(&x, &[1], &spec, &mut pass()) =>
            "dropout by the spec, and of 0.1 by the module";
    }
    // Dropout of the spec alone is applied.
    let m = PrefixLmAttention::new(p());
    let run = |spec: &Spec<f64>| m.forward(&x, &[1], spec, &mut pass()).into_value().to_vec();
    assert_ne!(run(&spec), run(&s()));
}

#[test]
fn caches_check_what_continues_them() {
    let m = uneven();
    let mut cache = KvCache::new(4);
    let mut step =
        |n: usize, batch: usize| m.forward_cached(&x(&[batch, n, 8]), &s().causal(), &mut cache);
    step(3, 2);
    assert_panics("2 more tokens after 3 exceed the capacity of 4", || step(2, 2));
    assert_panics("keys [3, 2, 1, 6] do not continue [2, 2, 1, 6]", || step(1, 3));
    step(1, 2);
    let cached = |spec: Spec<f64>| {
        let mut cache = KvCache::sliding(1);
        let mut step = || drop(m.forward_cached(&x(&[2, 8]), &spec, &mut cache));
        step();
        step();
    };
    let mut sliding = KvCache::<f64>::sliding(1);
    for _ in 0..2 {
        sliding.append(&randn(&[1, 2, 1], 1), &randn(&[1, 2, 1], 1));
    }
    let pairs = |keys| Spec::from(Mask::keep_pairs(&Tensor::ones([2, keys])));
    let by_number = "per key does not fit a cache that has dropped keys";
    assert_panics("a cache: an alignment", || cached(s().align(Align::BottomRight)));
    assert_panics("does not broadcast to [1, 4, 2, 2]", || cached(pairs(3)));
    assert_panics(by_number, || cached(pairs(2)));
    assert_panics(by_number, || cached(s().bias(Bias::Additive(x(&[2, 2])))));
    panics_with! {
        cache.truncate(5) => "cannot truncate to 5 of 4 tokens";
        sliding.truncate(3) => "cannot go back to 3 of 4 tokens: only 3 are held";
    }
}

#[test]
fn parameters_of_norms_are_checked() {
    let x = Var::constant(Tensor::<f32>::ones([2, 4]));
    let sizes =
        MlaSizes { width: 8, heads: 2, query_latent: None, latent: 3, nope: 2, rope: 2, value: 3 };
    let text = "eps must be finite and at least 0, got";
    for eps in [NAN, -1.0, -1e-5, INF] {
        let layer = with(LayerNorm::<f32>::new(4), |m| m.eps = eps);
        let rms = with(RmsNorm::<f32>::new(4), |m| m.eps = eps);
        let mla = MlaAttention::<f32>::new(sizes, &mut rng());
        panics_with! {
            x.layer_norm(None, None, eps) => text;
            x.rms_norm(None, eps) => text;
            layer.forward(&x, &mut eval()) => text;
            rms.forward(&x, &mut eval()) => text;
            mla.with_eps(eps) => text;
        }
    }
    // 0 is valid.
    assert!(x.layer_norm(None, None, 0.0).value().to_vec()[0].is_nan());
    assert_eq!(x.rms_norm(None, 0.0).value().to_vec(), [1.0; 8]);
}

#[test]
fn parameters_of_attention_are_checked() {
    let bias = Normalizer::Sigmoid { bias: Some(NAN) };
    panics_with! {
        s().scale(NAN) => "attention: a scale must be finite in f64";
        s().scale(INF) => "attention: a scale must be finite in f64";
        s().scale(-INF) => "attention: a scale must be finite in f64";
        // Finite, but not in this type.
        Spec::<f32>::new().scale(1e300) => "attention: a scale must be finite in f32";
        Spec::<f32>::new().normalizer(bias) =>
            "attention: the bias of a sigmoid must be a number, got NaN";
        SelfAttention::<f64>::new(4, 3, 2, &mut rng()).dropout(1.5) => "got 1.5";
    }
    for scale in [0.0, -1.0, 1e300] {
        let _ = s().scale(scale);
    }
    for c in [NAN, 0.0, -1.0] {
        panics_with! {
            s().softcap(c) => "attention: a softcap must be above 0, got";
            SoftcapAttention::new(p(), c) => "attention: a softcap must be above 0, got";
        }
    }
    let text = "dropout: p must be in [0, 1], got";
    for dropout in [NAN, -0.1, 1.1, INF] {
        let config = MultiHeadConfig { dropout, ..MultiHeadConfig::new(8, 2) };
        panics_with! {
            s().dropout(dropout, &mut Pass::train(1)) => text;
            Dropout::new(dropout) => text;
            SelfAttention::<f32>::new(4, 4, 4, &mut rng()).dropout(dropout) => text;
            MultiHeadAttention::<f32>::new(&config, &mut rng()) => text;
        }
    }
}

#[test]
fn parameters_of_positions_are_checked() {
    let scaled = |scaling| Rope::new(4).scaling(scaling);
    let yarn = Yarn::new(4.0, 16);
    let llama = Llama3Scaling { factor: 8.0, context: 16, low: 1.0, high: 4.0 };
    panics_with! {
        Rope::new(5) => "rotary width must be even, got 5";
        uneven().with_rope(Rope::new(8)) => "a rotary width of 8 in heads of width 6";
        Rope::new(4).rotate(&x(&[3, 2]), 0) => "a rotary width of 4 in heads of width 2";
        Rope::new(2).base(1.0) => "base must be above 1, got 1";
        Rope::new(2).converted(&randn(&[5, 2], 1), 2, Pairing::Half) =>
            "2 heads do not divide 5 rows";
        scaled(Scaling::Yarn(Yarn { factor: 0.0, ..yarn })) => "a factor of at least 1, got 0";
        scaled(Scaling::Yarn(Yarn { context: 0, ..yarn })) => "at least 1, got 0";
        scaled(Scaling::Yarn(Yarn { beta_slow: 33.0, ..yarn })) => "got 33 and 32";
        scaled(Scaling::Yarn(Yarn { beta_slow: 0.0, ..yarn })) => "got 0 and 32";
        scaled(Scaling::Yarn(Yarn { attention: NAN, ..yarn })) => "above 0, got NaN";
        scaled(Scaling::Llama3(Llama3Scaling { factor: 0.5, ..llama })) =>
            "a factor of at least 1, got 0.5";
        scaled(Scaling::Llama3(Llama3Scaling { context: 0, ..llama })) => "at least 1, got 0";
        scaled(Scaling::Llama3(Llama3Scaling { low: 4.0, ..llama })) => "got 4 and 4";
        scaled(Scaling::Llama3(Llama3Scaling { low: 0.0, ..llama })) => "got 0 and 4";
        scaled(Scaling::Llama3(Llama3Scaling { high: INF, ..llama })) => "got 1 and inf";
    }
    let text = "sinusoidal positions: a base must be finite and above 0, got";
    let x = Var::constant(Tensor::<f32>::ones([3, 4]));
    for base in [NAN, 0.0, -2.0] {
        let positions = SinusoidalPositions { base };
        panics_with! {
            Rope::new(4).base(base) => "rope: a base must be above 1, got";
            positions.table::<f32>(0, 3, 4) => text;
            positions.forward(&x, 0) => text;
            positions.forward_at(&x, &Tensor::from([0i64, 1, 2])) => text;
        }
    }
    for factor in [NAN, -1.0] {
        panics_with! {
            scaled(Scaling::Linear { factor }) => "rope: a factor must be above 0, got";
            scaled(Scaling::Ntk { factor }) => "rope: a factor must be above 0, got";
            Yarn::new(factor, 8) => "yarn: a factor of at least 1, got";
        }
    }
}

#[test]
fn parameters_of_initialisation_are_checked() {
    let sample = |init: Init| init.sample::<f32>([2, 2], &mut rng());
    for x in [NAN, -0.1, INF] {
        let text = |what: &str| format!("init: the {what} must be finite and at least 0, got {x}");
        panics_with! {
            sample(Init::Normal { std: x }) => text("standard deviation");
            sample(Init::Uniform { bound: x }) => text("bound");
            sample(Init::XavierUniform { gain: x }) => text("gain");
            sample(Init::XavierNormal { gain: x }) => text("gain");
        }
    }
    panics_with! {
        sample(Init::Constant(NAN)) => "init: the constant must be a number, got NaN";
    }
    assert_eq!(sample(Init::Constant(-INF)).to_vec(), [f32::NEG_INFINITY; 4]);
    assert_eq!(sample(Init::Normal { std: 0.0 }).abs().max(..).item(), 0.0);
}
