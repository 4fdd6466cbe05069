//! The work that is timed, by name: the benchmarks, and the comparison with other libraries, ask
//! for the same things by the same names.
//!
//! A name is an operation, the pass (`fwd`, or `fwd+bwd` from a given gradient of the output to
//! those of all inputs), and sizes.

mod attention;
mod gemm;
mod loss;
mod optim;
mod rows;
mod tiny;
mod train;

use retrograd::prelude::{Rng, Tensor, Var};
use std::hint::black_box;

/// Does the work once; a training step answers its loss.
pub type Run = Box<dyn FnMut() -> Option<f64>>;

/// Something to be timed.
pub struct Work {
    /// Multiplications and additions that cannot be avoided, 0 where moving data is what counts.
    pub flops: f64,
    /// Bytes of inputs and outputs, each moved once; 0 where only arithmetic counts.
    pub bytes: f64,
    /// Makes the operands.
    pub start: Box<dyn FnOnce() -> Run>,
}

/// Does `f`, whose result does not matter but is made.
fn timed<R>(mut f: impl FnMut() -> R + 'static) -> Run {
    Box::new(move || {
        black_box(f());
        None
    })
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
            let mut rng = Rng::new(1);
            let mut random = |shape: &[usize]| Tensor::randn(shape, &mut rng);
            let values: Vec<Tensor> = shapes.iter().map(|s| random(s)).collect();
            if pass == Pass::Forward {
                let inputs: Vec<Var> = values.into_iter().map(Var::constant).collect();
                return timed(move || f(&inputs));
            }
            let inputs: Vec<Var> = values.into_iter().map(Var::leaf).collect();
            let g = random(f(&inputs).shape());
            timed(move || f(&inputs).backward_with(&g))
        })
    }
}

/// Which way an operation is run.
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

/// The numbers that words stand for.
fn numbers<const N: usize>(words: &[&str]) -> Option<[usize; N]> {
    let numbers: Option<Vec<usize>> = words.iter().map(|w| w.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// The work of that name, if there is any.
pub fn work(name: &str) -> Option<Work> {
    let words: Vec<&str> = name.split_whitespace().collect();
    let makers =
        [gemm::work, rows::work, loss::work, attention::work, optim::work, train::work, tiny::work];
    makers.iter().find_map(|make| make(&words))
}
