//! A new run: `train`.

use crate::attention::AttentionLooks;
use crate::clock::Clock;
use crate::facts::introduce;
use crate::fine_tune::Parent;
use crate::finish;
use crate::flags::{NewRun, RunFlags};
use crate::folder::Folder;
use crate::log::Log;
use crate::memory;
use crate::output::note;
use crate::page::{self, RunRecord};
use crate::presets::Preset;
use crate::progress::{Progress, duration};
use crate::ranks::Ranks;
use crate::recipe::Recipe;
use crate::rescue::rescue;
use crate::run::Run;
use crate::session::Session;
use crate::signals;
use crate::stop::{OrFailed, Result, failed, usage};
use crate::text::Text;
use crate::training::{self, Plan};
use crate::xray::PageFlags;
use clap::Args;
use retrograd::nn::checkpoint::Checkpoint;
use retrograd::nn::text::Corpus;
use retrograd::prelude::*;
use retrograd::tensor::storage::pool_reset;
use std::path::{Path, PathBuf};

/// The most bytes of the checkpoints that are kept.
const KEEP_SIZE: u64 = 200_000_000;

/// Train a model on a text, and print samples from it
///
/// Without flags it generates a text of short tales, trains on it for about a minute and a half, prints three
/// samples, and writes a checkpoint, a log and a page to a folder.
#[derive(Args, Debug)]
pub struct Train {
    /// The folder of the run [default: out/run, or the next free out/run-N]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    #[command(flatten)]
    pub new: NewRun,

    #[command(flatten)]
    pub run: RunFlags,

    #[command(flatten)]
    pub pages: PageFlags,
}

/// Trains a new run.
pub fn train(args: &Train, quiet: bool, ranks: &Ranks) -> Result<()> {
    let chosen = chosen(&args.new, ranks);
    let mut new = args.new.clone();
    new.preset = new.preset.or(chosen);
    if let Some(preset) = chosen.filter(|_| !quiet) {
        let name = preset.name();
        note!("size     --preset {name}, chosen by the time and the speed of this machine");
    }
    let (pages, preset) = (&args.pages, new.preset);
    let job = Job { flags: &args.run, quiet, pages, preset, out: args.out.as_deref() };
    train_run(|| fresh(&new, pages), &job, ranks)
}

/// The preset for the time of a run, if neither a preset nor a size is given.
fn chosen(new: &NewRun, ranks: &Ranks) -> Option<Preset> {
    /// The part of the peak that training reaches.
    const EFFICIENCY: f64 = 0.6;
    let minutes = new.minutes?;
    let sizes = ["layers", "heads", "width", "context", "batch"];
    let is_sized = sizes.iter().any(|size| new.given::<usize>(size).is_some());
    let is_free = new.preset.is_none() && new.init_from.is_none() && !is_sized;
    let speed = || EFFICIENCY * page::limit(ranks).peak.gflops.all * 1e9;
    is_free.then(|| Preset::for_operations(speed() * 60.0 * minutes))
}

/// A run, and what it is trained on.
pub struct Beginning {
    pub run: Run,
    pub text: Text,
    pub corpus: Corpus,
    /// `None` until one is made for a new run.
    pub folder: Option<Folder>,
    /// The checkpoint to go on from.
    pub file: Option<Checkpoint>,
}

/// How a run is trained.
pub struct Job<'a> {
    pub flags: &'a RunFlags,
    pub quiet: bool,
    pub pages: &'a PageFlags,
    pub preset: Option<Preset>,
    /// The folder of a new run; `None` for the next number.
    pub out: Option<&'a Path>,
}

/// Trains, from the start or from a checkpoint, to the last step.
pub fn train_run(
    begin: impl FnOnce() -> Result<Beginning>,
    job: &Job<'_>,
    ranks: &Ranks,
) -> Result<()> {
    let Job { flags, quiet, out, .. } = *job;
    let beginning = begin().and_then(|b| check_shards(&b.run, ranks).map(|()| b));
    let Beginning { mut run, text, corpus, folder, file } = ranks.agree(beginning)?;
    // The peak of the bytes of tensors is that of this run.
    pool_reset();
    let fit = |limit| memory::fit(&mut run, &corpus, limit, ranks.count());
    let memory = ranks.agree(flags.memory.map(fit).transpose())?;
    let folder = match folder {
        Some(folder) => folder,
        None => ranks.agree(new_folder(&run, out, ranks))?,
    };
    if let Some(memory) = memory.as_ref().filter(|_| !quiet) {
        note!("memory   {memory}");
    }
    let prepare = || {
        let texts = (&text, &corpus);
        let session = Session::new(&run, texts, &folder, ranks, flags.all_reduce);
        let mut session = session.or_else(usage)?;
        if let Some(file) = file {
            session.trainer.load(&file).or_failed("cannot load")?;
        }
        let log = ranks.is_first().then(|| Log::open(&folder, run.step)).transpose()?;
        signals::watch(session.last_words())?;
        Ok((session, log))
    };
    let (mut session, mut log) = ranks.agree(prepare())?;
    ranks.check_same(&same(&run, &text))?;
    let recipe = &run.recipe;
    with_matmul_precision(recipe.precision, || session.estimate_steps());
    if !quiet {
        introduce(&session);
    }
    if quiet && !recipe.precision.is_supported() {
        note!("Matrix multiplication in f32: this CPU does not support {}", recipe.precision);
    }
    let eval_every = flags.eval_every.unwrap_or((session.last / 8).clamp(1, 250));
    let xray = job.pages.xray(run.step, session.last)?;
    let look_every = (!flags.no_page).then(|| page::look_every(session.last, eval_every));
    if !flags.no_page {
        let limit = page::limit(ranks);
        if let Some(log) = &mut log {
            log.page = Some(RunRecord::start(&session, &log.lines, job.preset, limit));
        }
    }
    let looks = |path| AttentionLooks::new(&run, &text.beginnings()[0], path, eval_every);
    let looks = job.pages.attention_page.as_deref().filter(|_| ranks.is_first()).map(looks);
    let attention = ranks.agree(looks.transpose())?;
    let keep = (flags.keep_every.unwrap_or(eval_every), flags.keep_size.unwrap_or(KEEP_SIZE));
    let plan = Plan { eval_every, keep, look_every, xray, attention };
    let mut progress = Progress::new(recipe, (run.step, session.last), quiet || !ranks.is_first());
    let done = with_matmul_precision(recipe.precision, || {
        let trained = training::train(&mut session, log.as_mut(), &plan, &mut progress);
        progress.end();
        if let Some(clock) = session.clock.as_ref().filter(|_| !quiet && ranks.is_first()) {
            let [used, limit] = [clock.now().used, clock.now().limit].map(duration);
            note!("clock    {used} of {limit} were used; what follows is apart");
        }
        if trained.is_err() && ranks.is_first() {
            plan.xray.note_missing(session.step());
        }
        trained?;
        let file = session.trainer.checkpoint();
        if let Some(page) = log.as_mut().and_then(|log| log.page.as_mut()) {
            page.before_evaluation(&session);
        }
        let done = finish::finish(&session, log.as_mut(), (flags, quiet));
        match (file, &mut log) {
            (Some(file), Some(log)) => done.or_else(|stop| rescue(&session, &file, log, stop)),
            _ => done,
        }
    });
    if memory.is_some() && !quiet && ranks.is_first() {
        note!("memory   {}", memory::peaks());
    }
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
        ("recipe", run.recipe.to_json().to_string()),
        ("step", run.step.to_string()),
        ("arithmetic", run.recipe.arithmetic()),
    ]
}

/// The run before its first step, with its text, and without a folder.
pub fn new_run(args: &NewRun) -> Result<(Run, Text, Corpus)> {
    let parent = args.init_from.as_deref();
    let parent = parent.map(|path| Parent::load(path, args.given("tokenizer"))).transpose()?;
    let base = parent.as_ref().map_or_else(|| Preset::Tales.recipe(), |p| p.run.recipe.clone());
    let mut recipe = args.recipe(&base);
    recipe.check()?;
    if let Some(parent) = &parent {
        parent.check(&recipe, args)?;
        recipe.tokenizer = base.tokenizer;
    }
    let text = Text::read(args.data.as_deref(), None)?;
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
    let mut run = Run::new(recipe, Some(text.source.clone()), tokenizer).or_else(usage)?;
    if let Some(parent) = &parent {
        run.init_from(&parent.run, &parent.name)?;
    }
    let base = args.base.as_deref().filter(|base| base.init_from.is_none() && parent.is_none());
    if let Some(base) = base {
        run.share_weights(&new_run(base)?.0)?;
    }
    run.clock = args.minutes.map(Clock::minutes);
    if let Some(budget) = args.budget {
        let each = page::flops(&run);
        run.recipe.steps = (budget / each) as u64;
        if run.recipe.steps == 0 {
            return usage(format!("a step takes {each:.3e} operations, more than the --budget"));
        }
    }
    Ok((run, text, corpus))
}

/// Whether an earlier run ends as a new one with these flags: after the same steps, minutes or operations.
pub fn ends_as(args: &NewRun, run: &Run) -> bool {
    let limit = run.clock.map(|clock| clock.limit);
    let steps = match args.budget {
        Some(budget) => (budget / page::flops(run)) as u64,
        // The default is that of the first weights.
        None if args.init_from.is_some() => *args.given("steps").unwrap_or(&run.recipe.steps),
        None => args.recipe(&Preset::Tales.recipe()).steps,
    };
    limit == args.minutes.map(|minutes| minutes * 60.0)
        && (limit.is_some() || steps == run.recipe.steps)
}

/// A new run with its text.
pub fn fresh(args: &NewRun, pages: &PageFlags) -> Result<Beginning> {
    let (run, text, corpus) = new_run(args)?;
    if run.clock.is_none() {
        pages.xray(0, run.recipe.steps)?;
    }
    Ok(Beginning { run, text, corpus, folder: None, file: None })
}

/// The folder of a new run, with its tokenizer.
fn new_folder(run: &Run, out: Option<&Path>, ranks: &Ranks) -> Result<Folder> {
    if !ranks.is_first() {
        return Ok(Folder::of_rank_0());
    }
    let folder = Folder::fresh(out)?;
    run.tokenizer.save(folder.join("tokenizer.json")).or_else(failed)?;
    Ok(folder)
}
