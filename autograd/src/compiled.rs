//! The operations of this crate, compiled for `f32`, so that programs link them; see
//! [`retrograd_tensor::compiled`]. Nothing here is ever called.
//!
//! Rules are small beside kernels. Rules for `f64`, and for indices of `u32`, are left to the few
//! programs that use them. Tests compute in `f64`, so builds with debug assertions contain it.

use crate::backprop::{Backprop, grad};
use crate::draw::to_dot;
use crate::gradients::Gradients;
use crate::graph::Var;
use crate::ops::pointwise::PointwiseFn;
use crate::ops::recurrence::Recurrence;
use retrograd_tensor::ops::activation::{self, Gelu};
use retrograd_tensor::ops::loss::{CrossEntropy, Reduction};
use retrograd_tensor::ops::pointwise::{ForEachOp, Pointwise};
use retrograd_tensor::ops::unary;
use retrograd_tensor::random::Key;
use retrograd_tensor::{AxisSet, Integer, Real, ScatterReduce, Tensor};
use std::hint::black_box;

/// All operations.
#[doc(hidden)]
#[inline(never)]
pub fn operations() {
    operations_on::<f32>();
    #[cfg(debug_assertions)]
    operations_on::<f64>();
    // Its kernel is one of this crate.
    black_box(Gradients::<f64>::pairwise_sum as fn(_) -> _);
}

fn operations_on<T: Real>() {
    unary::for_each::<T>(&mut Alone);
    activation::for_each::<T>(&mut AsValues);
    black_box(arithmetic::<T> as fn(_));
    black_box(matrices::<T> as fn(_));
    black_box(rows::<T> as fn(_, _, _));
    black_box(reductions::<T> as fn(_, _));
    black_box(views::<T> as fn(_, _));
    black_box(indices::<T, i64> as fn(_, _));
    black_box(passes::<T> as fn(_));
}

/// Compiles pointwise operations.
struct Alone;

impl<T: Real> ForEachOp<T> for Alone {
    fn op<P: Pointwise<T>>(&mut self) {
        black_box(Var::<T>::map::<P> as fn(_, _) -> _);
    }
}

/// Compiles pointwise operations, alone and as values.
struct AsValues;

impl<T: Real> ForEachOp<T> for AsValues {
    fn op<P: Pointwise<T>>(&mut self) {
        ForEachOp::<T>::op::<P>(&mut Alone);
        black_box(<PointwiseFn<T> as From<P>>::from as fn(_) -> _);
    }
}

fn arithmetic<T: Real>(x: &Var<T>) {
    let _ = [x.add(x), x.sub(x), x.mul(x), x.div(x), x.pow(x), x.maximum(x), x.minimum(x)];
    let _ = [x.remainder(x), x.fmod(x)];
}

fn matrices<T: Real>(x: &Var<T>) {
    let _ = [x.linear_activation(x, None, Gelu), x.feed_forward((x, None), Gelu, (x, None))];
    let _ = [x.matmul(x), x.dot(x), x.outer(x), Var::einsum("ij->ji", &[x])];
    let _ = [x.linear(x, Some(x)), x.linear_add(x, Some(x), x), x.depthwise_conv1d(x)];
    let _ = (Recurrence::new(x, x, x).run(None), Recurrence::new(x, x, x).weights());
}

fn rows<T: Real>(x: &Var<T>, keep: &Tensor<bool>, key: Key) {
    let _ = [x.softmax(-1), x.masked_softmax(-1, keep), x.log_softmax(-1), x.cumsum(-1)];
    let _ = [x.layer_norm(Some(x), Some(x), 0.0), x.rms_norm(Some(x), 0.0), x.cumprod(-1)];
    let _ = (x.layer_norm_with_stats(&[1], None, None, 0.0), x.rms_norm_over(&[1], None, 0.0));
    let _ = (x.mse_loss(x, Reduction::Mean), x.l1_loss(x, Reduction::Mean));
    let _ = (x.huber_loss(x, 1.0, Reduction::Mean), x.smooth_l1_loss(x, 1.0, Reduction::Mean));
    let _ = (x.binary_cross_entropy(x, Reduction::Mean), x.kl_div(x, true, Reduction::Mean));
    let _ = x.binary_cross_entropy_with_logits(x, None, Reduction::Mean);
    let _ = (x.dropout(0.5, key), x.sort(-1, false), x.topk(-1, 1, true));
}

fn reductions<T: Real>(x: &Var<T>, axes: AxisSet) {
    let _ = [x.sum(axes), x.sum_keepdim(axes), x.mean(axes), x.mean_keepdim(axes)];
    let _ = [x.prod(axes), x.max(axes), x.min(axes), x.var(axes, 1), x.std(axes, 1)];
    let _ = [x.logsumexp(axes), x.norm(axes), x.vector_norm(axes, 1.0), x.sum_to(*x.shape())];
    let _ = [x.quantile(axes, 0.5), x.median(axes)];
}

fn views<T: Real>(x: &Var<T>, keep: &Tensor<bool>) {
    let layout = *x.value().layout();
    let _ = [x.as_strided(layout), x.as_strided_adjoint(*x.shape(), layout), x.flatten()];
    let _ = [x.t(), x.permute([0, 1]), x.broadcast_to(*x.shape()), x.squeeze(0), x.unsqueeze(0)];
    let _ = [x.narrow(0, 0, 1), x.flip(0), x.select(0, 0), x.diagonal(0, 1, 0), x.unfold(0, 1, 1)];
    let _ = [x.repeat(&[1]), x.repeat_interleave(0, 1), x.roll(0, 1), x.diag(0)];
    let _ = [x.i(0), x.slice_assign(0, x), x.select_scatter(0, 0, x)];
    let _ = [x.split(0, &[1]), x.chunk(0, 1)];
    let _ = [Var::cat(&[x], 0), Var::stack(&[x], 0), x.pad(0, 1, 1, T::ZERO)];
    let _ = [Var::where_(keep, x, x), x.masked_fill(keep, T::ZERO), x.tril(0), x.triu(0)];
}

fn indices<T: Real, I: Integer>(x: &Var<T>, i: &Tensor<I>) {
    let _ = [x.gather(0, i), x.index_select(0, i), x.embedding(i)];
    let _ = [x.scatter_add(0, i, x), x.index_add(0, i, x)];
    let _ = [x.scatter(0, i, x), x.scatter_reduce(0, i, x, ScatterReduce::Prod)];
    let loss = CrossEntropy::default();
    let _ = [x.cross_entropy(i, loss), x.linear_cross_entropy(x, i, loss)];
    let _ = [x.weighted_cross_entropy(i, x.value(), loss), x.nll_loss(i, loss)];
    let _ = x.weighted_nll_loss(i, x.value(), loss);
}

fn passes<T: Real>(x: &Var<T>) {
    let mut gradients = Backprop::from(x).run();
    gradients.accumulate(x.backward());
    gradients.scale(T::ONE);
    let _ = (gradients.clip_norm(1.0), gradients.is_finite(), gradients.not_finite());
    let _ = (grad(&[(x, None)], &[x]), to_dot(&[x]));
}
