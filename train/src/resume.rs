//! A run that goes on: `resume`.

use crate::flags::{NewRun, RunFlags};
use crate::folder::Folder;
use crate::output::note;
use crate::ranks::Ranks;
use crate::run::Run;
use crate::stop::{Result, usage};
use crate::train::{Beginning, Job, train_run};
use crate::values::count;
use crate::xray::PageFlags;
use clap::Args;
use std::path::{Path, PathBuf};

/// Go on with a run that was stopped, or train it for more steps
///
/// Of its hyperparameters only --steps can be changed. The learning rate is then, from the next step on, that of a
/// run of so many steps: after more steps it rises again, and the run differs from one that had so many steps from
/// the beginning.
#[derive(Args, Debug)]
pub struct Resume {
    /// The run [default: the latest out/run..]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Training steps, those before included [default: those of the run]
    #[arg(long, value_name = "N", value_parser = count(100_000_000))]
    steps: Option<u64>,

    /// The text of the run, if it has been moved
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,

    #[command(flatten)]
    pub run: RunFlags,

    #[command(flatten)]
    pages: PageFlags,
}

/// Trains to the last step.
pub fn resume(args: &Resume, quiet: bool, ranks: &Ranks) -> Result<()> {
    let job = Job { flags: &args.run, quiet, pages: &args.pages, preset: None, out: None };
    let earlier = || earlier(args.out.as_deref(), args.steps, args.data.as_deref(), None, ranks);
    train_run(earlier, &job, ranks)
}

/// The run to be resumed, with its text and its folder.
///
/// # Errors
/// If the text differs, or the hyperparameters from those of `flags`.
pub fn earlier(
    out: Option<&Path>,
    steps: Option<u64>,
    data: Option<&Path>,
    flags: Option<&NewRun>,
    ranks: &Ranks,
) -> Result<Beginning> {
    let mut folder = Folder::earlier(out)?;
    if ranks.is_first() {
        folder.lock()?;
    }
    let (mut run, file) = Run::load(&folder.checkpoint()).inspect_err(|_| folder.note_whole())?;
    let (before, now) = (run.history.arithmetic.clone(), run.recipe.arithmetic());
    if !before.is_empty() && before != now {
        note!(
            "note: the run was trained with {before}, and goes on with {now}: its last bits will differ from those \
             of a run on one machine"
        );
    }
    run.history.arithmetic = now;
    let changed = flags.map_or_else(Vec::new, |flags| {
        run.recipe.differences(&flags.recipe(&run.recipe), &["steps"])
    });
    if !changed.is_empty() {
        return usage(format!(
            "the run in {} cannot be resumed with other hyperparameters:\n  {}",
            folder.name(),
            changed.join("\n  ")
        ));
    }
    let steps = steps.unwrap_or(run.recipe.steps);
    if steps < run.step {
        return usage(format!(
            "the run in {} has taken {} steps already, so it cannot end after {steps}; --steps counts \
             those before, too",
            folder.name(),
            run.step,
        ));
    }
    if run.clock.is_some() && steps != run.recipe.steps {
        note!("note: the run was trained by the clock; it goes on by the number of steps");
        run.clock = None;
    }
    if steps != run.recipe.steps {
        run.change_steps(steps);
    }
    let (text, corpus) = run.text(&folder, data)?;
    if ranks.is_first() {
        folder.remove_temporary_files();
    }
    Ok(Beginning { run, text, corpus, folder: Some(folder), file: Some(file) })
}
