//! Matrix products.

use crate::node::{Backward, Cx, Grads};
use crate::var::Var;
use retrograd_tensor::error::OrPanic;
use retrograd_tensor::ops::matmul::matmul_shape;
use retrograd_tensor::{Real, Tensor};

/// Each operand is saved only if the other one needs a gradient.
#[derive(Debug)]
struct Matmul<T: Real> {
    a: Option<Tensor<T>>,
    b: Option<Tensor<T>>,
    /// Whether the columns of `b` lie in order, as those of a transposed weight do. Its
    /// gradient is then made likewise, so that the weight's lies in order, too.
    b_by_columns: bool,
}

impl<T: Real> Backward<T> for Matmul<T> {
    fn name(&self) -> &'static str {
        "matmul"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        // Transposes are views, and batches that were broadcast are summed by the engine; but
        // for a single matrix on the right that sum is part of one tall product.
        let of_right = |a: &Tensor<T>| {
            let a = cx.input(0, a);
            match cx.input_shape(1).rank() {
                2 if self.b_by_columns => of_right_transposed(&a, g).t(),
                2 => rows(&a).t().matmul(&rows(g)),
                _ => a.t().matmul(g),
            }
        };
        vec![self.b.as_ref().map(|b| g.matmul(&cx.input(1, b).t())), self.a.as_ref().map(of_right)]
    }
}

/// The gradient of `Wᵀ` in `x · W`, for the cotangent `g` of the product: for a matrix `W` whose
/// transpose lies in order.
pub(super) fn of_right_transposed<T: Real>(x: &Var<T>, g: &Var<T>) -> Var<T> {
    rows(g).t().matmul(&rows(x))
}

/// The leading axes as one.
fn rows<T: Real>(x: &Var<T>) -> Var<T> {
    let [leading @ .., last] = &x.shape()[..] else { unreachable!("an axis at least") };
    if leading.len() == 1 { x.clone() } else { x.reshape([leading.iter().product(), *last]) }
}

impl<T: Real> Var<T> {
    /// Matrix product over the last two axes, leading axes broadcast: `[.., m, k] · [.., k, n]`
    /// is `[.., m, n]`. An operand of rank 1 is a row on the left and a column on the right,
    /// and its axis is dropped from the result.
    ///
    /// # Panics
    /// If the inner sizes differ, batches do not broadcast, or an operand has rank 0.
    #[track_caller]
    pub fn matmul(&self, other: &Var<T>) -> Var<T> {
        let shape = matmul_shape(self.shape(), other.shape()).or_panic();
        if self.rank() == 1 {
            return self.unsqueeze(0).matmul(other).reshape(shape);
        }
        if other.rank() == 1 {
            return self.matmul(&other.unsqueeze(1)).reshape(shape);
        }
        let value = self.value().matmul(other.value());
        Var::from_op(value, &[self, other], |needs| Matmul {
            a: needs.at(1).then(|| self.value().clone()),
            b: needs.at(0).then(|| other.value().clone()),
            b_by_columns: other.value().t().is_contiguous(),
        })
    }

    /// Inner product of two vectors, a scalar.
    #[track_caller]
    pub fn dot(&self, other: &Var<T>) -> Var<T> {
        assert!(
            self.rank() == 1 && self.shape() == other.shape(),
            "dot: needs two vectors of equal length, got {:?} and {:?}",
            self.shape(),
            other.shape()
        );
        self.mul(other).sum(..)
    }

    /// Outer product of two vectors: `[n]` and `[m]` give `[n, m]`.
    #[track_caller]
    pub fn outer(&self, other: &Var<T>) -> Var<T> {
        assert!(
            self.rank() == 1 && other.rank() == 1,
            "outer: needs two vectors, got {:?} and {:?}",
            self.shape(),
            other.shape()
        );
        self.unsqueeze(1).mul(&other.unsqueeze(0))
    }
}
