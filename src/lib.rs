//! A SIMD tensor, reverse-mode autodiff and attention library, written to be read and to be
//! fast.
//!
//! This crate re-exports five others and is the place of the examples:
//!
//! * [`tensor`]: strided tensors and SIMD kernels,
//! * [`autograd`]: variables that remember where they came from,
//! * [`nn`]: modules, attention, optimisers, checkpoints,
//! * [`distributed`]: training by several processes,
//! * [`study`]: records of a computation, and pages that show it.
//!
//! [`book`] is a guide from the first tensor to a fast kernel, with figures and exercises.
//! [`conventions`] says where results differ from PyTorch's, and why.
//!
//! ```
//! use retrograd::prelude::*;
//!
//! let w = Var::leaf(Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]));
//! let loss = w.matmul(&w.t()).sum(..);
//! let grads = loss.backward();
//! assert_eq!(grads.get(&w).unwrap().to_vec(), [8.0, 12.0, 8.0, 12.0]);
//! ```
//!
#![doc = include_str!("../docs/YOUR_PROGRAM.md")]
#![forbid(unsafe_code)]

pub use retrograd_autograd as autograd;
pub use retrograd_distributed as distributed;
pub use retrograd_nn as nn;
pub use retrograd_study as study;
pub use retrograd_tensor as tensor;
pub use retrograd_tensor::machine;

pub mod book;

#[doc = include_str!("conventions.md")]
pub mod conventions {}

/// The program in README.md, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The programs in docs/DEBUGGING.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/DEBUGGING.md")]
struct Debugging;

/// The programs in docs/GUIDE.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/GUIDE.md")]
struct Guide;

/// What most programs need.
pub mod prelude {
    pub use retrograd_autograd::{Backprop, Gradients, Var, grad, no_grad};
    pub use retrograd_nn::checkpoint::Checkpoint;
    pub use retrograd_nn::optim::{Adam, AdamConfig, AdamW, Group, Muon, MuonConfig};
    pub use retrograd_nn::optim::{Optimizer, Sgd, SgdConfig};
    pub use retrograd_nn::schedule::Schedule;
    pub use retrograd_nn::text::{Corpus, Documents, TextMetrics, Tokenizer};
    pub use retrograd_nn::{
        Activation, Block, CausalSelfAttention, Dropout, Embedding, Gpt, GptConfig, Layer,
        LayerNorm, Linear, Mlp, Module, Param, Pass, RmsNorm, Sampler, Sequential, StateDict,
        Visitor, attention_layer,
    };
    pub use retrograd_study::{Summarize, XRay};
    pub use retrograd_tensor::prelude::*;
}
