//! The end of a run: the final loss, samples, and commands to try next.

use crate::flags::{RunFlags, program, quoted};
use crate::folder::Folder;
use crate::line::{Done, Evaluation, Line, Metrics, Step};
use crate::log::Log;
use crate::output::{note, say};
use crate::progress::duration;
use crate::recipe::Recipe;
use crate::run::Run;
use crate::sample::{note_speed, print_sample, prompts};
use crate::session::Session;
use crate::signals;
use crate::stop::Result;
use indicatif::{HumanBytes, HumanCount};
use retrograd::nn::StateDict;
use retrograd::nn::training::Purpose;
use retrograd::prelude::*;

/// Evaluates, on all ranks; then rank 0 samples.
pub fn finish(
    session: &Session<'_>,
    log: Option<&mut Log>,
    (flags, quiet): (&RunFlags, bool),
) -> Result<()> {
    let Session { run, text, corpus, folder, ranks, .. } = *session;
    let metrics = session.metrics(&corpus.windows(run.recipe.context), signals::is_received);
    let signal = ranks.share(&signals::exit_code()).into_iter().find_map(|code| code);
    let Some(log) = log else { return Ok(()) };
    folder.check()?;
    let Some(metrics) = metrics else {
        return signal.map_or(Ok(()), |code| Err(session.interrupted(code)));
    };
    let val_loss = metrics.loss();
    if !val_loss.is_finite() {
        return session.diverged(format!("the loss on held-out text is {val_loss}"));
    }
    let seconds = log.steps().map(|step| step.ms / 1e3).sum();
    let (steps, params) = (session.step(), run.model.num_parameters());
    let metrics = Metrics::of(&metrics, corpus.lost_share());
    let done = Done { done: true, params, steps, seconds, val_loss, metrics: Some(metrics) };
    log.write(folder, Line::Done(done))?;
    if let Some(page) = &mut log.page {
        page.end(folder, &Ok(()));
    }

    let beginnings = text.beginnings();

    // Everything is saved here: a closed pipe loses nothing.
    let prompts = prompts(run, &beginnings);
    if !quiet {
        let mut rng = Rng::new(Purpose::Samples.seed(run.recipe.seed));
        let mut samples = Vec::new();
        for prompt in &prompts {
            say!("\n\x20   ~ ~ ~\n");
            let (count, sampling) = (flags.tokens, &flags.sampling);
            let stops = signals::is_received;
            samples.push(print_sample(run, prompt, count, sampling, &mut rng, stops)?);
            if let Some(code) = signals::exit_code() {
                return Err(session.interrupted(code));
            }
        }
        say!("\n\x20   ~ ~ ~\n");
        note_speed(&samples);
    }
    let held_out = HumanCount(corpus.held_out().len() as u64);
    let time = duration(seconds);
    say!(
        "Held-out loss {val_loss:.4} after {steps} steps in {time} (over all {held_out} held-out \
         tokens; in nats per token): {metrics}."
    );
    note_if_worse_than_uniform(run, val_loss);
    if !quiet {
        note_exchange(session, log);
        note_if_overfitted(log, folder);
    }
    folder.check()?;
    say!("Files are in {}", folder.name());
    if !quiet {
        print_next_commands(session, &prompts[0]);
    }
    Ok(())
}

/// Prints the time of the exchange of gradients between ranks, and their shares of the optimiser's state.
fn note_exchange(session: &Session<'_>, log: &Log) {
    let median = |part: fn(&Step) -> Option<f64>| {
        let mut all: Vec<f64> = log.steps().filter_map(|step| part(&step)).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    };
    let (exchange, exposed) = (median(|s| s.exchange_ms), median(|s| s.exposed_ms));
    if let (Some(exchange), Some(exposed), Some(step)) = (exchange, exposed, median(|s| Some(s.ms)))
    {
        let bytes = |dict: &StateDict| dict.values().map(|x| 4 * x.numel() as u64).sum::<u64>();
        say!(
            "{} ranks: gradients were exchanged for {exchange:.2} ms of a step of {step:.2} ms, {:.0} % of it during \
             backward passes (medians); rank 0 has {} of the optimiser's state.",
            session.ranks.count(),
            100.0 * (1.0 - exposed / exchange),
            HumanBytes(bytes(&session.trainer.optimizer().state_dict())),
        );
    }
}

/// Prints a note if the loss is not below that of a uniform distribution over the vocabulary.
fn note_if_worse_than_uniform(run: &Run, val_loss: f64) {
    let uniform = (run.tokenizer.vocab_size() as f64).ln();
    if val_loss > uniform {
        note!(
            "note: uniform predictions have a loss of {uniform:.4}, so this model has learnt nothing; try \
             a --lr below {}, or more --steps",
            run.recipe.lr
        );
    }
}

/// Prints a note if the held-out loss has risen again: the model overfits. The evaluations during
/// training are compared, which all use the same windows.
fn note_if_overfitted(log: &Log, folder: &Folder) {
    let during: Vec<Evaluation> = log.evaluations().collect();
    let best = during.iter().min_by(|a, b| a.val_loss.total_cmp(&b.val_loss));
    if let (Some(best), Some(last)) = (best, during.last())
        && best.step != last.step
    {
        let (at, lowest, end, loss) = (best.step, best.val_loss, last.step, last.val_loss);
        say!(
            "On a part of the held-out text it was lowest after step {at}: {lowest:.4}; after step {end} it was {loss:.4}."
        );
        if best.step > 0 && folder.best().exists() {
            say!("That model is in {}: sample --checkpoint best.", folder.best().display());
        }
    }
}

/// Prints the files of the run, and commands to try next.
fn print_next_commands(Session { run, text, folder, .. }: &Session<'_>, prompt: &str) {
    say!(
        "
    checkpoint.safetensors      model, optimiser state, tokenizer and configuration
    best.safetensors            the same, at the lowest held-out loss of the curve
    log.jsonl                   metrics of every step
    run.html                    the run as a page, from the log and looks.jsonl
    tokenizer.json              the tokenizer, for --tokenizer"
    );
    let (prompt, out) = (quoted(prompt), quoted(&folder.name()));
    let Recipe { layers, heads, width, .. } = run.recipe;
    // Rotary positions need heads of an even width.
    let (layers, width) = (layers + 2, (width * 3 / 2).next_multiple_of(2 * heads));
    let larger = Recipe { layers, width, ..run.recipe.clone() }.flags().into_iter();
    let larger: String =
        larger.map(|(name, value)| format!(" --{name} {}", quoted(&value))).collect();
    let file = text.source.file.as_ref();
    let data = file.map_or_else(String::new, |file| {
        format!(" --data {}", quoted(&file.display().to_string()))
    });
    let program = program();
    say!(
        "
What to try next:
    sample at a lower temperature
        {program} sample --out {out} --temperature 0.5 {prompt}
    train a larger model
        {program} train{larger}{data}
    see the next step, event by event
        {program} xray --out {out}"
    );
}
