//! Cross-entropy from logits and class indices, with its VJP.

use crate::cost::Cost;
use crate::element::Integer;
use crate::error::{ErrorKind, OrPanic, Result, ShapeError, require};
use crate::kernels::Real;
use crate::kernels::rows::{RowKernel, apply_row_kernel, map_row, update_row};
use crate::ops::softmax::max_and_sum;
use crate::par;
use crate::settings;
use crate::shape::Shape;
use crate::simd::{Kernel, Lanes};
use crate::tensor::Tensor;

/// The options of [`Tensor::cross_entropy`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropy {
    /// Targets of this value are ignored, and their rows have no gradient.
    pub ignore_index: Option<i64>,
    /// The part `ε` of the target distribution that is uniform over all classes, in `[0, 1]`.
    pub label_smoothing: f64,
}

impl Default for CrossEntropy {
    /// PyTorch's defaults: -100 is ignored, no smoothing.
    fn default() -> Self {
        CrossEntropy { ignore_index: Some(-100), label_smoothing: 0.0 }
    }
}

/// The log-sum-exp of each row that is not ignored, in two parts, which is accurate for large
/// logits: the maximum, and the logarithm of the sum relative to it.
#[derive(Clone, Debug)]
pub struct LogSums<T: Real> {
    /// The maximum of each row.
    max: Tensor<T>,
    /// `ln Σ e^(x - max)` of each row.
    log_sum: Tensor<T>,
    /// Rows that are not ignored.
    counted: usize,
}

/// The checked target classes of all rows.
pub(crate) struct Classes {
    /// The class of each row; the number of classes if the row is ignored.
    targets: Vec<usize>,
    /// The number of classes.
    pub(crate) classes: usize,
    /// Rows that are not ignored.
    pub(crate) counted: usize,
}

impl Classes {
    /// The number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.targets.len()
    }

    /// The class of a row; `None` if the row is ignored.
    #[inline(always)]
    pub(crate) fn at(&self, row: usize) -> Option<usize> {
        let target = self.targets[row];
        if target < self.classes { Some(target) } else { None }
    }
}

/// The log-sum-exp of some rows of logits; returns the sum of their losses.
struct Losses<'a, T: Real> {
    logits: &'a [T],
    classes: &'a Classes,
    smoothing: f64,
    first: usize,
    max: &'a mut [T],
    log_sum: &'a mut [T],
}

impl<T: Real> Kernel<T> for Losses<'_, T> {
    type Out = f64;

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) -> f64 {
        let Losses { logits, classes, smoothing, first, max, log_sum } = self;
        let rows = || logits.chunks_exact(classes.classes).enumerate();
        for (i, x) in rows() {
            (max[i], log_sum[i]) = match classes.at(first + i) {
                Some(_) => max_and_sum(s, x),
                None => (T::ZERO, T::ONE),
            };
        }
        update_row(
            s,
            log_sum,
            #[inline(always)]
            |sum| s.ln(sum),
        );
        let mut total = 0.0;
        for (i, x) in rows() {
            if let Some(target) = classes.at(first + i) {
                // Relative to the maximum throughout, which is accurate for large logits.
                let loss_of = |v: T| (log_sum[i] - (v - max[i])).to_f64();
                let mut loss = loss_of(x[target]);
                if smoothing != 0.0 {
                    // In f64: the losses of large logits are finite, their sum may not be.
                    let mean = x.iter().map(|&v| loss_of(v)).sum::<f64>() / x.len() as f64;
                    loss = loss * (1.0 - smoothing) + mean * smoothing;
                }
                total += loss;
            }
        }
        total
    }
}

/// `dx = scale · (softmax(x) - target)`, and 0 in ignored rows.
#[derive(Clone, Copy)]
struct CrossEntropyVjp<'a, T> {
    classes: &'a Classes,
    max: &'a [T],
    log_sum: &'a [T],
    smoothing: T,
    scale: T,
}

impl<T: Real> RowKernel<T, 1> for CrossEntropyVjp<'_, T> {
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn row<S: Lanes<T>>(self, s: S, index: usize, [x]: [&[T]; 1], out: &mut [T]) {
        let Some(target) = self.classes.at(index) else {
            return out.fill(T::ZERO);
        };
        let (max, log_sum) = (s.splat(self.max[index]), s.splat(self.log_sum[index]));
        let uniform = s.splat(self.smoothing / T::from_f64(x.len() as f64));
        let scale = s.splat(self.scale);
        map_row(
            s,
            [x],
            out,
            #[inline(always)]
            |[x]| s.mul(scale, s.sub(s.exp(s.sub(s.sub(x, max), log_sum)), uniform)),
        );
        out[target] -= self.scale * (T::ONE - self.smoothing);
    }
}

impl CrossEntropy {
    /// Whether a target is ignored.
    ///
    /// ```
    /// use retrograd_tensor::ops::loss::CrossEntropy;
    /// assert!(CrossEntropy::default().ignores(-100i64));
    /// ```
    pub fn ignores<I: Integer>(&self, target: I) -> bool {
        self.ignore_index.is_some_and(|ignored| target.to_i128() == i128::from(ignored))
    }

    /// The rules about the options and the shapes.
    fn check_shapes(&self, logits: &Shape, targets: &Shape) -> Result<()> {
        let smoothing = self.label_smoothing;
        require((0.0..=1.0).contains(&smoothing), "cross_entropy", ErrorKind::Value, || {
            format!("label_smoothing must be in [0, 1], got {smoothing}")
        })?;
        let rank = logits.rank();
        let fits = rank > 0 && logits[..rank - 1] == targets[..];
        require(fits, "cross_entropy", ErrorKind::Mismatch, || {
            format!("logits {logits:?} need one target per row, got targets {targets:?}")
        })
        .map_err(|error| error.hint("the classes are the last axis"))
    }

    /// Checks the arguments before anything is computed.
    #[track_caller]
    pub(crate) fn check<I: Integer>(&self, logits: &Shape, targets: &Tensor<I>) -> Classes {
        self.check_shapes(logits, targets.shape()).or_panic();
        let rank = logits.rank();
        let classes = logits[rank - 1];
        let mut checked =
            Classes { targets: Vec::with_capacity(targets.numel()), classes, counted: 0 };
        for (at, t) in targets.contiguous().as_slice().iter().enumerate() {
            let counts = !self.ignores(*t);
            match t.index_in(classes) {
                Some(class) if counts => checked.targets.push(class),
                _ if !counts => checked.targets.push(classes),
                _ => {
                    let text = format!("target {t} at position {at} is outside 0..{classes}");
                    Err(ShapeError::new("cross_entropy", ErrorKind::Index, text)
                        .hint("CrossEntropy::ignore_index is the target that is ignored"))
                    .or_panic()
                }
            }
            checked.counted += usize::from(counts);
        }
        checked
    }
}

/// # Cross-entropy
impl<T: Real> Tensor<T> {
    /// Mean cross-entropy of logits `[.., C]` against class indices `[..]`, a scalar.
    ///
    /// For a row `x` with target `t`: `ln Σ eˣ - x_t`; with label smoothing `ε` the target is
    /// `1 - ε` on `t` plus `ε/C` on every class. The mean is over the rows that are not ignored. If
    /// all are, the loss is 0 (PyTorch gives NaN).
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
    pub fn cross_entropy<I: Integer>(
        &self,
        targets: &Tensor<I>,
        options: CrossEntropy,
    ) -> Tensor<T> {
        self.cross_entropy_and_log_sums(targets, options).0
    }

    /// [`Tensor::cross_entropy`], and the log-sum-exps for [`Tensor::cross_entropy_vjp_from`].
    #[track_caller]
    pub fn cross_entropy_and_log_sums<I: Integer>(
        &self,
        targets: &Tensor<I>,
        options: CrossEntropy,
    ) -> (Tensor<T>, LogSums<T>) {
        losses(self, &options.check(self.shape(), targets), options.label_smoothing)
    }

    /// VJP of [`Tensor::cross_entropy`] with respect to the logits, for the cotangent `g` of
    /// the scalar loss: `g/n · (softmax(x) - target)`, and 0 in ignored rows.
    #[track_caller]
    pub fn cross_entropy_vjp<I: Integer>(
        &self,
        targets: &Tensor<I>,
        options: CrossEntropy,
        g: T,
    ) -> Tensor<T> {
        let (_, sums) = self.cross_entropy_and_log_sums(targets, options);
        self.cross_entropy_vjp_from(&sums, targets, options, g)
    }

    /// [`Tensor::cross_entropy_vjp`], from the log-sum-exps of the forward pass: one exponential
    /// per logit, and no reduction.
    ///
    /// # Panics
    /// As [`Tensor::cross_entropy`], or if the sums are those of another number of rows.
    #[track_caller]
    pub fn cross_entropy_vjp_from<I: Integer>(
        &self,
        sums: &LogSums<T>,
        targets: &Tensor<I>,
        options: CrossEntropy,
        g: T,
    ) -> Tensor<T> {
        let classes = options.check(self.shape(), targets);
        let (rows, summed) = (targets.numel(), sums.max.numel());
        require(rows == summed, "cross_entropy_vjp", ErrorKind::Mismatch, || {
            format!("{rows} rows, but sums of {summed}")
        })
        .or_panic();
        let op = CrossEntropyVjp {
            classes: &classes,
            max: sums.max.as_slice(),
            log_sum: sums.log_sum.as_slice(),
            smoothing: T::from_f64(options.label_smoothing),
            scale: g / T::from_f64(sums.counted.max(1) as f64),
        };
        apply_row_kernel("cross_entropy_vjp", op, [self])
    }
}

/// The mean loss of logits `x`, and the log-sum-exps of their rows.
#[inline(never)]
fn losses<T: Real>(x: &Tensor<T>, classes: &Classes, smoothing: f64) -> (Tensor<T>, LogSums<T>) {
    let (level, logits, rows) = (settings::level(), x.contiguous(), classes.rows());
    let chunk = Cost::COSTLY.units_per_chunk(classes.classes);
    let mut losses = vec![0.0; rows.div_ceil(chunk)];
    let (max, log_sum) = Tensor::build2("cross_entropy", [rows].into(), [rows].into(), |a, b| {
        let logits = logits.as_slice().chunks((chunk * classes.classes).max(1));
        let sums = a.chunks_mut(chunk).zip(b.chunks_mut(chunk));
        let parts: Vec<_> = logits.zip(sums).zip(&mut losses).enumerate().collect();
        let each = chunk * classes.classes;
        par::each(parts, each, Cost::COSTLY, |(i, ((logits, (max, log_sum)), loss))| {
            let first = i * chunk;
            let part = Losses { logits, classes, smoothing, first, max, log_sum };
            *loss = T::dispatch(level, part);
        });
    });
    let loss = losses.iter().sum::<f64>() / classes.counted.max(1) as f64;
    (Tensor::scalar(T::from_f64(loss)), LogSums { max, log_sum, counted: classes.counted })
}
