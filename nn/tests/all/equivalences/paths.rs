//! The tiled path and the composed one, and any number of threads.

use super::Vars;
use crate::common::*;
use retrograd_autograd::{Var, check, grad};
use retrograd_nn::attention::*;
use retrograd_nn::{Layer, Module, Pass};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Tensor, with_threads};

pub fn tiled(t: &mut Table) {
    with_every_part(t);
    let l = 150;
    let strided = SparsePattern::Strided { stride: 12 };
    let fixed = SparsePattern::Fixed { stride: 64, summary: 16 };
    let big_bird = BigBirdLayout { block: 32, neighbours: 1, global: 1, random: 1, seed: 3 };
    let projections = Projections::new(HeadSizes::new(8, 2), &mut Rng::new(1));
    let longformer = LongformerAttention::<f64>::new(projections, &[1, 3], 20);
    let causal_longformer = longformer.clone().causal();
    let x = [randn(&[2, 2, l, 4], 1), randn(&[2, 2, l, 4], 2), randn(&[2, 2, l, 3], 3)];
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
            move |x: Vars<'_>| attend(&x[0], &x[1], &x[2], &spec)
        };
        t.same(&format!("tiled = composed, {name}"), &x, run(Path::Tiled), run(Path::Composed));
    }
}

fn masks(batch: usize, lq: usize, lk: usize) -> Vec<(&'static str, Mask)> {
    let mut rng = Rng::new(5);
    // Ids for all queries, too.
    let ids = Tensor::from_fn([batch, lq.max(lk) + 2], |i| (i[1] * 3 / lk.max(1)) as i64);
    vec![
        ("full", Mask::full()),
        ("causal", Mask::causal()),
        ("window", Mask::window(3, 1)),
        ("causal window", Mask::causal() & Mask::window(70, 0)),
        ("causal, dilated", Mask::causal() & Mask::dilated(3)),
        ("first and window", Mask::first(2) | Mask::causal() & Mask::window(2, 0)),
        ("global and window", Mask::window(1, 1) | Mask::global(&[0, 4])),
        ("prefix", Mask::prefix(&vec![lk / 3; batch])),
        (
            "lengths",
            Mask::lengths(&(0..batch).map(|b| if b == 0 { 0 } else { lk / 2 }).collect::<Vec<_>>()),
        ),
        ("documents", Mask::documents(&ids) & Mask::causal()),
        ("chunks", Mask::chunks(7)),
        ("random", Mask::keep_pairs(&Tensor::bernoulli([lq, lk], 0.3, &mut rng))),
        ("nothing", Mask::drop(&Tensor::ones([batch, 1, lq, lk]))),
        ("after the query", !Mask::causal()),
        ("a rule", Mask::from_fn("even", |at| at.key % 2 == 0)),
    ]
}

/// Both paths under every mask, with softcap, bias, sink and dropout, for grouped heads.
fn with_every_part(t: &mut Table) {
    let (batch, heads, key_heads) = (2, 4, 2);
    for (lq, lk) in [(5, 5), (70, 130), (130, 70), (1, 65), (64, 64), (3, 0), (0, 3)] {
        for (name, mask) in masks(batch, lq, lk) {
            for align in [Align::BottomRight, Align::TopLeft, Align::Offset(2)] {
                let mut rng = Rng::new(9);
                let mut x = |shape: &[usize]| Tensor::randn(shape, &mut rng);
                let x = [
                    x(&[batch, heads, lq, 5]),
                    x(&[batch, key_heads, lk, 5]),
                    x(&[batch, key_heads, lk, 3]),
                    x(&[heads]),
                ];
                let run = |path| {
                    let mask = mask.clone();
                    move |x: Vars<'_>| {
                        let spec = Spec::new()
                            .mask(mask.clone())
                            .align(align)
                            .softcap(4.0)
                            .bias(Bias::alibi(heads))
                            .sink(Sink::Learned(x[3].clone()))
                            .dropout(0.3, &mut Pass::train(3))
                            .path(path);
                        attend(&x[0], &x[1], &x[2], &spec)
                    }
                };
                let statement = format!("tiled = composed, every part, {name}");
                t.case(format!("{mask:?} {align:?} {lq} {lk}"));
                t.same(&statement, &x, run(Path::Tiled), run(Path::Composed));
            }
        }
    }
}

/// The log-sum-exp of both paths, and attention over two parts of the keys combined by it.
pub fn log_sum_exp(t: &mut Table) {
    let (lq, lk) = (70, 130);
    let x = [
        randn(&[2, 4, lq, 5], 1),
        randn(&[2, 2, lk, 5], 2),
        randn(&[2, 2, lk, 3], 3),
        randn(&[4], 4),
    ];
    for (name, mask) in masks(2, lq, lk) {
        let run = |path| {
            let mask = mask.clone();
            move |x: Vars<'_>| {
                let spec = Spec::new().mask(mask.clone()).softcap(4.0).bias(Bias::alibi(4));
                let spec = spec.align(Align::BottomRight);
                let spec = spec.dropout(0.3, &mut Pass::train(3)).path(path);
                let bare = attend_with_lse(&x[0], &x[1], &x[2], &spec);
                let spec = spec.sink(Sink::Learned(x[3].clone()));
                let (output, lse) = attend_with_lse(&x[0], &x[1], &x[2], &spec);
                // The log-sum-exp of queries without keys is -inf and is not compared.
                (output, (lse + bare.0.sum(-1)).softplus() + bare.1.softplus())
            }
        };
        let statement = format!("log-sum-exp, tiled = composed, {name}");
        t.same(&statement, &x, run(Path::Tiled), run(Path::Composed));
    }
    let x = &x[..3];
    for path in [Path::Tiled, Path::Composed] {
        let spec = Spec::new().softcap(2.0).path(path);
        t.same(
            &format!("two parts of the keys, combined by log-sum-exp, {path:?}"),
            x,
            |x| {
                let part = |first, n| {
                    let of = |x: &Var<f64>| x.narrow(2, first, n);
                    attend_with_lse(&x[0], &of(&x[1]), &of(&x[2]), &spec)
                };
                let ((o1, lse1), (o2, lse2)) = (part(0, 75), part(75, lk - 75));
                let share = (lse1 - lse2).sigmoid().unsqueeze(-1);
                &o2 + share * (o1 - &o2)
            },
            |x| attend(&x[0], &x[1], &x[2], &spec),
        );
    }
}

/// First and second derivatives on both paths.
pub fn second_order(t: &mut Table) {
    let x =
        [randn(&[1, 4, 6, 3], 1), randn(&[1, 2, 9, 3], 2), randn(&[1, 2, 9, 2], 3), randn(&[4], 4)];
    let spec = |sink: &Var<f64>, path| {
        let spec = Spec::new().causal_bottom_right().mask(!Mask::queries(&[3])).softcap(2.0);
        let spec = spec.bias(Bias::alibi(4)).sink(Sink::Learned(sink.clone()));
        spec.dropout(0.3, &mut Pass::train(3)).path(path)
    };
    let gradients = |y: &Var<f64>, by: &[Var<f64>]| {
        let by: Vec<_> = by.iter().collect();
        let of = grad(&[(&y.square().sum(..), None)], &by);
        let of: Vec<_> = of.into_iter().flatten().map(|g| g.flatten()).collect();
        Var::cat(&of.iter().collect::<Vec<_>>(), 0)
    };
    let run = |path| {
        move |x: Vars<'_>| {
            let (y, lse) = attend_with_lse(&x[0], &x[1], &x[2], &spec(&x[3], path));
            let both = Var::cat(&[&y, &lse.unsqueeze(-1)], -1);
            (gradients(&attend(&x[0], &x[1], &x[2], &spec(&x[3], path)), x), gradients(&both, x))
        }
    };
    t.same(
        "first and second derivatives, tiled = composed",
        &x,
        run(Path::Tiled),
        run(Path::Composed),
    );
    for (name, with_lse) in [("output", false), ("log-sum-exp", true)] {
        let f = |x: &[Var<f64>]| match with_lse {
            true => attend_with_lse(&x[0], &x[1], &x[2], &spec(&x[3], Path::Tiled)).1,
            false => attend(&x[0], &x[1], &x[2], &spec(&x[3], Path::Tiled)),
        };
        let leaves = x.each_ref().map(|x| Var::leaf(x.clone()));
        let report = check::gradgradcheck(f, &leaves, &check::Check::precise());
        report.unwrap_or_else(|e| panic!("tiled, second order, {name}: {e}"));
    }
    let x = [randn(&[2, 5, 12], 1)];
    let run = |path| {
        let spec = Spec::new().causal_bottom_right().path(path);
        move |x: Vars<'_>| gradients(&attend_packed(&x[0], 2, 1, &spec), x)
    };
    t.same("packed, first and second derivatives", &x, run(Path::Tiled), run(Path::Composed));
}

/// The dropped weights are a function of their indices only.
pub fn dropout(t: &mut Table) {
    let (l, heads) = (150, 2);
    let x = [randn(&[2, heads, l, 4], 1), randn(&[2, heads, l, 4], 2)];
    let spec =
        |path| Spec::new().causal_bottom_right().dropout(0.4, &mut Pass::train(5)).path(path);
    // With the identity as values, the output is the matrix of weights.
    let shown = |path| {
        let [q, k] = x.each_ref().map(|x| Var::constant(x.clone()));
        let eye = Var::constant(Tensor::eye(l).broadcast_to([2, heads, l, l]));
        let kept = attend(&q, &k, &eye, &spec(path)).into_value().gt(0.0);
        kept.where_(&Tensor::scalar(1.0), &Tensor::scalar(0.0))
    };
    let one = with_threads(1, || shown(Path::Composed));
    for threads in [1, 2, 4] {
        for path in [Path::Composed, Path::Tiled] {
            t.case(format!("{path:?}")).exact();
            let kept = with_threads(threads, || shown(path));
            t.values(
                &format!("dropped weights, tiled = composed, threads: {threads}"),
                &kept,
                &one,
            );
        }
    }
    let share = one.sum(..).item() / (2 * heads * l * (l + 1) / 2) as f64;
    assert!((share - 0.6).abs() < 0.01, "{share} of the weights are kept");

    let x = [x[0].clone(), x[1].clone(), randn(&[2, heads, l, 3], 3)];
    let run = |path| move |x: Vars<'_>| attend(&x[0], &x[1], &x[2], &spec(path));
    t.same("dropout, tiled = composed", &x, run(Path::Tiled), run(Path::Composed));
    t.same("dropout = of the weights, before the values", &x, run(Path::Composed), |x| {
        let all = attend_all(&x[0], &x[1], &x[2], &Spec::new().causal_bottom_right());
        all.weights.dropout(0.4, Pass::train(5).key().unwrap()).matmul(&x[2])
    });

    let x = [randn(&[2, 5, 4], 1)];
    let config = MultiHeadConfig { dropout: 0.4, ..MultiHeadConfig::new(4, 2) };
    let m = MultiHeadAttention::new(&config, &mut Rng::new(1));
    let dry = MultiHeadAttention::new(&MultiHeadConfig::new(4, 2), &mut Rng::new(2));
    dry.load_state_dict(&m.state_dict()).unwrap();
    t.exact().same(
        "dropout in evaluation = none",
        &x,
        |x| m.forward(&x[0], &x[0], &x[0], Mask::causal(), &mut eval()),
        |x| dry.forward(&x[0], &x[0], &x[0], Mask::causal(), &mut Pass::train(1)),
    );
    let s = SelfAttention::new(4, 3, 2, &mut Rng::new(1)).dropout(0.4);
    t.same(
        "dropout = of the weights, returned before it",
        &x,
        |x| s.forward_with_weights(&x[0], Mask::causal(), &mut Pass::train(1)).0,
        |x| {
            let (_, w) = s.forward_with_weights(&x[0], Mask::causal(), &mut Pass::train(1));
            let w = w.dropout(0.4, Pass::train(1).key().unwrap());
            w.matmul(&s.attention.value.forward(&x[0], &mut eval()))
        },
    );
}

pub fn threads(t: &mut Table) {
    let mut rng = Rng::new(8);
    let mut x = |heads: usize| Var::leaf(Tensor::<f32>::randn([2, heads, 200, 16], &mut rng));
    let (q, k, v) = (x(4), x(2), x(2));
    for path in [Path::Tiled, Path::Composed] {
        let run = |threads| {
            with_threads(threads, || {
                let spec =
                    Spec::new().causal_bottom_right().dropout(0.1, &mut Pass::train(1)).path(path);
                let y = attend(&q, &k, &v, &spec);
                let grads = y.square().sum(..).backward();
                let of = |x: &Var| grads.get(x).expect("a gradient").clone();
                (y.value().clone(), [of(&q), of(&k), of(&v)])
            })
        };
        let one = run(1);
        for threads in [2, 4] {
            let other = run(threads);
            let mut gradients = Worst::default();
            for (a, b) in other.1.iter().zip(&one.1) {
                gradients.include(Worst::between(a, b).0);
            }
            let same = bits(&other.0) == bits(&one.0);
            t.case(format!("{threads} threads")).exact();
            let statement = format!("any number of threads, with dropout, {path:?}");
            t.push(&statement, Worst::between(&other.0, &one.0), Some(gradients), same);
        }
    }
}
