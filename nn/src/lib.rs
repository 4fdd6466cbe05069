//! Modules, attention, optimisers and checkpoints over [`retrograd_autograd`].
//!
//! A module is a plain struct that owns [`Param`]s and other modules, lists them in one method
//! ([`Module::visit`]), and has a `forward`. Randomness and mode are explicit: `forward` takes
//! a [`Pass`], which is either training with a seed, or evaluation.
//!
//! ```
//! use retrograd::prelude::*;
//!
//! let mut rng = Rng::new(0);
//! let model = Linear::<f32>::new(3, 1, &mut rng);
//! let mut optimizer = AdamW::new(&model, Default::default()).unwrap();
//! let (x, y) = (Tensor::randn([8, 3], &mut rng), Tensor::ones([8, 1]));
//! for step in 0..10 {
//!     let mut pass = Pass::train(step);
//!     let error = model.forward(&Var::constant(x.clone()), &mut pass) - Var::constant(y.clone());
//!     let grads = error.square().mean(..).backward();
//!     optimizer.step(&grads).unwrap();
//! }
//! assert_eq!(model.state_dict().keys().collect::<Vec<_>>(), ["bias", "weight"]);
//! ```
//!
//! # Modules
//!
//! | subject | items |
//! |---|---|
//! | modules and parameters | [`Module`], [`Layer`], [`Visitor`], [`Param`], [`Sequential`], [`StateDict`] |
//! | mode and randomness of a forward pass | [`Pass`] |
//! | layers | [`Linear`], [`Embedding`], [`LayerNorm`], [`RmsNorm`], [`Dropout`], [`Activation`], [`Mlp`] |
//! | attention | [`attention`]: one function, masks and biases, and a module for each variant |
//! | a language model from parts | [`Gpt`], [`GptConfig`], [`AttentionKind`], [`Block`], [`CausalAttention`], [`FeedForward`], [`Sampler`] |
//! | encoders and decoders | [`TransformerEncoderLayer`], [`TransformerDecoderLayer`] |
//! | training | [`Trainer`](training::Trainer), [`optim`], [`schedule`], [`LrRangeTest`], [`Ema`], [`init`] (and [`torch_init`], with PyTorch's random numbers) |
//! | text | [`text`]: tokenizers, corpora, batches, packed documents, bits per byte |
//! | files | [`checkpoint`]: tensors and notes in safetensors; [`npy`]: NumPy's format, and with the feature `npz` its archives |
//! | weights of other programs | [`pretrained`]: `transformers`, GGUF, ONNX, nanoGPT; [`StateMap`] for others |
//! | tests of your own modules | [`testing`] |
#![forbid(unsafe_code)]

mod activation;
pub mod attention;
pub mod checkpoint;
#[doc(hidden)]
pub mod compiled;
mod config_error;
mod dropout;
mod ema;
mod embedding;
mod functional;
mod gpt;
pub mod init;
mod linear;
mod lr_range_test;
mod module;
mod norm;
pub mod optim;
mod param;
mod pass;
pub mod pretrained;
pub mod replacing;
mod residual;
pub mod schedule;
mod state;
mod state_map;
pub mod testing;
pub mod text;
pub mod torch_init;
pub mod training;
mod transformer;

pub use activation::Activation;
pub use checkpoint::npy;
#[cfg(feature = "npz")]
pub use checkpoint::npz;
pub use config_error::ConfigError;
pub use dropout::Dropout;
pub use ema::Ema;
pub use embedding::Embedding;
pub use functional::functional_call;
pub use gpt::{
    AttentionKind, BeyondContext, Block, CausalAttention, CausalSelfAttention, FeedForward,
    GatedMlp, Generate, Gpt, GptCache, GptConfig, LayerCx, Mlp, MlpKind, Names, NormKind,
    Positions, RopeConfig, Sampler, Shards, Until, attention_layer, default_shards, until,
};
pub use linear::Linear;
pub use lr_range_test::{LrRangeTest, LrRangeTestError};
pub use module::{Layer, Module, Sequential, Visitor};
#[doc(hidden)]
pub use module::{for_each_module, short_type};
pub use norm::{LayerNorm, Norm, RmsNorm};
pub use param::Param;
pub use pass::Pass;
pub use retrograd_tensor::ops::loss::{CrossEntropy, Reduction};
pub use state::{LoadError, StateDict};
pub use state_map::{StateMap, StateRule};
pub use transformer::{TransformerDecoderLayer, TransformerEncoderLayer, TransformerLayerConfig};

/// Parts that only the tests of this crate use.
#[doc(hidden)]
pub mod internals {
    pub use crate::attention::parts::scores::additive_scores;
    pub use crate::checkpoint::atomic::{Disk, System, replace};
    pub use crate::checkpoint::python::{Value, dictionary};
    pub use crate::checkpoint::stored::{bf16, f16};
    pub use crate::state_map::{captures, renamed};
}
