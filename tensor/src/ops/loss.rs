//! Cross-entropy from logits and class indices, with its VJP.

use crate::cost::Cost;
use crate::element::Integer;
use crate::kernels::Real;
use crate::kernels::rows::{RowKernel, apply_row_kernel, map_row, update_row};
use crate::ops::softmax::max_and_sum;
use crate::par;
use crate::settings;
use crate::shape::Shape;
use crate::simd::{Kernel, Lanes};
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

/// `ln Σ eˣ` of each row that counts, in two parts, so that large logits keep their digits: the
/// largest element, and the logarithm of the sum relative to it.
#[derive(Clone, Debug)]
pub struct LogSums<T: Real> {
    top: Tensor<T>,
    rest: Tensor<T>,
    /// Rows that count.
    counted: usize,
}

/// The class of each row, all of them checked.
pub(crate) struct Classes {
    /// The number of classes in place of a class that is ignored.
    targets: Vec<usize>,
    /// How many there are.
    pub(crate) classes: usize,
    /// Rows that are not ignored.
    pub(crate) counted: usize,
}

impl Classes {
    /// How many rows there are.
    pub(crate) fn rows(&self) -> usize {
        self.targets.len()
    }

    /// `None` is ignored.
    #[inline(always)]
    pub(crate) fn at(&self, row: usize) -> Option<usize> {
        let target = self.targets[row];
        if target < self.classes { Some(target) } else { None }
    }
}

/// Some rows of logits: their sums, and the sum of their losses.
struct Losses<'a, T: Real> {
    logits: &'a [T],
    classes: &'a Classes,
    smoothing: f64,
    first: usize,
    top: &'a mut [T],
    rest: &'a mut [T],
}

impl<T: Real> Kernel<T> for Losses<'_, T> {
    type Out = f64;

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) -> f64 {
        let Losses { logits, classes, smoothing, first, top, rest } = self;
        let rows = || logits.chunks_exact(classes.classes).enumerate();
        for (i, x) in rows() {
            (top[i], rest[i]) = match classes.at(first + i) {
                Some(_) => max_and_sum(s, x),
                None => (T::ZERO, T::ONE),
            };
        }
        update_row(
            s,
            rest,
            #[inline(always)]
            |sum| s.ln(sum),
        );
        let mut total = 0.0;
        for (i, x) in rows() {
            if let Some(target) = classes.at(first + i) {
                // Relative to the maximum throughout, so that large logits keep their digits.
                let miss = |v: T| (rest[i] - (v - top[i])).to_f64();
                let mut loss = miss(x[target]);
                if smoothing != 0.0 {
                    // In f64: the misses of large logits are finite, their sum may not be.
                    let mean = x.iter().map(|&v| miss(v)).sum::<f64>() / x.len() as f64;
                    loss = loss * (1.0 - smoothing) + mean * smoothing;
                }
                total += loss;
            }
        }
        total
    }
}

#[derive(Clone, Copy)]
struct RowLossVjp<'a, T> {
    classes: &'a Classes,
    top: &'a [T],
    rest: &'a [T],
    smoothing: T,
    scale: T,
}

impl<T: Real> RowKernel<T, 1> for RowLossVjp<'_, T> {
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn row<S: Lanes<T>>(self, s: S, index: usize, [x]: [&[T]; 1], out: &mut [T]) {
        let Some(target) = self.classes.at(index) else {
            return out.fill(T::ZERO);
        };
        let (top, rest) = (s.splat(self.top[index]), s.splat(self.rest[index]));
        let spread = s.splat(self.smoothing / T::from_f64(x.len() as f64));
        let scale = s.splat(self.scale);
        map_row(
            s,
            [x],
            out,
            #[inline(always)]
            |[x]| s.mul(scale, s.sub(s.exp(s.sub(s.sub(x, top), rest)), spread)),
        );
        out[target] -= self.scale * (T::ONE - self.smoothing);
    }
}

impl CrossEntropy {
    /// Whether a target does not count.
    ///
    /// ```
    /// use retrograd_tensor::ops::loss::CrossEntropy;
    /// assert!(CrossEntropy::default().ignores(-100i64));
    /// ```
    pub fn ignores<I: Integer>(&self, target: I) -> bool {
        self.ignore_index.is_some_and(|ignored| target.to_i128() == i128::from(ignored))
    }

    /// Checks everything before any number is computed.
    #[track_caller]
    pub(crate) fn check<I: Integer>(&self, logits: &Shape, targets: &Tensor<I>) -> Classes {
        assert!(
            (0.0..=1.0).contains(&self.label_smoothing),
            "cross_entropy: label_smoothing must be in [0, 1], got {}",
            self.label_smoothing
        );
        let rank = logits.rank();
        assert!(
            rank > 0 && logits[..rank - 1] == targets.shape()[..],
            "cross_entropy: logits {logits:?} need one target per row, got targets {:?} (hint: the \
             classes are the last axis)",
            targets.shape()
        );
        let classes = logits[rank - 1];
        let mut checked =
            Classes { targets: Vec::with_capacity(targets.numel()), classes, counted: 0 };
        for (at, t) in targets.contiguous().as_slice().iter().enumerate() {
            let counts = !self.ignores(*t);
            match t.index_in(classes) {
                Some(class) if counts => checked.targets.push(class),
                _ if !counts => checked.targets.push(classes),
                _ => panic!(
                    "cross_entropy: target {t} at position {at} is outside 0..{classes} (hint: \
                     CrossEntropy::ignore_index is the target that does not count)"
                ),
            }
            checked.counted += usize::from(counts);
        }
        checked
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
        self.cross_entropy_and_log_sums(targets, how).0
    }

    /// [`Tensor::cross_entropy`], and what [`Tensor::cross_entropy_vjp_from`] starts from.
    #[track_caller]
    pub fn cross_entropy_and_log_sums<I: Integer>(
        &self,
        targets: &Tensor<I>,
        how: CrossEntropy,
    ) -> (Tensor<T>, LogSums<T>) {
        losses(self, &how.check(self.shape(), targets), how.label_smoothing)
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
        let (_, sums) = self.cross_entropy_and_log_sums(targets, how);
        self.cross_entropy_vjp_from(&sums, targets, how, g)
    }

    /// [`Tensor::cross_entropy_vjp`], given what the forward pass has found: one exponential for
    /// each logit, and no sums.
    ///
    /// # Panics
    /// As [`Tensor::cross_entropy`], or if the sums are those of another number of rows.
    #[track_caller]
    pub fn cross_entropy_vjp_from<I: Integer>(
        &self,
        sums: &LogSums<T>,
        targets: &Tensor<I>,
        how: CrossEntropy,
        g: T,
    ) -> Tensor<T> {
        let classes = how.check(self.shape(), targets);
        assert!(
            sums.top.numel() == targets.numel(),
            "cross_entropy_vjp: {} rows, but sums of {}",
            targets.numel(),
            sums.top.numel()
        );
        let op = RowLossVjp {
            classes: &classes,
            top: sums.top.as_slice(),
            rest: sums.rest.as_slice(),
            smoothing: T::from_f64(how.label_smoothing),
            scale: g / T::from_f64(sums.counted.max(1) as f64),
        };
        apply_row_kernel("cross_entropy_vjp", op, [self])
    }
}

/// The mean loss of logits `x`, and the sums of their rows.
#[inline(never)]
fn losses<T: Real>(x: &Tensor<T>, classes: &Classes, smoothing: f64) -> (Tensor<T>, LogSums<T>) {
    let (level, logits, rows) = (settings::level(), x.contiguous(), classes.rows());
    let chunk = Cost::COSTLY.units_per_chunk(classes.classes);
    let mut losses = vec![0.0; rows.div_ceil(chunk)];
    let (top, rest) = Tensor::build2("cross_entropy", [rows].into(), [rows].into(), |a, b| {
        let logits = logits.as_slice().chunks((chunk * classes.classes).max(1));
        let sums = a.chunks_mut(chunk).zip(b.chunks_mut(chunk));
        let parts: Vec<_> = logits.zip(sums).zip(&mut losses).enumerate().collect();
        let each = chunk * classes.classes;
        par::each(parts, each, Cost::COSTLY, |(i, ((logits, (top, rest)), loss))| {
            let first = i * chunk;
            let part = Losses { logits, classes, smoothing, first, top, rest };
            *loss = T::dispatch(level, part);
        });
    });
    let loss = losses.iter().sum::<f64>() / classes.counted.max(1) as f64;
    (Tensor::scalar(T::from_f64(loss)), LogSums { top, rest, counted: classes.counted })
}
