//! Helpers that several tests use.

use retrograd_autograd::Var;
use retrograd_nn::attention::{HeadSizes, MultiHeadAttention, MultiHeadConfig, Projections};
use retrograd_nn::{Gpt, GptConfig, Module, Pass, StateDict};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

mod table;
pub mod variants;

pub use retrograd_support::panics::{assert_panics, assert_panics_here, panic_here, panic_text};
pub use table::{Table, Worst, close};

/// Normal numbers, the same for the same seed.
pub fn randn(shape: &[usize], seed: u64) -> Tensor<f64> {
    Tensor::randn(shape, &mut Rng::new(seed))
}

/// A constant with the elements of [`randn`].
pub fn constant(shape: &[usize], seed: u64) -> Var<f64> {
    Var::constant(randn(shape, seed))
}

/// A leaf with the elements of [`randn`].
pub fn leaf(shape: &[usize], seed: u64) -> Var<f64> {
    Var::leaf(randn(shape, seed))
}

/// An evaluation pass.
pub fn eval() -> Pass {
    Pass::eval()
}

/// The bits of every number.
pub fn bits<T: Real>(t: &Tensor<T>) -> Vec<u64> {
    t.to_vec().iter().map(|x| x.to_f64().to_bits()).collect()
}

/// Names, shapes and bits of a state dict.
pub fn dict_bits<T: Real>(dict: &StateDict<T>) -> Vec<(String, Vec<usize>, Vec<u64>)> {
    dict.iter().map(|(name, t)| (name.clone(), t.shape().to_vec(), bits(t))).collect()
}

/// [`dict_bits`] of a module.
pub fn state_bits<T: Real>(module: &impl Module<T>) -> Vec<(String, Vec<usize>, Vec<u64>)> {
    dict_bits(&module.state_dict())
}

/// A small model: two layers, two heads.
pub fn config() -> GptConfig {
    GptConfig { vocab: 7, context: 6, layers: 2, heads: 2, width: 8, ..GptConfig::default() }
}

/// nanoGPT's model for a CPU.
pub fn nanogpt_cpu() -> GptConfig {
    let (layers, heads, width) = (4, 4, 128);
    GptConfig { vocab: 65, context: 64, layers, heads, width, bias: false, ..GptConfig::default() }
}

/// Projections of width 8 in 4 heads of width 6 with 2 key heads.
pub fn uneven() -> Projections<f64> {
    Projections::new(HeadSizes::new(8, 4).key_heads(2).head_width(6), &mut Rng::new(3))
}

/// A multi-head attention without parameters that are 0 or 1.
pub fn mha(width: usize, heads: usize) -> MultiHeadAttention<f64> {
    let m = MultiHeadAttention::new(&MultiHeadConfig::new(width, heads), &mut Rng::new(3));
    m.for_each_parameter(&mut |_, p| p.set(randn(&p.shape(), p.shape()[0] as u64)));
    m
}

/// A model with larger weights than a new one, so that no gradient is tiny.
pub fn gpt<T: Real>(config: GptConfig, seed: u64) -> Gpt<T> {
    let mut rng = Rng::new(seed);
    let model = Gpt::new(config, &mut rng).unwrap();
    shake(&model, &mut rng);
    model
}

/// Adds noise to every parameter, so that none is 0 or 1.
pub fn shake<T: Real>(module: &impl Module<T>, rng: &mut Rng) {
    for (_, p) in module.named_parameters() {
        let noise = Tensor::randn(p.shape(), rng).mul_scalar(T::from_f64(0.3));
        p.set(&p.value() + &noise);
    }
}
