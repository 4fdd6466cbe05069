//! Reading and adding by index. Each reading operation is the adjoint of an adding one.

use crate::node::{Backward, Cx, Grads};
use crate::var::Var;
use retrograd_tensor::{Integer, Real, Shape, Tensor};

#[derive(Debug)]
struct Gather<I: Integer> {
    axis: isize,
    index: Tensor<I>,
}

impl<T: Real, I: Integer> Backward<T> for Gather<I> {
    fn name(&self) -> &'static str {
        "gather"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        let zeros = Var::constant(Tensor::zeros(cx.input_shape(0)));
        vec![Some(zeros.scatter_add(self.axis, &self.index, g))]
    }
}

#[derive(Debug)]
struct ScatterAdd<I: Integer> {
    axis: isize,
    index: Tensor<I>,
}

impl<T: Real, I: Integer> Backward<T> for ScatterAdd<I> {
    fn name(&self) -> &'static str {
        "scatter_add"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![Some(g.clone()), cx.needs(1).then(|| g.gather(self.axis, &self.index))]
    }
}

#[derive(Debug)]
struct IndexSelect<I: Integer> {
    axis: isize,
    index: Tensor<I>,
}

impl<T: Real, I: Integer> Backward<T> for IndexSelect<I> {
    fn name(&self) -> &'static str {
        "index_select"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        let zeros = Var::constant(Tensor::zeros(cx.input_shape(0)));
        vec![Some(zeros.index_add(self.axis, &self.index, g))]
    }
}

#[derive(Debug)]
struct IndexAdd<I: Integer> {
    axis: isize,
    index: Tensor<I>,
}

impl<T: Real, I: Integer> Backward<T> for IndexAdd<I> {
    fn name(&self) -> &'static str {
        "index_add"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![Some(g.clone()), cx.needs(1).then(|| g.index_select(self.axis, &self.index))]
    }
}

#[derive(Debug)]
struct Embedding<I: Integer> {
    index: Tensor<I>,
}

impl<T: Real, I: Integer> Backward<T> for Embedding<I> {
    fn name(&self) -> &'static str {
        "embedding"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![Some(embedding_adjoint(g, &self.index, *cx.input_shape(0)))]
    }
}

/// Adds the rows of `g` up at their indices; its adjoint is embedding again.
fn embedding_adjoint<T: Real, I: Integer>(g: &Var<T>, index: &Tensor<I>, table: Shape) -> Var<T> {
    let value = Tensor::embedding_vjp(g.value(), index, table[0]);
    Var::from_op(value, &[g], |_| EmbeddingAdjoint { index: index.clone() })
}

#[derive(Debug)]
struct EmbeddingAdjoint<I: Integer> {
    index: Tensor<I>,
}

impl<T: Real, I: Integer> Backward<T> for EmbeddingAdjoint<I> {
    fn name(&self) -> &'static str {
        "embedding_adjoint"
    }
    fn backward(&self, _: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![Some(g.embedding(&self.index))]
    }
}

impl<T: Real> Var<T> {
    /// The elements at given indices along an axis, see [`Tensor::gather`].
    #[track_caller]
    pub fn gather<I: Integer>(&self, axis: isize, index: &Tensor<I>) -> Var<T> {
        let value = self.value().gather(axis, index);
        Var::from_op(value, &[self], |_| Gather { axis, index: index.clone() })
    }

    /// `self` with the elements of `source` added at given indices along an axis, see
    /// [`Tensor::scatter_add`].
    #[track_caller]
    pub fn scatter_add<I: Integer>(
        &self,
        axis: isize,
        index: &Tensor<I>,
        source: &Var<T>,
    ) -> Var<T> {
        let value = self.value().scatter_add(axis, index, source.value());
        Var::from_op(value, &[self, source], |_| ScatterAdd { axis, index: index.clone() })
    }

    /// Whole slices at given indices of an axis, see [`Tensor::index_select`].
    #[track_caller]
    pub fn index_select<I: Integer>(&self, axis: isize, index: &Tensor<I>) -> Var<T> {
        let value = self.value().index_select(axis, index);
        Var::from_op(value, &[self], |_| IndexSelect { axis, index: index.clone() })
    }

    /// `self` with the slices of `source` added at given indices of an axis, see
    /// [`Tensor::index_add`].
    #[track_caller]
    pub fn index_add<I: Integer>(&self, axis: isize, index: &Tensor<I>, source: &Var<T>) -> Var<T> {
        let value = self.value().index_add(axis, index, source.value());
        Var::from_op(value, &[self, source], |_| IndexAdd { axis, index: index.clone() })
    }

    /// The rows of a table `[V, C]` at given indices, `[.., C]`; see [`Tensor::embedding`].
    #[track_caller]
    pub fn embedding<I: Integer>(&self, index: &Tensor<I>) -> Var<T> {
        let value = self.value().embedding(index);
        Var::from_op(value, &[self], |_| Embedding { index: index.clone() })
    }

    /// The elements along an axis in order, with their indices; see [`Tensor::sort`].
    #[track_caller]
    pub fn sort(&self, axis: isize, descending: bool) -> (Var<T>, Tensor<i64>) {
        let index = self.value().argsort(axis, descending);
        (self.gather(axis, &index), index)
    }

    /// The `k` largest (or smallest) elements along an axis, with their indices; see
    /// [`Tensor::topk`].
    #[track_caller]
    pub fn topk(&self, k: usize, axis: isize, largest: bool) -> (Var<T>, Tensor<i64>) {
        let (_, index) = self.value().topk(k, axis, largest);
        (self.gather(axis, &index), index)
    }
}
