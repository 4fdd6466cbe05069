//! What the other libraries' programs share: the protocol, the models, the data.
//!
//! The names of the work are those of benches/work.

#[path = "../../../compare/protocol.rs"]
mod protocol;

pub use protocol::{Opened, serve};

/// Different tokens of the text.
pub const VOCAB: usize = 65;
/// AdamW: learning rate, decay rates of the averages, weight decay.
pub const LR: f64 = 1e-3;
pub const BETAS: (f64, f64) = (0.9, 0.99);
pub const WEIGHT_DECAY: f64 = 0.1;
/// The largest norm of gradients.
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

    /// The standard deviation of projections into the residual stream, at first.
    pub fn residual_std(&self) -> f64 {
        0.02 / (2.0 * self.layers as f64).sqrt()
    }
}

/// Random numbers for operands: xorshift64*.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn uniform(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Normal numbers by Box and Muller.
    pub fn normal(&mut self, n: usize, std: f64) -> Vec<f32> {
        let mut one = || {
            let (u, v) = (self.uniform().max(1e-7), self.uniform());
            (-2.0 * u.ln()).sqrt() * (std::f32::consts::TAU * v).cos()
        };
        (0..n).map(|_| one() * std as f32).collect()
    }
}

/// A text that can be learnt, and batches of windows of it.
pub struct Text {
    tokens: Vec<u32>,
    rng: Rng,
}

impl Default for Text {
    fn default() -> Text {
        let mut rng = Rng::new(3);
        let mut token = 0;
        let tokens = (0..1_000_000).map(|_| {
            token = (7 * token + rng.next_u64() % 4) % VOCAB as u64;
            token as u32
        });
        Text { tokens: tokens.collect(), rng: Rng::new(4) }
    }
}

impl Text {
    /// Tokens and next tokens, each `batch * context` in row-major order.
    pub fn batch(&mut self, c: &Config) -> (Vec<u32>, Vec<u32>) {
        let (mut tokens, mut targets) = (Vec::new(), Vec::new());
        for _ in 0..c.batch {
            let start = self.rng.next_u64() as usize % (self.tokens.len() - c.context - 1);
            tokens.extend_from_slice(&self.tokens[start..][..c.context]);
            targets.extend_from_slice(&self.tokens[start + 1..][..c.context]);
        }
        (tokens, targets)
    }
}

/// Work whose result does not matter.
pub fn opened<R>(mut f: impl FnMut() -> R + 'static) -> Option<Opened> {
    let run = Box::new(move || {
        std::hint::black_box(f());
        None
    });
    // What has to be done is counted once, by the program that is compared with.
    Some(Opened { flops: 0.0, bytes: 0.0, run })
}

/// Training steps, which answer their loss.
pub fn training(
    config: Config,
    mut step: impl FnMut(&[u32], &[u32]) -> f32 + 'static,
) -> Option<Opened> {
    let mut text = Text::default();
    let run = Box::new(move || {
        let (tokens, targets) = text.batch(&config);
        Some(step(&tokens, &targets).into())
    });
    Some(Opened { flops: 0.0, bytes: 0.0, run })
}

/// The numbers that words stand for.
pub fn numbers<const N: usize>(words: &[&str]) -> Option<[usize; N]> {
    let numbers: Option<Vec<usize>> = words.iter().map(|w| w.parse().ok()).collect();
    numbers?.try_into().ok()
}
