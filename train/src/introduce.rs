//! What is printed before training.

use crate::output::note;
use crate::recipe::{Recipe, rounded};
use crate::session::Session;
use indicatif::HumanCount;
use retrograd::nn::text::Tokenizer;
use retrograd::prelude::*;

/// Prints the configuration of the run.
pub fn introduce(session: &Session<'_>) {
    let Session { run, text, corpus, folder, ranks, .. } = *session;
    let count = |n: usize| HumanCount(n as u64);
    let r = &run.recipe;
    let (characters, vocab) = (text.characters(), run.tokenizer.vocab_size());
    let documents = match text.documents.len() {
        1 => String::new(),
        n => format!("{} documents, ", count(n)),
    };
    let tokens = match &run.tokenizer {
        Tokenizer::Char(vocabulary) => format!("{} different", vocabulary.chars().len()),
        _ => {
            let all = corpus.train().len() + corpus.held_out().len();
            let name = &r.tokenizer;
            format!("as {} tokens of {vocab} different ones ({name})", count(all))
        }
    };
    note!(
        "Text     {}\n         {documents}{} characters, {tokens}; the last tenth is held out",
        run.source_name(),
        count(characters),
    );
    if let Some(origin) = &run.history.init_from {
        note!("Weights  those of {} after step {}", origin.run, origin.step);
    }
    note!(
        "Model    {} layers, {} heads, {} wide, context {}: {} parameters",
        r.layers,
        r.heads,
        r.width,
        r.context,
        count(run.model.num_parameters()),
    );
    let parts = r.parts();
    if !parts.is_empty() {
        note!("         {parts}");
    }
    let from = if run.step > 0 { format!(", from step {} on", run.step) } else { String::new() };
    note!(
        "Training {} steps with batches of {} sequences on {}{} threads{from}; Ctrl-C stops and saves",
        r.steps,
        r.batch,
        match ranks.count() {
            1 => String::new(),
            ranks => format!("{ranks} ranks of "),
        },
        retrograd::tensor::threads(),
    );
    note!("         {}", r.schedule_in_words());
    if let Some(changed) = run.history.changed_steps.last() {
        let earlier = Recipe { steps: changed.before, ..r.clone() };
        let now = Recipe { steps: changed.after, ..r.clone() };
        let at = changed.at;
        note!(
            "         until step {at} that of {} steps; there the learning rate went from {} to {}",
            changed.before,
            rounded(earlier.schedule().lr(at.saturating_sub(1))),
            rounded(now.schedule().lr(at))
        );
    }
    if r.precision != MatmulPrecision::F32 && r.precision.is_supported() {
        note!("Matrix multiplication in {}", r.precision);
    }
    note!("Folder   {}\n", folder.name());
}
