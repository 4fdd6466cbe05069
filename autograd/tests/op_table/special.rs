//! Documented values at kinks, ties, NaN, infinities and empty inputs.

use retrograd_autograd::{Var, check, grad};
use retrograd_support::panics::assert_panics;
use retrograd_support::panics_with;
use retrograd_tensor::ops::loss::{CrossEntropy, Reduction};
use retrograd_tensor::random::{Key, Rng};
use retrograd_tensor::{Real, ScatterReduce, Tensor};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

fn equal(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b || a.is_nan() && b.is_nan())
}

fn n<T: Real>(x: impl Into<f64>) -> T {
    T::from_f64(x.into())
}

/// Asserts a value and its derivative, by a first-order and by a recorded pass.
fn at<T: Real>(name: &str, x: &[f64], f: impl Fn(&Var<T>) -> Var<T>, y: &[f64], dy: &[f64]) {
    let elements = x.iter().map(|&x| T::from_f64(x)).collect();
    let x = Var::leaf(Tensor::from_vec(elements, [x.len()]));
    let list = |t: &Tensor<T>| t.to_vec().into_iter().map(T::to_f64).collect::<Vec<_>>();
    let out = f(&x);
    assert!(equal(&list(out.value()), y), "{name}: {out:?}");
    let ones = Tensor::ones(out.shape());
    let recorded = grad(&[(&out, Some(&Var::constant(ones.clone())))], &[&x]);
    let first_order = out.backward_with(&ones);
    let first_order = list(first_order.get(&x).expect("tracked"));
    assert!(equal(&first_order, dy), "{name}: derivative {first_order:?}, expected {dy:?}");
    // A recorded pass may return no gradient if the input is empty or the result does not depend on
    // it.
    let recorded = recorded[0].as_ref().map_or(vec![0.0; dy.len()], |g| list(g.value()));
    assert!(equal(&recorded, dy), "{name}: recorded derivative {recorded:?}, expected {dy:?}");
}

/// Calls `at` in `f64` and in `f32`.
macro_rules! at {
    ($name:literal, $x:expr, |$v:ident| $f:expr => $y:expr, $dy:expr) => {
        at::<f64>($name, &$x, |$v| $f, &$y, &$dy);
        at::<f32>($name, &$x, |$v| $f, &$y, &$dy);
    };
}

#[test]
fn subgradients_at_kinks_are_the_documented_ones() {
    at!("relu", [-1.0, -0.0, 0.0, 1.0, NAN], |x| x.relu()
        => [0.0, 0.0, 0.0, 1.0, NAN], [0.0, 0.0, 0.0, 1.0, 1.0]);
    at!("abs", [-2.0, 0.0, 2.0], |x| x.abs() => [2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]);
    at!("sign", [-2.0, 0.0, 2.0], |x| x.sign() => [-1.0, 0.0, 1.0], [0.0, 0.0, 0.0]);
    at!("floor", [-1.5, -1.0, 0.5, INF, NAN], |x| x.floor()
        => [-2.0, -1.0, 0.0, INF, NAN], [0.0, 0.0, 0.0, 0.0, 0.0]);
    at!("ceil", [-1.5, 1.0, 0.5], |x| x.ceil() => [-1.0, 1.0, 1.0], [0.0, 0.0, 0.0]);
    at!("round", [-1.5, 0.5, 1.5], |x| x.round() => [-2.0, 0.0, 2.0], [0.0, 0.0, 0.0]);
    at!("trunc", [-1.5, 0.0, 1.5], |x| x.trunc() => [-1.0, 0.0, 1.0], [0.0, 0.0, 0.0]);
    at!("nan_to_num", [NAN, INF, -INF, 2.0], |x| x.nan_to_num(n(5), n(6), n(7))
        => [5.0, 6.0, 7.0, 2.0], [0.0, 0.0, 0.0, 1.0]);
    at!("clamp", [-2.0, -1.0, 0.0, 1.0, 2.0], |x| x.clamp(n(-1), n(1))
        => [-1.0, -1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.0, 0.0]);
    at!("clamp of NaN", [NAN], |x| x.clamp(n(-1), n(1)) => [NAN], [0.0]);
    at!("clamp to a point", [0.0, 1.0, 2.0], |x| x.clamp(n(1), n(1))
        => [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]);
    at!("leaky_relu", [-1.0, 0.0, 1.0], |x| x.leaky_relu(n(0.25))
        => [-0.25, 0.0, 1.0], [0.25, 0.25, 1.0]);
    at!("elu", [0.0, 200.0], |x| x.elu(n(1.5)) => [0.0, 200.0], [1.5, 1.0]);
    at!("sqrt", [0.0, 4.0], |x| x.sqrt() => [0.0, 2.0], [INF, 0.25]);
    at!("powf 0", [0.0, 2.0, -1.0], |x| x.powf(n(0)) => [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]);
    at!("powf 1", [0.0, -2.0], |x| x.powf(n(1)) => [0.0, -2.0], [1.0, 1.0]);
    at!("powf 2", [0.0, -2.0], |x| x.powf(n(2)) => [0.0, 4.0], [0.0, -4.0]);
    at!("max", [1.0, 3.0, 3.0, 2.0], |x| x.max(..) => [3.0], [0.0, 1.0, 0.0, 0.0]);
    at!("max of NaN", [1.0, NAN, 3.0, NAN], |x| x.max(..) => [NAN], [0.0, 1.0, 0.0, 0.0]);
    at!("min", [1.0, 3.0, 1.0, 2.0], |x| x.min(..) => [1.0], [1.0, 0.0, 0.0, 0.0]);
    at!("std of equal elements", [2.0, 2.0, 2.0], |x| x.std(.., 1) => [0.0], [0.0, 0.0, 0.0]);
    at!("std of one element", [2.0], |x| x.std(.., 0) => [0.0], [0.0]);
    at!("std of one element, correction 1", [2.0], |x| x.std(.., 1) => [NAN], [NAN]);
    at!("std of two", [1.0, 3.0], |x| x.std(.., 0) => [1.0], [-0.5, 0.5]);
    at!("norm at 0", [0.0, 0.0], |x| x.norm(..) => [0.0], [0.0, 0.0]);
    at!("norm", [3.0, -4.0, 0.0, 12.0], |x| x.norm(..).mul_scalar(n(13.0)) => [169.0], [3.0, -4.0, 0.0, 12.0]);
    let large = [0.0, 1.0, -2.0, 2.0];
    at!("vector_norm 3 at 0", [0.0, 0.0], |x| x.vector_norm(.., 3.0) => [0.0], [0.0, 0.0]);
    at!("vector_norm 3 of one", [0.0, -2.0], |x| x.vector_norm(.., 3.0).mul_scalar(n(1)) => [2.0], [0.0, -1.0]);
    at!("vector_norm 1", large, |x| x.vector_norm(.., 1.0) => [5.0], [0.0, 1.0, -1.0, 1.0]);
    at!("vector_norm 0", large, |x| x.vector_norm(.., 0.0) => [3.0], [0.0; 4]);
    at!("vector_norm 0 with its result", [2.0, -1.0, 0.0], |x| x.vector_norm(.., 0.0) => [2.0], [0.0; 3]);
    at!("vector_norm ∞", large, |x| x.vector_norm(.., INF) => [2.0], [0.0, 0.0, -0.5, 0.5]);
    at!("vector_norm -∞", large, |x| x.vector_norm(.., -INF) => [0.0], [0.0; 4]);
    at!("vector_norm -∞, ties", [-1.0, 2.0, 1.0], |x| x.vector_norm(.., -INF) => [1.0], [-0.5, 0.0, 0.5]);
    at!("vector_norm -1 with 0", large, |x| x.vector_norm(.., -1.0) => [0.0], [0.0; 4]);
    at!("vector_norm ∞ of NaN", [NAN, 1.0], |x| x.vector_norm(.., INF) => [NAN], [NAN, 0.0]);
    at!("normalize at 0", [0.0, 0.0], |x| x.normalize(.., 2.0, 0.25) => [0.0, 0.0], [4.0, 4.0]);
    at!("hardswish", [-4.0, -3.0, -1.5, 0.0, 3.0, 4.0, INF, NAN], |x| x.hardswish()
        => [0.0, 0.0, -0.375, 0.0, 3.0, 4.0, INF, NAN], [0.0, 0.0, 0.0, 0.5, 1.0, 1.0, 1.0, 1.0]);
    at!("prod without zeros", [2.0, 3.0, 4.0], |x| x.prod(..) => [24.0], [12.0, 8.0, 6.0]);
    at!("prod with one zero", [2.0, 0.0, 4.0], |x| x.prod(..) => [0.0], [0.0, 8.0, 0.0]);
    at!("prod with two zeros", [0.0, 0.0, 4.0], |x| x.prod(..) => [0.0], [0.0, 0.0, 0.0]);
}

/// The value of `f(a, b)` and its gradients with respect to `a` and `b`.
fn value_and_gradients(
    f: impl Fn(&Var<f64>, &Var<f64>) -> Var<f64>,
    a: &[f64],
    b: &[f64],
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let leaf = |x: &[f64]| Var::leaf(Tensor::from_vec(x.to_vec(), [x.len()]));
    let (a, b) = (leaf(a), leaf(b));
    let y = f(&a, &b);
    let ones = Tensor::ones(y.shape());
    let recorded = grad(&[(&y, Some(&Var::constant(ones.clone())))], &[&a, &b]);
    let first_order = y.backward_with(&ones);
    let (da, db) = (first_order.get(&a).unwrap().to_vec(), first_order.get(&b).unwrap().to_vec());
    let again: Vec<Vec<f64>> =
        recorded.iter().map(|g| g.as_ref().unwrap().value().to_vec()).collect();
    assert!(equal(&again[0], &da) && equal(&again[1], &db), "{again:?} recorded, {da:?} {db:?}");
    (y.value().to_vec(), da, db)
}

#[test]
fn ties_of_two_operands_share_the_gradient() {
    let (a, b) = ([1.0, 2.0, 3.0, NAN, 1.0], [2.0, 2.0, 2.0, 1.0, NAN]);
    let (y, da, db) = value_and_gradients(Var::maximum, &a, &b);
    assert!(equal(&y, &[2.0, 2.0, 3.0, NAN, NAN]), "{y:?}");
    assert_eq!((da, db), (vec![0.0, 0.5, 1.0, 1.0, 1.0], vec![1.0, 0.5, 0.0, 1.0, 1.0]));
    let (y, da, db) = value_and_gradients(Var::minimum, &a, &b);
    assert!(equal(&y, &[1.0, 2.0, 2.0, NAN, NAN]), "{y:?}");
    assert_eq!((da, db), (vec![1.0, 0.5, 0.0, 1.0, 1.0], vec![0.0, 0.5, 1.0, 1.0, 1.0]));
}

#[test]
fn scatter_with_repeated_indices_has_documented_gradients() {
    let idx = Tensor::from([1i64, 0, 1]);
    let (x, source) = ([2.0, 2.0, 9.0], [7.0, 2.0, 7.0]);
    let (y, dx, ds) = value_and_gradients(|x, s| x.scatter(0, &idx, s), &x, &source);
    assert_eq!((y, dx, ds), (vec![2.0, 7.0, 9.0], vec![0.0, 0.0, 1.0], vec![0.0, 1.0, 1.0]));
    let (y, dx, ds) =
        value_and_gradients(|x, s| x.scatter_reduce(0, &idx, s, ScatterReduce::Amax), &x, &source);
    // The gradient goes to the element of `x` if it is a maximum, else to the first of equal values.
    assert_eq!((y, dx, ds), (vec![2.0, 7.0, 9.0], vec![1.0, 0.0, 1.0], vec![1.0, 0.0, 0.0]));
    let source = [NAN, 1.0, NAN];
    let (y, dx, ds) =
        value_and_gradients(|x, s| x.scatter_reduce(0, &idx, s, ScatterReduce::Amin), &x, &source);
    assert!(equal(&y, &[1.0, NAN, 9.0]), "{y:?}");
    assert_eq!((dx, ds), (vec![0.0, 0.0, 1.0], vec![1.0, 1.0, 0.0]));
    let zeros = value_and_gradients(
        |x, s| x.scatter_reduce(0, &idx, s, ScatterReduce::Prod),
        &x,
        &[0.0, 3.0, 5.0],
    );
    assert_eq!(zeros, (vec![6.0, 0.0, 9.0], vec![3.0, 0.0, 1.0], vec![10.0, 2.0, 0.0]));
}

#[test]
fn powers_and_quotients_at_zero_have_documented_gradients() {
    // a^b at (0, 0), (0, 1), (0, 2), (2, 0)
    let (y, da, db) = value_and_gradients(Var::pow, &[0.0, 0.0, 0.0, 2.0], &[0.0, 1.0, 2.0, 0.0]);
    assert_eq!(y, [1.0, 0.0, 0.0, 1.0]);
    assert_eq!(da, [0.0, 1.0, 0.0, 0.0]);
    assert_eq!(db, [0.0, 0.0, 0.0, 2f64.ln()]);
    // Negative base, integer exponent: the derivative with respect to the base is finite, that with
    // respect to the exponent is NaN.
    let (y, da, db) = value_and_gradients(Var::pow, &[-2.0], &[3.0]);
    assert_eq!((y[0], da[0]), (-8.0, 12.0));
    assert!(db[0].is_nan());
    let quotient = value_and_gradients(Var::div, &[0.0], &[0.0]);
    assert!(quotient.0[0].is_nan() && quotient.1[0].is_infinite());
}

/// Checks `f` on an `x` with non-finite or very large masked elements: they must not change the
/// value. Gradients must be 0 at masked elements and finite elsewhere, also if the cotangent of
/// masked elements is NaN or infinite.
fn check_masked_elements(f: impl Fn(&Var<f64>, &Tensor<bool>) -> Var<f64>) {
    let keep = Tensor::from([[true, false, true, false], [false, false, false, false]]);
    let clean = Tensor::from([[0.5f64, 7.0, -1.0, 7.0], [7.0, 7.0, 7.0, 7.0]]);
    let expected = f(&Var::leaf(clean.clone()), &keep).value().to_vec();
    for bad in [NAN, INF, -INF, f64::MAX] {
        let x = Var::leaf(clean.masked_fill(&!&keep, bad));
        let y = f(&x, &keep);
        assert_eq!(y.value().to_vec(), expected, "a masked {bad} changes the value");
        for g in [1.0, NAN, INF] {
            let g = Tensor::from_fn([2, 4], |i| if keep.at(i) { 1.0 + i[1] as f64 } else { g });
            let y = f(&x, &keep);
            let recorded = grad(&[(&y, Some(&Var::constant(g.clone())))], &[&x]);
            let first_order = y.backward_with(&g).remove(&x).unwrap();
            for (name, dx) in
                [("first-order", &first_order), ("recorded", recorded[0].as_ref().unwrap().value())]
            {
                for (i, dx) in dx.to_vec().into_iter().enumerate() {
                    let kept = keep.to_vec()[i];
                    assert!(
                        if kept { dx.is_finite() } else { dx == 0.0 },
                        "{name} {bad}: {dx} at {i}"
                    );
                }
            }
        }
    }
}

#[test]
fn masked_elements_have_no_influence() {
    check_masked_elements(|x, keep| x.masked_softmax(-1, keep));
    check_masked_elements(|x, keep| x.masked_fill(&!keep, 2.0));
    check_masked_elements(|x, keep| Var::where_(keep, x, &Var::scalar(2.0)));
    check_masked_elements(|x, keep| Var::where_(&!keep, &Var::scalar(2.0), x));
    // Also if the input is masked before another operation.
    check_masked_elements(|x, keep| x.masked_fill(&!keep, 0.0).exp().masked_fill(&!keep, 0.0));
}

#[test]
fn softmax_of_a_fully_masked_row_is_zero() {
    // If no element is visible, the result and its first and second derivatives are 0.
    let x = Var::leaf(Tensor::from([1.0f64, 2.0]));
    let y = x.masked_softmax(0, &Tensor::from([false, false]));
    assert_eq!(y.value().to_vec(), [0.0, 0.0]);
    let first = grad(&[(&y.square().sum(..), None)], &[&x])[0].clone().unwrap();
    assert_eq!(first.value().to_vec(), [0.0, 0.0]);
    let second = grad(&[(&first.square().sum(..), None)], &[&x])[0].clone().unwrap();
    assert_eq!(second.value().to_vec(), [0.0, 0.0]);
    // Without a mask, the softmax of elements that are all -inf is NaN.
    let y = Var::constant(Tensor::from([-INF, -INF])).softmax(0);
    assert!(y.value().to_vec().iter().all(|y| y.is_nan()));
    // An element of -inf among others has a probability and a gradient of 0.
    at!("softmax of -inf", [0.0, -INF, 0.0], |x| x.softmax(0) => [0.5, 0.0, 0.5], [0.0, 0.0, 0.0]);
    at!("logsumexp of -inf", [0.0, -INF], |x| x.logsumexp(..) => [0.0], [1.0, 0.0]);
    // If all elements are -inf, the result is -inf as for no elements, with gradients of 0.
    at!("logsumexp of -inf only", [-INF, -INF, -INF], |x| x.logsumexp(..) => [-INF], [0.0, 0.0, 0.0]);
    at!("logsumexp of one -inf", [-INF], |x| x.logsumexp(..) => [-INF], [0.0]);
    at!("logsumexp of inf", [INF, 0.0], |x| x.logsumexp(..) => [INF], [NAN, 0.0]);
}

#[test]
fn ignored_targets_have_no_influence() {
    let how = CrossEntropy::default();
    // The ignored row contains NaN. The loss must not depend on it, and its gradient must be 0.
    let x = Tensor::from([[1.0f64, 2.0, 3.0], [NAN, INF, 0.0], [0.0, 0.0, 0.0]]);
    let targets = Tensor::from([0i64, -100, 2]);
    let rows = Tensor::from([[1.0f64, 2.0, 3.0], [0.0, 0.0, 0.0]]);
    let expected = Var::constant(rows).cross_entropy(&Tensor::from([0i64, 2]), how).item();
    for smoothing in [0.0, 0.1] {
        let how = CrossEntropy { label_smoothing: smoothing, ..how };
        let x = Var::leaf(x.clone());
        let y = x.cross_entropy(&targets, how);
        assert!(smoothing > 0.0 || (y.item() - expected).abs() < 1e-15);
        let recorded = grad(&[(&y, None)], &[&x])[0].clone().unwrap();
        assert_eq!(check::definition(&y, 1e-12), Ok(true));
        for g in [y.backward().get(&x).unwrap(), recorded.value()] {
            assert_eq!(g.select(0, 1).to_vec(), [0.0; 3]);
            assert!(g.to_vec().iter().all(|g| g.is_finite()));
        }
    }
    // If all targets are ignored, the loss and its gradients are 0 (NaN in PyTorch).
    let x = Var::leaf(x);
    let y = x.cross_entropy(&Tensor::from([-100i64; 3]), how);
    let recorded = grad(&[(&y, None)], &[&x])[0].clone().unwrap();
    assert_eq!(y.item(), 0.0);
    assert_eq!(recorded.value().to_vec(), [0.0; 9]);
    assert_eq!(y.backward().get(&x).unwrap().to_vec(), [0.0; 9]);
    // A class with a logit of -inf, to second order.
    let x = Var::leaf(Tensor::from([[0.0f64, -INF, 0.0]]));
    let y = x.cross_entropy(&Tensor::from([0i64]), how);
    let first = grad(&[(&y, None)], &[&x])[0].clone().unwrap();
    let second = grad(&[(&first.square().sum(..), None)], &[&x])[0].clone().unwrap();
    assert_eq!(first.value().to_vec(), [-0.5, 0.0, 0.5]);
    assert_eq!(second.value().to_vec(), [-0.5, 0.0, 0.5]);
    assert_eq!(y.backward().get(&x).unwrap(), first.value());
    // Large logits.
    let x = Var::leaf(Tensor::from([[1e4f64, -1e4], [1e38, -1e38]]));
    let y = x.cross_entropy(&Tensor::from([0i64, 0]), how);
    assert_eq!(y.item(), 0.0);
    assert_eq!(y.backward().get(&x).unwrap().to_vec(), [0.0; 4]);
}

#[test]
fn losses_of_no_targets_are_0_on_every_path() {
    type Path = fn(&Var<f64>, &Tensor<i64>, CrossEntropy) -> Var<f64>;
    let paths: [Path; 5] = [
        |x, t, how| x.cross_entropy(t, how),
        |x, t, how| x.weighted_cross_entropy(t, &Tensor::ones([x.size(-1)]), how),
        |x, t, how| x.nll_loss(t, how),
        |x, t, how| x.weighted_nll_loss(&t.zeros_like(), &Tensor::zeros([x.size(-1)]), how),
        |x, t, how| x.linear_cross_entropy(&Var::leaf(Tensor::eye(x.size(-1))), t, how),
    ];
    let reductions = [Reduction::None, Reduction::Sum, Reduction::Mean, Reduction::BatchMean];
    for (rows, classes) in [(&[0][..], 3), (&[0], 0), (&[0, 2], 3), (&[2], 3)] {
        for (i, path) in paths.iter().enumerate() {
            for (reduction, label_smoothing) in
                reductions.map(|r| [(r, 0.0), (r, 0.1)]).as_flattened()
            {
                let how = CrossEntropy {
                    reduction: *reduction,
                    label_smoothing: *label_smoothing,
                    ..CrossEntropy::default()
                };
                let x = Var::leaf(Tensor::zeros([rows, &[classes]].concat()));
                let y = path(&x, &Tensor::full(rows, -100), how);
                let bits: Vec<u64> = y.value().to_vec().iter().map(|y| y.to_bits()).collect();
                let len = if how.reduction == Reduction::None { rows.iter().product() } else { 1 };
                assert_eq!(bits, vec![0; len], "path {i}, {rows:?} {classes} {how:?}");
                assert!(check::definition(&y, 1e-12).is_ok(), "path {i}, {rows:?} {how:?}");
                assert_eq!(y.sum(..).backward().get(&x), Some(x.value()));
            }
        }
    }
}

#[test]
fn class_weights_of_zero_have_no_influence() {
    let how = CrossEntropy::default();
    // A logit of -inf, whose loss is infinite, has a weight of 0.
    let x = Var::leaf(Tensor::from([[0.0f64, -INF, 0.0], [0.0, 0.0, 0.0]]));
    let weights = Tensor::from([1.0f64, 0.0, 3.0]);
    for (label_smoothing, targets) in [(0.0, [1i64, 0]), (0.5, [0, 2])] {
        for reduction in [Reduction::None, Reduction::Sum, Reduction::Mean] {
            let how = CrossEntropy { label_smoothing, reduction, ..how };
            let y = x.weighted_cross_entropy(&Tensor::from(targets), &weights, how);
            assert!(y.value().to_vec().iter().all(|y| y.is_finite()), "{y:?}");
            assert_eq!(check::definition(&y, 1e-12), Ok(true));
        }
    }
    // No target with a weight: a mean of 0, gradients of 0.
    let zeros = Tensor::zeros([3]);
    let y = x.weighted_cross_entropy(&Tensor::from([0i64, 2]), &zeros, how);
    assert_eq!(y.item(), 0.0);
    assert_eq!(y.backward().get(&x).unwrap().to_vec(), [0.0; 6]);
    let logs = Var::leaf(Tensor::full([2, 3], NAN));
    let y = logs.nll_loss(&Tensor::from([-100i64; 2]), how);
    assert_eq!((y.item(), y.backward().get(&logs).unwrap().to_vec()), (0.0, vec![0.0; 6]));
}

#[test]
fn losses_of_elements_at_their_bounds() {
    let each = Reduction::None;
    let target = Var::constant(Tensor::from([1.0f64, 0.0, 0.0, 1.0]));
    at!("a square root of 0 that is not selected", [0.0, 4.0], |x| {
        let (is_positive, zero) = (x.value().gt(Tensor::scalar(n(0.0))), Var::constant(Tensor::scalar(n(0.0))));
        Var::where_(&is_positive, &x.sqrt(), &zero)
    } => [0.0, 2.0], [NAN, 0.25]);
    at!("nor its operand", [0.0, 4.0], |x| {
        let (is_positive, one) = (x.value().gt(Tensor::scalar(n(0.0))), Var::constant(Tensor::scalar(n(1.0))));
        let zero = Var::constant(Tensor::scalar(n(0.0)));
        Var::where_(&is_positive, &Var::where_(&is_positive, x, &one).sqrt(), &zero)
    } => [0.0, 2.0], [0.0, 0.25]);
    let slope = 1.0 / f64::from(1e-12f32);
    at::<f64>(
        "binary cross-entropy",
        &[0.0, 0.0, 1.0, 1.0],
        |p| p.binary_cross_entropy(&target, each),
        &[100.0, 0.0, 100.0, 0.0],
        &[-slope, 0.0, slope, 0.0],
    );
    // Far from 0, where 1 - σ(x) would be 0.
    fn tails<T: Real>(at: f64, each: Reduction) {
        let x = Var::leaf(Tensor::from_vec(vec![n::<T>(-at), n(at)], [2]));
        let y = Var::constant(Tensor::from_vec(vec![n(0.0), n(1.0)], [2]));
        let loss = x.binary_cross_entropy_with_logits(&y, None, each);
        let dx = loss.backward_with(&Tensor::ones([2])).remove(&x).unwrap();
        let tiny = (-at).exp();
        for (got, want) in [(loss.value(), [tiny, tiny]), (&dx, [tiny, -tiny])] {
            for (got, want) in got.to_vec().into_iter().zip(want) {
                let bound = 5.0 * T::EPSILON.to_f64() * tiny;
                assert!((got.to_f64() - want).abs() <= bound, "{got:?}, not {want:e}");
            }
        }
    }
    for at in [50.0, 100.0, 700.0] {
        tails::<f64>(at, each);
    }
    tails::<f32>(50.0, each);
    tails::<f32>(86.0, each);
    at!("binary cross-entropy", [-100.0, 100.0], |x| {
        x.binary_cross_entropy_with_logits(&Var::constant(Tensor::from_vec(vec![n(1.0), n(0.0)], [2])), None, Reduction::None)
    } => [100.0, 100.0], [-1.0, 1.0]);
    at!("kl_div of nothing", [-INF, NAN, -1.0], |x| {
        let y = Var::constant(Tensor::from_vec(vec![n(0.0), n(0.0), n(1.0)], [3]));
        x.kl_div(&y, false, Reduction::None)
    } => [0.0, 0.0, 1.0], [0.0, 0.0, -1.0]);
    at!("kl_div of nothing, log target", [-INF, NAN, -1.0], |x| {
        let y = Var::constant(Tensor::from_vec(vec![n(-INF), n(-INF), n(0.0)], [3]));
        x.kl_div(&y, true, Reduction::None)
    } => [0.0, 0.0, 1.0], [0.0, 0.0, -1.0]);
    at!("huber_loss", [-3.0, -2.0, 0.0, 1.0, 5.0, INF, NAN], |x| {
        x.huber_loss(&Var::constant(Tensor::zeros([7])), 2.0, Reduction::None)
    } => [4.0, 2.0, 0.0, 0.5, 8.0, INF, NAN], [-2.0, -2.0, 0.0, 1.0, 2.0, 2.0, NAN]);
    at!("mean over nothing", [], |x| x.mse_loss(x, Reduction::Mean) => [NAN], []);
    at!("sum over nothing", [], |x| x.l1_loss(x, Reduction::Sum) => [0.0], []);
}

#[test]
fn losses_refuse_what_they_would_misread() {
    let x = Var::leaf(Tensor::<f64>::zeros([3, 1]));
    let row = Var::constant(Tensor::zeros([3]));
    let ones = Var::constant(Tensor::full([3, 1], 1.5));
    let sum = Reduction::Sum;
    let three = Tensor::ones([3]);
    panics_with! {
        x.mse_loss(&row, sum) => "mse_loss: predictions [3, 1] need";
        x.l1_loss(&row, sum) => "l1_loss: predictions [3, 1] need";
        x.kl_div(&row, true, sum) => "kl_div: predictions [3, 1] need";
        x.huber_loss(&ones, 0.0, sum) => "delta must be above 0";
        x.huber_loss(&ones, INF, sum) => "delta must be above 0";
        x.smooth_l1_loss(&ones, -1.0, sum) => "beta must be finite";
        ones.binary_cross_entropy(&x, sum) => "must be in [0, 1], got 1.5";
        x.binary_cross_entropy_with_logits(&ones, Some(&three), sum) =>
            "a pos_weight [3] does not broadcast to logits [3, 1]";
    }
}

#[test]
fn dropout_with_probability_0_and_1() {
    let key = Key::new(3, 1);
    at!("dropout 0", [1.0, -0.0, NAN], |x| x.dropout(0.0, Key::new(3, 1))
        => [1.0, -0.0, NAN], [1.0, 1.0, 1.0]);
    at!("dropout 1", [1.0, INF, NAN], |x| x.dropout(1.0, Key::new(3, 1))
        => [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]);
    let x = Var::leaf(Tensor::<f64>::ones([10_000]));
    let y = x.dropout(0.25, key);
    let kept = y.value().to_vec().iter().filter(|&&y| y != 0.0).count();
    assert!((7200..7800).contains(&kept), "{kept}");
    assert_eq!(
        y.backward_with(&Tensor::ones([10_000])).get(&x).unwrap(),
        x.dropout(0.25, key).value()
    );
    // Dropped elements have no influence, and their gradient is 0.
    let x = Var::leaf(Tensor::full([100], NAN));
    let y = x.dropout(0.5, key);
    let dropped: Vec<bool> = y.value().to_vec().iter().map(|&y| y == 0.0).collect();
    assert!(dropped.contains(&true) && dropped.contains(&false));
    let dx = y.backward_with(&Tensor::full([100], NAN)).get(&x).unwrap().to_vec();
    assert!(dx.iter().zip(dropped).all(|(dx, dropped)| if dropped {
        *dx == 0.0
    } else {
        dx.is_nan()
    }));
}

/// The gradient of a cumulative sum is a reverse cumulative sum, rounded once per element.
#[test]
fn errors_of_gradients_of_cumulative_sums_do_not_accumulate() {
    let n = 50_000;
    let x = Var::leaf(Tensor::<f32>::zeros([n]));
    let g = Tensor::<f32>::rand([n], &mut Rng::new(3));
    let dx = x.cumsum(0).backward_with(&g).remove(&x).unwrap();
    let mut sum = 0.0f64;
    for (i, (g, dx)) in g.to_vec().into_iter().zip(dx.to_vec()).enumerate().rev() {
        sum += f64::from(g);
        assert_eq!(dx, sum as f32, "at {i}");
    }
}

#[test]
fn operations_on_empty_tensors_have_documented_values() {
    at!("sum", [], |x| x.sum(..) => [0.0], []);
    at!("prod", [], |x| x.prod(..) => [1.0], []);
    at!("mean", [], |x| x.mean(..) => [NAN], []);
    at!("logsumexp", [], |x| x.logsumexp(..) => [-INF], []);
    at!("norm", [], |x| x.norm(..) => [0.0], []);
    at!("softmax", [], |x| x.softmax(0) => [], []);
    at!("cumsum", [], |x| x.cumsum(0) => [], []);
    at!("sort", [], |x| x.sort(0, true).0 => [], []);
    let (a, b) = (Tensor::<f64>::zeros([2, 0]), Tensor::<f64>::zeros([0, 3]));
    let (a, b) = (Var::leaf(a), Var::leaf(b));
    let y = a.matmul(&b);
    assert_eq!(y.value(), &Tensor::zeros([2, 3]));
    let g = y.backward_with(&Tensor::ones([2, 3]));
    assert_eq!(
        (*g.get(&a).unwrap().shape(), *g.get(&b).unwrap().shape()),
        ([2, 0].into(), [0, 3].into())
    );
    let x = Var::<f64>::leaf(Tensor::zeros([0, 5]));
    assert_eq!(*x.max(1).shape(), [0]);
    assert_panics("max", || x.max(0));
}

#[test]
fn operators_equal_the_methods() {
    let a = Var::leaf(Tensor::from([1.0f64, -2.0]));
    let b = Var::leaf(Tensor::from([4.0f64, 0.5]));
    let pairs = [
        (&a + &b, a.add(&b)),
        (&a - &b, a.sub(&b)),
        (&a * &b, a.mul(&b)),
        (&a / &b, a.div(&b)),
        (-&a, a.neg()),
        (&a + 2.0, a.add_scalar(2.0)),
        (&a - 2.0, a.add_scalar(-2.0)),
        (&a * 2.0, a.mul_scalar(2.0)),
        (&a / 2.0, a.mul_scalar(0.5)),
        (a.clone() + b.clone(), a.add(&b)),
        (a.clone() * &b, a.mul(&b)),
        (&a - b.clone(), a.sub(&b)),
        (-a.clone(), a.neg()),
        (a.clone() / 4.0, a.mul_scalar(0.25)),
    ];
    for (i, (x, y)) in pairs.iter().enumerate() {
        assert_eq!(x.value(), y.value(), "{i}");
        let ones = Tensor::ones([2]);
        let (x, y) = (x.backward_with(&ones), y.backward_with(&ones));
        assert_eq!(x.get(&a).unwrap(), y.get(&a).unwrap(), "{i}");
        assert_eq!(x.get(&b), y.get(&b), "{i}");
    }
}

/// Functions of variables, and of tensors or of variables of another type.
macro_rules! of_both {
    ($X:ty, $Y:ty: $($x:expr),* $(,)?) => {[$(($x as fn(&$X) -> $X, $x as fn(&$Y) -> $Y, stringify!($x))),*]};
}

/// A NaN anywhere makes the result of its row NaN, and changes neither other rows nor their gradients.
#[test]
fn reductions_of_nan_are_nan() {
    let all = of_both!(Var<f64>, Tensor<f64>:
        |x| x.sum(-1), |x| x.mean(-1), |x| x.prod(-1), |x| x.max(-1), |x| x.min(-1), |x| x.var(-1, 1),
        |x| x.std(-1, 0), |x| x.norm(-1), |x| x.vector_norm(-1, 1.0), |x| x.vector_norm(-1, 3.0),
        |x| x.vector_norm(-1, -1.0), |x| x.vector_norm(-1, INF), |x| x.vector_norm(-1, -INF),
        |x| x.logsumexp(-1), |x| x.median(-1), |x| x.t().median(0), |x| x.quantile(-1, 0.0),
        |x| x.quantile(-1, 0.3), |x| x.quantile(-1, 0.7), |x| x.quantile(-1, 1.0), |x| x.t().max(0),
    );
    for (of_var, of_tensor, name) in all {
        for (n, at) in [(1, 0), (2, 0), (2, 1), (5, 0), (5, 2), (5, 4), (70, 33), (70, 69)] {
            let clean = Tensor::from_fn([3, n], |i| 0.3 + ((7 * i[0] + 3 * i[1]) % 11) as f64);
            let bad = Tensor::from_fn([3, n], |i| if *i == [1, at] { NAN } else { clean.at(i) });
            let [(y, dx), (want, slopes)] = [bad, clean].map(|x| {
                let x = Var::leaf(x);
                let y = of_var(&x);
                assert!(equal(&y.value().to_vec(), &of_tensor(x.value()).to_vec()), "{name}");
                let dx = y.backward_with(&Tensor::ones([3])).remove(&x).unwrap().to_vec();
                (y.value().to_vec(), dx)
            });
            assert!(y[1].is_nan(), "{name} of {n}, NaN at {at}: {y:?}");
            assert!(
                [0, 2].iter().all(|&row| equal(&y[row..=row], &want[row..=row])
                    && equal(&dx[row * n..][..n], &slopes[row * n..][..n])),
                "{name}: {y:?} {dx:?}"
            );
        }
    }
}

/// Statistics of numbers whose squares overflow or vanish in `f32`, compared with those in `f64`.
#[test]
fn statistics_of_numbers_of_any_size() {
    let all = of_both!(Var<f32>, Var<f64>:
        |x| x.std(-1, 1), |x| x.t().std(0, 0), |x| x.var(-1, 1), |x| x.norm(-1), |x| x.t().norm(0),
        |x| x.vector_norm(-1, 1.5), |x| x.vector_norm(-1, 3.0), |x| x.normalize(-1, 2.0, 0.0),
        |x| x.layer_norm(None, None, 0.0), |x| x.layer_norm(None, None, 1e-5), |x| x.rms_norm(None, 0.0),
        |x| x.rms_norm(None, 1e-6), |x| x.layer_norm_with_stats(&[8], None, None, 0.0).2,
    );
    /// The value, its gradient by a first-order and by a recorded pass, and the gradient of that one.
    fn derived<T: Real>(f: fn(&Var<T>) -> Var<T>, x: &[f64]) -> [Vec<f64>; 4] {
        let x = Tensor::from_vec(x.iter().map(|&x| T::from_f64(x)).collect(), [x.len() / 8, 8]);
        let x = Var::leaf(x);
        let weight = |i: &[usize]| n::<T>((2.0 + *i.get(1).unwrap_or(&0) as f64).sin());
        let (y, k) = (f(&x), Var::constant(Tensor::from_fn(x.shape(), weight)));
        let g = Tensor::from_fn(y.shape(), weight);
        let recorded = grad(&[(&y, Some(&Var::constant(g.clone())))], &[&x])[0].clone().unwrap();
        let second = grad(&[(&recorded, Some(&k))], &[&x])[0].clone().unwrap();
        let first = y.backward_with(&g).remove(&x).unwrap();
        [y.value(), &first, recorded.value(), second.value()]
            .map(|t| t.to_vec().into_iter().map(T::to_f64).collect())
    }
    let usual = |i: usize| (1.0 - i as f64 / 64.0) * [1.0, -1.0][i & 1];
    let second: Vec<f64> = (0..8).map(usual).collect();
    // Where the numbers are subnormal, 1 / √var overflows: no layer norm with an eps of 0.
    for (size, tested) in [(1e20, 13), (1e-30, 13), (1e38, 13), (1e-37, 13), (1e-40, 8)] {
        let first = second.iter().map(|x| f64::from((x * size) as f32));
        let x: Vec<f64> = first.chain(second.clone()).collect();
        for (of_f32, of_f64, name) in &all[..tested] {
            let (got, want, alone) =
                (derived(*of_f32, &x), derived(*of_f64, &x), derived(*of_f32, &second));
            for (order, (got, want)) in got.iter().zip(&want).enumerate() {
                let (n, case) = (got.len() / 2, format!("{name} of {size:e}, result {order}"));
                assert_eq!(got[n..], alone[order], "{case}: a row of usual numbers keeps its bits");
                let top = want[..n].iter().fold(0.0f64, |top, x| top.max(x.abs()));
                if top > f64::from(f32::MAX) {
                    // Where the result overflows, so may its derivatives.
                    assert!(order > 0 || got[..n] == [INF], "{case}");
                    break;
                }
                // Of second derivatives, the parts may be subnormal.
                let rounding = if order == 3 { 1.2e-38 } else { 1e-43 };
                let close = |(x, y): (&f64, &f64)| (x - y).abs() <= 3e-5 * top + rounding;
                assert!(got.iter().zip(want).take(n).all(close), "{case}: {got:?}, not {want:?}");
            }
        }
    }
    // A sum of squares overflows where the variance does not.
    let x = Var::leaf(Tensor::from_fn([100], |i| 1e19f32 * usual(i[0] % 2) as f32));
    let (var, exact) = (x.var(.., 0), x.value().var(.., 0).item());
    assert!(exact > 9e37 && exact < 1e38 && var.item() == exact, "{exact:e}");
    assert!((var.backward().get(&x).unwrap().at(&[0]) / 2e17 - 1.0).abs() < 0.02);
}
