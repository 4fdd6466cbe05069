//! The command line.

use crate::checkpoints::Which;
use crate::output::say;
use crate::recipe::{OptimizerKind, Preset, Recipe, ScheduleKind};
use crate::stop::{Result, usage};
use crate::tokenizer::TokenizerKind;
use clap::builder::RangedI64ValueParser;
use clap::{Arg, Parser};
use retrograd::nn::{AttentionKind, ConfigError, MlpKind, NormKind, Positions, Sampler};
use retrograd::prelude::MatmulPrecision;
use std::path::PathBuf;
use std::str::FromStr;

/// The command that messages show.
#[cfg(not(feature = "tokenizers"))]
pub const COMMAND: &str = "cargo run --release --example next_token";
/// The command that messages show.
#[cfg(feature = "tokenizers")]
pub const COMMAND: &str = "cargo run --release --features tokenizers --example next_token";

/// Trains a small language model on the CPU and prints samples from it.
///
/// Without flags it generates a text of short tales, trains on it for about a minute and a half,
/// prints three samples, and writes a checkpoint, a log and a page to a folder.
///
/// Losses are in nats per token. To compare tokenizers, there are bits per byte: the sum of the losses
/// of all predicted tokens, divided by ln 2 and by the bytes of their text in UTF-8, or loss / ln 2 *
/// tokens / bytes. Perplexity is exp(loss), accuracy the part of the tokens that were the most probable
/// ones. The last tenth of the characters is held out. The curve is measured on 64 windows of it,
/// always the same; the result at the end on all of it.
#[derive(Parser, Debug)]
#[command(bin_name = format!("{COMMAND} --"), max_term_width = 100)]
#[command(mut_args = negative_numbers_are_values)]
pub struct Args {
    /// Training text in UTF-8: a file, or a folder whose files are documents in the order of their
    /// paths [default: generated tales]
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,

    /// Tokens: char, byte, bpe:N (byte-level BPE of N tokens, trained on the text), or a file, as
    /// tokenizer.json of Hugging Face's library. The last two need --features tokenizers before
    /// --example [default: char]
    #[arg(long, value_name = "NAME")]
    pub tokenizer: Option<TokenizerKind>,

    /// Named set of hyperparameters; the flags below override parts of it [default: tales]
    #[arg(long, value_enum, value_name = "NAME")]
    pub preset: Option<Preset>,

    /// Training steps, those before --resume included
    #[arg(long, value_name = "N", value_parser = count(100_000_000), help_heading = RECIPE)]
    pub steps: Option<u64>,

    /// Batch size: windows of text per step
    #[arg(long, value_name = "N", value_parser = count(65536), help_heading = RECIPE)]
    pub batch: Option<u64>,

    /// Shards of a batch, whose passes run at the same time, also on different ranks of MPI. Other shards
    /// have other roundings and other patterns of dropout [default: 1, 2 or 4, by the tokens of a batch]
    #[arg(long, value_name = "N", value_parser = count(65536), help_heading = RECIPE)]
    pub shards: Option<u64>,

    /// Context length in tokens
    #[arg(long, value_name = "N", value_parser = count(65536), help_heading = RECIPE)]
    pub context: Option<u64>,

    /// Transformer blocks
    #[arg(long, value_name = "N", value_parser = count(1024), help_heading = RECIPE)]
    pub layers: Option<u64>,

    /// Attention heads in each block; must divide the width
    #[arg(long, value_name = "N", value_parser = count(1024), help_heading = RECIPE)]
    pub heads: Option<u64>,

    /// Embedding width
    #[arg(long, value_name = "N", value_parser = count(16384), help_heading = RECIPE)]
    pub width: Option<u64>,

    /// Fraction of activations dropped in training, at least 0 and below 1
    #[arg(long, value_name = "P", value_parser = probability, help_heading = RECIPE)]
    pub dropout: Option<f64>,

    /// Peak learning rate
    #[arg(long, value_name = "RATE", value_parser = above_0, help_heading = RECIPE)]
    pub lr: Option<f64>,

    /// Optimiser
    #[arg(long, value_enum, value_name = "NAME", help_heading = RECIPE)]
    pub optimizer: Option<OptimizerKind>,

    /// Learning rate after the warm-up
    #[arg(long, value_enum, value_name = "NAME", help_heading = RECIPE)]
    pub schedule: Option<ScheduleKind>,

    /// Momentum of Muon [default: 0.85]
    #[arg(long, value_name = "M", value_parser = probability, help_heading = RECIPE)]
    pub momentum: Option<f64>,

    /// Weight decay of matrices [default: 0.1 with AdamW, 0 with Muon]
    #[arg(long, value_name = "X", value_parser = at_least_0, help_heading = RECIPE)]
    pub weight_decay: Option<f64>,

    /// Learning rate of AdamW beside Muon, for embeddings and norms [default: half of Muon's]
    #[arg(long, value_name = "RATE", value_parser = above_0, help_heading = RECIPE)]
    pub adam_lr: Option<f64>,

    /// Seed of initial weights, batches, dropout and samples
    #[arg(long, value_name = "N", help_heading = RECIPE)]
    pub seed: Option<u64>,

    /// Attention variant; "list" prints all of them
    #[arg(long, value_name = "NAME", help_heading = MODEL)]
    pub attention: Option<Choice>,

    /// Key and value heads, which divide the heads
    #[arg(long, value_name = "N", value_parser = count(1024), help_heading = MODEL)]
    pub key_heads: Option<u64>,

    /// Normalise queries and keys
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    #[arg(help_heading = MODEL)]
    pub qk_norm: Option<bool>,

    /// Norm: layer-norm, rms-norm or none
    #[arg(long, value_name = "NAME", help_heading = MODEL)]
    pub norm: Option<NormKind>,

    /// Feed-forward layer: gelu, gelu-tanh, relu, relu-squared, swiglu, geglu or reglu
    #[arg(long, value_name = "NAME", help_heading = MODEL)]
    pub mlp: Option<MlpKind>,

    /// Positions: learned, sinusoidal, rope, alibi, t5 or none [default: learned, or none if the
    /// attention variant encodes positions itself]
    #[arg(long, value_name = "NAME", help_heading = MODEL)]
    pub positions: Option<Positions>,

    /// The precision of matrix multiplication: f32, bf16x6, bf16x3 or bf16, from exact to fast, on
    /// CPUs with AMX (results then depend on whether the CPU has AMX)
    #[arg(long, value_name = "NAME", help_heading = RECIPE)]
    pub precision: Option<MatmulPrecision>,

    /// Number of threads, of each rank; results do not depend on it [default: one per core, divided among
    /// the ranks of a machine]
    #[arg(long, value_name = "N", value_parser = count(1024), help_heading = RUN)]
    pub threads: Option<u64>,

    /// Add the gradients of ranks by the all-reduce of MPI, in an order that it chooses: the weights then
    /// depend on the number of ranks
    #[arg(long, help_heading = RUN)]
    pub all_reduce: bool,

    /// Steps between evaluations on held-out text; each also writes a checkpoint [default: an
    /// eighth of the run, at most 250]
    #[arg(long, value_name = "N", value_parser = count(100_000_000), help_heading = RUN)]
    pub eval_every: Option<u64>,

    /// The folder of the run [default: out/next_token, or the next free out/next_token-N]
    #[arg(long, value_name = "DIR", help_heading = RUN)]
    pub out: Option<PathBuf>,

    /// Resume the run in --out [default: the latest out/next_token..]; of its hyperparameters and text
    /// only --steps can be changed. The learning rate is then, from the next step on, that of a run of
    /// so many steps: after more steps it rises again, and the run differs from one that had so many
    /// steps from the beginning
    #[arg(long, help_heading = RUN)]
    pub resume: bool,

    /// Start from the weights of another run, its folder or one of its checkpoints, to fine-tune them on
    /// --data. Its tokenizer, model and hyperparameters are used, but for flags of training; the steps,
    /// the schedule and the optimiser begin anew
    #[arg(long, value_name = "RUN", help_heading = RUN, conflicts_with = "resume")]
    pub init_from: Option<PathBuf>,

    /// Also keep the checkpoints of the last N evaluations, as checkpoint-STEP.safetensors. The last
    /// and the best one, by the held-out loss of the curve, are always kept
    #[arg(long, value_name = "N", value_parser = count(1_000_000), help_heading = RUN)]
    pub keep: Option<u64>,

    /// Train a run for each combination of these flags' values, as --grid lr=1e-3,4e-3 seed=1,2,3, in folders of
    /// --out [default: out/grid], and print a table. Under mpiexec, each rank trains whole runs. Finished runs
    /// are not repeated, interrupted ones are resumed
    #[arg(long, value_name = "FLAG=VALUES", num_args = 1.., help_heading = RUN)]
    #[arg(conflicts_with_all = ["resume", "sample", "evaluate"])]
    pub grid: Vec<String>,

    /// Do not train: report loss, bits per byte, perplexity and accuracy of the model in --out [default:
    /// the latest out/next_token..] on the whole held-out part of its text, or of --data
    #[arg(long, help_heading = RUN)]
    #[arg(conflicts_with_all = ["sample", "preset", "steps", "batch", "context", "layers", "heads"])]
    #[arg(conflicts_with_all = ["attention", "key_heads", "qk_norm", "norm", "mlp", "positions", "optimizer", "schedule"])]
    #[arg(conflicts_with_all = ["width", "dropout", "lr", "precision", "eval_every", "resume", "tokenizer"])]
    #[arg(conflicts_with_all = ["init_from", "keep", "seed", "tokens", "stop", "shards", "all_reduce"])]
    pub evaluate: bool,

    /// Do not train: write a page that compares the runs in these folders, to the file --out [default:
    /// out/compare.html]
    #[arg(long, value_name = "RUN", num_args = 1.., help_heading = RUN)]
    #[arg(conflicts_with_all = ["resume", "sample", "evaluate", "grid", "scaling", "xray", "init_from", "keep", "no_page"])]
    #[arg(conflicts_with_all = ["data", "preset", "steps", "batch", "context", "layers", "heads", "width", "tokenizer"])]
    #[arg(conflicts_with_all = ["eval_every", "lr", "dropout", "seed", "tokens", "stop", "shards", "all_reduce"])]
    pub compare: Vec<PathBuf>,

    /// Also record steps, without taking them: a page in the folder of the run that shows the forward and the
    /// backward pass, event by event, with values. STEPS are numbers of steps taken before, as 0,100, up to --steps
    /// [default: the first step, and the one after the last]
    #[arg(long, value_name = "STEPS", num_args = 0..=1, value_delimiter = ',', help_heading = RUN)]
    #[arg(conflicts_with_all = ["sample", "evaluate", "scaling", "grid"])]
    pub xray: Option<Vec<u64>>,

    /// With --xray: compare N elements of the gradient of each parameter with central differences of the loss. Each
    /// takes the time of about ten steps
    #[arg(long, value_name = "N", help_heading = RUN, requires = "xray", default_value_t = 0)]
    pub xray_check: usize,

    /// Also write a page that shows the attention of every head within a sentence of the held-out text, at
    /// several evaluations of the training; with --sample, within the sample
    #[arg(long, value_name = "FILE", help_heading = RUN)]
    #[arg(conflicts_with_all = ["evaluate", "scaling", "grid"])]
    pub attention_page: Option<PathBuf>,

    /// Do not train: record a step on one thread, predict its time on 1 to 64 cores, and list where most
    /// cores would be idle (docs/SCALING.md)
    #[arg(long, help_heading = RUN)]
    #[arg(conflicts_with_all = ["sample", "evaluate", "resume", "out", "keep", "eval_every", "tokens", "stop"])]
    pub scaling: bool,

    /// The checkpoint of --sample or --evaluate: last, best, or the step of one kept by --keep
    #[arg(long, value_name = "NAME", default_value = "last", hide_default_value = true)]
    #[arg(help_heading = RUN)]
    pub checkpoint: Which,

    /// Do not write the page of the run, run.html, nor looks.jsonl, which it is made from: there is then
    /// no picture of the loss
    #[arg(long, help_heading = RUN)]
    #[arg(conflicts_with_all = ["sample", "evaluate", "scaling"])]
    pub no_page: bool,

    /// Print only the result
    #[arg(long, help_heading = RUN)]
    pub quiet: bool,

    /// Do not train: continue this text with the model in --out [default: the latest
    /// out/next_token..]
    #[arg(long, value_name = "PROMPT", help_heading = SAMPLES)]
    #[arg(conflicts_with_all = ["data", "preset", "steps", "batch", "context", "layers", "heads"])]
    #[arg(conflicts_with_all = ["attention", "key_heads", "qk_norm", "norm", "mlp", "positions", "optimizer", "schedule"])]
    #[arg(conflicts_with_all = ["momentum", "weight_decay", "adam_lr"])]
    #[arg(conflicts_with_all = ["width", "dropout", "lr", "precision", "eval_every", "resume", "tokenizer"])]
    #[arg(conflicts_with_all = ["init_from", "keep", "shards", "all_reduce"])]
    pub sample: Option<String>,

    /// Number of tokens to generate [default: 500; 300 in the samples after training]
    #[arg(long, value_name = "N", value_parser = count(100_000_000), help_heading = SAMPLES)]
    pub tokens: Option<u64>,

    /// Sampling temperature; 0 is greedy decoding
    #[arg(long, value_name = "T", default_value_t = 0.8, value_parser = at_least_0)]
    #[arg(help_heading = SAMPLES)]
    pub temperature: f64,

    /// Sample from the K most probable tokens only
    #[arg(long, value_name = "K", value_parser = count(1_000_000), help_heading = SAMPLES)]
    pub top_k: Option<u64>,

    /// Sample from the most probable tokens only, as many as are needed for probability P
    #[arg(long, value_name = "P", value_parser = above_0_up_to_1, help_heading = SAMPLES)]
    pub top_p: Option<f64>,

    /// Sample only tokens that are at least P times as probable as the most probable one
    #[arg(long, value_name = "P", value_parser = above_0_up_to_1, help_heading = SAMPLES)]
    pub min_p: Option<f64>,

    /// Divide positive logits of tokens that occurred by this number, and multiply negative ones by
    /// it; 1 has no effect
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = above_0)]
    #[arg(help_heading = SAMPLES)]
    pub repetition_penalty: f64,

    /// End a sample before this text; may be given several times
    #[arg(long, value_name = "TEXT", help_heading = SAMPLES)]
    pub stop: Vec<String>,
}

const RECIPE: &str = "Hyperparameters (override the preset)";
const MODEL: &str = "Parts of the model (override the preset)";
const RUN: &str = "The run";
const SAMPLES: &str = "Samples";

/// Makes `--lr -1` an invalid value instead of an unknown flag.
fn negative_numbers_are_values(arg: Arg) -> Arg {
    let takes_value = arg.get_action().takes_values();
    arg.allow_negative_numbers(takes_value)
}

fn count(most: i64) -> RangedI64ValueParser<u64> {
    RangedI64ValueParser::new().range(1..=most)
}

fn number(text: &str) -> std::result::Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    if number.is_finite() { Ok(number) } else { Err("must be finite".into()) }
}

fn above_0(text: &str) -> std::result::Result<f64, String> {
    number(text).and_then(|x| if x > 0.0 { Ok(x) } else { Err("must be above 0".into()) })
}

fn above_0_up_to_1(text: &str) -> std::result::Result<f64, String> {
    let inside = |x: &f64| *x > 0.0 && *x <= 1.0;
    let wrong = || "must be above 0 and at most 1".to_string();
    number(text).and_then(|x| Some(x).filter(inside).ok_or_else(wrong))
}

fn at_least_0(text: &str) -> std::result::Result<f64, String> {
    number(text).and_then(|x| if x >= 0.0 { Ok(x) } else { Err("must be at least 0".into()) })
}

fn probability(text: &str) -> std::result::Result<f64, String> {
    let inside = |x: &f64| (0.0..1.0).contains(x);
    let wrong = || "must be at least 0 and below 1".to_string();
    number(text).and_then(|x| Some(x).filter(inside).ok_or_else(wrong))
}

/// An attention variant, or the request to list them.
#[derive(Clone, Copy, Debug)]
pub enum Choice {
    List,
    Attention(AttentionKind),
}

impl FromStr for Choice {
    type Err = ConfigError;

    fn from_str(name: &str) -> std::result::Result<Self, ConfigError> {
        match name {
            "list" => Ok(Choice::List),
            name => name.parse().map(Choice::Attention),
        }
    }
}

impl Args {
    /// Prints the attention variants, if that was requested.
    pub fn list_attention(&self) -> bool {
        if !matches!(self.attention, Some(Choice::List)) {
            return false;
        }
        for kind in AttentionKind::ALL {
            say!("{:<16} {}", kind.name(), kind.summary());
        }
        true
    }

    /// The requested recipe: that of the preset, else `base`, with the flags applied.
    pub fn recipe(&self, base: &Recipe) -> Recipe {
        let (seed, precision) = (base.seed, base.precision);
        let base = self.preset.map_or_else(|| base.clone(), Preset::recipe);
        let attention = match self.attention {
            Some(Choice::Attention(kind)) => Some(kind),
            _ => None,
        };
        // The positions of the preset, unless the attention variant encodes positions itself.
        let positions = match attention {
            Some(kind) if kind.has_positions() => Positions::None,
            _ => base.positions,
        };
        let size = |flag: Option<u64>, base: usize| flag.map_or(base, |n| n as usize);
        Recipe {
            tokenizer: self.tokenizer.clone().unwrap_or(base.tokenizer),
            layers: size(self.layers, base.layers),
            heads: size(self.heads, base.heads),
            width: size(self.width, base.width),
            context: size(self.context, base.context),
            dropout: self.dropout.unwrap_or(base.dropout),
            attention: attention.unwrap_or(base.attention),
            key_heads: self.key_heads.map(|n| n as usize).or(base.key_heads),
            qk_norm: self.qk_norm.unwrap_or(base.qk_norm),
            norm: self.norm.unwrap_or(base.norm),
            mlp: self.mlp.unwrap_or(base.mlp),
            positions: self.positions.unwrap_or(positions),
            optimizer: self.optimizer.unwrap_or(base.optimizer),
            schedule: self.schedule.unwrap_or(base.schedule),
            momentum: self.momentum.or(base.momentum),
            weight_decay: self.weight_decay.or(base.weight_decay),
            adam_lr: self.adam_lr.or(base.adam_lr),
            batch: size(self.batch, base.batch),
            shards: self.shards.map(|n| n as usize).or(base.shards),
            steps: self.steps.unwrap_or(base.steps),
            lr: self.lr.unwrap_or(base.lr),
            // No part of a preset: resuming with `--preset` alone is not a change.
            seed: self.seed.unwrap_or(seed),
            precision: self.precision.unwrap_or(precision),
        }
    }

    /// The sampling parameters.
    pub fn sampler(&self) -> Sampler {
        Sampler {
            repetition_penalty: self.repetition_penalty,
            temperature: self.temperature,
            top_k: self.top_k.map(|k| k as usize),
            top_p: self.top_p,
            min_p: self.min_p,
        }
    }

    /// Checks what the parser cannot check for one flag alone.
    pub fn check(&self) -> Result<()> {
        if self.sample.as_deref() == Some("") {
            return usage("the prompt of --sample is empty: give it at least one character");
        }
        if self.checkpoint != Which::Last && self.sample.is_none() && !self.evaluate {
            return usage(
                "--checkpoint is for --sample and --evaluate; --init-from takes a file, too",
            );
        }
        if self.stop.iter().any(String::is_empty) {
            return usage("the text of --stop is empty: give it at least one character");
        }
        Ok(())
    }
}

/// An argument quoted for a shell.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:".contains(c);
    if text.chars().all(plain) { text.into() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
