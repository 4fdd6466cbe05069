//! The end of a run: the final loss, plots, samples, and commands to try next.

use crate::cli::{Args, COMMAND, quoted};
use crate::corpus::Corpus;
use crate::folder::Folder;
use crate::log::{Done, Evaluation, Line, Log};
use crate::output::{note, say};
use crate::progress::duration;
use crate::recipe::Recipe;
use crate::rescue::interrupted;
use crate::run::{Purpose, Run};
use crate::samples::{Speed, first_words, print_sample, prompts};
use crate::signals::StopRequest;
use crate::stop::{OrFailed, Result};
use crate::train::held_out_loss;
use crate::{attention, loss_curve};
use indicatif::HumanCount;
use retrograd::nn::checkpoint::write_atomically;
use retrograd::prelude::*;
use std::path::Path;

/// Characters of a sample after training.
const SAMPLE: u64 = 300;
/// Characters of the sentence whose attention weights are plotted.
const SENTENCE: usize = 36;

/// Evaluates, plots and samples. `seconds` is the training time.
pub fn finish(
    run: &Run,
    corpus: &Corpus,
    folder: &Folder,
    log: &mut Log,
    args: &Args,
    seconds: f64,
    request: &StopRequest,
) -> Result<()> {
    let val_loss = held_out_loss(&run.model, &corpus.windows(run.recipe.context), request);
    folder.check()?;
    let stop = || request.exit_code().map(|code| interrupted(run, folder, code));
    let Some(val_loss) = val_loss else {
        return stop().map_or(Ok(()), Err);
    };
    if !val_loss.is_finite() {
        return run.diverged(folder, format!("the loss on held-out text is {val_loss}"));
    }
    let (steps, params) = (run.step, run.model.num_parameters());
    log.write(folder, Line::Evaluation(Evaluation { step: steps, val_loss }))?;
    log.write(folder, Line::Done(Done { done: true, params, steps, seconds, val_loss }))?;

    let beginnings = corpus.beginnings();
    let layers = draw(run, &beginnings, folder, log)?;

    // Everything is saved here: a closed pipe loses nothing.
    let prompts = prompts(run, &beginnings);
    if !args.quiet {
        let mut rng = Rng::new(run.recipe.seed_for(Purpose::Samples));
        let mut speed = Speed::default();
        for prompt in &prompts {
            if let Some(stop) = stop() {
                return Err(stop);
            }
            say!("\n\x20   ~ ~ ~\n");
            let count = args.tokens.unwrap_or(SAMPLE) as usize;
            speed.add(print_sample(run, prompt, count, args, &mut rng, || {
                if let Some(stop) = stop() {
                    say!("");
                    stop.leave();
                }
            })?);
        }
        say!("\n\x20   ~ ~ ~\n");
        speed.note();
    }
    let held_out = HumanCount(corpus.held_out.len() as u64);
    let time = duration(seconds);
    say!(
        "Held-out loss {val_loss:.4} after {steps} steps in {time} (over all {held_out} held-out \
         characters; in nats per character)."
    );
    note_if_worse_than_uniform(run, val_loss);
    if !args.quiet {
        note_if_overfitted(log, steps);
    }
    folder.check()?;
    say!("Files are in {}", folder.name());
    if !args.quiet {
        print_next_commands(run, folder, layers, &prompts[0]);
    }
    Ok(())
}

/// Prints a note if the loss is not below that of a uniform distribution over the vocabulary.
fn note_if_worse_than_uniform(run: &Run, val_loss: f64) {
    let uniform = (run.vocabulary.len() as f64).ln();
    if val_loss > uniform {
        note!(
            "note: uniform predictions have a loss of {uniform:.4}, so this model has learnt nothing; try \
             a --lr below {:?}, or more --steps",
            run.recipe.lr
        );
    }
}

/// Prints a note if the held-out loss has risen again: the model overfits. Only evaluations during
/// training are compared, which all use the same windows.
fn note_if_overfitted(log: &Log, steps: u64) {
    let during: Vec<Evaluation> = log.evaluations().filter(|e| e.step < steps).collect();
    let best = during.iter().min_by(|a, b| a.val_loss.total_cmp(&b.val_loss));
    if let (Some(best), Some(last)) = (best, during.last())
        && best.step != last.step
    {
        say!(
            "On a part of the held-out text it was lowest after step {}: {:.4}; after step {} it was {:.4}.",
            best.step,
            best.val_loss,
            last.step,
            last.val_loss
        );
    }
}

/// Writes all plots; returns the number of layers.
fn draw(run: &Run, beginnings: &[String], folder: &Folder, log: &Log) -> Result<usize> {
    let write = |path: &Path, svg: std::result::Result<String, String>| {
        let name = path.display();
        let svg = svg.or_failed(format!("cannot draw {name}"))?;
        write_atomically(path, svg.as_bytes()).or_failed(format!("cannot write {name}"))
    };
    let steps: Vec<(u64, f64)> = log.steps().map(|s| (s.step, s.loss)).collect();
    let held_out: Vec<(u64, f64)> = log.evaluations().map(|e| (e.step, e.val_loss)).collect();
    write(&folder.loss_curve(), loss_curve::picture(&steps, &held_out))?;

    let sentence = first_words(&beginnings[0], SENTENCE.min(run.recipe.context));
    let tokens = run.encode(&sentence)?;
    let tokens = Tensor::from_vec(tokens.clone(), [1, tokens.len()]);
    let sentence: Vec<char> = sentence.chars().collect();
    let maps = run.model.attention_maps(&tokens);
    // Some variants of attention have no weights.
    let maps: Vec<&Tensor> = maps.iter().filter(|weights| weights.size(1) > 0).collect();
    for (layer, weights) in (1..).zip(&maps) {
        let picture = attention::picture(layer, &weights.select(0, 0), &sentence);
        write(&folder.attention(layer), picture)?;
    }
    Ok(maps.len())
}

/// Prints the files of the run, and commands to try next.
fn print_next_commands(run: &Run, folder: &Folder, layers: usize, prompt: &str) {
    let maps = match layers {
        0 => String::new(),
        1 => "attention-1.svg".to_string(),
        n => format!("attention-1.svg to -{n}.svg"),
    };
    say!(
        "
    checkpoint.safetensors      model, optimiser state and configuration
    log.jsonl                   metrics of every step
    loss.svg                    training and held-out loss"
    );
    if !maps.is_empty() {
        say!("    {maps:<27} attention weights of each layer");
    }
    let (prompt, out) = (quoted(prompt), quoted(&folder.name()));
    let Recipe { layers, heads, width, .. } = run.recipe;
    let (deeper, wider) = (layers + 2, (width * 3 / 2).next_multiple_of(heads));
    let (same, what, other) = match &run.source.file {
        None => (
            String::new(),
            "train on another text; here the grammar of the default text",
            " -- --data examples/next_token/tales.txt",
        ),
        Some(file) => (
            format!(" --data {}", quoted(&file.display().to_string())),
            "train on the default text",
            "",
        ),
    };
    say!(
        "
What to try next:
    sample at a lower temperature
        {COMMAND} -- --out {out} --sample {prompt} --temperature 0.5
    train a larger model
        {COMMAND} -- --layers {deeper} --heads {heads} --width {wider}{same}
    {what}
        {COMMAND}{other}"
    );
}
