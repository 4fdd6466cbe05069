//! Text that continues a prompt: `sample`.

use crate::attention_page;
use crate::cli::{ModelFlags, Sampling};
use crate::run::Run;
use crate::samples;
use crate::stop::{Result, usage};
use crate::values::count;
use clap::Args;
use retrograd::nn::training::Purpose;
use retrograd::prelude::*;
use std::path::PathBuf;

/// Continue a text with a trained model
#[derive(Args, Debug)]
pub struct Sample {
    /// The text to continue
    prompt: String,

    #[command(flatten)]
    pub model: ModelFlags,

    /// Number of tokens to generate
    #[arg(long, value_name = "N", value_parser = count(100_000_000), default_value_t = 500)]
    tokens: u64,

    /// Seed [default: that of the run]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Also write a page that shows the attention of every head within the sample
    #[arg(long, value_name = "FILE")]
    attention_page: Option<PathBuf>,

    #[command(flatten)]
    sampling: Sampling,
}

/// Prints the prompt and its continuation.
pub fn sample(args: &Sample, quiet: bool) -> Result<()> {
    if args.prompt.is_empty() {
        return usage("the prompt is empty: give it at least one character");
    }
    args.sampling.check()?;
    let ModelFlags { out, checkpoint, tokenizer } = &args.model;
    let run = Run::of_folder(out.as_deref(), *checkpoint, tokenizer.as_ref())?;
    let seed = args.seed.unwrap_or_else(|| Purpose::Samples.seed(run.recipe.seed));
    with_matmul_precision(run.recipe.precision, || {
        let rng = &mut Rng::new(seed);
        let sample =
            samples::print_sample(&run, &args.prompt, args.tokens, &args.sampling, rng, || {})?;
        if !quiet {
            sample.speed.note();
        }
        match &args.attention_page {
            Some(path) => attention_page::of_sample(&run, sample.prompt, &sample.tokens, path),
            None => Ok(()),
        }
    })
}
