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
}

impl<T: Real> Backward<T> for Matmul<T> {
    fn name(&self) -> &'static str {
        "matmul"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        // Transposes are views, and batches that were broadcast are summed by the engine.
        vec![
            self.b.as_ref().map(|b| g.matmul(&cx.input(1, b).t())),
            self.a.as_ref().map(|a| cx.input(0, a).t().matmul(g)),
        ]
    }
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
        if self.rank() > 2 && other.rank() == 2 && self.value().numel() > 0 {
            // The leading axes are rows: one tall product, forward and backward.
            let rows = self.value().numel() / self.size(-1);
            return self.reshape([rows, self.size(-1)]).matmul(other).reshape(shape);
        }
        let value = self.value().matmul(other.value());
        Var::from_op(value, &[self, other], |needs| Matmul {
            a: needs.at(1).then(|| self.value().clone()),
            b: needs.at(0).then(|| other.value().clone()),
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
