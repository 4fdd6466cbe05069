//! What a run is, in words: printed before training, and shown on its page.

use crate::output::note;
use crate::progress::duration;
use crate::recipe::{Recipe, rounded};
use crate::session::Session;
use retrograd::prelude::*;
use retrograd::study::grouped;

/// A number of things, by the name of one and of many.
fn number(n: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(n as u64), if n == 1 { one } else { many })
}

/// The processes of a run and their threads.
pub fn processes(session: &Session<'_>) -> String {
    let threads = number(retrograd::tensor::threads(), "thread", "threads");
    format!("{} with {threads}", number(session.ranks.count(), "process", "processes"))
}

/// The text, the model and the steps of a run, each with its name.
pub fn facts(session: &Session<'_>) -> Vec<(&'static str, String)> {
    let Session { run, text, corpus, .. } = *session;
    let r @ Recipe { layers, heads, tokenizer, .. } = &run.recipe;
    let count = |n: usize| grouped(n as u64);
    let documents = match text.documents.len() {
        1 => String::new(),
        n => format!("{} documents, ", count(n)),
    };
    let (name, held_out) = (text.source.name(), corpus.held_out().len());
    let all = count(corpus.train().len() + held_out);
    let [different, held_out] = [run.tokenizer.vocab_size(), held_out].map(count);
    let text = format!(
        "{name}: {documents}{all} tokens of {different} different ones ({tokenizer}), of which the last {held_out} are held out"
    );
    let [width, context, parameters] = [r.width, r.context, run.model.num_parameters()].map(count);
    let model = format!(
        "{layers} layers, {heads} heads, {width} wide, context {context}: {parameters} parameters"
    );
    let parts = r.parts();
    let model = if parts.is_empty() { model } else { format!("{model}; {parts}") };
    let sequences = number(r.batch, "sequence", "sequences");
    let shards = number(r.number_of_shards(), "shard", "shards");
    let step = format!("{sequences} of {context} tokens in {shards}; {}", schedule(session));
    let mut facts = vec![("text", text), ("model", model), ("step", step)];
    if let Some(origin) = &run.history.init_from {
        let step = grouped(origin.step);
        facts.push(("weights", format!("begun with those of {} after step {step}", origin.run)));
    }
    if let Some(changed) = run.history.changed_steps.last() {
        let lr = |steps, at| rounded(Recipe { steps, ..r.clone() }.schedule().lr(at));
        let (at, before) = (changed.at, changed.before);
        let text = format!(
            "until step {at} that of {before} steps; there the learning rate went from {} to {}",
            lr(before, at.saturating_sub(1)),
            lr(changed.after, at)
        );
        facts.push(("schedule", text));
    }
    if r.precision != MatmulPrecision::F32 {
        let missing = if r.precision.is_supported() { "" } else { "; this CPU has f32 only" };
        facts.push(("products", format!("of matrices in {}{missing}", r.precision)));
    }
    facts
}

/// How the learning rate changes, and how many steps there are.
fn schedule(session: &Session<'_>) -> String {
    let words = session.recipe().schedule_in_words();
    match &session.clock {
        None => words,
        Some(clock) => format!("{} by the clock; {words}, about", duration(clock.now().limit)),
    }
}

/// Prints what is trained, and where.
pub fn introduce(session: &Session<'_>) {
    let step = session.step();
    let from = if step > 0 { format!(" from step {step} on") } else { String::new() };
    let steps = session.last;
    let about = if session.clock.is_some() { "about " } else { "" };
    let training = match step == steps {
        true => format!("finished: all {steps} steps were taken; resume --steps N takes more"),
        false => {
            format!("{about}{steps} steps{from}, on {}; Ctrl-C stops and saves", processes(session))
        }
    };
    let rest = [("training", training), ("folder", session.folder.name() + "\n")];
    for (name, text) in facts(session).into_iter().chain(rest) {
        note!("{name:<9}{text}");
    }
}
