//! Unary functions.

use crate::cost::Cost;
use crate::element::{Element, Integer};
use crate::error::{ErrorKind, assert};
use crate::formula::{Algebra, Expr, Parameter};
use crate::kernels::{Case, Number, Real, case, integers};
use crate::ops::pointwise::{ForEachOp, Pointwise, Saves, pointwise};
use crate::tensor::Tensor;
use std::f64::consts::FRAC_2_SQRT_PI;

pointwise! {
    "# Unary functions"

    /// `-x`
    Neg, named "neg", saves Nothing, costs MOVE;
    f(x) { -x }
    vjp(_, g) { -g }

    /// `|x|`
    Abs, named "abs", saves Input, costs MOVE;
    f(x) { x.abs() }
    vjp(x, g) { g * x.sign() }

    /// -1, 0 or 1; NaN of NaN. The derivative is 0 everywhere.
    Sign, pub fn sign, saves Nothing, costs MOVE;
    f(x) { x.sign() }
    vjp(_, g) { g * 0.0 }

    /// The largest integer that is not above `x`. The derivative is 0.
    Floor, pub fn floor, saves Nothing, costs MOVE;
    f(x) { x.floor() }
    vjp(_, g) { g * 0.0 }

    /// The smallest integer that is not below `x`. The derivative is 0.
    Ceil, pub fn ceil, saves Nothing, costs MOVE;
    f(x) { x.ceil() }
    vjp(_, g) { g * 0.0 }

    /// The nearest integer, and the even one of two that are equally near. The derivative is 0.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([0.5f32, 1.5, -2.6]);
    /// assert_eq!(x.round().to_vec(), [0.0, 2.0, -3.0]);
    /// ```
    Round, pub fn round, saves Nothing, costs MOVE;
    f(x) { x.round() }
    vjp(_, g) { g * 0.0 }

    /// The integer part: `x` rounded towards 0. The derivative is 0.
    Trunc, pub fn trunc, saves Nothing, costs MOVE;
    f(x) { x.gt(0.0).select(x.floor(), x.ceil()) }
    vjp(_, g) { g * 0.0 }

    /// `x²`
    Square, pub fn square, saves Input, costs MOVE;
    f(x) { x * x }
    vjp(x, g) { g * (x + x) }

    /// `x²/2` where `|x|` is at most `delta`, `delta · (|x| - delta/2)` beyond
    Huber {
        /// Where the parabola becomes a line, above 0.
        delta = 1.0,
    }, named "huber", saves Input, costs CHEAP;
    f(x) {
        let (size, inner) = (x.abs(), x.abs().min(delta));
        x.constant(delta).mul_add(size - inner, 0.5 * inner * inner)
    }
    vjp(x, g) {
        let delta = x.constant(delta);
        g * (-delta).max(delta.min(x))
    }

    /// `√x`, correctly rounded; NaN below 0. The derivative at 0 is infinite.
    Sqrt, pub fn sqrt, saves Output, costs CHEAP;
    f(x) { x.sqrt() }
    vjp(y, g) { g * 0.5 / y }

    /// `1/√x`; infinite at 0, NaN below.
    Rsqrt, pub fn rsqrt, saves Output, costs CHEAP;
    f(x) { 1.0 / x.sqrt() }
    vjp(y, g) { g * -0.5 * y * (y * y) }

    /// `1/x`
    #[doc(alias = "reciprocal")]
    Recip, pub fn recip, saves Output, costs CHEAP;
    f(x) { 1.0 / x }
    vjp(y, g) { -(g * (y * y)) }

    /// `eˣ`
    Exp, pub fn exp, saves Output, costs COSTLY;
    f(x) { x.exp() }
    vjp(y, g) { g * y }

    /// `eˣ - 1`, accurate near 0.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::scalar(1e-20f64);
    /// assert_eq!((x.expm1().item(), x.exp().item() - 1.0), (1e-20, 0.0));
    /// ```
    Expm1, pub fn expm1, saves Output, costs COSTLY;
    f(x) { x.expm1() }
    vjp(y, g) { g.mul_add(y, g) }

    /// Natural logarithm; -inf at 0, NaN below.
    #[doc(alias = "log")]
    Ln, pub fn ln, saves Input, costs COSTLY;
    f(x) { x.ln() }
    vjp(x, g) { g / x }

    /// `ln(1 + x)`, accurate near 0; NaN below -1.
    Log1p, pub fn log1p, saves Input, costs COSTLY;
    f(x) { x.log1p() }
    vjp(x, g) { g / (1.0 + x) }

    /// Sine, of radians.
    Sin, pub fn sin, saves Input, costs COSTLY;
    f(x) { x.sin() }
    vjp(x, g) { g * x.cos() }

    /// Cosine, of radians.
    Cos, pub fn cos, saves Input, costs COSTLY;
    f(x) { x.cos() }
    vjp(x, g) { -(g * x.sin()) }

    /// Error function, `2/√π ∫₀ˣ e^(-t²) dt`.
    Erf, pub fn erf, saves Input, costs COSTLY;
    f(x) { x.erf() }
    vjp(x, g) { g * FRAC_2_SQRT_PI * (-(x * x)).exp() }

    /// `x^p`. NaN for negative `x` unless `p` is whole; `0⁰ = 1`. The derivative for `p = 0` is
    /// 0 even at 0.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([3.0f32, -2.0, 0.0]);
    /// assert_eq!(x.powf(3.0).to_vec(), [27.0, -8.0, 0.0]);
    /// ```
    Powf {
        /// The exponent.
        p = 2.5,
    }, pub fn powf, saves Input, costs COSTLY;
    f(x) { x.power(p) }
    vjp(x, g) { if p == 0.0 { g * 0.0 } else { g * (p * x.power(p - 1.0)) } }

    /// `x + c`
    AddScalar {
        /// The addend.
        c = 0.5,
    }, named "add_scalar", saves Nothing, costs MOVE;
    f(x) { x + c }
    vjp(_, g) { g }

    /// `x · c`
    MulScalar {
        /// The factor.
        c = -3.0,
    }, named "mul_scalar", saves Nothing, costs MOVE;
    f(x) { x * c }
    vjp(_, g) { g * c }

    /// `min(max(x, lo), hi)`
    Clamp {
        /// The lower bound.
        lo = -1.0,
        /// The upper bound.
        hi = 1.0,
    }, named "clamp", saves Input, costs MOVE;
    f(x) { x.max(lo).min(hi) }
    vjp(x, g) { (x.gt(lo) & x.lt(hi)).select(g, 0.0) }

    /// `x` with other numbers for NaN, `∞` and `-∞`; PyTorch's defaults are 0 and the largest finite
    /// numbers, [`Float::MAX`](crate::Float::MAX) and its negative. The derivative is 1 where `x` is finite
    /// and 0 elsewhere.
    NanToNum {
        /// The number for NaN.
        nan = 0.0,
        /// The number for `∞`.
        posinf = 9.0,
        /// The number for `-∞`.
        neginf = -9.0,
    }, pub fn nan_to_num, saves Input, costs MOVE;
    f(x) {
        let below = x.eq(f64::INFINITY).select(posinf, x);
        let bounded = x.eq(f64::NEG_INFINITY).select(neginf, below);
        x.is_nan().select(nan, bounded)
    }
    vjp(x, g) { x.abs().lt(f64::INFINITY).select(g, 0.0) }
}

/// # Unary functions
impl<T: Number> Tensor<T> {
    /// `-x`, as a method: the `-` operator does the same.
    ///
    /// # Panics
    /// If the negative of an integer does not fit its type.
    #[track_caller]
    pub fn neg(&self) -> Tensor<T> {
        T::case(NegCase(self))
    }

    /// `|x|`. The derivative at 0 is 0.
    ///
    /// # Panics
    /// If the magnitude of an integer does not fit its type.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([-2.0f32, 3.0]);
    /// assert_eq!(x.abs().to_vec(), [2.0, 3.0]);
    /// ```
    #[track_caller]
    pub fn abs(&self) -> Tensor<T> {
        T::case(AbsCase(self))
    }
}

/// The case of a unary function that integers have, too.
macro_rules! unary_case {
    ($Case:ident: $name:literal, $Op:ident, $integers:expr) => {
        struct $Case<'a, T: Element>(&'a Tensor<T>);

        case! {
            <T> $Case<'_, T> => Tensor<T>, |this|
            real this.0.map($Op),
            integer integers::elementwise($name, [this.0], |[x]| Some($integers(x)))
        }
    };
}

unary_case!(NegCase: "neg", Neg, |x: i128| -x);
unary_case!(AbsCase: "abs", Abs, |x: i128| x.abs());

/// # Unary functions
impl<T: Real> Tensor<T> {
    /// `min(max(x, lo), hi)`; NaN of NaN. The derivative is 1 between `lo` and `hi` and 0
    /// elsewhere, also at the bounds.
    ///
    /// # Panics
    /// If `lo > hi` or either is NaN.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// assert_eq!(Tensor::from([-3.0f32, 0.5]).clamp(-1.0, 1.0).to_vec(), [-1.0, 0.5]);
    /// ```
    #[doc(alias = "clip")]
    #[track_caller]
    pub fn clamp(&self, lo: T, hi: T) -> Tensor<T> {
        assert(lo <= hi, "clamp", ErrorKind::Value, || {
            format!("bounds {lo} and {hi} are not in order")
        });
        self.map(Clamp { lo, hi })
    }
}
