//! Solutions of the exercises of `book::softmax`.

use retrograd::prelude::*;

fn lse(x: &[f64]) -> f64 {
    Tensor::from_vec(x.to_vec(), [x.len()]).logsumexp(..).item()
}

#[test]
fn bounds_of_the_log_sum_exp() {
    // One of n terms exp(xⱼ - max) is 1, and each is at most 1, so their sum is in [1, n].
    let mut rng = Rng::new(1);
    for _ in 0..100 {
        let x = (Tensor::<f64>::randn([7], &mut rng) * 10.0).to_vec();
        let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        assert!(max <= lse(&x) && lse(&x) <= max + 7f64.ln());
    }
    assert_eq!(lse(&[3.0]), 3.0); // the lower bound: n = 1, or all others are -∞
    assert_eq!(lse(&[3.0, f64::NEG_INFINITY]), 3.0);
    assert!((lse(&[3.0; 7]) - (3.0 + 7f64.ln())).abs() < 1e-15); // the upper bound: all are equal
}

#[test]
fn the_mean_is_no_safe_shift() {
    let x = Tensor::from([0.0f32, 0.0, 0.0, 200.0]);
    let shifted = &x - x.mean(..);
    let powers = shifted.exp();
    assert!(powers.to_vec()[3].is_infinite()); // 200 - 50 is still more than 88
    assert!((&powers / powers.sum(..)).to_vec()[3].is_nan());
    assert_eq!(x.softmax(-1).to_vec()[3], 1.0);
}

#[test]
fn softplus() {
    let softplus = |x: f32| x.max(0.0) + (-x.abs()).exp().ln_1p();
    for x in [-200.0, -50.0, -1.0, 0.0, 1.0, 50.0, 200.0] {
        let exact = f64::from(x).max(0.0) + (-f64::from(x).abs()).exp().ln_1p();
        assert!((f64::from(softplus(x)) - exact).abs() <= 1e-7 * exact + 1e-44, "{x}");
        let library = Tensor::from([x]).softplus().item();
        assert!((library - softplus(x)).abs() <= 1e-6 * softplus(x) + 1e-44, "{x}");
    }
    assert_eq!((1.0 + 100f32.exp()).ln(), f32::INFINITY); // as written
    assert_eq!(softplus(100.0), 100.0);
}

#[test]
fn halves_combine() {
    let x = (Tensor::<f64>::randn([20], &mut Rng::new(2)) * 50.0).to_vec();
    let (a, b) = (lse(&x[..8]), lse(&x[8..]));
    // The log-sum-exp of the two: the operation is associative, so rows can be cut anywhere.
    assert!((lse(&[a, b]) - lse(&x)).abs() < 1e-12);
}

#[test]
fn temperature() {
    let x = Tensor::from([1.0f64, 2.0, 4.0]);
    let at = |t: f64| (&x / t).softmax(-1).to_vec();
    assert_eq!(at(1e-3), [0.0, 0.0, 1.0]); // the maximum alone
    assert!(at(1e6).iter().all(|p| (p - 1.0 / 3.0).abs() < 1e-5)); // all equal
    let largest = |t: f64| {
        let leaf = Var::leaf(x.clone());
        let p = (&leaf * (1.0 / t)).softmax(-1).i(2);
        p.backward().get(&leaf).unwrap().abs().max(..).item()
    };
    // Both limits are flat: y (1 - y) / T is 0 where y is 1, and for a large T.
    assert!(largest(1e-2) < 1e-80 && largest(1e6) < 1e-6 && largest(1.0) > 0.05);
}
