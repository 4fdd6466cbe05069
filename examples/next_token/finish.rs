//! What comes after the last step: the final loss, samples, pictures, and a word of farewell.

use crate::cli::{Args, COMMAND, quoted};
use crate::corpus::Corpus;
use crate::folder::Folder;
use crate::log::{Done, Evaluation, Line, Log};
use crate::output::{note, say};
use crate::progress::duration;
use crate::recipe::Recipe;
use crate::rescue::interrupted;
use crate::run::{Purpose, Run};
use crate::samples::{first_words, prompts, tell};
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
/// Characters of the sentence whose attention is drawn.
const SENTENCE: usize = 36;

/// Does all of it. `seconds` is the time that training took.
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
        for prompt in &prompts {
            if let Some(stop) = stop() {
                return Err(stop);
            }
            say!("\n\x20   ~ ~ ~\n");
            let count = args.tokens.unwrap_or(SAMPLE) as usize;
            tell(run, prompt, count, args.sampler(), &mut rng, || {
                if let Some(stop) = stop() {
                    say!("");
                    stop.leave();
                }
            })?;
        }
        say!("\n\x20   ~ ~ ~\n");
    }
    let held_out = HumanCount(corpus.held_out.len() as u64);
    let time = duration(seconds);
    say!(
        "Held-out loss {val_loss:.4} after {steps} steps in {time} (over all {held_out} held-out \
         characters; in nats per character)."
    );
    hint_if_nothing_was_learnt(run, val_loss);
    if !args.quiet {
        warn_if_it_was_better(log, steps);
    }
    folder.check()?;
    say!("Everything is in {}", folder.name());
    if !args.quiet {
        farewell(run, folder, layers, &prompts[0]);
    }
    Ok(())
}

/// Prints a note if the loss is not below that of a uniform distribution over the vocabulary.
fn hint_if_nothing_was_learnt(run: &Run, val_loss: f64) {
    let blind = (run.vocabulary.len() as f64).ln();
    if val_loss > blind {
        note!(
            "note: guessing blindly has a loss of {blind:.4}, so this model has learnt nothing; try \
             a --lr below {:?}, or more --steps",
            run.recipe.lr
        );
    }
}

/// Says so if the loss on held-out text has risen again: the model has begun to learn its text by
/// heart. Only the quick looks are compared, which were all at the same windows.
fn warn_if_it_was_better(log: &Log, steps: u64) {
    let quick: Vec<Evaluation> = log.evaluations().filter(|e| e.step < steps).collect();
    let best = quick.iter().min_by(|a, b| a.val_loss.total_cmp(&b.val_loss));
    if let (Some(best), Some(last)) = (best, quick.last())
        && best.step != last.step
    {
        say!(
            "On a part of them it was lowest after step {}: {:.4}, but {:.4} after step {}.",
            best.step,
            best.val_loss,
            last.val_loss,
            last.step
        );
    }
}

/// Draws all pictures, and counts the layers.
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
    for (layer, weights) in (1..).zip(&maps) {
        let picture = attention::picture(layer, &weights.select(0, 0), &sentence);
        write(&folder.attention(layer), picture)?;
    }
    Ok(maps.len())
}

/// Where everything is, and what to try next.
fn farewell(run: &Run, folder: &Folder, layers: usize, prompt: &str) {
    let maps = match layers {
        1 => "attention-1.svg".to_string(),
        n => format!("attention-1.svg to -{n}.svg"),
    };
    say!(
        "
    checkpoint.safetensors      the model
    log.jsonl                   every step in numbers
    loss.svg                    how the loss fell
    {maps:<27} where each layer looks"
    );
    let (prompt, out) = (quoted(prompt), quoted(&folder.name()));
    let Recipe { layers, heads, width, .. } = run.recipe;
    let (deeper, wider) = (layers + 2, (width * 3 / 2).next_multiple_of(heads));
    let (same, what, other) = match &run.source.file {
        None => (
            String::new(),
            "a text of your own; here it is the grammar that writes the tales",
            " -- --data examples/next_token/tales.txt",
        ),
        Some(file) => {
            (format!(" --data {}", quoted(&file.display().to_string())), "the default text", "")
        }
    };
    say!(
        "
What to try next:
    let it write, more carefully than above
        {COMMAND} -- --out {out} --sample {prompt} --temperature 0.5
    a larger model, which learns more and takes longer
        {COMMAND} -- --layers {deeper} --heads {heads} --width {wider}{same}
    {what}
        {COMMAND}{other}"
    );
}
