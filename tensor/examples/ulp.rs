//! Measures the largest error, in units in the last place, of every `f32` function on lanes and
//! on every level that this CPU supports, over all bit patterns or every k-th one; with names, of these
//! functions only:
//!
//!     cargo run --release -p retrograd-tensor --example ulp -- 257
//!     cargo run --release -p retrograd-tensor --example ulp -- 1 exp ln
//!
//! The reference is the same function in `f64`.

use rayon::prelude::*;
use retrograd_tensor::Real;
use retrograd_tensor::formula::Expr;
use retrograd_tensor::ops::activation::{Gelu, Sigmoid, Silu, Softplus};
use retrograd_tensor::ops::pointwise::Pointwise;
use retrograd_tensor::simd::{Kernel, Lanes, Level};
use std::f64::consts::{FRAC_1_SQRT_2, TAU};

/// The functions under test: names, the size below which errors are in units in the last place of that
/// size, the reference, and the function on lanes.
macro_rules! functions {
    ($($name:literal above $floor:expr, $exact:expr, |$s:ident, $x:ident| $ours:expr;)+) => {
        const FUNCTIONS: &[(&str, f64, fn(f64) -> f64)] = &[$(($name, $floor, $exact)),+];

        #[inline(always)]
        fn ours<S: Lanes<f32>>(which: usize, token: S, lanes: S::V) -> S::V {
            let mut i = 0..;
            $(if i.next() == Some(which) {
                let ($s, $x) = (token, lanes);
                return $ours;
            })+
            unreachable!("there is no function {which}")
        }
    };
}

functions! {
    "exp" above 0.0, f64::exp, |s, x| s.exp(x);
    "expm1" above 0.0, f64::exp_m1, |s, x| s.expm1(x);
    "ln" above 0.0, f64::ln, |s, x| s.ln(x);
    "log1p" above 0.0, f64::ln_1p, |s, x| s.log1p(x);
    "tanh" above 0.0, f64::tanh, |s, x| s.tanh(x);
    "erf" above 0.0, libm::erf, |s, x| s.erf(x);
    "sin" above 0.0, f64::sin, |s, x| s.sin(x);
    "cos" above 0.0, f64::cos, |s, x| s.cos(x);
    "sigmoid" above 0.0, sigmoid, |s, x| value(Sigmoid, s, x);
    "silu" above NORMAL, |x| x * sigmoid(x), |s, x| value(Silu, s, x);
    "silu'" above CROSSING, |x| sigmoid(x) * (1.0 + x * sigmoid(-x)), |s, x| derivative(Silu, s, x);
    "gelu" above NORMAL, gelu, |s, x| value(Gelu, s, x);
    "gelu'" above CROSSING, |x| normal_cdf(x) + x * (-0.5 * x * x).exp() / TAU.sqrt(), |s, x| derivative(Gelu, s, x);
    "softplus" above 0.0, |x| x.max(0.0) + (-x.abs()).exp().ln_1p(), |s, x| value(Softplus, s, x);
}

/// For products with a factor that may be subnormal and then has fewer digits.
const NORMAL: f64 = 1e-36;
/// Below the negative of this, GELU is 0; the magnitude of the exact value is at most 1.74e-37.
const VANISHED: f64 = 12.94_f32 as f64;
/// For sums that cross zero.
const CROSSING: f64 = 0.25;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn gelu(x: f64) -> f64 {
    let vanished = x <= -VANISHED && x.is_finite(); // -∞ · 0 is no number
    if vanished { -0.0 } else { x * normal_cdf(x) }
}

fn normal_cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

#[inline(always)]
fn derivative<P: Pointwise<f32>, S: Lanes<f32>>(op: P, s: S, x: S::V) -> S::V {
    op.vjp(Expr::new(s, x), Expr::new(s, s.splat(1.0))).value()
}

#[inline(always)]
fn value<P: Pointwise<f32>, S: Lanes<f32>>(op: P, s: S, x: S::V) -> S::V {
    op.f(Expr::new(s, x)).value()
}

/// Applies function number `which` in place to a slice of whole vectors.
struct Apply<'a> {
    which: usize,
    data: &'a mut [f32],
}

impl Kernel<f32> for Apply<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Lanes<f32>>(self, s: S) {
        for chunk in self.data.chunks_exact_mut(S::N) {
            let y = ours(self.which, s, s.load(chunk));
            s.store(y, chunk);
        }
    }
}

/// Distance of `got` from `exact`, in units of the `f32` spacing at `exact` or at `floor`.
fn ulps(got: f32, exact: f64, floor: f64) -> f64 {
    let rounded = exact as f32;
    if got == rounded || got.is_nan() && rounded.is_nan() {
        // Also equal infinities; otherwise at most half a unit, measured below.
        if !rounded.is_finite() {
            return 0.0;
        }
    } else if !got.is_finite() || !rounded.is_finite() {
        return f64::INFINITY;
    }
    let exponent = (exact.abs().max(floor).to_bits() >> 52) as i32 - 1023;
    let inverse_of_spacing = f64::from_bits(((23 - exponent.clamp(-126, 127) + 1023) as u64) << 52);
    (f64::from(got) - exact).abs() * inverse_of_spacing
}

/// An error, and its argument.
type Error = (f64, f32);

/// The worst errors of a function on each level.
fn worst(levels: &[Level], which: usize, stride: u64) -> Vec<Error> {
    const BLOCK: u64 = 1 << 12;
    let (_, floor, exact) = FUNCTIONS[which];
    let samples = (1u64 << 32).div_ceil(stride);
    let none = || vec![(0.0, 0.0); levels.len()];
    (0..samples.div_ceil(BLOCK))
        .into_par_iter()
        .map(|block| {
            let input = |i: u64| f32::from_bits(((block * BLOCK + i) * stride) as u32);
            let inputs: Vec<f32> = (0..BLOCK).map(input).collect();
            let right: Vec<f64> = inputs.iter().map(|&x| exact(x.into())).collect();
            let on_level = |&level: &Level| {
                let mut data = inputs.clone();
                f32::dispatch(level, Apply { which, data: &mut data });
                let errors = data.iter().zip(&right).map(|(&got, &exact)| ulps(got, exact, floor));
                errors.zip(inputs.iter().copied()).fold((0.0, 0.0), worse)
            };
            levels.iter().map(on_level).collect()
        })
        .reduce(none, |a, b| a.into_iter().zip(b).map(|(a, b)| worse(a, b)).collect())
}

fn worse(a: Error, b: Error) -> Error {
    if b.0 > a.0 { b } else { a }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let stride = args.next().map_or(1, |k| k.parse().expect("a stride: 1, 2, ..."));
    let named: Vec<String> = args.collect();
    for name in &named {
        assert!(FUNCTIONS.iter().any(|(known, ..)| known == name), "no function is named {name}");
    }
    let levels: Vec<Level> = Level::available().into_iter().collect();
    println!("largest error in ULP over every {stride}-th of all f32 values");
    println!("{:8} {:8} {:>8}  at", "function", "level", "ULP");
    let wanted = |name: &str| named.is_empty() || named.iter().any(|named| named == name);
    let functions = FUNCTIONS.iter().enumerate().filter(|(_, (name, ..))| wanted(name));
    for (which, (name, ..)) in functions {
        for (level, (error, x)) in levels.iter().zip(worst(&levels, which, stride)) {
            println!("{name:8} {level:8} {error:8.3}  {x:e} ({:#010x})", x.to_bits());
        }
    }
}
