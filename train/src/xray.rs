//! X-rays of training steps: `--xray`.

use crate::cli::Args;
use crate::folder::Folder;
use crate::output::note;
use crate::recipe::Recipe;
use crate::run::{Purpose, Run};
use crate::stop::{Result, usage};
use retrograd::autograd::sharded;
use retrograd::nn::StateDict;
use retrograd::nn::text::{Batch, Corpus};
use retrograd::prelude::*;
use retrograd::study::{RecordedStep, XRay};
use retrograd::tensor::machine::Roofline;

/// What is recorded of a run.
pub struct Plan {
    /// Numbers of steps taken before.
    pub steps: Vec<u64>,
    /// Elements of each gradient that are compared with central differences.
    checks: usize,
}

impl Plan {
    /// Of a run that goes on after `first` steps, and ends after `last`: the chosen ones, all of which must come, or
    /// the first one and the one after the last.
    pub fn of(args: &Args, first: u64, last: u64) -> Result<Plan> {
        let steps = match &args.xray {
            None => Vec::new(),
            Some(steps) if steps.is_empty() => vec![first, last],
            Some(steps) => steps.clone(),
        };
        match steps.iter().find(|step| !(first..=last).contains(step)) {
            Some(step) => usage(format!(
                "--xray {step} is no step of this run, which has taken {first}, and ends after {last}"
            )),
            None => Ok(Plan { steps, checks: args.xray_check }),
        }
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
    pub fn write(&self, run: &Run, before: Option<&StateDict>, corpus: &Corpus, folder: &Folder) {
        let path = folder.xray(run.step);
        match page(run, before, corpus, self.checks).write(&path) {
            Ok(()) => note!("X-ray of step {}: {}", run.step, path.display()),
            Err(why) => {
                note!("warning: cannot write the X-ray of step {}: {why}", run.step);
            }
        }
    }
}

fn page(run: &Run, before: Option<&StateDict>, corpus: &Corpus, checks: usize) -> RecordedStep {
    let Recipe { batch, context, shards, .. } = run.recipe;
    let seed = |purpose| run.recipe.seed_for(purpose);
    let Batch { tokens, targets } = corpus.batch(seed(Purpose::Batches), run.step, batch, context);
    let title = match run.step < run.recipe.steps {
        true => format!("Step {} of a run of {}", run.step + 1, run.recipe.steps),
        false => format!("The step after a run of {}", run.recipe.steps),
    };
    let mut xray = XRay::of(&run.model).title(&title).limits(Roofline::measure()).checked(checks);
    if let Some(before) = before {
        xray = xray.updates(&run.model, before);
    }
    xray.record(|| {
        let mut pass = Pass::train_step(seed(Purpose::Dropout), run.step);
        let shards = run.model.shards(&tokens, &targets, shards, &mut pass);
        sharded(shards.counts(), |i| shards.loss(i))
    })
}
