//! Elementwise operations and operations on rows, bound by memory: the forward pass reads the inputs and
//! writes the output; the backward pass reads the inputs and the cotangent and writes a gradient.

use super::{Pass, Work, indices, numbers};
use retrograd::prelude::Var;
use retrograd::tensor::ops::activation::Gelu;

/// `NAME fwd|fwd+bwd ROWS COLS`, with the names below; `linear_gelu PASS ROWS IN OUT`;
/// `embedding PASS ENTRIES WIDTH INDICES`.
pub fn work(words: &[&str]) -> Option<Work> {
    let [name, pass, sizes @ ..] = words else { return None };
    let pass = Pass::named(pass)?;
    match *name {
        "linear_gelu" => linear_gelu(pass, numbers(sizes)?),
        "embedding" => embedding(pass, numbers(sizes)?),
        _ => rows(name, pass, numbers(sizes)?),
    }
}

fn rows(name: &str, pass: Pass, [rows, cols]: [usize; 2]) -> Option<Work> {
    let n = (rows * cols) as f64;
    let one = || vec![vec![rows, cols]];
    let with_weight = || vec![vec![rows, cols], vec![cols]];
    let traffic = (0.0, 4.0 * n * pass.pick(2.0, 5.0));
    match name {
        "exp" => Work::pass(pass, traffic, one(), |x| x[0].exp()),
        "gelu" => Work::pass(pass, traffic, one(), |x| x[0].gelu()),
        "gelu_tanh" => Work::pass(pass, traffic, one(), |x| x[0].gelu_tanh()),
        "silu" => Work::pass(pass, traffic, one(), |x| x[0].silu()),
        "softmax" => Work::pass(pass, traffic, one(), |x| x[0].softmax(-1)),
        "log_softmax" => Work::pass(pass, traffic, one(), |x| x[0].log_softmax(-1)),
        "layer_norm" => {
            Work::pass(pass, traffic, with_weight(), |x| x[0].layer_norm(Some(&x[1]), None, 1e-5))
        }
        "rms_norm" => {
            Work::pass(pass, traffic, with_weight(), |x| x[0].rms_norm(Some(&x[1]), 1e-5))
        }
        // The gradient of both terms is the cotangent, so the backward pass moves nothing.
        "add" => {
            let traffic = (0.0, 4.0 * n * 3.0);
            Work::pass(pass, traffic, vec![vec![rows, cols]; 2], |x| &x[0] + &x[1])
        }
        "sum" => {
            let traffic = (0.0, 4.0 * n * pass.pick(1.0, 2.0));
            Work::pass(pass, traffic, one(), |x| x[0].sum(..))
        }
        _ => None,
    }
}

/// `gelu(x · wᵀ + b)`; the product can stay in the cache.
fn linear_gelu(pass: Pass, [rows, inputs, outputs]: [usize; 3]) -> Option<Work> {
    let flops = 2.0 * (rows * inputs * outputs) as f64 * pass.pick(1.0, 3.0);
    let (x, w, y) = (rows * inputs, inputs * outputs, rows * outputs);
    let once = (x + w + y) as f64;
    let bytes = 4.0 * pass.pick(once, 3.0 * once);
    let shapes = vec![vec![rows, inputs], vec![outputs, inputs], vec![outputs]];
    Work::pass(pass, (flops, bytes), shapes, |x| x[0].linear_activation(&x[1], Some(&x[2]), Gelu))
}

fn embedding(pass: Pass, [entries, width, indices]: [usize; 3]) -> Option<Work> {
    let moved = 2.0 * (indices * width) as f64;
    // The gradient of the whole table is written, then accumulated into.
    let bytes = 4.0 * pass.pick(moved, 2.0 * moved + (entries * width) as f64);
    let index = self::indices(indices, entries);
    Work::pass(pass, (0.0, bytes), vec![vec![entries, width]], move |w: &[Var]| {
        w[0].embedding(&index)
    })
}
