//! burn with its CPU backend "flex": executes the requests of benches/compare.
//!
//! With gradients, its attention is the unfused fallback, which has no dropout of weights. Gradients
//! are clipped by the norm of each tensor, since burn has no clipping by the global norm.

mod gpt;

use burn::grad_clipping::GradientClippingConfig;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::activation::{gelu, softmax};
use burn::tensor::module::{attention, layer_norm};
use burn::tensor::{Device, Int, Tensor, TensorData};
use gpt::{Gpt, causal};
use peer_common::{
    BETAS, CLIP, Config, LR, Opened, WEIGHT_DECAY, data, numbers, opened, serve, training,
};

fn main() {
    let best = cfg!(feature = "best");
    let about = || format!("{{\"version\": \"burn 0.22.1 flex, gemm with AVX-512: {best}\"}}");
    serve(about, |name| {
        let words: Vec<&str> = name.split_whitespace().collect();
        open(&words)
    });
}

fn open(words: &[&str]) -> Option<Opened> {
    match words {
        ["gemm", form, sizes @ ..] => gemm(form, numbers(sizes)?),
        ["attention", "fwd+bwd", b, h, t, d, "causal", "0"] => attend(numbers(&[b, h, t, d])?),
        ["train", name, batch, "0"] => train(Config::named(name, batch.parse().ok()?, 0.0)?),
        [name, "fwd+bwd", sizes @ ..] => rows(name, numbers(sizes)?),
        _ => None,
    }
}

/// The operand of a seed.
fn operand<const D: usize>(seed: u32, shape: [usize; D], device: &Device) -> Tensor<D> {
    let values = data::numbers(seed, shape.iter().product());
    Tensor::from_data(TensorData::new(values, shape.to_vec()), device)
}

fn values<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    x.into_data().try_to_vec().expect("f32")
}

/// A forward and backward pass through `f`. burn cannot start a backward pass from a cotangent, so the
/// output is multiplied by it and summed.
fn pass<const D: usize, const N: usize>(
    shapes: [[usize; D]; N],
    f: impl Fn([Tensor<D>; N]) -> Tensor<D> + 'static,
) -> Option<Opened> {
    let recording = Device::flex().autodiff();
    let mut seed = 0;
    let inputs = shapes.map(|shape| {
        seed += 1;
        operand(seed, shape, &recording).require_grad()
    });
    let g = operand(50, f(inputs.clone()).dims(), &recording);
    backward(inputs[0].clone(), move || (f(inputs.clone()) * g.clone()).sum())
}

/// The gradients of `f`; that of the input `of` is compared.
fn backward<const D: usize>(of: Tensor<D>, f: impl Fn() -> Tensor<1> + 'static) -> Option<Opened> {
    let device = Device::flex();
    opened(
        move || {
            let grads = f().backward();
            device.sync().expect("synchronised");
            grads
        },
        move |grads| values(of.grad(grads).expect("a gradient of every leaf")),
    )
}

fn gemm(form: &str, [m, k, n]: [usize; 3]) -> Option<Opened> {
    let device = Device::flex();
    let operand = |seed, rows, cols, transposed: bool| {
        let stored = if transposed { [cols, rows] } else { [rows, cols] };
        let x = operand(seed, stored, &device);
        if transposed { x.transpose() } else { x }
    };
    let (a, b) = (form.starts_with('t'), form.ends_with('t'));
    let (a, b) = (operand(1, m, k, a), operand(2, k, n, b));
    let product = move || {
        let y = a.clone().matmul(b.clone());
        device.sync().expect("synchronised");
        y
    };
    opened(product, |y| values(y.clone()))
}

fn attend(sizes: [usize; 4]) -> Option<Opened> {
    pass([sizes; 3], |[q, k, v]| attention(q, k, v, None, None, causal()))
}

fn rows(name: &str, [rows, cols]: [usize; 2]) -> Option<Opened> {
    let recording = Device::flex().autodiff();
    let shape = [[rows, cols]];
    match name {
        "softmax" => pass(shape, |[x]| softmax(x, 1)),
        "gelu" => pass(shape, |[x]| gelu(x)),
        "layer_norm" => {
            let w: Tensor<1> = operand(2, [cols], &recording).require_grad();
            pass(shape, move |[x]| layer_norm(x, w.clone(), None, 1e-5))
        }
        "cross_entropy" => {
            let y = data::integers(2, rows, cols).into_iter().map(|i| i as i32).collect();
            let y = Tensor::<1, Int>::from_data(TensorData::new(y, [rows]), &recording);
            let x: Tensor<2> = operand(1, [rows, cols], &recording).require_grad();
            let loss = CrossEntropyLossConfig::new().init(&recording);
            backward(x.clone(), move || loss.forward(x.clone(), y.clone()))
        }
        _ => None,
    }
}

fn train(config: Config) -> Option<Opened> {
    let device = Device::flex();
    let recording = device.clone().autodiff();
    let mut optimizer = AdamWConfig::new()
        .with_beta_1(BETAS.0 as f32)
        .with_beta_2(BETAS.1 as f32)
        .with_epsilon(1e-8)
        .with_weight_decay(WEIGHT_DECAY as f32)
        .with_grad_clipping(Some(GradientClippingConfig::Norm(CLIP as f32)))
        .init();
    let mut model = Some(Gpt::new(&config, &recording));
    let loss = CrossEntropyLossConfig::new().init(&device);
    let Config { batch, context, .. } = config;
    training(config, move |tokens, targets| {
        let ints = |v: &[usize]| v.iter().map(|&i| i as i32).collect::<Vec<_>>();
        let tokens = TensorData::new(ints(tokens), [batch, context]);
        let targets = TensorData::new(ints(targets), [batch * context]);
        let tokens = Tensor::<2, Int>::from_data(tokens, &recording);
        let targets = Tensor::<1, Int>::from_data(targets, &recording);
        let now = model.take().expect("put back below");
        let loss = loss.forward(now.logits(tokens), targets);
        let grads = GradientsParams::from_grads(loss.backward(), &now);
        model = Some(optimizer.step(LR, now, grads));
        let loss = loss.into_scalar::<f32>();
        device.sync().expect("synchronised");
        loss
    })
}
