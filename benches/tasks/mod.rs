//! The work that is timed, by name, for the benchmarks and for the comparison with other libraries.
//!
//! A name consists of an operation, the pass (`fwd`, or `fwd+bwd` from a given cotangent to the
//! gradients of all inputs), and sizes.

mod attention;
#[path = "../compare/data.rs"]
pub mod data;
mod gemm;
mod generate;
mod loss;
mod optim;
mod rows;
mod tail;
mod tiny;
mod train;

use retrograd::prelude::{Gradients, Tensor, Var};
use std::hint::black_box;

/// Executes the work once; if the argument is true, returns a few numbers that summarise the result.
pub type Run = Box<dyn FnMut(bool) -> Vec<f64>>;

/// Work to be timed.
pub struct Work {
    /// Floating-point operations that the work requires; 0 if it is bound by memory.
    pub flops: f64,
    /// Bytes of inputs and outputs, each moved once; 0 if only arithmetic counts.
    pub bytes: f64,
    /// Allocates the operands.
    pub start: Box<dyn FnOnce() -> Run>,
}

/// Executes `f`, and summarises its result by `summary`.
fn timed<R>(mut f: impl FnMut() -> R + 'static, summary: impl Fn(&R) -> Vec<f64> + 'static) -> Run {
    Box::new(move |check| {
        let result = black_box(f());
        if check { summary(&result) } else { Vec::new() }
    })
}

fn digest(x: &Tensor) -> Vec<f64> {
    data::digest(&x.to_vec()).to_vec()
}

fn digests(grads: &Gradients, of: &[Var]) -> Vec<f64> {
    of.iter().flat_map(|x| digest(grads.get(x).expect("a gradient of every leaf"))).collect()
}

/// The `i`-th operand of a shape, the same in every program.
fn operand(i: usize, shape: &[usize]) -> Tensor {
    Tensor::from_vec(data::numbers(i as u32 + 1, shape.iter().product()), shape)
}

/// The cotangent of an output.
fn cotangent(shape: &[usize]) -> Tensor {
    operand(49, shape)
}

/// Indices below `end`.
fn indices(n: usize, end: usize) -> Tensor<i64> {
    Tensor::from_vec(data::integers(2, n, end).into_iter().map(|i| i as i64).collect(), [n])
}

impl Work {
    fn new(flops: f64, bytes: f64, start: impl FnOnce() -> Run + 'static) -> Option<Work> {
        Some(Work { flops, bytes, start: Box::new(start) })
    }

    /// The work of one pass through `f`, on leaves of these shapes.
    fn pass(
        pass: Pass,
        (flops, bytes): (f64, f64),
        shapes: Vec<Vec<usize>>,
        f: impl Fn(&[Var]) -> Var + 'static,
    ) -> Option<Work> {
        Work::new(flops, bytes, move || {
            let values = shapes.iter().enumerate().map(|(i, shape)| operand(i, shape));
            if pass == Pass::Forward {
                let inputs: Vec<Var> = values.map(Var::constant).collect();
                return timed(move || f(&inputs), |y| digest(y.value()));
            }
            let inputs: Vec<Var> = values.map(Var::leaf).collect();
            let g = cotangent(f(&inputs).shape());
            let of = inputs.clone();
            timed(move || f(&inputs).backward_with(&g), move |grads| digests(grads, &of))
        })
    }
}

/// The passes that are executed: forward, or forward and backward.
#[derive(Clone, Copy, PartialEq)]
enum Pass {
    Forward,
    Both,
}

impl Pass {
    fn named(name: &str) -> Option<Pass> {
        match name {
            "fwd" => Some(Pass::Forward),
            "fwd+bwd" => Some(Pass::Both),
            _ => None,
        }
    }

    /// One of two numbers.
    fn pick(self, forward: f64, both: f64) -> f64 {
        if self == Pass::Forward { forward } else { both }
    }
}

/// Parses words as numbers.
fn numbers<const N: usize>(words: &[&str]) -> Option<[usize; N]> {
    let numbers: Option<Vec<usize>> = words.iter().map(|w| w.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// The work of that name, if there is any.
pub fn work(name: &str) -> Option<Work> {
    let words: Vec<&str> = name.split_whitespace().collect();
    let makers = [
        gemm::work,
        rows::work,
        loss::work,
        attention::work,
        optim::work,
        train::work,
        generate::work,
        tiny::work,
        tail::work,
    ];
    makers.iter().find_map(|make| make(&words))
}
