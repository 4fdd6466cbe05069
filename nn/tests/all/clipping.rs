//! Gradients clipped by their global norm.

use crate::common::*;
use crate::optim::*;
use retrograd_autograd::Gradients;
use retrograd_nn::Param;
use retrograd_nn::optim::*;
use retrograd_tensor::{Real, Tensor};

#[test]
fn gradients_are_clipped_by_the_global_norm() {
    fn check<T: Real>(digits: f64) {
        let model = two::<T>();
        let pair = |x: f64| all_equal(&model, x);
        let first = |g: &Gradients<T>| g.by_id(model.matrix.id()).unwrap().at(&[0, 0]).to_f64();
        let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < digits, "{a} is not {b}");
        let root = 10f64.sqrt();

        let mut g = pair(3.0);
        close(g.clip_norm(1.0), 3.0 * root);
        close(first(&g), 1.0 / root);
        close(g.norm(), 1.0);
        // Below the threshold nothing changes, not even the last bit.
        let mut g = pair(0.1);
        let before = bits(g.by_id(model.matrix.id()).unwrap());
        for max in [1.0, f64::INFINITY] {
            close(g.clip_norm(max), 0.1 * root);
            assert_eq!(bits(g.by_id(model.matrix.id()).unwrap()), before);
        }
        // A norm of 0, a threshold of 0, no gradients.
        let mut g = pair(0.0);
        assert_eq!((g.clip_norm(1.0), g.clip_norm(0.0), first(&g)), (0.0, 0.0, 0.0));
        let mut g = pair(2.0);
        close(g.clip_norm(0.0), 2.0 * root);
        assert_eq!(first(&g), 0.0);
        let mut none = Gradients::<T>::empty();
        assert_eq!((none.clip_norm(1.0), none.norm()), (0.0, 0.0));
        let nothing = Param::new(Tensor::<T>::zeros([0, 3]));
        let mut g = gradients(&[(&nothing, Tensor::zeros([0, 3]))]);
        assert_eq!(g.clip_norm(1.0), 0.0);
        // Squares that overflow or underflow.
        let sizes: &[f64] = match T::DTYPE {
            retrograd_tensor::DType::F32 => &[1e20, 1e38, 1e-20, 1e-30, 1e-37],
            _ => &[1e20, 1e200, 1e307, 1e-20, 1e-200, 1e-300],
        };
        for &size in sizes {
            let mut g = pair(size);
            close(g.norm(), size * root);
            assert!(g.is_finite());
            close(g.clip_norm(1.0), size * root);
            if size > 1.0 {
                close(g.norm(), 1.0);
            }
        }
        // Non-finite gradients are unchanged, and an optimiser rejects them.
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut g = pair(bad);
            assert!(g.clip_norm(1.0).is_nan() && !g.is_finite());
            assert_eq!(first(&g).to_bits() << 1, bad.to_bits() << 1);
        }
        let text = panic_text(|| pair(1.0).clip_norm(f64::NAN));
        assert_eq!(text, "clip_norm: the largest norm must be at least 0, got NaN");
        let text = panic_text(|| pair(1.0).clip_norm(-1.0));
        assert_eq!(text, "clip_norm: the largest norm must be at least 0, got -1");
    }
    check::<f32>(1e-5);
    check::<f64>(1e-6);
}

/// Gradients that are changed after clipping are checked for non-finite values again.
#[test]
fn gradients_changed_after_clipping_are_checked_again() {
    fn check<T: Real>() {
        let model = two::<T>();
        let pair = |x: f64| all_equal(&model, x);
        let clipped = |x: f64| {
            let mut g = pair(x);
            assert!(g.clip_norm(1.0).is_finite() && g.is_finite());
            g
        };
        let of_both = |g: &Gradients<T>| {
            assert_eq!(g.not_finite(), [model.matrix.id(), model.vector.id()]);
            assert!(!g.is_finite());
        };
        let largest = if T::DTYPE == retrograd_tensor::DType::F32 { 3e38 } else { 1.5e308 };
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut g = clipped(2.0);
            g.accumulate(pair(bad));
            of_both(&g);
            for (name, mut optimizer) in every(&model) {
                let before = state_bits(&model);
                let rejected = StepError::NotFinite(vec!["matrix".into(), "vector".into()]);
                assert_eq!(optimizer.step(&g).unwrap_err(), rejected, "{name}, {bad}");
                assert_eq!(state_bits(&model), before);
            }
            // Conversely, adding finite gradients does not make non-finite ones pass.
            let mut g = pair(bad);
            g.clip_norm(1.0);
            g.accumulate(clipped(2.0));
            of_both(&g);
            let mut g = clipped(2.0);
            g.scale(T::from_f64(bad));
            of_both(&g);
        }
        // Both summands are finite, their sum is not.
        let mut g = pair(largest);
        g.clip_norm(f64::INFINITY);
        g.accumulate(pair(largest));
        of_both(&g);
        // A parameter without a gradient so far.
        let ones = || gradients(&[(&model.matrix, Tensor::ones([2, 3]))]);
        let mut g = ones();
        g.clip_norm(1.0);
        g.accumulate(gradients(&[(&model.vector, Tensor::full([4], T::from_f64(f64::NAN)))]));
        assert_eq!(g.not_finite(), [model.vector.id()]);
        let mut g = clipped(2.0);
        g.accumulate(ones());
        assert!(g.is_finite());
    }
    check::<f32>();
    check::<f64>();
}

#[test]
fn the_norm_of_many_small_gradients_is_exact() {
    // A sum in f32 would stop at 2^24.
    let p = Param::new(Tensor::<f32>::zeros([1 << 22]));
    let mut all = Gradients::empty();
    let many: Vec<Param<f32>> = (0..8).map(|_| Param::new(Tensor::zeros([1 << 22]))).collect();
    for p in many.iter().chain([&p]) {
        all.accumulate(gradients(&[(p, Tensor::ones([1 << 22]))]));
    }
    assert_eq!(all.norm(), ((9u64 << 22) as f64).sqrt());
}
