//! candle on the CPU: executes the requests of benches/compare.
//!
//! Its fused softmax, layer norm and attention have no backward pass, so training uses differentiable
//! compositions. candle has no gradient clipping, so a step has none. Weight decay applies to all
//! parameters.

mod gpt;

use candle_core::backprop::GradStore;
use candle_core::{D, Device, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, loss, ops};
use gpt::Gpt;
use peer_common::{
    BETAS, Config, LR, Opened, WEIGHT_DECAY, data, numbers, opened, serve, training,
};

const DEV: &Device = &Device::Cpu;

fn main() {
    let best = cfg!(feature = "best");
    let about = || format!("{{\"version\": \"candle 0.11.1, gemm with AVX-512: {best}\"}}");
    serve(about, |name| {
        let words: Vec<&str> = name.split_whitespace().collect();
        open(&words)
    });
}

fn open(words: &[&str]) -> Option<Opened> {
    let opened = match words {
        ["gemm", form, sizes @ ..] => gemm(form, numbers(sizes)?),
        ["attention", "fwd+bwd", b, h, t, d, "causal", "0"] => attention(numbers(&[b, h, t, d])?),
        ["train", name, batch, dropout] => {
            train(Config::named(name, batch.parse().ok()?, dropout.parse().ok()?)?)
        }
        [name, "fwd+bwd", sizes @ ..] => rows(name, numbers(sizes)?),
        _ => return None,
    };
    opened.expect("candle supports the operations")
}

/// The `i`-th operand of a shape.
fn leaf(i: u32, shape: &[usize]) -> Result<Var> {
    Var::from_vec(data::numbers(i + 1, shape.iter().product()), shape, DEV)
}

fn values(x: &Tensor) -> Vec<f32> {
    x.flatten_all().and_then(|x| x.to_vec1()).expect("f32")
}

fn gemm(form: &str, [m, k, n]: [usize; 3]) -> Result<Option<Opened>> {
    let operand = |i, rows, cols, transposed: bool| {
        let stored = if transposed { [cols, rows] } else { [rows, cols] };
        let x = leaf(i, &stored)?.as_detached_tensor();
        if transposed { x.t() } else { Ok(x) }
    };
    let (a, b) = (form.starts_with('t'), form.ends_with('t'));
    let (a, b) = (operand(0, m, k, a)?, operand(1, k, n, b)?);
    Ok(opened(move || a.matmul(&b).expect("a product"), values))
}

/// A forward and backward pass through `f`. candle cannot start a backward pass from a cotangent, so the
/// output is multiplied by it and summed.
fn pass(
    inputs: Vec<Var>,
    f: impl Fn(&[Tensor]) -> Result<Tensor> + 'static,
) -> Result<Option<Opened>> {
    let x: Vec<Tensor> = inputs.iter().map(|v| v.as_tensor().clone()).collect();
    let y = f(&x)?;
    let g = Tensor::from_vec(data::numbers(50, y.elem_count()), y.shape(), DEV)?;
    let first = x[0].clone();
    let both = move || -> Result<GradStore> { (f(&x)? * &g)?.sum_all()?.backward() };
    Ok(opened(
        move || both().expect("forward and backward"),
        move |grads| values(grads.get(&first).expect("a gradient of every leaf")),
    ))
}

fn rows(name: &str, [rows, cols]: [usize; 2]) -> Result<Option<Opened>> {
    let x = leaf(0, &[rows, cols])?;
    match name {
        "softmax" => pass(vec![x], |x| ops::softmax(&x[0], D::Minus1)),
        "gelu" => pass(vec![x], |x| x[0].gelu_erf()),
        "layer_norm" => {
            let w = leaf(1, &[cols])?;
            pass(vec![x, w], |x| gpt::layer_norm(&x[0], &x[1]))
        }
        "cross_entropy" => {
            let y = data::integers(2, rows, cols).into_iter().map(|i| i as u32).collect();
            let y = Tensor::from_vec(y, rows, DEV)?;
            let (logits, of) = (x.as_tensor().clone(), x.as_tensor().clone());
            Ok(opened(
                move || {
                    let loss = loss::cross_entropy(&logits, &y).expect("a loss");
                    loss.backward().expect("gradients")
                },
                move |grads| values(grads.get(&of).expect("a gradient of the logits")),
            ))
        }
        _ => Ok(None),
    }
}

fn attention(sizes: [usize; 4]) -> Result<Option<Opened>> {
    let qkv = (0..3).map(|i| leaf(i, &sizes)).collect::<Result<Vec<_>>>()?;
    let mask = gpt::causal_mask(sizes[2])?;
    pass(qkv, move |x| gpt::attention(&x[0], &x[1], &x[2], &mask, 0.0))
}

fn train(config: Config) -> Result<Option<Opened>> {
    let (beta1, beta2) = BETAS;
    let params = ParamsAdamW { lr: LR, beta1, beta2, eps: 1e-8, weight_decay: WEIGHT_DECAY };
    let model = Gpt::new(config)?;
    let mut adamw = AdamW::new(model.vars(), params)?;
    let ids = |tokens: &[usize]| tokens.iter().map(|&i| i as u32).collect::<Vec<_>>();
    Ok(training(config, move |tokens, targets| {
        let loss = model.loss(&ids(tokens), &ids(targets)).expect("a loss");
        adamw.backward_step(&loss).expect("a step");
        loss.to_scalar().expect("a number")
    }))
}
