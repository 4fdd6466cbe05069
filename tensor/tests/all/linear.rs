//! Linear layers fused with other operations, against separate operations.

use crate::common::same;
use retrograd_tensor::ops::activation::{Gelu, Relu, Sigmoid};
use retrograd_tensor::random::Rng;
use retrograd_tensor::settings::with_level;
use retrograd_tensor::simd::Level;
use retrograd_tensor::{Real, Tensor, with_threads};

fn random<T: Real>(dims: &[usize], seed: u64) -> Tensor<T> {
    Tensor::randn(dims, &mut Rng::new(seed))
}

/// Sizes around those of tiles and blocks, and sums of more than one block.
const SIZES: [(usize, usize, usize); 9] = [
    (1, 1, 1),
    (3, 7, 5),
    (17, 3, 33),
    (125, 40, 70),
    (130, 600, 130),
    (600, 64, 530),
    (4, 5, 0),
    (0, 5, 4),
    (4, 0, 6),
];

fn equals_separate_operations<T: Real>() {
    for (i, (m, k, n)) in SIZES.into_iter().enumerate() {
        let seed = 10 * i as u64;
        let x: Tensor<T> = random(&[m, k], seed);
        let (w, b) = (random::<T>(&[n, k], seed + 1), random::<T>(&[n], seed + 2));
        let c: Tensor<T> = random(&[m, n], seed + 3);
        let plain = x.matmul(&w.t());
        for threads in [1, 2] {
            with_threads(threads, || {
                same("linear", &x.linear(&w, None), &plain);
                let h = plain.add(&b);
                same("with a bias", &x.linear(&w, Some(&b)), &h);
                same("with a residual", &x.linear_add(&w, None, &c), &c.add(&plain));
                same("with both", &x.linear_add(&w, Some(&b), &c), &c.add(&h));
                let (y, slope) = x.linear_activation(&w, Some(&b), Gelu);
                same("gelu", &y, &h.gelu());
                same("its derivative", &slope, &h.map_vjp(Gelu, &Tensor::ones([m, n])));
                let (y, slope) = x.linear_activation(&w, None, Sigmoid);
                same("sigmoid", &y, &plain.sigmoid());
                let by_output = y.map_vjp(Sigmoid, &Tensor::ones([m, n]));
                same("its derivative", &slope, &by_output);
                same("times", &x.matmul_times(&w.t(), &c), &plain.mul(&c));
            });
        }
    }
}

#[test]
fn fused_layers_equal_separate_operations() {
    for level in Level::available() {
        with_level(level, equals_separate_operations::<f32>);
    }
    equals_separate_operations::<f64>();
}

#[test]
fn layouts_and_leading_axes_do_not_change_results() {
    let x: Tensor<f32> = random(&[5, 4, 3, 2], 1);
    let x = x.permute([2, 0, 3, 1]);
    let wide: Tensor<f32> = random(&[4, 14], 2);
    let w = wide.t().slice_step(0, .., 2);
    let b = random::<f32>(&[14], 3).slice_step(0, .., 2);
    let h = x.matmul(&w.t()).add(&b);
    same("linear", &x.linear(&w, Some(&b)), &h);
    let (y, slope) = x.linear_activation(&w, Some(&b), Relu);
    same("relu", &y, &h.relu());
    assert_eq!(slope.shape()[..], [3, 5, 2, 7]);
    let factor: Tensor<f32> = random(&[7, 2, 5, 3], 4);
    let factor = factor.permute([3, 2, 1, 0]);
    same("times", &x.matmul_times(&w.t(), &factor), &x.matmul(&w.t()).mul(&factor));
    same("with a residual", &x.linear_add(&w, Some(&b), &factor), &factor.add(&h));
    let row: Tensor<f32> = random(&[4], 5);
    same("a vector", &row.linear(&w, Some(&b)), &row.matmul(&w.t()).add(&b));
}

#[test]
fn non_finite_values_propagate() {
    let x = Tensor::from([[f32::NAN, 1.0], [f32::INFINITY, 0.0], [1.0, 2.0]]);
    let w = Tensor::from([[1.0f32, 1.0]]);
    let (y, slope) = x.linear_activation(&w, None, Gelu);
    let (y, slope) = (y.to_vec(), slope.to_vec());
    assert!(y[0].is_nan() && slope[0].is_nan());
    assert_eq!(y[1], f32::INFINITY);
    assert!((y[2] - 2.995_950_2).abs() < 1e-6 && (slope[2] - 1.011_945_7).abs() < 1e-6);
}
