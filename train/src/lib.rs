//! Trains a small causal transformer on a text: the program `retrograd`.
//!
//! Reading order: [`train`] (the loop), [`text`] (the text), [`run`] (the contents of a
//! checkpoint), [`recipe`] (the hyperparameters), then the rest.

mod agree;
mod arena;
mod attention_page;
mod checkpoints;
mod cli;
mod compare;
mod environment;
mod evaluate;
mod files;
mod fine_tune;
mod finish;
mod folder;
mod grid;
mod line;
mod log;
mod looks;
mod output;
mod page;
mod progress;
mod ranks;
mod recipe;
mod rescue;
mod run;
mod samples;
mod scaling;
mod signals;
mod stop;
mod tales;
mod text;
mod tokenizer;
mod train;
mod watch;
mod xray;

use attention_page::AttentionLooks;
use clap::Parser;
use cli::Args;
use fine_tune::Parent;
use folder::Folder;
use indicatif::HumanCount;
use log::Log;
use output::note;
use progress::Progress;
use ranks::Ranks;
use recipe::{LESS_MEMORY, Preset, Recipe, rounded};
use retrograd::distributed::GradientSum;
use retrograd::nn::text::{Corpus, Tokenizer};
use retrograd::prelude::*;
use retrograd::tensor::kernels::gemm::arithmetic;
use retrograd::tensor::simd::Level;
use run::{Purpose, Run};
use signals::StopRequest;
use std::process::ExitCode;
use std::time::Instant;
use stop::{OrFailed, Result, Stop, failed, usage};
use text::Text;
use train::Plan;

/// Runs the program with the flags of this process.
pub fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|name| name == "arena") {
        return arena::main();
    }
    retrograd::study::from_env();
    let done = Ranks::start().or_else(failed).and_then(|ranks| {
        let done = parse(&ranks).and_then(|args| match args {
            Some(args) => {
                let threads = ranks.threads(args.threads);
                environment::check_memory(threads);
                with_threads(threads, || begin(&args, &ranks))
            }
            None => Ok(()),
        });
        ranks.agree(done)
    });
    output::end(done.map_or_else(Stop::report, |()| ExitCode::SUCCESS))
}

/// The flags; `None` if they request a text, which is printed.
fn parse(ranks: &Ranks) -> Result<Option<Args>> {
    ranks.check_same(&program(ranks)?)?;
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(e) => {
            if ranks.is_first() {
                match e.use_stderr() {
                    true => output::fault(e.render().to_string().trim_end()),
                    false => drop(e.print()),
                }
            }
            // Of help and version it is 0.
            let code = e.exit_code() as u8;
            return if code == 0 { Ok(None) } else { Err(Stop::Reported(code)) };
        }
    };
    environment::check(LESS_MEMORY);
    if args.list_attention() {
        return Ok(None);
    }
    args.check().map(|()| Some(args))
}

/// What must be the same on all ranks from the start.
fn program(ranks: &Ranks) -> Result<Vec<(&'static str, String)>> {
    if ranks.count() == 1 {
        return Ok(Vec::new());
    }
    let file =
        std::env::current_exe().and_then(std::fs::read).or_failed("cannot read the program")?;
    let flags: Vec<String> = std::env::args_os().skip(1).map(|a| format!("{a:?}")).collect();
    Ok(vec![
        ("version", env!("CARGO_PKG_VERSION").to_string()),
        ("program", format!("{} bytes with checksum {:08x}", file.len(), checksum(&file))),
        ("flags", flags.join(" ")),
        // An invalid level is an error later, on all ranks.
        (
            "arithmetic",
            Level::from_environment().map_or_else(|e| e.to_string(), |_| arithmetic::<f32>()),
        ),
    ])
}

/// FNV-1a, 32 bits: to recognise another program, not an attack.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, &b| (sum ^ u32::from(b)).wrapping_mul(0x0100_0193))
}

fn begin(args: &Args, ranks: &Ranks) -> Result<()> {
    match &args.sample {
        Some(prompt) if ranks.is_first() => sample(args, prompt),
        Some(_) => Ok(()),
        None if !args.compare.is_empty() && ranks.is_first() => compare::compare(args),
        None if !args.compare.is_empty() => Ok(()),
        None if !args.grid.is_empty() => grid::grid(args, ranks),
        None if args.evaluate => evaluate::evaluate(args, ranks),
        None if args.scaling => scaling::scaling(args, ranks),
        None => train_run(args, ranks),
    }
}

/// Samples from the model of an existing run.
fn sample(args: &Args, prompt: &str) -> Result<()> {
    let folder = Folder::earlier(args.out.as_deref())?;
    let run = Run::load_model(&folder.checkpoint_of(args.checkpoint)?)?;
    let seed = args.seed.unwrap_or(run.recipe.seed_for(Purpose::Samples));
    let count = args.tokens.unwrap_or(500) as usize;
    with_matmul_precision(run.recipe.precision, || {
        let sample = samples::print_sample(&run, prompt, count, args, &mut Rng::new(seed), || {})?;
        if !args.quiet {
            sample.speed.note();
        }
        match &args.attention_page {
            Some(path) => attention_page::of_sample(&run, sample.prompt, &sample.tokens, path),
            None => Ok(()),
        }
    })
}

/// A run, and what it is trained on.
struct Beginning {
    run: Run,
    text: Text,
    corpus: Corpus,
    folder: Folder,
}

/// Trains, from the start or from a checkpoint, to the last step.
fn train_run(args: &Args, ranks: &Ranks) -> Result<()> {
    let beginning = if args.resume { earlier(args, ranks) } else { fresh(args, ranks) };
    let beginning = beginning.and_then(|beginning| {
        check_shards(&beginning.run, ranks)?;
        let Beginning { run, folder, .. } = &beginning;
        let log = ranks.is_first().then(|| Log::open(folder, run.step)).transpose()?;
        Ok((beginning, log, StopRequest::watch()?))
    });
    let (beginning, mut log, request) = ranks.agree(beginning)?;
    let Beginning { mut run, text, corpus, folder } = beginning;
    ranks.check_same(&same(&run, &text))?;
    let recipe = run.recipe.clone();
    let steps = log.iter().flat_map(|log| log.steps());
    let seconds_before = steps.map(|step| step.ms / 1e3).sum::<f64>();
    if args.all_reduce {
        run.training.parallel = run.training.parallel.with_reduction(GradientSum::AllReduce);
    }
    if !args.quiet {
        introduce(&run, &text, &corpus, &folder);
    }
    if !recipe.precision.is_supported() {
        note!("Matrix multiplication in f32: this CPU does not support {}", recipe.precision);
    }
    let start = Instant::now();
    let eval_every = args.eval_every.unwrap_or((recipe.steps / 8).clamp(1, 250));
    let xray = xray::Plan::of(args, run.step, recipe.steps)?;
    let look_every = (!args.no_page).then(|| page::look_every(recipe.steps, eval_every));
    if !args.no_page {
        let limit = page::limit(ranks);
        if let Some(log) = &mut log {
            let record =
                page::RunRecord::start(&run, (&text, &corpus), (&folder, &log.lines), args, limit);
            log.page = Some(record);
        }
    }
    let looks = |path| AttentionLooks::new(&run, &text.beginnings()[0], path, eval_every);
    let looks = args.attention_page.as_deref().filter(|_| ranks.is_first()).map(looks);
    let attention = ranks.agree(looks.transpose())?;
    let keep = args.keep.map(|n| n as usize);
    let plan = Plan { eval_every, keep, look_every, xray, attention };
    let mut progress = Progress::new(&recipe, run.step, args.quiet || !ranks.is_first());
    let done = with_matmul_precision(recipe.precision, || {
        let trained =
            train::train(&mut run, &corpus, &folder, log.as_mut(), &plan, &mut progress, &request);
        progress.end();
        if trained.is_err() && ranks.is_first() {
            plan.xray.note_missing(run.step);
        }
        trained?;
        let seconds = seconds_before + start.elapsed().as_secs_f64();
        let state = run.optimizer_state();
        let texts = (&text, &corpus);
        if let Some(page) = log.as_mut().and_then(|log| log.page.as_mut()) {
            page.before_evaluation(&run, &folder, corpus.held_out().len());
        }
        let done = finish::finish(&run, texts, &folder, log.as_mut(), args, seconds, &request);
        match (state, &mut log) {
            (Some(state), Some(log)) => {
                done.or_else(|stop| rescue::rescue(&run, &state, &folder, log, stop))
            }
            _ => done,
        }
    });
    if let Some(page) = log.as_mut().and_then(|log| log.page.as_mut()) {
        page.end(&folder, &done);
    }
    done
}

/// Checks that there is a shard of the batch for each rank.
fn check_shards(run: &Run, ranks: &Ranks) -> Result<()> {
    let Recipe { batch, context, .. } = run.recipe;
    let shards = run.recipe.number_of_shards();
    if shards > batch {
        return usage(format!("a batch of {batch} windows cannot be split into {shards} shards"));
    }
    if ranks.count() > shards {
        return usage(format!(
            "{} ranks cannot share a batch of {shards} shards ({batch} windows of {context} tokens). Start fewer \
             ranks, or train with --shards {} (at most {batch}), which is a part of the recipe: other shards \
             have other roundings",
            ranks.count(),
            ranks.count().next_power_of_two()
        ));
    }
    Ok(())
}

/// What must be the same on all ranks when training begins.
fn same(run: &Run, text: &Text) -> Vec<(&'static str, String)> {
    vec![
        ("text", format!("fingerprint {:016x}", text.source.fingerprint)),
        ("recipe", serde_json::to_string(&run.recipe).expect("has a JSON form")),
        ("step", run.step.to_string()),
        ("arithmetic", run.recipe.arithmetic()),
    ]
}

/// What the flags of a new run say.
struct Asked {
    recipe: Recipe,
    text: Text,
    tokenizer: Tokenizer,
    corpus: Corpus,
    parent: Option<Parent>,
}

/// The recipe and the text of a new run, from the flags.
fn asked(args: &Args) -> Result<Asked> {
    let parent = args.init_from.as_deref().map(Parent::load).transpose()?;
    let base = parent.as_ref().map_or_else(|| Preset::Tales.recipe(), |p| p.run.recipe.clone());
    let mut recipe = args.recipe(&base);
    recipe.check()?;
    // Before there is a folder.
    xray::Plan::of(args, 0, recipe.steps)?;
    if let Some(parent) = &parent {
        parent.check(&recipe, args)?;
        recipe.tokenizer = base.tokenizer;
    }
    let text = Text::read(args.data.as_deref())?;
    let (tokenizer, corpus) = match &parent {
        Some(parent) => (parent.run.tokenizer.clone(), parent.corpus(&text)?),
        None => {
            let tokenizer = recipe.tokenizer.make(&text.documents)?;
            let corpus = text.corpus(&tokenizer).or_else(failed)?;
            (tokenizer, corpus)
        }
    };
    corpus.check(recipe.context).or_else(failed)?;
    recipe.check_memory(tokenizer.vocab_size())?;
    Ok(Asked { recipe, text, tokenizer, corpus, parent })
}

/// A new run without a folder.
fn new_run_and_corpus(args: &Args, ranks: &Ranks) -> Result<(Run, Corpus)> {
    let Asked { recipe, text, tokenizer, corpus, parent } = asked(args)?;
    let mut run = Run::new(recipe, text.source, tokenizer, ranks)?;
    if let Some(parent) = &parent {
        run.init_from(&parent.run, &parent.name)?;
    }
    Ok((run, corpus))
}

/// A new run with its text and its folder, from the flags.
fn fresh(args: &Args, ranks: &Ranks) -> Result<Beginning> {
    let Asked { recipe, text, tokenizer, corpus, parent } = asked(args)?;
    let folder = match ranks.is_first() {
        true => Folder::fresh(args.out.as_deref())?,
        false => Folder::of_rank_0(),
    };
    if ranks.is_first() {
        tokenizer.save(&folder.tokenizer()).or_else(failed)?;
    }
    let mut run = Run::new(recipe, text.source.clone(), tokenizer, ranks)?;
    if let Some(parent) = &parent {
        run.init_from(&parent.run, &parent.name)?;
    }
    Ok(Beginning { run, text, corpus, folder })
}

/// The run to be resumed, with its text and its folder.
///
/// # Errors
/// If hyperparameters or the text differ.
fn earlier(args: &Args, ranks: &Ranks) -> Result<Beginning> {
    let mut folder = Folder::earlier(args.out.as_deref())?;
    if ranks.is_first() {
        folder.lock()?;
    }
    let mut run = Run::load(&folder, ranks)?;
    let (before, now) = (run.history.arithmetic.clone(), run.recipe.arithmetic());
    if !before.is_empty() && before != now {
        note!(
            "note: the run was trained with {before}, and goes on with {now}: its last bits will differ from those \
             of a run on one machine"
        );
    }
    run.history.arithmetic = now;
    let asked = args.recipe(&run.recipe);
    let free: &[&str] = if args.steps.is_some() { &["steps"] } else { &[] };
    let changed = run.recipe.differences(&asked, free);
    if !changed.is_empty() {
        return usage(format!(
            "the run in {} cannot be resumed with other hyperparameters:\n  {}\nOmit these flags, or start \
             a new run without --resume. Only --steps can be changed.",
            folder.name(),
            changed.join("\n  ")
        ));
    }
    if asked.steps < run.step {
        return usage(format!(
            "the run in {} has taken {} steps already, so it cannot end after {}",
            folder.name(),
            run.step,
            asked.steps
        ));
    }
    if asked.steps != run.recipe.steps {
        run.change_steps(asked.steps);
    }
    let file = args.data.as_deref().or(run.source.file.as_deref());
    let text = Text::read(file)?;
    text.check_same(&run.source, &folder.name(), file)?;
    let corpus = text.corpus(&run.tokenizer).or_failed("cannot read the text")?;
    corpus.check(run.recipe.context).or_else(failed)?;
    if ranks.is_first() {
        folder.remove_temporary_files();
    }
    Ok(Beginning { run, text, corpus, folder })
}

/// Prints the configuration of the run.
fn introduce(run: &Run, text: &Text, corpus: &Corpus, folder: &Folder) {
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
        run.source.name(),
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
        match run.training.ranks.count() {
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
