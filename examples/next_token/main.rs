//! Next-token prediction: trains a small causal transformer on characters.
//!
//! `cargo run --release --example next_token` needs no flags and no downloads; `--help` lists the
//! flags. Reading order: [`train`] (the loop), [`corpus`] (the text), [`run`] (the contents of a
//! checkpoint), [`recipe`] (the hyperparameters), then the rest.

mod attention;
mod cli;
mod corpus;
#[path = "../common/environment.rs"]
mod environment;
mod files;
mod finish;
mod folder;
mod log;
mod loss_curve;
#[path = "../common/output.rs"]
mod output;
mod progress;
mod recipe;
mod rescue;
mod run;
mod samples;
mod signals;
mod stop;
#[path = "../common/svg.rs"]
mod svg;
mod tales;
mod train;
#[path = "../common/weights.rs"]
mod weights;

use clap::Parser;
use cli::Args;
use corpus::Corpus;
use folder::Folder;
use indicatif::HumanCount;
use log::Log;
use output::note;
use progress::Progress;
use recipe::{LESS_MEMORY, Preset};
use retrograd::prelude::*;
use run::{Purpose, Run};
use signals::StopRequest;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;
use stop::{Result, Stop, failed, usage};

fn main() -> ExitCode {
    let args = Args::parse();
    environment::check(LESS_MEMORY);
    if args.list_attention() {
        return output::end(ExitCode::SUCCESS);
    }
    let done = args.check().and_then(|()| with_threads(args.threads(), || begin(&args)));
    output::end(done.map_or_else(Stop::report, |()| ExitCode::SUCCESS))
}

fn begin(args: &Args) -> Result<()> {
    match &args.sample {
        Some(prompt) => sample(args, prompt),
        None => train_run(args),
    }
}

/// Samples from the model of an existing run.
fn sample(args: &Args, prompt: &str) -> Result<()> {
    let run = Run::load_model(&Folder::earlier(args.out.as_deref())?)?;
    let seed = args.seed.unwrap_or(run.recipe.seed_for(Purpose::Samples));
    let count = args.tokens.unwrap_or(500) as usize;
    with_matmul_precision(run.recipe.precision, || {
        let speed = samples::print_sample(&run, prompt, count, args, &mut Rng::new(seed), || {})?;
        if !args.quiet {
            speed.note();
        }
        Ok(())
    })
}

/// Trains, from the start or from a checkpoint, to the last step.
fn train_run(args: &Args) -> Result<()> {
    let (mut run, corpus, folder) = if args.resume { earlier(args)? } else { fresh(args)? };
    let recipe = run.recipe.clone();
    let mut log = Log::open(&folder, run.step, recipe.steps)?;
    let seconds_before = log.steps().map(|step| step.ms / 1e3).sum::<f64>();
    if !args.quiet {
        introduce(&run, &corpus, &folder);
    }
    if !recipe.precision.is_supported() {
        note!("Matrix multiplication in f32: this CPU does not support {}", recipe.precision);
    }
    let request = StopRequest::watch()?;
    let start = Instant::now();
    let eval_every = args.eval_every.unwrap_or((recipe.steps / 8).clamp(1, 250));
    let mut progress = Progress::new(&recipe, run.step, args.quiet);
    with_matmul_precision(recipe.precision, || {
        let trained =
            train::train(&mut run, &corpus, &folder, eval_every, &mut log, &mut progress, &request);
        progress.end();
        trained?;
        let seconds = seconds_before + start.elapsed().as_secs_f64();
        finish::finish(&run, &corpus, &folder, &mut log, args, seconds, &request)
            .or_else(|stop| rescue::rescue(&run, &folder, &mut log, stop))
    })
}

/// A new run with its text and its folder, from the flags.
fn fresh(args: &Args) -> Result<(Run, Corpus, Folder)> {
    let recipe = args.recipe(&Preset::Tales.recipe());
    recipe.check()?;
    let corpus = Corpus::read(args.data.as_deref())?;
    corpus.check(recipe.context)?;
    recipe.check_memory(corpus.vocabulary.len())?;
    let folder = Folder::fresh(args.out.as_deref())?;
    Ok((Run::new(recipe, &corpus)?, corpus, folder))
}

/// The run to be resumed, with its text and its folder.
///
/// # Errors
/// If hyperparameters or the text differ.
fn earlier(args: &Args) -> Result<(Run, Corpus, Folder)> {
    let mut folder = Folder::earlier(args.out.as_deref())?;
    folder.lock()?;
    let run = Run::load(&folder)?;
    let changed = run.recipe.differences(&args.recipe(&run.recipe));
    if !changed.is_empty() {
        return usage(format!(
            "the run in {} cannot be resumed with other hyperparameters:\n  {}\nOmit these flags, or start \
             a new run without --resume. (The learning rate schedule depends on --steps.)",
            folder.name(),
            changed.join("\n  ")
        ));
    }
    let file = args.data.as_deref().or(run.source.file.as_deref());
    let corpus = Corpus::read(file)?;
    if corpus.source.fingerprint != run.source.fingerprint {
        let file = file.unwrap_or(Path::new("the generated tales"));
        return failed(format!(
            "the run in {} was trained on a text that differs from the one in {}",
            folder.name(),
            file.display()
        ));
    }
    folder.remove_temporary_files();
    Ok((run, corpus, folder))
}

/// Prints the configuration of the run.
fn introduce(run: &Run, corpus: &Corpus, folder: &Folder) {
    let count = |n: usize| HumanCount(n as u64);
    let text = match &run.source.file {
        Some(file) => file.display().to_string(),
        None => "generated tales".into(),
    };
    let r = &run.recipe;
    note!(
        "Text     {text}\n         {} characters, {} different; the last tenth is held out",
        count(corpus.train.len() + corpus.held_out.len()),
        run.vocabulary.len(),
    );
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
        "Training {} steps with batches of {} sequences on {} threads{from}; Ctrl-C stops and saves",
        r.steps,
        r.batch,
        retrograd::tensor::threads(),
    );
    if r.precision != MatmulPrecision::F32 && r.precision.is_supported() {
        note!("Matrix multiplication in {}", r.precision);
    }
    note!("Folder   {}\n", folder.name());
}
