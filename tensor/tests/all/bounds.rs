//! Formulas on numbers with error bounds: what a kernel may be off by (running error analysis).
//!
//! Wilkinson 1963; Higham, *Accuracy and Stability of Numerical Algorithms*, 2002, section 3.3.

use crate::common::ulp;
use retrograd_tensor::Real;
use retrograd_tensor::formula::{Algebra, Expr};
use std::f64::consts::{FRAC_1_SQRT_2, SQRT_2, TAU};

/// A number, and how far from it the result of a kernel on `T` may be.
#[derive(Clone, Copy, Debug)]
pub struct Bounded {
    pub value: f64,
    pub error: f64,
}

/// A truth value, and whether rounding cannot change it.
#[derive(Clone, Copy)]
pub struct Truth {
    holds: bool,
    is_sure: bool,
}

/// The algebra. Each operation adds its documented error, in units in the last place of `T`.
#[derive(Clone, Copy)]
pub struct Bounds;

/// The number `x` of `T`.
pub fn exact<T: Real>(x: T) -> Expr<T, Bounds> {
    Expr::new(Bounds, Bounded { value: x.to_f64(), error: 0.0 })
}

/// The result of an operation with an error of so many units in the last place, on operands with errors
/// that change it by `error`.
fn rounded<T: Real>(value: f64, error: f64, ulps: f64) -> Bounded {
    // 1e-6 more, for rounding in f64.
    let error = error + 1.000_001 * ulps * ulp::<T>(value);
    match T::from_f64(value).to_f64().is_finite() {
        true => Bounded { value, error },
        false => Bounded { value: T::from_f64(value).to_f64(), error: 0.0 },
    }
}

/// A function that is monotonic within the error of its argument.
fn function<T: Real>(f: impl Fn(f64) -> f64, x: Bounded, ulps: f64) -> Bounded {
    let value = f(x.value);
    let change = |x| (f(x) - value).abs();
    let error =
        if x.error == 0.0 { 0.0 } else { change(x.value - x.error).max(change(x.value + x.error)) };
    rounded::<T>(value, error, ulps)
}

fn compare(a: Bounded, b: Bounded, holds: bool) -> Truth {
    let is_exact = a.error + b.error == 0.0;
    Truth { holds, is_sure: is_exact || (a.value - b.value).abs() > a.error + b.error }
}

/// Methods of functions, with their errors in units in the last place.
macro_rules! functions {
    ($($name:ident = $f:expr, $ulps:expr;)+) => {$(
        fn $name(self, x: Bounded) -> Bounded {
            function::<T>($f, x, $ulps)
        }
    )+};
}

impl<T: Real> Algebra<T> for Bounds {
    type V = Bounded;
    type M = Truth;

    fn splat(self, x: T) -> Bounded {
        exact(x).value()
    }
    fn add(self, a: Bounded, b: Bounded) -> Bounded {
        rounded::<T>(a.value + b.value, a.error + b.error, 0.5)
    }
    fn sub(self, a: Bounded, b: Bounded) -> Bounded {
        rounded::<T>(a.value - b.value, a.error + b.error, 0.5)
    }
    fn mul(self, a: Bounded, b: Bounded) -> Bounded {
        let error = a.value.abs() * b.error + b.value.abs() * a.error + a.error * b.error;
        rounded::<T>(a.value * b.value, error, 0.5)
    }
    fn div(self, a: Bounded, b: Bounded) -> Bounded {
        let quotient = a.value / b.value;
        let error = (a.error + quotient.abs() * b.error) / (b.value.abs() - b.error).max(0.0);
        rounded::<T>(quotient, if a.error + b.error == 0.0 { 0.0 } else { error }, 0.5)
    }
    /// With or without rounding the product.
    fn fma(self, a: Bounded, b: Bounded, c: Bounded) -> Bounded {
        Algebra::<T>::add(self, Algebra::<T>::mul(self, a, b), c)
    }
    fn neg(self, a: Bounded) -> Bounded {
        Bounded { value: -a.value, ..a }
    }
    fn abs(self, a: Bounded) -> Bounded {
        Bounded { value: a.value.abs(), ..a }
    }
    fn sign(self, a: Bounded) -> Bounded {
        let sign = |x: f64| if x == 0.0 || x.is_nan() { x } else { x.signum() };
        function::<T>(sign, a, 0.0)
    }
    fn min(self, a: Bounded, b: Bounded) -> Bounded {
        let is_first = compare(a, b, a.value < b.value || a.value.is_nan());
        Algebra::<T>::select(self, is_first, a, b)
    }
    fn max(self, a: Bounded, b: Bounded) -> Bounded {
        let least = Algebra::<T>::min(self, Algebra::<T>::neg(self, a), Algebra::<T>::neg(self, b));
        Algebra::<T>::neg(self, least)
    }

    fn lt(self, a: Bounded, b: Bounded) -> Truth {
        compare(a, b, a.value < b.value)
    }
    fn le(self, a: Bounded, b: Bounded) -> Truth {
        compare(a, b, a.value <= b.value)
    }
    fn eq(self, a: Bounded, b: Bounded) -> Truth {
        compare(a, b, a.value == b.value)
    }
    fn is_nan(self, a: Bounded) -> Truth {
        Truth { holds: a.value.is_nan(), is_sure: true }
    }
    fn and(self, a: Truth, b: Truth) -> Truth {
        Truth { holds: a.holds && b.holds, is_sure: a.is_sure && b.is_sure }
    }
    fn or(self, a: Truth, b: Truth) -> Truth {
        Truth { holds: a.holds || b.holds, is_sure: a.is_sure && b.is_sure }
    }
    fn not(self, a: Truth) -> Truth {
        Truth { holds: !a.holds, ..a }
    }
    fn select(self, m: Truth, a: Bounded, b: Bounded) -> Bounded {
        let (chosen, other) = if m.holds { (a, b) } else { (b, a) };
        let apart = if m.is_sure { 0.0 } else { (a.value - b.value).abs() + other.error };
        Bounded { error: chosen.error.max(apart), ..chosen }
    }

    functions! {
        sqrt = f64::sqrt, 0.5;
        round = f64::round_ties_even, 0.0;
        exp = f64::exp, 1.5;
        expm1 = f64::exp_m1, 2.0;
        ln = f64::ln, 1.0;
        log1p = f64::ln_1p, 2.0;
        tanh = f64::tanh, 3.0;
        erf = libm::erf, 1.5;
        sin = f64::sin, 3.0;
        cos = f64::cos, 3.0;
    }
    fn powf(self, x: Bounded, p: T) -> Bounded {
        function::<T>(|x| x.powf(p.to_f64()), x, 0.5)
    }
    fn sigmoid(self, x: Bounded) -> Bounded {
        let sigmoid =
            |x: f64| if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) };
        function::<T>(sigmoid, x, 3.0)
    }
    fn softplus(self, x: Bounded) -> Bounded {
        let softplus = |x: f64| if x.is_nan() { x } else { x.max(0.0) + (-x.abs()).exp().ln_1p() };
        function::<T>(softplus, x, 2.0)
    }
    /// Where GELU vanishes, they are 0.
    fn normal(self, x: Bounded) -> (Bounded, Bounded) {
        // The argument of `erfc` is rounded to `x / √2 - lost`, which matters in the tail.
        const SQRT_2_REST: f64 = -9.667_293_313_452_913e-17;
        let cdf = |x: f64| {
            let rounded = x * FRAC_1_SQRT_2;
            let lost = (-rounded).mul_add(SQRT_2, x) - rounded * SQRT_2_REST;
            let change = if x.is_finite() { (-0.5 * x * x).exp() / TAU.sqrt() * lost } else { 0.0 };
            0.5 * libm::erfc(-rounded) + change
        };
        let density = |x: f64| (-0.5 * x * x).exp() / TAU.sqrt();
        let with = |f: &dyn Fn(f64) -> f64, vanished| {
            let y = function::<T>(f, x, 3.0);
            Bounded { error: y.error + vanished, ..y }
        };
        (with(&cdf, 1.4e-38), with(&density, 1.8e-37))
    }
}
