//! Code that the programs of the Rust libraries share: the protocol, the models, the data.
//!
//! The names of the work are those of benches/tasks.

#[path = "../../../compare/data.rs"]
pub mod data;
#[path = "../../../compare/protocol.rs"]
mod protocol;

pub use protocol::{Opened, serve};

use data::Text;

/// The size of the vocabulary.
pub const VOCAB: usize = 65;
/// AdamW: learning rate, decay rates of the averages, weight decay.
pub const LR: f64 = 1e-3;
pub const BETAS: (f64, f64) = (0.9, 0.99);
pub const WEIGHT_DECAY: f64 = 0.1;
/// The largest gradient norm, for clipping.
pub const CLIP: f64 = 1.0;

/// A decoder-only model with tied embeddings and without biases.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub layers: usize,
    pub heads: usize,
    pub width: usize,
    pub context: usize,
    pub batch: usize,
    pub dropout: f64,
}

impl Config {
    /// The model of `train NAME BATCH DROPOUT`.
    pub fn named(name: &str, batch: usize, dropout: f64) -> Option<Config> {
        let (layers, heads, width, context) = match name {
            "nanogpt-cpu" => (4, 4, 128, 64),
            "baby" => (6, 6, 384, 256),
            _ => return None,
        };
        Some(Config { layers, heads, width, context, batch, dropout })
    }
}

/// The work `f`; `values` returns the elements of its result, which are compared.
pub fn opened<R>(
    mut f: impl FnMut() -> R + 'static,
    values: impl Fn(&R) -> Vec<f32> + 'static,
) -> Option<Opened> {
    let run = Box::new(move |check| {
        let result = std::hint::black_box(f());
        if check { data::digest(&values(&result)).to_vec() } else { Vec::new() }
    });
    // Operations and bytes are counted by retrograd's program only.
    Some(Opened { flops: 0.0, bytes: 0.0, run })
}

/// Training steps; the result of each is its loss.
pub fn training(
    config: Config,
    mut step: impl FnMut(&[usize], &[usize]) -> f32 + 'static,
) -> Option<Opened> {
    let mut text = Text::new(VOCAB);
    let run = Box::new(move |_| {
        let (tokens, targets) = text.batch(config.batch, config.context);
        vec![step(&tokens, &targets).into()]
    });
    Some(Opened { flops: 0.0, bytes: 0.0, run })
}

/// Parses words as numbers.
pub fn numbers<const N: usize>(words: &[&str]) -> Option<[usize; N]> {
    let numbers: Option<Vec<usize>> = words.iter().map(|w| w.parse().ok()).collect();
    numbers?.try_into().ok()
}
