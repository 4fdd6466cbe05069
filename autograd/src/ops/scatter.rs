//! Replacement of elements. Elements that are replaced have a gradient of 0. The gradient of the new elements is read where
//! it was written.

use crate::graph::{Cx, InputGrads, Var};
use crate::observe::saved;
use crate::op::Op;
use crate::ops::binary::VarOrNumber;
use crate::record::{Fused, Slot};
use retrograd_tensor::error::OrPanic;
use retrograd_tensor::indexing::Indices;
use retrograd_tensor::layout::Layout;
use retrograd_tensor::{Integer, Real, ScatterReduce, Tensor};
use std::collections::HashMap;

static SCATTER: Op =
    Op::new("scatter", &["x", "z"]).formula("y = x, y[i] = z", "dx = g, 0 at i\ndz = g[i]");
static SCATTER_PROD: Op = Op::new("scatter_prod", &["x", "z"])
    .formula("y = x, y[i] ·= z", "dx = g · the factors\ndz = g[i] · the other factors");
static SCATTER_AMAX: Op = Op::new("scatter_amax", &["x", "z"])
    .formula("y = x, y[i] = max(y[i], z)", "dx, dz = g at the first of the largest");
static SCATTER_AMIN: Op = Op::new("scatter_amin", &["x", "z"])
    .formula("y = x, y[i] = min(y[i], z)", "dx, dz = g at the first of the smallest");
static AS_STRIDED_SCATTER: Op = Op::new("as_strided_scatter", &["x", "z"])
    .formula("y = x with z at strides", "dx = g, 0 at these strides\ndz = g at these strides");

/// The node of values that replace elements: `from` has the position on the axis of the value that each
/// element of the result is, or -1.
#[track_caller]
fn selection<T: Real, I: Integer>(
    op: &'static Op,
    (value, from): (Tensor<T>, Tensor<i64>),
    axis: isize,
    index: &Tensor<I>,
    inputs: [&Var<T>; 2],
) -> Var<T> {
    Var::from_op(op, value, inputs, |[x, source]| {
        let (x, source, index) = (x.slot(), source.slot(), saved("index", index.clone()));
        let replaced = saved("replaced", from.ge(0));
        // The position on the axis of each value.
        let mut dims = vec![1; index.rank()];
        let axis_of_values = index.shape().axis(op.name, axis).or_panic();
        dims[axis_of_values] = index.shape()[axis_of_values];
        let own = Tensor::<i64>::indices(dims[axis_of_values]).reshape(dims);
        let unused = saved("not used", from.gather(axis, &index).ne(own));
        move |_, g| {
            InputGrads::of(&x, || g.masked_fill(&replaced, T::ZERO))
                .and(&source, || g.gather(axis, &index).masked_fill(&unused, T::ZERO))
        }
    })
}

struct ScatterProd<T: Real, I: Integer> {
    x: Slot<T>,
    source: Slot<T>,
    axis: isize,
    index: Tensor<I>,
}

impl<T: Real, I: Integer> Fused<T> for ScatterProd<T, I> {
    fn vjp(&self, [g]: [&Tensor<T>; 1]) -> InputGrads<T> {
        let (x, source) = (self.x.value(), self.source.value());
        let (of_x, of_source) = x.scatter_prod_of_others(self.axis, &self.index, source);
        InputGrads::of(&self.x, || g.mul(&of_x))
            .and(&self.source, || g.gather(self.axis, &self.index).mul(&of_source))
    }

    /// One factor of each product after the other.
    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 1] {
        let (mut y, source) = (cx.input(&self.x), cx.input(&self.source));
        let axis = y.shape().axis("scatter_reduce", self.axis).or_panic();
        let mut seen = HashMap::new();
        let number = Tensor::<i64>::from_fn(*self.index.shape(), |at| {
            let mut place: Vec<i128> = at.iter().map(|&i| i as i128).collect();
            place[axis] = self.index.at(at).to_i128();
            let count = seen.entry(place).or_insert(0);
            *count += 1;
            *count - 1
        });
        for n in 0..seen.into_values().max().unwrap_or(0) {
            let others = number.ne(n);
            let zeros = Var::constant(y.value().zeros_like());
            let factor = source.masked_fill(&others, T::ZERO);
            let factor = zeros.scatter_add(self.axis, &self.index, &factor);
            let ones = others.where_(&Tensor::scalar(T::ZERO), &Tensor::scalar(T::ONE));
            let hits = y.value().zeros_like().scatter_add(self.axis, &self.index, &ones);
            y = y.mul(&factor.masked_fill(&hits.eq(T::ZERO), T::ONE));
        }
        [y]
    }
}

/// # Assignment
///
/// Copies in which some elements are replaced.
impl<T: Real> Var<T> {
    /// As [`Tensor::slice_assign`]; `source` is a variable that is broadcast, or a number. The gradient of
    /// `self` is 0 at the indices, else `g`, and the gradient of `source` is `g` at the indices.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]));
    /// let row = Var::leaf(Tensor::from([7.0f32, 8.0]));
    /// let y = x.slice_assign((.., 1..), &row);
    /// assert_eq!(y.value().to_vec(), [1.0, 7.0, 8.0, 4.0, 7.0, 8.0]);
    /// let grads = y.sum(..).backward();
    /// assert_eq!(grads.get(&x).unwrap().to_vec(), [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
    /// assert_eq!(grads.get(&row).unwrap().to_vec(), [2.0, 2.0]);
    /// ```
    #[doc(alias = "slice_scatter")]
    #[doc(alias = "index_put")]
    #[track_caller]
    pub fn slice_assign(&self, indices: impl Indices, source: impl VarOrNumber<T>) -> Var<T> {
        let whole = Layout::contiguous(*self.shape());
        let layout = whole.index("slice_assign", &indices.to_indices()).or_panic();
        self.as_strided_scatter(layout, &source.into_var())
    }

    /// As [`Tensor::select_scatter`]; `source` is a variable that is broadcast, or a number. The gradients
    /// are as for [`Var::slice_assign`].
    #[track_caller]
    pub fn select_scatter(&self, axis: isize, index: usize, source: impl VarOrNumber<T>) -> Var<T> {
        let whole = Layout::contiguous(*self.shape());
        let layout = whole.select("select_scatter", axis, index).or_panic();
        self.as_strided_scatter(layout, &source.into_var())
    }

    /// As [`Tensor::as_strided_scatter`]; the gradients are as for [`Var::slice_assign`].
    #[track_caller]
    pub fn as_strided_scatter(&self, layout: Layout, source: &Var<T>) -> Var<T> {
        let value = self.value().as_strided_scatter(&layout, source.value());
        Var::from_op(&AS_STRIDED_SCATTER, value, [self, source], |[x, source]| {
            let (x, source) = (x.slot(), source.slot());
            move |_, g| {
                InputGrads::of(&x, || g.as_strided_scatter(layout, &Var::scalar(T::ZERO)))
                    .and(&source, || g.as_strided(layout))
            }
        })
    }

    /// As [`Tensor::scatter`]; `source` is a variable of the shape of `index`, or a number. Of several
    /// values with the same index the last one is kept, and only that has a gradient.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([1.0f32, 2.0, 3.0]));
    /// let source = Var::leaf(Tensor::from([7.0f32, 8.0, 9.0]));
    /// let y = x.scatter(0, &Tensor::from([2i64, 0, 2]), &source);
    /// assert_eq!(y.value().to_vec(), [8.0, 2.0, 9.0]);
    /// let grads = y.sum(..).backward();
    /// assert_eq!(grads.get(&x).unwrap().to_vec(), [0.0, 1.0, 0.0]);
    /// assert_eq!(grads.get(&source).unwrap().to_vec(), [0.0, 1.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn scatter<I: Integer>(
        &self,
        axis: isize,
        index: &Tensor<I>,
        source: impl VarOrNumber<T>,
    ) -> Var<T> {
        let source = source.into_var();
        // A number is repeated.
        let source = if source.rank() == 0 { source.broadcast_to(*index.shape()) } else { source };
        let x = self.value();
        let found = x.scatter_selected("scatter", axis, index, source.value(), |_, _| true);
        selection(&SCATTER, found, axis, index, [self, &source])
    }

    /// As [`Tensor::scatter_reduce`]. The gradient of a maximum or minimum goes to the first of equals,
    /// where the element of `self` comes first.
    #[track_caller]
    pub fn scatter_reduce<I: Integer>(
        &self,
        axis: isize,
        index: &Tensor<I>,
        source: &Var<T>,
        how: ScatterReduce,
    ) -> Var<T> {
        let (x, values) = (self.value(), source.value());
        match how {
            ScatterReduce::Sum => self.scatter_add(axis, index, source),
            ScatterReduce::Prod => {
                let value = x.scatter_reduce(axis, index, values, how);
                let index = index.clone();
                let [y] = Var::from_fused(&SCATTER_PROD, [value], [self, source], |[x, source]| {
                    ScatterProd {
                        x: x.save(),
                        source: source.save(),
                        axis,
                        index: saved("index", index),
                    }
                });
                y
            }
            ScatterReduce::Amax | ScatterReduce::Amin => {
                let largest = how == ScatterReduce::Amax;
                let found = x.scatter_extremum(axis, index, values, largest);
                let op = if largest { &SCATTER_AMAX } else { &SCATTER_AMIN };
                selection(op, found, axis, index, [self, source])
            }
        }
    }
}
