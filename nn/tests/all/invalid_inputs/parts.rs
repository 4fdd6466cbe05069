//! Parts of a spec that a variant sets itself: applied to the whole score, or rejected.

use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

fn heads() -> Projections<f64> {
    Projections::new(HeadSizes::new(8, 2), &mut Rng::new(1))
}

#[test]
fn parts_of_the_variant_are_rejected_in_the_spec() {
    let x = constant(&[5, 8], 1);
    let eye = || Var::constant(Tensor::eye(2));
    let pass = &mut eval();
    let s = Spec::<f64>::new;
    assert_panics("SoftcapAttention: a softcap in the spec", || {
        SoftcapAttention::new(heads(), 3.0).forward(&x, s().softcap(2.0), pass)
    });
    assert_panics("SinkAttention: a sink in the spec", || {
        SinkAttention::new(heads()).forward(&x, s().sink(Sink::Zero), &mut eval())
    });
    assert_panics("QuietAttention: a sink in the spec", || {
        QuietAttention::new(heads()).forward(&x, s().sink(Sink::Zero), &mut eval())
    });
    assert_panics("NormalizedAttention: a normalizer in the spec", || {
        let m = NormalizedAttention::new(heads(), Normalizer::TopK(2));
        m.forward(&x, s().normalizer(Normalizer::Sparsemax), &mut eval())
    });
    assert_panics("TalkingHeadsAttention: mixed heads in the spec", || {
        let spec = s().mix_heads(None, Some(eye()));
        TalkingHeadsAttention::new(heads()).forward(&x, &spec, &mut eval())
    });
    let r = &mut Rng::new(2);
    let top = || s().align(Align::Offset(1));
    let luong = LuongAttention::new(LuongDot, 8, 8, r);
    assert_panics("LuongLocalM: an alignment in the spec", || {
        LuongLocalM::new(luong.clone(), 2).forward(&x, &x, top(), &mut eval())
    });
    assert_panics("TransformerXlAttention: an alignment in the spec", || {
        TransformerXlAttention::new(heads(), r).forward(&x, None, top(), &mut eval())
    });
    assert_panics("the tiled path cannot: a variant adds to the scores", || {
        luong.context(&x, &x, s().path(Path::Tiled))
    });
    for spec in [s().scale(1.0), s().softcap(1.0), s().bias(Bias::alibi(2))] {
        assert_panics(
            "the normalizer Linear cannot be combined with a scale, softcap, bias or mix",
            || {
                NormalizedAttention::new(heads(), Normalizer::Linear).forward(
                    &x,
                    &spec,
                    &mut eval(),
                )
            },
        );
    }
    assert_panics("the tiled path cannot: weights are requested", || {
        ShawAttention::new(heads(), 2, r).attend(&x, s().path(Path::Tiled), &mut eval())
    });
}

/// Scale and softcap apply to the complete score, whichever variant computes it.
#[test]
fn scaling_and_capping_apply_to_the_whole_score() {
    let r = &mut Rng::new(2);
    let (x, other) = (constant(&[2, 5, 8], 1), constant(&[2, 6, 8], 2));
    let s = Spec::<f64>::new;
    let additive = AdditiveAttention::new(8, 8, 4, r);
    let luong = LuongAttention::new(LuongGeneral::new(8, 8, r), 8, 8, r);
    let local = LuongLocalM::new(luong.clone(), 2);
    let shaw = ShawAttention::new(heads(), 2, r);
    let xl = TransformerXlAttention::new(heads(), r);
    let l2 = QkL2Attention::new(heads(), 5);
    let t5 = T5Attention::encoder(8, 2, r);
    let sizes =
        MlaSizes { width: 8, heads: 2, query_latent: None, latent: 3, nope: 2, rope: 2, value: 3 };
    let mla = MlaAttention::new(sizes, r);
    type Run<'a> = &'a dyn Fn(Spec<f64>) -> Var<f64>;
    let runs: [(&str, Run<'_>); 8] = [
        ("additive", &|s| additive.forward(&x, &other, &other, s, &mut eval())),
        ("Luong", &|s| luong.forward(&x, &other, s, &mut eval())),
        ("local-m", &|s| local.forward(&x, &other, s, &mut eval())),
        ("Shaw", &|s| shaw.attend(&x, s, &mut eval())),
        ("Transformer-XL", &|s| xl.forward(&x, None, s, &mut eval())),
        ("QK L2", &|s| l2.forward(&x, &s, &mut eval())),
        ("T5", &|s| t5.forward(&x, s, &mut eval())),
        ("MLA", &|s| mla.forward(&x, &s, &mut eval())),
    ];
    for (name, run) in runs {
        // If all scores are 0, by the scale or the softcap, the output is the mean of the visible values.
        let flat = run(s().scale(0.0));
        assert!(Worst::between(flat.value(), run(s()).value()).0 > 1e-3, "{name}: no scale");
        // Without the bias of T5, which is added later, a cap near 0 equals a scale of 0.
        let capped = run(s().softcap(1e-9));
        close(&format!("{name}: scale 0 = softcap near 0"), 1e-8, flat.value(), capped.value());
    }
    let mean = |x: &Var<f64>| x.mean_keepdim(-2).broadcast_to([2, 5, 8]);
    close(
        "additive, scale 0 = mean",
        1e-12,
        runs[0].1(s().scale(0.0)).value(),
        mean(&other).value(),
    );

    // Weights of mixed heads are applied to both kinds of values of Shaw.
    let swap = Var::constant(Tensor::from([[0.0, 1.0], [1.0, 0.0]]));
    let mixed = shaw.attend(&x, s().mix_heads(None, Some(swap.clone())), &mut eval());
    let unbatched = shaw.attend(&x.select(0, 1), s().mix_heads(None, Some(swap)), &mut eval());
    close("Shaw, unbatched", 1e-12, &mixed.value().select(0, 1), unbatched.value());
    assert!(Worst::between(mixed.value(), runs[3].1(s()).value()).0 > 1e-3, "weights are mixed");
    let twice = Var::constant(Tensor::eye(2) * 2.0);
    let double = shaw.attend(&x, s().mix_heads(None, Some(twice)), &mut eval());
    let once = runs[3].1(s()) * 2.0;
    close("Shaw, weights by 2", 1e-12, double.value(), once.value());

    // Positions are those of the alignment, for masks and distances: tokens a b a b a at positions 2 to
    // 6 attend to those at 0 to 4 as in the longer sequence a b a b a b a.
    let long = constant(&[2, 2, 8], 4);
    let long = Var::cat(&[&long, &long, &long, &long.narrow(1, 0, 1)], 1);
    let seen = Mask::window(3, 1);
    let spec = s().align(Align::Offset(2)).mask(seen.clone());
    let have = shaw.attend(&long.narrow(1, 0, 5), spec, &mut eval());
    let want = shaw.attend(&long, seen & Mask::lengths(&[5]), &mut eval()).narrow(1, 2, 5);
    close("Shaw, by position", 1e-12, have.value(), want.value());
}
