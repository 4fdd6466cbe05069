//! Activation functions; their formulas are in [`retrograd_tensor::ops::activation`].

use crate::graph::Var;
use retrograd_tensor::Real;
#[cfg(doc)]
use retrograd_tensor::Tensor;
use retrograd_tensor::ops::activation::*;

/// # Activation functions
impl<T: Real> Var<T> {
    /// As [`Tensor::relu`]; the gradient is `g` where `x > 0`, else 0, also at 0.
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

    /// As [`Tensor::relu_squared`]; the gradient is `2g · max(x, 0)`.
    #[track_caller]
    pub fn relu_squared(&self) -> Var<T> {
        self.map(ReluSquared)
    }

    /// As [`Tensor::leaky_relu`]; the gradient is `g` where `x > 0`, else `slope · g`.
    #[track_caller]
    pub fn leaky_relu(&self, slope: T) -> Var<T> {
        self.map(LeakyRelu { slope })
    }

    /// As [`Tensor::elu`]; the gradient is `g` where `x > 0`, else `g · alpha · eˣ`.
    #[track_caller]
    pub fn elu(&self, alpha: T) -> Var<T> {
        self.map(Elu { alpha })
    }

    /// As [`Tensor::sigmoid`]; the gradient is `g · y · (1 - y)`.
    #[track_caller]
    pub fn sigmoid(&self) -> Var<T> {
        self.map(Sigmoid)
    }

    /// As [`Tensor::tanh`]; the gradient is `g · (1 - y²)`.
    #[track_caller]
    pub fn tanh(&self) -> Var<T> {
        self.map(Tanh)
    }

    /// As [`Tensor::silu`]; the gradient is `g · s · (1 + x · (1 - s))` with `s = sigmoid(x)`.
    #[doc(alias = "swish")]
    #[track_caller]
    pub fn silu(&self) -> Var<T> {
        self.map(Silu)
    }

    /// As [`Tensor::mish`]; the gradient is `g · (t + x · (1 - t²) · sigmoid(x))` with
    /// `t = tanh(softplus(x))`.
    #[track_caller]
    pub fn mish(&self) -> Var<T> {
        self.map(Mish)
    }

    /// As [`Tensor::softplus`]; the gradient is `g · sigmoid(x)`.
    #[track_caller]
    pub fn softplus(&self) -> Var<T> {
        self.map(Softplus)
    }

    /// As [`Tensor::log_sigmoid`]; the gradient is `g · sigmoid(-x)`.
    #[doc(alias = "logsigmoid")]
    #[track_caller]
    pub fn log_sigmoid(&self) -> Var<T> {
        self.map(LogSigmoid)
    }

    /// As [`Tensor::softsign`]; the gradient is `g / (1 + |x|)²`.
    #[track_caller]
    pub fn softsign(&self) -> Var<T> {
        self.map(Softsign)
    }

    /// As [`Tensor::hardswish`]; the gradient is `g · (2x + 3) / 6` where `-3 < x < 3`, 0 below and `g`
    /// above.
    #[track_caller]
    pub fn hardswish(&self) -> Var<T> {
        self.map(Hardswish)
    }

    /// As [`Tensor::gelu`]; the gradient is `g · (Φ(x) + x · φ(x))` with the density `φ`.
    #[track_caller]
    pub fn gelu(&self) -> Var<T> {
        self.map(Gelu)
    }

    /// As [`Tensor::gelu_tanh`]; the gradient is `g` times the derivative of the approximation.
    #[track_caller]
    pub fn gelu_tanh(&self) -> Var<T> {
        self.map(GeluTanh)
    }
}
