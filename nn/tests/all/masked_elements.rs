//! Masked keys and values of any value have no influence on results, gradients and second
//! derivatives.

use crate::common::*;
use retrograd_autograd::{Backprop, Var, grad};
use retrograd_nn::Pass;
use retrograd_nn::attention::*;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

const EXTREME: [f64; 4] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300];

/// A result, its gradients by some variables, and the gradients of the sum of the squares of both.
fn everything(y: &Var<f64>, by: &[&Var<f64>]) -> Vec<Vec<f64>> {
    let first = grad(&[(&y.square().sum(..), None)], by);
    let first: Vec<Var<f64>> = first.into_iter().flatten().collect();
    let sums: Vec<Var<f64>> = first.iter().map(|g| g.square().sum(..)).collect();
    let second = Backprop::from(&Var::stack(&sums.iter().collect::<Vec<_>>(), 0).sum(..)).run();
    let values =
        std::iter::once(y.value().to_vec()).chain(first.iter().map(|g| g.value().to_vec()));
    values.chain(by.iter().filter_map(|x| second.get(x)).map(|x| x.to_vec())).collect()
}

/// Asserts that outputs and gradients do not depend on the masked elements.
fn hides(what: &str, run: impl Fn(f64) -> Vec<Vec<f64>>) {
    let clean = run(0.0);
    assert!(clean.iter().flatten().all(|x| x.is_finite()), "{what}: {clean:?}");
    for with in EXTREME {
        for (i, (a, b)) in run(with).iter().zip(&clean).enumerate() {
            assert_eq!(a, b, "{what}: {with} changes result {i}");
        }
    }
}

/// `x` with the rows from `first` on, along its second to last axis, set to `with`.
fn filled(x: &Tensor<f64>, first: usize, with: f64) -> Tensor<f64> {
    Tensor::from_fn(x.shape(), |i| if i[i.len() - 2] >= first { with } else { x.at(i) })
}

const VISIBLE: usize = 3;

type Part<'a> = &'a dyn Fn(Spec<f64>, &[Var<f64>; 4]) -> Spec<f64>;

#[test]
fn masked_keys_and_values_have_no_influence() {
    let x = [randn(&[2, 4, 3, 5], 1), randn(&[2, 2, 6, 5], 2), randn(&[2, 2, 6, 2], 3)];
    let learned = [randn(&[4, 3, 6], 4), randn(&[4, 4], 5), randn(&[4, 4], 6), randn(&[4], 7)];
    let mixes =
        |s: Spec<f64>, x: &[Var<f64>; 4]| s.mix_heads(Some(x[1].clone()), Some(x[2].clone()));
    let low = |at: At| if at.head == 1 && at.key == 1 { f64::NEG_INFINITY } else { 0.3 };
    let parts: [(&str, Part<'_>); 11] = [
        ("nothing more", &|s, _| s),
        ("softcap", &|s, _| s.softcap(2.0)),
        ("ALiBi", &|s, _| s.bias(Bias::alibi(4))),
        ("a bias", &|s, x| s.bias(Bias::Additive(x[0].clone()))),
        ("a sink", &|s, x| s.sink(Sink::Learned(x[3].clone()))),
        ("dropout", &|s, _| s.dropout(0.3, &mut Pass::train(1))),
        ("mixed scores", &|s, x| s.mix_heads(Some(x[1].clone()), None)),
        ("mixed weights", &|s, x| s.mix_heads(None, Some(x[2].clone()))),
        ("mixed heads", &mixes),
        ("mixed heads, softcap, a bias", &|s, x| {
            mixes(s.softcap(2.0).bias(Bias::Additive(x[0].clone())), x)
        }),
        ("mixed heads, -inf in one of them", &|s, x| mixes(s.bias(Bias::from_fn("low", low)), x)),
    ];
    let normalizers = [
        Normalizer::Softmax,
        Normalizer::Sigmoid { bias: None },
        Normalizer::Sparsemax,
        Normalizer::Entmax15,
        Normalizer::TopK(2),
        Normalizer::Linear,
    ];
    for (name, part) in parts {
        for normalizer in normalizers {
            for path in [Path::Composed, Path::Tiled] {
                if name == "a sink" && normalizer != Normalizer::Softmax {
                    continue;
                }
                let of_weights = ["nothing more", "dropout", "mixed weights"].contains(&name);
                if normalizer == Normalizer::Linear && !of_weights {
                    continue;
                }
                let spec = |learned: &[Var<f64>; 4]| {
                    let spec = Spec::new().mask(Mask::lengths(&[VISIBLE])).normalizer(normalizer);
                    part(spec, learned).path(path)
                };
                let constants = learned.each_ref().map(|x| Var::constant(x.clone()));
                if path == Path::Tiled && spec(&constants).needs_composed().is_some() {
                    continue;
                }
                hides(&format!("{name}, {normalizer:?}, {path:?}"), |with| {
                    let q = Var::leaf(x[0].clone());
                    let [k, v] = [1, 2].map(|i| Var::leaf(filled(&x[i], VISIBLE, with)));
                    let learned = learned.each_ref().map(|x| Var::leaf(x.clone()));
                    // The last axis of the bias is that of keys.
                    let bias = filled(&learned[0].value().t(), VISIBLE, with).t();
                    let [_, b, c, d] = learned;
                    let learned = [Var::leaf(bias), b, c, d];
                    let y = attend(&q, &k, &v, &spec(&learned));
                    let by: Vec<_> = [&q, &k, &v].into_iter().chain(&learned).collect();
                    everything(&y, &by)
                });
            }
        }
    }
}

/// Tiles of several vectors, some of them partly masked, and tiles after an empty one.
#[test]
fn masked_keys_and_values_of_many_tiles_have_no_influence() {
    let hidden = |x: &Tensor<f32>, visible: usize, with: f32| {
        Tensor::from_fn(x.shape(), |i| if i[2] >= visible { with } else { x.at(i) })
    };
    for (visible, lk) in [(5, 69), (64, 69), (67, 145), (130, 145)] {
        let draw = |shape: [usize; 4], seed| Tensor::<f32>::randn(shape, &mut Rng::new(seed));
        let (q, x) = (draw([1, 2, 40, 20], 1), [draw([1, 2, lk, 20], 2), draw([1, 2, lk, 24], 3)]);
        type Part<'a> = &'a dyn Fn(Spec<f32>) -> Spec<f32>;
        let parts: [(&str, Part<'_>); 4] = [
            ("nothing more", &|s| s),
            ("softcap", &|s| s.softcap(2.0)),
            ("causal", &|s| s.causal_bottom_right().mask(Mask::lengths(&[visible]))),
            ("dropout", &|s| s.dropout(0.3, &mut Pass::train(1))),
        ];
        for (name, part) in parts {
            for transposed in [false, true] {
                let run = |with: f32| {
                    let layout = |x: Tensor<f32>| match transposed {
                        true => Var::leaf(x.transpose(2, 3).contiguous().transpose(2, 3)),
                        false => Var::leaf(x),
                    };
                    let (q, [k, v]) = (
                        Var::leaf(q.clone()),
                        x.each_ref().map(|x| layout(hidden(x, visible, with))),
                    );
                    let spec = part(Spec::new().mask(Mask::lengths(&[visible]))).path(Path::Tiled);
                    let y = attend(&q, &k, &v, &spec);
                    let of = grad(&[(&y.square().sum(..), None)], &[&q, &k, &v]);
                    let gradients = of.into_iter().flatten().map(|g| g.value().to_vec());
                    std::iter::once(y.value().to_vec()).chain(gradients).collect::<Vec<_>>()
                };
                let clean = run(0.0);
                assert!(clean.iter().flatten().all(|x| x.is_finite()), "{name}");
                for with in [f32::NAN, f32::INFINITY, 1e30] {
                    assert_eq!(run(with), clean, "{name}, {visible} of {lk}, {with}, {transposed}");
                }
            }
        }
    }
}

/// Modules that attend to the first `VISIBLE` tokens of a source only.
#[test]
fn masked_tokens_of_a_source_have_no_influence() {
    let r = &mut Rng::new(6);
    let (t, s) = (randn(&[1, 3, 4], 1), randn(&[1, 6, 4], 2));
    fn luong<S: LuongScore<f64>>(score: S, r: &mut Rng) -> LuongAttention<f64, S> {
        LuongAttention::new(score, 4, 4, r)
    }
    let dot = luong(LuongDot, r);
    let general = luong(LuongGeneral::new(4, 4, r), r);
    let concat = luong(LuongConcat::new(4, 4, 5, r), r);
    let location = luong(LuongLocation::new(4, 6, r), r);
    let local_m = LuongLocalM::new(luong(LuongGeneral::new(4, 4, r), r), 2);
    let local_p = LuongLocalP::new(luong(LuongGeneral::new(4, 4, r), r), 4, 3, r);
    let additive = AdditiveAttention::new(4, 4, 5, r);
    let cross = CrossAttention::new(4, 4, 3, 2, r);
    let visible = || Mask::lengths(&[VISIBLE]);
    type Run<'a> = &'a dyn Fn(&Var<f64>, &Var<f64>) -> Var<f64>;
    let runs: [(&str, Run<'_>); 8] = [
        ("Luong, dot", &|t, s| dot.forward(t, s, visible(), &mut eval())),
        ("Luong, general", &|t, s| general.forward(t, s, visible(), &mut eval())),
        ("Luong, concat", &|t, s| concat.forward(t, s, visible(), &mut eval())),
        ("Luong, location", &|t, s| location.forward(t, s, visible(), &mut eval())),
        ("Luong, local-m", &|t, s| local_m.forward(t, s, visible(), &mut eval())),
        ("Luong, local-p", &|t, s| local_p.forward(t, s, &[VISIBLE], &mut eval())),
        ("additive", &|t, s| additive.forward(t, s, s, visible(), &mut eval())),
        ("cross", &|t, s| cross.forward(t, s, visible(), &mut eval())),
    ];
    let position = local_p.position.weight.to_var();
    for (name, run) in runs {
        hides(name, |with| {
            let (t, s) = (Var::leaf(t.clone()), Var::leaf(filled(&s, VISIBLE, with)));
            everything(&run(&t, &s), &[&t, &s, &position])
        });
    }
}

/// Self-attention: the masked tokens are ignored as queries, too.
#[test]
fn masked_tokens_of_self_attention_have_no_influence() {
    let r = &mut Rng::new(6);
    let x = randn(&[1, 6, 8], 1);
    let heads = || Projections::new(HeadSizes::new(8, 2), &mut Rng::new(1));
    let shaw = ShawAttention::new(heads(), 2, r);
    let xl = TransformerXlAttention::new(heads(), r);
    let t5 = T5Attention::encoder(8, 2, r);
    let talking = TalkingHeadsAttention::new(heads());
    talking.score_mix.set(randn(&[2, 2], 20));
    talking.weight_mix.set(randn(&[2, 2], 21));
    let m = mha(8, 2);
    let visible = || Mask::lengths(&[VISIBLE]) & Mask::queries(&[0, 1, 2]);
    let how = Spec::from(visible());
    type Run<'a> = &'a dyn Fn(&Var<f64>) -> Var<f64>;
    let runs: [(&str, Run<'_>); 5] = [
        ("Shaw", &|x| shaw.attend(x, visible(), &mut eval())),
        ("Transformer-XL", &|x| xl.forward(x, None, visible(), &mut eval())),
        ("T5", &|x| t5.forward(x, visible(), &mut eval())),
        ("talking heads", &|x| talking.forward(x, &how, &mut eval())),
        ("multi-head", &|x| m.forward(x, x, x, visible(), &mut eval())),
    ];
    for (name, run) in runs {
        hides(name, |with| {
            let x = Var::leaf(filled(&x, VISIBLE, with));
            everything(&run(&x), &[&x])
        });
    }
    let (k, v) = (leaf(&[2, 2, 4], 2), leaf(&[2, 2, 4], 3));
    hides("memory", |with| {
        let [q, hidden] = [&x, &filled(&x, VISIBLE, with)].map(|x| Var::leaf(x.clone()));
        let of = |x: &Var<f64>| x.reshape([1, 6, 2, 4]).transpose(1, 2);
        let how = Spec::from(Mask::lengths(&[VISIBLE]));
        let y = attend_with_memory(&of(&q), &of(&hidden), &of(&hidden), (&k, &v), &how);
        everything(&y, &[&q, &hidden, &k, &v])
    });
}

/// A query that attends to no key contributes to no gradient, whatever the gradient of its output.
#[test]
fn cotangents_of_fully_masked_queries_have_no_influence() {
    let x = [randn(&[1, 2, 5, 3], 1), randn(&[1, 2, 4, 3], 2), randn(&[1, 2, 4, 3], 3)];
    let blind = Mask::from_fn("blind", |at| at.query != 1);
    for path in [Path::Composed, Path::Tiled] {
        let run = |with: f64| {
            let [q, k, v] = x.each_ref().map(|x| Var::leaf(x.clone()));
            let sink = leaf(&[2], 4);
            let spec = Spec::from(blind.clone()).align(Align::TopLeft).path(path);
            let y = attend(&q, &k, &v, &spec.sink(Sink::Learned(sink.clone())));
            let g = Tensor::from_fn([1, 2, 5, 3], |i| if i[2] == 1 { with } else { 0.5 });
            let grads = y.backward_with(&g);
            [&q, &k, &v, &sink].map(|x| grads.get(x).unwrap().to_vec())
        };
        for with in EXTREME {
            assert_eq!(run(with), run(0.0), "{path:?}: {with}");
        }
    }
}
