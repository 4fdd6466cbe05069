//! Initialisation of parameters.

use retrograd_tensor::error::{ErrorKind, OrPanic, require};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{IntoShape, Real, Shape, Tensor};

/// A distribution for the weights `[outputs, inputs]` of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// One value for all elements.
    Constant(f64),
    /// Normal with mean 0.
    Normal {
        /// Standard deviation.
        std: f64,
    },
    /// Uniform on `[-bound, bound)`.
    Uniform {
        /// The largest magnitude.
        bound: f64,
    },
    /// PyTorch's default for linear layers: uniform with bound `1/√inputs`.
    TorchLinear,
    /// Uniform with bound `gain · √(6 / (inputs + outputs))`: preserves the variance of
    /// activations and gradients. Glorot, Bengio 2010.
    XavierUniform {
        /// Factor for the nonlinearity that follows; 1 if it is near the identity.
        gain: f64,
    },
    /// Normal with standard deviation `gain · √(2 / (inputs + outputs))`.
    XavierNormal {
        /// As for [`Init::XavierUniform`].
        gain: f64,
    },
    /// Uniform with bound `√(6 / inputs)`, for rectifiers. He et al. 2015 (arXiv 1502.01852).
    KaimingUniform,
    /// Normal with standard deviation `√(2 / inputs)`, for rectifiers.
    KaimingNormal,
}

/// The initialisation of GPT-2 for projections that add to the residual stream, two per block: a
/// standard deviation of `0.02 / √(2 · layers)`, so that the stream does not grow with depth.
/// Radford et al. 2019.
///
/// ```
/// # use retrograd_tensor::random::Rng;
/// use retrograd_nn::init::gpt2_residual;
/// let x = gpt2_residual(8).sample::<f64>([10_000], &mut Rng::new(1));
/// assert!((x.std(.., 1).item() - 0.02 / 4.0).abs() < 1e-3); // 0.02 / √(2 · 8)
/// ```
pub fn gpt2_residual(layers: usize) -> Init {
    Init::Normal { std: 0.02 / (2.0 * layers.max(1) as f64).sqrt() }
}

impl Init {
    /// Samples a tensor. The size of the first axis is the number of outputs and that of the second
    /// the number of inputs; the sizes of further axes multiply both, as in PyTorch. Without a
    /// second axis (an error in PyTorch) there are as many inputs as outputs.
    ///
    /// # Panics
    /// If a constant is NaN, or a deviation, bound or gain is negative or not finite; if there is
    /// no memory for such a tensor.
    ///
    /// ```
    /// # use retrograd_nn::init::Init;
    /// # use retrograd_tensor::random::Rng;
    /// let x = Init::Constant(0.5).sample::<f32>([2], &mut Rng::new(1));
    /// assert_eq!(x.to_vec(), [0.5, 0.5]);
    /// ```
    #[track_caller]
    pub fn sample<T: Real>(self, shape: impl IntoShape, rng: &mut Rng) -> Tensor<T> {
        self.check();
        let shape = shape.into();
        let field: usize = shape.iter().skip(2).product();
        let outputs = (shape.first().copied().unwrap_or(1) * field).max(1) as f64;
        let inputs = match shape.get(1) {
            Some(&n) => (n * field).max(1) as f64,
            None => outputs,
        };
        match self {
            Init::Constant(c) => Tensor::full(shape, T::from_f64(c)),
            Init::Normal { std } => normal(shape, std, rng),
            Init::Uniform { bound } => uniform(shape, bound, rng),
            Init::TorchLinear => uniform(shape, 1.0 / inputs.sqrt(), rng),
            Init::XavierUniform { gain } => {
                uniform(shape, gain * (6.0 / (inputs + outputs)).sqrt(), rng)
            }
            Init::XavierNormal { gain } => {
                normal(shape, gain * (2.0 / (inputs + outputs)).sqrt(), rng)
            }
            Init::KaimingUniform => uniform(shape, (6.0 / inputs).sqrt(), rng),
            Init::KaimingNormal => normal(shape, (2.0 / inputs).sqrt(), rng),
        }
    }

    #[track_caller]
    fn check(self) {
        let (name, x) = match self {
            Init::Constant(c) => {
                require(!c.is_nan(), "init", ErrorKind::Value, || {
                    "the constant must be a number, got NaN".into()
                })
                .or_panic();
                return;
            }
            Init::Normal { std } => ("standard deviation", std),
            Init::Uniform { bound } => ("bound", bound),
            Init::XavierUniform { gain } | Init::XavierNormal { gain } => ("gain", gain),
            Init::TorchLinear | Init::KaimingUniform | Init::KaimingNormal => return,
        };
        require(x >= 0.0 && x.is_finite(), "init", ErrorKind::Value, || {
            format!("the {name} must be finite and at least 0, got {x}")
        })
        .or_panic();
    }
}

#[track_caller]
fn normal<T: Real>(shape: Shape, std: f64, rng: &mut Rng) -> Tensor<T> {
    Tensor::randn(shape, rng).mul_scalar(T::from_f64(std))
}

#[track_caller]
fn uniform<T: Real>(shape: Shape, bound: f64, rng: &mut Rng) -> Tensor<T> {
    Tensor::uniform(shape, -bound, bound, rng)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(init: Init) -> (f64, f64) {
        let x: Tensor<f64> = init.sample([200, 300], &mut Rng::new(3));
        (x.std(.., 0).item(), x.abs().max(..).item())
    }

    #[test]
    fn deviations_and_bounds() {
        let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.02, "{a} is not {b}");
        close(spread(Init::Normal { std: 0.02 }).0, 0.02);
        close(spread(Init::TorchLinear).1, 1.0 / 300f64.sqrt());
        close(spread(Init::XavierUniform { gain: 2.0 }).1, 2.0 * (6.0 / 500f64).sqrt());
        close(spread(Init::XavierNormal { gain: 1.0 }).0, (2.0 / 500f64).sqrt());
        close(spread(Init::KaimingUniform).1, (6.0 / 300f64).sqrt());
        close(spread(Init::KaimingNormal).0, (2.0 / 300f64).sqrt());
        close(spread(gpt2_residual(8)).0, 0.005);
        assert_eq!(spread(Init::Constant(3.0)), (0.0, 3.0));
    }
}
