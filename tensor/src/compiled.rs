//! Instantiations of the operations of this crate for `f32` and `f64`.
//!
//! Rust compiles a generic function in the first crate that uses it with given types, and dependent
//! crates link that copy if the function is marked `#[inline(never)]`. The
//! [kernels](crate::kernels) and the entries into the instruction sets ([`Real::dispatch`]) are
//! marked so. This file uses every operation with both element types, so their kernels are compiled
//! here and programs link them. An operation that a program defines itself is compiled in that
//! program.
//!
//! Nothing here is ever called. The root is `#[inline(never)]` too: a small function without calls
//! would be compiled in the dependent crates. An operation that is missing here works as well, but
//! every program that uses it compiles its kernels again; `.ci/kernels` finds these.

use crate::element::{Element, Integer};
use crate::kernels::attention::{self, AttentionOptions, Cotangents};
use crate::kernels::recurrence::{self, Terms};
use crate::kernels::{Number, Real, square_sums};
use crate::ops::loss::CrossEntropy;
use crate::ops::pointwise::{ForEachOp, Pointwise};
use crate::ops::scatter::ScatterReduce;
use crate::ops::{activation, unary};
use crate::random::{Key, Rng};
use crate::shape::AxisSet;
use crate::tensor::Tensor;
use std::hint::black_box;

/// All operations on `f32` and `f64`, and the operations on every element type.
#[doc(hidden)]
#[inline(never)]
pub fn operations() {
    operations_on::<f32>();
    operations_on::<f64>();
    black_box(elements_of_any_type::<bool> as fn(_));
    black_box(numbers_first as fn(_, _));
    black_box(integers::<i64> as fn(_, _));
    black_box(integers::<u32> as fn(_, _));
}

/// The compiler must assume that `black_box` calls the functions, so it compiles them.
fn operations_on<T: Real>() {
    unary::for_each::<T>(&mut Alone);
    activation::for_each::<T>(&mut AfterLinear);
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
    black_box(attention::rule::gradients::<T> as fn(_, _, _, _, _, _));
    black_box(attention::relative_products::<T> as fn(_, _) -> _);
    black_box(attention::relative_values::<T> as fn(_, _) -> _);
    black_box(attention::contextual_positions::<T> as fn(_) -> _);
    black_box(recurrence::forward::<T> as fn(&Terms<'_, T>, _, _) -> _);
    black_box(recurrence::backward::<T> as fn(&Terms<'_, T>, _, _) -> _);
}

/// Compiles pointwise operations.
struct Alone;

impl<T: Real> ForEachOp<T> for Alone {
    fn op<P: Pointwise<T>>(&mut self) {
        black_box(Tensor::<T>::map::<P> as fn(_, _) -> _);
        black_box(Tensor::<T>::map_vjp::<P> as fn(_, _, _) -> _);
    }
}

/// Compiles pointwise operations, alone and fused with a linear layer.
struct AfterLinear;

impl<T: Real> ForEachOp<T> for AfterLinear {
    fn op<P: Pointwise<T>>(&mut self) {
        ForEachOp::<T>::op::<P>(&mut Alone);
        black_box(Tensor::<T>::linear_activation::<P> as fn(_, _, _, _) -> _);
    }
}

fn arithmetic<T: Real>(x: &Tensor<T>) {
    let _ = [x.add(x), x.sub(x), x.mul(x), x.div(x), x.pow(x), x.maximum(x), x.minimum(x)];
    let _ = [x.remainder(x), x.fmod(x), x + T::ONE, x - T::ONE, x * T::ONE, x / T::ONE];
    let _ = [x.eq(x), x.ne(x), x.lt(x), x.le(x), x.gt(x), x.ge(x)];
    x.clone().add_assign(x);
}

/// Numbers on the left of operators, which are defined for each type by itself.
fn numbers_first(x: &Tensor<f32>, y: &Tensor<f64>) {
    let _ = ([1.0 - x, 1.0 / x], [1.0 - y, 1.0 / y]);
}

fn integers<I: Integer + Number>(x: &Tensor<I>, axes: AxisSet) {
    elements_of_any_type(x);
    let _ = [x.add(x), x.sub(x), x.mul(x), x.div(x), x.neg(), x + I::ONE];
    let _ = [x.sum(axes), x.max(axes), x.min(axes)];
    let _ = (x.argmax(axes), x.argmin(axes), x.eq(x), x.sort(-1, false));
}

fn rows<T: Real>(x: &Tensor<T>, keep: &Tensor<bool>) {
    let _ = [x.softmax(-1), x.masked_softmax(-1, keep), x.log_softmax(-1), x.cumsum(-1)];
    let _ = [x.cumprod(-1), x.cumprod_vjp(-1, x)];
    let _ = [Tensor::softmax_vjp(x, x, -1), Tensor::log_softmax_vjp(x, x, -1)];
    let _ = [x.layer_norm(Some(x), Some(x), 0.0), x.rms_norm(Some(x), 0.0)];
    let _ = (x.layer_norm_vjps(Some(x), 0.0, x), x.rms_norm_vjps(Some(x), 0.0, x));
    let _ = (x.depthwise_conv1d(x), x.depthwise_conv1d_vjps(x, x));
    let _ = (x.sort(-1, false), x.topk(-1, 1, true));
}

fn matrices<T: Real>(x: &Tensor<T>) {
    let _ = [x.matmul(x), x.matmul_skipping_zeros(x), x.dot(x), x.outer(x), x.symmetric_matmul(x)];
    let _ = [x.linear(x, Some(x)), x.linear_add(x, Some(x), x), x.matmul_times(x, x)];
    let _ = Tensor::einsum("ij->ji", &[x]);
}

fn reductions<T: Real>(x: &Tensor<T>, axes: AxisSet) {
    let _ = [x.sum(axes), x.mean(axes), x.prod(axes), x.prod_of_others(axes)];
    let _ = [x.max(axes), x.min(axes), x.var(axes, 1), x.std(axes, 1)];
    let _ = [x.logsumexp(axes), x.norm(axes), x.vector_norm(axes, 1.0), x.sum_to(*x.shape())];
    let _ = [x.quantile(axes, 0.5), x.median(axes), x.histc(1, T::ZERO, T::ONE)];
    let _ = (x.argmax(axes), x.argmin(axes), square_sums(&[x]));
    let _ = [x.logit_loss(x, x), x.logit_slope(x, x)];
}

fn elements<T: Real>(x: &Tensor<T>, keep: &Tensor<bool>) {
    elements_of_any_type(x);
    let _ = [keep.where_(x, x), x.masked_fill(keep, T::ZERO), x.tril(0), x.triu(0)];
    let _ = (x.masked_select(keep), x.nonzero());
    let _ = [Tensor::cat(&[x], 0), Tensor::stack(&[x], 0), x.pad(0, 1, 1, T::ZERO)];
    let _ = [x.as_strided(x.layout()), x.as_strided_adjoint(*x.shape(), x.layout())];
    x.clone().make_mut();
}

fn elements_of_any_type<E: Element>(x: &Tensor<E>) {
    let _ = [x.contiguous(), Tensor::cat(&[x], 0), x.slice_assign(.., x)];
    let _ = [x.repeat(&[1]), x.repeat_interleave(0, 1), x.roll(0, 1), x.diag(0)];
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
    let _ = [x.scatter(0, i, x), x.scatter_reduce(0, i, x, ScatterReduce::Amax)];
    let options = CrossEntropy::default();
    let (y, sums) = x.cross_entropy_and_log_sums(i, Some(x), options);
    let _ = [y, x.cross_entropy_vjp_from(&sums, i, options, x)];
    let _ = x.linear_cross_entropy_with_gradients(x, i, options);
}

type Qkv<'a, T> = (&'a Tensor<T>, &'a Tensor<T>, &'a Tensor<T>);

fn attention_forward<T: Real>(
    (q, k, v): Qkv<'_, T>,
    options: &AttentionOptions<'_, T>,
) -> impl Sized {
    attention::forward(q, k, v, options)
}

fn attention_backward<T: Real>(
    qkv: Qkv<'_, T>,
    saved: (&Tensor<T>, &Tensor<T>),
    g: Cotangents<'_, T>,
    options: &AttentionOptions<'_, T>,
) -> impl Sized {
    (
        attention::backward(qkv, saved, g, options),
        attention::backward_packed(qkv, saved, g, options),
    )
}
