//! Cross-entropy from logits and class indices, with its VJP.

use crate::cost::Cost;
use crate::element::Integer;
use crate::error::{ErrorKind, OrPanic, Result, ShapeError, assert, require};
use crate::kernels::rows::{RowKernel, apply_row_kernel, map_row, splat, update_row};
use crate::kernels::{Real, level_of};
use crate::observe::{self, KernelCall};
use crate::ops::softmax::max_and_sum;
use crate::par;
use crate::settings;
use crate::shape::Shape;
use crate::simd::{Kernel, Lanes, inlined};
use crate::storage::reserved;
use crate::tensor::Tensor;

/// What a loss function returns of the losses of all elements: PyTorch's `reduction`.
///
/// ```
/// use retrograd::prelude::*;
/// let logits = Tensor::<f64>::zeros([3, 2]);
/// let targets = Tensor::from([0i64, 1, -100]); // the last is ignored
/// let loss = |reduction| {
///     let options = CrossEntropy { reduction, ..CrossEntropy::default() };
///     (logits.cross_entropy(&targets, options) / 2f64.ln()).to_vec()
/// };
/// assert_eq!(loss(Reduction::None), [1.0, 1.0, 0.0]);
/// assert_eq!(loss(Reduction::Sum), [2.0]);
/// assert_eq!(loss(Reduction::Mean), [1.0]); // of two
/// assert_eq!(loss(Reduction::BatchMean), [2.0 / 3.0]); // the sum over three
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// The loss of every element, or of every row of classes.
    None,
    /// The sum.
    Sum,
    /// The mean. With class weights, it is the sum divided by the sum of the weights of the targets;
    /// ignored targets do not count.
    #[default]
    Mean,
    /// The sum divided by the size of the first axis, or by 1 if there is no axis. This is the
    /// Kullback-Leibler divergence of distributions `[N, C]`; PyTorch has it for `kl_div` only.
    BatchMean,
}

/// The options of [`Tensor::cross_entropy`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropy {
    /// Targets of this value are ignored, and their rows have no gradient.
    pub ignore_index: Option<i64>,
    /// The part `ε` of the target distribution that is uniform over all classes, in `[0, 1]`.
    pub label_smoothing: f64,
    /// What is returned of the losses of all rows.
    pub reduction: Reduction,
    /// The axis of the classes: -1, the last, by default. **In PyTorch it is 1**, as of logits
    /// `[N, C, L]` for targets `[N, L]`.
    pub axis: isize,
}

impl Default for CrossEntropy {
    /// Classes on the last axis, and PyTorch's defaults: -100 is ignored, no smoothing, the mean.
    fn default() -> Self {
        CrossEntropy {
            ignore_index: Some(-100),
            label_smoothing: 0.0,
            reduction: Reduction::Mean,
            axis: -1,
        }
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
    /// The weights of the classes, if there are any.
    weights: Option<Tensor<T>>,
}

impl<T: Real> LogSums<T> {
    /// The tensors that it consists of, with names.
    pub fn tensors(&self) -> Vec<(&'static str, &Tensor<T>)> {
        let sums = [("maxima", &self.max), ("log-sums", &self.log_sum)];
        sums.into_iter().chain(self.weights.as_ref().map(|weights| ("weights", weights))).collect()
    }
}

/// The checked target classes of all rows.
pub(crate) struct Classes {
    /// The class of each row; the number of classes if the row is ignored.
    targets: Vec<usize>,
    /// The number of classes.
    pub(crate) classes: usize,
    /// What the sum of all losses is divided by; infinite if no row has a weight above 0.
    pub(crate) divisor: f64,
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

/// The log-sum-exp of some rows of logits, and their losses; returns the sum of these.
struct Losses<'a, T: Real> {
    logits: &'a [T],
    classes: &'a Classes,
    weights: Option<&'a [T]>,
    smoothing: f64,
    first: usize,
    max: &'a mut [T],
    log_sum: &'a mut [T],
    /// The loss of each row, if it is requested; else nothing.
    each: &'a mut [T],
}

impl<T: Real> Kernel<T> for Losses<'_, T> {
    type Out = f64;

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) -> f64 {
        let Losses { logits, classes, weights, smoothing, first, max, log_sum, each } = self;
        let rows = || logits.chunks_exact(classes.classes).enumerate();
        for (i, x) in rows() {
            (max[i], log_sum[i]) = match classes.at(first + i) {
                Some(_) => max_and_sum(s, x),
                None => (T::ZERO, T::ONE),
            };
        }
        update_row(s, log_sum, inlined!(|sum| sum.ln()));
        let mut total = 0.0;
        for (i, x) in rows() {
            if let Some(target) = classes.at(first + i) {
                // Relative to the maximum throughout, which is accurate for large logits.
                let loss_of = |v: T| (log_sum[i] - (v - max[i])).to_f64();
                let loss_of = |class: usize| match weights.map(|w| w[class]) {
                    None => loss_of(x[class]),
                    // Not 0 · ∞.
                    Some(w) if w == T::ZERO => 0.0,
                    Some(w) => w.to_f64() * loss_of(x[class]),
                };
                let mut loss = loss_of(target);
                if smoothing != 0.0 {
                    // In f64: the losses of large logits are finite, their sum may not be.
                    let mean = (0..x.len()).map(loss_of).sum::<f64>() / x.len() as f64;
                    loss = loss * (1.0 - smoothing) + mean * smoothing;
                }
                total += loss;
                if let Some(each) = each.get_mut(i) {
                    *each = T::from_f64(loss);
                }
            }
        }
        total
    }
}

/// `dx = scale · (softmax(x) - p)`, and 0 in ignored rows, with the wanted distribution `p`; with class
/// weights `scale · (softmax(x) · Σ w·p - w·p)`.
#[derive(Clone, Copy)]
struct CrossEntropyVjp<'a, T> {
    classes: &'a Classes,
    weights: Option<&'a [T]>,
    /// The mean of the weights.
    mean_weight: T,
    max: &'a [T],
    log_sum: &'a [T],
    smoothing: T,
    /// One for each row, or one for all.
    scales: &'a [T],
}

impl<T: Real> RowKernel<T, 1> for CrossEntropyVjp<'_, T> {
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn row<S: Lanes<T>>(self, s: S, index: usize, [x]: [&[T]; 1], out: &mut [T]) {
        let Some(target) = self.classes.at(index) else {
            return out.fill(T::ZERO);
        };
        let (max, log_sum) = (splat(s, self.max[index]), splat(s, self.log_sum[index]));
        let uniform = splat(s, self.smoothing / T::from_f64(x.len() as f64));
        let row_scale = self.scales[if self.scales.len() == 1 { 0 } else { index }];
        let (scale, rest) = (splat(s, row_scale), T::ONE - self.smoothing);
        let Some(weights) = self.weights else {
            map_row(s, [x], out, inlined!(|[x]| scale * ((x - max - log_sum).exp() - uniform)));
            out[target] -= row_scale * rest;
            return;
        };
        let weight = rest * weights[target];
        let all = splat(s, weight + self.smoothing * self.mean_weight);
        map_row(
            s,
            [x, weights],
            out,
            inlined!(|[x, w]| scale * (all * (x - max - log_sum).exp() - w * uniform)),
        );
        out[target] -= row_scale * weight;
    }
}

impl CrossEntropy {
    /// Whether a target is ignored.
    pub fn ignores<I: Integer>(&self, target: I) -> bool {
        self.ignore_index.is_some_and(|ignored| target.to_i128() == i128::from(ignored))
    }

    /// The rules about the options and the shapes; returns the position of the axis of the classes.
    fn check_shapes(&self, logits: &Shape, targets: &Shape) -> Result<usize> {
        let smoothing = self.label_smoothing;
        require((0.0..=1.0).contains(&smoothing), "cross_entropy", ErrorKind::Value, || {
            format!("label_smoothing must be in [0, 1], got {smoothing}")
        })?;
        let mismatch = || {
            require(false, "cross_entropy", ErrorKind::Mismatch, || match self.axis {
                -1 => format!("logits {logits:?} need one target per row, got targets {targets:?}"),
                axis => format!(
                    "logits {logits:?} with classes on axis {axis} need a target for each of the \
                     others, got targets {targets:?}"
                ),
            })
            .map_err(|error| {
                error.hint("the classes are the last axis unless CrossEntropy::axis is another")
            })
        };
        if logits.rank() == 0 {
            mismatch()?;
        }
        let axis = logits.axis("cross_entropy", self.axis)?;
        if logits.without(axis) != *targets {
            mismatch()?;
        }
        Ok(axis)
    }

    /// Checks the arguments before anything is computed. `weights` are weights of classes.
    #[track_caller]
    pub(crate) fn check<T: Real, I: Integer>(
        &self,
        logits: &Shape,
        targets: &Tensor<I>,
        weights: Option<&Tensor<T>>,
    ) -> Classes {
        let axis = self.check_shapes(logits, targets.shape()).or_panic();
        let classes = logits[axis];
        check_weights(classes, weights).or_panic();
        let weights = weights.map(|w| w.to_vec());
        let room = reserved("cross_entropy", targets.numel()).or_panic();
        let mut checked = Classes { targets: room, classes, divisor: 0.0 };
        // The number of rows that count, or their weight.
        let mut counted = 0.0;
        for (at, t) in targets.contiguous().as_slice().iter().enumerate() {
            let counts = !self.ignores(*t);
            match t.index_in(classes) {
                Some(class) if counts => {
                    checked.targets.push(class);
                    counted += weights.as_ref().map_or(1.0, |w| w[class].to_f64());
                }
                _ if !counts => checked.targets.push(classes),
                _ => {
                    let text = format!("target {t} at position {at} is outside 0..{classes}");
                    Err(ShapeError::new("cross_entropy", ErrorKind::Index, text)
                        .hint("CrossEntropy::ignore_index is the target that is ignored"))
                    .or_panic()
                }
            }
        }
        checked.divisor = match self.reduction {
            Reduction::None | Reduction::Sum => 1.0,
            Reduction::Mean if counted == 0.0 => f64::INFINITY,
            Reduction::Mean => counted,
            Reduction::BatchMean => targets.shape().first().map_or(1, |&n| n.max(1)) as f64,
        };
        checked
    }

    /// What the sum of the losses of all rows is divided by: the number of targets that are not
    /// ignored, or the sum of their class weights, for the mean. It is infinite if that is 0.
    ///
    /// # Panics
    /// As [`Tensor::cross_entropy`] of logits of this shape.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (targets, weights) = (Tensor::from([0i64, -100, 1]), Tensor::from([0.5f32, 2.0]));
    /// let divisor = |w| CrossEntropy::default().divisor(&[3, 2].into(), &targets, w);
    /// assert_eq!((divisor(None), divisor(Some(&weights))), (2.0, 2.5));
    /// let ignored = Tensor::full([3], -100i64);
    /// assert_eq!(CrossEntropy::default().divisor::<f32, _>(&[3, 2].into(), &ignored, None), f64::INFINITY);
    /// ```
    #[track_caller]
    pub fn divisor<T: Real, I: Integer>(
        &self,
        logits: &Shape,
        targets: &Tensor<I>,
        weights: Option<&Tensor<T>>,
    ) -> f64 {
        self.check(logits, targets, weights).divisor
    }
}

/// The rules about the weights of classes.
fn check_weights<T: Real>(classes: usize, weights: Option<&Tensor<T>>) -> Result<()> {
    let Some(weights) = weights else { return Ok(()) };
    require(*weights.shape() == [classes], "cross_entropy", ErrorKind::Mismatch, || {
        format!("{classes} classes need weights [{classes}], got {:?}", weights.shape())
    })?;
    let valid = |w: &T| *w >= T::ZERO && *w < T::INFINITY;
    let wrong = weights.to_vec().iter().position(|w| !valid(w));
    require(wrong.is_none(), "cross_entropy", ErrorKind::Value, || {
        let at = wrong.unwrap_or(0);
        format!("the weight of class {at} must be finite and at least 0, got {}", weights.at(&[at]))
    })
}

/// # Cross-entropy
impl<T: Real> Tensor<T> {
    /// Cross-entropy of logits `[.., C]` against class indices `[..]`: by default the mean, a scalar.
    ///
    /// For a row `x` with target `t`: `ln Σ eˣ - x_t`; with label smoothing `ε` the target is
    /// `1 - ε` on `t` plus `ε/C` on every class. The mean is over the rows that are not ignored. If
    /// all are, the loss is 0 (PyTorch gives NaN). [`Reduction::None`] gives the loss of every row, in
    /// the shape of the targets, and 0 for ignored rows.
    ///
    /// **The classes are the last axis by default, and axis 1 in PyTorch**: logits `[N, C, L]` need the
    /// [axis](CrossEntropy::axis) 1, without which they are read as `[N, L, C]` if `C = L`.
    ///
    /// # Panics
    /// If shapes do not agree, or a target is neither a class nor ignored.
    ///
    /// ```
    /// use retrograd::prelude::*;
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
        self.cross_entropy_and_log_sums(targets, None, options).0
    }

    /// [`Tensor::cross_entropy`] with a weight `[C]` for each class: the loss of a row is multiplied
    /// by the weight of its target, and the mean is the sum of these losses divided by the sum of
    /// these weights. With label smoothing `ε`, the loss of a row is
    /// `Σ_c w_c p_c (ln Σ eˣ - x_c)` with `p = 1 - ε` on the target plus `ε/C` on every class, and
    /// the mean is divided by the sum of the weights of the targets, as in PyTorch.
    ///
    /// If the weights of all targets are 0, the mean is 0.
    ///
    /// # Panics
    /// As [`Tensor::cross_entropy`], or if a weight is negative or not finite.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let logits = Tensor::from([[0.0f64, 0.0], [0.0, 3f64.ln()]]); // losses ln 2 and ln 4
    /// let (targets, weights) = (Tensor::from([1i64, 0]), Tensor::from([3.0f64, 1.0]));
    /// let loss = logits.weighted_cross_entropy(&targets, &weights, CrossEntropy::default());
    /// let want = (1.0 * 2f64.ln() + 3.0 * 4f64.ln()) / (1.0 + 3.0);
    /// assert!((loss.item() - want).abs() < 1e-12);
    /// ```
    #[track_caller]
    pub fn weighted_cross_entropy<I: Integer>(
        &self,
        targets: &Tensor<I>,
        weights: &Tensor<T>,
        options: CrossEntropy,
    ) -> Tensor<T> {
        self.cross_entropy_and_log_sums(targets, Some(weights), options).0
    }

    /// [`Tensor::cross_entropy`], with class weights if there are any, and the log-sum-exps for
    /// [`Tensor::cross_entropy_vjp_from`].
    #[track_caller]
    pub fn cross_entropy_and_log_sums<I: Integer>(
        &self,
        targets: &Tensor<I>,
        weights: Option<&Tensor<T>>,
        options: CrossEntropy,
    ) -> (Tensor<T>, LogSums<T>) {
        let classes = options.check(self.shape(), targets, weights);
        let each = (options.reduction == Reduction::None).then_some(*targets.shape());
        let logits = self.with_axis_last(options.axis);
        losses(&logits, &classes, weights, options.label_smoothing, each)
    }

    /// The axis moved to the end.
    fn with_axis_last(&self, axis: isize) -> Tensor<T> {
        if axis == -1 { self.clone() } else { self.permute(order(self.rank(), axis)) }
    }

    /// VJP of [`Tensor::cross_entropy`] with respect to the logits, `g/n · (softmax(x) - target)`, and 0 in
    /// ignored rows, from the log-sum-exps of the forward pass: one exponential per logit, and no
    /// reduction. The cotangent `g` has one element, or with [`Reduction::None`] the shape of the targets.
    ///
    /// # Panics
    /// As [`Tensor::cross_entropy`], or if the sums or `g` have another number of rows.
    #[track_caller]
    pub fn cross_entropy_vjp_from<I: Integer>(
        &self,
        sums: &LogSums<T>,
        targets: &Tensor<I>,
        options: CrossEntropy,
        g: &Tensor<T>,
    ) -> Tensor<T> {
        let classes = options.check(self.shape(), targets, sums.weights.as_ref());
        let (rows, summed) = (targets.numel(), sums.max.numel());
        let of_rows = g.numel() == 1 || g.shape() == targets.shape();
        assert(rows == summed && of_rows, "cross_entropy_vjp", ErrorKind::Mismatch, || {
            format!("{rows} rows, but sums of {summed} and a gradient {:?}", g.shape())
        });
        let divisor = T::from_f64(classes.divisor);
        let scales: Vec<T> = g.to_vec().into_iter().map(|g| g / divisor).collect();
        let weights = sums.weights.as_ref().map(|w| w.as_slice());
        let op = CrossEntropyVjp {
            classes: &classes,
            weights,
            mean_weight: weights.map_or(T::ONE, |w| {
                T::from_f64(w.iter().map(|w| w.to_f64()).sum::<f64>() / w.len() as f64)
            }),
            max: sums.max.as_slice(),
            log_sum: sums.log_sum.as_slice(),
            smoothing: T::from_f64(options.label_smoothing),
            scales: &scales,
        };
        let logits = self.with_axis_last(options.axis);
        let dx = apply_row_kernel("cross_entropy_vjp", op, [&logits]);
        if options.axis == -1 {
            return dx;
        }
        let order = order(self.rank(), options.axis);
        let mut inverse = order.clone();
        (0..).zip(order).for_each(|(i, axis)| inverse[axis as usize] = i);
        dx.permute(inverse)
    }
}

/// All axes, with one of them, which exists, at the end.
fn order(rank: usize, axis: isize) -> Vec<isize> {
    let rank = rank as isize;
    let axis = if axis < 0 { rank + axis } else { axis };
    (0..rank).filter(|&i| i != axis).chain([axis]).collect()
}

/// The loss of logits `x`, for each row if their shape is given, and the log-sum-exps of the rows.
#[inline(never)]
fn losses<T: Real>(
    x: &Tensor<T>,
    classes: &Classes,
    weights: Option<&Tensor<T>>,
    smoothing: f64,
    each: Option<Shape>,
) -> (Tensor<T>, LogSums<T>) {
    let call = observe::begin();
    let (level, logits, rows) = (settings::level(), x.contiguous(), classes.rows());
    let weights = weights.map(Tensor::contiguous);
    let chunk = Cost::COSTLY.units_per_chunk(classes.classes);
    let mut losses = vec![0.0; rows.div_ceil(chunk)];
    let rows_kept = if each.is_some() { rows } else { 0 };
    let mut of_rows = reserved("cross_entropy", rows_kept).or_panic();
    of_rows.resize(rows_kept, T::ZERO);
    let (max, log_sum) = Tensor::build2("cross_entropy", [rows].into(), [rows].into(), |a, b| {
        let logits = logits.as_slice().chunks((chunk * classes.classes).max(1));
        let sums = a.chunks_mut(chunk).zip(b.chunks_mut(chunk));
        // As many parts as there are chunks, empty ones if the losses of rows are not requested.
        let of_rows = of_rows.chunks_mut(chunk).map(Some).chain(std::iter::repeat_with(|| None));
        let parts: Vec<_> =
            logits.zip(sums).zip(losses.iter_mut().zip(of_rows)).enumerate().collect();
        let in_chunk = chunk * classes.classes;
        par::each(
            parts,
            in_chunk,
            Cost::COSTLY,
            |(i, ((logits, (max, log_sum)), (loss, each)))| {
                let (first, weights) = (i * chunk, weights.as_ref().map(|w| w.as_slice()));
                let each = each.unwrap_or_default();
                let part =
                    Losses { logits, classes, weights, smoothing, first, max, log_sum, each };
                *loss = T::dispatch(level, part);
            },
        );
    });
    observe::end(call, || KernelCall {
        level: level_of::<T>(level),
        flops: logits.numel() as u64,
        written: max.distinct_bytes() + log_sum.distinct_bytes() + size_of_val(&of_rows[..]) as u64,
        ..logits.moved("cross_entropy", "rows", logits.distinct_bytes())
    });
    let loss = match each {
        Some(shape) => Tensor::from_vec(of_rows, shape),
        // Not `sum`, which is -0 of nothing.
        None => {
            let sum = losses.iter().fold(0.0, |sum, loss| sum + loss);
            Tensor::scalar(T::from_f64(sum / classes.divisor))
        }
    };
    (loss, LogSums { max, log_sum, weights })
}
