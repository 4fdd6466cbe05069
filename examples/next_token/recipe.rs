//! Everything that decides what a run learns, apart from its text.

use crate::stop::{Result, failed, usage};
use clap::ValueEnum;
use retrograd::nn::schedule::Schedule;
use retrograd::prelude::*;
use serde::{Deserialize, Serialize};

/// How much the averages of AdamW keep at each step.
pub const BETAS: (f64, f64) = (0.9, 0.99);
/// Weight decay of matrices and embeddings; norms have none.
pub const WEIGHT_DECAY: f64 = 0.1;
/// The largest norm of all gradients together.
pub const CLIP: f64 = 1.0;
/// Steps until the learning rate is at its highest, and at most a tenth of the run.
const WARMUP: u64 = 100;
/// The last learning rate, relative to the highest.
const FINAL_LR: f64 = 0.1;

/// What to do if memory runs out.
pub const LESS_MEMORY: &str = "a smaller --width, --layers, --context or --batch takes less";

/// Recipes with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// nanogpt-cpu with a learning rate of 4e-3, at which so small a model learns much more in as
    /// many steps
    Tales,
    /// nanoGPT's recipe for CPUs: 4 layers, 4 heads, 128 wide, context 64, batch 12, 2000 steps
    NanogptCpu,
    /// nanoGPT's "baby GPT": 6 layers, 6 heads, 384 wide, context 256, batch 64, dropout 0.2,
    /// 5000 steps. Takes many hours on a CPU
    Baby,
    /// A matter of seconds, to see that everything works: 2 layers, 2 heads, 32 wide, context 32
    Tiny,
}

/// Two runs with equal recipes and equal texts end with equal weights, bit for bit (with another
/// precision than f32, if both CPUs make such products or neither does).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recipe {
    pub layers: usize,
    pub heads: usize,
    pub width: usize,
    pub context: usize,
    pub dropout: f64,
    pub batch: usize,
    pub steps: u64,
    /// The highest learning rate.
    pub lr: f64,
    pub seed: u64,
    /// What products of matrices are made of.
    #[serde(default, with = "name")]
    pub precision: MatmulPrecision,
}

/// A precision as its name.
mod name {
    use super::MatmulPrecision;
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::{Serialize, Serializer};

    pub fn serialize<S: Serializer>(p: &MatmulPrecision, s: S) -> Result<S::Ok, S::Error> {
        p.name().serialize(s)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(d: D) -> Result<MatmulPrecision, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

impl Preset {
    pub fn recipe(self) -> Recipe {
        let nanogpt = Recipe {
            layers: 4,
            heads: 4,
            width: 128,
            context: 64,
            dropout: 0.0,
            batch: 12,
            steps: 2000,
            lr: 1e-3,
            seed: 1337,
            precision: MatmulPrecision::F32,
        };
        match self {
            Preset::Tales => Recipe { lr: 4e-3, ..nanogpt },
            Preset::NanogptCpu => nanogpt,
            Preset::Baby => Recipe {
                layers: 6,
                heads: 6,
                width: 384,
                context: 256,
                dropout: 0.2,
                batch: 64,
                steps: 5000,
                ..nanogpt
            },
            Preset::Tiny => Recipe {
                layers: 2,
                heads: 2,
                width: 32,
                context: 32,
                batch: 8,
                steps: 500,
                lr: 3e-3,
                ..nanogpt
            },
        }
    }
}

impl Recipe {
    /// The shape of the model: nanoGPT's, without biases and with a tied head.
    pub fn model(&self, vocab: usize) -> GptConfig {
        GptConfig {
            vocab,
            context: self.context,
            layers: self.layers,
            heads: self.heads,
            width: self.width,
            dropout: self.dropout,
            bias: false,
            tied: true,
        }
    }

    /// Up in a straight line, then down along half a cosine.
    pub fn schedule(&self) -> Schedule {
        Schedule::WarmupCosine {
            lr: self.lr,
            min_lr: self.lr * FINAL_LR,
            warmup: WARMUP.min(self.steps / 10),
            steps: self.steps,
        }
    }

    /// The configuration of the optimiser.
    pub fn adam(&self) -> AdamConfig {
        AdamConfig { lr: self.lr, betas: BETAS, eps: 1e-8, weight_decay: WEIGHT_DECAY }
    }

    /// Checks what no flag can check on its own.
    pub fn check(&self) -> Result<()> {
        match self.model(1).check() {
            Ok(()) => Ok(()),
            Err(e) => usage(e),
        }
    }

    /// Checks that there may be memory for the batch, and for weights, gradients and the two
    /// averages of AdamW. Many systems hand out any amount in small parts, and kill the process
    /// that uses it; what is more than they have, they refuse only in one piece.
    pub fn check_memory(&self, vocab: usize) -> Result<()> {
        let [batch, context, layers, width, vocab] =
            [self.batch, self.context, self.layers, self.width, vocab].map(|n| n as f64);
        let parameters = (vocab + context + layers * 12.0 * width) * width;
        let bytes = parameters * 4.0 * 4.0 + batch * context * 2.0 * 8.0;
        let mut piece = Vec::<u8>::new();
        if std::hint::black_box(&mut piece).try_reserve_exact(bytes as usize).is_ok() {
            return Ok(());
        }
        failed(format!(
            "no memory for {parameters:.2e} parameters and {batch} windows of {context} characters, \
             which take more than {:.0} GB; {LESS_MEMORY}",
            bytes / 1e9
        ))
    }

    /// Where another recipe differs, each in words; a recipe's fields are named like the flags.
    pub fn differences(&self, asked: &Recipe) -> Vec<String> {
        let fields = |recipe: &Recipe| match serde_json::to_value(recipe) {
            Ok(serde_json::Value::Object(fields)) => fields,
            other => unreachable!("a recipe is an object: {other:?}"),
        };
        let asked = fields(asked);
        let differing = fields(self).into_iter().filter(|(name, value)| asked[name] != *value);
        differing.map(|(name, value)| format!("--{name}: {value}, not {}", asked[&name])).collect()
    }
}
