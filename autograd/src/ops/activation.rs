//! Activation functions; their formulas are in [`retrograd_tensor::ops::activation`].

use crate::graph::Var;
use crate::ops::pointwise::pointwise_methods;
use retrograd_tensor::Real;
#[cfg(doc)]
use retrograd_tensor::Tensor;
use retrograd_tensor::ops::activation::*;

/// # Activation functions
impl<T: Real> Var<T> {
    pointwise_methods! {
        /// As [`Tensor::relu`]; the gradient is `g` where `x > 0`, else 0, also at 0.
        ///
        /// ```
        /// use retrograd::prelude::*;
        /// let x = Var::leaf(Tensor::from([-1.0f32, 0.0, 2.0]));
        /// let y = x.relu();
        /// assert_eq!(y.value().to_vec(), [0.0, 0.0, 2.0]);
        /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 0.0, 1.0]);
        /// ```
        pub fn relu = Relu;

        /// As [`Tensor::relu_squared`]; the gradient is `2g · max(x, 0)`.
        pub fn relu_squared = ReluSquared;

        /// As [`Tensor::leaky_relu`]; the gradient is `g` where `x > 0`, else `slope · g`.
        pub fn leaky_relu(slope) = LeakyRelu;

        /// As [`Tensor::elu`]; the gradient is `g` where `x > 0`, else `g · alpha · eˣ`.
        pub fn elu(alpha) = Elu;

        /// As [`Tensor::sigmoid`]; the gradient is `g · y · (1 - y)`.
        pub fn sigmoid = Sigmoid;

        /// As [`Tensor::tanh`]; the gradient is `g · (1 - y²)`.
        pub fn tanh = Tanh;

        /// As [`Tensor::silu`]; the gradient is `g · s · (1 + x · (1 - s))` with `s = sigmoid(x)`.
        #[doc(alias = "swish")]
        pub fn silu = Silu;

        /// As [`Tensor::mish`]; the gradient is `g · (t + x · (1 - t²) · sigmoid(x))` with
        /// `t = tanh(softplus(x))`.
        pub fn mish = Mish;

        /// As [`Tensor::softplus`]; the gradient is `g · sigmoid(x)`.
        pub fn softplus = Softplus;

        /// As [`Tensor::log_sigmoid`]; the gradient is `g · sigmoid(-x)`.
        #[doc(alias = "logsigmoid")]
        pub fn log_sigmoid = LogSigmoid;

        /// As [`Tensor::softsign`]; the gradient is `g / (1 + |x|)²`.
        pub fn softsign = Softsign;

        /// As [`Tensor::hardswish`]; the gradient is `g · (2x + 3) / 6` where `-3 < x < 3`, 0 below and `g`
        /// above.
        pub fn hardswish = Hardswish;

        /// As [`Tensor::gelu`]; the gradient is `g · (Φ(x) + x · φ(x))` with the density `φ`.
        pub fn gelu = Gelu;

        /// As [`Tensor::gelu_tanh`]; the gradient is `g` times the derivative of the approximation.
        pub fn gelu_tanh = GeluTanh;
    }
}
