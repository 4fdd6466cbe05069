//! The hyperparameters of a run.

use crate::stop::{Result, failed, usage};
use crate::tokenizer::TokenizerKind;
use crate::values::{Pattern, above_0, at_least_0, attention, count, probability, size};
use clap::{ArgAction, Args, ValueEnum};
use retrograd::nn::optim::{Muon, MuonConfig};
use retrograd::nn::schedule::Schedule;
use retrograd::nn::{AttentionKind, ConfigError, MlpKind, NormKind, Positions, default_shards};
use retrograd::prelude::*;
use retrograd::study::grouped;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Display;

/// The decay rates of AdamW's moving averages.
pub const BETAS: (f64, f64) = (0.9, 0.99);
/// Weight decay of matrices and embeddings with AdamW; norms have none.
pub const WEIGHT_DECAY: f64 = 0.1;
/// The maximum global norm of the gradients.
pub const CLIP: f64 = 1.0;
/// Warm-up steps; at most a tenth of the run.
const WARMUP: u64 = 100;
/// The final learning rate, relative to the peak.
const FINAL_LR: f64 = 0.1;

/// The fraction of the run in which the schedule `wsd` decays.
const DECAY: f64 = 0.6;
/// The learning rate of AdamW beside Muon, relative to Muon's.
const ADAM_RATIO: f64 = 0.5;
/// The momentum of Muon. Runs are short: a longer average would lag behind.
const MOMENTUM: f64 = 0.85;
/// The decay rates of AdamW's moving averages beside Muon, and its weight decay.
const ADAM: AdamConfig =
    AdamConfig { lr: 0.0, betas: (0.9, 0.95), eps: 1e-8, weight_decay: 0.0, amsgrad: false };

/// The optimiser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// AdamW for all parameters
    #[default]
    #[value(name = "adamw")]
    AdamW,
    /// Muon for the matrices of the blocks, AdamW for the others
    Muon,
}

/// The learning rate after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleKind {
    /// Half a cosine, to a tenth of the peak
    #[default]
    Cosine,
    /// Constant, then linear to 0 in the last 60 % of the run
    Wsd,
}

/// The heading of its flags.
pub const HYPERPARAMETERS: &str = "Hyperparameters (override the preset)";

/// What to do if memory runs out.
pub const LESS_MEMORY: &str = "a smaller --width, --layers, --context or --batch needs less";

/// The hyperparameters of a run, each with its flag. Two runs with equal recipes and texts have equal weights, bit
/// for bit (with another precision than f32, if both CPUs support it or neither does). Older checkpoints lack some
/// fields, which then have the values of nanoGPT's recipe, the default.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[command(next_help_heading = HYPERPARAMETERS)]
#[serde(default)]
pub struct Recipe {
    /// Tokens: char, byte, bpe:N, or a file such as tokenizer.json [default: char]
    ///
    /// bpe:N is byte-level BPE of N tokens, trained on the text. bpe:N and tokenizer.json of Hugging Face's library
    /// need a build with --features tokenizers.
    #[arg(long, value_name = "NAME", help_heading = None::<&str>)]
    #[serde(with = "text")]
    pub tokenizer: TokenizerKind,

    /// Training steps
    #[arg(long, value_name = "N", value_parser = count(100_000_000))]
    pub steps: u64,

    /// Batch size: windows of text per step
    #[arg(long, value_name = "N", value_parser = size(65536))]
    pub batch: usize,

    /// Shards of a batch, which are computed at the same time [default: 1, 2 or 4]
    ///
    /// The default depends on the tokens of a batch. Shards are divided among threads, and among ranks of MPI. Other
    /// shards have other roundings and other patterns of dropout.
    #[arg(long, value_name = "N", value_parser = size(65536))]
    pub shards: Option<usize>,

    /// Context length in tokens
    #[arg(long, value_name = "N", value_parser = size(65536))]
    pub context: usize,

    /// Transformer blocks
    #[arg(long, value_name = "N", value_parser = size(1024))]
    pub layers: usize,

    /// Attention heads in each block; must divide the width
    #[arg(long, value_name = "N", value_parser = size(1024))]
    pub heads: usize,

    /// Embedding width
    #[arg(long, value_name = "N", value_parser = size(16384))]
    pub width: usize,

    /// Fraction of activations dropped in training, at least 0 and below 1
    #[arg(long, value_name = "P", value_parser = probability)]
    pub dropout: f64,

    /// Peak learning rate
    #[arg(long, value_name = "RATE", value_parser = above_0)]
    pub lr: f64,

    /// Optimiser
    #[arg(long, value_enum, value_name = "NAME")]
    pub optimizer: OptimizerKind,

    /// Learning rate after the warm-up
    #[arg(long, value_enum, value_name = "NAME")]
    pub schedule: ScheduleKind,

    /// Momentum of Muon [default: 0.85]
    #[arg(long, value_name = "M", value_parser = probability)]
    pub momentum: Option<f64>,

    /// Weight decay of matrices [default: 0.1 with AdamW, 0 with Muon]
    #[arg(long, value_name = "X", value_parser = at_least_0)]
    pub weight_decay: Option<f64>,

    /// Learning rate of AdamW beside Muon, for embeddings and norms [default: half of Muon's]
    #[arg(long, value_name = "RATE", value_parser = above_0)]
    pub adam_lr: Option<f64>,

    /// Seed of initial weights, batches, dropout and samples
    #[arg(long, value_name = "N")]
    pub seed: u64,

    /// Precision of matrix multiplication: f32, bf16x6, bf16x3 or bf16, from exact to fast
    ///
    /// The others than f32 need a CPU with AMX; results then depend on whether the CPU has AMX.
    #[arg(long, value_name = "NAME")]
    #[serde(with = "text")]
    pub precision: MatmulPrecision,

    /// Attention variant; "list" prints all of them
    #[arg(long, value_name = "NAME", value_parser = attention)]
    pub attention: AttentionKind,

    /// Attention variants by layer, in place of --attention, such as "gated-delta-net causal"; repeated
    #[arg(long, value_name = "NAMES")]
    #[serde(with = "text")]
    pub pattern: Pattern,

    /// Key and value heads, which divide the heads
    // The default is that of the attention variant.
    #[arg(long, value_name = "N", value_parser = size(1024))]
    pub key_heads: Option<usize>,

    /// Normalise queries and keys
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    #[arg(action = ArgAction::Set)]
    pub qk_norm: bool,

    /// Norm: layer-norm, rms-norm or none
    #[arg(long, value_name = "NAME")]
    pub norm: NormKind,

    /// Feed-forward layer: gelu, gelu-tanh, relu, relu-squared, swiglu, geglu or reglu
    #[arg(long, value_name = "NAME")]
    pub mlp: MlpKind,

    /// Positions: learned, sinusoidal, rope, alibi, t5 or none [default: learned]
    ///
    /// The default is none if the attention variant encodes positions itself.
    #[arg(long, value_name = "NAME")]
    pub positions: Positions,

    /// All of the configuration, for weights that come from another program: it may have parts that have no
    /// field of their own here.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<GptConfig>,
}

/// A value as the text that its flag takes.
mod text {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;
    use std::fmt::Display;
    use std::str::FromStr;

    pub fn serialize<T: Display, S: Serializer>(value: &T, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(value)
    }

    pub fn deserialize<'a, T, D: Deserializer<'a>>(d: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
    {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

impl Default for Recipe {
    /// nanoGPT's recipe for CPUs.
    fn default() -> Self {
        Recipe {
            tokenizer: TokenizerKind::Char,
            layers: 4,
            heads: 4,
            width: 128,
            context: 64,
            dropout: 0.0,
            attention: AttentionKind::Causal,
            pattern: Pattern::default(),
            key_heads: None,
            qk_norm: false,
            norm: NormKind::LayerNorm,
            mlp: MlpKind::Gelu,
            positions: Positions::Learned,
            optimizer: OptimizerKind::AdamW,
            schedule: ScheduleKind::Cosine,
            momentum: None,
            weight_decay: None,
            adam_lr: None,
            batch: 12,
            shards: None,
            steps: 2000,
            lr: 1e-3,
            seed: 1337,
            precision: MatmulPrecision::F32,
            config: None,
        }
    }
}

impl Recipe {
    /// The parts that are not nanoGPT's, as text.
    pub fn parts(&self) -> String {
        fn named<T: PartialEq + Display>(name: &str, own: T, usual: T) -> Option<String> {
            (own != usual).then(|| format!("{name} {own}"))
        }
        let usual = Recipe::default();
        let parts = [
            named("attention", self.attention, usual.attention),
            named("attention by layer", self.pattern.clone(), usual.pattern),
            self.key_heads.map(|n| format!("{n} key heads")),
            self.qk_norm.then(|| "QK-norm".to_string()),
            named("norm", self.norm, usual.norm),
            named("feed-forward", self.mlp, usual.mlp),
            named("positions", self.positions, usual.positions),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// The configuration of the model: without biases and with a tied head, as in nanoGPT's recipes, unless the
    /// weights come from another program.
    pub fn model(&self, vocab: usize) -> GptConfig {
        if let Some(config) = &self.config {
            return GptConfig { dropout: self.dropout, ..config.clone() };
        }
        GptConfig {
            vocab,
            context: self.context,
            layers: self.layers,
            heads: self.heads,
            width: self.width,
            dropout: self.dropout,
            bias: false,
            tied: true,
            attention: self.attention,
            pattern: self.pattern.0.clone(),
            key_heads: self.key_heads,
            qk_norm: self.qk_norm,
            norm: self.norm,
            mlp: self.mlp,
            positions: self.positions,
            ..GptConfig::default()
        }
    }

    /// Linear warm-up, then decay.
    pub fn schedule(&self) -> Schedule {
        let (lr, steps) = (self.lr, self.steps);
        let warmup = WARMUP.min(steps / 10);
        match self.schedule {
            ScheduleKind::Cosine => {
                Schedule::WarmupCosine { lr, min_lr: lr * FINAL_LR, warmup, steps }
            }
            ScheduleKind::Wsd => {
                let decay = (steps as f64 * DECAY).round() as u64;
                Schedule::WarmupStableDecay { lr, min_lr: 0.0, warmup, decay, steps }
            }
        }
    }

    /// The number of shards of a batch.
    pub fn number_of_shards(&self) -> usize {
        self.shards.unwrap_or_else(|| default_shards(self.batch, self.batch * self.context))
    }

    /// The optimiser of a model.
    pub fn optimizer(&self, model: &impl Module<f32>) -> Result<Box<dyn Optimizer>, ConfigError> {
        let weight_decay = self.weight_decay.unwrap_or(WEIGHT_DECAY);
        let config =
            AdamConfig { lr: self.lr, betas: BETAS, weight_decay, ..AdamConfig::default() };
        Ok(match self.optimizer {
            OptimizerKind::AdamW => Box::new(AdamW::new(model, config)?),
            OptimizerKind::Muon => {
                // The learning rate of AdamW, for embeddings and norms, is a fixed part of Muon's.
                let lr = self.adam_lr.unwrap_or(self.lr * ADAM_RATIO);
                let muon = MuonConfig {
                    lr: self.lr,
                    momentum: self.momentum.unwrap_or(MOMENTUM),
                    weight_decay: self.weight_decay.unwrap_or(0.0),
                    adam: AdamConfig { lr, ..ADAM },
                    ..MuonConfig::default()
                };
                Box::new(Muon::new(model, muon)?)
            }
        })
    }

    /// Checks what the parser cannot check for one flag alone.
    pub fn check(&self) -> Result<()> {
        let Err(why) = self.model(1).check() else { return Ok(()) };
        let learned = Positions::Learned;
        let changes = [
            (learned, self.qk_norm, "--positions learned"),
            (self.positions, false, "--qk-norm false"),
            (learned, false, "--positions learned --qk-norm false"),
        ];
        let is_valid = |(positions, qk_norm, _): &(Positions, bool, &str)| {
            let changed = Recipe { positions: *positions, qk_norm: *qk_norm, ..self.clone() };
            changed.model(1).check().is_ok()
        };
        match changes.iter().find(|change| is_valid(change)) {
            Some((.., flags)) => usage(format!("{why}; with {flags} it is possible")),
            None => usage(why),
        }
    }

    /// Checks that memory for the batch, weights, gradients and AdamW's two averages can be allocated
    /// at once. Systems that overcommit grant any number of small allocations and kill the process
    /// later, but they refuse one allocation that is larger than their memory.
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
            "no memory for {parameters:.2e} parameters and {batch} windows of {context} tokens, \
             which need more than {:.0} GB; {LESS_MEMORY}",
            bytes / 1e9
        ))
    }

    /// The hyperparameters that the shapes and the meaning of the weights do not depend on. That of the
    /// tokenizer is among them, because the name of a tokenizer does not say whether it is the same.
    pub const TRAINING: [&str; 9] = [
        "tokenizer",
        "dropout",
        "optimizer",
        "schedule",
        "batch",
        "steps",
        "lr",
        "seed",
        "precision",
    ];

    /// The flags in which another recipe differs, with both values.
    pub fn differing(&self, other: &Recipe) -> Vec<(String, Value, Value)> {
        let (own, other) = (self.to_json(), other.to_json());
        let fields = other.as_object().into_iter().flatten();
        let differing = fields.filter(|&(name, value)| own[name] != *value);
        differing.map(|(name, v)| (name.replace('_', "-"), own[name].clone(), v.clone())).collect()
    }

    /// The differences to another recipe, as text, without those in `ignored`.
    pub fn differences(&self, asked: &Recipe, ignored: &[&str]) -> Vec<String> {
        let differing = self.differing(asked).into_iter();
        differing
            .filter(|(name, ..)| !ignored.contains(&name.as_str()))
            .map(|(name, own, asked)| format!("--{name}: {own}, not {asked}"))
            .collect()
    }

    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("has a JSON form")
    }

    /// The learning rate schedule in words.
    pub fn schedule_in_words(&self) -> String {
        let count = |n| format!("{} {}", grouped(n), if n == 1 { "step" } else { "steps" });
        let words = match self.schedule() {
            Schedule::WarmupCosine { lr, min_lr, warmup, steps } => format!(
                "{} of warm-up to {}, then half a cosine to {} at step {}",
                count(warmup),
                rounded(lr),
                rounded(min_lr),
                grouped(steps)
            ),
            Schedule::WarmupStableDecay { lr, min_lr, warmup, decay, steps } => format!(
                "{} of warm-up to {}, constant until step {}, then linear to {} at step {}",
                count(warmup),
                rounded(lr),
                grouped(steps.saturating_sub(decay).max(warmup)),
                rounded(min_lr),
                grouped(steps)
            ),
            other => format!("{other:?}"),
        };
        format!("learning rate: {words}")
    }
}

/// A number to four significant digits.
pub fn rounded(x: f64) -> f64 {
    format!("{x:.3e}").parse().unwrap_or(x)
}
