//! burn on its "flex" CPU backend, doing what benches/compare asks for.
//!
//! With gradients its attention is the unfused fallback, which has no dropout of weights; gradients
//! are clipped by the norm of each tensor, since it has no common norm.

mod gpt;

use burn::grad_clipping::GradientClippingConfig;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::activation::{gelu, softmax};
use burn::tensor::module::{attention, layer_norm};
use burn::tensor::{Device, Int, Tensor, TensorData};
use gpt::{Gpt, causal};
use peer_common::{
    BETAS, CLIP, Config, LR, Opened, Rng, WEIGHT_DECAY, numbers, opened, serve, training,
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
        ["attention", pass, b, h, t, d, "causal", "0"] => attend(pass, numbers(&[b, h, t, d])?),
        ["train", name, batch, "0"] => train(Config::named(name, batch.parse().ok()?, 0.0)?),
        [name, pass, sizes @ ..] => rows(name, pass, numbers(sizes)?),
        _ => None,
    }
}

/// Normal numbers.
fn random<const D: usize>(rng: &mut Rng, shape: [usize; D], device: &Device) -> Tensor<D> {
    let values = rng.normal(shape.iter().product(), 1.0);
    Tensor::from_data(TensorData::new(values, shape.to_vec()), device)
}

/// One pass through `f`, backward from a sum.
fn pass<const D: usize, const N: usize, const E: usize>(
    way: &str,
    shapes: [[usize; D]; N],
    f: impl Fn([Tensor<D>; N], &Device) -> Tensor<E> + 'static,
) -> Option<Opened> {
    let plain = Device::flex();
    let recording = plain.clone().autodiff();
    let mut rng = Rng::new(1);
    match way {
        "fwd" => {
            let inputs = shapes.map(|s| random(&mut rng, s, &plain));
            opened(move || {
                let y = f(inputs.clone(), &plain);
                plain.sync().expect("synchronised");
                y
            })
        }
        "fwd+bwd" => {
            let inputs = shapes.map(|s| random(&mut rng, s, &recording).require_grad());
            opened(move || {
                let grads = f(inputs.clone(), &recording).sum().backward();
                plain.sync().expect("synchronised");
                grads
            })
        }
        _ => None,
    }
}

fn gemm(form: &str, [m, k, n]: [usize; 3]) -> Option<Opened> {
    let device = Device::flex();
    let mut rng = Rng::new(1);
    let mut operand = |rows, cols, transposed: bool| {
        let stored = if transposed { [cols, rows] } else { [rows, cols] };
        let x = random(&mut rng, stored, &device);
        if transposed { x.transpose() } else { x }
    };
    let (a, b) = (form.starts_with('t'), form.ends_with('t'));
    let (a, b) = (operand(m, k, a), operand(k, n, b));
    opened(move || {
        let y = a.clone().matmul(b.clone());
        device.sync().expect("synchronised");
        y
    })
}

fn attend(way: &str, sizes: [usize; 4]) -> Option<Opened> {
    pass(way, [sizes; 3], |[q, k, v], _| attention(q, k, v, None, None, causal()))
}

fn rows(name: &str, way: &str, [rows, cols]: [usize; 2]) -> Option<Opened> {
    let shape = [[rows, cols]];
    match name {
        "softmax" => pass(way, shape, |[x], _| softmax(x, 1)),
        "gelu" => pass(way, shape, |[x], _| gelu(x)),
        "layer_norm" => {
            let records = way == "fwd+bwd";
            pass(way, shape, move |[x], device| {
                let w = Tensor::<1>::ones([cols], device);
                layer_norm(x, if records { w.require_grad() } else { w }, None, 1e-5)
            })
        }
        "cross_entropy" => {
            let mut rng = Rng::new(2);
            let y: Vec<i32> = (0..rows).map(|_| (rng.next_u64() % cols as u64) as i32).collect();
            pass(way, shape, move |[x], device| {
                let y = TensorData::new(y.clone(), [rows]);
                let y = Tensor::<1, Int>::from_data(y, device);
                CrossEntropyLossConfig::new().init(device).forward(x, y)
            })
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
        let ints = |v: &[u32]| v.iter().map(|&i| i as i32).collect::<Vec<_>>();
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
