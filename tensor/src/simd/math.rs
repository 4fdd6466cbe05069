//! Transcendental functions of `f32` lanes.
//!
//! Each is written once on [`Lanes`] and has equal bits wherever `fma` is fused.
//! The coefficients are minimax fits (relative error of the function, reweighted least squares
//! on Chebyshev nodes in 50-digit arithmetic), rounded to `f32` from the lowest power up with
//! the rest fitted again after each rounding.
//!
//! Largest errors over all 2^32 bit patterns, measured by `tests/all/math.rs` with `ULP_STRIDE=1` against
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

use super::{F32_LANES, Lanes};

/// `(e^r - 1 - r) / r^2` for `|r| <= ln(2) / 2`.
const EXP: [f32; 5] = [4.9999997e-1, 1.6666545e-1, 4.1667435e-2, 8.366477e-3, 1.3870987e-3];

/// `(ln(1 + f) - f + f^2 / 2) / f^3` for `1 + f` in `[sqrt(1/2), sqrt(2)]`.
const LN: [f32; 8] = [
    3.333333e-1,
    -2.500082e-1,
    2.0001242e-1,
    -1.6623409e-1,
    1.4201581e-1,
    -1.3159613e-1,
    1.27622e-1,
    -7.6363996e-2,
];

/// `(sin(r) - r) / r^3` in powers of `r^2`, for `|r| <= pi / 4`.
const SIN: [f32; 3] = [-1.6666654e-1, 8.332106e-3, -1.9507877e-4];

/// `cos(r)` in powers of `r^2`, for `|r| <= pi / 4`; the first two are exact.
const COS: [f32; 5] = [1.0, -0.5, 4.1666646e-2, -1.3887304e-3, 2.4431201e-5];

/// `erf(x) / x - 1` in powers of `x^2`, for `|x| <= 1`.
const ERF: [f32; 7] = [
    1.2837917e-1,
    -3.7612626e-1,
    1.1283579e-1,
    -2.6853347e-2,
    5.187162e-3,
    -7.997853e-4,
    7.806903e-5,
];

/// `ln(1 - erf(x))` for `x` in `1..=4`.
const LN_ERFC: [f32; 7] = [
    -3.004385e-4,
    -1.1272514,
    -6.3788325e-1,
    -1.0332717e-1,
    2.1940324e-2,
    -2.9724094e-3,
    1.8881947e-4,
];

/// `Φ(-a) e^(a²/2) (a + 7/2)` in powers of `(a - 7/2) / (a + 7/2)`, for `a` in `0..=15`.
const TAIL: [f32; 10] = [
    7.4441606e-1,
    -5.6556183e-1,
    3.1542593e-1,
    -1.1605141e-1,
    1.7398901e-2,
    6.48404e-3,
    -3.1549037e-3,
    -4.740902e-4,
    4.0434298e-4,
    9.3583745e-5,
];

/// `(Φ(a) - 1/2) / a` in powers of `a²`, for `|a| <= 1`.
const MIDDLE: [f32; 5] = [3.9894226e-1, -6.6489495e-2, 9.966689e-3, -1.1684306e-3, 9.371964e-5];

/// `ln(2)` in two parts. The first has 15 bits, so that its product with an exponent is exact
/// even where `fma` rounds twice.
const LN2: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];

/// `pi / 2` in five parts. The first four have at most 11 bits, so that their products with
/// whole numbers up to `2^13` are exact.
const HALF_PI: [f32; 5] = [1.5703125, 4.837_513e-4, 7.549_533_6e-8, 2.563_283e-12, 6.123_234e-17];

// The documented numbers of bits, and the sums of the parts.
const _: () = {
    const fn bits(x: f32) -> u32 {
        24 - (x.to_bits() | 1 << 23).trailing_zeros()
    }
    let [a, b, c, d, e] = HALF_PI;
    assert!(bits(LN2[0]) <= 15);
    assert!(bits(a) <= 11 && bits(b) <= 11 && bits(c) <= 11 && bits(d) <= 11);
    let ln2 = LN2[1] as f64 + LN2[0] as f64;
    assert!((ln2 - std::f64::consts::LN_2).abs() < 1e-13);
    let half_pi = e as f64 + d as f64 + c as f64 + b as f64 + a as f64;
    assert!(half_pi == std::f64::consts::FRAC_PI_2);
};

/// `2^13 * pi / 2`: the bound of the reduction in `f32`.
const WIDE: f32 = 12_867.0;

/// `c[0] + c[1] x + c[2] x^2 + ...`
#[inline(always)]
fn poly<S: Lanes<f32>, const N: usize>(s: S, x: S::V, c: [f32; N]) -> S::V {
    let mut y = s.splat(c[N - 1]);
    for i in (0..N - 1).rev() {
        y = s.fma(y, x, s.splat(c[i]));
    }
    y
}

/// `x * scale` to the nearest integer, for results below `2^22`: the adder rounds, at `1.5 * 2^23`.
#[inline(always)]
fn whole<S: Lanes<f32>>(s: S, x: S::V, scale: f32) -> S::V {
    let magic = s.splat(12_582_912.0);
    s.sub(s.fma(x, s.splat(scale), magic), magic)
}

/// `(q, n)` with `e^x = (1 + q) 2^n` and `n` whole.
#[inline(always)]
fn exp_parts<S: Lanes<f32>>(s: S, x: S::V) -> (S::V, S::V) {
    let (r, n) = exp_rest(s, x);
    (s.fma(s.mul(r, r), poly(s, r, EXP), r), n)
}

/// `y (1 + q) 2^n`
#[inline(always)]
fn scaled<S: Lanes<f32>>(s: S, y: S::V, q: S::V, n: S::V) -> S::V {
    s.ldexp(s.fma(y, q, y), n)
}

/// `(r, n)` with `x = r + n ln(2)`, `|r| <= ln(2) / 2` and `n` whole.
#[inline(always)]
fn exp_rest<S: Lanes<f32>>(s: S, x: S::V) -> (S::V, S::V) {
    let n = whole(s, x, std::f32::consts::LOG2_E);
    let r = s.fma(n, s.splat(-LN2[0]), x);
    (s.fma(n, s.splat(-LN2[1]), r), n)
}

/// `e^x`
#[inline(always)]
pub fn exp<S: Lanes<f32>>(s: S, x: S::V) -> S::V {
    // Beyond these bounds the result is 0 or infinity.
    let low = s.splat(-104.0);
    let vanishes = s.lt(x, low);
    let (q, n) = exp_parts(s, s.clamp(x, low, s.splat(89.0)));
    // Operations that underflow take over a hundred cycles, and minus infinity is a common
    // argument: it masks scores, and pads the last vector of a row.
    let a = s.select(vanishes, s.splat(0.0), s.add(s.splat(1.0), q));
    s.ldexp(a, n)
}

/// `e^x - 1` for `x` in `-18..=89`, but for the sign of zero.
#[inline(always)]
fn expm1_inside<S: Lanes<f32>>(s: S, x: S::V) -> S::V {
    let (q, n) = exp_parts(s, x);
    // (1 + q) 2^n - 1, halved: 2^n alone would overflow at the upper end.
    let one = s.splat(1.0);
    let half = s.exp2i(s.sub(n, one));
    let y = s.fma(q, half, s.sub(half, s.splat(0.5)));
    // Halving loses a bit of a subnormal, where nothing need be scaled.
    s.select(s.eq(n, s.splat(0.0)), q, s.add(y, y))
}

/// `e^x - 1`
#[inline(always)]
pub fn expm1<S: Lanes<f32>>(s: S, x: S::V) -> S::V {
    let inside = s.clamp(x, s.splat(-18.0), s.splat(89.0));
    s.copysign(expm1_inside(s, inside), x)
}

/// `ln(1 + f) + e ln(2)` for `1 + f` within a factor `sqrt(2)` of 1.
#[inline(always)]
fn ln_sum<S: Lanes<f32>>(s: S, f: S::V, e: S::V) -> S::V {
    let y = s.fma(f, poly(s, f, LN), s.splat(-0.5));
    let y = s.mul(s.mul(f, f), y);
    let y = s.fma(e, s.splat(LN2[1]), y);
    s.fma(e, s.splat(LN2[0]), s.add(f, y))
}

/// `(m, e)` with `a = m 2^e` and `m` within a factor `sqrt(2)` of 1, for positive normal `a`.
#[inline(always)]
fn near_one<S: Lanes<f32>>(s: S, a: S::V) -> (S::V, S::V) {
    let (m, e) = s.frexp(a);
    let low = s.lt(m, s.splat(std::f32::consts::FRAC_1_SQRT_2));
    (s.select(low, s.add(m, m), m), s.select(low, s.sub(e, s.splat(1.0)), e))
}

/// The logarithm of `a`: `y`, or the special value if `a` is zero, negative, infinite or NaN.
#[inline(always)]
fn ln_edges<S: Lanes<f32>>(s: S, a: S::V, y: S::V) -> S::V {
    let (zero, inf) = (s.splat(0.0), s.splat(f32::INFINITY));
    let outside = s.select(s.eq(a, zero), s.neg(inf), s.splat(f32::NAN));
    let y = s.select(s.eq(a, inf), inf, y);
    s.select(s.lt(zero, a), y, outside)
}

/// Natural logarithm.
#[inline(always)]
pub fn ln<S: Lanes<f32>>(s: S, x: S::V) -> S::V {
    let tiny = s.lt(x, s.splat(f32::MIN_POSITIVE));
    let scaled = s.select(tiny, s.mul(x, s.splat(16_777_216.0)), x);
    let (m, e) = near_one(s, scaled);
    let e = s.select(tiny, s.sub(e, s.splat(24.0)), e);
    let y = ln_sum(s, s.sub(m, s.splat(1.0)), e);
    ln_edges(s, x, y)
}

/// `ln(1 + x)`
#[inline(always)]
pub fn log1p<S: Lanes<f32>>(s: S, x: S::V) -> S::V {
    let one = s.splat(1.0);
    let u = s.add(one, x);
    let (_, e) = near_one(s, u);
    // f = (1 + x) 2^-e - 1 = x 2^-e + (2^-e - 1), from x itself because u is rounded; with 4 2^-e
    // and x / 4, since 2^-e alone can be subnormal.
    let scale = s.exp2i(s.sub(s.splat(2.0), e));
    let offset = s.fma(scale, s.splat(0.25), s.splat(-1.0));
    let f = s.fma(s.mul(x, s.splat(0.25)), scale, offset);
    let f = s.select(s.eq(e, s.splat(0.0)), x, f);
    s.copysign(ln_edges(s, u, ln_sum(s, f, e)), x)
}

/// Hyperbolic tangent, as `t / (t + 2)` with `t = e^(2|x|) - 1`.
#[inline(always)]
pub fn tanh<S: Lanes<f32>>(s: S, x: S::V) -> S::V {
    let a = s.abs(x);
    let t = expm1_inside(s, s.clamp(s.add(a, a), s.splat(0.0), s.splat(20.0)));
    s.copysign(s.div(t, s.add(t, s.splat(2.0))), x)
}

/// Error function: a polynomial up to 1, and `1 - e^p` beyond.
#[inline(always)]
pub fn erf<S: Lanes<f32>>(s: S, x: S::V) -> S::V {
    let (one, a) = (s.splat(1.0), s.abs(x));
    let inner = s.fma(a, poly(s, s.mul(a, a), ERF), a);
    let p = poly(s, s.clamp(a, one, s.splat(4.0)), LN_ERFC);
    let (q, n) = exp_parts(s, p);
    let scale = s.exp2i(n);
    let outer = s.fma(s.neg(q), scale, s.sub(one, scale));
    s.copysign(s.select(s.lt(a, one), inner, outer), x)
}

/// The normal distribution function `Φ(x)` and its density `φ(x)`, to full relative accuracy in
/// both tails: the tail of `Φ` is computed from `φ`.
#[inline(always)]
pub fn normal<S: Lanes<f32>>(s: S, x: S::V) -> (S::V, S::V) {
    // Beyond the limit the tail would be subnormal, and is set to 0: operations that underflow take
    // over a hundred cycles, and arguments of this size are common in activations.
    let (a, limit) = (s.abs(x), s.splat(12.94));
    let beyond = s.le(limit, a);
    let a = s.select(beyond, limit, a);
    // e^(-a²/2), where the rounding error of the square would dominate.
    let (one, minus_half) = (s.splat(1.0), s.splat(-0.5));
    let square = s.mul(a, a);
    let (r, n) = exp_rest(s, s.mul(square, minus_half));
    let r = s.fma(s.product_residual(a, a, square), minus_half, r);
    let q = s.fma(s.mul(r, r), poly(s, r, EXP), r);
    let shift = s.splat(3.5);
    let shifted = s.add(a, shift);
    let inverse = s.div(one, shifted);
    let t = s.mul(inverse, s.sub(a, shift));
    let weight = poly(s, t, TAIL);
    let tail = s.mul(inverse, weight);
    // `inverse · (a + 7/2)` exceeds 1 by this much. The relative error of Φ(-a) / φ(a), computed
    // from `inverse`, is about as large (0.7 to 1.6 times, from 3/4 on).
    let missing = s.sub(a, s.sub(shifted, shift));
    let excess = s.fma(inverse, missing, s.product_residual(inverse, shifted, one));
    let q_tail = s.sub(q, excess);
    // The rounding error of the product is added to the sum.
    let correction = s.fma(tail, q_tail, s.product_residual(inverse, weight, tail));
    let tail = s.ldexp(s.select(beyond, s.splat(0.0), s.add(tail, correction)), n);
    let outer = s.select(s.lt(x, s.splat(0.0)), tail, s.sub(one, tail));
    // Near 0 the sum of `a` and 7/2 is too inaccurate.
    let inner = s.fma(x, poly(s, square, MIDDLE), s.splat(0.5));
    let cdf = s.select(s.lt(a, s.splat(0.75)), inner, outer);
    (cdf, scaled(s, s.splat(0.398_942_3), s.select(beyond, s.splat(-1.0), q), n))
}

/// `(q, r)` with `x = (q + 4k) pi / 2 + r`, `q` in `-2..=2` and `|r| <= pi / 4`, for `|x| < WIDE`.
#[inline(always)]
fn quadrant<S: Lanes<f32>>(s: S, x: S::V) -> (S::V, S::V) {
    let n = whole(s, x, std::f32::consts::FRAC_2_PI);
    let mut r = x;
    for part in HALF_PI {
        r = s.fma(n, s.splat(-part), r);
    }
    let turns = s.round(s.mul(n, s.splat(0.25)));
    (s.fma(turns, s.splat(-4.0), n), r)
}

/// `(sin(r), cos(r))` for `|r| <= pi / 4`.
#[inline(always)]
fn sin_cos<S: Lanes<f32>>(s: S, r: S::V) -> (S::V, S::V) {
    let z = s.mul(r, r);
    (s.fma(s.mul(r, z), poly(s, z, SIN), r), poly(s, z, COS))
}

/// `y`, or `f(x)` in `f64` for arguments that are too large for the reduction in `f32`.
#[inline(always)]
fn wide<S: Lanes<f32>>(s: S, x: S::V, y: S::V, f: fn(f64) -> f64) -> S::V {
    let out = s.lt(s.splat(WIDE), s.abs(x));
    if !s.any(out) {
        return y;
    }
    let mut exact = [0.0; F32_LANES];
    s.store(x, &mut exact);
    through_f64(&mut exact, f);
    s.select(out, s.load(&exact), y)
}

/// The rare path of [`wide`], kept out of the loops around it.
#[cold]
#[inline(never)]
fn through_f64(lanes: &mut [f32; F32_LANES], f: fn(f64) -> f64) {
    for x in lanes.iter_mut().filter(|x| x.abs() > WIDE) {
        *x = f((*x).into()) as f32;
    }
}

/// Sine.
#[inline(always)]
pub fn sin<S: Lanes<f32>>(s: S, x: S::V) -> S::V {
    let (q, r) = quadrant(s, x);
    let (sin, cos) = sin_cos(s, r);
    let y = s.select(s.eq(s.abs(q), s.splat(1.0)), cos, sin);
    let minus = s.or(s.lt(q, s.splat(0.0)), s.eq(q, s.splat(2.0)));
    let y = s.select(minus, s.neg(y), y);
    // The sums above do not keep the sign of zero.
    wide(s, x, s.select(s.eq(x, s.splat(0.0)), x, y), f64::sin)
}

/// Cosine.
#[inline(always)]
pub fn cos<S: Lanes<f32>>(s: S, x: S::V) -> S::V {
    let (q, r) = quadrant(s, x);
    let (sin, cos) = sin_cos(s, r);
    let y = s.select(s.eq(s.abs(q), s.splat(1.0)), sin, cos);
    let minus = s.or(s.lt(s.splat(0.0), q), s.eq(q, s.splat(-2.0)));
    wide(s, x, s.select(minus, s.neg(y), y), f64::cos)
}

/// `a^b`, lane by lane in `f64`.
#[inline(always)]
pub fn pow<S: Lanes<f32>>(s: S, a: S::V, b: S::V) -> S::V {
    s.map2(a, b, |a, b| f64::from(a).powf(b.into()) as f32)
}
