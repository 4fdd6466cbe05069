//! The attention variants of recent language models: a row each of what a module must stand,
//! and what each reduces to. Run with `--nocapture` for the tables.

use retrograd_autograd::Var;
use retrograd_autograd::check::Report;
use retrograd_nn::attention::*;
use retrograd_nn::testing::{VariantReport, check_variant};
use retrograd_nn::{Module, Pass};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};

type T64 = Tensor<f64>;

fn random(shape: &[usize], seed: u64) -> T64 {
    Tensor::randn(shape, &mut Rng::new(seed))
}

fn constant(shape: &[usize], seed: u64) -> Var<f64> {
    Var::constant(random(shape, seed))
}

/// The largest difference, printed.
fn worst(what: &str, a: &T64, b: &T64) -> f64 {
    assert_eq!(a.shape(), b.shape(), "{what}");
    let pairs = a.to_vec().into_iter().zip(b.to_vec());
    let worst = pairs.map(|(x, y)| if x == y { 0.0 } else { (x - y).abs() }).fold(0.0, f64::max);
    let bits = if a.to_vec() == b.to_vec() { "  (every bit)" } else { "" };
    println!("{what:60} {worst:.1e}{bits}");
    assert!(!worst.is_nan(), "{what}");
    worst
}

#[track_caller]
fn same(what: &str, a: &T64, b: &T64) {
    let d = worst(what, a, b);
    assert!(d <= 1e-12, "{what}: {d:e}");
}

fn message<R>(f: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).err().expect("should panic");
    match panic.downcast::<String>() {
        Ok(s) => *s,
        Err(other) => other.downcast::<&str>().expect("a message").to_string(),
    }
}

fn show(name: &str, r: &VariantReport) {
    let worst = |report: &Report| report.worst.as_ref().map_or(0.0, |w| w.error);
    println!(
        "{name:32} {:3} parameters {:6} first {:.1e} {:6} second {:.1e}",
        r.parameters,
        r.first.compared,
        worst(&r.first),
        r.second.compared,
        worst(&r.second)
    );
}

fn row<M: Incremental<f64> + Sync>(name: &str, build: impl Fn(&mut Rng) -> M + Sync) {
    let report = check_variant(name, build, &[random(&[2, 3, 4], 5)], |m, x| {
        m.forward(&x[0], &Spec::new().causal(), &mut Pass::eval())
    });
    show(name, &report);
}

/// Width 4 in 2 heads, two queries to a key where `grouped`.
fn small(rng: &mut Rng) -> Projections<f64> {
    Projections::new(HeadSizes::new(4, 2), rng)
}

fn grouped(rng: &mut Rng) -> Projections<f64> {
    Projections::new(HeadSizes::new(4, 2).key_heads(1), rng)
}

/// For norms of vectors that happen to be small, whose curvature would otherwise be too large
/// for differences.
const EPS: f64 = 0.1;

fn mla_sizes(query_latent: Option<usize>) -> MlaSizes {
    MlaSizes { width: 4, heads: 2, query_latent, latent: 3, nope: 2, rope: 2, value: 3 }
}

#[test]
fn row_rope() {
    row("RopeAttention, half", |rng| RopeAttention::new(small(rng), Rope::new(2)));
    row("RopeAttention, interleaved, grouped", |rng| {
        let proj = Projections::new(HeadSizes::new(4, 2).key_heads(1).head_width(6), rng);
        RopeAttention::new(proj, Rope::new(4).pairing(Pairing::Interleaved))
    });
    row("RopeAttention, partial, YaRN", |rng| {
        let proj = Projections::new(HeadSizes::new(4, 2).head_width(6), rng);
        RopeAttention::new(proj, Rope::new(4).scaling(Scaling::Yarn(Yarn::new(4.0, 16))))
    });
}

#[test]
fn row_positions() {
    let report = check_variant(
        "LearnedPositions",
        |rng| LearnedPositions::new(3, 4, rng),
        &[random(&[2, 3, 4], 5)],
        |m, x| m.forward(&x[0], 0).square(),
    );
    show("LearnedPositions", &report);
    let report = check_variant(
        "SinusoidalPositions",
        |_| SinusoidalPositions::default(),
        &[random(&[2, 3, 5], 5)],
        |m, x| m.forward(&x[0], 7).square(),
    );
    show("SinusoidalPositions", &report);
}

#[test]
fn row_softcap_and_norms() {
    row("SoftcapAttention", |rng| SoftcapAttention::new(small(rng).with_rope(Rope::new(2)), 0.7));
    row("QkL2Attention", |rng| QkL2Attention::new(small(rng), 3));
    row("QkL2Attention, RoPE", |rng| QkL2Attention::new(grouped(rng).with_rope(Rope::new(2)), 3));
    row("QkRmsAttention", |rng| QkRmsAttention::new(small(rng).with_rope(Rope::new(2))));
}

#[test]
fn row_sinks() {
    row("SinkAttention", |rng| SinkAttention::new(grouped(rng)));
    row("QuietAttention", |rng| QuietAttention::new(small(rng)));
    row("StreamingAttention", |rng| StreamingAttention::new(small(rng), 1, 0));
    row("MemoryAttention", |rng| MemoryAttention::new(small(rng), 2, rng));
}

#[test]
fn row_talking_heads() {
    row("TalkingHeadsAttention", |rng| TalkingHeadsAttention::new(small(rng)));
}

#[test]
fn row_differential() {
    row("DifferentialAttention", |rng| {
        let mut m = DifferentialAttention::new(HeadSizes::new(4, 1), 1, None, rng);
        assert_eq!(m.subln.eps, 1e-5);
        m.subln.eps = EPS;
        m
    });
    row("DifferentialAttention, grouped, RoPE", |rng| {
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
            row(&format!("MlaAttention, {form:?}, {query_latent:?}"), |rng| {
                let mut m = MlaAttention::new(mla_sizes(query_latent), rng).with_eps(EPS);
                m.form = form;
                m
            });
        }
    }
}

#[test]
fn row_gated() {
    row("GatedAttention", |rng| GatedAttention::new(small(rng), rng));
    row("HeadScaleAttention", |rng| HeadScaleAttention::new(small(rng)));
    let report = check_variant(
        "ValueResidualAttention",
        |rng| ValueResidualAttention::new(small(rng)),
        &[random(&[2, 3, 4], 5), random(&[2, 2, 3, 2], 6)],
        |m, x| m.forward(&x[0], &x[1], &Spec::new().causal(), &mut Pass::eval()),
    );
    show("ValueResidualAttention", &report);
}

#[test]
fn row_pooling() {
    let report = check_variant(
        "AttentionPool",
        |rng| AttentionPool::new(grouped(rng), 2, rng),
        &[random(&[2, 3, 4], 5)],
        |m, x| m.forward(&x[0], &Spec::new().mask(Mask::lengths(&[3, 2])), &mut Pass::eval()),
    );
    show("AttentionPool", &report);
}

#[test]
fn row_normalizers() {
    for normalizer in [
        Normalizer::Sigmoid { bias: None },
        Normalizer::Sigmoid { bias: Some(-1.0) },
        Normalizer::Sparsemax,
        Normalizer::Entmax15,
        Normalizer::TopK(2),
    ] {
        row(&format!("NormalizedAttention, {normalizer:?}"), |rng| {
            NormalizedAttention::new(small(rng), normalizer)
        });
    }
}

// What they reduce to.

const LEN: usize = 9;

fn eval<M: Incremental<f64>>(m: &M, x: &Var<f64>) -> T64 {
    m.forward(x, &Spec::new().causal(), &mut Pass::eval()).into_value()
}

/// Width 8 in 4 heads with 2 key heads.
fn proj() -> Projections<f64> {
    Projections::new(HeadSizes::new(8, 4).key_heads(2).head_width(6), &mut Rng::new(3))
}

/// Attention over [`proj`] with nothing added.
fn plain() -> RopeAttention<f64> {
    RopeAttention::new(proj(), Rope::new(0))
}

#[test]
fn limits_are_plain_attention() {
    let x = constant(&[2, LEN, 8], 11);
    let want = eval(&plain(), &x);

    let capped = eval(&SoftcapAttention::new(proj(), 1e9), &x);
    same("softcap 1e9 = plain", &capped, &want);

    let sink = SinkAttention::new(proj());
    let quiet = eval(&QuietAttention::new(proj()), &x);
    same("learned sinks of 0 = off by one", &eval(&sink, &x), &quiet);
    sink.sinks.set(Tensor::full([4], f64::NEG_INFINITY));
    same("sinks of -inf = plain", &eval(&sink, &x), &want);

    same(
        "streaming, window >= L = causal",
        &eval(&StreamingAttention::new(proj(), 0, LEN), &x),
        &want,
    );
    let window =
        plain().forward(&x, &Spec::new().causal().mask(Mask::window(3, 0)), &mut Pass::eval());
    let streaming = eval(&StreamingAttention::new(proj(), 0, 3), &x);
    same("streaming without first tokens = window", &streaming, window.value());

    let memory = MemoryAttention::new(proj(), 0, &mut Rng::new(4));
    same("memory of 0 = plain", &eval(&memory, &x), &want);

    let talking = TalkingHeadsAttention::new(proj());
    same("talking heads, identities = plain", &eval(&talking, &x), &want);

    let scaled = HeadScaleAttention::new(proj());
    same("head scale 1 = plain", &eval(&scaled, &x), &want);

    let gated = GatedAttention::new(proj(), &mut Rng::new(5));
    gated.gate_proj.weight.set(Tensor::zeros([24, 8]));
    gated.gate_proj.bias.as_ref().unwrap().set(Tensor::full([24], 50.0));
    same("gates open = plain", &eval(&gated, &x), &want);

    let residual = ValueResidualAttention::new(proj());
    residual.mix.set(Tensor::from([1.0, 0.0]));
    let first = first_values(&residual.projections, &constant(&[2, LEN, 8], 12), &mut Pass::eval());
    let y = residual.forward(&x, &first, &Spec::new().causal(), &mut Pass::eval());
    same("value residual, mix (1, 0) = plain", y.value(), &want);
    residual.mix.set(Tensor::from([0.3, 0.7]));
    let own = first_values(&residual.projections, &x, &mut Pass::eval());
    let y = residual.forward(&x, &own, &Spec::new().causal(), &mut Pass::eval());
    same("value residual of the same values = plain", y.value(), &want);

    for (name, normalizer) in
        [("softmax", Normalizer::Softmax), ("top-k, k = L", Normalizer::TopK(LEN))]
    {
        let y = eval(&NormalizedAttention::new(proj(), normalizer), &x);
        same(&format!("{name} = plain"), &y, &want);
    }
}

#[test]
fn off_by_one_is_a_key_of_zeros() {
    let (q, k, v) =
        (constant(&[2, 4, 5, 6], 1), constant(&[2, 2, 7, 6], 2), constant(&[2, 2, 7, 3], 3));
    let (zk, zv) =
        (Var::constant(Tensor::zeros([2, 1, 6])), Var::constant(Tensor::zeros([2, 1, 3])));
    let ids = Tensor::from_fn([2, 7], |i| (i[1] / 3) as i64);
    let mut dense = Rng::new(8);
    let masks = [
        Mask::Full,
        Mask::causal(),
        Mask::window(2, 1),
        Mask::lengths(&[0, 4]),
        Mask::documents(&ids),
        Mask::keep(&Tensor::bernoulli([2, 1, 5, 7], 0.4, &mut dense)),
    ];
    for mask in masks {
        for path in [Path::Composed, Path::Tiled] {
            let spec = Spec::new().mask(mask.clone()).bias(Bias::alibi(4)).softcap(3.0).path(path);
            let a = attend(&q, &k, &v, &spec.clone().sink(Sink::Zero));
            let b = attend_with_memory(&q, &k, &v, (&zk, &zv), &spec);
            same(&format!("off by one = zero key, {mask:?}, {path:?}"), a.value(), b.value());
        }
    }
    let bias = constant(&[4, 5, 7], 4);
    let spec = Spec::new().bias(Bias::Additive(bias));
    let a = attend(&q, &k, &v, &spec.clone().sink(Sink::Zero));
    let b = attend_with_memory(&q, &k, &v, (&zk, &zv), &spec);
    same("off by one = zero key, additive bias", a.value(), b.value());
}

#[test]
fn memory_is_more_keys() {
    let (q, k, v) =
        (constant(&[2, 4, 5, 6], 1), constant(&[2, 2, 5, 6], 2), constant(&[2, 2, 5, 3], 3));
    let (mk, mv) = (constant(&[2, 3, 6], 4), constant(&[2, 3, 3], 5));
    let a = attend_with_memory(&q, &k, &v, (&mk, &mv), &Spec::new().causal());
    // In front of the others, it is visible to a causal mask by itself.
    let wide =
        |m: &Var<f64>, x: &Var<f64>| Var::cat(&[&m.broadcast_to([2, 2, 3, x.size(-1)]), x], -2);
    let b = attend(&q, &wide(&mk, &k), &wide(&mv, &v), &Spec::new().causal());
    same("memory behind = memory in front", a.value(), b.value());
}

#[test]
fn rope_numbers() {
    // By complex numbers, with nothing shared.
    let (d, base) = (6usize, 100.0f64);
    let x = random(&[4, d], 3);
    let rope = Rope::new(d).base(base);
    for pairing in [Pairing::Half, Pairing::Interleaved] {
        let y = rope.clone().pairing(pairing).rotate(&Var::constant(x.clone()), 5).into_value();
        let mut want = vec![0.0; 4 * d];
        for p in 0..4 {
            for m in 0..d / 2 {
                let (i, j) = match pairing {
                    Pairing::Half => (m, m + d / 2),
                    Pairing::Interleaved => (2 * m, 2 * m + 1),
                };
                let (a, b) = (x.at(&[p, i]), x.at(&[p, j]));
                let (r, phi) = (a.hypot(b), b.atan2(a));
                let angle = phi + (p + 5) as f64 / base.powf(2.0 * m as f64 / d as f64);
                want[p * d + i] = r * angle.cos();
                want[p * d + j] = r * angle.sin();
            }
        }
        same(&format!("rope, {pairing:?} = complex numbers"), &y, &Tensor::from_vec(want, [4, d]));
    }
}

#[test]
fn rope_depends_on_distance_only() {
    let (q, k) = (constant(&[2, 7, 8], 1), constant(&[2, 7, 8], 2));
    for scaling in [
        Scaling::None,
        Scaling::Linear { factor: 4.0 },
        Scaling::Ntk { factor: 4.0 },
        Scaling::Yarn(Yarn::new(4.0, 32)),
    ] {
        for pairing in [Pairing::Half, Pairing::Interleaved] {
            let rope = Rope::new(6).base(50.0).pairing(pairing).scaling(scaling);
            let scores =
                |at: usize| rope.rotate(&q, at).matmul(&rope.rotate(&k, at).t()).into_value();
            same(&format!("rope, shift by 100, {pairing:?} {scaling:?}"), &scores(0), &scores(100));
        }
    }
    let rope = Rope::new(8);
    let norms = |x: &Var<f64>| x.square().sum(-1).into_value();
    same("rope keeps lengths", &norms(&rope.rotate(&q, 3)), &norms(&q));
    let at = Tensor::from([[0i64, 1, 2, 3, 0, 1, 2]]);
    let packed = rope.rotate_at(&q, &at);
    same(
        "rope, positions that begin anew",
        packed.narrow(1, 4, 3).value(),
        rope.rotate(&q.narrow(1, 4, 3), 0).value(),
    );
}

#[test]
fn pairings_convert() {
    let x = constant(&[2, LEN, 8], 11);
    for width in [6, 4, 2, 0] {
        let half = RopeAttention::new(proj(), Rope::new(width));
        let (q, k) =
            (half.projections.q_proj.weight.value(), half.projections.k_proj.weight.value());
        let want = eval(&half, &x);
        let mut other = RopeAttention::new(proj(), Rope::new(width));
        other.projections.convert_pairing(Pairing::Interleaved);
        same(
            &format!("rope, half = interleaved converted, width {width}"),
            &eval(&other, &x),
            &want,
        );
        if width == 6 {
            let wrong = RopeAttention::new(proj(), Rope::new(width).pairing(Pairing::Interleaved));
            assert!(worst("rope, not converted", &eval(&wrong, &x), &want) > 1e-3);
        }
        other.projections.convert_pairing(Pairing::Half);
        assert_eq!(other.projections.q_proj.weight.value().to_vec(), q.to_vec());
        assert_eq!(other.projections.k_proj.weight.value().to_vec(), k.to_vec());
    }
}

/// YaRN as the paper's code has it, from the wavelengths.
fn yarn_by_hand(d: usize, base: f64, factor: f64, context: f64, rounded: bool) -> Vec<f64> {
    let pi = std::f64::consts::PI;
    let dim =
        |rotations: f64| (d as f64 * (context / (rotations * 2.0 * pi)).ln()) / (2.0 * base.ln());
    let (mut low, mut high) = (dim(32.0), dim(1.0));
    if rounded {
        (low, high) = (low.floor().max(0.0), high.ceil().min(d as f64 - 1.0));
    }
    let mut out = Vec::new();
    for i in 0..d / 2 {
        let pos_freq = base.powf((2 * i) as f64 / d as f64);
        let (extrapolation, interpolation) = (1.0 / pos_freq, 1.0 / (factor * pos_freq));
        let ramp = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
        let mask = 1.0 - ramp;
        out.push(interpolation * (1.0 - mask) + extrapolation * mask);
    }
    out
}

#[test]
fn scalings() {
    let column = |x: Vec<f64>| Tensor::from_vec(x.clone(), [x.len()]);
    let (d, base) = (64, 10000.0);
    let none = Rope::new(d).frequencies();
    let linear = Rope::new(d).scaling(Scaling::Linear { factor: 8.0 }).frequencies();
    same(
        "linear scaling",
        &column(linear.iter().map(|x| x * 8.0).collect()),
        &column(none.clone()),
    );
    let ntk = Rope::new(d).scaling(Scaling::Ntk { factor: 8.0 }).frequencies();
    assert_eq!(ntk[0], none[0]);
    assert!((ntk[31] * 8.0 / none[31] - 1.0).abs() < 1e-12, "the slowest is slowed by the factor");
    for rounded in [true, false] {
        let yarn = Yarn { rounded, ..Yarn::new(16.0, 4096) };
        let rope = Rope::new(d).scaling(Scaling::Yarn(yarn));
        let want = yarn_by_hand(d, base, 16.0, 4096.0, rounded);
        same(
            &format!("yarn by hand, rounded {rounded}"),
            &column(rope.frequencies()),
            &column(want),
        );
        assert_eq!(rope.frequencies()[0], none[0]);
        assert!((rope.frequencies()[31] * 16.0 / none[31] - 1.0).abs() < 1e-12);
        assert!((rope.growth() - (0.1 * 16f64.ln() + 1.0)).abs() < 1e-15);
    }
    let same_context = Rope::new(d).scaling(Scaling::Yarn(Yarn::new(1.0, 4096)));
    same("yarn with factor 1 = none", &column(same_context.frequencies()), &column(none));
    assert_eq!(same_context.growth(), 1.0);
}

#[test]
fn sinusoids() {
    let table: T64 = SinusoidalPositions::default().table(3, 2, 5);
    let want = Tensor::from_fn([2, 5], |i| {
        let p = 3.0 + i[0] as f64;
        let w = [1.0, 1.0, 1e4f64.powf(0.4), 1e4f64.powf(0.4), 1e4f64.powf(0.8)][i[1]];
        if i[1] % 2 == 0 { (p / w).sin() } else { (p / w).cos() }
    });
    same("sinusoids by hand", &table, &want);
}

#[test]
fn norms_of_queries_and_keys() {
    let x = constant(&[2, LEN, 8], 11);
    let l2 = QkL2Attention::new(proj().with_rope(Rope::new(4)), LEN);
    assert_eq!(l2.g.value().item(), 72f64.log2());
    let before = eval(&l2, &x);
    l2.projections.q_proj.weight.update(|w| *w = w.mul_scalar(1000.0));
    l2.projections.k_proj.weight.update(|w| *w = w.mul_scalar(0.5));
    let d = worst("qk L2 norm: scale of projections does not matter", &eval(&l2, &x), &before);
    assert!(d < 1e-9);

    let l2 = QkL2Attention::new(proj().with_rope(Rope::new(4)), LEN);
    l2.g.set(Tensor::full([1], 6f64.sqrt()));
    let mut rms = QkRmsAttention::new(proj().with_rope(Rope::new(4)));
    (rms.q_norm.eps, rms.k_norm.eps) = (0.0, 0.0);
    let d = worst("qk L2 norm with g = sqrt(D) = RMS norm", &eval(&l2, &x), &eval(&rms, &x));
    assert!(d < 1e-9);
    let zero = eval(&l2, &Var::constant(Tensor::zeros([1, 3, 8])));
    assert!(zero.to_vec().iter().all(|&y| y == 0.0), "queries of 0");
}

#[test]
fn differential_without_difference() {
    let x = constant(&[2, LEN, 8], 11);
    let build = |rope| {
        DifferentialAttention::<f64>::new(
            HeadSizes::new(8, 4).key_heads(2).head_width(4),
            2,
            rope,
            &mut Rng::new(7),
        )
    };
    let m = build(Some(Rope::new(2)));
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
    let rows = |w: &T64| {
        // [2H · d, width] to the first of each two heads
        let w = w.reshape([w.size(0) / 4, 2, 2, 8]).select(1, 0);
        w.reshape([w.size(0) * 2, 8])
    };
    let split = |w: &T64, heads: usize| {
        let y = x.matmul(&Var::constant(w.clone()).t());
        y.reshape([2, LEN, heads, w.size(0) / heads]).transpose(1, 2)
    };
    let rope = Rope::new(2);
    let p = &m.projections;
    let q = rope.rotate(&split(&rows(&p.q_proj.weight.value()), 4), 0);
    let k = rope.rotate(&split(&rows(&p.k_proj.weight.value()), 2), 0);
    let v = split(&p.v_proj.weight.value(), 2);
    let heads = attend(&q, &k, &v, &spec);
    let [first, second] = m.both(&x, &spec, &mut Past::nothing(), &mut Pass::eval());
    let before_norm = first - second.mul(&m.lambda());
    same(
        "differential, lambda 0 = first halves, before the norm",
        before_norm.value(),
        heads.value(),
    );
    // And with the norm, the scale and the projection behind.
    let normed = heads.rms_norm(None, 1e-5) * (1.0 - m.lambda_init());
    let joined = normed.transpose(1, 2).reshape([2, LEN, 16]);
    let want = joined.matmul(&Var::constant(p.o_proj.weight.value()).t());
    same("differential, lambda 0 = first halves, whole", &eval(&m, &x), want.value());
}

#[test]
fn latent_attention_absorbs() {
    for query_latent in [None, Some(5)] {
        let sizes =
            MlaSizes { width: 8, heads: 3, query_latent, latent: 5, nope: 4, rope: 2, value: 6 };
        let mut m = MlaAttention::<f64>::new(sizes, &mut Rng::new(3));
        let grads = |m: &MlaAttention<f64>| {
            let x = Var::leaf(random(&[2, LEN, 8], 4));
            let y = m.forward(&x, &Spec::new().causal(), &mut Pass::eval());
            let g = y.square().sum(..).backward();
            let mut all = vec![y.value().clone(), g.get(&x).unwrap().clone()];
            all.extend(m.named_parameters().iter().map(|(_, p)| g.by_id(p.id()).unwrap().clone()));
            all
        };
        let naive = grads(&m);
        m.form = MlaForm::Absorbed;
        for (i, (a, b)) in grads(&m).iter().zip(&naive).enumerate() {
            let what = ["output", "input gradient", "parameter gradient"][i.min(2)];
            same(&format!("MLA absorbed = naive, {what}"), a, b);
        }
        // A prompt by one form, steps by the other, and the cache holds r + rope per token.
        let x = constant(&[2, LEN, 8], 4);
        let mut cache = KvCache::new(LEN);
        let spec = Spec::new().causal();
        m.form = MlaForm::Naive;
        let mut parts = vec![m.forward_cached(&x.narrow(1, 0, 5), &spec, &mut cache)];
        m.form = MlaForm::Absorbed;
        for i in 5..LEN {
            parts.push(m.forward_cached(&x.narrow(1, i, 1), &spec, &mut cache));
        }
        let all = Var::cat(&parts.iter().collect::<Vec<_>>(), 1);
        same("MLA, naive prompt and absorbed steps = full", all.value(), &naive_output(&mut m, &x));
        let (k, v) = cache.append(&Tensor::zeros([2, 1, 0, 7]), &Tensor::zeros([2, 1, 0, 0]));
        assert_eq!(k.numel() + v.numel(), 2 * LEN * (5 + 2));
    }
}

fn naive_output(m: &mut MlaAttention<f64>, x: &Var<f64>) -> T64 {
    m.form = MlaForm::Naive;
    eval(m, x)
}

#[test]
fn talking_heads_mask_after_mixing() {
    let m = TalkingHeadsAttention::new(proj());
    m.score_mix.set(random(&[4, 4], 20));
    m.weight_mix.set(random(&[4, 4], 21));
    let x = random(&[1, 6, 8], 22);
    let full = eval(&m, &Var::constant(x.clone()));
    let mut changed = x.clone();
    changed.make_mut()[5 * 8..].fill(9.0);
    let other = eval(&m, &Var::constant(changed));
    assert_eq!(full.slice(1, 0..5).to_vec(), other.slice(1, 0..5).to_vec(), "the future leaks");
    // By hand.
    let p = &m.projections;
    let split = |w: &T64, heads: usize| x.matmul(&w.t()).reshape([1, 6, heads, 6]).transpose(1, 2);
    let repeat = |x: T64| x.index_select(1, &Tensor::from([0i64, 0, 1, 1]));
    let q = split(&p.q_proj.weight.value(), 4);
    let k = repeat(split(&p.k_proj.weight.value(), 2));
    let v = repeat(split(&p.v_proj.weight.value(), 2));
    let mix = |w: &T64, s: &T64| Tensor::einsum("gh,bhqk->bgqk", &[w, s]);
    let s = mix(&m.score_mix.value(), &q.matmul(&k.t()).mul_scalar(1.0 / 6f64.sqrt()));
    let w = mix(&m.weight_mix.value(), &s.masked_softmax(&Tensor::ones([6, 6]).tril(0), -1));
    let o = w.matmul(&v).transpose(1, 2).reshape([1, 6, 24]);
    same("talking heads by hand", &full, &o.matmul(&p.o_proj.weight.value().t()));
}

#[test]
fn pooling_ignores_order() {
    let mut rng = Rng::new(6);
    let pool = AttentionPool::new(proj(), 3, &mut rng);
    let x = random(&[2, LEN, 8], 7);
    let run = |x: &T64, spec: Spec<f64>| {
        pool.forward(&Var::constant(x.clone()), &spec, &mut Pass::eval()).into_value()
    };
    let y = run(&x, Spec::new());
    assert_eq!(*y.shape(), [2, 3, 8]);
    let order: Tensor<i64> = Tensor::randperm(LEN, &mut rng);
    same("pooling, keys in another order", &run(&x.index_select(1, &order), Spec::new()), &y);
    let padded = run(&x, Spec::new().mask(Mask::lengths(&[4])));
    same("pooling, padded = truncated", &padded, &run(&x.slice(1, 0..4), Spec::new()));
    let one = AttentionPool::new(proj(), 1, &mut rng);
    let single =
        one.forward(&Var::constant(x.slice(0, 0..1).squeeze(0)), &Spec::new(), &mut Pass::eval());
    assert_eq!(*single.shape(), [1, 8]);
}

/// The projection onto the simplex that minimises `‖w‖²/2 - s·w` (sparsemax), or the same with
/// the 1.5-Tsallis entropy, by trying every support.
fn brute_force(s: &[f64], power: f64) -> Vec<f64> {
    let n = s.len();
    // w = max(a s - τ, 0)^(1/(power - 1)), a = power - 1: find τ by bisection, to the last bit.
    let a = power - 1.0;
    let weight =
        |tau: f64| -> Vec<f64> { s.iter().map(|x| (a * x - tau).max(0.0).powf(1.0 / a)).collect() };
    let top = s.iter().cloned().fold(f64::NEG_INFINITY, f64::max) * a;
    let (mut lo, mut hi) = (top - 1.0, top);
    for _ in 0..200 {
        let mid = 0.5 * (lo + hi);
        if weight(mid).iter().sum::<f64>() > 1.0 { lo = mid } else { hi = mid }
    }
    assert_eq!(weight(lo).len(), n);
    weight(lo)
}

#[test]
fn sparse_normalizers_project() {
    for (normalizer, power) in [(Normalizer::Sparsemax, 2.0), (Normalizer::Entmax15, 1.5)] {
        let mut worst_of_all: f64 = 0.0;
        let (mut zeros, mut count) = (0, 0);
        for seed in 0..50 {
            let n = 1 + seed as usize % 9;
            let s = random(&[1, n], seed).mul_scalar(1.0 + seed as f64 / 10.0);
            // Scores s: one query of 1, keys s.
            let (q, k) = (Var::constant(Tensor::ones([1, 1])), Var::constant(s.t()));
            let spec = Spec::new().scale(1.0).normalizer(normalizer);
            let all = attend_all(&q, &k, &Var::constant(Tensor::eye(n)), &spec);
            let want = brute_force(&s.to_vec(), power);
            for (x, y) in all.weights.value().to_vec().into_iter().zip(want) {
                worst_of_all = worst_of_all.max((x - y).abs());
                zeros += (x == 0.0) as usize;
                count += 1;
            }
            // First-order optimality among 2000 random points of the simplex.
            let value = |w: &[f64]| {
                let entropy: f64 =
                    w.iter().map(|x| (x - x.powf(power)) / (power * (power - 1.0))).sum();
                w.iter().zip(s.to_vec()).map(|(w, s)| w * s).sum::<f64>() + entropy
            };
            let best = value(&all.weights.value().to_vec());
            let mut rng = Rng::new(seed + 100);
            for _ in 0..2000 / n {
                let e: Vec<f64> = Tensor::<f64>::rand([n], &mut rng)
                    .to_vec()
                    .iter()
                    .map(|u| -(1.0 - u).ln())
                    .collect();
                let sum: f64 = e.iter().sum();
                let w: Vec<f64> = e.iter().map(|x| x / sum).collect();
                assert!(value(&w) <= best + 1e-12, "{normalizer:?}: a better point");
            }
        }
        println!(
            "{:60} {worst_of_all:.1e}  ({zeros} of {count} are 0)",
            format!("{normalizer:?} = projection")
        );
        assert!(worst_of_all < 1e-12);
        assert!(zeros > 0);
    }
}

#[test]
fn top_k_and_sigmoid_by_hand() {
    let (q, k, v) = (random(&[3, 4], 1), random(&[6, 4], 2), random(&[6, 2], 3));
    let s = q.matmul(&k.t()).mul_scalar(0.5);
    let run = |n| {
        let c = |x: &T64| Var::constant(x.clone());
        attend(&c(&q), &c(&k), &c(&v), &Spec::new().normalizer(n)).into_value()
    };
    let kth = s.topk(2, -1, true).0.slice(1, 1..2);
    same("top-2 by hand", &run(Normalizer::TopK(2)), &s.masked_softmax(&s.ge(&kth), -1).matmul(&v));
    let w = s.add_scalar(-(6f64.ln())).sigmoid();
    same("sigmoid, bias -ln L, by hand", &run(Normalizer::Sigmoid { bias: None }), &w.matmul(&v));
}

// Caches.

/// A sequence in random chunks through a cache, against the whole.
fn cached<M: Incremental<f64>>(
    name: &str,
    m: &M,
    spec: &Spec<f64>,
    length: usize,
    fresh: impl Fn() -> KvCache<f64>,
) {
    let x = constant(&[2, length, 8], 31);
    let full = m.forward(&x, spec, &mut Pass::eval()).into_value();
    let mut rng = Rng::new(17);
    let (mut worst_of_all, mut bits): (f64, bool) = (0.0, true);
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
        bits &= all.to_vec() == full.to_vec();
        for (a, b) in all.to_vec().into_iter().zip(full.to_vec()) {
            worst_of_all = worst_of_all.max((a - b).abs());
        }
    }
    let note = if bits { "  (every bit)" } else { "" };
    println!("{:60} {worst_of_all:.1e}{note}", format!("cached = full, {name}, L {length}"));
    assert!(worst_of_all < 1e-12, "{name}: {worst_of_all:e}");
}

#[test]
fn cached_equals_full() {
    let causal = Spec::new().causal();
    let rope = || Rope::new(4);
    let mla =
        MlaSizes { width: 8, heads: 3, query_latent: None, latent: 5, nope: 4, rope: 2, value: 6 };
    for length in [13, 150] {
        let whole = || KvCache::new(length);
        let attention = RopeAttention::new(proj(), rope());
        for path in [Path::Composed, Path::Tiled, Path::Auto] {
            cached(
                &format!("RoPE, {path:?}"),
                &attention,
                &causal.clone().path(path),
                length,
                whole,
            );
        }
        cached("RoPE, alibi", &attention, &causal.clone().bias(Bias::alibi(4)), length, whole);
        let yarn = rope().scaling(Scaling::Yarn(Yarn::new(4.0, 16))).pairing(Pairing::Interleaved);
        cached("YaRN", &RopeAttention::new(proj(), yarn), &causal, length, whole);
        let window = causal.clone().mask(Mask::window(5, 0));
        cached("RoPE, window", &attention, &window, length, whole);
        cached("RoPE, window, sliding cache", &attention, &window, length, || KvCache::sliding(5));
        cached("RoPE, window, larger sliding cache", &attention, &window, length, || {
            KvCache::sliding(8)
        });
        cached(
            "streaming",
            &StreamingAttention::new(proj().with_rope(rope()), 2, 5),
            &causal,
            length,
            || KvCache::streaming(2, 5),
        );
        cached(
            "softcap",
            &SoftcapAttention::new(proj().with_rope(rope()), 0.5),
            &causal,
            length,
            whole,
        );
        cached("qk L2", &QkL2Attention::new(proj().with_rope(rope()), 9), &causal, length, whole);
        cached("qk RMS", &QkRmsAttention::new(proj().with_rope(rope())), &causal, length, whole);
        cached("sinks", &SinkAttention::new(proj()), &causal, length, whole);
        cached("off by one", &QuietAttention::new(proj()), &causal, length, whole);
        cached(
            "memory",
            &MemoryAttention::new(proj(), 3, &mut Rng::new(5)),
            &causal,
            length,
            whole,
        );
        let talking = TalkingHeadsAttention::new(proj());
        talking.score_mix.set(random(&[4, 4], 3));
        cached("talking heads", &talking, &causal, length, whole);
        let sizes = HeadSizes::new(8, 4).key_heads(2).head_width(4);
        cached(
            "differential",
            &DifferentialAttention::new(sizes, 1, Some(Rope::new(2)), &mut Rng::new(2)),
            &causal,
            length,
            whole,
        );
        for form in [MlaForm::Naive, MlaForm::Absorbed] {
            let mut m = MlaAttention::new(mla, &mut Rng::new(2));
            m.form = form;
            cached(&format!("MLA {form:?}"), &m, &causal, length, whole);
        }
        cached("gated", &GatedAttention::new(proj(), &mut Rng::new(5)), &causal, length, whole);
        cached("head scale", &HeadScaleAttention::new(proj()), &causal, length, whole);
        for n in [
            Normalizer::Sparsemax,
            Normalizer::Entmax15,
            Normalizer::TopK(4),
            Normalizer::Sigmoid { bias: Some(-2.0) },
        ] {
            cached(&format!("{n:?}"), &NormalizedAttention::new(proj(), n), &causal, length, whole);
        }
    }
}

#[test]
fn cached_equals_full_in_f32() {
    let length = 200;
    let x = Var::constant(Tensor::<f32>::randn([2, length, 64], &mut Rng::new(3)));
    let proj = Projections::new(HeadSizes::new(64, 4).key_heads(2), &mut Rng::new(4));
    let m = RopeAttention::<f32>::new(proj, Rope::new(16));
    for path in [Path::Composed, Path::Tiled] {
        let spec = Spec::new().causal().path(path);
        let full = m.forward(&x, &spec, &mut Pass::eval()).into_value();
        for n in [1, 7, 64, 199] {
            let mut cache = KvCache::new(length);
            let steps = (0..length).step_by(n).map(|at| {
                let x = x.narrow(1, at, n.min(length - at));
                m.forward_cached(&x, &spec, &mut cache)
            });
            let parts: Vec<Var> = steps.collect();
            let all = Var::cat(&parts.iter().collect::<Vec<_>>(), 1).into_value();
            let what = format!("cached = full, f32, {path:?}, steps of {n}");
            let d = worst(&what, &all.cast(), &full.cast());
            assert!(d < 1e-6, "{what}: {d:e}");
        }
    }
}

#[test]
fn cache_with_learned_positions() {
    let positions = LearnedPositions::new(LEN, 8, &mut Rng::new(2));
    let m = plain();
    let x = constant(&[2, LEN, 8], 3);
    let full = eval(&m, &positions.forward(&x, 0));
    let mut cache = KvCache::new(LEN);
    let mut parts = Vec::new();
    for (at, n) in [(0, 4), (4, 1), (5, 3), (8, 1)] {
        let x = positions.forward(&x.narrow(1, at, n), cache.position());
        parts.push(m.forward_cached(&x, &Spec::new().causal(), &mut cache));
    }
    let all = Var::cat(&parts.iter().collect::<Vec<_>>(), 1);
    same("cached = full, learned positions", all.value(), &full);
}

#[test]
fn caches_grow_forget_and_go_back() {
    let rows =
        |from: usize, n: usize| Tensor::from_fn([2, 1, n, 1], |i| (10 * i[0] + from + i[2]) as f64);
    let held = |cache: &mut KvCache<f64>| {
        let none = Tensor::zeros([2, 1, 0, 1]);
        cache.append(&none, &none).0.select(0, 1).to_vec()
    };
    let mut cache = KvCache::new(8);
    assert!(cache.is_empty());
    let first = cache.append(&rows(0, 3), &rows(0, 3)).0;
    cache.append(&rows(3, 4), &rows(3, 4));
    assert_eq!(first.select(0, 1).to_vec(), [10.0, 11.0, 12.0], "what was given out stays");
    assert_eq!((cache.len(), cache.remaining()), (7, Some(1)));
    cache.truncate(2);
    cache.append(&rows(5, 1), &rows(5, 1));
    assert_eq!(held(&mut cache), [10.0, 11.0, 15.0]);
    assert_eq!(first.select(0, 1).to_vec(), [10.0, 11.0, 12.0], "what was given out stays");
    cache.clear();
    assert_eq!((cache.len(), cache.position(), cache.remaining()), (0, 0, Some(8)));

    let mut cache = KvCache::streaming(1, 2);
    cache.append(&rows(0, 2), &rows(0, 2));
    let (k, _) = cache.append(&rows(2, 4), &rows(2, 4));
    assert_eq!(k.select(0, 0).to_vec(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "the new see all held");
    assert_eq!((cache.len(), cache.position(), cache.remaining()), (3, 6, None));
    assert_eq!(held(&mut cache), [10.0, 14.0, 15.0]);
    for i in 6..40 {
        cache.append(&rows(i, 1), &rows(i, 1));
    }
    assert_eq!(held(&mut cache), [10.0, 48.0, 49.0]);
    let mut none = KvCache::sliding(0);
    none.append(&rows(0, 2), &rows(0, 2));
    assert_eq!(held(&mut none), [0.0; 0]);
}

#[test]
fn misfits_are_told() {
    let mut rng = Rng::new(1);
    let e = message(|| Rope::new(5));
    assert!(e.contains("rotary width must be even, got 5"), "{e}");
    let e = message(|| proj().with_rope(Rope::new(8)));
    assert!(e.contains("a rotary width of 8 in heads of width 6"), "{e}");
    let e = message(|| Rope::new(4).rotate(&constant(&[3, 2], 1), 0));
    assert!(e.contains("a rotary width of 4 in heads of width 2"), "{e}");
    let e = message(|| Rope::new(2).base(1.0));
    assert!(e.contains("base must be above 1, got 1"), "{e}");
    let e = message(|| Rope::new(2).converted(&random(&[5, 2], 1), 2, Pairing::Half));
    assert!(e.contains("2 heads do not divide 5 rows"), "{e}");
    let e = message(|| HeadSizes::new(10, 3));
    assert!(e.contains("3 heads do not divide a width of 10"), "{e}");
    let e = message(|| HeadSizes::new(12, 6).key_heads(4));
    assert!(e.contains("6 query heads are no multiple of 4 key heads"), "{e}");
    let e = message(|| HeadSizes::new(12, 0));
    assert!(e.contains("0 heads"), "{e}");
    let sizes = HeadSizes::new(6, 2);
    let e = message(|| DifferentialAttention::<f64>::new(sizes, 0, None, &mut Rng::new(1)));
    assert!(e.contains("a head of width 3 has no halves"), "{e}");
    let e = message(|| SoftcapAttention::new(proj(), 0.0));
    assert!(e.contains("softcap must be above 0, got 0"), "{e}");
    let e = message(|| {
        LearnedPositions::<f64>::new(4, 8, &mut Rng::new(1)).forward(&constant(&[3, 8], 1), 2)
    });
    assert!(e.contains("2 to 5 are beyond the context of 4"), "{e}");
    let e = message(|| AttentionPool::new(proj().with_rope(Rope::new(2)), 2, &mut Rng::new(1)));
    assert!(e.contains("no positions"), "{e}");

    let m = plain();
    let mut cache = KvCache::new(4);
    let mut step = |n: usize, batch: usize| {
        let x = Var::constant(Tensor::randn([batch, n, 8], &mut rng));
        drop(m.forward_cached(&x, &Spec::new().causal(), &mut cache));
    };
    step(3, 2);
    let e = message(|| step(2, 2));
    assert!(e.contains("2 more tokens after 3 exceed the capacity of 4"), "{e}");
    let e = message(|| step(1, 3));
    assert!(e.contains("keys [3, 2, 1, 6] do not continue [2, 2, 1, 6]"), "{e}");
    step(1, 2);
    let e = message(|| cache.truncate(5));
    assert!(e.contains("cut to 5 of 4 tokens"), "{e}");
    let mut cache = KvCache::<f64>::sliding(1);
    for _ in 0..2 {
        cache.append(&random(&[1, 2, 1], 1), &random(&[1, 2, 1], 1));
    }
    let e = message(|| cache.truncate(3));
    assert!(e.contains("cannot go back to 3 of 4 tokens: only 3 are held"), "{e}");
}

#[test]
fn nothing_to_see() {
    // Empty sequences and batches come back empty.
    for shape in [[0usize, 3, 8], [2, 0, 8]] {
        let x = Var::constant(Tensor::zeros(shape));
        assert_eq!(*eval(&RopeAttention::new(proj(), Rope::new(4)), &x).shape(), shape);
        assert_eq!(*eval(&SinkAttention::new(proj()), &x).shape(), shape);
        assert_eq!(*eval(&MemoryAttention::new(proj(), 2, &mut Rng::new(1)), &x).shape(), shape);
        let sizes = HeadSizes::new(8, 2);
        let m = DifferentialAttention::<f64>::new(sizes, 0, None, &mut Rng::new(1));
        assert_eq!(*eval(&m, &x).shape(), shape);
        let sizes = MlaSizes { width: 8, ..mla_sizes(None) };
        assert_eq!(*eval(&MlaAttention::<f64>::new(sizes, &mut Rng::new(1)), &x).shape(), shape);
    }
    // A sequence that is all padding gives zeros.
    let x = constant(&[1, 3, 8], 1);
    let y = plain().forward(&x, &Spec::new().mask(Mask::lengths(&[0])), &mut Pass::eval());
    assert!(y.value().to_vec().iter().all(|&y| y == 0.0));
}

#[test]
fn a_sink_needs_a_softmax() {
    let x = constant(&[3, 2], 1);
    for n in [Normalizer::Sparsemax, Normalizer::TopK(1), Normalizer::Sigmoid { bias: None }] {
        let spec = Spec::new().normalizer(n).sink(Sink::Zero);
        let e = message(|| attend(&x, &x, &x, &spec));
        assert!(e.contains("a sink is a logit of the softmax"), "{e}");
    }
}
