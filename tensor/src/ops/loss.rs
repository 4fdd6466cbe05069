//! Cross-entropy from logits and class indices, with its VJP.

use crate::drive::rows::{RowKernel, map_row, rows, rows_to};
use crate::element::Integer;
use crate::ops::softmax::max_and_log_sum;
use crate::par::Cost;
use crate::simd::{Lanes, Real};
use crate::tensor::Tensor;

/// How [`Tensor::cross_entropy`] treats its targets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropy {
    /// Targets of this value do not count, and their rows get no gradient.
    pub ignore_index: Option<i64>,
    /// The share `ε` of the target spread evenly over all classes, in `[0, 1]`.
    pub label_smoothing: f64,
}

impl Default for CrossEntropy {
    /// PyTorch's defaults: -100 is ignored, no smoothing.
    fn default() -> Self {
        CrossEntropy { ignore_index: Some(-100), label_smoothing: 0.0 }
    }
}

/// A class per row; `None` is ignored.
type Targets<'a> = &'a [Option<usize>];

#[derive(Clone, Copy)]
struct RowLoss<'a, T> {
    targets: Targets<'a>,
    smoothing: T,
}

impl<T: Real> RowKernel<T, 1> for RowLoss<'_, T> {
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn row<S: Lanes<T>>(self, s: S, index: usize, [x]: [&[T]; 1], out: &mut [T]) {
        out[0] = match self.targets[index] {
            None => T::ZERO,
            Some(target) => {
                let (top, log_sum) = max_and_log_sum(s, x);
                // Relative to the maximum throughout, so that large logits keep their digits.
                let miss = log_sum - (x[target] - top);
                if self.smoothing == T::ZERO {
                    miss
                } else {
                    // In f64: the misses of large logits are finite, their sum may not be.
                    let sum: f64 = x.iter().map(|&v| (log_sum - (v - top)).to_f64()).sum();
                    let mean = T::from_f64(sum / x.len() as f64);
                    miss * (T::ONE - self.smoothing) + mean * self.smoothing
                }
            }
        };
    }
}

#[derive(Clone, Copy)]
struct RowLossVjp<'a, T> {
    targets: Targets<'a>,
    smoothing: T,
    scale: T,
}

impl<T: Real> RowKernel<T, 1> for RowLossVjp<'_, T> {
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn row<S: Lanes<T>>(self, s: S, index: usize, [x]: [&[T]; 1], out: &mut [T]) {
        let Some(target) = self.targets[index] else {
            return out.fill(T::ZERO);
        };
        let (top, log_sum) = max_and_log_sum(s, x);
        let (top, log_sum) = (s.splat(top), s.splat(log_sum));
        let spread = s.splat(self.smoothing / T::from_f64(x.len() as f64));
        let scale = s.splat(self.scale);
        map_row(
            s,
            [x],
            out,
            #[inline(always)]
            |[x]| s.mul(scale, s.sub(T::exp(s, s.sub(s.sub(x, top), log_sum)), spread)),
        );
        out[target] -= self.scale * (T::ONE - self.smoothing);
    }
}

impl CrossEntropy {
    /// Checks everything before any number is computed.
    #[track_caller]
    fn targets<T: Real, I: Integer>(
        &self,
        logits: &Tensor<T>,
        targets: &Tensor<I>,
    ) -> Vec<Option<usize>> {
        assert!(
            (0.0..=1.0).contains(&self.label_smoothing),
            "cross_entropy: label_smoothing must be in [0, 1], got {}",
            self.label_smoothing
        );
        let rank = logits.rank();
        assert!(
            rank > 0 && logits.shape()[..rank - 1] == targets.shape()[..],
            "cross_entropy: logits {:?} need one target per row, got targets {:?} (hint: the \
             classes are the last axis)",
            logits.shape(),
            targets.shape()
        );
        let classes = logits.size(-1);
        let targets = targets.contiguous();
        let mut out = Vec::with_capacity(targets.numel());
        for (at, &t) in targets.as_slice().iter().enumerate() {
            let ignored = self.ignore_index.is_some_and(|i| t.to_i128() == i as i128);
            let class = t.index_in(classes);
            assert!(
                ignored || class.is_some(),
                "cross_entropy: target {t} at position {at} is outside 0..{classes}"
            );
            out.push(class.filter(|_| !ignored));
        }
        out
    }
}

impl<T: Real> Tensor<T> {
    /// Mean cross-entropy of logits `[.., C]` against class indices `[..]`, a scalar.
    ///
    /// For a row `x` with target `t`: `ln Σ eˣ - x_t`; with label smoothing `ε` the target is
    /// `1 - ε` on `t` plus `ε/C` on every class. The mean is over the rows that count. If none
    /// counts the loss is 0 (PyTorch gives NaN).
    ///
    /// # Panics
    /// If shapes do not agree, or a target is neither a class nor ignored.
    ///
    /// ```
    /// use retrograd_tensor::{Tensor, ops::loss::CrossEntropy};
    /// let logits = Tensor::from([[0.0f32, 0.0], [9.0, 9.0]]);
    /// let loss = logits.cross_entropy(&Tensor::from([1i64, -100]), CrossEntropy::default());
    /// assert!((loss.item() - 2f32.ln()).abs() < 1e-6);
    /// ```
    #[track_caller]
    pub fn cross_entropy<I: Integer>(&self, targets: &Tensor<I>, how: CrossEntropy) -> Tensor<T> {
        let targets = how.targets(self, targets);
        let counted = targets.iter().flatten().count();
        if counted == 0 {
            return Tensor::scalar(T::ZERO);
        }
        let op = RowLoss { targets: &targets, smoothing: T::from_f64(how.label_smoothing) };
        rows_to("cross_entropy", op, [self], 1).sum(..) / T::from_f64(counted as f64)
    }

    /// VJP of [`Tensor::cross_entropy`] with respect to the logits, for the cotangent `g` of
    /// the scalar loss: `g/n · (softmax(x) - target)`, and 0 in ignored rows.
    #[track_caller]
    pub fn cross_entropy_vjp<I: Integer>(
        &self,
        targets: &Tensor<I>,
        how: CrossEntropy,
        g: T,
    ) -> Tensor<T> {
        let targets = how.targets(self, targets);
        let counted = targets.iter().flatten().count().max(1);
        let op = RowLossVjp {
            targets: &targets,
            smoothing: T::from_f64(how.label_smoothing),
            scale: g / T::from_f64(counted as f64),
        };
        rows("cross_entropy_vjp", op, [self])
    }
}
