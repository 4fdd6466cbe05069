//! Normalisation along the last axis, with VJPs.

use crate::drive::rows::{RowKernel, fold_row, map_row, rows};
use crate::par::Cost;
use crate::simd::{Lanes, Real};
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
        let (mean, scale, shift) = (s.splat(m.mean), s.splat(m.scale), s.splat(m.shift));
        let hat = |x| s.fma(s.sub(x, mean), scale, shift);
        match (self.weight, self.bias) {
            (Some(w), Some(b)) => map_row(
                s,
                [x, w, b],
                out,
                #[inline(always)]
                |[x, w, b]| s.fma(hat(x), w, b),
            ),
            (Some(w), None) => map_row(
                s,
                [x, w],
                out,
                #[inline(always)]
                |[x, w]| s.mul(hat(x), w),
            ),
            (None, Some(b)) => map_row(
                s,
                [x, b],
                out,
                #[inline(always)]
                |[x, b]| s.add(hat(x), b),
            ),
            (None, None) => map_row(
                s,
                [x],
                out,
                #[inline(always)]
                |[x]| hat(x),
            ),
        }
    }
}

/// With `h = g · weight` and `x̂ = (x - mean) · r`: `dx = r · (h - mean(h) - x̂ · mean(h·x̂))`
#[derive(Clone, Copy)]
struct LayerNormVjp<'a, T> {
    weight: Option<&'a [T]>,
    eps: T,
}

impl<T: Real> RowKernel<T, 2> for LayerNormVjp<'_, T> {
    const COST: Cost = Cost::CHEAP;
    #[inline(always)]
    fn row<S: Lanes<T>>(self, s: S, _: usize, [x, g]: [&[T]; 2], out: &mut [T]) {
        let m = moments(s, x, self.eps);
        let (mean, r, shift) = (s.splat(m.mean), s.splat(m.scale), s.splat(m.shift));
        let per = s.splat(T::ONE / T::from_f64(x.len() as f64));
        weighted(s, g, self.weight, out);
        let mean_h = s.mul(s.splat(row_sum(s, out)), per);
        let dot = dot(
            s,
            out,
            x,
            #[inline(always)]
            |x| s.fma(s.sub(x, mean), r, shift),
        );
        let mean_dot = s.mul(s.splat(dot), per);
        finish(
            s,
            x,
            out,
            #[inline(always)]
            |x, h| {
                let hat = s.fma(s.sub(x, mean), r, shift);
                s.mul(r, s.sub(s.sub(h, mean_h), s.mul(hat, mean_dot)))
            },
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
        let scale = s.splat(rms_scale(s, x, self.eps));
        match self.weight {
            Some(w) => map_row(
                s,
                [x, w],
                out,
                #[inline(always)]
                |[x, w]| s.mul(s.mul(x, scale), w),
            ),
            None => map_row(
                s,
                [x],
                out,
                #[inline(always)]
                |[x]| s.mul(x, scale),
            ),
        }
    }
}

/// With `h = g · weight` and `x̂ = x · r`: `dx = r · (h - x̂ · mean(h·x̂))`
#[derive(Clone, Copy)]
struct RmsNormVjp<'a, T> {
    weight: Option<&'a [T]>,
    eps: T,
}

impl<T: Real> RowKernel<T, 2> for RmsNormVjp<'_, T> {
    const COST: Cost = Cost::CHEAP;
    #[inline(always)]
    fn row<S: Lanes<T>>(self, s: S, _: usize, [x, g]: [&[T]; 2], out: &mut [T]) {
        let r = s.splat(rms_scale(s, x, self.eps));
        let per = s.splat(T::ONE / T::from_f64(x.len() as f64));
        weighted(s, g, self.weight, out);
        let mean_dot = s.mul(
            s.splat(dot(
                s,
                out,
                x,
                #[inline(always)]
                |x| s.mul(x, r),
            )),
            per,
        );
        finish(
            s,
            x,
            out,
            #[inline(always)]
            |x, h| s.mul(r, s.sub(h, s.mul(s.mul(x, r), mean_dot))),
        );
    }
}

#[inline(always)]
fn row_sum<T: Real, S: Lanes<T>>(s: S, x: &[T]) -> T {
    s.sum(fold_row(
        s,
        x,
        T::ZERO,
        s.splat(T::ZERO),
        #[inline(always)]
        |acc, v| s.add(acc, v),
    ))
}

/// `x̂ = (x - mean) · scale + shift`. The mean of large numbers is itself rounded; the shift,
/// the scaled mean of the deviations, says by how much.
struct Moments<T> {
    mean: T,
    scale: T,
    shift: T,
}

/// Mean of a row and `1 / √(var + eps)`, from deviations.
#[inline(always)]
fn moments<T: Real, S: Lanes<T>>(s: S, x: &[T], eps: T) -> Moments<T> {
    let n = T::from_f64(x.len() as f64);
    let mean = row_sum(s, x) / n;
    let m = s.splat(mean);
    let zero = s.splat(T::ZERO);
    let (sum, squares) = fold_row(
        s,
        x,
        mean,
        (zero, zero),
        #[inline(always)]
        |(sum, squares), v| {
            let d = s.sub(v, m);
            (s.add(sum, d), s.fma(d, d, squares))
        },
    );
    let off = s.sum(sum) / n;
    // Rounding must not make it negative.
    let var = s.sum(squares) / n - off * off;
    let var = if var < T::ZERO { T::ZERO } else { var };
    let scale = inverse_root(var + eps);
    Moments { mean, scale, shift: -off * scale }
}

#[inline(always)]
fn rms_scale<T: Real, S: Lanes<T>>(s: S, x: &[T], eps: T) -> T {
    let squares = fold_row(
        s,
        x,
        T::ZERO,
        s.splat(T::ZERO),
        #[inline(always)]
        |acc, v| s.fma(v, v, acc),
    );
    inverse_root(s.sum(squares) / T::from_f64(x.len() as f64) + eps)
}

/// `1 / √x`, through f64: once per row.
fn inverse_root<T: Real>(x: T) -> T {
    T::from_f64(1.0 / x.to_f64().sqrt())
}

/// `out = g · weight`
#[inline(always)]
fn weighted<T: Real, S: Lanes<T>>(s: S, g: &[T], weight: Option<&[T]>, out: &mut [T]) {
    match weight {
        Some(w) => map_row(
            s,
            [g, w],
            out,
            #[inline(always)]
            |[g, w]| s.mul(g, w),
        ),
        None => out.copy_from_slice(g),
    }
}

/// `Σ h · hat(x)`
#[inline(always)]
fn dot<T: Real, S: Lanes<T>>(s: S, h: &[T], x: &[T], hat: impl Fn(S::V) -> S::V) -> T {
    let full = x.len() / S::N * S::N;
    let (mut acc, mut i) = (s.splat(T::ZERO), 0);
    while i < full {
        acc = s.fma(s.load(&h[i..]), hat(s.load(&x[i..])), acc);
        i += S::N;
    }
    if full < x.len() {
        let h = s.load_or(&h[full..], T::ZERO);
        acc = s.fma(h, hat(s.load_or(&x[full..], T::ZERO)), acc);
    }
    s.sum(acc)
}

/// `out = f(x, out)`
#[inline(always)]
fn finish<T: Real, S: Lanes<T>>(s: S, x: &[T], out: &mut [T], f: impl Fn(S::V, S::V) -> S::V) {
    let full = x.len() / S::N * S::N;
    let mut i = 0;
    while i < full {
        let y = f(s.load(&x[i..]), s.load(&out[i..]));
        s.store(y, &mut out[i..]);
        i += S::N;
    }
    if full < x.len() {
        let y = f(s.load_or(&x[full..], T::ZERO), s.load_or(&out[full..], T::ZERO));
        s.store_part(y, &mut out[full..]);
    }
}

/// Checks a weight or bias of a normalisation.
#[track_caller]
fn parameter<T: Real>(
    op: &str,
    what: &str,
    x: &Tensor<T>,
    p: Option<&Tensor<T>>,
) -> Option<Tensor<T>> {
    assert!(x.rank() > 0, "{op}: needs an axis to normalise, got rank 0");
    let (width, p) = (x.size(-1), p?);
    assert!(
        *p.shape() == [width],
        "{op}: {what} has shape {:?}, the last axis of {:?} needs [{width}]",
        p.shape(),
        x.shape()
    );
    Some(p.contiguous())
}

impl<T: Real> Tensor<T> {
    /// `(x - mean) / √(var + eps) · weight + bias` over the last axis, with the variance of
    /// the population (divided by n). `weight` and `bias` have the shape of that axis.
    ///
    /// Ba, Kiros, Hinton 2016 (arXiv 1607.06450).
    ///
    /// # Panics
    /// If `self` has rank 0 or a parameter has another shape.
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
            eps: T::from_f64(eps),
        };
        rows("layer_norm", op, [self])
    }

    /// VJP of [`Tensor::layer_norm`] with respect to its input.
    #[track_caller]
    pub fn layer_norm_vjp(&self, weight: Option<&Tensor<T>>, eps: f64, g: &Tensor<T>) -> Tensor<T> {
        let weight = parameter("layer_norm", "weight", self, weight);
        let weight = weight.as_ref().map(|w| w.as_slice());
        rows("layer_norm_vjp", LayerNormVjp { weight, eps: T::from_f64(eps) }, [self, g])
    }

    /// `x / √(mean(x²) + eps) · weight` over the last axis.
    ///
    /// Zhang, Sennrich 2019 (arXiv 1910.07467).
    ///
    /// # Panics
    /// If `self` has rank 0 or the weight has another shape.
    #[track_caller]
    pub fn rms_norm(&self, weight: Option<&Tensor<T>>, eps: f64) -> Tensor<T> {
        let weight = parameter("rms_norm", "weight", self, weight);
        let weight = weight.as_ref().map(|w| w.as_slice());
        rows("rms_norm", RmsNorm { weight, eps: T::from_f64(eps) }, [self])
    }

    /// VJP of [`Tensor::rms_norm`] with respect to its input.
    #[track_caller]
    pub fn rms_norm_vjp(&self, weight: Option<&Tensor<T>>, eps: f64, g: &Tensor<T>) -> Tensor<T> {
        let weight = parameter("rms_norm", "weight", self, weight);
        let weight = weight.as_ref().map(|w| w.as_slice());
        rows("rms_norm_vjp", RmsNormVjp { weight, eps: T::from_f64(eps) }, [self, g])
    }
}
