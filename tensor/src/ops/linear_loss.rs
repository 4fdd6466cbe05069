//! Cross-entropy fused with a linear layer, without the full matrix of logits.
//!
//! With a large vocabulary the logits `x · Wᵀ` are by far the largest tensor of a model, and
//! cross-entropy needs two tensors of that size. Here they are computed for a block of rows at a
//! time, replaced in place by their gradient, and multiplied to the gradients of `x` and `W` at
//! once. So the forward pass computes the gradients: recomputing the logits in the backward pass
//! would cost a third more. Hsu et al. 2024 (arXiv 2410.10989).

use crate::cost::Cost;
use crate::element::Integer;
use crate::error::{ErrorKind, assert};
use crate::kernels::gemm::{Products, gemm};
use crate::kernels::rows::{splat, update_row};
use crate::kernels::{Real, level_of};
use crate::matrix::MatRef;
use crate::observe::{self, KernelCall};
use crate::ops::loss::{Classes, CrossEntropy, Reduction};
use crate::ops::softmax::max_and_sum;
use crate::par;
use crate::settings;
use crate::shape::Shape;
use crate::simd::{Kernel, Lanes, inlined};
use crate::tensor::Tensor;

/// The approximate number of logits in a block: 128 MB of `f32`. In smaller blocks, packing the
/// weight for the matrix multiplications would take too large a part of the time.
const LOGITS: usize = 1 << 25;

/// The number of rows in a block of logits.
fn rows_per_block(classes: usize) -> usize {
    (LOGITS / classes.max(1) / 16 * 16).max(64)
}

/// The loss of some rows of logits, which are replaced by their gradient on request; returns the
/// sum of the losses.
struct LossRows<'a, T: Real> {
    logits: &'a mut [T],
    classes: &'a Classes,
    first: usize,
    smoothing: f64,
    /// The factor of the loss of a row in the mean, if the gradient is requested.
    scale: Option<T>,
}

impl<T: Real> Kernel<T> for LossRows<'_, T> {
    type Out = f64;

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) -> f64 {
        let LossRows { logits, classes, first, smoothing, scale } = self;
        let mut total = 0.0;
        for (i, x) in logits.chunks_exact_mut(classes.classes).enumerate() {
            let Some(target) = classes.at(first + i) else {
                x.fill(T::ZERO);
                continue;
            };
            let (max, sum) = max_and_sum(s, x);
            let log_sums = splat(s, sum).ln();
            // All lanes are equal.
            let log_sum = s.max_lane(log_sums.value());
            let loss_of = |v: T| (log_sum - (v - max)).to_f64();
            let mut loss = loss_of(x[target]);
            if smoothing != 0.0 {
                let mean = x.iter().map(|&v| loss_of(v)).sum::<f64>() / x.len() as f64;
                loss = loss * (1.0 - smoothing) + mean * smoothing;
            }
            total += loss;
            if let Some(scale) = scale {
                let (max, factor) = (splat(s, max), splat(s, scale));
                let uniform = smoothing / x.len() as f64;
                update_row(s, x, inlined!(|x| factor * ((x - max - log_sums).exp() - uniform)));
                x[target] -= scale * T::from_f64(1.0 - smoothing);
            }
        }
        total
    }
}

/// # Cross-entropy of a linear layer
impl<T: Real> Tensor<T> {
    /// Cross-entropy of the logits `x · Wᵀ` against class indices, by default the mean, a scalar: equal
    /// to [`Tensor::cross_entropy`] of [`Tensor::matmul`], with a fraction of the memory. With
    /// [`Reduction::None`] all logits are held.
    ///
    /// Shapes: `self` `[.., C]`, weight `[V, C]`, targets `[..]`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (x, w) = (Tensor::from([[1.0f32, -1.0]]), Tensor::from([[0.5f32, 0.5], [2.0, 2.0]]));
    /// let loss = x.linear_cross_entropy(&w, &Tensor::from([1i64]), CrossEntropy::default());
    /// assert!((loss.item() - 2f32.ln()).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// If shapes do not agree, a target is neither a class nor ignored, or the axis of the classes is
    /// not the last.
    #[track_caller]
    pub fn linear_cross_entropy<I: Integer>(
        &self,
        weight: &Tensor<T>,
        targets: &Tensor<I>,
        options: CrossEntropy,
    ) -> Tensor<T> {
        let classes = check(self, weight, targets, options);
        if options.reduction == Reduction::None {
            return self.linear(weight, None).cross_entropy(targets, options);
        }
        linear_loss(self, weight, &classes, options, false).0
    }

    /// [`Tensor::linear_cross_entropy`], and its gradients with respect to `self` and the
    /// weight.
    ///
    /// # Panics
    /// As [`Tensor::linear_cross_entropy`], or if the losses are not reduced.
    #[track_caller]
    pub fn linear_cross_entropy_with_gradients<I: Integer>(
        &self,
        weight: &Tensor<T>,
        targets: &Tensor<I>,
        options: CrossEntropy,
    ) -> (Tensor<T>, Tensor<T>, Tensor<T>) {
        let classes = check(self, weight, targets, options);
        let reduced = options.reduction != Reduction::None;
        assert(reduced, "linear_cross_entropy", ErrorKind::Value, || {
            "gradients that are computed with the loss are those of one number, not of the loss of \
             each row (Reduction::None)"
                .into()
        });
        let (loss, gradients) = linear_loss(self, weight, &classes, options, true);
        let (dx, dw) = gradients.expect("requested");
        (loss, dx, dw)
    }
}

/// The gradients with respect to the input and the weight.
type LinearGradients<T> = (Tensor<T>, Tensor<T>);

/// Checks the arguments before anything is computed.
#[track_caller]
fn check<T: Real, I: Integer>(
    x: &Tensor<T>,
    weight: &Tensor<T>,
    targets: &Tensor<I>,
    options: CrossEntropy,
) -> Classes {
    let fits = x.rank() > 0 && weight.rank() == 2 && x.size(-1) == weight.size(1);
    assert(fits, "linear_cross_entropy", ErrorKind::Mismatch, || {
        let width = x.shape().last().unwrap_or(&0);
        let (x, weight) = (x.shape(), weight.shape());
        format!("inputs {x:?} need a weight [classes, {width}], got {weight:?}")
    });
    assert(options.axis == -1, "linear_cross_entropy", ErrorKind::Axis, || {
        format!(
            "the classes are the last axis of x · Wᵀ, but CrossEntropy::axis is {}",
            options.axis
        )
    });
    let logits_shape = [&x.shape()[..x.rank() - 1], &[weight.size(0)]].concat();
    options.check::<T, I>(&Shape::from(logits_shape), targets, None)
}

/// The loss, and its gradients if `with_gradients`.
#[inline(never)]
fn linear_loss<T: Real>(
    x: &Tensor<T>,
    weight: &Tensor<T>,
    targets: &Classes,
    options: CrossEntropy,
    with_gradients: bool,
) -> (Tensor<T>, Option<LinearGradients<T>>) {
    let call = observe::begin();
    let (classes, width) = (weight.size(0), weight.size(1));
    let per_row = 1.0 / targets.divisor;
    let rows = targets.rows();
    let (x, w) = (x.contiguous(), weight.contiguous());
    let w = MatRef::new(w.as_slice(), classes, width);
    let level = settings::level();
    let scale = with_gradients.then(|| T::from_f64(per_row));
    let mut dx = Tensor::zeros(if with_gradients { *x.shape() } else { [0].into() });
    let mut dw = Tensor::zeros(if with_gradients { *weight.shape() } else { [0].into() });
    let mut total = 0.0;
    let block = rows_per_block(classes);
    // Without classes there are no logits.
    let starts = (0..if classes == 0 { 0 } else { rows }).step_by(block);
    for first in starts {
        let n = block.min(rows - first);
        let x = MatRef::new(&x.as_slice()[first * width..(first + n) * width], n, width);
        let mut losses = vec![0.0; n];
        let logits = Tensor::build("linear_cross_entropy", [n, classes].into(), |logits| {
            gemm(&Products::one(x, w.t()), false, logits);
            let parts: Vec<_> =
                logits.chunks_exact_mut(classes).zip(&mut losses).enumerate().collect();
            par::each(parts, classes, Cost::COSTLY, |(i, (logits, loss))| {
                let (classes, first, smoothing) = (targets, first + i, options.label_smoothing);
                *loss = T::dispatch(level, LossRows { logits, classes, first, smoothing, scale });
            });
        });
        total += losses.iter().sum::<f64>();
        if with_gradients {
            let g = MatRef::new(logits.as_slice(), n, classes);
            let out = &mut dx.make_mut()[first * width..(first + n) * width];
            gemm(&Products::one(g, w), false, out);
            gemm(&Products::one(g.t(), x), true, dw.make_mut());
        }
    }
    // The products are calls of their own; here the logits are read, and replaced by their gradients.
    observe::end(call, || {
        let logits = (rows * classes * size_of::<T>()) as u64;
        KernelCall {
            detail: format!("{} blocks of {block} rows", rows.div_ceil(block)),
            level: level_of::<T>(level),
            flops: (rows * classes) as u64,
            read: logits,
            written: if with_gradients { logits } else { 0 },
            ..KernelCall::new(
                "linear_cross_entropy",
                "rows",
                T::DTYPE,
                Shape::from([rows, classes]),
            )
        }
    });
    let loss = Tensor::scalar(T::from_f64(total * per_row));
    (loss, with_gradients.then_some((dx, dw)))
}
