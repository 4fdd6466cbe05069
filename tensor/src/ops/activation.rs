//! Activation functions.

use crate::cost::Cost;
use crate::kernels::Real;
use crate::ops::pointwise::{ForEachOp, Pointwise, Saves, pointwise};
use crate::simd::Algebra;
use crate::tensor::Tensor;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

pointwise! {
    /// `max(x, 0)`
    Relu = "relu", saves Output, costs MOVE;
    f(self, a, x) { a.max(x, a.splat(T::ZERO)) }
    vjp(self, a, y, g) { a.select(a.le(y, a.splat(T::ZERO)), a.splat(T::ZERO), g) }

    /// `max(x, 0)²`
    ReluSquared = "relu_squared", saves Input, costs MOVE;
    f(self, a, x) { let r = a.max(x, a.splat(T::ZERO)); a.mul(r, r) }
    vjp(self, a, x, g) { let r = a.max(x, a.splat(T::ZERO)); a.mul(g, a.add(r, r)) }

    /// `x` above 0, `slope · x` below
    LeakyRelu {
        /// The slope below 0.
        slope,
    } = "leaky_relu", saves Input, costs MOVE;
    f(self, a, x) { a.select(a.le(x, a.splat(T::ZERO)), a.mul(x, a.splat(self.slope)), x) }
    vjp(self, a, x, g) { a.select(a.le(x, a.splat(T::ZERO)), a.mul(g, a.splat(self.slope)), g) }

    /// `x` above 0, `alpha · (eˣ - 1)` below
    Elu {
        /// The negative of the limit at -∞.
        alpha,
    } = "elu", saves Input, costs COSTLY;
    f(self, a, x) {
        let low = a.mul(a.splat(self.alpha), a.expm1(x));
        a.select(a.le(x, a.splat(T::ZERO)), low, x)
    }
    vjp(self, a, x, g) {
        // Above 0, where this branch is not selected, e^x might overflow.
        let zero = a.splat(T::ZERO);
        let low = a.mul(a.mul(g, a.splat(self.alpha)), a.exp(a.select(a.le(x, zero), x, zero)));
        a.select(a.le(x, zero), low, g)
    }

    /// `1 / (1 + e⁻ˣ)`
    Sigmoid = "sigmoid", saves Output, costs COSTLY;
    f(self, a, x) { a.sigmoid(x) }
    vjp(self, a, y, g) { a.mul(g, a.mul(y, a.sub(a.splat(T::ONE), y))) }

    /// Hyperbolic tangent
    Tanh = "tanh", saves Output, costs COSTLY;
    f(self, a, x) { a.tanh(x) }
    vjp(self, a, y, g) { a.mul(g, a.sub(a.splat(T::ONE), a.mul(y, y))) }

    /// `x · sigmoid(x)`
    Silu = "silu", saves Input, costs COSTLY;
    f(self, a, x) { a.mul(x, a.sigmoid(x)) }
    vjp(self, a, x, g) {
        let (y, complement) = (a.sigmoid(x), a.sigmoid(a.neg(x)));
        a.mul(g, a.fma(y, a.mul(x, complement), y))
    }

    /// `x / (1 + |x|)`
    Softsign = "softsign", saves Input, costs CHEAP;
    f(self, a, x) { a.div(x, a.add(a.splat(T::ONE), a.abs(x))) }
    vjp(self, a, x, g) { let d = a.add(a.splat(T::ONE), a.abs(x)); a.div(a.div(g, d), d) }

    /// `x · min(max(x + 3, 0), 6) / 6`
    Hardswish = "hardswish", saves Input, costs CHEAP;
    f(self, a, x) {
        let (three, six) = (a.splat(T::from_f64(3.0)), a.splat(T::from_f64(6.0)));
        a.mul(x, a.div(a.min(a.max(a.add(x, three), a.splat(T::ZERO)), six), six))
    }
    vjp(self, a, x, g) {
        let three = a.splat(T::from_f64(3.0));
        let slope = a.add(a.div(x, three), a.splat(T::from_f64(0.5)));
        let above = a.select(a.lt(x, three), a.mul(g, slope), g);
        a.select(a.le(x, a.neg(three)), a.splat(T::ZERO), above)
    }

    /// `ln(1 + eˣ)`
    Softplus = "softplus", saves Input, costs COSTLY;
    f(self, a, x) { a.softplus(x) }
    vjp(self, a, x, g) { a.mul(g, a.sigmoid(x)) }

    /// `x · tanh(ln(1 + eˣ))`
    Mish = "mish", saves Input, costs COSTLY;
    f(self, a, x) { a.mul(x, a.tanh(a.softplus(x))) }
    vjp(self, a, x, g) {
        let t = a.tanh(a.softplus(x));
        let dt = a.mul(a.sub(a.splat(T::ONE), a.mul(t, t)), a.sigmoid(x));
        a.mul(g, a.fma(x, dt, t))
    }

    /// `x · Φ(x)`
    Gelu = "gelu", saves Input, costs COSTLY;
    f(self, a, x) { a.mul(x, a.normal(x).0) }
    vjp(self, a, x, g) {
        let (cdf, density) = a.normal(x);
        a.mul(g, a.fma(x, density, cdf))
    }

    /// GELU by tanh
    GeluTanh = "gelu_tanh", saves Input, costs COSTLY;
    f(self, a, x) {
        let half = a.mul(x, a.splat(T::from_f64(0.5)));
        a.fma(half, a.tanh(gelu_inner(a, x)), half)
    }
    vjp(self, a, x, g) {
        let (c, cubic) = (a.splat(T::from_f64(GELU_C)), a.splat(T::from_f64(3.0 * GELU_A)));
        let t = a.tanh(gelu_inner(a, x));
        let one = a.splat(T::ONE);
        let d_inner = a.mul(c, a.fma(a.mul(cubic, x), x, one));
        let x_dt = a.mul(a.mul(x, a.sub(one, a.mul(t, t))), d_inner);
        a.mul(a.mul(g, a.splat(T::from_f64(0.5))), a.add(a.add(one, t), x_dt))
    }
}

/// # Activation functions
impl<T: Real> Tensor<T> {
    /// `max(x, 0)`; NaN of NaN. The derivative at 0 is 0.
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// let x = Tensor::from([-1.0f32, 0.0, 2.0]);
    /// assert_eq!(x.relu().to_vec(), [0.0, 0.0, 2.0]);
    /// ```
    #[track_caller]
    pub fn relu(&self) -> Tensor<T> {
        self.map(Relu)
    }

    /// `max(x, 0)²`; NaN of NaN.
    ///
    /// So et al. 2021 (arXiv 2109.08668).
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// let x = Tensor::from([-1.0f32, 0.0, 3.0]);
    /// assert_eq!(x.relu_squared().to_vec(), [0.0, 0.0, 9.0]);
    /// ```
    #[track_caller]
    pub fn relu_squared(&self) -> Tensor<T> {
        self.map(ReluSquared)
    }

    /// `x` above 0, `slope · x` below. The derivative at 0 is `slope`.
    ///
    /// Maas, Hannun, Ng 2013.
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// let x = Tensor::from([-1.0f32, 2.0]);
    /// assert_eq!(x.leaky_relu(0.1).to_vec(), [-0.1, 2.0]);
    /// ```
    #[track_caller]
    pub fn leaky_relu(&self, slope: T) -> Tensor<T> {
        self.map(LeakyRelu { slope })
    }

    /// `x` above 0, `alpha · (eˣ - 1)` below. The derivative at 0 is `alpha`.
    ///
    /// Clevert, Unterthiner, Hochreiter 2015 (arXiv 1511.07289).
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// let x = Tensor::from([f32::NEG_INFINITY, 0.0, 2.0]);
    /// assert_eq!(x.elu(1.5).to_vec(), [-1.5, 0.0, 2.0]);
    /// ```
    #[track_caller]
    pub fn elu(&self, alpha: T) -> Tensor<T> {
        self.map(Elu { alpha })
    }

    /// `1 / (1 + e⁻ˣ)`, without overflow on either side.
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// let x = Tensor::from([-200.0f32, 0.0, 200.0]);
    /// assert_eq!(x.sigmoid().to_vec(), [0.0, 0.5, 1.0]);
    /// ```
    #[track_caller]
    pub fn sigmoid(&self) -> Tensor<T> {
        self.map(Sigmoid)
    }

    /// Hyperbolic tangent.
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// let x = Tensor::from([-100.0f32, 0.0, 100.0]);
    /// assert_eq!(x.tanh().to_vec(), [-1.0, 0.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn tanh(&self) -> Tensor<T> {
        self.map(Tanh)
    }

    /// `x · sigmoid(x)`, also called swish.
    ///
    /// Hendrycks, Gimpel 2016 (arXiv 1606.08415).
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// let x = Tensor::from([-200.0f32, 0.0, 200.0]);
    /// assert_eq!(x.silu().to_vec(), [0.0, 0.0, 200.0]);
    /// ```
    #[doc(alias = "swish")]
    #[track_caller]
    pub fn silu(&self) -> Tensor<T> {
        self.map(Silu)
    }

    /// `x · tanh(ln(1 + eˣ))`
    ///
    /// Misra 2019 (arXiv 1908.08681).
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// let x = Tensor::from([0.0f32, 200.0]);
    /// assert_eq!(x.mish().to_vec(), [0.0, 200.0]);
    /// ```
    #[track_caller]
    pub fn mish(&self) -> Tensor<T> {
        self.map(Mish)
    }

    /// `ln(1 + eˣ)`, without overflow.
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// let x = Tensor::from([-1000.0f32, 0.0, 1000.0]);
    /// assert_eq!(x.softplus().to_vec(), [0.0, 2f32.ln(), 1000.0]);
    /// ```
    #[track_caller]
    pub fn softplus(&self) -> Tensor<T> {
        self.map(Softplus)
    }

    /// `x / (1 + |x|)`, between -1 and 1; NaN of ±∞, as in PyTorch.
    ///
    /// Turian, Bergstra, Bengio 2009.
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// let x = Tensor::from([-1.0f32, 0.0, 3.0]);
    /// assert_eq!(x.softsign().to_vec(), [-0.5, 0.0, 0.75]);
    /// ```
    #[track_caller]
    pub fn softsign(&self) -> Tensor<T> {
        self.map(Softsign)
    }

    /// `x · min(max(x + 3, 0), 6) / 6`, an approximation of [SiLU](Tensor::silu) without an exponential; NaN of
    /// -∞, as in PyTorch. The derivative is 0 at -3 and 1 at 3.
    ///
    /// Howard et al. 2019 (arXiv 1905.02244).
    ///
    /// ```
    /// use retrograd_tensor::Tensor;
    /// let x = Tensor::from([-4.0f32, -1.5, 0.0, 3.0]);
    /// assert_eq!(x.hardswish().to_vec(), [0.0, -0.375, 0.0, 3.0]);
    /// ```
    #[track_caller]
    pub fn hardswish(&self) -> Tensor<T> {
        self.map(Hardswish)
    }

    /// `x · Φ(x)` with the normal distribution function `Φ(x) = (1 + erf(x/√2)) / 2`: the exact
    /// form, PyTorch's default. NaN of -∞, as in PyTorch.
    ///
    /// In `f32` at most 4 ULP from the exact value above -12.94. From there down it is -0 and
    /// the derivative 0; the exact value is between -1.74e-37 and 0.
    ///
    /// Hendrycks, Gimpel 2016 (arXiv 1606.08415).
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// let x = Tensor::from([-20.0f32, 0.0, 20.0]);
    /// assert_eq!(x.gelu().to_vec(), [0.0, 0.0, 20.0]);
    /// ```
    #[track_caller]
    pub fn gelu(&self) -> Tensor<T> {
        self.map(Gelu)
    }

    /// `x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))`: the approximation of GELU that GPT-2 used.
    ///
    /// Hendrycks, Gimpel 2016 (arXiv 1606.08415).
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// let x = Tensor::from([-1.0f64, 1.0]);
    /// assert!((x.gelu_tanh() - x.gelu()).abs().max(..).item() < 2e-4);
    /// ```
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
fn gelu_inner<T: Real, A: Algebra<T>>(a: A, x: A::V) -> A::V {
    let (c, cubic) = (a.splat(T::from_f64(GELU_C)), a.splat(T::from_f64(GELU_A)));
    a.mul(a.mul(c, x), a.fma(a.mul(cubic, x), x, a.splat(T::ONE)))
}
