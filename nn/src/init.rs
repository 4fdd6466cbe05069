//! Initialisation of parameters.

use retrograd_tensor::error::{ErrorKind, assert};
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
    /// Normal with mean 0, without values beyond `bound`: these are sampled again. `std` is the deviation of
    /// the normal distribution before; `trunc_normal_(std=std, a=-bound, b=bound)` in PyTorch.
    TruncatedNormal {
        /// Standard deviation of the normal distribution.
        std: f64,
        /// The largest magnitude.
        bound: f64,
    },
    /// A random matrix with orthonormal rows, or orthonormal columns if there are fewer of them, times
    /// `gain`. All such matrices are equally likely. Saxe et al. 2013 (arXiv 1312.6120).
    Orthogonal {
        /// Factor of the matrix.
        gain: f64,
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
/// use retrograd::nn::init::gpt2_residual;
/// use retrograd::prelude::*;
/// let x = gpt2_residual(8).sample::<f64>([10_000], &mut Rng::new(1));
/// assert!((x.std(.., 1).item() - 0.02 / 4.0).abs() < 1e-3); // 0.02 / √(2 · 8)
/// ```
pub fn gpt2_residual(layers: usize) -> Init {
    Init::Normal { std: 0.02 / (2.0 * layers.max(1) as f64).sqrt() }
}

impl Init {
    /// Samples a tensor. The size of the first axis is the number of outputs and the size of the second
    /// the number of inputs; the sizes of further axes multiply both, as in PyTorch. Without a
    /// second axis (an error in PyTorch) there are as many inputs as outputs.
    ///
    /// # Panics
    /// If a constant is NaN, or a deviation, bound or gain is negative or not finite; if an orthogonal
    /// tensor has fewer than two axes; if there is no memory for such a tensor.
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
            Init::TruncatedNormal { std, bound } => truncated_normal(shape, std, bound, rng),
            Init::Orthogonal { gain } => orthogonal(shape, gain, rng),
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
                assert(!c.is_nan(), "init", ErrorKind::Value, || {
                    "the constant must be a number, got NaN".into()
                });
                return;
            }
            Init::TruncatedNormal { std, bound } => {
                Init::Uniform { bound }.check();
                ("standard deviation", std)
            }
            Init::Normal { std } => ("standard deviation", std),
            Init::Uniform { bound } => ("bound", bound),
            Init::Orthogonal { gain } => ("gain", gain),
            Init::XavierUniform { gain } | Init::XavierNormal { gain } => ("gain", gain),
            Init::TorchLinear | Init::KaimingUniform | Init::KaimingNormal => return,
        };
        assert(x >= 0.0 && x.is_finite(), "init", ErrorKind::Value, || {
            format!("the {name} must be finite and at least 0, got {x}")
        });
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

/// Samples values again until all magnitudes are at most `bound`.
#[track_caller]
fn truncated_normal<T: Real>(shape: Shape, std: f64, bound: f64, rng: &mut Rng) -> Tensor<T> {
    if bound < std {
        // Few normal values are within the bounds. Uniform values are, of which each is kept with a
        // probability proportional to the density: at least e^(-1/2).
        let (key, mut n) = (rng.key(), 0);
        let mut next = || {
            n += 1;
            key.uniform(n - 1)
        };
        let mut element = || loop {
            let x = bound * (2.0 * next() - 1.0);
            if next() < (-0.5 * (x / std).powi(2)).exp() {
                return T::from_f64(x);
            }
        };
        return Tensor::from_vec((0..shape.numel()).map(|_| element()).collect(), shape);
    }
    let mut x = normal::<T>(shape, std, rng);
    loop {
        let rejected = x.abs().gt(T::from_f64(bound));
        if !rejected.any(..).item() {
            return x;
        }
        x = rejected.where_(&normal(shape, std, rng), &x);
    }
}

/// Gram-Schmidt orthogonalisation of the rows of a normal matrix, or of its columns if there are fewer.
/// Each row is orthogonalised twice, after which rounding errors do not accumulate.
#[track_caller]
fn orthogonal<T: Real>(shape: Shape, gain: f64, rng: &mut Rng) -> Tensor<T> {
    assert(shape.rank() >= 2, "init", ErrorKind::Rank, || {
        format!("an orthogonal tensor has at least two axes, got {shape:?}")
    });
    let (rows, columns) = (shape[0], shape.iter().skip(1).product::<usize>());
    let (few, many) = (rows.min(columns), rows.max(columns));
    let mut q = Tensor::<f64>::randn([few, many], rng).to_vec();
    for i in 0..few {
        let (before, rest) = q.split_at_mut(i * many);
        let row = &mut rest[..many];
        for _ in 0..2 {
            for other in before.chunks(many) {
                add_scaled(row, -dot(row, other), other);
            }
        }
        let norm = dot(row, row).sqrt();
        for x in row {
            *x /= norm;
        }
    }
    let q = Tensor::from_vec(q, [few, many]);
    let q = if rows == few { q } else { q.t() };
    let elements = q.to_vec().into_iter().map(|x| T::from_f64(gain * x)).collect();
    Tensor::from_vec(elements, shape)
}

/// `Σ aᵢbᵢ`, by eight partial sums.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 = a.remainder().iter().zip(b.remainder()).map(|(x, y)| x * y).sum();
    for (a, b) in a.zip(b) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    rest + sums.iter().sum::<f64>()
}

/// `y += scale · x`.
fn add_scaled(y: &mut [f64], scale: f64, x: &[f64]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += scale * x;
    }
}
