//! Scale, softcap, mixed heads and alignment of a spec apply to the complete scores of a variant.

use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

fn heads() -> Projections<f64> {
    Projections::new(HeadSizes::new(8, 2), &mut Rng::new(1))
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
