//! The work that is timed, by name, for the benchmarks and for the comparison with other libraries.
//!
//! A name consists of an operation, the pass (`fwd`, or `fwd+bwd` from a given cotangent to the
//! gradients of all inputs), and sizes.

mod attention;
#[path = "../compare/data.rs"]
pub mod data;
mod derivatives;
mod gemm;
mod generate;
mod loss;
mod optim;
mod recurrence;
mod rows;
mod score_rules;
mod tail;
mod tiny;
mod train;

use retrograd::prelude::{Gradients, Tensor, Var};
use retrograd::tensor::Real;
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

fn digest<T: Real>(x: &Tensor<T>) -> Vec<f64> {
    let numbers: Vec<f32> = x.to_vec().into_iter().map(|x| x.to_f64() as f32).collect();
    data::digest(&numbers).to_vec()
}

fn digests<T: Real>(grads: &Gradients<T>, of: &[Var<T>]) -> Vec<f64> {
    of.iter().flat_map(|x| digest(grads.get(x).expect("a gradient of every leaf"))).collect()
}

/// The `i`-th operand of a shape, the same in every program.
fn operand<T: Real>(i: usize, shape: &[usize]) -> Tensor<T> {
    let numbers = data::numbers(i as u32 + 1, shape.iter().product());
    Tensor::from_vec(numbers.into_iter().map(|x| T::from_f64(x.into())).collect(), shape)
}

/// All operands, which are leaves if there is a backward pass.
fn operands<T: Real>(pass: Pass, shapes: &[Vec<usize>]) -> Vec<Var<T>> {
    let var = if pass == Pass::Both { Var::leaf } else { Var::constant };
    shapes.iter().enumerate().map(|(i, shape)| var(operand(i, shape))).collect()
}

/// The cotangent of an output.
fn cotangent<T: Real>(shape: &[usize]) -> Tensor<T> {
    operand(49, shape)
}

/// One pass through `f`, on operands of these shapes.
fn one_pass<T: Real>(
    pass: Pass,
    shapes: &[Vec<usize>],
    f: impl Fn(&[Var<T>]) -> Var<T> + 'static,
) -> Run {
    let x = operands(pass, shapes);
    if pass == Pass::Forward {
        return timed(move || f(&x), |y| digest(y.value()));
    }
    let (g, of) = (cotangent(f(&x).shape()), x.clone());
    timed(move || f(&x).backward_with(&g), move |grads| digests(grads, &of))
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
        Work::new(flops, bytes, move || one_pass(pass, &shapes, f))
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
        recurrence::work,
        score_rules::work,
        optim::work,
        train::work,
        derivatives::work,
        generate::work,
        tiny::work,
        tail::work,
    ];
    makers.iter().find_map(|make| make(&words))
}
