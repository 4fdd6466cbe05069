//! Flags that several commands share.

use crate::checkpoints::Which;
use crate::presets::Preset;
use crate::recipe::{HYPERPARAMETERS, Recipe};
use crate::tokenizer::TokenizerKind;
use crate::values::{Pattern, above_0, above_0_up_to_1, at_least_0, bytes, count, size};
use clap::builder::NonEmptyStringValueParser;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use retrograd::nn::{Positions, Sampler};
use std::path::PathBuf;

/// The model of a command that does not train.
#[derive(Args, Clone, Debug)]
pub struct ModelFlags {
    /// The run, or a folder of Hugging Face [default: the latest out/run..]
    ///
    /// A folder of Hugging Face has a config.json of GPT-2 or Llama, model.safetensors and tokenizer.json.
    #[arg(long, visible_alias = "model", value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// The checkpoint of the run: last, best, or the step of one that was kept
    #[arg(long, value_name = "NAME", default_value = "last")]
    pub checkpoint: Which,

    /// The tokenizer of a folder without tokenizer.json: byte, or a file
    #[arg(long, value_name = "NAME")]
    pub tokenizer: Option<TokenizerKind>,
}

/// A new run: its text, its first weights, and its recipe.
#[derive(Args, Clone, Debug)]
pub struct NewRun {
    /// Training text in UTF-8, a file or a folder [default: generated tales]
    ///
    /// The files of a folder are documents, in the order of their paths. The last tenth of the characters is held
    /// out.
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,

    /// Start from the weights of a run, a checkpoint, or a folder of Hugging Face
    ///
    /// Fine-tunes them on --data. The tokenizer, the model and the hyperparameters are those of the weights, except
    /// for flags of training; the steps, the schedule and the optimiser begin anew. A folder of Hugging Face has a
    /// config.json of GPT-2 or Llama, and model.safetensors.
    #[arg(long, value_name = "RUN")]
    pub init_from: Option<PathBuf>,

    /// Named set of hyperparameters [default: tales]
    ///
    /// The other flags override parts of it.
    #[arg(long, value_enum, value_name = "NAME")]
    pub preset: Option<Preset>,

    /// End the training after M minutes, instead of a number of steps
    ///
    /// The learning rate follows the share of the time that was used, and is in the log. Evaluations during training,
    /// checkpoints and the page use time, too. The evaluation on all of the held-out text, and samples, come after
    /// it.
    #[arg(long, value_name = "M", value_parser = above_0, conflicts_with_all = ["steps", "budget"])]
    #[arg(help_heading = HYPERPARAMETERS)]
    pub minutes: Option<f64>,

    /// Train as many steps as take FLOPS floating-point operations, such as 2e15
    ///
    /// Those of matrix products in the forward and the backward pass: the same number of steps on every machine.
    #[arg(long, value_name = "FLOPS", value_parser = above_0, conflicts_with = "steps")]
    #[arg(help_heading = HYPERPARAMETERS)]
    pub budget: Option<f64>,

    /// The run whose initial weights this one shares, where name and shape agree.
    #[arg(skip)]
    pub base: Option<Box<NewRun>>,

    #[command(flatten)]
    given: RecipeFlags,
}

/// The flags of a [`Recipe`] that were given.
#[derive(Clone, Debug)]
struct RecipeFlags(ArgMatches);

impl Args for RecipeFlags {
    fn augment_args(command: Command) -> Command {
        Recipe::augment_args_for_update(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Recipe::augment_args_for_update(command)
    }
}

impl FromArgMatches for RecipeFlags {
    fn from_arg_matches(given: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(RecipeFlags(given.clone()))
    }

    fn update_from_arg_matches(&mut self, given: &ArgMatches) -> Result<(), clap::Error> {
        self.0.clone_from(given);
        Ok(())
    }
}

impl NewRun {
    /// The requested recipe: that of the preset, else `base`, with the flags applied.
    pub fn recipe(&self, base: &Recipe) -> Recipe {
        let mut recipe = self.preset.map_or_else(|| base.clone(), Preset::recipe);
        // No parts of a preset: resuming with `--preset` alone is not a change.
        (recipe.seed, recipe.precision) = (base.seed, base.precision);
        // The positions and the QK-norm of the preset, unless the attention has positions or projections of its own.
        let pattern = self.given::<Pattern>("pattern").map(|Pattern(kinds)| &kinds[..]);
        let kinds = pattern.filter(|kinds| !kinds.is_empty());
        let kinds = kinds.or(self.given("attention").map(std::slice::from_ref)).unwrap_or_default();
        if !kinds.is_empty() && kinds.iter().all(|kind| kind.has_positions()) {
            recipe.positions = Positions::None;
        }
        recipe.qk_norm &= kinds.is_empty() || kinds.iter().any(|kind| kind.has_qk_norm());
        recipe.update_from_arg_matches(&self.given.0).expect("no flag is required");
        recipe
    }

    /// The value of a flag of the recipe, if it was given.
    pub fn given<T: Clone + Send + Sync + 'static>(&self, flag: &str) -> Option<&T> {
        self.given.0.get_one(flag)
    }
}

/// How a run is trained: flags on which its weights do not depend.
#[derive(Args, Clone, Debug)]
pub struct RunFlags {
    /// Steps between evaluations; each writes a checkpoint [default: an eighth, at most 250]
    #[arg(long, value_name = "N", value_parser = count(100_000_000), help_heading = RUN)]
    pub eval_every: Option<u64>,

    /// Keep the checkpoint of every N-th step, as checkpoint-STEP.safetensors [default: of evaluations]
    ///
    /// The last and the best one, by the held-out loss of the curve, are always kept.
    #[arg(long, value_name = "N", value_parser = count(100_000_000), help_heading = RUN)]
    pub keep_every: Option<u64>,

    /// Thin these checkpoints evenly, so that all fit into SIZE; none, if not one fits [default: 200MB]
    ///
    /// Commands that train several runs keep none by default.
    #[arg(long, value_name = "SIZE", value_parser = bytes, help_heading = RUN)]
    pub keep_size: Option<u64>,

    /// Add the gradients of ranks by the all-reduce of MPI, in an order that it chooses
    ///
    /// The weights then depend on the number of ranks.
    #[arg(long, help_heading = RUN)]
    pub all_reduce: bool,

    /// Recompute as many blocks in the backward pass as a step needs to fit into SIZE, such as 500MB or 1.5GiB
    ///
    /// The program computes a step first, prints what to expect, and at the end what was measured. Results do not
    /// change. SIZE is that of tensors; the program itself takes some more.
    #[arg(long, value_name = "SIZE", value_parser = bytes, help_heading = RUN)]
    pub memory: Option<u64>,

    /// Do not write the page of the run, run.html, nor looks.jsonl, which it is made from
    #[arg(long, help_heading = RUN)]
    pub no_page: bool,

    /// Tokens of each sample after training
    #[arg(long, value_name = "N", value_parser = size(100_000_000), default_value_t = 300)]
    #[arg(help_heading = SAMPLES)]
    pub tokens: usize,

    #[command(flatten)]
    pub sampling: Sampling,
}

/// How tokens are chosen.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = SAMPLES)]
pub struct Sampling {
    /// Sampling temperature; 0 is greedy decoding
    #[arg(long, value_name = "T", default_value_t = 0.8, value_parser = at_least_0)]
    temperature: f64,

    /// Sample from the K most probable tokens only
    #[arg(long, value_name = "K", value_parser = size(1_000_000))]
    top_k: Option<usize>,

    /// Sample from the most probable tokens only, as many as are needed for probability P
    #[arg(long, value_name = "P", value_parser = above_0_up_to_1)]
    top_p: Option<f64>,

    /// Sample only tokens that are at least P times as probable as the most probable one
    #[arg(long, value_name = "P", value_parser = above_0_up_to_1)]
    min_p: Option<f64>,

    /// Divide positive logits of tokens that occurred by X, multiply negative ones; 1 has no effect
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = above_0)]
    repetition_penalty: f64,

    /// End a sample before this text; may be given several times
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub stop: Vec<String>,
}

pub const RUN: &str = "The run";
pub const SAMPLES: &str = "Samples";

impl Sampling {
    pub fn sampler(&self) -> Sampler {
        let Sampling { repetition_penalty, temperature, top_k, top_p, min_p, .. } = *self;
        Sampler { repetition_penalty, temperature, top_k, top_p, min_p }
    }
}

/// The program as it was called, for commands in messages.
pub fn program() -> String {
    quoted(&std::env::args().next().unwrap_or_else(|| "retrograd".into()))
}

/// An argument quoted for a shell.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:".contains(c);
    if text.chars().all(plain) { text.into() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
