//! The model: the encoder and the decoder of Vaswani et al. 2017 (arXiv 1706.03762), with the layer
//! norms before each sublayer (pre-norm).

use crate::dates::{CHARACTERS, ISO, LONGEST, SYMBOLS, start};
use retrograd::nn::attention::{Capture, LearnedPositions, Mask, Spec};
use retrograd::nn::{TransformerDecoderLayer, TransformerEncoderLayer, TransformerLayerConfig};
use retrograd::prelude::*;

const WIDTH: usize = 64;
const HEADS: usize = 4;
const LAYERS: usize = 2;

/// The model: from characters to the symbols of an ISO date.
pub struct Translator {
    characters: Embedding,
    places: LearnedPositions,
    encoder: Vec<TransformerEncoderLayer>,
    ln_read: LayerNorm,
    symbols: Embedding,
    steps: LearnedPositions,
    decoder: Vec<TransformerDecoderLayer>,
    ln_written: LayerNorm,
    head: Linear,
}

/// The output of the encoder.
pub struct Memory {
    states: Var,
    /// The mask that hides padding.
    keep: Mask,
}

fn layer() -> TransformerLayerConfig {
    let config = TransformerLayerConfig::new(WIDTH, HEADS);
    TransformerLayerConfig {
        dropout: 0.0,
        activation: Activation::Gelu,
        norm_first: true,
        ..config
    }
}

impl Translator {
    pub fn new(rng: &mut Rng) -> Translator {
        Translator {
            characters: Embedding::new(CHARACTERS.chars().count(), WIDTH, rng),
            places: LearnedPositions::new(LONGEST, WIDTH, rng),
            encoder: (0..LAYERS).map(|_| TransformerEncoderLayer::new(layer(), rng)).collect(),
            ln_read: LayerNorm::new(WIDTH),
            symbols: Embedding::new(SYMBOLS.len(), WIDTH, rng),
            steps: LearnedPositions::new(ISO, WIDTH, rng),
            decoder: (0..LAYERS).map(|_| TransformerDecoderLayer::new(layer(), rng)).collect(),
            ln_written: LayerNorm::new(WIDTH),
            head: Linear::new(WIDTH, SYMBOLS.len(), rng),
        }
    }

    /// Encodes characters `[B, Lk]`; row `i` has `lengths[i]` of them, the others are padding.
    pub fn read(&self, characters: &Tensor<i64>, lengths: &[usize], pass: &mut Pass) -> Memory {
        let keep = Mask::lengths(lengths);
        let x = self.places.forward(&self.characters.forward(characters), 0);
        let x = self.encoder.iter().fold(x, |x, layer| layer.forward(&x, keep.clone(), pass));
        Memory { states: self.ln_read.forward(&x, pass), keep }
    }

    /// The logits `[B, Lq, symbols]` of the symbols that follow those in `[B, Lq]`.
    pub fn write(&self, memory: &Memory, symbols: &Tensor<i64>, pass: &mut Pass) -> Var {
        self.run(memory, symbols, None, pass)
    }

    /// The cross-attention weights `[B, heads, Lq, Lk]` of each layer of the decoder.
    pub fn alignment(&self, memory: &Memory, symbols: &Tensor<i64>) -> Vec<Tensor> {
        let capture = Capture::new();
        no_grad(|| self.run(memory, symbols, Some(&capture), &mut Pass::eval()));
        capture.take()
    }

    fn run(
        &self,
        memory: &Memory,
        symbols: &Tensor<i64>,
        capture: Option<&Capture>,
        pass: &mut Pass,
    ) -> Var {
        let spec = Spec::from(memory.keep.clone());
        let spec = capture.iter().fold(spec, |spec, capture| spec.capture(capture));
        let mut x = self.steps.forward(&self.symbols.forward(symbols), 0);
        for layer in &self.decoder {
            x = layer.forward(&x, &memory.states, Mask::causal(), &spec, pass);
        }
        self.head.forward(&self.ln_written.forward(&x, pass), pass)
    }

    /// Greedy decoding: `[B, 10]`.
    pub fn translate(&self, characters: &Tensor<i64>, lengths: &[usize]) -> Tensor<i64> {
        no_grad(|| {
            let memory = self.read(characters, lengths, &mut Pass::eval());
            let batch = characters.size(0);
            let mut symbols = Tensor::full([batch, 1], start());
            for step in 0..ISO {
                let scores = self.write(&memory, &symbols, &mut Pass::eval());
                let next = scores.value().select(1, step).argmax(-1);
                symbols = Tensor::cat(&[&symbols, &next.unsqueeze(1)], 1);
            }
            symbols.narrow(1, 1, ISO)
        })
    }
}

/// The decoder's input for these symbols: the start symbol, then all but the last.
pub fn behind_start(symbols: &Tensor<i64>) -> Tensor<i64> {
    let first = Tensor::full([symbols.size(0), 1], start());
    Tensor::cat(&[&first, &symbols.narrow(1, 0, ISO - 1)], 1)
}

impl Module for Translator {
    fn visit(&self, v: &mut Visitor<'_, f32>) {
        v.module("characters", &self.characters);
        v.module("places", &self.places);
        v.list("encoder", &self.encoder);
        v.module("ln_read", &self.ln_read);
        v.module("symbols", &self.symbols);
        v.module("steps", &self.steps);
        v.list("decoder", &self.decoder);
        v.module("ln_written", &self.ln_written);
        v.module("head", &self.head);
    }
}
