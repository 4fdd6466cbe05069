//! The command line: the commands, and the flags that several of them share.

use crate::arena::Arena;
use crate::attention::Attention;
use crate::checkpoints::Which;
use crate::compare::Compare;
use crate::evaluate::Evaluate;
use crate::grid::Grid;
use crate::output::say;
use crate::recipe_flags::RecipeFlags;
use crate::resume::Resume;
use crate::sample::Sample;
use crate::scaling::Scaling;
use crate::stop::{Result, usage};
use crate::tokenizer::TokenizerKind;
use crate::train::Train;
use crate::values::{above_0, above_0_up_to_1, at_least_0, count};
use crate::xray::Xray;
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use retrograd::nn::{AttentionKind, Sampler};
use std::ffi::OsString;
use std::path::PathBuf;

/// Trains small language models on the CPU, and shows what happens in them.
#[derive(Parser, Debug)]
#[command(name = "retrograd", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Number of threads, of each process; results do not depend on it [default: one per core]
    ///
    /// Under mpiexec, the cores of a machine are divided among its ranks.
    #[arg(long, global = true, value_name = "N", value_parser = count(1024), help_heading = RUN)]
    #[arg(hide_short_help = true)]
    pub threads: Option<u64>,

    /// Print only the result
    #[arg(long, global = true, help_heading = RUN, hide_short_help = true)]
    pub quiet: bool,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    Train(Train),
    Resume(Resume),
    Sample(Sample),
    Evaluate(Evaluate),
    Xray(Xray),
    Attention(Attention),
    Compare(Compare),
    Grid(Grid),
    Scaling(Scaling),
    Arena(Arena),
}

/// The flags that `-h` shows, besides those without a heading; `--help` shows all.
const USUAL: [&str; 8] =
    ["steps", "batch", "context", "layers", "heads", "width", "lr", "attention"];

impl Cli {
    /// # Errors
    /// The errors of clap, and requests for help, which are no errors.
    pub fn read(line: &[OsString]) -> std::result::Result<Cli, clap::Error> {
        let adapt = |arg: Arg| {
            let has_heading = arg.get_help_heading().is_some();
            let is_usual = !has_heading || USUAL.contains(&arg.get_id().as_str());
            // `--lr -1` is an invalid value, not an unknown flag.
            let takes_value = arg.get_action().takes_values();
            arg.hide_short_help(!is_usual).allow_negative_numbers(takes_value)
        };
        let cli = Cli::command().mut_subcommands(|c| c.mut_args(adapt));
        Cli::from_arg_matches(&cli.try_get_matches_from(line)?)
    }
}

/// What `retrograd` alone prints.
pub fn introduce() {
    let program = program();
    say!(
        "retrograd trains small language models on the CPU, and shows what happens in them.

    {program} train --data FILE            train on a text, print samples, write a page of the run
    {program} sample 'Once upon a time'    continue a text with the latest run
    {program} resume                       go on with the latest run, if it was stopped

Without --data, it trains on a generated text for about a minute and a half.
Further commands: evaluate, xray, attention, compare, grid, scaling, arena.
`{program} --help` says what they do, `{program} train --help` has all options of one."
    );
}

/// The model of a command that does not train.
#[derive(Args, Clone, Debug)]
pub struct ModelFlags {
    /// The run, or a folder of Hugging Face [default: the latest out/run..]
    ///
    /// A folder of Hugging Face has a config.json of GPT-2 or Llama, model.safetensors and tokenizer.json.
    #[arg(long, visible_alias = "model", value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// The checkpoint of the run: last, best, or the step of one kept by --keep
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

    #[command(flatten)]
    pub recipe: RecipeFlags,
}

/// How a run is trained: flags on which its weights do not depend.
#[derive(Args, Clone, Debug)]
pub struct RunFlags {
    /// Steps between evaluations; each writes a checkpoint [default: an eighth, at most 250]
    #[arg(long, value_name = "N", value_parser = count(100_000_000), help_heading = RUN)]
    pub eval_every: Option<u64>,

    /// Also keep the checkpoints of the last N evaluations, as checkpoint-STEP.safetensors
    ///
    /// The last and the best one, by the held-out loss of the curve, are always kept.
    #[arg(long, value_name = "N", value_parser = count(1_000_000), help_heading = RUN)]
    pub keep: Option<u64>,

    /// Add the gradients of ranks by the all-reduce of MPI, in an order that it chooses
    ///
    /// The weights then depend on the number of ranks.
    #[arg(long, help_heading = RUN)]
    pub all_reduce: bool,

    /// Do not write the page of the run, run.html, nor looks.jsonl, which it is made from
    #[arg(long, help_heading = RUN)]
    pub no_page: bool,

    /// Tokens of each sample after training
    #[arg(long, value_name = "N", value_parser = count(100_000_000), default_value_t = 300)]
    #[arg(help_heading = SAMPLES)]
    pub tokens: u64,

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
    #[arg(long, value_name = "K", value_parser = count(1_000_000))]
    top_k: Option<u64>,

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
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
}

pub const RUN: &str = "The run";
pub const SAMPLES: &str = "Samples";

impl Sampling {
    pub fn sampler(&self) -> Sampler {
        Sampler {
            repetition_penalty: self.repetition_penalty,
            temperature: self.temperature,
            top_k: self.top_k.map(|k| k as usize),
            top_p: self.top_p,
            min_p: self.min_p,
        }
    }

    /// Checks what the parser cannot check.
    pub fn check(&self) -> Result<()> {
        match self.stop.iter().any(String::is_empty) {
            true => usage("the text of --stop is empty: give it at least one character"),
            false => Ok(()),
        }
    }
}

impl Command {
    /// Whether the attention variants are to be listed instead.
    pub fn lists_attention(&self) -> bool {
        let recipe = match self {
            Command::Train(args) => &args.new.recipe,
            Command::Grid(args) => &args.new.recipe,
            Command::Scaling(args) => &args.new.recipe,
            _ => return false,
        };
        recipe.attention.is_some_and(|attention| attention.0.is_none())
    }
}

/// Prints the attention variants.
pub fn list_attention() {
    for kind in AttentionKind::ALL {
        say!("{:<16} {}", kind.name(), kind.summary());
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
