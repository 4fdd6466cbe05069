//! Samples from the model.

use crate::output::{self, print, say};
use crate::run::Run;
use crate::stop::Result;
use retrograd::nn::Sampler;
use retrograd::prelude::*;

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

/// Prints the prompt and its continuation by the model, character by character; `each` is called
/// after each one.
pub fn print_sample<O>(
    run: &Run<O>,
    prompt: &str,
    count: usize,
    sampler: Sampler,
    rng: &mut Rng,
    each: impl Fn(),
) -> Result<()> {
    let tokens = run.encode(prompt)?;
    print(format_args!("{prompt}"));
    run.model.generate(&tokens, count, sampler, rng, |token| {
        print(format_args!("{}", run.vocabulary.decode(token)));
        if !output::is_open() {
            // Samples are the last output, and `generate` does not stop early.
            output::leave();
        }
        each();
    });
    say!("");
    Ok(())
}
