//! Softmax, masked softmax and log-softmax along one axis, with their VJPs.

use crate::cost::Cost;
use crate::error::OrPanic;
use crate::formula::Expr;
use crate::kernels::Real;
use crate::kernels::rows::{
    RowKernel, apply_row_kernel_along, fold_rows, in_registers, join_row, load_row, map_row, splat,
    store_row, sum_rows, update_row,
};
use crate::simd::{Kernel, Lanes, inlined};
use crate::tensor::Tensor;

/// `y = e^(x - max) / Σ`
#[derive(Clone, Copy)]
struct Softmax;

impl<T: Real> RowKernel<T, 1> for Softmax {
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn row<S: Lanes<T>>(self, s: S, _: usize, [x]: [&[T]; 1], out: &mut [T]) {
        in_registers!(S, x.len(), K => {
            let (mut e, _, sum) = exponentials::<T, S, K>(s, x);
            let scale = splat(s, T::ONE / sum);
            for e in &mut e {
                *e = *e * scale;
            }
            store_row(s, e, out)
        }, {
            let max = splat(s, row_max(s, x));
            map_row(
                s,
                [x],
                out,
                inlined!(|[x]| (x - max).exp()),
            );
            normalize(s, out);
        })
    }
}

/// [`Softmax`] over the elements where `keep` is not 0; 0 elsewhere, and everywhere if no element
/// but -inf is kept. Masked elements are never used in arithmetic, so they may be non-finite.
#[derive(Clone, Copy)]
struct MaskedSoftmax;

impl<T: Real> RowKernel<T, 2> for MaskedSoftmax {
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn row<S: Lanes<T>>(self, s: S, _: usize, [x, keep]: [&[T]; 2], out: &mut [T]) {
        map_row(s, [x, keep], out, inlined!(|[x, k]| k.eq(0.0).select(f64::NEG_INFINITY, x)));
        let max = row_max(s, out);
        // No element but -inf is kept. (With a NaN, the maximum is NaN.)
        if max == T::NEG_INFINITY {
            return out.fill(T::ZERO);
        }
        let max = splat(s, max);
        map_row(
            s,
            [x, keep],
            out,
            inlined!(|[x, k]| {
                let masked = k.eq(0.0);
                masked.select(0.0, (masked.select(max, x) - max).exp())
            }),
        );
        normalize(s, out);
    }
}

/// `y = x - max - ln Σ e^(x - max)`
#[derive(Clone, Copy)]
struct LogSoftmax;

impl<T: Real> RowKernel<T, 1> for LogSoftmax {
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn row<S: Lanes<T>>(self, s: S, _: usize, [x]: [&[T]; 1], out: &mut [T]) {
        let (max, sum) = max_and_sum(s, x);
        let (max, log_sum) = (splat(s, max), splat(s, sum).ln());
        map_row(s, [x], out, inlined!(|[x]| x - max - log_sum));
    }
}

/// `dx = y · (g - Σ g·y)`; where `y` is 0 the result is 0, even if `g` is non-finite.
#[derive(Clone, Copy)]
struct SoftmaxVjp;

impl<T: Real> RowKernel<T, 2> for SoftmaxVjp {
    const COST: Cost = Cost::CHEAP;
    #[inline(always)]
    fn row<S: Lanes<T>>(self, s: S, _: usize, [y, g]: [&[T]; 2], out: &mut [T]) {
        let dot =
            sum_rows(s, [y, g], [T::ZERO; 2], inlined!(|[y, g]| y.eq(0.0).select(0.0, y * g)));
        let dot = splat(s, dot);
        map_row(s, [y, g], out, inlined!(|[y, g]| y.eq(0.0).select(0.0, y * (g - dot))));
    }
}

/// `dx = g - eʸ · Σ g`
#[derive(Clone, Copy)]
struct LogSoftmaxVjp;

impl<T: Real> RowKernel<T, 2> for LogSoftmaxVjp {
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn row<S: Lanes<T>>(self, s: S, _: usize, [y, g]: [&[T]; 2], out: &mut [T]) {
        let sum = sum_rows(s, [g], [T::ZERO], inlined!(|[g]| g));
        let sum = splat(s, sum);
        map_row(s, [y, g], out, inlined!(|[y, g]| g - y.exp() * sum));
    }
}

/// The largest element of a row; NaN if there is one.
#[inline(always)]
fn row_max<T: Real, S: Lanes<T>>(s: S, x: &[T]) -> T {
    let low = T::NEG_INFINITY;
    let max = fold_rows(
        s,
        [x],
        [low],
        splat(s, low),
        inlined!(|acc, [v]| acc.max(v)),
        inlined!(|a, b| a.max(b)),
    );
    s.max_lane(max.value())
}

/// Divides a row by its sum.
#[inline(always)]
fn normalize<T: Real, S: Lanes<T>>(s: S, out: &mut [T]) {
    let sum = sum_rows(s, [out], [T::ZERO], inlined!(|[y]| y));
    let scale = splat(s, T::ONE / sum);
    update_row(s, out, inlined!(|y| y * scale));
}

/// `e^(x - max)` of a row in registers, the maximum, and the sum of the exponentials.
#[inline(always)]
fn exponentials<T: Real, S: Lanes<T>, const K: usize>(s: S, x: &[T]) -> ([Expr<T, S>; K], T, T) {
    let x = load_row::<T, S, K>(s, x, T::NEG_INFINITY);
    let maxima = join_row(x, inlined!(|a, b| a.max(b)));
    let max = s.max_lane(maxima.value());
    let t = splat(s, max);
    let mut e = x;
    for e in &mut e {
        *e = (*e - t).exp();
    }
    let sum = join_row(e, inlined!(|a, b| a + b));
    (e, max, s.sum(sum.value()))
}

/// The maximum of a row, and `Σ e^(x - max)`.
#[inline(always)]
pub(crate) fn max_and_sum<T: Real, S: Lanes<T>>(s: S, x: &[T]) -> (T, T) {
    s.enter(MaxAndSum(x))
}

struct MaxAndSum<'a, T>(&'a [T]);

impl<T: Real> Kernel<T> for MaxAndSum<'_, T> {
    type Out = (T, T);

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) -> (T, T) {
        let x = self.0;
        in_registers!(S, x.len(), K => {
            let (_, max, sum) = exponentials::<T, S, K>(s, x);
            (max, sum)
        }, long_max_and_sum(s, x))
    }
}

#[inline(always)]
fn long_max_and_sum<T: Real, S: Lanes<T>>(s: S, x: &[T]) -> (T, T) {
    let max = row_max(s, x);
    let t = splat(s, max);
    let sum = sum_rows(s, [x], [T::NEG_INFINITY], inlined!(|[v]| (v - t).exp()));
    (max, sum)
}

/// # Softmax
impl<T: Real> Tensor<T> {
    /// `yᵢ = e^xᵢ / Σⱼ e^xⱼ` along an axis, computed from `xᵢ - max` and so without overflow.
    ///
    /// A row of -inf only, or with +inf or NaN, becomes NaN, as in PyTorch; to exclude elements use
    /// [`Tensor::masked_softmax`].
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let y = Tensor::from([0.0f32, 0.0, f32::NEG_INFINITY]).softmax(-1);
    /// assert_eq!(y.to_vec(), [0.5, 0.5, 0.0]);
    /// ```
    #[track_caller]
    pub fn softmax(&self, axis: isize) -> Tensor<T> {
        let axis = self.shape().axis("softmax", axis).or_panic();
        apply_row_kernel_along("softmax", Softmax, [self], axis)
    }

    /// Softmax over the elements where `keep` is true; 0 elsewhere. `keep` is broadcast to
    /// the shape of `self`.
    ///
    /// A row without kept elements, or with only -inf kept, becomes 0, not NaN. Masked elements
    /// have no influence, even if they are non-finite.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1.0f32, 1.0, f32::NAN], [1.0, 2.0, 3.0]]);
    /// let keep = Tensor::from([[true, true, false], [false, false, false]]);
    /// assert_eq!(x.masked_softmax(-1, &keep).to_vec(), [0.5, 0.5, 0.0, 0.0, 0.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn masked_softmax(&self, axis: isize, keep: &Tensor<bool>) -> Tensor<T> {
        let axis = self.shape().axis("masked_softmax", axis).or_panic();
        let keep = keep_as_numbers::<T>(keep).broadcast_to(self.shape());
        apply_row_kernel_along("masked_softmax", MaskedSoftmax, [self, &keep], axis)
    }

    /// `ln softmax(x)` along an axis, without computing the softmax.
    #[track_caller]
    pub fn log_softmax(&self, axis: isize) -> Tensor<T> {
        let axis = self.shape().axis("log_softmax", axis).or_panic();
        apply_row_kernel_along("log_softmax", LogSoftmax, [self], axis)
    }

    /// VJP of (masked) softmax, from its output: `y · (g - Σ g·y)`.
    #[track_caller]
    pub fn softmax_vjp(output: &Tensor<T>, g: &Tensor<T>, axis: isize) -> Tensor<T> {
        let axis = output.shape().axis("softmax", axis).or_panic();
        apply_row_kernel_along("softmax_vjp", SoftmaxVjp, [output, g], axis)
    }

    /// VJP of log-softmax, from its output: `g - eʸ · Σ g`.
    #[track_caller]
    pub fn log_softmax_vjp(output: &Tensor<T>, g: &Tensor<T>, axis: isize) -> Tensor<T> {
        let axis = output.shape().axis("log_softmax", axis).or_panic();
        apply_row_kernel_along("log_softmax_vjp", LogSoftmaxVjp, [output, g], axis)
    }
}

fn keep_as_numbers<T: Real>(keep: &Tensor<bool>) -> Tensor<T> {
    crate::kernels::elementwise::map_with(
        "masked_softmax",
        keep,
        |k| if k { T::ONE } else { T::ZERO },
    )
}
