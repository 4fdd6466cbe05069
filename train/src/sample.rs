//! Text that continues a prompt: `sample`, and samples after training.

use crate::attention;
use crate::flags::{ModelFlags, Sampling};
use crate::output::{self, note, print, say};
use crate::run::Run;
use crate::stop::{Result, usage};
use crate::text::first_words;
use crate::values::size;
use clap::Args;
use indicatif::HumanCount;
use retrograd::nn::training::Purpose;
use retrograd::nn::until;
use retrograd::prelude::*;
use std::path::PathBuf;
use std::time::Instant;

/// Continue a text with a trained model
#[derive(Args, Debug)]
pub struct Sample {
    /// The text to continue
    prompt: String,

    #[command(flatten)]
    pub model: ModelFlags,

    /// Number of tokens to generate
    #[arg(long, value_name = "N", value_parser = size(100_000_000), default_value_t = 500)]
    tokens: usize,

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
    let run = Run::of_folder(&args.model)?;
    let seed = args.seed.unwrap_or_else(|| Purpose::Samples.seed(run.recipe.seed));
    with_matmul_precision(run.recipe.precision, || {
        let rng = &mut Rng::new(seed);
        let printed = print_sample(&run, &args.prompt, args.tokens, &args.sampling, rng, || false)?;
        if !quiet {
            note_speed(std::slice::from_ref(&printed));
        }
        match &args.attention_page {
            Some(path) => {
                attention::of_sample(&run, run.step, printed.prompt, &printed.tokens, path)
            }
            None => Ok(()),
        }
    })
}

/// The prompts of the samples after training on the default text.
const TALES: [&str; 3] = ["Once upon a time", "\"Good morning,\" said the fox", "THE LOST"];

/// The prompts of the samples after training: for a text of the user, the first words of some of
/// its paragraphs.
pub fn prompts(run: &Run, beginnings: &[String]) -> Vec<String> {
    if run.source.as_ref().is_some_and(|source| source.file.is_none()) {
        return TALES.map(str::to_string).to_vec();
    }
    let some = (0..3).map(|i| &beginnings[i * beginnings.len() / 3]);
    let lines =
        some.map(|text| text.lines().next().filter(|line| !line.is_empty()).unwrap_or(text));
    let mut prompts: Vec<String> = lines.map(|line| first_words(line, 20)).collect();
    prompts.dedup();
    prompts
}

/// A sample that was printed.
pub struct Printed {
    /// The prompt and its continuation, as tokens.
    pub tokens: Vec<i64>,
    /// The number of tokens of the prompt.
    pub prompt: usize,
    /// The time in which the others were generated.
    seconds: f64,
}

/// Prints the tokens per second of some samples.
pub fn note_speed(samples: &[Printed]) {
    let tokens: usize = samples.iter().map(|sample| sample.tokens.len() - sample.prompt).sum();
    let seconds: f64 = samples.iter().map(|sample| sample.seconds).sum();
    if tokens > 0 {
        let rate = (tokens as f64 / seconds.max(1e-9)).round() as u64;
        note!("Sampled {tokens} tokens, {} per second", HumanCount(rate));
    }
}

/// Prints the prompt and its continuation by the model, `count` tokens or up to a text of `--stop`.
/// It ends early if `stops` is true after a token.
pub fn print_sample(
    run: &Run,
    prompt: &str,
    count: usize,
    args: &Sampling,
    rng: &mut Rng,
    stops: fn() -> bool,
) -> Result<Printed> {
    let tokens = run.encode(prompt)?;
    let mut all = tokens.clone();
    print(format_args!("{prompt}"));
    let begin = Instant::now();
    let generated = run.model.generate(&tokens, args.sampler(), rng).take(count);
    let mut stream = Some(run.tokenizer.decode_stream_after(&tokens));
    // At the end, what is left of an incomplete character.
    let texts = generated.inspect(|&token| all.push(token)).map(Some).chain([None]);
    let texts = texts.map(|token| match (token, &mut stream) {
        (Some(token), Some(stream)) => stream.step(token),
        _ => stream.take().map_or_else(String::new, |stream| stream.finish()),
    });
    for text in until(texts, args.stop.iter().cloned()) {
        print(format_args!("{text}"));
        if !output::is_open() {
            // Samples are the last output.
            output::leave();
        }
        if stops() {
            break;
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    say!("");
    Ok(Printed { tokens: all, prompt: tokens.len(), seconds })
}
