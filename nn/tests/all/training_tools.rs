//! Averages of weights, and the learning rate range test.

use crate::common::*;
use retrograd_autograd::Gradients;
use retrograd_nn::init::Init;
use retrograd_nn::optim::{AdamConfig, AdamW, Optimizer, Sgd, SgdConfig};
use retrograd_nn::{Ema, Linear, LrRangeTest, Module, StateDict};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn linear(seed: u64) -> Linear<f64> {
    Linear::new(3, 2, &mut Rng::new(seed))
}

fn random_weights(model: &impl Module<f64>, rng: &mut Rng) {
    for (_, param) in model.named_parameters() {
        param.set(Tensor::randn(param.shape(), rng));
    }
}

#[test]
fn averages_follow_their_formula() {
    for warmup in [false, true] {
        let (model, mut rng) = (linear(1), Rng::new(2));
        let mut ema = Ema::new(&model, 0.8).unwrap();
        if warmup {
            ema = ema.with_warmup();
        }
        let mut want = model.weight.value().to_vec();
        for n in 0..20 {
            random_weights(&model, &mut rng);
            ema.update();
            let n = f64::from(n);
            let d = if warmup { ((1.0 + n) / (10.0 + n)).min(0.8) } else { 0.8 };
            for (a, w) in want.iter_mut().zip(model.weight.value().to_vec()) {
                *a = d * *a + (1.0 - d) * w;
            }
        }
        let got = ema.state_dict()["weight"].to_vec();
        for (x, y) in got.iter().zip(&want) {
            assert!((x - y).abs() < 1e-14, "{x} and {y}");
        }
        assert_eq!(ema.updates(), 20);
    }
}

#[test]
fn equal_weights_are_their_average() {
    let model = linear(1);
    let mut ema = Ema::new(&model, 0.99).unwrap();
    for _ in 0..100 {
        ema.update();
    }
    assert!(ema.state_dict() == model.state_dict());
    let mut copy = Ema::new(&model, 0.0).unwrap();
    random_weights(&model, &mut Rng::new(5));
    copy.update();
    assert_eq!(copy.state_dict()["bias"].to_vec(), model.bias.as_ref().unwrap().value().to_vec());
}

#[test]
fn the_model_has_its_weights_again_after_a_panic() {
    let model = linear(1);
    let ema = Ema::new(&model, 0.9).unwrap();
    let average = model.state_dict();
    random_weights(&model, &mut Rng::new(2));
    let own = model.state_dict();
    let inside = catch_unwind(AssertUnwindSafe(|| {
        ema.with_average(|| {
            assert!(model.state_dict() == average);
            panic!("an evaluation failed");
        })
    }));
    assert!(inside.is_err());
    assert!(model.state_dict() == own);
}

#[test]
fn averages_are_saved_and_loaded() {
    let (model, mut rng) = (linear(1), Rng::new(2));
    let mut ema = Ema::new(&model, 0.9).unwrap().with_warmup();
    random_weights(&model, &mut rng);
    ema.update();
    let saved = ema.state_dict();
    let mut other = Ema::new(&model, 0.9).unwrap().with_warmup();
    other.load_state_dict(ema.updates(), &saved).unwrap();
    random_weights(&model, &mut rng);
    ema.update();
    other.update();
    assert!(ema.state_dict() == other.state_dict());
    let mut wrong = saved.clone();
    wrong.insert("weight".into(), Tensor::zeros([9]));
    let before = other.state_dict();
    let text = other.load_state_dict(0, &wrong).unwrap_err().to_string();
    assert!(text.contains("weight"), "{text}");
    assert!(other.load_state_dict(0, &StateDict::new()).is_err());
    assert!(other.state_dict() == before && other.updates() == 2);
    for decay in [-0.1, 1.1, f64::NAN] {
        assert!(Ema::new(&model, decay).is_err());
    }
}

/// The loss and gradients of a regression to constants.
fn regression(model: &Linear<f64>) -> (f64, Gradients<f64>) {
    let loss = (model.weight.to_var() - 1.0).square().sum(..)
        + model.bias.as_ref().unwrap().to_var().square().sum(..);
    (loss.item(), loss.backward())
}

#[test]
fn a_range_test_restores_everything() {
    let model = linear(3);
    let mut adam = AdamW::new(&model, AdamConfig { lr: 0.02, ..AdamConfig::default() }).unwrap();
    for _ in 0..3 {
        adam.step(&regression(&model).1).unwrap();
    }
    let (weights, state) = (model.state_dict(), adam.state_dict());
    let test =
        LrRangeTest::run(&model, &mut adam, 1e-5..=10.0, 60, |_| regression(&model)).unwrap();
    assert!(test.points.len() > 10);
    assert!(model.state_dict() == weights && adam.state_dict() == state);
    assert_eq!((adam.steps(), adam.lr()), (3, 0.02));
    // Neighbouring rates have one ratio.
    let ratios: Vec<f64> = test.points.windows(2).map(|p| p[1].0 / p[0].0).collect();
    assert!(ratios.iter().all(|r| (r / ratios[0] - 1.0).abs() < 1e-9));
    assert_eq!(test.points[0].0, 1e-5);
}

/// Gradient descent on `w²` multiplies `w` by `1 - 2·lr`: it converges below a rate of 1.
#[test]
fn a_range_test_finds_the_usable_rates() {
    let model = linear(3);
    let mut sgd = Sgd::new(&model, SgdConfig::default()).unwrap();
    let test = LrRangeTest::run(&model, &mut sgd, 1e-4..=1e3, 100, |_| regression(&model)).unwrap();
    let last = test.points.last().unwrap();
    assert!(test.points.len() < 100 && last.0 > 1.0, "the test ends where the loss diverges");
    let lr = test.suggestion().unwrap();
    assert!((0.01..1.0).contains(&lr), "{lr}");
}

#[test]
fn range_tests_of_invalid_inputs_are_errors() {
    let model = linear(3);
    let weights = model.state_dict();
    let mut sgd = Sgd::new(&model, SgdConfig::default()).unwrap();
    let mut error = |rates, steps, f: &mut dyn FnMut() -> (f64, Gradients<f64>)| {
        LrRangeTest::run(&model, &mut sgd, rates, steps, |_| f()).unwrap_err().to_string()
    };
    let text = error(0.0..=1.0, 9, &mut || regression(&model));
    assert_eq!(text, "rates must be finite, above 0 and rising, got 0 to 1");
    assert!(error(1.0..=0.5, 9, &mut || regression(&model)).contains("rising"));
    let text = error(0.1..=1.0, 1, &mut || regression(&model));
    assert_eq!(text, "a range test needs at least 2 steps, got 1");
    // A gradient is missing.
    let text = error(0.1..=1.0, 9, &mut || (1.0, model.weight.to_var().sum(..).backward()));
    assert!(text.contains("bias"), "{text}");
    // The loss is not finite, or rises from a small one: the test ends.
    for (loss, points) in [(f64::NAN, 4), (1.0, 5)] {
        let test = LrRangeTest::run(&model, &mut sgd, 0.1..=1.0, 9, |step| {
            (if step == 4 { loss } else { 1e-3 }, regression(&model).1)
        });
        assert_eq!(test.unwrap().points.len(), points);
    }
    assert!(model.state_dict() == weights);
    assert!(
        panic_text(|| Init::Orthogonal { gain: 1.0 }.sample::<f32>([3], &mut Rng::new(1)))
            .contains("at least two axes")
    );
    assert!(
        panic_text(|| {
            Init::TruncatedNormal { std: 1.0, bound: f64::NAN }.sample::<f32>([3], &mut Rng::new(1))
        })
        .contains("bound")
    );
}
