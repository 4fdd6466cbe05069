//! Layer normalisation and RMS normalisation along the last axis, with their VJPs.

use crate::cost::Cost;
use crate::error::{ErrorKind, OrPanic, Result, require};
use crate::formula::Expr;
use crate::kernels::Real;
use crate::kernels::rows::{
    ColumnKernel, RowKernel, apply_column_kernel, apply_row_kernel, fold_rows, map_row, splat,
    sum_rows, write_rows,
};
use crate::ops::reduce::{exponent, power_of_two};
use crate::shape::Shape;
use crate::simd::{Lanes, inlined};
use crate::tensor::Tensor;

/// `y = (x - mean) / √(var + eps) · weight + bias`
#[derive(Clone, Copy)]
struct LayerNorm<'a, T> {
    weight: Option<&'a [T]>,
    bias: Option<&'a [T]>,
    eps: T,
}

impl<T: Real> RowKernel<T, 1> for LayerNorm<'_, T> {
    const COST: Cost = Cost::CHEAP;
    #[inline(always)]
    fn row<S: Lanes<T>>(self, s: S, _: usize, [x]: [&[T]; 1], out: &mut [T]) {
        let m = moments(s, x, self.eps);
        let m = m.splat(s);
        match (self.weight, self.bias) {
            (Some(w), Some(b)) => {
                map_row(s, [x, w, b], out, inlined!(|[x, w, b]| m.hat(x).mul_add(w, b)))
            }
            (Some(w), None) => map_row(s, [x, w], out, inlined!(|[x, w]| m.hat(x) * w)),
            (None, Some(b)) => map_row(s, [x, b], out, inlined!(|[x, b]| m.hat(x) + b)),
            (None, None) => map_row(s, [x], out, inlined!(|[x]| m.hat(x))),
        }
    }
}

/// With `h = g · weight` and `x̂ = (x - mean) · r`: `dx = r · (h - mean(h) - x̂ · mean(h·x̂))`;
/// columns: `Σ g · x̂` and `Σ g`.
#[derive(Clone, Copy)]
struct LayerNormVjp<'a, T> {
    weight: &'a [T],
    eps: T,
}

impl<T: Real> ColumnKernel<T, 2, 2> for LayerNormVjp<'_, T> {
    const COST: Cost = Cost::CHEAP;
    #[inline(always)]
    fn row<S: Lanes<T>>(self, s: S, [x, g]: [&[T]; 2], out: &mut [T], columns: &mut [&mut [T]; 2]) {
        let Self { weight, eps } = self;
        let m = moments(s, x, eps);
        let m = m.splat(s);
        let zero = splat(s, T::ZERO);
        let (sum, dot) = fold_rows(
            s,
            [x, g, weight],
            [T::ZERO; 3],
            (zero, zero),
            inlined!(|(sum, dot), [x, g, w]| {
                let h = g * w;
                (sum + h, h.mul_add(m.hat(x), dot))
            }),
            inlined!(|a, b| (a.0 + b.0, a.1 + b.1)),
        );
        let per = T::ONE / T::from_f64(x.len() as f64);
        let mean_h = splat(s, s.sum(sum.value()) * per);
        let mean_dot = splat(s, s.sum(dot.value()) * per);
        let [d_weight, d_bias] = columns;
        write_rows(
            s,
            [x, g, weight],
            [out, d_weight, d_bias],
            inlined!(|[x, g, w], [_, d_weight, d_bias]| {
                let hat = m.hat(x);
                let dx = m.scale * (g * w - mean_h - hat * mean_dot);
                [dx, g.mul_add(hat, d_weight), d_bias + g]
            }),
        );
    }
}

/// `y = x / √(mean(x²) + eps) · weight`
#[derive(Clone, Copy)]
struct RmsNorm<'a, T> {
    weight: Option<&'a [T]>,
    eps: T,
}

impl<T: Real> RowKernel<T, 1> for RmsNorm<'_, T> {
    const COST: Cost = Cost::CHEAP;
    #[inline(always)]
    fn row<S: Lanes<T>>(self, s: S, _: usize, [x]: [&[T]; 1], out: &mut [T]) {
        let scale = splat(s, rms_scale(s, x, self.eps));
        match self.weight {
            Some(w) => map_row(s, [x, w], out, inlined!(|[x, w]| x * scale * w)),
            None => map_row(s, [x], out, inlined!(|[x]| x * scale)),
        }
    }
}

/// With `h = g · weight` and `x̂ = x · r`: `dx = r · (h - x̂ · mean(h·x̂))`; column: `Σ g · x̂`.
#[derive(Clone, Copy)]
struct RmsNormVjp<'a, T> {
    weight: &'a [T],
    eps: T,
}

impl<T: Real> ColumnKernel<T, 2, 1> for RmsNormVjp<'_, T> {
    const COST: Cost = Cost::CHEAP;
    #[inline(always)]
    fn row<S: Lanes<T>>(self, s: S, [x, g]: [&[T]; 2], out: &mut [T], columns: &mut [&mut [T]; 1]) {
        let Self { weight, eps } = self;
        let r = splat(s, rms_scale(s, x, eps));
        let dot = sum_rows(s, [x, g, weight], [T::ZERO; 3], inlined!(|[x, g, w]| g * w * (x * r)));
        let mean_dot = splat(s, dot / T::from_f64(x.len() as f64));
        let [d_weight] = columns;
        write_rows(
            s,
            [x, g, weight],
            [out, d_weight],
            inlined!(|[x, g, w], [_, d_weight]| {
                let hat = x * r;
                let dx = r * (g * w - hat * mean_dot);
                [dx, g.mul_add(hat, d_weight)]
            }),
        );
    }
}

/// `x̂ = (x - mean) · scale + shift`. The mean of large numbers has a rounding error; the shift,
/// the scaled mean of the deviations, corrects it.
struct Moments<T> {
    mean: T,
    scale: T,
    shift: T,
}

impl<T: Real> Moments<T> {
    /// The same values in every lane of a vector.
    #[inline(always)]
    fn splat<S: Lanes<T>>(self, s: S) -> Moments<Expr<T, S>> {
        Moments {
            mean: splat(s, self.mean),
            scale: splat(s, self.scale),
            shift: splat(s, self.shift),
        }
    }
}

impl<T: Real, S: Lanes<T>> Moments<Expr<T, S>> {
    /// `x̂`
    #[inline(always)]
    fn hat(&self, x: Expr<T, S>) -> Expr<T, S> {
        (x - self.mean).mul_add(self.scale, self.shift)
    }
}

/// Mean of a row and `1 / √(var + eps)`, from deviations.
#[inline(always)]
fn moments<T: Real, S: Lanes<T>>(s: S, x: &[T], eps: T) -> Moments<T> {
    let n = T::from_f64(x.len() as f64);
    let sum = sum_rows(s, [x], [T::ZERO], inlined!(|[v]| v));
    let mean = sum / n;
    let m = splat(s, mean);
    let zero = splat(s, T::ZERO);
    let (sum, squares) = fold_rows(
        s,
        [x],
        [mean],
        (zero, zero),
        inlined!(|(sum, squares), [v]| {
            let d = v - m;
            (sum + d, d.mul_add(d, squares))
        }),
        inlined!(|a, b| (a.0 + b.0, a.1 + b.1)),
    );
    let mean_error = s.sum(sum.value()) / n;
    // Rounding could make the variance negative.
    let var = s.sum(squares.value()) / n - mean_error * mean_error;
    let var = if var < T::ZERO { T::ZERO } else { var };
    if !is_exact(var + eps) {
        let (exact_mean, scale) = exact_moments(x, eps, true);
        let mean = T::from_f64(exact_mean);
        let shift = T::from_f64((mean.to_f64() - exact_mean) * scale);
        return Moments { mean, scale: T::from_f64(scale), shift };
    }
    let scale = inverse_root(var + eps);
    Moments { mean, scale, shift: -mean_error * scale }
}

#[inline(always)]
fn rms_scale<T: Real, S: Lanes<T>>(s: S, x: &[T], eps: T) -> T {
    let squares = sum_rows(s, [x], [T::ZERO], inlined!(|[v]| v * v));
    let mean_square = squares / T::from_f64(x.len() as f64) + eps;
    match is_exact(mean_square) {
        true => inverse_root(mean_square),
        false => T::from_f64(exact_moments(x, eps, false).1),
    }
}

/// Whether a mean of squares has not overflowed, and none of them was rounded to a subnormal number that
/// matters.
#[inline]
fn is_exact<T: Real>(mean_square: T) -> bool {
    mean_square >= T::MIN_POSITIVE * T::from_f64(64.0) && mean_square <= T::MAX
}

/// The mean of a row, which is 0 if it is not centred, and `1 / √(var + eps)`, in f64 and relative to a power
/// of two, so that squares neither overflow nor vanish.
#[cold]
#[inline(never)]
fn exact_moments<T: Real>(x: &[T], eps: T, is_centred: bool) -> (f64, f64) {
    let top = x.iter().fold(0.0, |top, x| x.to_f64().abs().max(top));
    let is_usual = top == 0.0 || top == f64::INFINITY;
    let scale = if is_usual { 1.0 } else { power_of_two((-exponent(top)).clamp(-1022, 1022)) };
    let mean = |f: &dyn Fn(f64) -> f64| {
        x.iter().map(|x| f(x.to_f64() * scale)).sum::<f64>() / x.len() as f64
    };
    let centre = if is_centred { mean(&|x| x) } else { 0.0 };
    let square = mean(&|x| (x - centre) * (x - centre)) + eps.to_f64() * scale * scale;
    (centre / scale, scale / square.sqrt())
}

/// `1 / √x`, computed in f64 since it is once per row.
#[inline]
fn inverse_root<T: Real>(x: T) -> T {
    T::from_f64(1.0 / x.to_f64().sqrt())
}

/// `eps`, which keeps the root of a normalisation away from 0, in `T`.
fn epsilon<T: Real>(op: &'static str, eps: f64) -> Result<T> {
    let rounded = T::from_f64(eps); // may overflow
    let valid = eps >= 0.0 && rounded.to_f64().is_finite();
    require(valid, op, ErrorKind::Value, || {
        format!("eps must be finite and at least 0, got {eps}")
    })?;
    Ok(rounded)
}

/// The rule about a weight or bias of a normalisation.
fn check_parameter<T: Real>(
    op: &'static str,
    name: &str,
    x: &Shape,
    parameter: Option<&Tensor<T>>,
) -> Result<()> {
    require(x.rank() > 0, op, ErrorKind::Rank, || "needs an axis to normalise, got rank 0".into())?;
    let (width, Some(parameter)) = (x[x.rank() - 1], parameter) else { return Ok(()) };
    require(*parameter.shape() == [width], op, ErrorKind::Mismatch, || {
        let shape = parameter.shape();
        format!("{name} has shape {shape:?}, the last axis of {x:?} needs [{width}]")
    })
}

/// A weight or bias of a normalisation, checked and contiguous.
#[track_caller]
fn parameter<T: Real>(
    op: &'static str,
    name: &str,
    x: &Tensor<T>,
    parameter: Option<&Tensor<T>>,
) -> Option<Tensor<T>> {
    check_parameter(op, name, x.shape(), parameter).or_panic();
    parameter.map(Tensor::contiguous)
}

/// The weight of a VJP: ones if there is none.
#[track_caller]
fn parameter_or_ones<T: Real>(
    op: &'static str,
    x: &Tensor<T>,
    weight: Option<&Tensor<T>>,
) -> Tensor<T> {
    match parameter(op, "weight", x, weight) {
        Some(weight) => weight,
        None => Tensor::ones([x.size(-1)]),
    }
}

/// # Normalisation
impl<T: Real> Tensor<T> {
    /// `(x - mean) / √(var + eps) · weight + bias` over the last axis, with the variance of
    /// the population (divided by n). `weight` and `bias` have the shape of that axis.
    ///
    /// Ba, Kiros, Hinton 2016 (arXiv 1607.06450).
    ///
    /// # Panics
    /// If `self` has rank 0, a parameter has another shape, or `eps` is negative or not finite.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1.0f64, 3.0], [5.0, 5.0]]);
    /// assert_eq!(x.layer_norm(None, None, 1e-300).to_vec(), [-1.0, 1.0, 0.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn layer_norm(
        &self,
        weight: Option<&Tensor<T>>,
        bias: Option<&Tensor<T>>,
        eps: f64,
    ) -> Tensor<T> {
        let weight = parameter("layer_norm", "weight", self, weight);
        let bias = parameter("layer_norm", "bias", self, bias);
        let op = LayerNorm {
            weight: weight.as_ref().map(|w| w.as_slice()),
            bias: bias.as_ref().map(|b| b.as_slice()),
            eps: epsilon("layer_norm", eps).or_panic(),
        };
        apply_row_kernel("layer_norm", op, [self])
    }

    /// VJPs of [`Tensor::layer_norm`] with respect to its input, the weight and the bias, in one
    /// pass over the rows.
    ///
    /// # Panics
    /// As [`Tensor::layer_norm`], or if `g` has another shape.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (x, g) = (Tensor::from([[1.0f64, 3.0]]), Tensor::ones([1, 2]));
    /// let (dx, _, d_bias) = x.layer_norm_vjps(None, 1e-5, &g);
    /// assert!(dx.abs().max(..).item() < 1e-12); // a constant gradient has no effect
    /// assert_eq!(d_bias.to_vec(), [1.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn layer_norm_vjps(
        &self,
        weight: Option<&Tensor<T>>,
        eps: f64,
        g: &Tensor<T>,
    ) -> (Tensor<T>, Tensor<T>, Tensor<T>) {
        let weight = parameter_or_ones("layer_norm", self, weight);
        let eps = epsilon("layer_norm", eps).or_panic();
        let op = LayerNormVjp { weight: weight.as_slice(), eps };
        let (x, [weight, bias]) = apply_column_kernel("layer_norm_vjp", op, [self, g]);
        (x, weight, bias)
    }

    /// `x / √(mean(x²) + eps) · weight` over the last axis.
    ///
    /// Zhang, Sennrich 2019 (arXiv 1910.07467).
    ///
    /// # Panics
    /// If `self` has rank 0, the weight has another shape, or `eps` is negative or not finite.
    #[track_caller]
    pub fn rms_norm(&self, weight: Option<&Tensor<T>>, eps: f64) -> Tensor<T> {
        let weight = parameter("rms_norm", "weight", self, weight);
        let weight = weight.as_ref().map(|w| w.as_slice());
        apply_row_kernel(
            "rms_norm",
            RmsNorm { weight, eps: epsilon("rms_norm", eps).or_panic() },
            [self],
        )
    }

    /// VJPs of [`Tensor::rms_norm`] with respect to its input and the weight, in one pass over the
    /// rows.
    ///
    /// # Panics
    /// As [`Tensor::rms_norm`], or if `g` has another shape.
    #[track_caller]
    pub fn rms_norm_vjps(
        &self,
        weight: Option<&Tensor<T>>,
        eps: f64,
        g: &Tensor<T>,
    ) -> (Tensor<T>, Tensor<T>) {
        let weight = parameter_or_ones("rms_norm", self, weight);
        let eps = epsilon("rms_norm", eps).or_panic();
        let op = RmsNormVjp { weight: weight.as_slice(), eps };
        let (x, [weight]) = apply_column_kernel("rms_norm_vjp", op, [self, g]);
        (x, weight)
    }
}
