//! Solutions of chapter 11.

use retrograd::autograd::Recurrence;
use retrograd::prelude::*;

/// The delta rule with `β = 1` over the pairs of keys `[n, 4]` and values `[n]`, seen many times: the largest error
/// of what the keys then read.
fn error_after_many_rounds(keys: &Tensor<f64>, values: &Tensor<f64>) -> f64 {
    let n = keys.size(0);
    let keys = keys / keys.square().sum_keepdim(1).sqrt();
    let k = Var::constant(keys.reshape([1, 1, n, 4]));
    let v = Var::constant(values.reshape([1, 1, n, 1]));
    let low_rank = Some([k.clone(), -&k]);
    let rule = Recurrence { low_rank, ..Recurrence::new(&k, &k, &v) };
    let mut state = None;
    for _ in 0..2000 {
        let [_, next] = rule.run(state.as_ref());
        state = Some(next);
    }
    let read = k.matmul(&state.expect("a round"));
    (read - v).value().abs().max(..).item()
}

#[test]
fn as_many_pairs_as_rows() {
    let mut rng = Rng::new(4);
    let (keys, values) = (Tensor::randn([5, 4], &mut rng), Tensor::randn([5], &mut rng));
    let first = |n| (keys.narrow(0, 0, n), values.narrow(0, 0, n));
    let [four, five] = [4, 5].map(|n| {
        let (keys, values) = first(n);
        error_after_many_rounds(&keys, &values)
    });
    assert!(four < 1e-6 && five > 0.05, "{four} and {five}");
}

#[test]
fn parity() {
    // A one multiplies the state by 1 - 2 = -1, a zero has a key of 0. A decay between 0 and 1 keeps the sign.
    let bits = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0];
    let row = |x: Vec<f64>| Var::constant(Tensor::from_vec(x, [1, 1, 7, 1]));
    let (ones, none) = (row(vec![1.0; 7]), row(vec![0.0; 7]));
    let low_rank = Some([row(bits.to_vec()), row(bits.map(|bit| -2.0 * bit).to_vec())]);
    let rule = Recurrence { low_rank, ..Recurrence::new(&ones, &none, &none) };
    let [signs, _] = rule.run(Some(&Var::constant(Tensor::ones([1, 1, 1, 1]))));
    assert_eq!(signs.value().to_vec(), [-1.0, -1.0, 1.0, -1.0, -1.0, 1.0, -1.0]);
}

#[test]
fn a_gradient_decays() {
    let length = 8;
    let one = Var::constant(Tensor::<f64>::ones([1, 1, length, 1]));
    let v = Var::leaf(Tensor::ones([1, 1, length, 1]));
    let rule = Recurrence { decay: Some(&one * 0.9), ..Recurrence::new(&one, &one, &v) };
    let [o, _] = rule.run(None);
    let last = o.select(2, length - 1).sum(..).backward();
    let gradient = last.get(&v).unwrap().to_vec();
    let weights = rule.weights().value().select(2, length - 1).to_vec();
    for (n, (g, w)) in gradient.iter().zip(&weights).rev().enumerate() {
        assert!((g - 0.9f64.powi(n as i32)).abs() < 1e-12 && (g - w).abs() < 1e-12);
    }
}
