//! Attention against its formulas: loops over pairs as in the papers, which share no code with the
//! library.

use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::{Incremental, Spec};
use retrograd_tensor::Tensor;

mod heads;
mod masks;
mod normalizers;
mod relative;
mod rotary;
mod training;

fn causal<M: Incremental<f64>>(m: &M, x: &Var<f64>) -> Tensor<f64> {
    m.forward(x, Spec::new().causal(), &mut eval()).into_value()
}

/// Asserts that two values agree, and prints the difference.
#[track_caller]
fn same(what: &str, a: &Tensor<f64>, b: &Tensor<f64>) {
    close(what, 1e-12, a, b);
}
