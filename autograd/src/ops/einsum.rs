//! Einstein summation: the composition that tensors use, of differentiable operations.

use crate::graph::Var;
use retrograd_tensor::ops::einsum::{Operand, einsum};
use retrograd_tensor::{Real, Shape};

impl<T: Real> Operand for Var<T> {
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
}

/// # Einstein summation
impl<T: Real> Var<T> {
    /// Einstein summation, see [`Tensor::einsum`](retrograd_tensor::Tensor::einsum).
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let a = Var::leaf(Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]));
    /// assert_eq!(Var::einsum("ii->", &[&a]).item(), 5.0); // the trace
    /// let squares = Var::einsum("ij,ij->i", &[&a, &a]);
    /// assert_eq!(squares.value().to_vec(), [5.0, 25.0]);
    /// ```
    #[track_caller]
    pub fn einsum(formula: &str, operands: &[&Var<T>]) -> Var<T> {
        einsum(formula, operands)
    }
}
