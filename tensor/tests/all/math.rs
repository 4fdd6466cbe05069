//! Elementary functions, activations and their derivatives: error bounds, equal bits across levels, edges.

use crate::common::{everywhere, ulp};
use crate::elementwise::unaries;
use rayon::prelude::*;
use retrograd_tensor::ops::activation::{GELU_A, GELU_C};
use retrograd_tensor::settings::with_level;
use retrograd_tensor::simd::Level;
use retrograd_tensor::{Real, Tensor};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, TAU};

/// A function of one variable, its `f64` reference and its documented bound in ULP.
struct Function {
    name: &'static str,
    exact: fn(f64) -> f64,
    bound: f64,
    /// Errors at values below this magnitude are in ULP of this magnitude.
    floor: f64,
    /// Whether the function is odd: the sign of the result is that of the argument.
    odd: bool,
}

impl Function {
    const fn floor(self, floor: f64) -> Function {
        Function { floor, ..self }
    }
}

const fn function(name: &'static str, exact: fn(f64) -> f64, bound: f64) -> Function {
    Function { name, exact, bound, floor: 0.0, odd: false }
}

const fn odd(name: &'static str, exact: fn(f64) -> f64, bound: f64) -> Function {
    Function { odd: true, ..function(name, exact, bound) }
}

/// The floor of errors of products with a factor that may be subnormal.
const NORMAL: f64 = 1e-36;
/// Below the negative of this, GELU is 0; the magnitude of the exact value is at most 1.74e-37.
const VANISHED: f64 = 12.94_f32 as f64;
/// The floor of errors of sums that cross zero.
const CROSSING: f64 = 0.25;

const FUNCTIONS: [Function; 8] = [
    function("exp", f64::exp, 1.5),
    odd("expm1", f64::exp_m1, 2.0),
    function("ln", f64::ln, 1.0),
    odd("log1p", f64::ln_1p, 2.0),
    odd("tanh", f64::tanh, 3.0),
    odd("erf", libm::erf, 1.5),
    odd("sin", f64::sin, 3.0),
    function("cos", f64::cos, 3.0),
];

/// The floor of errors of `1 - y`.
const COMPLEMENT: f64 = 1.0;

const ACTIVATIONS: [Function; 9] = [
    function("sigmoid", sigmoid, 3.0),
    odd("silu", |x| x * sigmoid(x), 4.0).floor(NORMAL),
    odd("gelu", gelu, 4.0).floor(NORMAL),
    odd("gelu_tanh", gelu_tanh, 3.0).floor(CROSSING),
    function("softplus", softplus, 2.0),
    function("log_sigmoid", |x| -softplus(-x), 2.0),
    odd("mish", |x| x * softplus(x).tanh(), 4.0).floor(NORMAL),
    odd("elu", |x| if x > 0.0 { x } else { x.exp_m1() }, 1.5),
    odd("softsign", |x| x / (1.0 + x.abs()), 2.0),
];

const DERIVATIVES: [Function; 21] = [
    function("square'", |x| 2.0 * x, 0.5),
    function("sqrt'", |x| 0.5 / x.sqrt(), 2.0),
    function("rsqrt'", |x| -0.5 * x.powf(-1.5), 5.5),
    function("recip'", |x| -1.0 / (x * x), 2.0),
    function("exp'", f64::exp, 1.5),
    function("expm1'", f64::exp, 2.0).floor(COMPLEMENT),
    function("ln'", |x| 1.0 / x, 0.5),
    function("log1p'", |x| 1.0 / (1.0 + x), 2.0),
    function("sin'", f64::cos, 3.0),
    function("cos'", |x| -x.sin(), 3.0),
    function("erf'", |x| FRAC_2_SQRT_PI * (-x * x).exp(), 3.0).floor(CROSSING),
    function("tanh'", |x| x.cosh().powi(-2), 2.0).floor(COMPLEMENT),
    function("sigmoid'", |x| sigmoid(x) * sigmoid(-x), 4.0).floor(CROSSING),
    function("silu'", |x| sigmoid(x) * (1.0 + x * sigmoid(-x)), 4.0).floor(CROSSING),
    function("gelu'", |x| normal(x) + x * density(x), 3.0).floor(CROSSING),
    function("gelu_tanh'", gelu_tanh_derivative, 4.0).floor(CROSSING),
    function("softplus'", sigmoid, 3.0),
    function("log_sigmoid'", |x| sigmoid(-x), 3.0),
    function("mish'", mish_derivative, 13.0).floor(CROSSING),
    function("elu'", |x| x.min(0.0).exp(), 1.5),
    function("softsign'", |x| (1.0 + x.abs()).powi(-2), 4.0),
];

fn all() -> impl Iterator<Item = &'static Function> {
    FUNCTIONS.iter().chain(&ACTIVATIONS).chain(&DERIVATIVES)
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn gelu_tanh(x: f64) -> f64 {
    x * sigmoid(2.0 * GELU_C * (x + GELU_A * x.powi(3)))
}

fn gelu_tanh_derivative(x: f64) -> f64 {
    let u = 2.0 * GELU_C * (x + GELU_A * x.powi(3));
    let inner = 2.0 * GELU_C * (x + 3.0 * GELU_A * x.powi(3));
    let steep = sigmoid(u) * sigmoid(-u);
    sigmoid(u) + if steep == 0.0 { 0.0 } else { steep * inner }
}

fn mish_derivative(x: f64) -> f64 {
    let steep = softplus(x).cosh().powi(-2) * sigmoid(x);
    softplus(x).tanh() + if steep == 0.0 { 0.0 } else { x * steep }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn gelu(x: f64) -> f64 {
    let vanished = x <= -VANISHED && x.is_finite(); // -∞ · 0 is no number
    if vanished { -0.0 } else { x * normal(x) }
}

fn normal(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / TAU.sqrt()
}

/// The operation of this name on every element, or its derivative, whose name ends with `'`.
fn apply<T: Real>(level: Level, name: &str, x: &[T]) -> Vec<T> {
    let (operation, x) = (name.trim_end_matches('\''), Tensor::from_vec(x.to_vec(), [x.len()]));
    let f = unaries().into_iter().find(|f| f.name() == operation).expect("an operation");
    let is_value = operation == name;
    with_level(level, || if is_value { f.apply(&x) } else { f.apply_vjp(&x, &x.full_like(T::ONE)) })
        .to_vec()
}

fn one(level: Level, name: &str, x: f32) -> f32 {
    apply(level, name, &[x])[0]
}

/// Every k-th bit pattern, in blocks, where k is `ULP_STRIDE` or a number that leaves about a million.
fn samples() -> impl ParallelIterator<Item = Vec<f32>> {
    const BLOCK: u64 = 1 << 12;
    let stride = std::env::var("ULP_STRIDE").map_or(4099, |k| k.parse::<u64>().expect("a number"));
    let pattern = move |i: u64| f32::from_bits((i * stride) as u32);
    let blocks = (1u64 << 32).div_ceil(stride * BLOCK);
    let block = move |block| (block * BLOCK..(block + 1) * BLOCK).map(pattern).collect();
    (0..blocks).into_par_iter().map(block)
}

/// Distance of `got` from `exact`, in units of the `f32` spacing at `exact` or at `floor`.
fn ulps(got: f32, exact: f64, floor: f64) -> f64 {
    let rounded = exact as f32;
    if !got.is_finite() || !rounded.is_finite() {
        let agree = got == rounded || got.is_nan() && rounded.is_nan();
        return if agree { 0.0 } else { f64::INFINITY };
    }
    (f64::from(got) - exact).abs() / ulp::<f32>(exact.abs().max(floor))
}

/// The bits of a number. Rust leaves sign and payload of a NaN to the compiler.
fn bits<T: Real>(x: T) -> u64 {
    if x.is_nan() { f64::NAN.to_bits() } else { x.to_f64().to_bits() }
}

/// Checks a function on all levels: levels that fuse have equal bits, bounded functions are bounded, and odd
/// functions keep the sign. Returns the largest error on each level, and its argument.
fn check(f: &Function, x: &[f32]) -> Vec<(f64, f32)> {
    let exact: Vec<f64> = x.iter().map(|&x| (f.exact)(x.into())).collect();
    let mut fused = None;
    let on_level = |level| {
        let y = apply(level, f.name, x);
        for (&x, &y) in x.iter().zip(&y).filter(|(_, y)| !y.is_nan()) {
            let is_bounded = ["tanh", "erf", "sin", "cos"].contains(&f.name);
            assert!(!is_bounded || y.abs() <= 1.0, "{}({x:e}) = {y:e}", f.name);
            let keeps_sign = x.is_sign_negative() == y.is_sign_negative();
            assert!(!f.odd || f.name == "sin" || keeps_sign, "{}({x:e}) = {y:e}", f.name);
        }
        if level.is_fused() {
            let want: &Vec<f32> = fused.get_or_insert_with(|| y.clone());
            if let Some(i) = (0..x.len()).find(|&i| bits(y[i]) != bits(want[i])) {
                let (x, y, want) = (x[i], y[i], want[i]);
                panic!("{}({x:e}) on {level} is {y:e}, not {want:e}", f.name);
            }
        }
        let errors = y.iter().zip(&exact).map(|(&got, &exact)| ulps(got, exact, f.floor));
        errors.zip(x.iter().copied()).fold((0.0, 0.0), worse)
    };
    Level::available().into_iter().map(on_level).collect()
}

fn worse(a: (f64, f32), b: (f64, f32)) -> (f64, f32) {
    if b.0 > a.0 { b } else { a }
}

fn within_the_bound(f: &Function, worst: Vec<(f64, f32)>) {
    for (level, (error, x)) in Level::available().into_iter().zip(worst) {
        println!("{:8} {level:8} {error:8.3} ULP at {x:e} ({:#010x})", f.name, x.to_bits());
        assert!(error <= f.bound, "{}({x:e}) on {level}: {error} ULP", f.name);
    }
}

/// Prints the largest errors. `ULP_STRIDE=1` checks all numbers, and `OP` selects one function.
#[test]
fn errors_are_within_their_documented_bounds() {
    let only = std::env::var("OP").ok();
    let is_selected = |f: &&Function| only.as_deref().is_none_or(|only| only == f.name);
    assert!(all().any(|f| is_selected(&f)), "no function OP={only:?}");
    for f in all().filter(is_selected) {
        let none = || vec![(0.0, 0.0); Level::available().len()];
        let worst = samples()
            .map(|x| check(f, &x))
            .reduce(none, |a, b| a.into_iter().zip(b).map(|(a, b)| worse(a, b)).collect());
        within_the_bound(f, worst);
    }
}

/// The floats around every multiple of `pi / 2` that is reduced in `f32`, where sine or cosine are
/// nearly 0 and depend on every digit of `pi`.
#[test]
fn sine_and_cosine_are_accurate_near_their_zeros() {
    let nearest = |n: i32| (f64::from(n) * std::f64::consts::FRAC_PI_2) as f32;
    let x: Vec<f32> =
        (1..=8200).map(nearest).flat_map(|x| [x.next_down(), x, x.next_up(), -x]).collect();
    for f in FUNCTIONS.iter().filter(|f| ["sin", "cos"].contains(&f.name)) {
        within_the_bound(f, check(f, &x));
    }
}

#[test]
fn documented_values_at_edges() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let cases: &[(&str, f32, f32)] = &[
        ("exp", 0.0, 1.0),
        ("exp", -0.0, 1.0),
        ("exp", inf, inf),
        ("exp", -inf, 0.0),
        ("exp", 88.722_83, 3.402_798_5e38),
        ("exp", 88.722_84, inf),
        ("exp", -103.5, f32::from_bits(1)),
        ("exp", -104.0, 0.0),
        ("exp", f32::MIN, 0.0),
        ("expm1", inf, inf),
        ("expm1", -inf, -1.0),
        ("expm1", 88.73, inf),
        ("expm1", -30.0, -1.0),
        ("ln", 0.0, -inf),
        ("ln", -0.0, -inf),
        ("ln", 1.0, 0.0),
        ("ln", inf, inf),
        ("ln", -1.0, nan),
        ("ln", -inf, nan),
        ("ln", -1e-40, nan),
        ("ln", f32::from_bits(1), -103.278_93),
        ("log1p", -1.0, -inf),
        ("log1p", -1.5, nan),
        ("log1p", -inf, nan),
        ("log1p", inf, inf),
        ("log1p", f32::MAX, 88.722_84),
        ("tanh", inf, 1.0),
        ("tanh", -inf, -1.0),
        ("tanh", 9.1, 1.0),
        ("erf", inf, 1.0),
        ("erf", -inf, -1.0),
        ("erf", 4.0, 1.0),
        ("sin", inf, nan),
        ("sin", -inf, nan),
        ("cos", 0.0, 1.0),
        ("cos", -0.0, 1.0),
        ("cos", 1e-40, 1.0),
        ("cos", inf, nan),
        ("cos", -inf, nan),
        ("sigmoid", 0.0, 0.5),
        ("sigmoid", inf, 1.0),
        ("sigmoid", -inf, 0.0),
        ("silu", -0.0, -0.0),
        ("silu", inf, inf),
        ("silu", -104.5, -0.0),
        ("gelu", 0.0, 0.0),
        ("gelu", -0.0, -0.0),
        ("gelu", inf, inf),
        ("gelu", -inf, nan),
        ("gelu", -12.94, -0.0),
        ("gelu", 12.94, 12.94),
        ("gelu", f32::MIN, -0.0),
        ("gelu", f32::MAX, f32::MAX),
        ("gelu'", 0.0, 0.5),
        ("gelu'", 1e30, 1.0),
        ("gelu'", -1e30, 0.0),
        ("gelu_tanh'", 1e30, 1.0),
        ("gelu_tanh'", -1e30, 0.0),
        ("softplus", inf, inf),
        ("softplus", -inf, 0.0),
        ("softplus", -104.5, 0.0),
    ];
    for level in Level::available() {
        for &(name, x, want) in cases {
            let got = one(level, name, x);
            assert_eq!(bits(got), bits(want), "{name}({x:e}) = {got:e} on {level}, not {want:e}");
        }
        // As in PyTorch, ELU passes the gradient where x is not below 0.
        for f in all().filter(|f| f.name != "elu'") {
            for x in [nan, -nan, f32::from_bits(0x7f80_0001)] {
                assert!(one(level, f.name, x).is_nan(), "{} of NaN on {level}", f.name);
            }
        }
    }
}

/// The result of a lane does not depend on other lanes, even if some of them take a slower path.
/// (Which of two NaN operands an operation propagates is the compiler's choice.)
#[test]
fn lanes_are_independent() {
    let x = [1e9, 0.5, -3e30, f32::NAN, 12_866.9, 12_867.1, f32::INFINITY, -0.0, 1e-42, 88.0, -2.5];
    for level in Level::available() {
        for (functions, any_nan) in
            [(&FUNCTIONS[..], false), (&ACTIVATIONS, true), (&DERIVATIVES, true)]
        {
            for f in functions {
                for (&x, together) in x.iter().zip(apply(level, f.name, &x)) {
                    let alone = one(level, f.name, x);
                    let same = alone.to_bits() == together.to_bits()
                        || any_nan && alone.is_nan() && together.is_nan();
                    assert!(same, "{}({x:e}) is {alone:e} or {together:e} on {level}", f.name);
                }
            }
        }
    }
}

/// Arguments of every size, and around those where functions change their formulas.
fn wide_samples() -> Vec<f64> {
    let edges = [
        0.35, 0.5, 0.75, 1.0, 1.41, 2.1, 4.0, 6.0, 13.0, 19.1, 37.5, 39.0, 709.8, 745.2, 1e6,
        1647099.0,
    ];
    let near = edges.into_iter().flat_map(|x| (-3..=3).map(move |i| x + f64::from(i) * x * 1e-16));
    let even = (1..60_000).map(|i| f64::from(i) / 1500.0);
    let sizes = (0..6000).map(|i| 1.7f64 * 2f64.powf(f64::from(i) * 0.35 - 1074.0));
    let edges = [0.0, f64::from_bits(1), f64::MIN_POSITIVE, f64::MAX, f64::INFINITY, f64::NAN];
    near.chain(even).chain(sizes).chain(edges).flat_map(|x| [x, -x]).collect()
}

/// The standard library's functions are off by one unit themselves.
#[test]
fn f64_functions_agree_with_the_standard_library() {
    let x = wide_samples();
    for &Function { name, exact, bound, .. } in &FUNCTIONS {
        let mut vectors: Option<Vec<f64>> = None;
        for level in Level::available() {
            let got = apply(level, name, &x);
            let bound = if !level.is_fused() { 0.0 } else { bound.min(2.0) + 1.0 };
            for (&x, &got) in x.iter().zip(&got) {
                let want = exact(x);
                let error = (got - want).abs() / (want.abs() * f64::EPSILON).max(f64::from_bits(1));
                let near = error <= bound && got.is_sign_negative() == want.is_sign_negative();
                let is_right = near || bits(got) == bits(want);
                assert!(is_right, "{name}({x:e}) on {level} = {got:e}, not {want:e}");
            }
            if level.is_fused() {
                let bits = |y: &[f64]| y.iter().map(|y| y.to_bits()).collect::<Vec<_>>();
                let want = vectors.get_or_insert_with(|| got.clone());
                assert!(bits(&got) == bits(want), "{name} on {level}");
            }
        }
    }
}

/// The tail of the normal distribution by Laplace's continued fraction, and no tail beyond the last normal number.
#[test]
fn f64_tails_are_relatively_accurate() {
    let tail = |a: f64| {
        let rounded = a * a;
        let lost = a.mul_add(a, -rounded);
        let density = (-0.5 * rounded).exp() * (1.0 - 0.5 * lost) / TAU.sqrt();
        density / (1..400).rev().fold(a, |rest, k| a + f64::from(k) / rest)
    };
    let a: Vec<f64> = (300..3750).map(|i| f64::from(i) / 100.0).collect();
    for level in Level::available().into_iter().filter(|&level| level > Level::Neon) {
        let negative: Vec<f64> = a.iter().map(|a| -a).collect();
        for (&a, got) in a.iter().zip(apply(level, "gelu", &negative)) {
            let want = -a * tail(a);
            assert!((got / want - 1.0).abs() < 2e-15, "GELU of {} is {got:e}, not {want:e}", -a);
        }
        let beyond = apply(level, "gelu", &[-37.6, -1e300, 37.6, 0.0]);
        assert_eq!(beyond, [0.0, 0.0, 37.6, 0.0]);
    }
}

/// Powers of `f32`: rounded to the nearest number but for ties, with the conventions of `powf`.
#[test]
fn powers_and_remainders_of_f32() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let specials =
        [0.0, 1e-45, 1e-38, 0.3, 0.5, 1.0, 2.0, 3.0, 7.5, 16777215.0, 16777216.0, 3e38, inf, nan];
    let specials: Vec<f32> = specials.into_iter().flat_map(|x| [x, -x]).collect();
    let mut pairs: Vec<(f32, f32)> =
        specials.iter().flat_map(|&a| specials.iter().map(move |&b| (a, b))).collect();
    pairs.extend((0..40_000).map(|i: u32| {
        let a = 2f64.powf(f64::from(i.wrapping_mul(2_654_435_761) % 99_991) / 500.0 - 100.0);
        (a as f32, (f64::from(i % 971) / 97.1 - 5.0) as f32)
    }));
    let a = Tensor::from_vec(pairs.iter().map(|p| p.0).collect(), [pairs.len()]);
    let b = Tensor::from_vec(pairs.iter().map(|p| p.1).collect(), [pairs.len()]);
    let check = |what: &str,
                 y: &(dyn Fn() -> Tensor<f32> + Sync),
                 is_right: &dyn Fn(f32, f32, f32) -> bool| {
        let (vectors, scalar) = everywhere(what, y);
        for (i, &(a, b)) in pairs.iter().enumerate() {
            for y in [vectors.at(&[i]), scalar.at(&[i])] {
                assert!(is_right(a, b, y), "{what} of {a:e} and {b:e} is {y:e}");
            }
        }
    };
    check("pow", &|| a.pow(&b), &|a, b, y| {
        let exact = f64::from(a).powf(b.into());
        let sign = y.is_sign_negative() == (exact as f32).is_sign_negative();
        (exact.is_nan() || sign) && ulps(y, exact, 0.0) <= 0.51
    });
    check("fmod", &|| a.fmod(&b), &|a, b, y| bits(y) == bits(a % b));
    check("remainder", &|| a.remainder(&b), &|a, b, y| {
        let rest = a % b;
        bits(y) == bits(if rest * b.signum() < 0.0 { rest + b } else { rest })
    });
}
