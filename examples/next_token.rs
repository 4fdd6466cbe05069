//! Trains a small language model on short tales, from the text to a sample:
//!
//! ```sh
//! cargo run --release --example next_token
//! ```
//!
//! The model reads characters and predicts the next one. It is a transformer with causal multi-head
//! attention, written here from layers of the library. `retrograd::nn::Gpt` is such a model with
//! options, and `cargo run --release -- train` is this program with checkpoints, flags and pages.

use retrograd::autograd::sharded;
use retrograd::nn::attention::{HeadSizes, Incremental, Mask, Projections, Rope};
use retrograd::nn::init::Init;
use retrograd::prelude::*;
use std::error::Error;

/// Characters in a window of the text. The model predicts each from the ones before it.
const CONTEXT: usize = 64;
/// Windows in a batch.
const BATCH: usize = 16;
const STEPS: u64 = 700;
const BLOCKS: usize = 3;
const HEADS: usize = 2;
/// Numbers per character, which every block adds to.
const WIDTH: usize = 128;

/// `x + attention(norm(x))`, then `x + mlp(norm(x))`.
struct Block {
    attention_norm: RmsNorm,
    attention: Projections,
    mlp_norm: RmsNorm,
    mlp: Sequential,
}

impl Block {
    fn new(rng: &mut Rng) -> Block {
        let attention = Projections::new(HeadSizes::new(WIDTH, HEADS), rng).with_qk_norm(1e-6);
        let up = Linear::new(WIDTH, 4 * WIDTH, rng);
        let down = Linear::new(4 * WIDTH, WIDTH, rng);
        Block {
            attention_norm: RmsNorm::new(WIDTH),
            // Rotary positions: scores depend on the distance of a query and a key.
            attention: attention.with_rope(Rope::new(WIDTH / HEADS)),
            mlp_norm: RmsNorm::new(WIDTH),
            mlp: Sequential::new().then(up).then(Activation::Relu).then(down),
        }
    }

    fn forward(&self, x: &Var, pass: &mut Pass) -> Var {
        let normed = self.attention_norm.forward(x, pass);
        let x = x + self.attention.forward(&normed, Mask::causal(), pass);
        &x + self.mlp.forward(&self.mlp_norm.forward(&x, pass), pass)
    }
}

/// Lists the parts of a block. The optimiser finds the parameters by this list.
impl Module for Block {
    fn visit(&self, v: &mut Visitor<'_, f32>) {
        v.module("attention_norm", &self.attention_norm);
        v.module("attention", &self.attention);
        v.module("mlp_norm", &self.mlp_norm);
        v.module("mlp", &self.mlp);
    }
}

struct Model {
    embedding: Embedding,
    blocks: Vec<Block>,
    norm: RmsNorm,
    head: Linear,
}

impl Model {
    fn new(vocab: usize, rng: &mut Rng) -> Model {
        Model {
            embedding: Embedding::new(vocab, WIDTH, rng).init(Init::Normal { std: 0.3 }, rng),
            blocks: (0..BLOCKS).map(|_| Block::new(rng)).collect(),
            norm: RmsNorm::new(WIDTH),
            head: Linear::new(WIDTH, vocab, rng),
        }
    }

    /// Characters `[B, L]` to the logits of the next ones, `[B, L, vocab]`.
    fn forward(&self, characters: &Tensor<i64>, pass: &mut Pass) -> Var {
        let mut x = self.embedding.forward(characters);
        for block in &self.blocks {
            x = block.forward(&x, pass);
        }
        self.head.forward(&self.norm.forward(&x, pass), pass)
    }

    /// The logits without a graph for gradients.
    fn predict(&self, characters: &Tensor<i64>) -> Tensor {
        no_grad(|| self.forward(characters, &mut Pass::eval()).into_value())
    }
}

impl Module for Model {
    fn visit(&self, v: &mut Visitor<'_, f32>) {
        v.module("embedding", &self.embedding);
        v.list("blocks", &self.blocks);
        v.module("norm", &self.norm);
        v.module("head", &self.head);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(argument) = std::env::args().nth(1) {
        return Err(format!("this example takes no arguments, got {argument}").into());
    }
    let text = include_str!("tales.txt"); // from a grammar, as the texts of train/src/tales.rs
    let tokenizer = Tokenizer::chars([text]);
    let corpus = Corpus::new(&Documents::of(text), 0.1, &tokenizer)?; // a tenth is held out
    let mut rng = Rng::new(1);
    let model = Model::new(tokenizer.vocab_size(), &mut rng);
    let mut optimizer = Muon::new(&model, MuonConfig { momentum: 0.85, ..Default::default() })?;
    let schedule = Schedule::Linear { lr: 0.02, min_lr: 0.0, warmup: 20, steps: STEPS };
    println!("{} characters, {} parameters", text.len(), model.num_parameters());

    for step in 0..STEPS {
        // Two halves of the batch, so that two threads compute the gradients at the same time.
        let (loss, mut grads) = sharded(&[1, 1], |half| {
            let batch = corpus.batch(1, 2 * step + half as u64, BATCH / 2, CONTEXT);
            let logits = model.forward(&batch.tokens, &mut Pass::train_step(1, step));
            logits.cross_entropy(&batch.targets, CrossEntropy::default())
        });
        grads.clip_norm(1.0);
        optimizer.set_lr(schedule.lr(step));
        optimizer.step(&grads)?;
        if step % 50 == 0 {
            println!("step {step:3}: loss {loss:.3}");
        }
    }

    let mut held_out = TextMetrics::default();
    for window in corpus.windows(CONTEXT) {
        let batch = window.batch();
        held_out.add(&model.predict(&batch.tokens), &batch.targets, window.bytes);
    }
    println!("loss on held-out text {:.3}", held_out.loss());

    let mut sample = tokenizer.encode("THE")?;
    let sampler = Sampler { temperature: 0.6, ..Sampler::default() };
    for _ in 0..500 {
        let window = &sample[sample.len().saturating_sub(CONTEXT)..];
        let logits = model.predict(&Tensor::from_vec(window.to_vec(), [1, window.len()]));
        sample.push(sampler.draw(&logits.i((0, -1)), &mut rng));
    }
    println!("\n{}", tokenizer.decode(&sample));
    Ok(())
}
