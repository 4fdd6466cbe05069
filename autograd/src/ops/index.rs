//! Reading and adding by index. Each reading operation is the adjoint of an adding one.

use crate::graph::{InputGrads, Var};
use crate::observe::saved;
use crate::op::Op;
use retrograd_tensor::error::OrPanic;
use retrograd_tensor::{Integer, Real, Shape, Tensor};
use std::sync::Arc;

static GATHER: Op = Op::new("gather", &["x"]).formula("y = x[i], along an axis", "dx[i] += g");
static INDEX_SELECT: Op =
    Op::new("index_select", &["x"]).formula("y = x[i], whole slices", "dx[i] += g");
static INDEX_ADD: Op =
    Op::new("index_add", &["x", "z"]).formula("y = x, y[i] += z", "dx = g\ndz = g[i]");
static SCATTER_ADD: Op =
    Op::new("scatter_add", &["x", "z"]).formula("y = x, y[i] += z", "dx = g\ndz = g[i]");
static EMBEDDING: Op = Op::new("embedding", &["w"])
    .formula("y = w[i], a row for each index", "dw[i] = Σ g, over the places of i");
static EMBEDDING_ADJOINT: Op =
    Op::new("embedding_adjoint", &["x"]).formula("y[i] = Σ x, over the places of i", "dx = g[i]");

#[track_caller]
fn zeros<T: Real>(shape: &Shape) -> Var<T> {
    Var::constant(Tensor::zeros(shape))
}

/// A table of zeros to whose rows at the indices the rows of `g` are added; its adjoint is embedding.
#[track_caller]
fn embedding_adjoint<T: Real, I: Integer>(g: &Var<T>, index: &Tensor<I>, table: &Shape) -> Var<T> {
    let value = Tensor::embedding_vjp(g.value(), index, table[0]);
    Var::from_op(&EMBEDDING_ADJOINT, value, [g], |[x]| {
        let (x, index) = (x.slot(), saved("index", index.clone()));
        move |_, g| InputGrads::of(&x, || g.embedding(&index))
    })
}

/// # Indexing
impl<T: Real> Var<T> {
    /// As [`Tensor::gather`]; the gradient is [`Tensor::scatter_add`] of `g` to zeros.
    #[track_caller]
    pub fn gather<I: Integer>(&self, axis: isize, index: &Tensor<I>) -> Var<T> {
        let value = self.value().gather(axis, index);
        Var::from_op(&GATHER, value, [self], |[x]| {
            let (x, index) = (x.slot(), saved("index", index.clone()));
            move |cx, g| InputGrads::of(&x, || zeros(cx.shape(&x)).scatter_add(axis, &index, g))
        })
    }

    /// As [`Tensor::scatter_add`]; the gradients are `g` and [`Tensor::gather`] of `g`.
    #[track_caller]
    pub fn scatter_add<I: Integer>(
        &self,
        axis: isize,
        index: &Tensor<I>,
        source: &Var<T>,
    ) -> Var<T> {
        let value = self.value().scatter_add(axis, index, source.value());
        Var::from_op(&SCATTER_ADD, value, [self, source], |[x, source]| {
            let (x, source, index) = (x.slot(), source.slot(), saved("index", index.clone()));
            move |_, g| InputGrads::of(&x, || g.clone()).and(&source, || g.gather(axis, &index))
        })
    }

    /// As [`Tensor::index_select`]; the gradient is [`Tensor::index_add`] of `g` to zeros.
    #[track_caller]
    pub fn index_select<I: Integer>(&self, axis: isize, index: &Tensor<I>) -> Var<T> {
        let value = self.value().index_select(axis, index);
        Var::from_op(&INDEX_SELECT, value, [self], |[x]| {
            let (x, index) = (x.slot(), saved("index", index.clone()));
            move |cx, g| InputGrads::of(&x, || zeros(cx.shape(&x)).index_add(axis, &index, g))
        })
    }

    /// As [`Tensor::index_add`]; the gradients are `g` and [`Tensor::index_select`] of `g`.
    #[track_caller]
    pub fn index_add<I: Integer>(&self, axis: isize, index: &Tensor<I>, source: &Var<T>) -> Var<T> {
        let value = self.value().index_add(axis, index, source.value());
        Var::from_op(&INDEX_ADD, value, [self, source], |[x, source]| {
            let (x, source, index) = (x.slot(), source.slot(), saved("index", index.clone()));
            move |_, g| {
                InputGrads::of(&x, || g.clone()).and(&source, || g.index_select(axis, &index))
            }
        })
    }

    /// As [`Tensor::embedding`]; the gradient of a row is the sum of `g` over its indices,
    /// [`Tensor::embedding_vjp`].
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let table = Var::leaf(Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]));
    /// let y = table.embedding(&Tensor::from([1i64, 0, 1])); // [3, 2]
    /// assert_eq!(y.value().to_vec(), [3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
    /// assert_eq!(y.sum(..).backward().get(&table).unwrap().to_vec(), [1.0, 1.0, 2.0, 2.0]);
    /// ```
    #[track_caller]
    pub fn embedding<I: Integer>(&self, index: &Tensor<I>) -> Var<T> {
        let value = self.value().embedding(index);
        let (rows, at) = (self.size(0), index.clone());
        let row = move |place: &[usize]| at.at(place).index_in(rows).unwrap_or(rows);
        Var::from_op(EMBEDDING.with("row", Arc::new(row)), value, [self], |[table]| {
            let (table, index) = (table.slot(), saved("index", index.clone()));
            move |cx, g| InputGrads::of(&table, || embedding_adjoint(g, &index, cx.shape(&table)))
        })
    }

    /// As [`Tensor::masked_select`]; the gradient is `g` where the mask is true, else 0.
    #[track_caller]
    pub fn masked_select(&self, mask: &Tensor<bool>) -> Var<T> {
        let shape = Shape::broadcast("masked_select", self.shape(), mask.shape()).or_panic();
        let kept = mask.broadcast_to(shape).flatten().nonzero().flatten();
        self.broadcast_to(shape).flatten().index_select(0, &kept)
    }

    /// As [`Tensor::sort`]; the gradient goes back to the places that the indices name.
    #[track_caller]
    pub fn sort(&self, axis: isize, descending: bool) -> (Var<T>, Tensor<i64>) {
        let index = self.value().argsort(axis, descending);
        (self.gather(axis, &index), index)
    }

    /// As [`Tensor::topk`]; the gradient is `g` at the selected elements, else 0.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([2.0f32, 9.0, 5.0]));
    /// let (y, _) = x.topk(0, 2, true);
    /// assert_eq!(y.value().to_vec(), [9.0, 5.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 1.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn topk(&self, axis: isize, k: usize, largest: bool) -> (Var<T>, Tensor<i64>) {
        let (_, index) = self.value().topk(axis, k, largest);
        (self.gather(axis, &index), index)
    }
}
