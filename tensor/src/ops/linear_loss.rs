//! Cross-entropy of a linear layer's outputs, which are never held all at once.
//!
//! With a large vocabulary the logits `x · Wᵀ` are by far the largest tensor of a model, and
//! plain cross-entropy holds them twice. Here they are made for some rows at a time, turned into
//! their own gradient where they lie, and multiplied into the gradients of `x` and `W` at once.
//! So gradients are a matter of the forward pass: to compute the logits again in the backward
//! pass would cost a third more. Hsu et al. 2024 (arXiv 2410.10989).

use crate::cost::Cost;
use crate::element::Integer;
use crate::error::{ErrorKind, OrPanic, require};
use crate::kernels::Real;
use crate::kernels::gemm::gemm;
use crate::kernels::rows::update_row;
use crate::matrix::MatRef;
use crate::ops::loss::{Classes, CrossEntropy};
use crate::ops::softmax::max_and_sum;
use crate::par;
use crate::settings;
use crate::shape::Shape;
use crate::simd::{Kernel, Lanes};
use crate::tensor::Tensor;

/// Logits that are held at once, about: 128 MB of `f32`. With fewer rows at a time, too much of
/// the work would be packing the weight for the products.
const LOGITS: usize = 1 << 25;

/// Rows of logits that are held at once, for so many classes.
fn rows_at_once(classes: usize) -> usize {
    (LOGITS / classes.max(1) / 16 * 16).max(64)
}

/// Some rows of logits, and whether they become their gradient; gives the sum of their losses.
struct Rows<'a, T: Real> {
    logits: &'a mut [T],
    classes: &'a Classes,
    first: usize,
    smoothing: f64,
    /// What the loss of a row counts in the result, if the gradient is wanted.
    scale: Option<T>,
}

impl<T: Real> Kernel<T> for Rows<'_, T> {
    type Out = f64;

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) -> f64 {
        let Rows { logits, classes, first, smoothing, scale } = self;
        let mut total = 0.0;
        for (i, x) in logits.chunks_exact_mut(classes.classes).enumerate() {
            let Some(target) = classes.at(first + i) else {
                x.fill(T::ZERO);
                continue;
            };
            let (top, sum) = max_and_sum(s, x);
            let rest = s.ln(s.splat(sum));
            // Every lane is the same.
            let log_sum = s.max_lane(rest);
            let miss = |v: T| (log_sum - (v - top)).to_f64();
            let mut loss = miss(x[target]);
            if smoothing != 0.0 {
                let mean = x.iter().map(|&v| miss(v)).sum::<f64>() / x.len() as f64;
                loss = loss * (1.0 - smoothing) + mean * smoothing;
            }
            total += loss;
            if let Some(scale) = scale {
                let top = s.splat(top);
                let spread = s.splat(T::from_f64(smoothing / x.len() as f64));
                let factor = s.splat(scale);
                update_row(
                    s,
                    x,
                    #[inline(always)]
                    |x| s.mul(factor, s.sub(s.exp(s.sub(s.sub(x, top), rest)), spread)),
                );
                x[target] -= scale * T::from_f64(1.0 - smoothing);
            }
        }
        total
    }
}

impl<T: Real> Tensor<T> {
    /// Mean cross-entropy of the logits `x · Wᵀ` against class indices, a scalar: that of
    /// [`Tensor::cross_entropy`] of [`Tensor::matmul`], with a fraction of the memory.
    ///
    /// Shapes: `self` `[.., C]`, weight `[V, C]`, targets `[..]`.
    ///
    /// ```
    /// use retrograd_tensor::{Tensor, ops::loss::CrossEntropy};
    /// let (x, w) = (Tensor::from([[1.0f32, -1.0]]), Tensor::from([[0.5f32, 0.5], [2.0, 2.0]]));
    /// let loss = x.linear_cross_entropy(&w, &Tensor::from([1i64]), CrossEntropy::default());
    /// assert!((loss.item() - 2f32.ln()).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// If shapes do not agree, or a target is neither a class nor ignored.
    #[track_caller]
    pub fn linear_cross_entropy<I: Integer>(
        &self,
        weight: &Tensor<T>,
        targets: &Tensor<I>,
        how: CrossEntropy,
    ) -> Tensor<T> {
        let classes = check(self, weight, targets, how);
        linear(self, weight, &classes, how, false).0
    }

    /// [`Tensor::linear_cross_entropy`], and its gradients with respect to `self` and the
    /// weight.
    ///
    /// # Panics
    /// As [`Tensor::linear_cross_entropy`].
    #[track_caller]
    pub fn linear_cross_entropy_with_gradients<I: Integer>(
        &self,
        weight: &Tensor<T>,
        targets: &Tensor<I>,
        how: CrossEntropy,
    ) -> (Tensor<T>, Tensor<T>, Tensor<T>) {
        let classes = check(self, weight, targets, how);
        let (loss, gradients) = linear(self, weight, &classes, how, true);
        let (dx, dw) = gradients.expect("wanted");
        (loss, dx, dw)
    }
}

/// Gradients with respect to the input and the weight.
type Gradients<T> = (Tensor<T>, Tensor<T>);

/// Checks everything before any number is computed.
#[track_caller]
fn check<T: Real, I: Integer>(
    x: &Tensor<T>,
    weight: &Tensor<T>,
    targets: &Tensor<I>,
    how: CrossEntropy,
) -> Classes {
    let fits = x.rank() > 0 && weight.rank() == 2 && x.size(-1) == weight.size(1);
    require(fits, "linear_cross_entropy", ErrorKind::Mismatch, || {
        let width = x.shape().last().unwrap_or(&0);
        let (x, weight) = (x.shape(), weight.shape());
        format!("inputs {x:?} need a weight [classes, {width}], got {weight:?}")
    })
    .or_panic();
    let logits_shape = [&x.shape()[..x.rank() - 1], &[weight.size(0)]].concat();
    how.check(&Shape::from(logits_shape), targets)
}

#[inline(never)]
fn linear<T: Real>(
    x: &Tensor<T>,
    weight: &Tensor<T>,
    of_rows: &Classes,
    how: CrossEntropy,
    with_gradients: bool,
) -> (Tensor<T>, Option<Gradients<T>>) {
    let (classes, width) = (weight.size(0), weight.size(1));
    let per_row = 1.0 / of_rows.counted.max(1) as f64;
    let rows = of_rows.rows();
    let (x, w) = (x.contiguous(), weight.contiguous());
    let w = MatRef::new(w.as_slice(), classes, width);
    let level = settings::level();
    let scale = with_gradients.then(|| T::from_f64(per_row));
    let mut dx = Tensor::zeros(if with_gradients { *x.shape() } else { [0].into() });
    let mut dw = Tensor::zeros(if with_gradients { *weight.shape() } else { [0].into() });
    let mut total = 0.0;
    let at_once = rows_at_once(classes);
    // With nothing to add up there are no logits to speak of.
    let starts = (0..if classes == 0 { 0 } else { rows }).step_by(at_once);
    for first in starts {
        let n = at_once.min(rows - first);
        let x = MatRef::new(&x.as_slice()[first * width..(first + n) * width], n, width);
        let mut losses = vec![0.0; n];
        let logits = Tensor::build("linear_cross_entropy", [n, classes].into(), |logits| {
            gemm(&[(x, w.t())], false, logits);
            let parts: Vec<_> =
                logits.chunks_exact_mut(classes).zip(&mut losses).enumerate().collect();
            par::each(parts, classes, Cost::COSTLY, |(i, (logits, loss))| {
                let (classes, first, smoothing) = (of_rows, first + i, how.label_smoothing);
                *loss = T::dispatch(level, Rows { logits, classes, first, smoothing, scale });
            });
        });
        total += losses.iter().sum::<f64>();
        if with_gradients {
            let g = MatRef::new(logits.as_slice(), n, classes);
            let out = &mut dx.make_mut()[first * width..(first + n) * width];
            gemm(&[(g, w)], false, out);
            gemm(&[(g.t(), x)], true, dw.make_mut());
        }
    }
    let loss = Tensor::scalar(T::from_f64(total * per_row));
    (loss, with_gradients.then_some((dx, dw)))
}
