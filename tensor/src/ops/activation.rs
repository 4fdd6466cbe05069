//! Activation functions.

use crate::compiled;
use crate::ops::pointwise::{Pointwise, Saves};
use crate::par::Cost;
use crate::simd::{Lanes, Real};
use crate::tensor::Tensor;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// `max(x, 0)`
#[derive(Clone, Copy, Debug)]
pub struct Relu;

impl<T: Real> Pointwise<T> for Relu {
    const NAME: &'static str = "relu";
    const SAVES: Saves = Saves::Output;
    const COST: Cost = Cost::MOVE;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        s.max(x, s.splat(T::ZERO))
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, y: S::V, g: S::V) -> S::V {
        s.select(s.le(y, s.splat(T::ZERO)), s.splat(T::ZERO), g)
    }
}

/// `x` above 0, `slope · x` below
#[derive(Clone, Copy, Debug)]
pub struct LeakyRelu<T> {
    /// The slope below 0.
    pub slope: T,
}

impl<T: Real> Pointwise<T> for LeakyRelu<T> {
    const NAME: &'static str = "leaky_relu";
    const SAVES: Saves = Saves::Input;
    const COST: Cost = Cost::MOVE;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        s.select(s.le(x, s.splat(T::ZERO)), s.mul(x, s.splat(self.slope)), x)
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, x: S::V, g: S::V) -> S::V {
        s.select(s.le(x, s.splat(T::ZERO)), s.mul(g, s.splat(self.slope)), g)
    }
}

/// `x` above 0, `alpha · (eˣ - 1)` below
#[derive(Clone, Copy, Debug)]
pub struct Elu<T> {
    /// The depth below 0.
    pub alpha: T,
}

impl<T: Real> Pointwise<T> for Elu<T> {
    const NAME: &'static str = "elu";
    const SAVES: Saves = Saves::Input;
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        let low = s.mul(s.splat(self.alpha), T::expm1(s, x));
        s.select(s.le(x, s.splat(T::ZERO)), low, x)
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, x: S::V, g: S::V) -> S::V {
        let low = s.mul(s.mul(g, s.splat(self.alpha)), T::exp(s, x));
        s.select(s.le(x, s.splat(T::ZERO)), low, g)
    }
}

/// `1 / (1 + e⁻ˣ)`
#[derive(Clone, Copy, Debug)]
pub struct Sigmoid;

impl<T: Real> Pointwise<T> for Sigmoid {
    const NAME: &'static str = "sigmoid";
    const SAVES: Saves = Saves::Output;
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        sigmoid(s, x)
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, y: S::V, g: S::V) -> S::V {
        s.mul(g, s.mul(y, s.sub(s.splat(T::ONE), y)))
    }
}

/// Hyperbolic tangent
#[derive(Clone, Copy, Debug)]
pub struct Tanh;

impl<T: Real> Pointwise<T> for Tanh {
    const NAME: &'static str = "tanh";
    const SAVES: Saves = Saves::Output;
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        T::tanh(s, x)
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, y: S::V, g: S::V) -> S::V {
        s.mul(g, s.sub(s.splat(T::ONE), s.mul(y, y)))
    }
}

/// `x · sigmoid(x)`
#[derive(Clone, Copy, Debug)]
pub struct Silu;

impl<T: Real> Pointwise<T> for Silu {
    const NAME: &'static str = "silu";
    const SAVES: Saves = Saves::Input;
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        s.mul(x, sigmoid(s, x))
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, x: S::V, g: S::V) -> S::V {
        let (y, rest) = (sigmoid(s, x), sigmoid(s, s.neg(x)));
        s.mul(g, s.fma(y, s.mul(x, rest), y))
    }
}

/// `ln(1 + eˣ)`
#[derive(Clone, Copy, Debug)]
pub struct Softplus;

impl<T: Real> Pointwise<T> for Softplus {
    const NAME: &'static str = "softplus";
    const SAVES: Saves = Saves::Input;
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        let small = T::log1p(s, T::exp(s, s.neg(s.abs(x))));
        s.add(s.max(x, s.splat(T::ZERO)), small)
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, x: S::V, g: S::V) -> S::V {
        s.mul(g, sigmoid(s, x))
    }
}

/// `x · tanh(ln(1 + eˣ))`
#[derive(Clone, Copy, Debug)]
pub struct Mish;

impl<T: Real> Pointwise<T> for Mish {
    const NAME: &'static str = "mish";
    const SAVES: Saves = Saves::Input;
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        s.mul(x, T::tanh(s, Softplus.f(s, x)))
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, x: S::V, g: S::V) -> S::V {
        let t = T::tanh(s, Softplus.f(s, x));
        let bend = s.mul(s.sub(s.splat(T::ONE), s.mul(t, t)), sigmoid(s, x));
        s.mul(g, s.fma(x, bend, t))
    }
}

/// `x · Φ(x)`
#[derive(Clone, Copy, Debug)]
pub struct Gelu;

impl<T: Real> Pointwise<T> for Gelu {
    const NAME: &'static str = "gelu";
    const SAVES: Saves = Saves::Input;
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        s.mul(x, T::normal(s, x).0)
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, x: S::V, g: S::V) -> S::V {
        let (cdf, density) = T::normal(s, x);
        s.mul(g, s.fma(x, density, cdf))
    }
}

/// GELU by tanh
#[derive(Clone, Copy, Debug)]
pub struct GeluTanh;

impl<T: Real> Pointwise<T> for GeluTanh {
    const NAME: &'static str = "gelu_tanh";
    const SAVES: Saves = Saves::Input;
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        let half = s.mul(x, s.splat(T::from_f64(0.5)));
        s.fma(half, T::tanh(s, gelu_inner(s, x)), half)
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, x: S::V, g: S::V) -> S::V {
        let (c, a) = (s.splat(T::from_f64(GELU_C)), s.splat(T::from_f64(3.0 * GELU_A)));
        let t = T::tanh(s, gelu_inner(s, x));
        let one = s.splat(T::ONE);
        let inner_slope = s.mul(c, s.fma(s.mul(a, x), x, one));
        let bend = s.mul(s.mul(x, s.sub(one, s.mul(t, t))), inner_slope);
        s.mul(s.mul(g, s.splat(T::from_f64(0.5))), s.add(s.add(one, t), bend))
    }
}

impl<T: Real> Tensor<T> {
    /// `max(x, 0)`; NaN of NaN. The derivative at 0 is 0.
    #[track_caller]
    pub fn relu(&self) -> Tensor<T> {
        self.map(Relu)
    }

    /// `x` above 0, `slope · x` below. The derivative at 0 is `slope`.
    ///
    /// Maas, Hannun, Ng 2013.
    #[track_caller]
    pub fn leaky_relu(&self, slope: T) -> Tensor<T> {
        self.map(LeakyRelu { slope })
    }

    /// `x` above 0, `alpha · (eˣ - 1)` below. The derivative at 0 is `alpha`.
    ///
    /// Clevert, Unterthiner, Hochreiter 2015 (arXiv 1511.07289).
    #[track_caller]
    pub fn elu(&self, alpha: T) -> Tensor<T> {
        self.map(Elu { alpha })
    }

    /// `1 / (1 + e⁻ˣ)`, without overflow on either side.
    #[track_caller]
    pub fn sigmoid(&self) -> Tensor<T> {
        self.map(Sigmoid)
    }

    /// Hyperbolic tangent.
    #[track_caller]
    pub fn tanh(&self) -> Tensor<T> {
        self.map(Tanh)
    }

    /// `x · sigmoid(x)`, also called swish.
    ///
    /// Hendrycks, Gimpel 2016 (arXiv 1606.08415).
    #[track_caller]
    pub fn silu(&self) -> Tensor<T> {
        self.map(Silu)
    }

    /// `x · tanh(ln(1 + eˣ))`
    ///
    /// Misra 2019 (arXiv 1908.08681).
    #[track_caller]
    pub fn mish(&self) -> Tensor<T> {
        self.map(Mish)
    }

    /// `ln(1 + eˣ)`, without overflow.
    #[track_caller]
    pub fn softplus(&self) -> Tensor<T> {
        self.map(Softplus)
    }

    /// `x · Φ(x)` with the normal distribution function `Φ(x) = (1 + erf(x/√2)) / 2`: the exact
    /// form, PyTorch's default. NaN of -∞, as in PyTorch.
    ///
    /// In `f32` at most 4 ULP from the exact value above -12.94. From there down it is -0 and
    /// the derivative 0; the exact value is between -1.74e-37 and 0.
    ///
    /// Hendrycks, Gimpel 2016 (arXiv 1606.08415).
    #[track_caller]
    pub fn gelu(&self) -> Tensor<T> {
        self.map(Gelu)
    }

    /// `x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))`: the approximation of GELU that GPT-2 used.
    ///
    /// Hendrycks, Gimpel 2016 (arXiv 1606.08415).
    #[track_caller]
    pub fn gelu_tanh(&self) -> Tensor<T> {
        self.map(GeluTanh)
    }
}

/// The factor `√(2/π)` of [`GeluTanh`].
pub const GELU_C: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
/// The cubic factor of [`GeluTanh`].
pub const GELU_A: f64 = 0.044715;

#[inline(always)]
fn gelu_inner<T: Real, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    let (c, a) = (s.splat(T::from_f64(GELU_C)), s.splat(T::from_f64(GELU_A)));
    s.mul(s.mul(c, x), s.fma(s.mul(a, x), x, s.splat(T::ONE)))
}

/// By `e^-|x|`, which cannot overflow and keeps its digits where the result is tiny.
#[inline(always)]
fn sigmoid<T: Real, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    let one = s.splat(T::ONE);
    let e = T::exp(s, s.neg(s.abs(x)));
    let top = s.select(s.lt(x, s.splat(T::ZERO)), e, one);
    s.div(top, s.add(one, e))
}

/// Compiles the functions of this file, see [`compiled`].
pub(crate) fn compiled<T: Real>() {
    compiled::activation::<T, Relu>();
    compiled::activation::<T, LeakyRelu<T>>();
    compiled::activation::<T, Elu<T>>();
    compiled::activation::<T, Sigmoid>();
    compiled::activation::<T, Tanh>();
    compiled::activation::<T, Silu>();
    compiled::activation::<T, Softplus>();
    compiled::activation::<T, Mish>();
    compiled::activation::<T, Gelu>();
    compiled::activation::<T, GeluTanh>();
}
