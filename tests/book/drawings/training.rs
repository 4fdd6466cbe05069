//! Variance by layer, and loss curves of optimisers.

use super::svg::{Anchor, BLUE, GREEN, INK, ORANGE, PURPLE, Plot, Svg};
use retrograd::nn::init::Init;
use retrograd::nn::optim::{Muon, MuonConfig};
use retrograd::prelude::*;

const LAYERS: usize = 20;
const WIDTH: usize = 128;

/// The root mean squares of the activations after each layer, and of the gradients there: linear layers
/// with ReLU, and weights of standard deviation `√(gain / WIDTH)`.
fn root_mean_squares(gain: f64) -> (Vec<f64>, Vec<f64>) {
    let mut rng = Rng::new(1);
    let mut h = Var::leaf(Tensor::<f64>::randn([64, WIDTH], &mut rng));
    let mut layers = vec![h.clone()];
    for _ in 0..LAYERS {
        let std = (gain / WIDTH as f64).sqrt();
        let w = Var::constant(Init::Normal { std }.sample([WIDTH, WIDTH], &mut rng));
        h = h.linear(&w, None).relu();
        layers.push(h.clone());
    }
    let cotangent = Tensor::randn([64, WIDTH], &mut rng);
    let pass = Backprop::from(&h).cotangent(cotangent);
    let grads = layers.iter().fold(pass, |pass, h| pass.keep(h)).run();
    let rms = |x: &Tensor<f64>| x.square().mean(..).item().sqrt();
    let gradient = |h: &Var<f64>| rms(grads.get(h).expect("kept"));
    (layers.iter().map(|h| rms(h.value())).collect(), layers.iter().map(gradient).collect())
}

/// Root mean squares by layer, for three scales of the weights.
pub(crate) fn variance() -> String {
    let mut svg = Svg::new(760.0, 330.0, "Root mean square of activations and gradients by layer");
    let plots = [60.0, 440.0].map(|left| Plot {
        at: (left, 40.0),
        size: (300.0, 200.0),
        x: (0.0, LAYERS as f64),
        y: (1e-4, 1e4),
        log: true,
    });
    let xs: Vec<f64> = (0..=4).map(|i| 5.0 * f64::from(i)).collect();
    let ys = [1e-4, 1e-2, 1.0, 1e2, 1e4];
    plots[0].axes(&mut svg, (&xs, "layer"), (&ys, "root mean square of the activations"));
    plots[1].axes(&mut svg, (&xs, "layer"), (&ys, "root mean square of the gradients"));
    for (i, (gain, color)) in [(1.0, ORANGE), (2.0, BLUE), (4.0, GREEN)].into_iter().enumerate() {
        let (activations, gradients) = root_mean_squares(gain);
        let points = |values: Vec<f64>| (0..).map(f64::from).zip(values).collect::<Vec<_>>();
        plots[0].line(&mut svg, &points(activations), (color, 2.0));
        plots[1].line(&mut svg, &points(gradients), (color, 2.0));
        let x = 60.0 + 230.0 * i as f64;
        svg.path(&[(x, 306.0), (x + 24.0, 306.0)], (color, 2.5), false);
        svg.text((x + 32.0, 310.0), Anchor::Start, format!("variance of weights {gain} / fan-in"));
    }
    svg.finish()
}

/// The losses of `steps` steps on `sin(3 x)`, by a small network and an optimiser whose learning rate falls
/// linearly to 0.
pub(crate) fn losses<O: Optimizer<f64>>(
    steps: u64,
    new: impl Fn(&Sequential<f64>) -> O,
) -> Vec<f64> {
    let mut rng = Rng::new(3);
    let model = Sequential::<f64>::new()
        .then(Linear::new(1, 32, &mut rng))
        .then(Activation::Tanh)
        .then(Linear::new(32, 32, &mut rng))
        .then(Activation::Tanh)
        .then(Linear::new(32, 1, &mut rng));
    let x = Tensor::<f64>::linspace(-1.5, 1.5, 64).reshape([64, 1]);
    let y = Var::constant((&x * 3.0).sin());
    let x = Var::constant(x);
    let mut optimizer = new(&model);
    let lr = optimizer.lr();
    let step = |step| {
        let loss = model.forward(&x, &mut Pass::train(step)).mse_loss(&y, Reduction::Mean);
        optimizer.set_lr(lr * (1.0 - step as f64 / steps as f64));
        optimizer.step(&loss.backward()).expect("finite gradients");
        loss.item()
    };
    (0..steps).map(step).collect()
}

/// Loss curves of four optimisers on the same model and data.
pub(crate) fn optimisers() -> String {
    let steps = 300;
    let sgd = |momentum, lr| {
        losses(steps, |m| {
            Sgd::new(m, SgdConfig { lr, momentum, ..SgdConfig::default() }).expect("valid")
        })
    };
    let adam = AdamConfig { lr: 0.01, weight_decay: 0.0, ..AdamConfig::default() };
    let muon =
        MuonConfig { lr: 0.02, adam: AdamConfig { lr: 0.01, ..adam }, ..MuonConfig::default() };
    let curves = [
        ("SGD, learning rate 0.1", ORANGE, sgd(0.0, 0.1)),
        ("SGD 0.1, momentum 0.9", GREEN, sgd(0.9, 0.1)),
        ("AdamW 0.01", BLUE, losses(steps, |m| AdamW::new(m, adam).expect("valid"))),
        ("Muon 0.02", PURPLE, losses(steps, |m| Muon::new(m, muon).expect("valid"))),
    ];
    let mut svg = Svg::new(760.0, 330.0, "Loss curves of SGD, SGD with momentum, AdamW and Muon");
    let plot =
        Plot { at: (60.0, 40.0), size: (460.0, 230.0), x: (0.0, 300.0), y: (1e-5, 1.0), log: true };
    let xs = [0.0, 100.0, 200.0, 300.0];
    plot.axes(
        &mut svg,
        (&xs, "step"),
        (&[1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0], "mean squared error"),
    );
    for (i, (name, color, losses)) in curves.into_iter().enumerate() {
        let last = losses[losses.len() - 1];
        let points: Vec<_> = (0..).map(f64::from).zip(losses).collect();
        plot.line(&mut svg, &points, (color, 2.0));
        let y = 70.0 + 46.0 * i as f64;
        svg.path(&[(540.0, y - 4.0), (564.0, y - 4.0)], (color, 2.5), false);
        svg.text((572.0, y), Anchor::Start, name);
        svg.styled(
            ((572.0, y + 17.0), Anchor::Start),
            (11.5, INK),
            format!("at the end {last:.0e}"),
        );
    }
    svg.finish()
}
