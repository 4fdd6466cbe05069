//! Activation functions. Formulas and fast VJPs are in
//! [`retrograd_tensor::ops::activation`]; here is what a recorded pass does.

use crate::ops::pointwise::Differentiable;
use crate::var::Var;
use retrograd_tensor::ops::activation::*;
use retrograd_tensor::{Real, Tensor};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

impl<T: Real> Differentiable<T> for Relu {
    fn vjp_var(self, y: &Var<T>, g: &Var<T>) -> Var<T> {
        g.masked_fill(&not_positive(y), T::ZERO)
    }
}

impl<T: Real> Differentiable<T> for LeakyRelu<T> {
    fn vjp_var(self, x: &Var<T>, g: &Var<T>) -> Var<T> {
        let low = g * self.slope;
        Var::where_(&not_positive(x), &low, g)
    }
}

impl<T: Real> Differentiable<T> for Elu<T> {
    fn vjp_var(self, x: &Var<T>, g: &Var<T>) -> Var<T> {
        // Capped at 0, where the other branch takes over: e^x might overflow above.
        let low = not_positive(x);
        let slope = &(g * &x.masked_fill(&!&low, T::ZERO).exp()) * self.alpha;
        Var::where_(&low, &slope, g)
    }
}

impl<T: Real> Differentiable<T> for Sigmoid {
    fn vjp_var(self, y: &Var<T>, g: &Var<T>) -> Var<T> {
        g * &(y - &y.square())
    }
}

impl<T: Real> Differentiable<T> for Tanh {
    fn vjp_var(self, y: &Var<T>, g: &Var<T>) -> Var<T> {
        g - &(g * &y.square())
    }
}

impl<T: Real> Differentiable<T> for Silu {
    fn vjp_var(self, x: &Var<T>, g: &Var<T>) -> Var<T> {
        let y = x.sigmoid();
        g * &(&y + &(x * &(&y - &y.square())))
    }
}

impl<T: Real> Differentiable<T> for Softplus {
    fn vjp_var(self, x: &Var<T>, g: &Var<T>) -> Var<T> {
        g * &x.sigmoid()
    }
}

impl<T: Real> Differentiable<T> for Mish {
    fn vjp_var(self, x: &Var<T>, g: &Var<T>) -> Var<T> {
        let t = x.softplus().tanh();
        let bend = (-t.square() + T::ONE) * x.sigmoid();
        g * &(&t + &(x * &bend))
    }
}

impl<T: Real> Differentiable<T> for Gelu {
    fn vjp_var(self, x: &Var<T>, g: &Var<T>) -> Var<T> {
        let cdf = (x * T::from_f64(FRAC_1_SQRT_2)).erf() * T::from_f64(0.5) + T::from_f64(0.5);
        let bell = (x.square() * T::from_f64(-0.5)).exp();
        let density = bell * T::from_f64(0.5 * FRAC_1_SQRT_2 * FRAC_2_SQRT_PI);
        g * &(cdf + x * &density)
    }
}

impl<T: Real> Differentiable<T> for GeluTanh {
    fn vjp_var(self, x: &Var<T>, g: &Var<T>) -> Var<T> {
        let square = x.square();
        let inner = x * &(&square * T::from_f64(GELU_A) + T::ONE) * T::from_f64(GELU_C);
        let slope = (square * T::from_f64(3.0 * GELU_A) + T::ONE) * T::from_f64(GELU_C);
        let t = inner.tanh();
        let bend = x * &(-t.square() + T::ONE) * slope;
        &(g * &(t + T::ONE + bend)) * T::from_f64(0.5)
    }
}

impl<T: Real> Var<T> {
    /// `max(x, 0)`; NaN of NaN. The derivative at 0 is 0.
    #[track_caller]
    pub fn relu(&self) -> Var<T> {
        self.map(Relu)
    }

    /// `x` above 0, `slope · x` below. The derivative at 0 is `slope`.
    ///
    /// Maas, Hannun, Ng 2013.
    #[track_caller]
    pub fn leaky_relu(&self, slope: T) -> Var<T> {
        self.map(LeakyRelu { slope })
    }

    /// `x` above 0, `alpha · (eˣ - 1)` below. The derivative at 0 is `alpha`.
    ///
    /// Clevert, Unterthiner, Hochreiter 2015 (arXiv 1511.07289).
    #[track_caller]
    pub fn elu(&self, alpha: T) -> Var<T> {
        self.map(Elu { alpha })
    }

    /// `1 / (1 + e⁻ˣ)`, without overflow on either side.
    #[track_caller]
    pub fn sigmoid(&self) -> Var<T> {
        self.map(Sigmoid)
    }

    /// Hyperbolic tangent.
    #[track_caller]
    pub fn tanh(&self) -> Var<T> {
        self.map(Tanh)
    }

    /// `x · sigmoid(x)`, also called swish.
    ///
    /// Hendrycks, Gimpel 2016 (arXiv 1606.08415).
    #[track_caller]
    pub fn silu(&self) -> Var<T> {
        self.map(Silu)
    }

    /// `x · tanh(ln(1 + eˣ))`
    ///
    /// Misra 2019 (arXiv 1908.08681).
    #[track_caller]
    pub fn mish(&self) -> Var<T> {
        self.map(Mish)
    }

    /// `ln(1 + eˣ)`, without overflow.
    #[track_caller]
    pub fn softplus(&self) -> Var<T> {
        self.map(Softplus)
    }

    /// `x · Φ(x)` with the normal distribution function `Φ(x) = (1 + erf(x/√2)) / 2`: the exact
    /// form, PyTorch's default.
    ///
    /// Hendrycks, Gimpel 2016 (arXiv 1606.08415).
    #[track_caller]
    pub fn gelu(&self) -> Var<T> {
        self.map(Gelu)
    }

    /// `x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))`: the approximation of GELU that GPT-2 used.
    ///
    /// Hendrycks, Gimpel 2016 (arXiv 1606.08415).
    #[track_caller]
    pub fn gelu_tanh(&self) -> Var<T> {
        self.map(GeluTanh)
    }
}

/// Where `x <= 0` (so not where it is NaN).
fn not_positive<T: Real>(x: &Var<T>) -> Tensor<bool> {
    x.value().le(&Tensor::scalar(T::ZERO))
}
