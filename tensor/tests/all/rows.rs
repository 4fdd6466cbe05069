//! Softmax, normalisation and cross-entropy at extreme values and widths, on every instruction set. The table
//! of operations in the autograd crate has their layouts, threads, gradients and definitions.

use crate::common::{Rng, near, same};
use retrograd_tensor::ops::loss::CrossEntropy;
use retrograd_tensor::settings::with_level;
use retrograd_tensor::simd::Level;
use retrograd_tensor::{Integer, Tensor};

const INF: f32 = f32::INFINITY;

fn softmax(x: &[f64]) -> Vec<f64> {
    let top = x.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
    let e: Vec<f64> = x.iter().map(|x| (x - top).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.iter().map(|e| e / sum).collect()
}

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

/// The rows of a matrix, as f64.
fn rows(x: &Tensor<f32>) -> Vec<Vec<f64>> {
    x.rows().map(|row| row.cast().to_vec()).collect()
}

/// The gradient of the loss.
fn cross_entropy_vjp<I: Integer>(
    x: &Tensor<f32>,
    targets: &Tensor<I>,
    options: CrossEntropy,
) -> Tensor<f32> {
    let (_, sums) = x.cross_entropy_and_log_sums(targets, None, options);
    x.cross_entropy_vjp_from(&sums, targets, options, &Tensor::scalar(1.0))
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
            // Squares neither vanish nor overflow.
            for x in [1e-300, 1e-160, 1e160, 1e300] {
                let y = Tensor::full([n], x).rms_norm(None, 0.0).to_vec();
                assert!(y.iter().all(|y: &f64| (y - 1.0).abs() < 1e-12), "{x:e}: {y:?}");
            }
            if n > 1 {
                // Squares of deviations overflow, and the mean is between two numbers.
                let (low, high) = (1e25f32, f32::from_bits(1e25f32.to_bits() + 51));
                let x = Tensor::from_fn([n & !1], |i| if i[0] % 2 == 0 { low } else { high });
                let y = x.layer_norm(None, None, 0.0).to_vec();
                assert!(y.iter().all(|y| (y.abs() - 1.0).abs() < 1e-5), "{y:?}");
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

/// Norms of deviations of a millionth of the mean, which is between two numbers, and of normal numbers.
#[test]
fn norms_are_accurate_at_every_width() {
    const EPS: f64 = 1e-5;
    let numbers = |x: &Tensor<f32>| x.cast::<f64>().to_vec();
    for n in [2usize, 16, 64, 65, 100, 384, 768, 769, 1000] {
        let large =
            Tensor::from_fn([2, n], |i| if i[1] % 2 == 0 { 1e6 + 1.0 } else { 1e6 - 0.9375 });
        let wave = |shift: f32| Tensor::from_fn([n], |i| (i[0] as f32 * 0.7 + shift).sin());
        let (one, zero) = (Tensor::ones([n]), Tensor::zeros([n]));
        let g = wave(0.0);
        let check = |x: &Tensor<f32>, tolerance: f64, weight: Option<&Tensor<f32>>| {
            let bias = weight.map(|_| wave(2.0));
            let (w, b) = (numbers(weight.unwrap_or(&one)), bias.as_ref().unwrap_or(&zero));
            let cotangent = g.broadcast_to([2, n]);
            let layer = x.layer_norm(weight, bias.as_ref(), EPS);
            let layer_dx = x.layer_norm_vjps(weight, EPS, &cotangent).0;
            let (rms, rms_dx) =
                (x.rms_norm(weight, EPS), x.rms_norm_vjps(weight, EPS, &cotangent).0);
            // An RMS norm is a layer norm without means and bias.
            for (name, y, dx, tolerance, mean_of, b) in [
                ("layer_norm", layer, layer_dx, tolerance, mean as fn(&[f64]) -> f64, b),
                ("rms_norm", rms, rms_dx, 1e-5, |_| 0.0, &zero),
            ] {
                let (b, y, dx) = (numbers(b), rows(&y), rows(&dx));
                for (at, r) in rows(x).iter().enumerate() {
                    let m = mean_of(r);
                    let v = mean(&r.iter().map(|x| (x - m).powi(2)).collect::<Vec<_>>());
                    let s = 1.0 / (v + EPS).sqrt();
                    let hat: Vec<f64> = r.iter().map(|x| (x - m) * s).collect();
                    let h: Vec<f64> = numbers(&g).iter().zip(&w).map(|(g, w)| g * w).collect();
                    let mh = mean_of(&h);
                    let mx = mean(&h.iter().zip(&hat).map(|(h, x)| h * x).collect::<Vec<_>>());
                    for i in 0..n {
                        let (got, want) = (y[at][i], hat[i] * w[i] + b[i]);
                        let near = (got - want).abs() <= tolerance;
                        assert!(near, "{name}, n = {n}: {got}, not {want}");
                        let (got, want) = (dx[at][i], s * (h[i] - mh - hat[i] * mx));
                        let near = (got - want).abs() <= tolerance * s.min(1.0);
                        assert!(near, "slope of {name}, n = {n}: {got}, not {want}");
                    }
                }
            }
        };
        on_levels(|| {
            for weight in [None, Some(&wave(1.0))] {
                check(&large, 1e-4, weight);
                check(&Rng(n as u64).normals(&[2, n]), 1e-5, weight);
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
                        let dx = cross_entropy_vjp(&x, &targets, options);
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
    let dx = [
        cross_entropy_vjp(&x, &targets, options),
        cross_entropy_vjp(&x, &targets.cast::<u32>(), options),
    ];
    assert!(dx.iter().all(|dx| dx.to_vec() == [0.0, -0.5, 0.0, 0.5]), "{dx:?}");
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
    let g = cross_entropy_vjp(&logits, &targets, options);
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
                for (got, row) in rows(&x.softmax(-1)).iter().zip(rows(&x)) {
                    for (&got, want) in got.iter().zip(softmax(&row)) {
                        let bound = 15.0 * f64::from(f32::EPSILON) * want + 6e-28;
                        assert!(near(got as f32, want, bound), "of {width}: {got:e}, not {want:e}");
                    }
                }
            }
        }
    });
}
