//! What the page of a run says about the run and its machine.

use super::measure::{Limit, flops, maps};
use crate::facts::{facts, processes};
use crate::looks::{self, Start};
use crate::presets::Preset;
use crate::sample::prompts;
use crate::session::Session;
use crate::watch::Parts;
use retrograd::prelude::*;
use retrograd::study::Baselines;
use retrograd::study::load::Others;

/// The most tokens of the sentence whose attention weights are shown.
const SENTENCE: usize = 36;

/// What is said of a peak that other processes have disturbed.
fn disturbance(others: Others) -> String {
    match others.disturb() {
        true => format!("; {others} meanwhile, so it may be too low, and MFU too high"),
        false => String::new(),
    }
}

/// What the page says about a run and its machine, with the tokens of the sentence and of the prompt. The
/// sentence and the prompt are those of the first start.
pub fn about(
    session: &Session<'_>,
    preset: Option<Preset>,
    earlier: &[looks::Line],
    limit: Limit,
) -> (Start, Tensor<i64>, Vec<i64>) {
    let Session { run, text, corpus, .. } = *session;
    let first = earlier.iter().find_map(|line| match line {
        looks::Line::Start(start) => Some(start),
        _ => None,
    });
    let beginnings = text.beginnings();
    // Both are parts of the text, which has tokens.
    let sentence = run.sentence(&beginnings[0], SENTENCE).unwrap_or_default();
    let prompt_text = prompts(run, &beginnings).swap_remove(0);
    let prompt = run.encode(&prompt_text).unwrap_or_else(|_| sentence.clone());
    let labels = sentence.iter().map(|&token| run.tokenizer.label(token)).collect();
    let sentence = Tensor::from_vec(sentence.clone(), [1, sentence.len()]);
    let layers = maps(run, &sentence).iter().map(|map| map.size(1)).collect();
    let (preset, recipe) = match (preset, first) {
        (None, Some(start)) if !start.preset.is_empty() => {
            (start.preset.clone(), start.preset_recipe.clone())
        }
        (preset, _) => {
            let preset = preset.unwrap_or(Preset::Tales);
            (preset.name(), preset.recipe().to_json())
        }
    };
    let vocab = run.tokenizer.vocab_size();
    let baselines = Baselines::of(corpus.train(), corpus.held_out(), vocab);
    let machine = format!(
        "{}; peak {:.0} GFLOP/s with {}, measured at the start on all threads{}",
        processes(session),
        limit.peak.gflops.all,
        limit.peak.level,
        disturbance(limit.others)
    );
    let version = format!("retrograd {}", env!("CARGO_PKG_VERSION"));
    let facts = facts(session).into_iter().chain([("machine", machine), ("version", version)]);
    let start = Start {
        step: session.step(),
        recipe: session.recipe().to_json(),
        preset,
        preset_recipe: recipe,
        facts: facts.map(|(name, text)| (name.to_string(), text)).collect(),
        baselines: Some([baselines.uniform, baselines.unigram, baselines.bigram]),
        flops: Some(flops(run)),
        peak: Some(limit.peak.gflops.all * 1e9),
        sentence: labels,
        prompt: prompt_text,
        parts: Parts::of(&run.model).names,
        layers,
    };
    (start, sentence, prompt)
}
