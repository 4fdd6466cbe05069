//! Transcendental functions of `f64` lanes.

use super::Lanes;

/// `e^x`
#[inline(always)]
pub fn exp<S: Lanes<f64>>(s: S, x: S::V) -> S::V {
    s.map(x, f64::exp)
}
/// `e^x - 1`
#[inline(always)]
pub fn expm1<S: Lanes<f64>>(s: S, x: S::V) -> S::V {
    s.map(x, f64::exp_m1)
}
/// Natural logarithm.
#[inline(always)]
pub fn ln<S: Lanes<f64>>(s: S, x: S::V) -> S::V {
    s.map(x, f64::ln)
}
/// `ln(1 + x)`
#[inline(always)]
pub fn log1p<S: Lanes<f64>>(s: S, x: S::V) -> S::V {
    s.map(x, f64::ln_1p)
}
/// Hyperbolic tangent.
#[inline(always)]
pub fn tanh<S: Lanes<f64>>(s: S, x: S::V) -> S::V {
    s.map(x, f64::tanh)
}
/// Error function.
#[inline(always)]
pub fn erf<S: Lanes<f64>>(s: S, x: S::V) -> S::V {
    s.map(x, libm::erf)
}
/// Sine.
#[inline(always)]
pub fn sin<S: Lanes<f64>>(s: S, x: S::V) -> S::V {
    s.map(x, f64::sin)
}
/// Cosine.
#[inline(always)]
pub fn cos<S: Lanes<f64>>(s: S, x: S::V) -> S::V {
    s.map(x, f64::cos)
}
/// `Φ(x)` and `φ(x)`.
#[inline(always)]
pub fn normal<S: Lanes<f64>>(s: S, x: S::V) -> (S::V, S::V) {
    use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
    let cdf = s.map(x, |x| 0.5 * libm::erfc(-x * FRAC_1_SQRT_2));
    let density = s.map(x, |x| 0.5 * FRAC_1_SQRT_2 * FRAC_2_SQRT_PI * (-0.5 * x * x).exp());
    (cdf, density)
}
/// `a^b`, lane by lane.
#[inline(always)]
pub fn pow<S: Lanes<f64>>(s: S, a: S::V, b: S::V) -> S::V {
    s.map2(a, b, f64::powf)
}
