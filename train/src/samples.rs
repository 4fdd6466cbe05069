//! Samples from the model.

use crate::cli::Args;
use crate::output::{self, note, print, say};
use crate::run::Run;
use crate::stop::Result;
use indicatif::HumanCount;
use retrograd::nn::until;
use retrograd::prelude::*;
use std::time::Instant;

/// The prompts of the samples after training on the default text.
const TALES: [&str; 3] = ["Once upon a time", "\"Good morning,\" said the fox", "THE LOST"];

/// The prompts of the samples after training: for a text of the user, the first words of some of
/// its paragraphs.
pub fn prompts(run: &Run, beginnings: &[String]) -> Vec<String> {
    if run.source.file.is_none() {
        return TALES.map(str::to_string).to_vec();
    }
    let some = (0..3).map(|i| &beginnings[i * beginnings.len() / 3]);
    let lines =
        some.map(|text| text.lines().next().filter(|line| !line.is_empty()).unwrap_or(text));
    let mut prompts: Vec<String> = lines.map(|line| first_words(line, 20)).collect();
    prompts.dedup();
    prompts
}

/// As many whole words of a text as fit into `most` characters; if there is none, `most` characters.
pub fn first_words(text: &str, most: usize) -> String {
    let line: Vec<char> = text.chars().map(|c| if c == '\n' { ' ' } else { c }).collect();
    if line.len() <= most {
        return text.to_string();
    }
    let end = (1..=most).rev().find(|&i| line[i] == ' ').unwrap_or(most);
    text.chars().take(end).collect()
}

/// The number of tokens that were generated, and the time that this took.
#[derive(Clone, Copy, Default)]
pub struct Speed {
    tokens: usize,
    seconds: f64,
}

impl Speed {
    pub fn add(&mut self, other: Speed) {
        self.tokens += other.tokens;
        self.seconds += other.seconds;
    }

    /// Prints the tokens per second.
    pub fn note(self) {
        if self.tokens > 0 {
            let rate = (self.tokens as f64 / self.seconds.max(1e-9)).round() as u64;
            note!("Sampled {} tokens, {} per second", self.tokens, HumanCount(rate));
        }
    }
}

/// A sample that was printed.
pub struct Sample {
    /// The prompt and its continuation, as tokens.
    pub tokens: Vec<i64>,
    /// The number of tokens of the prompt.
    pub prompt: usize,
    pub speed: Speed,
}

/// Prints the prompt and its continuation by the model, `count` tokens or up to a text of `--stop`.
/// `each` is called after each token.
pub fn print_sample<O>(
    run: &Run<O>,
    prompt: &str,
    count: usize,
    args: &Args,
    rng: &mut Rng,
    each: impl Fn(),
) -> Result<Sample> {
    let tokens = run.encode(prompt)?;
    let mut all = tokens.clone();
    print(format_args!("{prompt}"));
    let mut speed = Speed::default();
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
        each();
    }
    speed.seconds = begin.elapsed().as_secs_f64();
    speed.tokens = all.len() - tokens.len();
    say!("");
    Ok(Sample { tokens: all, prompt: tokens.len(), speed })
}

/// Characters of the sentence whose attention weights are shown, and the most tokens of it.
const SENTENCE: usize = 36;

/// The first tokens of a sentence, as many as are shown.
pub fn sentence_tokens(run: &Run, sentence: &str) -> Result<Vec<i64>> {
    let most = SENTENCE.min(run.recipe.context);
    let mut tokens = run.encode(&first_words(sentence, most))?;
    tokens.truncate(most);
    Ok(tokens)
}
