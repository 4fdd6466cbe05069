//! Einstein summation: the composition that tensors use, of differentiable operations.

use crate::graph::Var;
#[cfg(doc)]
use retrograd_tensor::Tensor;
use retrograd_tensor::ops::einsum::{EinsumOperand, einsum};
use retrograd_tensor::{Real, Shape};

impl<T: Real> EinsumOperand for Var<T> {
    fn shape(&self) -> Shape {
        *Var::shape(self)
    }
    #[track_caller]
    fn permute(&self, axes: &[isize]) -> Self {
        Var::permute(self, axes)
    }
    #[track_caller]
    fn reshape(&self, dims: &[usize]) -> Self {
        Var::reshape(self, dims)
    }
    #[track_caller]
    fn sum_axis(&self, axis: isize) -> Self {
        self.sum(axis)
    }
    #[track_caller]
    fn diagonal(&self, a: isize, b: isize) -> Self {
        Var::diagonal(self, a, b, 0)
    }
    #[track_caller]
    fn matmul(&self, other: &Self) -> Self {
        Var::matmul(self, other)
    }
    #[track_caller]
    fn mul(&self, other: &Self) -> Self {
        Var::mul(self, other)
    }
}

/// # Einstein summation
impl<T: Real> Var<T> {
    /// As [`Tensor::einsum`]; the gradient of an operand is the summation of `g` and the other operands.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let a = Var::leaf(Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]));
    /// let trace = Var::einsum("ii->", &[&a]);
    /// assert_eq!(trace.backward().get(&a).unwrap().to_vec(), [1.0, 0.0, 0.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn einsum(formula: &str, operands: &[&Var<T>]) -> Var<T> {
        einsum(formula, operands)
    }
}
