//! Normalisers other than softmax.

use super::same;
use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

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
fn sparse_normalizers_are_projections_onto_the_simplex() {
    for (normalizer, power) in [(Normalizer::Sparsemax, 2.0), (Normalizer::Entmax15, 1.5)] {
        let mut worst = Worst::default();
        let (mut zeros, mut count) = (0, 0);
        for seed in 0..50 {
            let n = 1 + seed as usize % 9;
            let s = randn(&[1, n], seed).mul_scalar(1.0 + seed as f64 / 10.0);
            // Scores s: one query of 1, keys s.
            let (q, k) = (Var::constant(Tensor::ones([1, 1])), Var::constant(s.t()));
            let spec = Spec::new().scale(1.0).normalizer(normalizer);
            let all = attend_all(&q, &k, &Var::constant(Tensor::eye(n)), &spec);
            let want = brute_force(&s.to_vec(), power);
            for (x, y) in all.weights.value().to_vec().into_iter().zip(want) {
                worst.include((x - y).abs());
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
            "{:60} {:.1e}  ({zeros} of {count} are 0)",
            format!("{normalizer:?} = projection"),
            worst.0
        );
        assert!(worst.within(1e-12), "{normalizer:?}: {worst:?}");
        assert!(zeros > 0);
    }
}

#[test]
fn top_k_and_sigmoid_equal_their_formulas() {
    let (q, k, v) = (randn(&[3, 4], 1), randn(&[6, 4], 2), randn(&[6, 2], 3));
    let s = q.matmul(&k.t()).mul_scalar(0.5);
    let run = |n| {
        let c = |x: &Tensor<f64>| Var::constant(x.clone());
        attend(&c(&q), &c(&k), &c(&v), &Spec::new().normalizer(n)).into_value()
    };
    let kth = s.topk(-1, 2, true).0.slice(1, 1..2);
    same("top-2 by hand", &run(Normalizer::TopK(2)), &s.masked_softmax(-1, &s.ge(&kth)).matmul(&v));
    let w = s.add_scalar(-(6f64.ln())).sigmoid();
    same("sigmoid, bias -ln L, by hand", &run(Normalizer::Sigmoid { bias: None }), &w.matmul(&v));
    // Of equal scores the first ones, at most k.
    let c = |x: Tensor<f64>| Var::constant(x);
    let (q, k, v) = (c(Tensor::zeros([1, 4])), c(k), c(Tensor::eye(6)));
    let w = attend(&q, &k, &v, &Spec::new().normalizer(Normalizer::TopK(2)));
    assert_eq!(w.value().to_vec(), [0.5, 0.5, 0.0, 0.0, 0.0, 0.0]);
}

/// A visible NaN propagates to the rows in which it is visible, and to no others.
#[test]
fn visible_nan_propagates() {
    let (q, k, v) = (constant(&[3, 4], 1), randn(&[6, 4], 2), constant(&[6, 2], 3));
    let mask = Mask::drop_pairs(&Tensor::from_fn([3, 6], |i| i[0] == 1 && i[1] == 4));
    for normalizer in [Normalizer::Softmax, Normalizer::Sparsemax, Normalizer::Entmax15] {
        let run = |k: &Tensor<f64>| {
            let spec = Spec::from(mask.clone()).normalizer(normalizer);
            attend(&q, &Var::constant(k.clone()), &v, &spec).into_value()
        };
        let mut odd = k.clone();
        odd.make_mut()[4 * 4] = f64::NAN;
        let (clean, odd) = (run(&k).to_vec(), run(&odd).to_vec());
        assert_eq!(odd[2..4], clean[2..4], "{normalizer:?}");
        let shows = [0, 1, 4, 5].map(|i| odd[i].is_nan());
        assert_eq!(shows, [true; 4], "{normalizer:?}");
    }
    // Scores of +inf, whose differences are NaN.
    let huge = Var::constant(Tensor::from([[f64::INFINITY], [1.0]]));
    let one = Var::constant(Tensor::ones([1, 1]));
    for normalizer in [Normalizer::Softmax, Normalizer::Sparsemax, Normalizer::Entmax15] {
        let spec = Spec::new().normalizer(normalizer);
        assert!(attend(&one, &huge, &one.broadcast_to([2, 1]), &spec).item().is_nan());
    }
}
