//! candle on the CPU, doing what benches/compare asks for.
//!
//! Its fused softmax, layer norm and attention have no backward pass, so the differentiable
//! compositions are what trains. It cannot clip gradients: a step is without.

mod gpt;

use candle_core::{D, DType, Device, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, loss, ops};
use gpt::Gpt;
use peer_common::{BETAS, Config, LR, Opened, Rng, WEIGHT_DECAY, numbers, opened, serve, training};

const DEV: &Device = &Device::Cpu;

fn main() {
    let best = cfg!(feature = "best");
    let about = || format!("{{\"version\": \"candle 0.11.1, gemm with AVX-512: {best}\"}}");
    serve(about, |name| {
        let words: Vec<&str> = name.split_whitespace().collect();
        open(&words).expect("candle does it")
    });
}

/// A leaf of normal numbers.
fn leaf(rng: &mut Rng, shape: &[usize]) -> Result<Var> {
    Var::from_vec(rng.normal(shape.iter().product(), 1.0), shape, DEV)
}

fn params() -> ParamsAdamW {
    let (beta1, beta2) = BETAS;
    ParamsAdamW { lr: LR, beta1, beta2, eps: 1e-8, weight_decay: WEIGHT_DECAY }
}

fn open(words: &[&str]) -> Result<Option<Opened>> {
    Ok(match words {
        ["gemm", form, sizes @ ..] => match numbers(sizes) {
            Some(sizes) => gemm(form, sizes)?,
            None => None,
        },
        ["attention", pass, b, h, t, d, "causal", dropout] => {
            match (numbers(&[b, h, t, d]), dropout.parse()) {
                (Some(sizes), Ok(dropout)) => attention(pass, sizes, dropout)?,
                _ => None,
            }
        }
        ["train", name, batch, dropout] => match (batch.parse(), dropout.parse()) {
            (Ok(batch), Ok(dropout)) => match Config::named(name, batch, dropout) {
                Some(config) => train(config)?,
                None => None,
            },
            _ => None,
        },
        ["adamw", name] => match Config::named(name, 1, 0.0) {
            Some(config) => adamw(config)?,
            None => None,
        },
        [name, pass, sizes @ ..] => match numbers(sizes) {
            Some(sizes) => rows(name, pass, sizes)?,
            None => None,
        },
        _ => None,
    })
}

fn gemm(form: &str, [m, k, n]: [usize; 3]) -> Result<Option<Opened>> {
    let mut rng = Rng::new(1);
    let mut operand = |rows, cols, transposed: bool| {
        let stored = if transposed { [cols, rows] } else { [rows, cols] };
        let x = leaf(&mut rng, &stored)?.as_detached_tensor();
        if transposed { x.t() } else { Ok(x) }
    };
    let (a, b) = (form.starts_with('t'), form.ends_with('t'));
    let (a, b) = (operand(m, k, a)?, operand(k, n, b)?);
    Ok(opened(move || a.matmul(&b).expect("a product")))
}

/// One pass through `f`, backward from a sum: candle takes no other gradient of the output.
fn pass(
    pass: &str,
    inputs: Vec<Var>,
    f: impl Fn(&[Tensor]) -> Result<Tensor> + 'static,
) -> Option<Opened> {
    let plain: Vec<Tensor> = inputs.iter().map(Var::as_detached_tensor).collect();
    let tracked: Vec<Tensor> = inputs.iter().map(|v| v.as_tensor().clone()).collect();
    match pass {
        "fwd" => opened(move || f(&plain).expect("forward")),
        "fwd+bwd" => opened(move || {
            let y = f(&tracked).and_then(|y| y.sum_all()).expect("forward");
            y.backward().expect("backward")
        }),
        _ => None,
    }
}

fn rows(name: &str, way: &str, [rows, cols]: [usize; 2]) -> Result<Option<Opened>> {
    let mut rng = Rng::new(1);
    let x = leaf(&mut rng, &[rows, cols])?;
    Ok(match name {
        "softmax" => pass(way, vec![x], |x| ops::softmax(&x[0], D::Minus1)),
        "gelu" => pass(way, vec![x], |x| x[0].gelu_erf()),
        "layer_norm" => {
            let w = Var::ones(cols, DType::F32, DEV)?;
            pass(way, vec![x, w], |x| gpt::layer_norm(&x[0], &x[1]))
        }
        "cross_entropy" => {
            let y: Vec<u32> = (0..rows).map(|_| (rng.next_u64() % cols as u64) as u32).collect();
            let y = Tensor::from_vec(y, rows, DEV)?;
            pass(way, vec![x], move |x| loss::cross_entropy(&x[0], &y))
        }
        _ => None,
    })
}

fn attention(way: &str, sizes: [usize; 4], dropout: f32) -> Result<Option<Opened>> {
    let mut rng = Rng::new(1);
    let qkv = (0..3).map(|_| leaf(&mut rng, &sizes)).collect::<Result<Vec<_>>>()?;
    let mask = gpt::causal_mask(sizes[2])?;
    Ok(pass(way, qkv, move |x| gpt::attention(&x[0], &x[1], &x[2], &mask, dropout)))
}

fn adamw(config: Config) -> Result<Option<Opened>> {
    let model = Gpt::new(config)?;
    let tokens = vec![1; config.context];
    let grads = model.loss(&tokens, &tokens)?.backward()?;
    let mut adamw = AdamW::new(model.vars(), params())?;
    Ok(opened(move || adamw.step(&grads).expect("a step")))
}

fn train(config: Config) -> Result<Option<Opened>> {
    let model = Gpt::new(config)?;
    let mut adamw = AdamW::new(model.vars(), params())?;
    Ok(training(config, move |tokens, targets| {
        let loss = model.loss(tokens, targets).expect("a loss");
        adamw.backward_step(&loss).expect("a step");
        loss.to_scalar().expect("a number")
    }))
}
