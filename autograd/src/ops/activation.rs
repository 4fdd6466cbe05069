//! Activation functions; their formulas are in [`retrograd_tensor::ops::activation`].

use crate::graph::Var;
use retrograd_tensor::Real;
use retrograd_tensor::ops::activation::*;

/// # Activation functions
impl<T: Real> Var<T> {
    /// `max(x, 0)`; NaN if `x` is NaN. The derivative at 0 is 0.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([-1.0f32, 0.0, 2.0]));
    /// let y = x.relu();
    /// assert_eq!(y.value().to_vec(), [0.0, 0.0, 2.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 0.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn relu(&self) -> Var<T> {
        self.map(Relu)
    }

    /// `max(x, 0)²`; NaN if `x` is NaN.
    ///
    /// So et al. 2021 (arXiv 2109.08668).
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([-1.0f32, 0.0, 3.0]));
    /// let y = x.relu_squared();
    /// assert_eq!(y.value().to_vec(), [0.0, 0.0, 9.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 0.0, 6.0]);
    /// ```
    #[track_caller]
    pub fn relu_squared(&self) -> Var<T> {
        self.map(ReluSquared)
    }

    /// `x` if `x > 0`, else `slope · x`. The derivative at 0 is `slope`.
    ///
    /// Maas, Hannun, Ng 2013.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([-1.0f32, 2.0]));
    /// let y = x.leaky_relu(0.5);
    /// assert_eq!(y.value().to_vec(), [-0.5, 2.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.5, 1.0]);
    /// ```
    #[track_caller]
    pub fn leaky_relu(&self, slope: T) -> Var<T> {
        self.map(LeakyRelu { slope })
    }

    /// `x` if `x > 0`, else `alpha · (eˣ - 1)`. The derivative at 0 is `alpha`.
    ///
    /// Clevert, Unterthiner, Hochreiter 2015 (arXiv 1511.07289).
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([f32::NEG_INFINITY, 0.0, 2.0]));
    /// let y = x.elu(0.5);
    /// assert_eq!(y.value().to_vec(), [-0.5, 0.0, 2.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 0.5, 1.0]);
    /// ```
    #[track_caller]
    pub fn elu(&self, alpha: T) -> Var<T> {
        self.map(Elu { alpha })
    }

    /// `1 / (1 + e⁻ˣ)`, without overflow for large `|x|`.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([-200.0f32, 0.0, 200.0]));
    /// let y = x.sigmoid();
    /// assert_eq!(y.value().to_vec(), [0.0, 0.5, 1.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 0.25, 0.0]);
    /// ```
    #[track_caller]
    pub fn sigmoid(&self) -> Var<T> {
        self.map(Sigmoid)
    }

    /// Hyperbolic tangent.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([-100.0f32, 0.0]));
    /// let y = x.tanh();
    /// assert_eq!(y.value().to_vec(), [-1.0, 0.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn tanh(&self) -> Var<T> {
        self.map(Tanh)
    }

    /// `x · sigmoid(x)`, also called swish.
    ///
    /// Hendrycks, Gimpel 2016 (arXiv 1606.08415).
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([0.0f32, 100.0]));
    /// let y = x.silu();
    /// assert_eq!(y.value().to_vec(), [0.0, 100.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.5, 1.0]);
    /// ```
    #[doc(alias = "swish")]
    #[track_caller]
    pub fn silu(&self) -> Var<T> {
        self.map(Silu)
    }

    /// `x · tanh(ln(1 + eˣ))`.
    ///
    /// Misra 2019 (arXiv 1908.08681).
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([0.0f32, 100.0]));
    /// let y = x.mish();
    /// assert_eq!(y.value().to_vec(), [0.0, 100.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.6, 1.0]);
    /// ```
    #[track_caller]
    pub fn mish(&self) -> Var<T> {
        self.map(Mish)
    }

    /// `ln(1 + eˣ)`, without overflow.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([0.0f32, 1000.0]));
    /// let y = x.softplus();
    /// assert_eq!(y.value().to_vec(), [2f32.ln(), 1000.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.5, 1.0]);
    /// ```
    #[track_caller]
    pub fn softplus(&self) -> Var<T> {
        self.map(Softplus)
    }

    /// As [`Tensor::log_sigmoid`](retrograd_tensor::Tensor::log_sigmoid). The derivative is `sigmoid(-x)`.
    #[doc(alias = "logsigmoid")]
    #[track_caller]
    pub fn log_sigmoid(&self) -> Var<T> {
        self.map(LogSigmoid)
    }

    /// `x / (1 + |x|)`, between -1 and 1; NaN if `x` is ±∞, as in PyTorch.
    ///
    /// Turian, Bergstra, Bengio 2009.
    ///
    /// ```
    /// use retrograd_autograd::Var;
    /// use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([-1.0f32, 0.0, 3.0]));
    /// assert_eq!(x.softsign().value().to_vec(), [-0.5, 0.0, 0.75]);
    /// ```
    #[track_caller]
    pub fn softsign(&self) -> Var<T> {
        self.map(Softsign)
    }

    /// `x · min(max(x + 3, 0), 6) / 6`, an approximation of [SiLU](Var::silu) without an exponential; NaN of
    /// -∞, as in PyTorch. The derivative is 0 at -3 and 1 at 3.
    ///
    /// Howard et al. 2019 (arXiv 1905.02244).
    ///
    /// ```
    /// use retrograd_autograd::Var;
    /// use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([-4.0f32, -1.5, 0.0, 3.0]));
    /// let y = x.hardswish();
    /// assert_eq!(y.value().to_vec(), [0.0, -0.375, 0.0, 3.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 0.0, 0.5, 1.0]);
    /// ```
    #[track_caller]
    pub fn hardswish(&self) -> Var<T> {
        self.map(Hardswish)
    }

    /// `x · Φ(x)` with the cumulative distribution function of the standard normal distribution,
    /// `Φ(x) = (1 + erf(x/√2)) / 2`: the exact form, PyTorch's default.
    ///
    /// Hendrycks, Gimpel 2016 (arXiv 1606.08415).
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([0.0f32, 100.0]));
    /// let y = x.gelu();
    /// assert_eq!(y.value().to_vec(), [0.0, 100.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.5, 1.0]);
    /// ```
    #[track_caller]
    pub fn gelu(&self) -> Var<T> {
        self.map(Gelu)
    }

    /// `x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))`: the approximation of GELU in GPT-2,
    /// `approximate="tanh"` in PyTorch.
    ///
    /// Hendrycks, Gimpel 2016 (arXiv 1606.08415).
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// let x = Var::constant(Tensor::from([-1.0f64, 1.0]));
    /// let error = x.gelu_tanh() - x.gelu();
    /// assert!(error.value().abs().max(..).item() < 2e-4);
    /// ```
    #[track_caller]
    pub fn gelu_tanh(&self) -> Var<T> {
        self.map(GeluTanh)
    }
}
