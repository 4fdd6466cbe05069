//! Transcendental functions of lanes.
//!
//! Each is written once on [`Lanes`], for `f32` and `f64`, and has equal bits wherever `fma` is fused.
//! The coefficients ([`Constants`]) are minimax fits (relative error of the function, reweighted least squares
//! on Chebyshev nodes in 50-digit arithmetic), rounded to their type from the lowest power up with
//! the rest fitted again after each rounding (of `f64`, after each of the first three).
//!
//! Largest errors in `f32` over all 2^32 bit patterns, measured by `tests/all/math.rs` with `ULP_STRIDE=1` against
//! the same function in `f64`. "Fused" is every level but the portable one:
//!
//! | function | ULP, fused | at | ULP, portable | at | documented bound |
//! |----------|-----------:|----|--------------:|----|-----------------:|
//! | exp | 1.04 | -5.8396215 | 1.01 | -5.8420258 | 1.5 |
//! | expm1 | 1.53 | 0.38713443 | 1.66 | 0.40037173 | 2 |
//! | ln | 0.93 | 0.7064308 | 0.93 | 0.7064308 | 1 |
//! | log1p | 1.53 | 0.44228736 | 1.53 | 0.44041458 | 2 |
//! | tanh | 2.57 | 0.062023256 | 2.61 | 0.062424507 | 3 |
//! | erf | 0.99 | 0.99542993 | 1.32 | 0.9943238 | 1.5 |
//! | sin | 2.47 | 9201.475 | 2.47 | 9201.475 | 3 |
//! | cos | 2.40 | 8986.776 | 2.40 | 8986.776 | 3 |
//! | sigmoid | 2.40 | -4.157294 | 2.40 | -4.157294 | 3 |
//! | SiLU | 3.19 | -7.6220517 | 3.28 | -3.2084396 | 4 |
//! | its derivative | 2.25 | 1.257713 | 2.39 | 1.2623545 | 4 |
//! | GELU | 3.44 | -3.4478528 | 3.68 | -12.662836 | 4 |
//! | its derivative | 2.09 | -0.83421695 | 2.41 | -0.7757375 | 3 |
//! | softplus | 1.77 | -0.7531293 | 1.77 | -0.7531293 | 2 |
//!
//! The derivatives cross zero, and below 1/4 their errors are in units of the last place of 1/4;
//! those of SiLU below `1e-36` in that of `1e-36`. GELU is -0 of every finite number from
//! `-12.94_f32` down, which is counted as right: the exact value is there between `-1.74e-37` and
//! 0, and could be represented down to about -14.3. Of -∞ it is NaN, as -∞ · 0.
//!
//! Largest errors of vectors of `f64` over a few thousand random arguments per range, against 180-bit arithmetic:
//! exp 0.93, expm1 1.78, ln 0.73, log1p 1.28, tanh 1.90, erf 0.92, sin 1.08, cos 1.28, `Φ` 1.87, `φ` 1.33, sigmoid 1.78,
//! softplus 1.31, GELU 2.32 ULP. `Φ`, `φ` and GELU are 0 from -37.5 down, where `Φ` becomes subnormal. Powers of
//! `f64` are those of the standard library, lane by lane.

use super::{F32_LANES, Lanes};
use crate::element::Float;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, LOG2_E};

/// The coefficients and limits of an element type.
pub trait Constants: Float {
    /// `1.5 * 2^p`, where `p` is the number of bits of a mantissa without the first.
    const ROUNDER: Self;
    /// Below the first, `e^x` is 0; beyond the second, infinite.
    const EXP_RANGE: (Self, Self);
    /// Below this, `e^x - 1` is -1; beyond half of its magnitude, the hyperbolic tangent is 1.
    const EXPM1_LOW: Self;
    /// Beyond this, the error function is 1.
    const ERF_END: Self;
    /// Beyond the negative of this, the normal distribution function and its density are 0.
    const NORMAL_END: Self;
    /// The bound of the reduction of sine and cosine.
    const WIDE: Self;
    /// `ln(2)` in two parts, such that products of the first with an exponent lose nothing in a reduction.
    const LN2: [Self; 2];
    /// `pi / 2` in parts, such that only the last of its products loses something in a reduction.
    const HALF_PI: &'static [Self];

    /// `(e^r - 1 - r) / r^2` for `|r| <= ln(2) / 2`.
    const EXP: &'static [Self];
    /// `(sin(r) - r) / r^3` in powers of `r^2`, for `|r| <= pi / 4`.
    const SIN: &'static [Self];
    /// `cos(r)` in powers of `r^2`, for `|r| <= pi / 4`; the first two are exact.
    const COS: &'static [Self];
    /// `erf(x) / x - 1` in powers of `x^2`, for `|x| <= 1`.
    const ERF: &'static [Self];
    /// `ln(1 - erf(x))` for `x` in `1..=ERF_END`.
    const LN_ERFC: &'static [Self];
    /// `Φ(-a) e^(a²/2) (a + 7/2)` in powers of `(a - 7/2) / (a + 7/2)`, for `a` from 3/4 to `NORMAL_END`.
    const TAIL: &'static [Self];
    /// `(Φ(a) - 1/2) / a` in powers of `a²`, for `|a| <= 3/4`.
    const MIDDLE: &'static [Self];

    /// `ln(1 + f) + e ln(2)` for `1 + f` within a factor `sqrt(2)` of 1.
    fn ln_sum<S: Lanes<Self>>(s: S, f: S::V, e: S::V) -> S::V;
}

/// `1 / sqrt(2 pi)`
const DENSITY: f64 = 0.398_942_280_401_432_7;

/// `c[0] + c[1] x + c[2] x^2 + ...`
#[inline(always)]
pub fn poly<T: Constants, S: Lanes<T>>(s: S, x: S::V, c: &[T]) -> S::V {
    let mut y = s.splat(c[c.len() - 1]);
    for i in (0..c.len() - 1).rev() {
        y = s.fma(y, x, s.splat(c[i]));
    }
    y
}

/// The number `x` in every lane.
#[inline(always)]
fn c<T: Constants, S: Lanes<T>>(s: S, x: f64) -> S::V {
    s.splat(T::from_f64(x))
}

/// `x * scale` to the nearest integer, for results of a few bits less than a mantissa: the adder rounds.
#[inline(always)]
fn whole<T: Constants, S: Lanes<T>>(s: S, x: S::V, scale: f64) -> S::V {
    let rounder = s.splat(T::ROUNDER);
    s.sub(s.fma(x, c(s, scale), rounder), rounder)
}

/// `(q, n)` with `e^x = (1 + q) 2^n` and `n` whole.
#[inline(always)]
fn exp_parts<T: Constants, S: Lanes<T>>(s: S, x: S::V) -> (S::V, S::V) {
    let (r, n) = exp_rest(s, x);
    (s.fma(s.mul(r, r), poly(s, r, T::EXP), r), n)
}

/// `y (1 + q) 2^n`
#[inline(always)]
fn scaled<T: Constants, S: Lanes<T>>(s: S, y: S::V, q: S::V, n: S::V) -> S::V {
    s.ldexp(s.fma(y, q, y), n)
}

/// `(r, n)` with `x = r + n ln(2)`, `|r| <= ln(2) / 2` and `n` whole.
#[inline(always)]
fn exp_rest<T: Constants, S: Lanes<T>>(s: S, x: S::V) -> (S::V, S::V) {
    let n = whole(s, x, LOG2_E);
    let r = s.fma(n, s.splat(-T::LN2[0]), x);
    (s.fma(n, s.splat(-T::LN2[1]), r), n)
}

/// `e^x`
#[inline(always)]
pub fn exp<T: Constants, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    // Beyond these bounds the result is 0 or infinity.
    let (low, high) = (s.splat(T::EXP_RANGE.0), s.splat(T::EXP_RANGE.1));
    let vanishes = s.lt(x, low);
    let (q, n) = exp_parts(s, s.clamp(x, low, high));
    // Operations that underflow take over a hundred cycles, and minus infinity is a common
    // argument: it masks scores, and pads the last vector of a row.
    let a = s.select(vanishes, c(s, 0.0), s.add(c(s, 1.0), q));
    s.ldexp(a, n)
}

/// `e^x - 1` for `x` between `EXPM1_LOW` and the end of `EXP_RANGE`, but for the sign of zero.
#[inline(always)]
fn expm1_inside<T: Constants, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    let (q, n) = exp_parts(s, x);
    // (1 + q) 2^n - 1, halved: 2^n alone would overflow at the upper end.
    let one = c(s, 1.0);
    let half = s.exp2i(s.sub(n, one));
    let y = s.fma(q, half, s.sub(half, c(s, 0.5)));
    // Halving loses a bit of a subnormal, where nothing need be scaled.
    s.select(s.eq(n, c(s, 0.0)), q, s.add(y, y))
}

/// `e^x - 1`
#[inline(always)]
pub fn expm1<T: Constants, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    let inside = s.clamp(x, s.splat(T::EXPM1_LOW), s.splat(T::EXP_RANGE.1));
    s.copysign(expm1_inside(s, inside), x)
}

/// `(m, e)` with `a = m 2^e` and `m` within a factor `sqrt(2)` of 1, for positive normal `a`.
#[inline(always)]
fn near_one<T: Constants, S: Lanes<T>>(s: S, a: S::V) -> (S::V, S::V) {
    let (m, e) = s.frexp(a);
    let low = s.lt(m, c(s, FRAC_1_SQRT_2));
    (s.select(low, s.add(m, m), m), s.select(low, s.sub(e, c(s, 1.0)), e))
}

/// The logarithm of `a`: `y`, or the special value if `a` is zero, negative, infinite or NaN.
#[inline(always)]
fn ln_edges<T: Constants, S: Lanes<T>>(s: S, a: S::V, y: S::V) -> S::V {
    let (zero, inf) = (c(s, 0.0), s.splat(T::INFINITY));
    let outside = s.select(s.eq(a, zero), s.neg(inf), s.splat(T::NAN));
    let y = s.select(s.eq(a, inf), inf, y);
    s.select(s.lt(zero, a), y, outside)
}

/// Natural logarithm.
#[inline(always)]
pub fn ln<T: Constants, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    let tiny = s.lt(x, s.splat(T::MIN_POSITIVE));
    // 2^64, which scales the smallest subnormal number to a normal one.
    let scaled = s.select(tiny, s.mul(x, c(s, 18_446_744_073_709_551_616.0)), x);
    let (m, e) = near_one(s, scaled);
    let e = s.select(tiny, s.sub(e, c(s, 64.0)), e);
    let y = T::ln_sum(s, s.sub(m, c(s, 1.0)), e);
    ln_edges(s, x, y)
}

/// `ln(1 + x)`
#[inline(always)]
pub fn log1p<T: Constants, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    let one = c(s, 1.0);
    let u = s.add(one, x);
    let (_, e) = near_one(s, u);
    // f = (1 + x) 2^-e - 1 = x 2^-e + (2^-e - 1), from x itself because u is rounded; with 4 2^-e
    // and x / 4, since 2^-e alone can be subnormal.
    let scale = s.exp2i(s.sub(c(s, 2.0), e));
    let offset = s.fma(scale, c(s, 0.25), c(s, -1.0));
    let f = s.fma(s.mul(x, c(s, 0.25)), scale, offset);
    let f = s.select(s.eq(e, c(s, 0.0)), x, f);
    s.copysign(ln_edges(s, u, T::ln_sum(s, f, e)), x)
}

/// Hyperbolic tangent, as `t / (t + 2)` with `t = e^(2|x|) - 1`.
#[inline(always)]
pub fn tanh<T: Constants, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    let a = s.abs(x);
    let t = expm1_inside(s, s.clamp(s.add(a, a), c(s, 0.0), s.splat(-T::EXPM1_LOW)));
    s.copysign(s.div(t, s.add(t, c(s, 2.0))), x)
}

/// Error function: a polynomial up to 1, and `1 - e^p` beyond.
#[inline(always)]
pub fn erf<T: Constants, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    let (one, a) = (c(s, 1.0), s.abs(x));
    let inner = s.fma(a, poly(s, s.mul(a, a), T::ERF), a);
    let p = poly(s, s.clamp(a, one, s.splat(T::ERF_END)), T::LN_ERFC);
    let (q, n) = exp_parts(s, p);
    let scale = s.exp2i(n);
    let outer = s.fma(s.neg(q), scale, s.sub(one, scale));
    s.copysign(s.select(s.lt(a, one), inner, outer), x)
}

/// The normal distribution function `Φ(x)` and its density `φ(x)`, to full relative accuracy in
/// both tails: the tail of `Φ` is computed from `φ`.
#[inline(always)]
pub fn normal<T: Constants, S: Lanes<T>>(s: S, x: S::V) -> (S::V, S::V) {
    // Beyond the limit the tail would be subnormal, and is set to 0: operations that underflow take
    // over a hundred cycles, and arguments of this size are common in activations.
    let (a, limit) = (s.abs(x), s.splat(T::NORMAL_END));
    let beyond = s.le(limit, a);
    let a = s.select(beyond, limit, a);
    // e^(-a²/2), where the rounding error of the square would dominate.
    let (one, minus_half) = (c(s, 1.0), c(s, -0.5));
    let square = s.mul(a, a);
    let (r, n) = exp_rest(s, s.mul(square, minus_half));
    let r = s.fma(s.product_residual(a, a, square), minus_half, r);
    let q = s.fma(s.mul(r, r), poly(s, r, T::EXP), r);
    let shift = c(s, 3.5);
    let shifted = s.add(a, shift);
    let inverse = s.div(one, shifted);
    let t = s.mul(inverse, s.sub(a, shift));
    let weight = poly(s, t, T::TAIL);
    let tail = s.mul(inverse, weight);
    // `inverse · (a + 7/2)` exceeds 1 by this much. The relative error of Φ(-a) / φ(a), computed
    // from `inverse`, is about as large (0.7 to 1.6 times, from 3/4 on).
    let missing = s.sub(a, s.sub(shifted, shift));
    let excess = s.fma(inverse, missing, s.product_residual(inverse, shifted, one));
    let q_tail = s.sub(q, excess);
    // The rounding error of the product is added to the sum.
    let correction = s.fma(tail, q_tail, s.product_residual(inverse, weight, tail));
    let tail = s.ldexp(s.select(beyond, c(s, 0.0), s.add(tail, correction)), n);
    let outer = s.select(s.lt(x, c(s, 0.0)), tail, s.sub(one, tail));
    // Near 0 the sum of `a` and 7/2 is too inaccurate.
    let inner = s.fma(x, poly(s, square, T::MIDDLE), c(s, 0.5));
    let cdf = s.select(s.lt(a, c(s, 0.75)), inner, outer);
    (cdf, scaled(s, c(s, DENSITY), s.select(beyond, c(s, -1.0), q), n))
}

/// `(q, r)` with `x = (q + 4k) pi / 2 + r`, `q` in `-2..=2` and `|r| <= pi / 4`, for `|x| < T::WIDE`.
#[inline(always)]
fn quadrant<T: Constants, S: Lanes<T>>(s: S, x: S::V) -> (S::V, S::V) {
    let n = whole(s, x, FRAC_2_PI);
    let mut r = x;
    for &part in T::HALF_PI {
        r = s.fma(n, s.splat(-part), r);
    }
    let turns = s.round(s.mul(n, c(s, 0.25)));
    (s.fma(turns, c(s, -4.0), n), r)
}

/// `(sin(r), cos(r))` for `|r| <= pi / 4`.
#[inline(always)]
fn sin_cos<T: Constants, S: Lanes<T>>(s: S, r: S::V) -> (S::V, S::V) {
    let z = s.mul(r, r);
    (s.fma(s.mul(r, z), poly(s, z, T::SIN), r), poly(s, z, T::COS))
}

/// `y`, or `f(x)` in `f64` for arguments that are too large for the reduction.
#[inline(always)]
fn wide<T: Constants, S: Lanes<T>>(s: S, x: S::V, y: S::V, f: fn(f64) -> f64) -> S::V {
    let out = s.lt(s.splat(T::WIDE), s.abs(x));
    if !s.any(out) {
        return y;
    }
    let mut exact = [T::ZERO; F32_LANES];
    s.store(x, &mut exact);
    through_f64(&mut exact, f);
    s.select(out, s.load(&exact), y)
}

/// The rare path of [`wide`], kept out of the loops around it.
#[cold]
#[inline(never)]
fn through_f64<T: Constants>(lanes: &mut [T; F32_LANES], f: fn(f64) -> f64) {
    for x in lanes.iter_mut().filter(|x| x.to_f64().abs() > T::WIDE.to_f64()) {
        *x = T::from_f64(f(x.to_f64()));
    }
}

/// Sine.
#[inline(always)]
pub fn sin<T: Constants, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    let (q, r) = quadrant(s, x);
    let (sin, cos) = sin_cos(s, r);
    let y = s.select(s.eq(s.abs(q), c(s, 1.0)), cos, sin);
    let minus = s.or(s.lt(q, c(s, 0.0)), s.eq(q, c(s, 2.0)));
    let y = s.select(minus, s.neg(y), y);
    // The sums above do not keep the sign of zero.
    wide(s, x, s.select(s.eq(x, c(s, 0.0)), x, y), f64::sin)
}

/// Cosine.
#[inline(always)]
pub fn cos<T: Constants, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    let (q, r) = quadrant(s, x);
    let (sin, cos) = sin_cos(s, r);
    let y = s.select(s.eq(s.abs(q), c(s, 1.0)), sin, cos);
    let minus = s.or(s.lt(c(s, 0.0), q), s.eq(q, c(s, -2.0)));
    wide(s, x, s.select(minus, s.neg(y), y), f64::cos)
}

/// `a^b`, lane by lane in `f64`.
#[inline(always)]
pub fn pow<T: Constants, S: Lanes<T>>(s: S, a: S::V, b: S::V) -> S::V {
    s.map2(a, b, |a, b| T::from_f64(a.to_f64().powf(b.to_f64())))
}

/// `a^b` as `e^(b ln(a))`, of numbers of `f32`. Rounded to `f32`, the error is that of rounding: the
/// exponent is below 104 in magnitude wherever the result is neither 0 nor infinite, so its error is below `2^-45`.
#[inline(always)]
pub fn pow_of_f32<S: Lanes<f64>>(s: S, a: S::V, b: S::V) -> S::V {
    let (zero, one) = (s.splat(0.0), s.splat(1.0));
    let size = s.abs(a);
    let exponent = s.mul(b, ln(s, size));
    let is_one = s.and(s.eq(size, one), s.eq(b, b));
    let exponent = s.select(is_one, zero, exponent);
    let (q, n) = exp_parts(s, s.clamp(exponent, s.splat(-700.0), s.splat(700.0)));
    let scale = s.exp2i(n);
    let power = s.fma(q, scale, scale);

    let (whole, half) = (is_whole(s, b), s.mul(b, s.splat(0.5)));
    let odd = s.and(whole, s.not(is_whole(s, half)));
    let negative = s.lt(s.copysign(one, a), zero);
    let y = s.select(s.and(negative, odd), s.neg(power), power);
    let real = s.or(whole, s.or(s.le(zero, a), s.eq(size, s.splat(f64::INFINITY))));
    let y = s.select(real, y, s.splat(f64::NAN));
    s.select(s.or(s.eq(b, zero), s.eq(a, one)), one, y)
}

/// Where `x` is a whole number.
#[inline(always)]
fn is_whole<T: Constants, S: Lanes<T>>(s: S, x: S::V) -> S::M {
    s.eq(s.round(x), x)
}

/// `a - n b` for the whole number `n` towards 0, on instruction sets with a fused `fma`. It is exact: so
/// are the multiply-add and the sum, since their results are numbers below `b` on the grid of `a` and `b`.
#[inline(always)]
pub fn fmod<T: Constants, S: Lanes<T>>(s: S, a: S::V, b: S::V) -> S::V {
    let (x, y) = (s.abs(a), s.abs(b));
    let quotient = s.div(x, y);
    let rest = s.fma(s.neg(s.floor(quotient)), y, x);
    // The quotient may have been rounded up to a whole number.
    let rest = s.select(s.lt(rest, c(s, 0.0)), s.add(rest, y), rest);
    // `b` may be infinite.
    let rest = s.copysign(s.select(s.lt(x, y), x, rest), a);
    let inexact = s.lt(s.splat(T::ROUNDER), quotient);
    if !s.any(inexact) {
        return rest;
    }
    s.select(inexact, s.map2(a, b, |a, b| T::from_f64(a.to_f64() % b.to_f64())), rest)
}
