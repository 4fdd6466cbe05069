//! Activation functions.

use crate::cost::Cost;
use crate::formula::{Algebra, Expr, Parameter};
use crate::kernels::Real;
use crate::ops::pointwise::{ForEachOp, Pointwise, Saves, pointwise};
use crate::tensor::Tensor;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

pointwise! {
    "# Activation functions"

    /// `max(x, 0)`; NaN of NaN. The derivative at 0 is 0.
    Relu, pub fn relu, saves Output, costs MOVE;
    f(x) { x.max(0.0) }
    vjp(y, g) { y.le(0.0).select(0.0, g) }

    /// `max(x, 0)²`; NaN of NaN.
    ///
    /// So et al. 2021 (arXiv 2109.08668).
    ReluSquared, pub fn relu_squared, saves Input, costs MOVE;
    f(x) { let r = x.max(0.0); r * r }
    vjp(x, g) { let r = x.max(0.0); g * (r + r) }

    /// `x` above 0, `slope · x` below. The derivative at 0 is `slope`.
    ///
    /// Maas, Hannun, Ng 2013.
    LeakyRelu {
        /// The slope below 0.
        slope = 0.01,
    }, pub fn leaky_relu, saves Input, costs MOVE;
    f(x) { x.le(0.0).select(x * slope, x) }
    vjp(x, g) { x.le(0.0).select(g * slope, g) }

    /// `x` above 0, `alpha · (eˣ - 1)` below. The derivative at 0 is `alpha`.
    ///
    /// Clevert, Unterthiner, Hochreiter 2015 (arXiv 1511.07289).
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([f32::NEG_INFINITY, 0.0, 2.0]);
    /// assert_eq!(x.elu(1.5).to_vec(), [-1.5, 0.0, 2.0]);
    /// ```
    Elu {
        /// The negative of the limit at -∞.
        alpha = 1.0,
    }, pub fn elu, saves Input, costs COSTLY;
    f(x) { x.le(0.0).select(alpha * x.expm1(), x) }
    vjp(x, g) {
        // Above 0, where this branch is not selected, e^x might overflow.
        let low = x.le(0.0).select(x, 0.0);
        x.le(0.0).select(g * alpha * low.exp(), g)
    }

    /// `1 / (1 + e⁻ˣ)`, without overflow on either side.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([-200.0f32, 0.0, 200.0]);
    /// assert_eq!(x.sigmoid().to_vec(), [0.0, 0.5, 1.0]);
    /// ```
    Sigmoid, pub fn sigmoid, saves Output, costs COSTLY;
    f(x) { x.sigmoid() }
    vjp(y, g) { g * (y * (1.0 - y)) }

    /// Hyperbolic tangent.
    Tanh, pub fn tanh, saves Output, costs COSTLY;
    f(x) { x.tanh() }
    vjp(y, g) { g * (1.0 - y * y) }

    /// `x · sigmoid(x)`, also called swish.
    ///
    /// Hendrycks, Gimpel 2016 (arXiv 1606.08415).
    #[doc(alias = "swish")]
    Silu, pub fn silu, saves Input, costs COSTLY;
    f(x) { x * x.sigmoid() }
    vjp(x, g) {
        let (y, complement) = (x.sigmoid(), (-x).sigmoid());
        g * y.mul_add(x * complement, y)
    }

    /// `x / (1 + |x|)`, between -1 and 1; NaN of ±∞, as in PyTorch.
    ///
    /// Turian, Bergstra, Bengio 2009.
    Softsign, pub fn softsign, saves Input, costs CHEAP;
    f(x) { x / (1.0 + x.abs()) }
    vjp(x, g) { let d = 1.0 + x.abs(); g / d / d }

    /// `x · min(max(x + 3, 0), 6) / 6`, an approximation of [SiLU](Tensor::silu) without an exponential; NaN of
    /// -∞, as in PyTorch. The derivative is 0 at -3 and 1 at 3.
    ///
    /// Howard et al. 2019 (arXiv 1905.02244).
    Hardswish, pub fn hardswish, saves Input, costs CHEAP;
    f(x) { x * ((x + 3.0).max(0.0).min(6.0) / 6.0) }
    vjp(x, g) {
        let above = x.lt(3.0).select(g * (x / 3.0 + 0.5), g);
        x.le(-3.0).select(0.0, above)
    }

    /// `ln(1 + eˣ)`, without overflow.
    Softplus, pub fn softplus, saves Input, costs COSTLY;
    f(x) { x.softplus() }
    vjp(x, g) { g * x.sigmoid() }

    /// `ln sigmoid(x) = -ln(1 + e⁻ˣ)`, without overflow: the log-probability of a preference.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([-1000.0f32, 0.0, 1000.0]);
    /// assert_eq!(x.log_sigmoid().to_vec(), [-1000.0, -2f32.ln(), 0.0]);
    /// ```
    #[doc(alias = "logsigmoid")]
    LogSigmoid, pub fn log_sigmoid, saves Input, costs COSTLY;
    f(x) { -(-x).softplus() }
    vjp(x, g) { g * (-x).sigmoid() }

    /// `x · tanh(ln(1 + eˣ))`
    ///
    /// Misra 2019 (arXiv 1908.08681).
    Mish, pub fn mish, saves Input, costs COSTLY;
    f(x) { x * x.softplus().tanh() }
    vjp(x, g) {
        let t = x.softplus().tanh();
        let dt = (1.0 - t * t) * x.sigmoid();
        g * x.mul_add(dt, t)
    }

    /// `x · Φ(x)` with the normal distribution function `Φ(x) = (1 + erf(x/√2)) / 2`: the exact
    /// form, PyTorch's default. NaN of -∞, as in PyTorch.
    ///
    /// In `f32` at most 4 ULP from the exact value above -12.94. From there down it is -0 and
    /// the derivative 0; the exact value is between -1.74e-37 and 0.
    ///
    /// Hendrycks, Gimpel 2016 (arXiv 1606.08415).
    Gelu, pub fn gelu, saves Input, costs COSTLY;
    f(x) {
        let (cdf, _) = x.normal();
        x * cdf
    }
    vjp(x, g) {
        let (cdf, density) = x.normal();
        g * x.mul_add(density, cdf)
    }

    /// `x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))`: the approximation of GELU in GPT-2,
    /// `approximate="tanh"` in PyTorch. It is computed as the equal `x · sigmoid(2 √(2/π) (x + 0.044715 x³))`, in
    /// which nothing cancels.
    ///
    /// Hendrycks, Gimpel 2016 (arXiv 1606.08415).
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([-1.0f64, 1.0]);
    /// assert!((x.gelu_tanh() - x.gelu()).abs().max(..).item() < 2e-4);
    /// ```
    GeluTanh, pub fn gelu_tanh, saves Input, costs COSTLY;
    f(x) {
        x * gelu_inner(x).sigmoid()
    }
    vjp(x, g) {
        let (y, complement) = (gelu_inner(x).sigmoid(), (-gelu_inner(x)).sigmoid());
        // 0 where the square of x could overflow.
        let p = x * (y * complement);
        g * (2.0 * GELU_C * (3.0 * GELU_A * p * x).mul_add(x, p) + y)
    }
}

/// The factor `√(2/π)` of [`GeluTanh`].
pub const GELU_C: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
/// The cubic factor of [`GeluTanh`].
pub const GELU_A: f64 = 0.044715;

/// The argument of the sigmoid in [`GeluTanh`], and in its derivative.
#[inline(always)]
fn gelu_inner<T: Real, A: Algebra<T>>(x: Expr<T, A>) -> Expr<T, A> {
    2.0 * GELU_C * x * (GELU_A * x).mul_add(x, 1.0)
}
