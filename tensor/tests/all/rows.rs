//! Softmax, normalisation and cross-entropy against naive formulas in f64.

use crate::common::{Rng, everywhere, layouts, same, shapes};
use proptest::prelude::*;
use proptest::sample::select;
use retrograd_tensor::ops::loss::CrossEntropy;
use retrograd_tensor::settings::with_level;
use retrograd_tensor::simd::Level;
use retrograd_tensor::{Real, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};

const INF: f32 = f32::INFINITY;

fn softmax(x: &[f64]) -> Vec<f64> {
    let top = x.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
    let e: Vec<f64> = x.iter().map(|x| (x - top).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.iter().map(|e| e / sum).collect()
}

fn log_sum_exp(x: &[f64]) -> f64 {
    let top = x.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
    top + x.iter().map(|x| (x - top).exp()).sum::<f64>().ln()
}

fn mean(x: impl Iterator<Item = f64>, n: usize) -> f64 {
    x.sum::<f64>() / n as f64
}

/// Rows along an axis, as f64.
fn lines<T: Real>(x: &Tensor<T>, axis: usize) -> Vec<Vec<f64>> {
    let mut order: Vec<isize> = (0..x.rank() as isize).collect();
    let moved = order.remove(axis);
    order.push(moved);
    let (data, width) = (x.permute(order).to_vec(), x.shape()[axis]);
    data.chunks(width.max(1)).map(|r| r.iter().map(|x| x.to_f64()).collect()).collect()
}

#[track_caller]
fn close<T: Real>(what: &str, got: &[Vec<f64>], want: &[Vec<f64>], relative: f64, absolute: f64) {
    let u = T::EPSILON.to_f64() / 2.0;
    assert_eq!(got.len(), want.len(), "{what}");
    for (g, w) in got.iter().flatten().zip(want.iter().flatten()) {
        let ok = g == w
            || g.is_nan() && w.is_nan()
            || (g - w).abs() <= u * (relative * w.abs() + absolute) + 1e-44;
        assert!(ok, "{what}: {g:e}, not {w:e}");
    }
}

fn softmaxes<T: Real>(dims: &[usize], axis: usize, seed: u64) {
    let mut rng = Rng(seed);
    let scale = T::from_f64([1.0, 10.0, 0.01][(seed % 3) as usize]);
    let x = &rng.normals::<T>(dims) * scale;
    let g: Tensor<T> = rng.normals(dims);
    let rows = lines(&x, axis);
    let n = x.shape()[axis] as f64;
    let name =
        if seed.is_multiple_of(2) { axis as isize } else { axis as isize - x.rank() as isize };

    let y = x.softmax(name);
    let want: Vec<_> = rows.iter().map(|r| softmax(r)).collect();
    let reach = |r: &Vec<f64>| r.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
    let most = rows.iter().map(reach).fold(0.0, f64::max);
    close::<T>("softmax", &lines(&y, axis), &want, 12.0 + n + 2.0 * most, 0.0);

    let log = x.log_softmax(name);
    let want: Vec<Vec<f64>> =
        rows.iter().map(|r| r.iter().map(|x| x - log_sum_exp(r)).collect()).collect();
    close::<T>("log_softmax", &lines(&log, axis), &want, 4.0, n + 4.0 * most + 8.0);

    // VJPs, from the computed outputs.
    let cotangents = lines(&g, axis);
    type RowVjp<'a> = &'a dyn Fn(&[f64], &[f64]) -> Vec<f64>;
    let back = |y: &Tensor<T>, f: RowVjp<'_>| -> Vec<Vec<f64>> {
        lines(y, axis).iter().zip(&cotangents).map(|(y, g)| f(y, g)).collect()
    };
    let dx = Tensor::softmax_vjp(&y, &g, name);
    let want = back(&y, &|y, g| {
        let dot: f64 = y.iter().zip(g).map(|(y, g)| y * g).sum();
        y.iter().zip(g).map(|(y, g)| y * (g - dot)).collect()
    });
    close::<T>("softmax_vjp", &lines(&dx, axis), &want, 4.0, 4.0 * n + 40.0);
    let dx = Tensor::log_softmax_vjp(&log, &g, name);
    let want = back(&log, &|y, g| {
        let sum: f64 = g.iter().sum();
        y.iter().zip(g).map(|(y, g)| g - y.exp() * sum).collect()
    });
    close::<T>("log_softmax_vjp", &lines(&dx, axis), &want, 4.0, 8.0 * n + 60.0 * (1.0 + most));

    // Masked: equal to softmax of the kept elements.
    let keep = Tensor::from_fn(dims, |_| rng.below(3) > 0);
    let y = x.masked_softmax(name, &keep);
    let flags = lines(&keep.cast::<f64>(), axis);
    let want: Vec<Vec<f64>> = rows
        .iter()
        .zip(&flags)
        .map(|(r, k)| {
            let kept: Vec<f64> = r.iter().zip(k).filter(|p| *p.1 != 0.0).map(|p| *p.0).collect();
            let mut y = softmax(&kept).into_iter();
            k.iter().map(|&k| if k != 0.0 { y.next().unwrap() } else { 0.0 }).collect()
        })
        .collect();
    close::<T>("masked_softmax", &lines(&y, axis), &want, 12.0 + n + 2.0 * most, 0.0);

    // Masked elements and layouts have no influence.
    let dirty = x.masked_fill(&!&keep, T::NAN);
    same("masked NaN", &dirty.masked_softmax(name, &keep), &y);
    same("masked inf", &x.masked_fill(&!&keep, T::INFINITY).masked_softmax(name, &keep), &y);
    let dx = Tensor::softmax_vjp(&y, &g, name);
    same("masked NaN", &Tensor::softmax_vjp(&y, &g.masked_fill(&!&keep, T::NAN), name), &dx);
    for (layout, view) in layouts(&x) {
        same(layout, &view.softmax(name), &x.softmax(name));
        same(layout, &view.log_softmax(name), &log);
        same(layout, &view.masked_softmax(name, &keep), &y);
        for (other, g) in layouts(&g) {
            same(other, &Tensor::softmax_vjp(&y, &g, name), &dx);
        }
    }
}

fn norms<T: Real>(dims: &[usize], seed: u64) {
    let mut rng = Rng(seed);
    let width = dims[dims.len() - 1];
    let (x, g): (Tensor<T>, Tensor<T>) = (rng.normals(dims), rng.normals(dims));
    let (w, b): (Tensor<T>, Tensor<T>) = (rng.normals(&[width]), rng.normals(&[width]));
    let last = dims.len() - 1;
    let (rows, grows) = (lines(&x, last), lines(&g, last));
    let eps = 1e-5;
    let one = vec![1.0; width];
    let zero = vec![0.0; width];
    let number = |t: &Tensor<T>| t.to_vec().iter().map(|x| x.to_f64()).collect::<Vec<f64>>();
    let n = width as f64;
    for use_weight in [true, false] {
        let (wt, wv) = if use_weight { (Some(&w), number(&w)) } else { (None, one.clone()) };
        let mut want_dx = Vec::new();
        let mut want = vec![];
        let mut hats = vec![];
        for (r, g) in rows.iter().zip(&grows) {
            let m = mean(r.iter().copied(), width);
            let v = mean(r.iter().map(|x| (x - m).powi(2)), width);
            let s = 1.0 / (v + eps).sqrt();
            let hat: Vec<f64> = r.iter().map(|x| (x - m) * s).collect();
            let h: Vec<f64> = g.iter().zip(&wv).map(|(g, w)| g * w).collect();
            let mh = mean(h.iter().copied(), width);
            let mx = mean(h.iter().zip(&hat).map(|(h, x)| h * x), width);
            want_dx.push(h.iter().zip(&hat).map(|(h, x)| s * (h - mh - x * mx)).collect());
            want.push(hat.iter().zip(&wv).map(|(x, w)| x * w).collect::<Vec<f64>>());
            // Rows of nearly equal elements have large derivatives.
            hats.push(s);
        }
        let steep = hats.iter().fold(1.0f64, |a, &b| a.max(b));
        let y = x.layer_norm(wt, None, eps);
        close::<T>("layer_norm", &lines(&y, last), &want, 20.0 + n, 40.0 * steep + n);
        for bias in [&b, &w] {
            let bv = if use_weight { number(bias) } else { zero.clone() };
            let y = x.layer_norm(wt, if use_weight { Some(bias) } else { None }, eps);
            let want: Vec<Vec<f64>> =
                want.iter().map(|r| r.iter().zip(&bv).map(|(x, b)| x + b).collect()).collect();
            close::<T>("layer_norm + bias", &lines(&y, last), &want, 20.0 + n, 40.0 * steep + n);
        }
        let dx = x.layer_norm_vjp(wt, eps, &g);
        let slack = (60.0 + 8.0 * n) * steep * steep;
        close::<T>("layer_norm_vjp", &lines(&dx, last), &want_dx, 30.0, slack);
        for ((layout, x), (_, g)) in layouts(&x).iter().zip(layouts(&g).iter().rev()) {
            same(layout, &x.layer_norm(wt, None, eps), &y);
            same(layout, &x.layer_norm_vjp(wt, eps, g), &dx);
        }
        let odd = layouts(&w).pop().unwrap().1;
        same("weight", &x.layer_norm(Some(&odd), None, eps), &x.layer_norm(Some(&w), None, eps));

        let mut want = vec![];
        let mut want_dx = vec![];
        for (r, g) in rows.iter().zip(&grows) {
            let s = 1.0 / (mean(r.iter().map(|x| x * x), width) + eps).sqrt();
            let h: Vec<f64> = g.iter().zip(&wv).map(|(g, w)| g * w).collect();
            let mx = mean(h.iter().zip(r).map(|(h, x)| h * x * s), width);
            want.push(r.iter().zip(&wv).map(|(x, w)| x * s * w).collect());
            want_dx.push(h.iter().zip(r).map(|(h, x)| s * (h - x * s * mx)).collect());
        }
        let y = x.rms_norm(wt, eps);
        close::<T>("rms_norm", &lines(&y, last), &want, 20.0 + n, 0.0);
        let dx = x.rms_norm_vjp(wt, eps, &g);
        close::<T>("rms_norm_vjp", &lines(&dx, last), &want_dx, 30.0, 50.0 * slack.max(1e3));
        for ((layout, x), (_, g)) in layouts(&x).iter().zip(layouts(&g).iter().rev()) {
            same(layout, &x.rms_norm(wt, eps), &y);
            same(layout, &x.rms_norm_vjp(wt, eps, g), &dx);
        }
    }
}

/// A compensated sum (Kahan 1965): the rounding error of a plain sum of thousands of losses is
/// larger than the tested bound.
fn compensated(terms: &[f64]) -> f64 {
    let (mut sum, mut lost) = (0.0, 0.0);
    for term in terms {
        let term = term - lost;
        let next = sum + term;
        lost = (next - sum) - term;
        sum = next;
    }
    sum
}

fn cross_entropies<T: Real>(dims: &[usize], classes: usize, seed: u64) {
    let mut rng = Rng(seed);
    let logits_dims = [dims, &[classes]].concat();
    let x = &rng.normals::<T>(&logits_dims) * T::from_f64(3.0);
    let options = CrossEntropy {
        ignore_index: [None, Some(-100), Some(0)][rng.below(3)],
        label_smoothing: [0.0, 0.1, 1.0][rng.below(3)],
        ..CrossEntropy::default()
    };
    let targets: Tensor<i64> = Tensor::from_fn(dims, |_| match rng.below(4) {
        0 if options.ignore_index.is_some() => options.ignore_index.unwrap(),
        _ => rng.below(classes) as i64,
    });
    let rows = lines(&x, dims.len());
    let goals: Vec<Option<usize>> = targets
        .to_vec()
        .iter()
        .map(|&t| (options.ignore_index != Some(t)).then_some(t as usize))
        .collect();
    let counted = goals.iter().flatten().count();
    let smooth = options.label_smoothing;
    let wanted =
        |t: usize, c: usize| (1.0 - smooth) * f64::from(u8::from(t == c)) + smooth / classes as f64;
    let (mut losses, mut grad) = (vec![], vec![]);
    for (r, goal) in rows.iter().zip(&goals) {
        let Some(t) = *goal else {
            grad.push(vec![0.0; classes]);
            continue;
        };
        let lse = log_sum_exp(r);
        losses.extend(r.iter().enumerate().map(|(c, x)| wanted(t, c) * (lse - x)));
        let p = softmax(r);
        grad.push((0..classes).map(|c| 1.5 * (p[c] - wanted(t, c)) / counted as f64).collect());
    }
    let loss = if counted == 0 { 0.0 } else { compensated(&losses) / counted as f64 };
    let got = x.cross_entropy(&targets, options);
    assert_eq!(got.rank(), 0);
    let n = classes as f64;
    close::<T>("loss", &[vec![got.item().to_f64()]], &[vec![loss]], 20.0 + n, 60.0);
    let dx = x.cross_entropy_vjp(&targets, options, T::from_f64(1.5));
    close::<T>("gradient", &lines(&dx, dims.len()), &grad, 20.0, 30.0 + n);
    for (row, goal) in lines(&dx, dims.len()).iter().zip(&goals) {
        assert!(goal.is_some() || row.iter().all(|&v| v == 0.0), "an ignored row has a gradient");
    }
    for (layout, view) in layouts(&x) {
        same(layout, &view.cross_entropy(&targets, options), &got);
        same(layout, &view.cross_entropy_vjp(&targets, options, T::from_f64(1.5)), &dx);
    }
    if targets.to_vec().iter().all(|&t| t >= 0) {
        same("u32", &x.cross_entropy(&targets.cast::<u32>(), options), &got);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn softmax_along_every_axis(dims in shapes(4), seed: u64) {
        for axis in 0..dims.len() {
            softmaxes::<f32>(&dims, axis, seed);
            softmaxes::<f64>(&dims, axis, seed);
        }
    }

    #[test]
    fn norms_of_odd_widths(
        rows in 0usize..4,
        width in select(&[1usize, 2, 3, 7, 15, 16, 17, 31, 33, 64, 65, 100, 384, 769][..]),
        seed: u64,
    ) {
        norms::<f32>(&[rows, width], seed);
        norms::<f64>(&[2, rows, width], seed);
    }

    #[test]
    fn cross_entropy_of_any_shape(dims in shapes(2), classes in 1usize..40, seed: u64) {
        cross_entropies::<f32>(&dims, classes, seed);
        cross_entropies::<f64>(&dims, classes, seed);
    }
}

fn on_levels(f: impl Fn()) {
    Level::available().into_iter().for_each(|level| with_level(level, &f));
}

/// Rows with huge, equal, infinite and NaN elements.
#[test]
fn rows_of_extreme_values_have_documented_results() {
    on_levels(|| {
        for n in [1usize, 2, 16, 17, 40] {
            let row = |x: f32| Tensor::full([n], x);
            assert!(row(-INF).softmax(0).to_vec().iter().all(|x| x.is_nan()));
            assert!(row(INF).softmax(0).to_vec().iter().all(|x| x.is_nan()));
            assert!(row(-INF).log_softmax(0).to_vec().iter().all(|x| x.is_nan()));
            for x in [f32::MAX, f32::MIN, -1e30, -11_000.0, 0.0, 1e-45] {
                let y = row(x).softmax(0).to_vec();
                assert!(y.iter().all(|&y| (y * n as f32 - 1.0).abs() < 1e-6), "{x:e}: {y:?}");
            }
            // A single visible logit of any value has all the weight.
            let at = n / 2;
            let one = |low: f32, live: f32| {
                let mut x = row(low);
                x.make_mut()[at] = live;
                x
            };
            for live in [-1e30, f32::MIN, 0.0, f32::MAX] {
                let want = one(0.0, 1.0).to_vec();
                assert_eq!(one(-INF, live).softmax(0).to_vec(), want);
                let keep = Tensor::from_fn([n], |i| i[0] == at);
                for dead in [f32::NAN, INF, -INF, f32::MAX] {
                    assert_eq!(one(dead, live).masked_softmax(0, &keep).to_vec(), want);
                }
            }
            let y = one(f32::MIN, f32::MAX).softmax(0).to_vec();
            assert_eq!(y, one(0.0, 1.0).to_vec());
            if n > 1 {
                assert!(one(0.0, INF).softmax(0).to_vec().iter().all(|x| x.is_nan()));
                assert!(one(0.0, f32::NAN).softmax(0).to_vec().iter().all(|x| x.is_nan()));
            }
            // No visible elements: exact zeros, forward and backward.
            let none = Tensor::<bool>::zeros([n]);
            for dead in [f32::NAN, INF, -INF, 0.0] {
                let y = row(dead).masked_softmax(0, &none);
                assert_eq!(y.to_vec(), vec![0.0; n]);
                for g in [1.0, f32::NAN, INF] {
                    let dx = Tensor::softmax_vjp(&y, &row(g), 0);
                    assert_eq!(dx.to_vec(), vec![0.0; n]);
                }
            }
            // No gradient through -inf.
            let y = one(-INF, 3.0).softmax(0);
            assert!(Tensor::softmax_vjp(&y, &row(1.0), 0).to_vec().iter().all(|&x| x == 0.0));
        }
        let x = Tensor::from([0.0f32, 1.0, 1e30, -1e30]);
        assert_eq!(x.log_softmax(0).to_vec(), [-1e30, -1e30, 0.0, -2e30]);
    });
    // A mask is broadcast to the scores; rows may be empty.
    let scores = Tensor::<f32>::ones([2, 3, 4]);
    let keep = Tensor::from([true, false, true, true]);
    assert_eq!(scores.masked_softmax(-1, &keep).at(&[1, 2, 3]), 1.0 / 3.0);
    assert_eq!(Tensor::<f32>::zeros([0, 5]).softmax(-1).shape()[..], [0, 5]);
    assert_eq!(Tensor::<f32>::zeros([3, 0]).softmax(-1).shape()[..], [3, 0]);
    assert_eq!(Tensor::<f32>::zeros([3, 0]).log_softmax(0).shape()[..], [3, 0]);
    assert_eq!(Tensor::<f32>::zeros([3, 0]).layer_norm(None, None, 1e-5).shape()[..], [3, 0]);
    assert_eq!(Tensor::<f32>::zeros([3, 0]).rms_norm(None, 1e-5).shape()[..], [3, 0]);
}

#[test]
fn softmax_is_invariant_to_shifts() {
    let x: Tensor<f32> = Tensor::from_fn([5, 33], |i| ((i[0] * 33 + i[1]) % 29) as f32 * 0.25);
    // Exactly representable shifts: equal bits.
    for shift in [1024.0, -4096.0] {
        same("shifted", &(&x + shift).softmax(-1), &x.softmax(-1));
    }
}

/// Deviations of a millionth of the mean are accurate, forward and backward.
#[test]
fn norms_of_large_numbers_are_accurate() {
    for n in [2usize, 16, 65, 384, 768, 1000] {
        let x =
            Tensor::<f32>::from_fn([2, n], |i| if i[1] % 2 == 0 { 1e6 + 1.0 } else { 1e6 - 1.0 });
        let rows = lines(&x, 1);
        on_levels(|| {
            let y = x.layer_norm(None, None, 1e-5);
            let g = Tensor::from_fn([2, n], |i| (i[1] as f32 * 0.7).sin());
            let dx = x.layer_norm_vjp(None, 1e-5, &g);
            for (at, r) in rows.iter().enumerate() {
                let m = mean(r.iter().copied(), n);
                let v = mean(r.iter().map(|x| (x - m).powi(2)), n);
                let s = 1.0 / (v + 1e-5).sqrt();
                let hat: Vec<f64> = r.iter().map(|x| (x - m) * s).collect();
                let gs: Vec<f64> = (0..n).map(|i| f64::from((i as f32 * 0.7).sin())).collect();
                let mh = mean(gs.iter().copied(), n);
                let mx = mean(gs.iter().zip(&hat).map(|(g, h)| g * h), n);
                for i in 0..n {
                    let got = f64::from(y.at(&[at, i]));
                    assert!((got - hat[i]).abs() <= 1e-4, "n = {n}: {got}, not {}", hat[i]);
                    let want = s * (gs[i] - mh - hat[i] * mx);
                    let got = f64::from(dx.at(&[at, i]));
                    assert!((got - want).abs() <= 1e-4, "slope, n = {n}: {got}, not {want}");
                }
            }
        });
    }
}

#[test]
fn cross_entropy_of_extreme_logits_is_finite() {
    on_levels(|| {
        for size in [1e4f32, 1e38] {
            for smoothing in [0.0, 0.1] {
                let options = CrossEntropy { label_smoothing: smoothing, ..Default::default() };
                for classes in [2usize, 3, 16, 33] {
                    let x = Tensor::from_fn([1, classes], |i| if i[1] == 1 { size } else { -size });
                    for target in [0i64, 1] {
                        let targets = Tensor::from([target]);
                        let loss = x.cross_entropy(&targets, options).item();
                        let off = if target == 1 { 0.0 } else { 2.0 * f64::from(size) };
                        let far = (classes - 1) as f64 / classes as f64 * 2.0 * f64::from(size);
                        let want = (1.0 - smoothing) * off + smoothing * far;
                        assert!(
                            loss.is_finite() && (f64::from(loss) - want).abs() <= 1e-6 * want,
                            "±{size:e}, {classes} classes, smoothing {smoothing}: {loss:e}"
                        );
                        let dx = x.cross_entropy_vjp(&targets, options, 1.0);
                        let sum: f32 = dx.to_vec().iter().sum();
                        assert!(sum.abs() < 1e-6 && dx.to_vec().iter().all(|x| x.is_finite()));
                    }
                }
            }
        }
    });
    // Classes with a logit of -inf do not contribute.
    let x = Tensor::from([[-INF, 0.0f32, -INF, 0.0]]);
    let (targets, options) = (Tensor::from([1i64]), CrossEntropy::default());
    assert!((x.cross_entropy(&targets, options).item() - 2f32.ln()).abs() < 1e-6);
    assert_eq!(x.cross_entropy_vjp(&targets, options, 1.0).to_vec(), [0.0, -0.5, 0.0, 0.5]);
}

/// Ignored rows have no influence on the loss and the gradient.
#[test]
fn ignored_targets_have_no_influence() {
    let options = CrossEntropy::default();
    let x = Tensor::from([[1.0f32, 2.0], [f32::NAN, INF]]);
    let targets = Tensor::from([1i64, -100]);
    assert!((x.cross_entropy(&targets, options).item() - 0.313_261_7).abs() < 1e-6);
    let dx = x.cross_entropy_vjp(&targets, options, 1.0).to_vec();
    assert!(dx[0].is_finite() && dx[2..] == [0.0, 0.0]);
    let none = Tensor::from([-100i64, -100]);
    assert_eq!(x.cross_entropy(&none, options).item(), 0.0);
    assert_eq!(x.cross_entropy_vjp(&none, options, 1.0).to_vec(), [0.0; 4]);
    let empty = Tensor::<f32>::zeros([0, 3]);
    assert_eq!(empty.cross_entropy(&Tensor::<i64>::zeros([0]), options).item(), 0.0);
    assert_eq!(empty.cross_entropy_vjp(&Tensor::<i64>::zeros([0]), options, 1.0).numel(), 0);
}

/// Targets are checked before anything is computed.
#[test]
fn targets_outside_the_classes_are_errors() {
    let x = Tensor::<f32>::zeros([2, 3]);
    for (bad, ignore) in
        [(3, Some(-100)), (-1, Some(-100)), (i64::MIN, None), (-100, None), (i64::MAX, None)]
    {
        let options = CrossEntropy { ignore_index: ignore, ..Default::default() };
        let targets = Tensor::from([0, bad]);
        let text = |f: &dyn Fn()| {
            *catch_unwind(AssertUnwindSafe(f)).unwrap_err().downcast::<String>().unwrap()
        };
        let want = format!(
            "cross_entropy: target {bad} at position 1 is outside 0..3 (hint: \
             CrossEntropy::ignore_index is the target that is ignored)"
        );
        assert_eq!(text(&|| drop(x.cross_entropy(&targets, options))), want);
        assert_eq!(text(&|| drop(x.cross_entropy_vjp(&targets, options, 1.0))), want);
    }
}

#[test]
fn threads_and_levels_have_equal_bits() {
    let mut rng = Rng(11);
    let dims = [301, 257];
    let (x, g): (Tensor<f32>, Tensor<f32>) = (rng.normals(&dims), rng.normals(&dims));
    let w: Tensor<f32> = rng.normals(&[257]);
    let keep = Tensor::from_fn([301, 257], |i| i[1] <= i[0]);
    let targets: Tensor<i64> = Tensor::from_fn([301], |i| (i[0] % 257) as i64);
    let options = CrossEntropy { label_smoothing: 0.1, ..Default::default() };
    let y = x.softmax(-1);
    for axis in [0, 1] {
        everywhere("softmax", || x.softmax(axis));
        everywhere("log_softmax", || x.log_softmax(axis));
        everywhere("masked_softmax", || x.masked_softmax(axis, &keep));
        everywhere("softmax_vjp", || Tensor::softmax_vjp(&y, &g, axis));
        everywhere("log_softmax_vjp", || Tensor::log_softmax_vjp(&x, &g, axis));
    }
    everywhere("layer_norm", || x.layer_norm(Some(&w), Some(&w), 1e-5));
    everywhere("layer_norm_vjp", || x.layer_norm_vjp(Some(&w), 1e-5, &g));
    everywhere("rms_norm", || x.rms_norm(Some(&w), 1e-5));
    everywhere("rms_norm_vjp", || x.rms_norm_vjp(Some(&w), 1e-5, &g));
    everywhere("cross_entropy", || x.cross_entropy(&targets, options));
    everywhere("cross_entropy_vjp", || x.cross_entropy_vjp(&targets, options, 1.0));
}

/// More rows than a block has, against the full matrix of logits.
#[test]
fn linear_cross_entropy_in_blocks_equals_that_of_all_logits() {
    let (rows, width, classes) = (100, 3, 600_000);
    let mut rng = Rng(12);
    let x: Tensor<f32> = rng.normals(&[rows, width]);
    let w: Tensor<f32> = rng.normals(&[classes, width]);
    let targets: Tensor<i64> =
        Tensor::from_fn([rows], |i| if i[0] % 9 == 4 { -100 } else { (i[0] * 5999) as i64 });
    let options = CrossEntropy { label_smoothing: 0.1, ..Default::default() };
    let logits = x.matmul(&w.t());
    let g = logits.cross_entropy_vjp(&targets, options, 1.0);
    let (loss, dx, dw) = x.linear_cross_entropy_with_gradients(&w, &targets, options);
    assert_eq!(loss, x.linear_cross_entropy(&w, &targets, options));
    let far =
        |a: &Tensor<f32>, b: &Tensor<f32>| ((a - b).abs().max(..).item(), b.abs().max(..).item());
    for (what, (error, size)) in [
        ("loss", far(&loss, &logits.cross_entropy(&targets, options))),
        ("dx", far(&dx, &g.matmul(&w))),
        ("dw", far(&dw, &g.t().matmul(&x))),
    ] {
        assert!(error <= 1e-5 * size, "{what}: off by {error:e} of {size:e}");
    }
}

/// Widths around those that fit in registers, and the minus infinities of a mask.
#[test]
fn softmax_of_every_width() {
    on_levels(|| {
        for width in (1..150).chain([255, 256, 257]) {
            let x: Tensor<f32> = Rng(width as u64).normals(&[3, width]);
            for x in [x.clone(), x.masked_fill(&x.gt(0.5), -INF)] {
                let want: Vec<Vec<f64>> = lines(&x, 1).iter().map(|r| softmax(r)).collect();
                close::<f32>("softmax", &lines(&x.softmax(-1), 1), &want, 30.0, 1e-20);
            }
        }
    });
}
