//! Pages of training steps: `xray`, and `--xray` of a run.

use crate::checkpoints::Which;
use crate::files::make_folder_of;
use crate::flags::RUN;
use crate::folder::Folder;
use crate::output::{note, say};
use crate::ranks::Ranks;
use crate::run::Run;
use crate::session::Session;
use crate::stop::{OrFailed, Result, usage};
use clap::Args;
use retrograd::autograd::sharded;
use retrograd::nn::StateDict;
use retrograd::prelude::*;
use retrograd::study::{RecordedStep, XRay};
use retrograd::tensor::machine::Roofline;
use std::path::PathBuf;

/// Record the next step of a run, forward and backward, event by event, as a page
///
/// The step is not taken.
#[derive(Args, Debug)]
pub struct Xray {
    /// The run [default: the latest out/run..]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// The checkpoint of the run: last, best, or the step of one that was kept
    #[arg(long, value_name = "NAME", default_value = "last")]
    checkpoint: Which,

    /// The text of the run, if it has been moved
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,

    /// The file of the page [default: xray-STEP.html in the folder of the run]
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,

    /// Compare N elements of the gradient of each parameter with central differences of the loss
    ///
    /// Each takes the time of about ten steps.
    #[arg(long, value_name = "N", default_value_t = 0)]
    check: usize,
}

/// The page of the step that follows so many steps.
pub fn page_of(steps: u64) -> String {
    format!("xray-{steps}.html")
}

/// Writes the page of the next step of a run.
pub fn xray(args: &Xray) -> Result<()> {
    let folder = Folder::earlier(args.out.as_deref())?;
    let (run, file) = Run::load(&folder.checkpoint_of(args.checkpoint)?)?;
    let (text, corpus) = run.text(&folder, args.data.as_deref())?;
    let ranks = Ranks::alone();
    let mut session =
        Session::new(&run, (&text, &corpus), &folder, &ranks, false).or_else(usage)?;
    session.trainer.load(&file).or_failed("cannot load")?;
    let path = args.page.clone().unwrap_or_else(|| folder.join(&page_of(run.step)));
    make_folder_of(&path)?;
    with_matmul_precision(run.recipe.precision, || record(&session, None, args.check))
        .write(&path)
        .or_failed(format!("cannot write {}", path.display()))?;
    say!("The page of step {} is {}", run.step + 1, path.display());
    Ok(())
}

/// Pages of a run, besides its own.
#[derive(Args, Clone, Debug)]
pub struct PageFlags {
    /// Also record steps as pages, as 0,100: numbers of steps taken before [default: first, last]
    ///
    /// A page in the folder of the run shows the forward and the backward pass, event by event, with values. The
    /// steps are not taken. Without a value: the first step, and the one after the last.
    #[arg(long, value_name = "STEPS", num_args = 0..=1, value_delimiter = ',', help_heading = RUN)]
    xray: Option<Vec<u64>>,

    /// With --xray: compare N elements of the gradient of each parameter with central differences
    ///
    /// The differences are those of the loss. Each takes the time of about ten steps.
    #[arg(long, value_name = "N", help_heading = RUN, requires = "xray", default_value_t = 0)]
    xray_check: usize,

    /// Also write a page of what heads attend to within a sentence, at several evaluations
    ///
    /// The sentence is one of the held-out text.
    #[arg(long, value_name = "FILE", help_heading = RUN)]
    pub attention_page: Option<PathBuf>,
}

/// What is recorded of a run.
pub struct Plan {
    /// Numbers of steps taken before.
    pub steps: Vec<u64>,
    /// Elements of each gradient that are compared with central differences.
    checks: usize,
}

impl PageFlags {
    /// Of a run that goes on after `first` steps, and ends after `last`: the chosen ones, all of which must come, or
    /// the first one and the one after the last.
    pub fn xray(&self, first: u64, last: u64) -> Result<Plan> {
        let steps = match &self.xray {
            None => Vec::new(),
            Some(steps) if steps.is_empty() => vec![first, last],
            Some(steps) => steps.clone(),
        };
        match steps.iter().find(|step| !(first..=last).contains(step)) {
            Some(step) => usage(format!(
                "--xray {step} is no step of this run, which has taken {first}, and ends after {last}"
            )),
            None => Ok(Plan { steps, checks: self.xray_check }),
        }
    }
}

impl Plan {
    /// Whether later steps were chosen.
    pub fn has_after(&self, step: u64) -> bool {
        self.steps.iter().any(|&planned| planned > step)
    }

    /// Says which pages are missing, of a run that has ended early.
    pub fn note_missing(&self, step: u64) {
        for planned in self.steps.iter().filter(|&&planned| planned > step) {
            note!("No X-ray of step {planned}: the run has ended after {step}");
        }
    }

    /// Writes a page of the next step: its forward and backward pass, event by event, with values. It takes
    /// no step, and changes nothing in the run. A page that cannot be written does not end the training.
    ///
    /// `before` are the parameters before the last step, whose update the page shows.
    pub fn write(&self, session: &Session<'_>, before: Option<&StateDict>) {
        let step = session.step();
        let path = session.folder.join(&page_of(step));
        match record(session, before, self.checks).write(&path) {
            Ok(()) => note!("X-ray of step {step}: {}", path.display()),
            Err(why) => note!("warning: cannot write the X-ray of step {step}: {why}"),
        }
    }
}

/// Records the next step, which is not taken. `before` are the parameters before the last one.
pub fn record(session: &Session<'_>, before: Option<&StateDict>, checks: usize) -> RecordedStep {
    let (run, step) = (session.run, session.step());
    let title = match step < run.recipe.steps {
        true => format!("Step {} of a run of {}", step + 1, run.recipe.steps),
        false => format!("The step after a run of {}", run.recipe.steps),
    };
    let mut xray = XRay::of(&run.model).title(&title).limits(Roofline::measure()).checked(checks);
    if let Some(before) = before {
        xray = xray.updates(&run.model, before);
    }
    xray.record(|| {
        let shards = session.trainer.shards();
        sharded(shards.counts(), |i| shards.loss(i))
    })
}
