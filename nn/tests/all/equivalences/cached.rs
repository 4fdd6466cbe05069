//! A sequence in several calls with a cache, and in one call.

use super::{LEN, run};
use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_nn::{CausalSelfAttention, GptConfig, Layer};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Tensor, settings, simd};

/// Compares a sequence in random chunks with a cache to the whole sequence.
fn chunks(
    t: &mut Table,
    name: &str,
    m: &dyn Incremental<f64>,
    spec: &Spec<f64>,
    length: usize,
    fresh: impl Fn() -> KvCache<f64>,
) {
    let x = constant(&[2, length, 8], 31);
    let full = m.forward_dyn(&x, spec, &mut eval()).into_value();
    let mut rng = Rng::new(17);
    for round in 0..6 {
        let mut cache = fresh();
        let (mut parts, mut at) = (Vec::new(), 0);
        while at < length {
            let n = match round {
                0 => 1,
                1 => length,
                _ => 1 + rng.below(length - at).min(rng.below(40)),
            };
            parts.push(m.forward_cached(&x.narrow(1, at, n), spec, &mut cache));
            at += n;
            assert_eq!(cache.position(), at);
        }
        let all = Var::cat(&parts.iter().collect::<Vec<_>>(), 1).into_value();
        t.case(format!("length {length}, round {round}"));
        t.values(&format!("cached = full, {name}"), &all, &full);
    }
}

pub fn cached(t: &mut Table) {
    cached_in_f32(t);
    bit_by_bit(t);
    learned_positions(t);
    let causal = Spec::new().causal();
    let rotated = || uneven().with_rope(Rope::new(4));
    let attention = rotated();
    let yarn = Scaling::Yarn(Yarn::new(4.0, 16));
    let yarn = uneven().with_rope(Rope::new(4).scaling(yarn).pairing(Pairing::Interleaved));
    let talking = TalkingHeadsAttention::new(uneven());
    talking.score_mix.set(randn(&[4, 4], 3));
    let sizes = HeadSizes::new(8, 4).key_heads(2).head_width(4);
    let mla =
        MlaSizes { width: 8, heads: 3, query_latent: None, latent: 5, nope: 4, rope: 2, value: 6 };
    let [naive, absorbed] = [MlaForm::Naive, MlaForm::Absorbed].map(|form| {
        let mut m = MlaAttention::new(mla, &mut Rng::new(2));
        m.form = form;
        m
    });
    let normalized = |n| NormalizedAttention::new(uneven(), n);
    let variants: [(&str, &dyn Incremental<f64>); 17] = [
        ("YaRN", &yarn),
        ("softcap", &SoftcapAttention::new(rotated(), 0.5)),
        ("qk L2", &QkL2Attention::new(rotated(), 9)),
        ("qk RMS", &rotated().with_qk_norm(1e-6)),
        ("sinks", &SinkAttention::new(uneven())),
        ("off by one", &QuietAttention::new(uneven())),
        ("memory", &MemoryAttention::new(uneven(), 3, &mut Rng::new(5))),
        ("talking heads", &talking),
        (
            "differential",
            &DifferentialAttention::new(sizes, 1, Some(Rope::new(2)), &mut Rng::new(2)),
        ),
        ("MLA Naive", &naive),
        ("MLA Absorbed", &absorbed),
        ("gated", &GatedAttention::new(uneven(), &mut Rng::new(5))),
        ("head scale", &HeadScaleAttention::new(uneven())),
        ("sparsemax", &normalized(Normalizer::Sparsemax)),
        ("1.5-entmax", &normalized(Normalizer::Entmax15)),
        ("top-k", &normalized(Normalizer::TopK(4))),
        ("sigmoid", &normalized(Normalizer::Sigmoid { bias: Some(-2.0) })),
    ];
    for length in [13, 150] {
        let whole = || KvCache::new(length);
        for (name, m) in variants {
            chunks(t, name, m, &causal, length, whole);
        }
        let window = causal.clone().mask(Mask::window(5, 0));
        for (name, spec) in [
            ("Composed", causal.clone().path(Path::Composed)),
            ("Tiled", causal.clone().path(Path::Tiled)),
            ("Auto", causal.clone().path(Path::Auto)),
            ("alibi", causal.clone().bias(Bias::alibi(4))),
            ("window", window.clone()),
            ("padding", causal.clone().mask(Mask::lengths(&[length, 4]))),
        ] {
            chunks(t, &format!("RoPE, {name}"), &attention, &spec, length, whole);
        }
        for (name, size) in [("sliding", 5), ("larger sliding", 8)] {
            let name = format!("RoPE, window, {name} cache");
            chunks(t, &name, &attention, &window, length, || KvCache::sliding(size));
        }
        let streaming = StreamingAttention::new(rotated(), 2, 5);
        chunks(t, "streaming", &streaming, &causal, length, || KvCache::streaming(2, 5));
        by_position(t, length);
        let dropping = causal.clone().dropout(0.5, &mut retrograd_nn::Pass::train(1));
        let x = constant(&[2, length, 8], 3);
        let [wet, dry] =
            [&dropping, &causal].map(|s| attention.forward_cached(&x, s, &mut whole()));
        t.exact().values("dropout is not applied with a cache", wet.value(), dry.value());
    }
}

/// Masks and biases by position, with a cache that has dropped keys in the middle.
fn by_position(t: &mut Table, length: usize) {
    let causal = Spec::new().causal();
    let attention = uneven().with_rope(Rope::new(4));
    let near = || causal.clone().mask(Mask::window(6, 0));
    let ids = Tensor::from_fn([2, length], |i| ((i[1] + i[0]) / 4) as i64);
    let n = length.div_ceil(3);
    let layout = Tensor::from_fn([n, n], |i| (i[0] + 2 * i[1]) % 3 != 1);
    let third = |at: At| at.key.is_multiple_of(3) || at.head == 1;
    let table = Var::constant(randn(&[4, 6], 8));
    let buckets = Buckets { count: 6, max_distance: 60, bidirectional: false };
    let buckets = Rule::buckets(table, buckets);
    let drift = Bias::from_fn("drift", |at| 0.02 * (at.key as f64) * (at.head as f64 - 1.5));
    let by_key = Bias::Additive(constant(&[4, 1, 1], 2));
    for (name, spec) in [
        ("chunks", causal.clone().mask(Mask::chunks(7))),
        ("documents", near().mask(Mask::documents(&ids))),
        ("blocks", near().mask(Mask::blocks(3, &layout))),
        ("last of each", near().mask(Mask::last_of_each(2, 3) | Mask::window(0, 0))),
        ("a rule", near().mask(Mask::from_fn("third", third))),
        ("ALiBi", near().bias(Bias::alibi(4))),
        ("buckets", near().rule(buckets.clone())),
        ("a bias by rule", near().bias(drift.clone())),
        ("a bias by head", near().bias(by_key)),
    ] {
        chunks(t, &format!("sliding, {name}"), &attention, &spec, length, || KvCache::sliding(6));
    }
    let m = StreamingAttention::new(uneven().with_rope(Rope::new(4)), 2, 5);
    for (name, spec) in [
        ("ALiBi", causal.clone().bias(Bias::alibi(4))),
        ("buckets", causal.clone().rule(buckets)),
        ("a bias by rule", causal.clone().bias(drift)),
        ("dilated", causal.clone().mask(Mask::dilated(2))),
        ("a rule", causal.clone().mask(Mask::from_fn("third", third))),
    ] {
        chunks(t, &format!("streaming, {name}"), &m, &spec, length, || KvCache::streaming(2, 5));
    }
    let m = MemoryAttention::new(uneven(), 3, &mut Rng::new(5));
    let spec = near().bias(Bias::alibi(4));
    chunks(t, "sliding, memory", &m, &spec, length, || KvCache::sliding(6));
}

/// At every SIMD level but the portable one, rows are computed independently, also in products with long
/// sums (of a width above 512), so results with a cache are equal bit by bit.
fn bit_by_bit(t: &mut Table) {
    let wide = GptConfig { vocab: 1, context: 70, heads: 4, width: 640, ..config() };
    let wide = CausalSelfAttention::<f32>::new(&wide, &mut Rng::new(4));
    let x = Var::constant(Tensor::<f32>::randn([1, 70, 640], &mut Rng::new(3)));
    let mut cache = KvCache::new(70);
    let steps = [(0, 1), (1, 66), (67, 2), (69, 1)];
    let parts = steps.map(|(at, n)| wide.forward_cached(&x.narrow(1, at, n), &mut cache));
    let all = Var::cat(&parts.each_ref(), 1);
    of_this_level(t).values(
        "cached = whole, bit by bit, f32, wide attention",
        all.value(),
        wide.forward(&x, &mut eval()).value(),
    );

    let config = GptConfig { vocab: 11, context: 150, layers: 2, heads: 4, width: 64, ..config() };
    let model = gpt::<f32>(config.clone(), 5);
    let attention = CausalSelfAttention::<f32>::new(&config, &mut Rng::new(4));
    let length = config.context;
    let tokens = Tensor::from_fn([2, length], |i| ((i[0] + 3 * i[1] + i[1] / 7) % 11) as i64);
    let x = Var::constant(Tensor::<f32>::randn([2, length, 64], &mut Rng::new(3)));
    let whole = (attention.forward(&x, &mut eval()), model.forward(&tokens, &mut eval()));
    for steps in [[1, 2, 3], [1, 1, 1], [64, 5, 81], [7, 64, 33], [149, 1, 1]] {
        let (mut of_layer, mut of_model) = (Vec::new(), Vec::new());
        let (mut cache, mut caches) = (KvCache::new(length), model.cache());
        let mut at = 0;
        for n in steps.into_iter().cycle() {
            let n = n.min(length - at);
            of_layer.push(attention.forward_cached(&x.narrow(1, at, n), &mut cache));
            of_model.push(model.forward_cached(&tokens.narrow(1, at, n), &mut caches));
            at += n;
            if at == length {
                break;
            }
        }
        for (name, parts, whole) in [("attention", of_layer, &whole.0), ("GPT", of_model, &whole.1)]
        {
            let all = Var::cat(&parts.iter().collect::<Vec<_>>(), 1);
            t.case(format!("steps of {steps:?}"));
            of_this_level(t).values(
                &format!("cached = whole, bit by bit, f32, {name}"),
                all.value(),
                whole.value(),
            );
        }
    }
}

fn of_this_level(t: &mut Table) -> &mut Table {
    match settings::level() {
        simd::Level::Scalar => t.bound(1e-5),
        _ => t.exact(),
    }
}

fn cached_in_f32(t: &mut Table) {
    let length = 200;
    let x = Var::constant(Tensor::<f32>::randn([2, length, 64], &mut Rng::new(3)));
    let proj = Projections::new(HeadSizes::new(64, 4).key_heads(2), &mut Rng::new(4));
    let m: Projections = proj.with_rope(Rope::new(16));
    for path in [Path::Composed, Path::Tiled] {
        let spec = Spec::new().causal().path(path);
        let full = m.forward(&x, &spec, &mut eval()).into_value();
        for n in [1, 7, 64, 199] {
            let mut cache = KvCache::new(length);
            let steps = (0..length).step_by(n).map(|at| {
                let x = x.narrow(1, at, n.min(length - at));
                m.forward_cached(&x, &spec, &mut cache)
            });
            let parts: Vec<Var> = steps.collect();
            let all = Var::cat(&parts.iter().collect::<Vec<_>>(), 1).into_value();
            t.case(format!("steps of {n}")).bound(1e-6);
            t.values(&format!("cached = full, f32, {path:?}"), &all, &full);
        }
    }
}

fn learned_positions(t: &mut Table) {
    let positions = LearnedPositions::new(LEN, 8, &mut Rng::new(2));
    let m = uneven();
    let x = constant(&[2, LEN, 8], 3);
    let full = run(&m)(&[positions.forward(&x, 0)]).into_value();
    let mut cache = KvCache::new(LEN);
    let mut parts = Vec::new();
    for (at, n) in [(0, 4), (4, 1), (5, 3), (8, 1)] {
        let x = positions.forward(&x.narrow(1, at, n), cache.position());
        parts.push(m.forward_cached(&x, &Spec::new().causal(), &mut cache));
    }
    let all = Var::cat(&parts.iter().collect::<Vec<_>>(), 1);
    t.values("cached = full, learned positions", all.value(), &full);
    // Positions that restart in each document are those of the separate documents.
    let packed = Packed::new(&[4, 5]);
    let parts = |add: &dyn Fn(&Var<f64>) -> Var<f64>| {
        Var::cat(&[&add(&x.narrow(1, 0, 4)), &add(&x.narrow(1, 4, 5))], 1)
    };
    let sines = SinusoidalPositions::default();
    for (name, packed, apart) in [
        (
            "learned",
            positions.forward_at(&x, &packed.positions()),
            parts(&|x| positions.forward(x, 0)),
        ),
        ("sinusoidal", sines.forward_at(&x, &packed.positions()), parts(&|x| sines.forward(x, 0))),
    ] {
        t.exact().values(&format!("packed positions, {name}"), packed.value(), apart.value());
    }
}
