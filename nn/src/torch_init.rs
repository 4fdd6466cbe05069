//! Layers with the initial weights of PyTorch.
//!
//! The parameters are sampled from a [`TorchRng`] in the order of PyTorch, so that a model built in
//! the same order with the same seed has the same weights:
//!
//! ```
//! use retrograd::nn::torch_init::torch_linear;
//! use retrograd::tensor::torch_random::TorchRng;
//!
//! // torch.manual_seed(0); torch.nn.Linear(2, 1)
//! let layer = torch_linear::<f32>(2, 1, true, &mut TorchRng::manual_seed(0));
//! assert_eq!(layer.weight.value().to_string(), "tensor([[-0.0053,  0.3793]])");
//! assert_eq!(layer.bias.unwrap().value().to_string(), "tensor([-0.5820])");
//! ```

use crate::embedding::Embedding;
use crate::linear::Linear;
use crate::param::Param;
use retrograd_tensor::Real;
use retrograd_tensor::torch_random::TorchRng;

/// As `torch.nn.Linear(inputs, outputs, bias)`: first the weight, then the bias, both uniform
/// on `±1/√inputs`.
///
/// ```
/// use retrograd::nn::torch_init::torch_linear;
/// use retrograd::tensor::torch_random::TorchRng;
/// let layer = torch_linear::<f32>(3, 2, true, &mut TorchRng::manual_seed(0));
/// assert!((layer.weight.value().at(&[0, 0]) + 0.0043).abs() < 1e-4); // as nn.Linear(3, 2)
/// ```
#[track_caller]
pub fn torch_linear<T: Real>(
    inputs: usize,
    outputs: usize,
    bias: bool,
    rng: &mut TorchRng,
) -> Linear<T> {
    // The Kaiming bound with a slope of √5, with the roundings of PyTorch.
    let root = (inputs.max(1) as f64).sqrt();
    let gain = (2.0 / (1.0 + 5f64.sqrt().powi(2))).sqrt();
    let bound = 3f64.sqrt() * (gain / root);
    let weight = Param::new(rng.uniform([outputs, inputs], -bound, bound));
    let bound = 1.0 / root;
    let bias = bias.then(|| Param::new(rng.uniform([outputs], -bound, bound)));
    Linear { weight, bias }
}

/// As `torch.nn.Embedding(entries, width)`: standard normal.
///
/// ```
/// use retrograd::nn::torch_init::torch_embedding;
/// use retrograd::tensor::torch_random::TorchRng;
/// let table = torch_embedding::<f32>(2, 1, &mut TorchRng::manual_seed(0));
/// assert!((table.weight.value().at(&[0, 0]) - 1.5410).abs() < 1e-4); // as nn.Embedding(2, 1)
/// ```
#[track_caller]
pub fn torch_embedding<T: Real>(entries: usize, width: usize, rng: &mut TorchRng) -> Embedding<T> {
    Embedding { weight: Param::new(rng.randn([entries, width])) }
}
