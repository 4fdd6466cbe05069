//! The classic variants: each as a trainable module, and what each reduces to.
//!
//! A row of the first table checks gradients by inputs and parameters against finite
//! differences to second order, walking and loading of parameters, and equal bits on any number
//! of threads. A row of the others compares two ways to the same output *and* gradients. Run
//! with `--nocapture` for the tables.

use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_nn::testing::{VariantReport, check_variant};
use retrograd_nn::{Layer, Linear, Module, Pass};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

fn input(shape: &[usize], seed: u64) -> Tensor<f64> {
    Tensor::randn(shape, &mut Rng::new(seed))
}

/// Projections of `width` in so many heads.
fn around_of(width: usize, heads: usize, rng: &mut Rng) -> Projections<f64> {
    Projections::new(HeadSizes::new(width, heads), rng)
}

fn eval() -> Pass {
    Pass::eval()
}

fn show(name: &str, r: &VariantReport) {
    let worst =
        |report: &retrograd_autograd::check::Report| report.worst.as_ref().map_or(0.0, |w| w.error);
    println!(
        "{name:36} {:3} parameters {:6} first {:.1e} {:6} second {:.1e}",
        r.parameters,
        r.first.compared,
        worst(&r.first),
        r.second.compared,
        worst(&r.second)
    );
}

/// A row for a module and a closure of its forward pass on inputs of these shapes.
macro_rules! row {
    ($name:ident, [$($shape:expr),*], $build:expr, $run:expr) => {
        #[test]
        fn $name() {
            let shapes: &[&[usize]] = &[$(&$shape),*];
            let inputs: Vec<_> =
                shapes.iter().enumerate().map(|(i, s)| input(s, 5 + i as u64)).collect();
            show(stringify!($name), &check_variant(stringify!($name), $build, &inputs, $run));
        }
    };
}

row!(
    additive,
    [[2, 3, 3], [2, 4, 2], [2, 4, 3]],
    |r| AdditiveAttention::new(3, 2, 4, r),
    |m, x| m.forward(&x[0], &x[1], &x[2], Mask::lengths(&[4, 2]), &mut eval())
);

fn luong<S: LuongScore<f64>>(score: S, rng: &mut Rng) -> LuongAttention<f64, S> {
    LuongAttention::new(score, 3, 3, rng)
}
row!(luong_dot, [[2, 3, 3], [2, 4, 3]], |r| luong(LuongDot, r), |m, x| m.forward(
    &x[0],
    &x[1],
    Mask::lengths(&[4, 2]),
    &mut eval()
));
row!(luong_general, [[2, 3, 3], [2, 4, 3]], |r| luong(LuongGeneral::new(3, 3, r), r), |m, x| m
    .forward(&x[0], &x[1], Mask::lengths(&[4, 2]), &mut eval()));
row!(luong_concat, [[2, 3, 3], [2, 4, 3]], |r| luong(LuongConcat::new(3, 3, 4, r), r), |m, x| m
    .forward(&x[0], &x[1], Mask::lengths(&[4, 2]), &mut eval()));
row!(luong_location, [[2, 3, 3], [2, 4, 3]], |r| luong(LuongLocation::new(3, 4, r), r), |m, x| m
    .forward(&x[0], &x[1], Mask::lengths(&[4, 2]), &mut eval()));
row!(
    luong_local_m,
    [[2, 3, 3], [2, 5, 3]],
    |r| LuongLocalM::new(luong(LuongGeneral::new(3, 3, r), r), 1),
    |m, x| m.forward(&x[0], &x[1], Mask::Full, &mut eval())
);
row!(
    luong_local_p,
    [[2, 3, 3], [2, 6, 3]],
    |r| LuongLocalP::new(luong(LuongGeneral::new(3, 3, r), r), 3, 2, r),
    |m, x| m.forward(&x[0], &x[1], &[6, 4], &mut eval())
);

fn sparse(
    pattern: SparsePattern,
    merge: SparseMerge,
    r: &mut Rng,
) -> SparseTransformerAttention<f64> {
    SparseTransformerAttention::new(around_of(4, 2, r), pattern, merge, 0)
}
const STRIDED: SparsePattern = SparsePattern::Strided { stride: 2 };
const FIXED: SparsePattern = SparsePattern::Fixed { stride: 2, summary: 1 };
row!(sparse_strided, [[2, 5, 4]], |r| sparse(STRIDED, SparseMerge::Heads, r), |m, x| m.forward(
    &x[0],
    Mask::Full,
    &mut eval()
));
row!(sparse_fixed, [[2, 5, 4]], |r| sparse(FIXED, SparseMerge::Heads, r), |m, x| m.forward(
    &x[0],
    Mask::Full,
    &mut eval()
));
row!(sparse_union, [[5, 4]], |r| sparse(FIXED, SparseMerge::Union, r), |m, x| m.forward(
    &x[0],
    Mask::Full,
    &mut eval()
));
row!(
    longformer,
    [[2, 6, 4]],
    |r| LongformerAttention::new(around_of(4, 2, r), &[1, 2], 1),
    |m, x| m.forward(&x[0], &[1, 4], Mask::Full, &mut eval())
);
row!(
    longformer_causal,
    [[6, 4]],
    |r| LongformerAttention::new(around_of(4, 2, r), &[1, 1], 1).causal(),
    |m, x| m.forward(&x[0], &[0, 3], Mask::Full, &mut eval())
);

const BIG_BIRD: BigBirdLayout =
    BigBirdLayout { block: 2, neighbours: 0, global: 1, random: 1, seed: 4 };
row!(big_bird, [[2, 9, 4]], |r| BigBirdAttention::new(around_of(4, 2, r), BIG_BIRD), |m, x| m
    .forward(&x[0], Mask::Full, &mut eval()));
row!(prefix_lm, [[2, 5, 4]], |r| PrefixLmAttention::new(around_of(4, 2, r)), |m, x| m.forward(
    &x[0],
    &[2, 4],
    Mask::Full,
    &mut eval()
));
row!(packed, [[6, 4]], |r| PackedAttention::new(around_of(4, 2, r)), |m, x| m.forward(
    &x[0],
    &Packed::new(&[2, 4]),
    Mask::Full,
    &mut eval()
));
row!(shared_prefix, [[6, 4]], |r| PackedAttention::new(around_of(4, 2, r)), |m, x| m.forward(
    &x[0],
    &Packed::shared_prefix(2, &[2, 2]),
    Mask::Full,
    &mut eval()
));
row!(chunked_local, [[2, 5, 4]], |r| ChunkedLocalAttention::new(around_of(4, 2, r), 3), |m, x| m
    .forward(&x[0], &mut eval()));
row!(alibi, [[2, 4, 6]], |r| AlibiAttention::causal(around_of(6, 3, r)), |m, x| m
    .forward(&x[0], &mut eval()));
row!(alibi_symmetric, [[2, 4, 6]], |r| AlibiAttention::symmetric(around_of(6, 3, r)), |m, x| m
    .forward(&x[0], &mut eval()));

fn buckets(bidirectional: bool) -> Buckets {
    Buckets { count: if bidirectional { 4 } else { 3 }, max_distance: 4, bidirectional }
}
row!(t5_encoder, [[2, 5, 4]], |r| T5Attention::with_buckets(4, 2, buckets(true), r), |m, x| m
    .forward(&x[0], &mut eval()));
row!(t5_decoder, [[2, 5, 4]], |r| T5Attention::with_buckets(4, 2, buckets(false), r), |m, x| m
    .forward(&x[0], &mut eval()));
row!(shaw, [[2, 5, 4]], |r| ShawAttention::new(around_of(4, 2, r), 2, r), |m, x| m
    .forward(&x[0], &mut eval()));
row!(shaw_causal, [[5, 4]], |r| ShawAttention::new(around_of(4, 2, r), 2, r), |m, x| m.attend(
    &x[0],
    Mask::causal() & Mask::window(2, 0),
    &mut eval()
));
row!(
    transformer_xl,
    [[2, 4, 4]],
    |r| TransformerXlAttention::new(around_of(4, 2, r), r),
    |m, x| m.forward(&x[0], Some(&Var::constant(input(&[2, 3, 4], 8))), Mask::Full, &mut eval())
);

fn linear(reach: Reach, form: LinearForm, r: &mut Rng) -> LinearAttention<f64> {
    LinearAttention::new(around_of(4, 2, r), reach, form)
}
row!(linear_quadratic, [[2, 5, 4]], |r| linear(Reach::Causal, LinearForm::Quadratic, r), |m, x| m
    .forward(&x[0], &mut eval()));
row!(linear_recurrent, [[2, 5, 4]], |r| linear(Reach::Causal, LinearForm::Recurrent, r), |m, x| m
    .forward(&x[0], &mut eval()));
row!(linear_chunked, [[2, 5, 4]], |r| linear(Reach::Causal, LinearForm::Chunked(2), r), |m, x| m
    .forward(&x[0], &mut eval()));
row!(linear_full, [[2, 5, 4]], |r| linear(Reach::Full, LinearForm::Chunked(2), r), |m, x| m
    .forward(&x[0], &mut eval()));

/// The worst difference between two ways, of output and of gradients by every input. A hundred
/// times less than `bound` in practice.
fn same(
    name: &str,
    inputs: &[Tensor<f64>],
    a: impl Fn(&[Var<f64>]) -> Var<f64>,
    b: impl Fn(&[Var<f64>]) -> Var<f64>,
) {
    let run = |f: &dyn Fn(&[Var<f64>]) -> Var<f64>| {
        let leaves: Vec<_> = inputs.iter().cloned().map(Var::leaf).collect();
        let y = f(&leaves);
        let weights = Tensor::randn(y.shape(), &mut Rng::new(77));
        let grads = y.backward_with(&weights);
        let zero = |x: &Var<f64>| Tensor::zeros(x.shape());
        let of = leaves.iter().map(|x| grads.get(x).cloned().unwrap_or_else(|| zero(x)));
        std::iter::once(y.value().clone()).chain(of).collect::<Vec<_>>()
    };
    let (a, b) = (run(&a), run(&b));
    let mut worst = [0.0f64; 2];
    for (i, (a, b)) in a.iter().zip(&b).enumerate() {
        assert_eq!(a.shape(), b.shape(), "{name}: result {i}");
        for (x, y) in a.to_vec().into_iter().zip(b.to_vec()) {
            let error = if x == y { 0.0 } else { (x - y).abs() };
            assert!(error <= 1e-11 * (1.0 + y.abs()), "{name}: result {i}: {x} and {y}");
            worst[i.min(1)] = worst[i.min(1)].max(error);
        }
    }
    println!("{name:58} output {:.1e}  gradients {:.1e}", worst[0], worst[1]);
}

/// Projections of width 6 in 3 heads, and an input for them.
fn around() -> (Projections<f64>, [Tensor<f64>; 1]) {
    (around_of(6, 3, &mut Rng::new(3)), [input(&[2, 9, 6], 4)])
}

fn with_qkv(mut p: Projections<f64>, [q, k, v]: [&Linear<f64>; 3]) -> Projections<f64> {
    (p.q_proj, p.k_proj, p.v_proj) = (q.clone(), k.clone(), v.clone());
    p
}

fn by(p: &Projections<f64>, mask: Mask) -> impl Fn(&[Var<f64>]) -> Var<f64> + '_ {
    move |x| p.attend(&x[0], mask.clone(), &mut Past::nothing(), &mut eval())
}

#[test]
fn masks_that_reduce() {
    let (p, x) = around();
    let r = &mut Rng::new(0);
    let (full, causal) = (by(&p, Mask::Full), by(&p, Mask::causal()));

    same("window >= L = causal", &x, by(&p, Mask::window(8, 0)), &causal);
    same("block mask all full = dense", &x, by(&p, Mask::blocks(2, &Tensor::ones([5, 5]))), &full);
    same(
        "dilation 1 = window",
        &x,
        by(&p, Mask::window(2, 1) & Mask::dilated(1)),
        by(&p, Mask::window(2, 1)),
    );
    same(
        "mask by head, all alike = mask",
        &x,
        by(&p, Mask::by_head(vec![Mask::window(2, 1); 3])),
        by(&p, Mask::window(2, 1)),
    );
    same("prefixes of 0 = causal", &x, by(&p, Mask::prefix(&[0])), &causal);
    let prefix = PrefixLmAttention { projections: p.clone() };
    same(
        "prefixes of L = full",
        &x,
        |x| prefix.forward(&x[0], &[9, 9], Mask::Full, &mut eval()),
        &full,
    );
    let mut chunked = ChunkedLocalAttention::new(around_of(6, 3, r), 9);
    chunked.projections = p.clone();
    same("chunk >= L = causal", &x, |x| chunked.forward(&x[0], &mut eval()), &causal);

    for (name, pattern, merge, layer) in [
        ("strided near, stride >= L = causal", 9, SparseMerge::Layers, 0),
        ("strided union, stride >= L = causal", 9, SparseMerge::Union, 0),
        ("strided far, stride 1 = causal", 1, SparseMerge::Layers, 1),
    ]
    .map(|(n, stride, m, l)| (n, SparsePattern::Strided { stride }, m, l))
    .into_iter()
    .chain([
        (
            "fixed near, stride >= L = causal",
            SparsePattern::Fixed { stride: 9, summary: 1 },
            SparseMerge::Layers,
            0,
        ),
        (
            "fixed far, summary = stride = causal",
            SparsePattern::Fixed { stride: 4, summary: 4 },
            SparseMerge::Layers,
            1,
        ),
    ]) {
        let mut sparse = SparseTransformerAttention::new(around_of(6, 3, r), pattern, merge, layer);
        sparse.projections = p.clone();
        same(name, &x, |x| sparse.forward(&x[0], Mask::Full, &mut eval()), &causal);
    }

    let near = BigBirdLayout { block: 2, neighbours: 4, global: 0, random: 0, seed: 0 };
    let random = BigBirdLayout { neighbours: 0, random: 4, ..near };
    for (name, layout) in
        [("BigBird, all neighbours = full", near), ("BigBird, all random = full", random)]
    {
        let m = BigBirdAttention { projections: p.clone(), layout };
        same(name, &x, |x| m.forward(&x[0], Mask::Full, &mut eval()), &full);
    }
}

#[test]
fn longformer_reduces() {
    let (p, x) = around();
    let with = |dilation: &[usize], window, causal| {
        let mut m = LongformerAttention::new(around_of(6, 3, &mut Rng::new(1)), dilation, window);
        m.projections = p.clone();
        if causal { m.causal() } else { m }
    };
    let run = |m: LongformerAttention<f64>, global: &'static [usize]| {
        move |x: &[Var<f64>]| m.forward(&x[0], global, Mask::Full, &mut eval())
    };
    same(
        "Longformer, w >= L, causal = causal",
        &x,
        run(with(&[1, 1, 1], 9, true), &[]),
        by(&p, Mask::causal()),
    );
    same(
        "Longformer, dilation 1 by head = window",
        &x,
        by(&p, with(&[1, 1, 2], 2, false).mask(&[]) & Mask::by_head(vec![Mask::Full; 3])),
        by(
            &p,
            Mask::by_head(vec![
                Mask::window(2, 2),
                Mask::window(2, 2),
                Mask::window(4, 4) & Mask::dilated(2),
            ]),
        ),
    );
    let every: &[usize] = &[0, 1, 2, 3, 4, 5, 6, 7, 8];
    let all = with(&[1, 2, 3], 1, false);
    let global = with_qkv(p.clone(), [&all.q_global, &all.k_global, &all.v_global]);
    same("Longformer, all global = full", &x, run(all.clone(), every), by(&global, Mask::Full));
    let causal = all.clone().causal();
    same(
        "Longformer, all global, causal = causal",
        &x,
        run(causal, every),
        by(&global, Mask::causal()),
    );
    // Global projections equal to the local ones: one attention under one mask.
    let mut tied = with(&[1, 2, 2], 1, false);
    for (to, of) in [
        (&mut tied.q_global, &p.q_proj),
        (&mut tied.k_global, &p.k_proj),
        (&mut tied.v_global, &p.v_proj),
    ] {
        *to = of.clone();
    }
    let mask = tied.mask(&[2, 7]);
    same("Longformer, tied projections = its mask", &x, run(tied, &[2, 7]), by(&p, mask));
}

#[test]
fn packed_documents_are_separate_runs() {
    let (p, _) = around();
    let x = [input(&[11, 6], 4)];
    let packed = Packed::from_cu_seqlens(&[0, 4, 5, 11]);
    let m = PackedAttention { projections: p.clone() };
    same(
        "packed documents = separate runs",
        &x,
        |x| m.forward(&x[0], &packed, Mask::Full, &mut eval()),
        |x| {
            let runs: Vec<_> = packed
                .ranges()
                .into_iter()
                .map(|r| by(&p, Mask::causal())(&[x[0].slice(0, r)]))
                .collect();
            Var::cat(&runs.iter().collect::<Vec<_>>(), 0)
        },
    );
    let shared = Packed::shared_prefix(4, &[3, 4]);
    same(
        "shared prefix = each branch after its prefix",
        &x,
        |x| m.forward(&x[0], &shared, Mask::Full, &mut eval()),
        |x| {
            let prefix = x[0].slice(0, 0..4);
            let mut runs = vec![by(&p, Mask::causal())(std::slice::from_ref(&prefix))];
            for r in shared.ranges() {
                let all = Var::cat(&[&prefix, &x[0].slice(0, r)], 0);
                runs.push(by(&p, Mask::causal())(&[all]).slice(0, 4..));
            }
            Var::cat(&runs.iter().collect::<Vec<_>>(), 0)
        },
    );
    // A document of no tokens changes nothing.
    assert_eq!(Packed::new(&[4, 0, 7]).positions(), Packed::new(&[4, 7]).positions());
}

#[test]
fn relative_positions_reduce() {
    let (p, x) = around();
    let r = &mut Rng::new(0);
    for (name, mut m, mask) in [
        ("ALiBi, slopes 0 = causal", AlibiAttention::causal(around_of(6, 3, r)), Mask::causal()),
        (
            "ALiBi, symmetric, slopes 0 = full",
            AlibiAttention::symmetric(around_of(6, 3, r)),
            Mask::Full,
        ),
    ] {
        (m.projections, m.slopes) = (p.clone(), vec![0.0; 3]);
        same(name, &x, |x| m.forward(&x[0], &mut eval()), by(&p, mask));
    }
    let steep = |mask: Mask, f: fn(isize) -> f64| {
        let slopes = alibi_slopes(3);
        let p = p.clone();
        move |x: &[Var<f64>]| {
            let slopes = slopes.clone();
            let bias =
                Bias::rule("ALiBi", move |at| slopes[at.head] * f(at.query - at.key as isize));
            p.attend(
                &x[0],
                Spec::new().mask(mask.clone()).bias(bias),
                &mut Past::nothing(),
                &mut eval(),
            )
        }
    };
    let mut m = AlibiAttention::causal(around_of(6, 3, r));
    m.projections = p.clone();
    same(
        "ALiBi = its formula, -m (p - j)",
        &x,
        |x| m.forward(&x[0], &mut eval()),
        steep(Mask::causal(), |d| -d as f64),
    );

    for (name, m, mask) in [
        ("T5, table 0 = full, scale 1", T5Attention::encoder(6, 3, r), Mask::Full),
        ("T5, causal, table 0 = causal, scale 1", T5Attention::decoder(6, 3, r), Mask::causal()),
    ] {
        m.relative_attention_bias.weight.set(Tensor::zeros([32, 3]));
        let plain = with_qkv(p.clone(), [&m.q, &m.k, &m.v]);
        plain.o_proj.weight.set(m.o.weight.value());
        same(
            name,
            &x,
            |x| m.forward(&x[0], &mut eval()),
            |x| {
                plain.attend(
                    &x[0],
                    Spec::new().mask(mask.clone()).scale(1.0),
                    &mut Past::nothing(),
                    &mut eval(),
                )
            },
        );
    }

    let (p, x) = around();
    let mut m = ShawAttention::new(around_of(6, 3, r), 2, r);
    m.projections = p.clone();
    m.relative_keys.set(Tensor::zeros([5, 2]));
    m.relative_values.set(Tensor::zeros([5, 2]));
    same("Shaw, tables 0 = full", &x, |x| m.forward(&x[0], &mut eval()), by(&p, Mask::Full));

    let mut m = TransformerXlAttention::new(around_of(6, 3, r), r);
    m.projections = p.clone();
    for (_, q) in m.named_parameters().iter().filter(|(name, _)| name.starts_with("r_")) {
        q.set(Tensor::zeros(q.shape()));
    }
    same(
        "Transformer-XL, u, v and r 0 = causal",
        &x,
        |x| m.forward(&x[0], None, Mask::Full, &mut eval()),
        by(&p, Mask::causal()),
    );
    let m = TransformerXlAttention::new(around_of(6, 3, r), r);
    let before = Var::constant(input(&[2, 5, 6], 9));
    same(
        "Transformer-XL, memory = one long segment",
        &x,
        |x| m.forward(&x[0], Some(&before), Mask::Full, &mut eval()),
        |x| {
            let all = Var::cat(&[&before, &x[0]], 1);
            m.forward(&all, None, Mask::Full, &mut eval()).slice(1, 5..)
        },
    );
}

/// A row of weights and values at a time, as the papers write it.
fn softmax_row(scores: &[Var<f64>]) -> Vec<Var<f64>> {
    let exp: Vec<_> = scores.iter().map(|s| s.exp()).collect();
    let sum = exp.iter().skip(1).fold(exp[0].clone(), |a, b| a + b);
    exp.iter().map(|e| e / &sum).collect()
}

#[test]
fn relative_positions_by_their_formulas() {
    let r = &mut Rng::new(2);
    let x = [input(&[6, 4], 4)];
    let l = 6;
    // By pairs: a score and a value for each.
    type Pair<'a> = &'a dyn Fn(usize, usize, usize, [&Var<f64>; 3]) -> (Var<f64>, Var<f64>);
    let by_pairs = |p: &Projections<f64>, x: &Var<f64>, causal: bool, pair: Pair<'_>| {
        let [q, k, v] = p.qkv(x, &mut Past::nothing(), &mut eval());
        let row = |x: &Var<f64>, h: usize, i: usize| x.select(0, h).select(0, i);
        let mut heads = Vec::new();
        for h in 0..2 {
            let mut rows = Vec::new();
            for i in 0..l {
                let end = if causal { i + 1 } else { l };
                let (scores, values): (Vec<_>, Vec<_>) = (0..end)
                    .map(|j| pair(h, i, j, [&row(&q, h, i), &row(&k, h, j), &row(&v, h, j)]))
                    .unzip();
                let weights = softmax_row(&scores);
                let terms = weights.iter().zip(&values).map(|(w, v)| w * v);
                rows.push(terms.reduce(|a, b| a + b).unwrap());
            }
            heads.push(Var::stack(&rows.iter().collect::<Vec<_>>(), 0));
        }
        p.finish(&Var::stack(&heads.iter().collect::<Vec<_>>(), 0), &mut eval())
    };

    let m = ShawAttention::new(around_of(4, 2, r), 2, r);
    same(
        "Shaw = its formula by pairs",
        &x,
        |x| m.forward(&x[0], &mut eval()),
        |x| {
            by_pairs(&m.projections, &x[0], false, &|_, i, j, [q, k, v]| {
                let c = (j as isize - i as isize).clamp(-2, 2) + 2;
                let of = |t: &retrograd_nn::Param<f64>| t.var().select(0, c as usize);
                let s = (k + of(&m.relative_keys)).dot(q) * 0.5f64.sqrt();
                (s, v + of(&m.relative_values))
            })
        },
    );

    let m = TransformerXlAttention::new(around_of(4, 2, r), r);
    same(
        "Transformer-XL = its formula by pairs",
        &x,
        |x| m.forward(&x[0], None, Mask::Full, &mut eval()),
        |x| {
            by_pairs(&m.projections, &x[0], true, &|h, i, j, [q, k, v]| {
                let d = (i - j) as f64;
                let r = Tensor::from([[d.sin(), (d / 100.0).sin(), d.cos(), (d / 100.0).cos()]]);
                let r = m.r_net.forward(&Var::constant(r), &mut eval()).select(0, 0);
                let r = r.slice(0, 2 * h..2 * h + 2);
                let of = |t: &retrograd_nn::Param<f64>| t.var().select(0, h);
                let s = (q + of(&m.r_w_bias)).dot(k) + (q + of(&m.r_r_bias)).dot(&r);
                (s * 0.5f64.sqrt(), v.clone())
            })
        },
    );

    let m = T5Attention::encoder(4, 2, r);
    let p = with_qkv(around_of(4, 2, r), [&m.q, &m.k, &m.v]);
    p.o_proj.weight.set(m.o.weight.value());
    same(
        "T5 = its formula by pairs",
        &x,
        |x| m.forward(&x[0], &mut eval()),
        |x| {
            by_pairs(&p, &x[0], false, &|h, i, j, [q, k, v]| {
                // Near distances have a bucket each, those after the query from 16 on.
                let bucket = if j > i { 16 + j - i } else { i - j };
                let bias = m.relative_attention_bias.weight.var().select(0, bucket).select(0, h);
                (q.dot(k) + bias, v.clone())
            })
        },
    );
}

#[test]
fn published_constants() {
    // T5: 32 buckets, distances up to 128, both directions.
    let encoder = Buckets { count: 32, max_distance: 128, bidirectional: true };
    let first = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91];
    for (bucket, &distance) in first.iter().enumerate() {
        let distance = distance as isize;
        assert_eq!(encoder.of(-distance), bucket, "distance -{distance}");
        if distance > 0 {
            assert_eq!(encoder.of(1 - distance), bucket - 1, "distance -{}", distance - 1);
            assert_eq!(encoder.of(distance), 16 + bucket, "distance {distance}");
        }
    }
    assert_eq!((encoder.of(-10_000), encoder.of(10_000)), (15, 31));
    let decoder = Buckets { bidirectional: false, ..encoder };
    assert_eq!(
        [-15, -16, -31, -113, -5000, 0, 7].map(|d| decoder.of(d)),
        [15, 16, 21, 31, 31, 0, 0]
    );
    // ALiBi: 12 heads, as the authors' code gives them.
    let want =
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 0.5, 1.5, 2.5, 3.5].map(|x: f64| (-x).exp2());
    for (slope, want) in alibi_slopes(12).into_iter().zip(want) {
        assert!((slope - want).abs() < 1e-16, "{slope} is not {want}");
    }
}

#[test]
fn additive_and_luong_agree() {
    let r = &mut Rng::new(6);
    // Hidden values of several tiles.
    let x = [input(&[2, 21, 3], 1), input(&[2, 90, 4], 2)];
    let seen = Mask::lengths(&[90, 17]);
    let additive = AdditiveAttention::new(3, 4, 80, r);
    let literal = |x: &[Var<f64>]| {
        let q = x[0].matmul(&additive.query.weight.var().t()).unsqueeze(2);
        let k =
            x[1].matmul(&additive.key.weight.var().t()) + additive.key.bias.as_ref().unwrap().var();
        let s = (q + k.unsqueeze(1)).tanh().matmul(&additive.v.var().unsqueeze(-1)).squeeze(-1);
        let keep = Tensor::from_fn([2, 1, 90], |i| i[0] == 0 || i[2] < 17);
        s.masked_softmax(&keep, -1).matmul(&x[1])
    };
    let ours = |x: &[Var<f64>]| additive.forward(&x[0], &x[1], &x[1], seen.clone(), &mut eval());
    same("additive, in tiles = its formula at once", &x, ours, literal);

    additive.key.bias.as_ref().unwrap().set(Tensor::zeros([80]));
    let w = Tensor::cat(&[&additive.query.weight.value(), &additive.key.weight.value()], 1);
    let concat = LuongAttention::new(LuongConcat::new(3, 4, 80, r), 3, 4, r);
    concat.score.weight.set(w);
    concat.score.v.set(additive.v.value());
    same(
        "Luong concat = additive, W = [W U]",
        &x,
        |x| concat.context(&x[0], &x[1], seen.clone()),
        ours,
    );
    same(
        "Luong concat = vᵀ tanh(W [h_t; h_s])",
        &x,
        |x| concat.context(&x[0], &x[1], Mask::Full),
        |x| {
            let t = x[0].unsqueeze(2).broadcast_to([2, 21, 90, 3]);
            let s = x[1].unsqueeze(1).broadcast_to([2, 21, 90, 4]);
            let hidden = Var::cat(&[&t, &s], -1).matmul(&concat.score.weight.var().t()).tanh();
            let scores = hidden.matmul(&concat.score.v.var().unsqueeze(-1)).squeeze(-1);
            scores.softmax(-1).matmul(&x[1])
        },
    );

    let x = [input(&[2, 5, 4], 1), input(&[2, 150, 4], 2)];
    let dot = LuongAttention::new(LuongDot, 4, 4, r);
    let general = LuongAttention::new(LuongGeneral::new(4, 4, r), 4, 4, r);
    general.score.weight.set(Tensor::eye(4));
    let of_dot = |x: &[Var<f64>]| dot.context(&x[0], &x[1], Mask::Full);
    same("Luong general, W = 1 = dot", &x, |x| general.context(&x[0], &x[1], Mask::Full), of_dot);
    for path in [Path::Tiled, Path::Composed] {
        same(&format!("Luong dot = scaled dot product, scale 1, {path:?}"), &x, of_dot, |x| {
            let [t, s] = [&x[0], &x[1]].map(|x| x.unsqueeze(1));
            attend(&t, &s, &s, &Spec::new().scale(1.0).path(path)).squeeze(1)
        });
    }
    let location = LuongAttention::new(LuongLocation::new(4, 200, r), 4, 4, r);
    same(
        "Luong location = softmax(W h_t), cut",
        &x,
        |x| location.context(&x[0], &x[1], Mask::Full),
        |x| {
            let scores = x[0].matmul(&location.score.weight.var().t()).slice(-1, 0..150);
            scores.softmax(-1).matmul(&x[1])
        },
    );
    let far = LuongLocalM::new(general.clone(), 150);
    let global = |x: &[Var<f64>]| general.forward(&x[0], &x[1], Mask::Full, &mut eval());
    same(
        "Luong local-m, D >= L = global",
        &x,
        |x| far.forward(&x[0], &x[1], Mask::Full, &mut eval()),
        global,
    );
    same("Luong output = tanh(W_c [c; h_t])", &x, global, |x| {
        let both = Var::cat(&[&general.context(&x[0], &x[1], Mask::Full), &x[0]], -1);
        both.matmul(&general.combine.weight.var().t()).tanh()
    });
    let p = LuongLocalP::new(general.clone(), 4, 6, r);
    same(
        "Luong local-p = its formula",
        &x,
        |x| p.forward(&x[0], &x[1], &[150, 40], &mut eval()),
        |x| {
            let hidden = x[0].matmul(&p.position.weight.var().t()).tanh();
            let share = hidden.matmul(&p.v_p.var().unsqueeze(-1)).sigmoid();
            let lengths = Var::constant(Tensor::from_vec(vec![150.0, 40.0], [2, 1, 1]));
            let center = share * lengths;
            let at = Var::constant(Tensor::from_fn([150], |i| i[0] as f64));
            let away = at - center;
            let near = away.value().abs().le(&Tensor::scalar(6.0));
            let inside = Tensor::from_fn([2, 1, 150], |i| i[0] == 0 || i[2] < 40);
            let weights = x[0].matmul(&x[1].t()).masked_softmax(&near.and(&inside), -1);
            let bell = (away.square() / -18.0).exp();
            let both = Var::cat(&[&(weights * bell).matmul(&x[1]), &x[0]], -1);
            both.matmul(&general.combine.weight.var().t()).tanh()
        },
    );
}

#[test]
fn nothing_leaks_into_luong_and_additive() {
    let r = &mut Rng::new(6);
    let (t, s) = (input(&[1, 3, 4], 1), input(&[1, 6, 4], 2));
    let general = LuongAttention::new(LuongGeneral::new(4, 4, r), 4, 4, r);
    let dot = LuongAttention::new(LuongDot, 4, 4, r);
    let additive = AdditiveAttention::new(4, 4, 5, r);
    let run = |which: usize, with: f64| {
        let mut s = s.clone();
        s.make_mut()[16..].fill(with);
        let (t, s) = (Var::leaf(t.clone()), Var::leaf(s));
        let seen = Mask::lengths(&[4]);
        let y = match which {
            0 => general.context(&t, &s, seen),
            1 => dot.context(&t, &s, seen),
            _ => additive.forward(&t, &s, &s, seen, &mut eval()),
        };
        let grads = y.square().sum(..).backward();
        let mut all = vec![y.value().to_vec(), grads.get(&t).unwrap().to_vec()];
        all.push(grads.get(&s).unwrap().to_vec());
        all
    };
    for which in 0..3 {
        for with in [f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(run(which, with), run(which, 0.0), "variant {which} with {with}");
        }
    }
}

#[test]
fn linear_forms_agree() {
    let x = [input(&[2, 3, 11, 4], 1), input(&[2, 3, 11, 4], 2), input(&[2, 3, 11, 5], 3)];
    let run =
        |reach, form| move |x: &[Var<f64>]| linear_attention(&x[0], &x[1], &x[2], reach, form);
    for reach in [Reach::Causal, Reach::Full] {
        let forms = [1, 3, 4, 11, 20].map(LinearForm::Chunked);
        for form in [LinearForm::Recurrent].into_iter().chain(forms) {
            same(
                &format!("linear, {reach:?}, {form:?} = Quadratic"),
                &x,
                run(reach, form),
                run(reach, LinearForm::Quadratic),
            );
        }
    }
    // A sequence of nothing, and queries of another number.
    for form in [LinearForm::Quadratic, LinearForm::Recurrent, LinearForm::Chunked(2)] {
        let x = |l: usize, d: usize| Var::constant(input(&[2, l, d], 1));
        let y = linear_attention(&x(0, 4), &x(0, 4), &x(0, 5), Reach::Causal, form);
        assert_eq!(*y.shape(), [2, 0, 5]);
        let y = linear_attention(&x(3, 4), &x(0, 4), &x(0, 5), Reach::Full, form);
        assert!(*y.shape() == [2, 3, 5] && y.value().to_vec().iter().all(|&x| x == 0.0));
    }
    let (p, x) = around();
    let mut m = LinearAttention::new(
        around_of(6, 3, &mut Rng::new(0)),
        Reach::Causal,
        LinearForm::Quadratic,
    );
    m.projections = p;
    same(
        "linear, decoded by a state, 1 + 4 + 4 tokens = at once",
        &x,
        |x| {
            let mut state = None;
            let parts = x[0].split(1, &[1, 4, 4]);
            let parts: Vec<_> = parts.iter().map(|x| m.step(x, &mut state, &mut eval())).collect();
            Var::cat(&parts.iter().collect::<Vec<_>>(), 1)
        },
        |x| m.forward(&x[0], &mut eval()),
    );
}

#[test]
fn tiled_is_composed_under_every_mask() {
    let l = 150;
    let strided = SparsePattern::Strided { stride: 12 };
    let fixed = SparsePattern::Fixed { stride: 64, summary: 16 };
    let big_bird = BigBirdLayout { block: 32, neighbours: 1, global: 1, random: 1, seed: 3 };
    let longformer = LongformerAttention::new(around_of(8, 2, &mut Rng::new(1)), &[1, 3], 20);
    let causal_longformer = longformer.clone().causal();
    let x = [input(&[2, 2, l, 4], 1), input(&[2, 2, l, 4], 2), input(&[2, 2, l, 3], 3)];
    for (name, mask) in [
        ("window", Mask::causal() & Mask::window(20, 0)),
        ("dilated window", Mask::window(60, 60) & Mask::dilated(3)),
        ("strided, by head", strided.mask(SparseMerge::Heads, 2, 0)),
        ("strided, union", strided.mask(SparseMerge::Union, 2, 0)),
        ("fixed, by head", fixed.mask(SparseMerge::Heads, 2, 0)),
        ("fixed, union", fixed.mask(SparseMerge::Union, 2, 0)),
        ("Longformer", longformer.mask(&[0, 100])),
        ("Longformer, causal", causal_longformer.mask(&[0, 100])),
        ("Longformer, global rows", Mask::queries(&[0, 100])),
        ("BigBird, one layout", big_bird.mask(1, l)),
        ("BigBird, layout by head", big_bird.mask(2, l)),
        ("prefix", Mask::prefix(&[30, 90])),
        ("packed", Mask::causal() & Packed::new(&[40, 70, 40]).mask()),
        ("shared prefix", Mask::causal() & Packed::shared_prefix(40, &[70, 40]).mask()),
        ("chunked local", Mask::causal() & Mask::chunks(50)),
    ] {
        let run = |path| {
            let spec = Spec::new().mask(mask.clone()).bias(Bias::alibi(2)).path(path);
            move |x: &[Var<f64>]| attend(&x[0], &x[1], &x[2], &spec)
        };
        same(&format!("tiled = composed, {name}"), &x, run(Path::Tiled), run(Path::Composed));
    }
}

#[test]
fn misfits_are_told() {
    let message = |f: &dyn Fn()| -> String {
        let panic =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).expect_err("no panic");
        *panic.downcast::<String>().expect("a message with numbers")
    };
    let says = |f: &dyn Fn(), what: &str| {
        let said = message(f);
        assert!(said.contains(what), "{said:?} does not say {what:?}");
    };
    let rng = || Rng::new(1);
    let x = |shape: &[usize]| Var::constant(input(shape, 1));
    says(&|| drop(around_of(7, 2, &mut rng())), "2 heads do not divide a width of 7");
    says(
        &|| drop(SparsePattern::Fixed { stride: 3, summary: 4 }.far()),
        "a summary of 4 in blocks of 3",
    );
    let longformer = LongformerAttention::new(around_of(4, 1, &mut rng()), &[1], 2);
    says(
        &|| drop(longformer.forward(&x(&[5, 4]), &[5], Mask::Full, &mut eval())),
        "global token 5 in a sequence of 5",
    );
    let packed = PackedAttention::new(around_of(4, 1, &mut rng()));
    says(
        &|| drop(packed.forward(&x(&[5, 4]), &Packed::new(&[2, 2]), Mask::Full, &mut eval())),
        "5 tokens for documents of 4",
    );
    says(&|| drop(Packed::from_cu_seqlens(&[0, 4, 3])), "[0, 4, 3]");
    let location =
        LuongAttention::<f64, _>::new(LuongLocation::new(4, 3, &mut rng()), 4, 4, &mut rng());
    says(
        &|| drop(location.context(&x(&[2, 4]), &x(&[5, 4]), Mask::Full)),
        "a source of 5 positions, made for 3",
    );
    let qkv = |spec: Spec<f64>| {
        let x = x(&[2, 5, 4]);
        drop(attend(&x, &x, &x, &spec));
    };
    says(&|| qkv(Spec::new().bias(Bias::alibi(3))), "3 ALiBi slopes for 2 heads");
    says(
        &|| qkv(Spec::new().bias(Bias::Additive(x(&[5, 4])))),
        "[5, 4] does not broadcast to [1, 2, 5, 5]",
    );
    says(&|| qkv(Spec::new().mask(Mask::by_head(vec![Mask::Full]))), "masks for 1 heads, of 2");
    let buckets = Buckets { count: 8, max_distance: 16, bidirectional: true };
    says(
        &|| qkv(Spec::new().bias(Bias::Buckets { table: x(&[8, 2]), buckets })),
        "a table [8, 2] for 2 heads and 8 buckets",
    );
}
