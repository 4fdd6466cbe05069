//! The operations of this crate, compiled for `f32` and `f64`.
//!
//! Rust compiles a generic function in the crate that first uses it with given types, and crates
//! above link that copy if the function is marked `#[inline(never)]`. The [drivers](crate::drive)
//! and the entries into the instruction sets ([`Real::dispatch`]) are marked so. This file uses every
//! operation with both element types, so their kernels are compiled here and programs link them. An
//! operation that a program defines itself is compiled in that program, and only that one.
//!
//! Nothing here is ever called. The root is `#[inline(never)]` too: a small function without calls
//! would be left to the crates above. An operation that is not named works all the same, but each
//! program that uses it compiles its kernels again; `.ci/kernels` finds these.

use crate::drive::attention::{self, Cotangents, Tiled};
use crate::drive::squares;
use crate::element::{Element, Integer};
use crate::ops::loss::CrossEntropy;
use crate::ops::pointwise::Pointwise;
use crate::ops::{activation, unary};
use crate::random::{Key, Rng};
use crate::shape::AxisSet;
use crate::simd::Real;
use crate::tensor::Tensor;
use std::hint::black_box;

/// All operations, of `f32` and `f64`, and what all types of elements have.
#[doc(hidden)]
#[inline(never)]
pub fn operations() {
    operations_on::<f32>();
    operations_on::<f64>();
    black_box(elements_of_any_type::<bool> as fn(_));
    black_box(elements_of_any_type::<i64> as fn(_));
    black_box(elements_of_any_type::<u32> as fn(_));
}

/// The compiler cannot tell that nobody calls what is given to `black_box`, so it compiles it.
fn operations_on<T: Real>() {
    activation::compiled::<T>();
    unary::compiled::<T>();
    black_box(arithmetic::<T> as fn(_));
    black_box(rows::<T> as fn(_, _));
    black_box(matrices::<T> as fn(_));
    black_box(reductions::<T> as fn(_, _));
    black_box(elements::<T> as fn(_, _));
    black_box(random::<T> as fn(_, _));
    black_box(indices::<T, i64> as fn(_, _));
    black_box(indices::<T, u32> as fn(_, _));
    black_box(attention_forward::<T> as fn(_, _) -> _);
    black_box(attention_backward::<T> as fn(_, _, _, _) -> _);
}

/// Compiles a function of one number, forward and backward.
pub(crate) fn pointwise<T: Real, P: Pointwise<T>>() {
    black_box(Tensor::<T>::map::<P> as fn(_, _) -> _);
    black_box(Tensor::<T>::map_vjp::<P> as fn(_, _, _) -> _);
}

/// Compiles a function of one number that can follow a linear layer.
pub(crate) fn activation<T: Real, P: Pointwise<T>>() {
    pointwise::<T, P>();
    black_box(Tensor::<T>::linear_map::<P> as fn(_, _, _, _) -> _);
}

fn arithmetic<T: Real>(x: &Tensor<T>) {
    let _ = [x.add(x), x.sub(x), x.mul(x), x.div(x), x.pow(x), x.maximum(x), x.minimum(x)];
    let _ = [x.eq(x), x.ne(x), x.lt(x), x.le(x), x.gt(x), x.ge(x)];
    x.clone().add_assign(x);
}

fn rows<T: Real>(x: &Tensor<T>, keep: &Tensor<bool>) {
    let _ = [x.softmax(-1), x.masked_softmax(keep, -1), x.log_softmax(-1), x.cumsum(-1)];
    let _ = [Tensor::softmax_vjp(x, x, -1), Tensor::log_softmax_vjp(x, x, -1)];
    let _ = [x.layer_norm(Some(x), Some(x), 0.0), x.rms_norm(Some(x), 0.0)];
    let _ = (x.layer_norm_vjps(Some(x), 0.0, x), x.rms_norm_vjps(Some(x), 0.0, x));
    let _ = (x.sort(-1, false), x.topk(1, -1, true));
}

fn matrices<T: Real>(x: &Tensor<T>) {
    let _ = [x.matmul(x), x.matmul_skipping_zeros(x), x.dot(x), x.outer(x)];
    let _ = [x.linear(x, Some(x)), x.linear_add(x, Some(x), x), x.matmul_times(x, x)];
    let _ = Tensor::einsum("ij->ji", &[x]);
}

fn reductions<T: Real>(x: &Tensor<T>, axes: AxisSet) {
    let _ = [x.sum(axes), x.mean(axes), x.prod(axes), x.prod_of_others(axes)];
    let _ = [x.max(axes), x.min(axes), x.var(axes, 1), x.std(axes, 1)];
    let _ = [x.logsumexp(axes), x.norm(axes), x.sum_to(*x.shape())];
    let _ = (x.argmax(axes), x.argmin(axes), squares::square_sums(&[x]));
}

fn elements<T: Real>(x: &Tensor<T>, keep: &Tensor<bool>) {
    elements_of_any_type(x);
    let _ = [keep.where_(x, x), x.masked_fill(keep, T::ZERO), x.tril(0), x.triu(0)];
    let _ = [Tensor::cat(&[x], 0), Tensor::stack(&[x], 0), x.pad(0, 1, 1, T::ZERO)];
    let _ = [x.as_strided(x.layout()), x.as_strided_adjoint(*x.shape(), x.layout())];
    x.clone().make_mut();
}

fn elements_of_any_type<E: Element>(x: &Tensor<E>) {
    let _ = [x.contiguous(), Tensor::cat(&[x], 0)];
    let _ = (x.to_vec(), format!("{x}{x:?}"));
}

fn random<T: Real>(x: &Tensor<T>, key: Key) {
    let (shape, rng) = (*x.shape(), &mut Rng::new(0));
    let _ = [Tensor::rand(shape, rng), Tensor::randn(shape, rng), x.dropout(0.5, key)];
    let _ = Tensor::<T>::uniform(shape, 0.0, 1.0, rng);
}

fn indices<T: Real, I: Integer>(x: &Tensor<T>, i: &Tensor<I>) {
    let _ = [x.gather(0, i), x.index_select(0, i), x.embedding(i)];
    let _ = [x.scatter_add(0, i, x), x.index_add(0, i, x), Tensor::embedding_vjp(x, i, 1)];
    let loss = CrossEntropy::default();
    let (y, sums) = x.cross_entropy_and_log_sums(i, loss);
    let _ = [y, x.cross_entropy_vjp_from(&sums, i, loss, T::ONE)];
    let _ = x.linear_cross_entropy_with_gradients(x, i, loss);
}

type Qkv<'a, T> = (&'a Tensor<T>, &'a Tensor<T>, &'a Tensor<T>);

fn attention_forward<T: Real>((q, k, v): Qkv<'_, T>, how: &Tiled<'_, T>) -> impl Sized {
    attention::forward(q, k, v, how)
}

fn attention_backward<T: Real>(
    qkv: Qkv<'_, T>,
    saved: (&Tensor<T>, &Tensor<T>),
    g: Cotangents<'_, T>,
    how: &Tiled<'_, T>,
) -> impl Sized {
    (attention::backward(qkv, saved, g, how), attention::backward_packed(qkv, saved, g, how))
}
