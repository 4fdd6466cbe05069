//! Solutions of the exercises of `book::training`.

use retrograd::nn::Param;
use retrograd::nn::init::gpt2_residual;
use retrograd::prelude::*;
use retrograd::tensor::random::Key;

fn root_mean_square(x: &Tensor<f64>) -> f64 {
    x.square().mean(..).item().sqrt()
}

#[test]
fn tanh_layers() {
    let layers = |size: f64, gain: f64| {
        let (mut rng, n) = (Rng::new(1), 256);
        let mut x = Tensor::<f64>::randn([32, n], &mut rng) * size;
        for _ in 0..10 {
            let w = Tensor::<f64>::randn([n, n], &mut rng) * (gain / n as f64).sqrt();
            x = x.matmul(&w.t()).tanh();
        }
        root_mean_square(&x)
    };
    // Variance 1/n keeps small activations; large ones are shrunk to below 1 by the tanh.
    assert!((0.7..1.3).contains(&(layers(1e-3, 1.0) / 1e-3)));
    assert!(layers(10.0, 1.0) < 0.5);
    assert!(layers(1e-3, 0.25) / 1e-3 < 2e-3); // 2⁻¹⁰
}

struct One(Param<f64>);

impl Module<f64> for One {
    fn visit(&self, v: &mut Visitor<'_, f64>) {
        v.param("w", &self.0);
    }
}

#[test]
fn adamw_by_hand() {
    let start = Tensor::from([[0.5f64, -1.0, 2.0]]);
    let config = AdamConfig { lr: 0.05, weight_decay: 0.1, ..AdamConfig::default() };
    let model = One(Param::new(start.clone()));
    let mut library = AdamW::new(&model, config).unwrap();
    let (mut w, mut m, mut v) = (start.to_vec(), [0.0; 3], [0.0; 3]);
    for t in 1..=10 {
        // The loss is Σ w⁴ / 4, whose gradient is w³.
        let loss = model.0.to_var().powf(4.0).sum(..) * 0.25;
        library.step(&loss.backward()).unwrap();
        for i in 0..3 {
            let g = w[i].powi(3);
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.999 * v[i] + 0.001 * g * g;
            let (m, v) = (m[i] / (1.0 - 0.9f64.powi(t)), v[i] / (1.0 - 0.999f64.powi(t)));
            w[i] = (1.0 - 0.05 * 0.1) * w[i] - 0.05 * m / (v.sqrt() + 1e-8);
        }
    }
    for (x, y) in w.into_iter().zip(model.0.value().to_vec()) {
        assert!((x - y).abs() < 1e-12);
    }
}

#[test]
fn without_bias_correction() {
    // For g = 1: m = 1 - 0.9ᵗ and v = 1 - 0.999ᵗ. The quotient without the correction is more than 3 at
    // the first step, and 6.5 at the tenth; with it, 1.
    let quotient = |t: i32| (1.0 - 0.9f64.powi(t)) / (1.0 - 0.999f64.powi(t)).sqrt();
    assert!((quotient(1) - 0.1 / 0.001f64.sqrt()).abs() < 1e-9);
    assert!((3.1..3.2).contains(&quotient(1)) && (6.5..6.6).contains(&quotient(10)));
}

#[test]
fn residual_stream() {
    // Independent terms: mean squares add up, so after k blocks it is 1 + k times the square of the factor.
    // With the factor 1/√k of f it stays at 2 for any k. GPT-2 puts 1/√(2 k) into the weights: it adds
    // twice for each block.
    let stream = |k: usize, factor: f64| {
        let mut rng = Rng::new(2);
        let mut x = Tensor::<f64>::randn([100_000], &mut rng);
        for _ in 0..k {
            x = x + Tensor::<f64>::randn([100_000], &mut rng) * factor;
        }
        x.square().mean(..).item()
    };
    assert!((stream(24, 1.0) - 25.0).abs() < 0.5);
    assert!((stream(24, 1.0 / 24f64.sqrt()) - 2.0).abs() < 0.05);
    let weights = gpt2_residual(24).sample::<f64>([10_000], &mut Rng::new(3));
    assert!((root_mean_square(&weights) - 0.02 / 48f64.sqrt()).abs() < 1e-4);
}

#[test]
fn dropout_twice() {
    // An element survives both with probability (1 - p)(1 - q), and its factor is the inverse of that: dropout
    // with 1 - (1 - p)(1 - q).
    let (p, q): (f64, f64) = (0.2, 0.5);
    let once = 1.0 - (1.0 - p) * (1.0 - q);
    let x = Tensor::<f64>::ones([100_000]);
    let twice = x.dropout(p, Key::new(1, 0)).dropout(q, Key::new(1, 1));
    let single = x.dropout(once, Key::new(1, 2));
    let describe = |x: &Tensor<f64>| {
        let zeros = x.to_vec().iter().filter(|&&x| x == 0.0).count() as f64 / 1e5;
        (zeros, x.max(..).item())
    };
    let ((zeros_twice, max_twice), (zeros, max)) = (describe(&twice), describe(&single));
    assert!((zeros_twice - 0.6).abs() < 0.01 && (zeros - 0.6).abs() < 0.01);
    assert!((max_twice - 2.5).abs() < 1e-12 && (max - 2.5).abs() < 1e-12);
}

#[test]
fn the_final_losses_differ_by_two_orders_of_magnitude() {
    use crate::drawings::training::losses;
    use retrograd::nn::optim::{Muon, MuonConfig};
    let last = |losses: Vec<f64>| losses[losses.len() - 1];
    let sgd = SgdConfig { lr: 0.1, ..SgdConfig::default() };
    let sgd = last(losses(300, |m| Sgd::new(m, sgd).unwrap()));
    let adam = AdamConfig { lr: 0.01, ..AdamConfig::default() };
    let muon =
        last(losses(300, |m| Muon::new(m, MuonConfig { adam, ..MuonConfig::default() }).unwrap()));
    assert!((50.0..200.0).contains(&(sgd / muon)));
}
