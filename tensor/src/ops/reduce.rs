//! Reductions. Axes are `-1`, `[0, 2]` or `..` for all; the `_keepdim` forms keep them with size 1,
//! the others remove them.

use crate::cost::Cost;
use crate::element::{Element, Integer};
use crate::error::{ErrorKind, OrPanic, Result, require};
use crate::formula::Expr;
use crate::kernels::elementwise::{Elementwise, formulas, zip_with};
use crate::kernels::reduce::{self, Reducer, reduce, reduce_lines, reduce_with};
use crate::kernels::reduce_terms::reduce_terms;
use crate::kernels::{Case, Number, Real, case, integers};
use crate::ops::mask::count;
use crate::par;
use crate::shape::{Axes, AxisSet, IntoShape, Shape};
use crate::simd::Lanes;
use crate::tensor::Tensor;

macro_rules! fold {
    ($name:ident, $init:expr, $step:ident, $lanes:ident, $Case:ident, $start:expr, $integers:expr) => {
        #[derive(Clone, Copy)]
        struct $name;

        /// The reduction over axes, with a name for errors.
        struct $Case<'a, T: Element>(&'static str, &'a Tensor<T>, AxisSet);

        case! {
            <T> $Case<'_, T> => Tensor<T>, |this|
            real reduce(this.0, $name, this.1, this.2),
            integer integers::fold(this.0, this.1, this.2, $start, $integers)
        }

        impl<T: Real> Reducer<T> for $name {
            fn init() -> T {
                $init
            }
            #[inline(always)]
            fn step<S: Lanes<T>>(self, s: S, acc: S::V, x: S::V) -> S::V {
                s.$step(acc, x)
            }
            #[inline(always)]
            fn combine<S: Lanes<T>>(self, s: S, a: S::V, b: S::V) -> S::V {
                s.$step(a, b)
            }
            #[inline(always)]
            fn lanes<S: Lanes<T>>(self, s: S, acc: S::V) -> T {
                s.$lanes(acc)
            }
        }
    };
}

/// The methods that keep the reduced axes with size 1.
macro_rules! keepdim {
    ($($keepdim:ident = $name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {$(
        #[doc = concat!("[`Tensor::", stringify!($name), "`], axes kept with size 1.")]
        #[track_caller]
        pub fn $keepdim(&self, axes: impl Axes, $($arg: $type),*) -> $out {
            let axes = axes.resolve(stringify!($name), self.shape()).or_panic();
            self.$name(axes, $($arg),*).reshape(self.shape().reduced(axes, true))
        }
    )*};
}

fold!(Sum, T::ZERO, add, sum, SumCase, Some(0), i128::checked_add);
fold!(Product, T::ONE, mul, product, ProductCase, Some(1), i128::checked_mul);
fold!(Max, T::NEG_INFINITY, max, max_lane, MaxCase, None, |a: i128, b| Some(a.max(b)));
fold!(Min, T::INFINITY, min, min_lane, MinCase, None, |a: i128, b| Some(a.min(b)));

// The terms of sums.
formulas! {
    Squared, MOVE, |x| x * x;
    Multiplied, MOVE, |x, y| x * y;
    Deviation, MOVE, |x, mean| x - mean;
    SquaredDeviation, CHEAP, |x, mean, rest| {
        let d = x - mean - rest;
        d * d
    };
    ExpDeviation, COSTLY, |x, max| (x - max).exp();
}

/// # Reductions
impl<T: Number> Tensor<T> {
    /// The sum over axes. An empty sum is 0. Blocked, with a relative error of about
    /// `log₂(n) · ε` for terms of one sign, and the same for any layout and any number of
    /// threads.
    ///
    /// # Panics
    /// If a sum of integers does not fit their type.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.sum(..).item(), 10.0);
    /// assert_eq!(x.sum(0).to_vec(), [4.0, 6.0]);
    /// assert_eq!(x.sum_keepdim(-1).shape(), &retrograd::tensor::Shape::from([2, 1]));
    /// ```
    #[track_caller]
    pub fn sum(&self, axes: impl Axes) -> Tensor<T> {
        T::case(SumCase("sum", self, axes.resolve("sum", self.shape()).or_panic()))
    }

    /// The product over axes. An empty product is 1.
    #[track_caller]
    pub fn prod(&self, axes: impl Axes) -> Tensor<T> {
        T::case(ProductCase("prod", self, axes.resolve("prod", self.shape()).or_panic()))
    }

    /// The maximum over axes; NaN if an element is NaN.
    ///
    /// # Panics
    /// If a reduced axis is empty.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1.0f32, 2.0], [3.0, f32::NAN]]);
    /// assert_eq!(x.max(0).at(&[0]), 3.0);
    /// assert!(x.max(..).item().is_nan());
    /// ```
    #[track_caller]
    pub fn max(&self, axes: impl Axes) -> Tensor<T> {
        let axes = self.axes_of_extremum("max", axes);
        T::case(MaxCase("max", self, axes))
    }

    /// As [`Tensor::max`] for the smallest element.
    #[track_caller]
    pub fn min(&self, axes: impl Axes) -> Tensor<T> {
        let axes = self.axes_of_extremum("min", axes);
        T::case(MinCase("min", self, axes))
    }

    #[track_caller]
    fn axes_of_extremum(&self, op: &'static str, axes: impl Axes) -> AxisSet {
        let axes = axes.resolve(op, self.shape()).or_panic();
        if self.shape().reduced(axes, false).numel() > 0 {
            reduce::check_not_empty(op, self.shape(), axes);
        }
        axes
    }

    /// Index of the largest element over axes: the first of equals, and the first NaN if there
    /// is one. Over several axes, the row-major index within them.
    ///
    /// # Panics
    /// If a reduced axis is empty.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1.0f32, 7.0, 7.0], [9.0, 2.0, 3.0]]);
    /// assert_eq!(x.argmax(-1).to_vec(), [1, 0]);
    /// ```
    #[track_caller]
    pub fn argmax(&self, axes: impl Axes) -> Tensor<i64> {
        let axes = axes.resolve("argmax", self.shape()).or_panic();
        reduce_lines("argmax", self, axes, |line| best(line, |new, old| new > old))
    }

    /// As [`Tensor::argmax`] for the smallest element.
    #[track_caller]
    pub fn argmin(&self, axes: impl Axes) -> Tensor<i64> {
        let axes = axes.resolve("argmin", self.shape()).or_panic();
        reduce_lines("argmin", self, axes, |line| best(line, |new, old| new < old))
    }

    /// The sum of the main diagonal of the last two axes.
    ///
    /// # Panics
    /// If there are fewer than two axes, or a sum of integers does not fit their type.
    #[track_caller]
    pub fn trace(&self) -> Tensor<T> {
        let diagonal = self.view_by(|layout| layout.diagonal("trace", -2, -1, 0));
        diagonal.sum(-1)
    }

    keepdim! {
        sum_keepdim = sum() -> Tensor<T>;
        prod_keepdim = prod() -> Tensor<T>;
        max_keepdim = max() -> Tensor<T>;
        min_keepdim = min() -> Tensor<T>;
        argmax_keepdim = argmax() -> Tensor<i64>;
        argmin_keepdim = argmin() -> Tensor<i64>;
    }

    /// The number of elements that a reduction over `axes` combines to one.
    pub fn count(&self, axes: AxisSet) -> usize {
        axes.iter().map(|i| self.shape()[i]).product()
    }
}

/// # Reductions of floats
impl<T: Real> Tensor<T> {
    /// The mean over axes. The mean of no elements is NaN.
    #[track_caller]
    pub fn mean(&self, axes: impl Axes) -> Tensor<T> {
        let axes = axes.resolve("mean", self.shape()).or_panic();
        reduce("mean", Sum, self, axes) / T::from_f64(self.count(axes) as f64)
    }

    /// The variance over axes, `Σ(x - mean)² / (n - correction)`, from deviations and so accurate
    /// for a large mean. `correction` 1 is the unbiased estimate (PyTorch's default), 0 that
    /// of the whole population. Non-finite if `n <= correction`. It overflows to infinity and vanishes where
    /// the result itself does, as of 1e20 and 1e-30 in `f32`; [`Tensor::std`] does not.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([1.0f32, 2.0, 3.0]);
    /// assert_eq!(x.var(.., 1).item(), 1.0); // unbiased
    /// assert_eq!(x.var(.., 0).item(), 2.0 / 3.0);
    /// ```
    #[track_caller]
    pub fn var(&self, axes: impl Axes, correction: usize) -> Tensor<T> {
        let (var, scales) = self.variance("var", axes, correction);
        var.unscaled(&scales).unscaled(&scales)
    }

    /// The standard deviation over axes: the root of [`Tensor::var`], of elements of any size.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([1.0f32, 3.0]);
    /// assert_eq!(x.std(.., 0).item(), 1.0);
    /// assert_eq!(Tensor::from([1e30f32, -1e30]).std(.., 0).item(), 1e30); // the squares overflow
    /// ```
    #[track_caller]
    pub fn std(&self, axes: impl Axes, correction: usize) -> Tensor<T> {
        let (var, scales) = self.variance("std", axes, correction);
        var.sqrt().unscaled(&scales)
    }

    /// The variance of the elements times these [scales](Tensor::scales_of_powers).
    #[track_caller]
    fn variance(
        &self,
        op: &'static str,
        axes: impl Axes,
        correction: usize,
    ) -> (Tensor<T>, Option<Tensor<T>>) {
        let axes = axes.resolve(op, self.shape()).or_panic();
        let squares = |x: &Tensor<T>| x.squared_deviations(op, axes);
        let (sums, scales) = self.sums_of_powers(op, axes, 32, squares);
        let n = self.count(axes).saturating_sub(correction);
        (sums / T::from_f64(n as f64), scales)
    }

    /// `Σ(x - mean)²` over axes.
    #[doc(hidden)]
    #[track_caller]
    pub fn squared_deviations(&self, op: &'static str, axes: AxisSet) -> Tensor<T> {
        let kept = self.shape().reduced(axes, true);
        let mean_of = |sum: Tensor<T>| (sum / T::from_f64(self.count(axes) as f64)).reshape(kept);
        let mean = mean_of(reduce(op, Sum, self, axes));
        // The mean of large numbers has a rounding error: the mean of the deviations.
        let rest = mean_of(reduce_terms(op, Sum, Deviation, [self, &mean], axes));
        reduce_terms(op, Sum, SquaredDeviation, [self, &mean, &rest], axes)
    }

    /// Sums over axes of powers of the elements; where such a sum overflows or vanishes, of the elements times
    /// the [scales](Tensor::scales_of_powers), which are returned.
    #[track_caller]
    pub(crate) fn sums_of_powers(
        &self,
        op: &'static str,
        axes: AxisSet,
        toward: i32,
        sums: impl Fn(&Tensor<T>) -> Tensor<T>,
    ) -> (Tensor<T>, Option<Tensor<T>>) {
        let plain = sums(self);
        match self.scales_of_powers(op, &plain, axes, toward) {
            None => (plain, None),
            Some(scales) => (sums(&self.mul(&scales)), Some(scales)),
        }
    }

    /// A result of elements times scales, divided by these.
    pub(crate) fn unscaled(self, scales: &Option<Tensor<T>>) -> Tensor<T> {
        scales.as_ref().map_or(self.clone(), |scales| self.div(&scales.reshape(self.shape())))
    }

    /// Powers of two by which elements are multiplied before powers of them are added over `axes`; `None` if
    /// all are 1. A scale is 1 where the sum without it, of `sums`, has neither overflowed nor vanished. Else
    /// the exponent of the largest element becomes at most `±toward`. A product with a power of two is exact,
    /// so sums that were exact keep their bits.
    #[doc(hidden)]
    #[track_caller]
    pub fn scales_of_powers(
        &self,
        op: &'static str,
        sums: &Tensor<T>,
        axes: AxisSet,
        toward: i32,
    ) -> Option<Tensor<T>> {
        // Below, terms may have been rounded to subnormal numbers.
        let least = T::MIN_POSITIVE / T::EPSILON;
        let is_exact = move |sum: T| (sum >= least) & (sum <= T::MAX);
        let sums = sums.contiguous();
        if sums.as_slice().iter().fold(true, |all, &sum| all & is_exact(sum)) {
            return None;
        }
        let kept = self.shape().reduced(axes, true);
        let tops = reduce(op, Max, &self.abs(), axes).reshape(kept);
        let scales = zip_with(op, &tops, &sums.reshape(kept), move |top, sum| {
            let is_kept = is_exact(sum) || top == T::ZERO || !top.to_f64().is_finite();
            let e = if is_kept { 0 } else { exponent(top) };
            let most = -exponent(T::MIN_POSITIVE);
            power_of_two((e.clamp(-toward, toward) - e).clamp(-most, most))
        });
        scales.as_slice().iter().any(|&scale| scale != T::ONE).then_some(scales)
    }

    /// `ln Σ eˣ` over axes, without overflow. Of no elements it is -inf.
    #[track_caller]
    pub fn logsumexp(&self, axes: impl Axes) -> Tensor<T> {
        let axes = axes.resolve("logsumexp", self.shape()).or_panic();
        // An infinite maximum is not subtracted: inf - inf is NaN.
        let max = finite_or_zero(&reduce("logsumexp", Max, self, axes));
        let kept = self.shape().reduced(axes, true);
        let terms = [self, &max.reshape(kept)];
        reduce_terms("logsumexp", Sum, ExpDeviation, terms, axes).ln().add(&max)
    }

    /// The inner product of two vectors of equal length.
    #[track_caller]
    pub(super) fn sum_of_products(&self, other: &Tensor<T>) -> Tensor<T> {
        reduce_terms("dot", Sum, Multiplied, [self, other], AxisSet::all(1))
    }

    /// The Euclidean norm over axes, `√Σx²`; [`Tensor::vector_norm`] takes other exponents.
    #[track_caller]
    pub fn norm(&self, axes: impl Axes) -> Tensor<T> {
        self.norm_and_scales(axes.resolve("norm", self.shape()).or_panic()).0
    }

    /// The norm, and the [scales](Tensor::scales_of_powers) that it needed.
    #[doc(hidden)]
    #[track_caller]
    pub fn norm_and_scales(&self, axes: AxisSet) -> (Tensor<T>, Option<Tensor<T>>) {
        let squares = |x: &Tensor<T>| reduce_terms("norm", Sum, Squared, [x], axes);
        let (sums, scales) = self.sums_of_powers("norm", axes, 0, squares);
        (sums.sqrt().unscaled(&scales), scales)
    }

    keepdim! {
        mean_keepdim = mean() -> Tensor<T>;
        var_keepdim = var(correction: usize) -> Tensor<T>;
        std_keepdim = std(correction: usize) -> Tensor<T>;
        logsumexp_keepdim = logsumexp() -> Tensor<T>;
        norm_keepdim = norm() -> Tensor<T>;
    }

    /// The adjoint of [`Tensor::broadcast_to`], `sum_to_size` in PyTorch: sums over the axes that were
    /// broadcast, so that the result has `shape`.
    ///
    /// # Panics
    /// If `shape` does not broadcast to the shape of `self`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.sum_to([2, 1]).to_vec(), [3.0, 7.0]);
    /// ```
    #[track_caller]
    pub fn sum_to(&self, shape: impl IntoShape) -> Tensor<T> {
        let shape = shape.into();
        if *self.shape() == shape {
            return self.clone();
        }
        let missing = missing_axes(&shape, self.shape()).or_panic();
        let gone = |i: usize| i < missing || shape[i - missing] != self.shape()[i];
        let axes = (0..self.rank()).filter(|&i| gone(i)).fold(AxisSet::EMPTY, AxisSet::insert);
        reduce("sum_to", Sum, self, axes).reshape(shape)
    }
}

/// `⌊log₂ x⌋` of a positive normal number.
pub(crate) fn exponent<T: Real>(x: T) -> i32 {
    (x.to_f64().to_bits() >> 52) as i32 - 1023
}

/// `2ⁿ`, where that is a normal number of `f64`.
pub(crate) fn power_of_two<T: Real>(n: i32) -> T {
    T::from_f64(f64::from_bits(((n + 1023) as u64) << 52))
}

/// The number of leading axes that broadcasting `small` to `large` adds.
fn missing_axes(small: &Shape, large: &Shape) -> Result<usize> {
    let missing = large.rank().checked_sub(small.rank());
    let fits = missing
        .is_some_and(|m| small.iter().zip(&large[m..]).all(|(&to, &from)| to == from || to == 1));
    require(fits, "sum_to", ErrorKind::Broadcast, || {
        format!("{small:?} does not broadcast to {large:?}")
    })?;
    Ok(missing.unwrap_or(0))
}

/// `x` with infinities and NaN replaced by 0.
fn finite_or_zero<T: Real>(x: &Tensor<T>) -> Tensor<T> {
    crate::kernels::elementwise::map_with("logsumexp", x, |v| {
        if v.to_f64().is_finite() { v } else { T::ZERO }
    })
}

/// The first index of the largest element by the order `is_better`; the first NaN if there is one.
fn best<T: Element>(line: &[T], is_better: impl Fn(T, T) -> bool) -> i64 {
    // The compiler vectorises these loops.
    const LANES: usize = 32;
    let (mut lanes, mut has_nan) = ([line[0]; LANES], false);
    for part in line.chunks(LANES) {
        for (best, &x) in lanes.iter_mut().zip(part) {
            *best = if is_better(x, *best) { x } else { *best };
            has_nan |= is_nan(x);
        }
    }
    let best = lanes.into_iter().fold(line[0], |a, b| if is_better(b, a) { b } else { a });
    let is_found = |&x: &T| if has_nan { is_nan(x) } else { x == best };
    let among = |part: &[T]| part.iter().fold(false, |any, x| any | is_found(x));
    let at = line.chunks(LANES).position(among).unwrap_or(0) * LANES;
    (at + line[at..].iter().position(is_found).unwrap_or(0)) as i64
}

/// NaN is the only number that differs from itself.
#[allow(clippy::eq_op)]
fn is_nan<T: Element>(x: T) -> bool {
    x != x
}

/// # Reductions
impl Tensor<bool> {
    /// Whether any element over axes is true. Of no elements it is false.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[true, false], [false, false]]);
    /// assert_eq!(x.any(-1).to_vec(), [true, false]);
    /// ```
    #[track_caller]
    pub fn any(&self, axes: impl Axes) -> Tensor<bool> {
        reduce_with("any", self, axes, false, |mut line| Iterator::any(&mut line, |b| b))
    }

    /// Whether all elements over axes are true. Of no elements it is true.
    #[track_caller]
    pub fn all(&self, axes: impl Axes) -> Tensor<bool> {
        reduce_with("all", self, axes, false, |mut line| Iterator::all(&mut line, |b| b))
    }

    keepdim! {
        any_keepdim = any() -> Tensor<bool>;
        all_keepdim = all() -> Tensor<bool>;
    }

    /// The number of true elements.
    #[track_caller]
    pub fn count_true(&self) -> usize {
        let x = self.contiguous();
        let chunk = Cost::MOVE.chunk_len();
        let parts: Vec<&[bool]> = x.as_slice().chunks(chunk).collect();
        par::map(parts.len(), chunk, Cost::MOVE, |i| count(parts[i])).iter().sum()
    }
}
