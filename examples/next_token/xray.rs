//! X-rays of training steps: `--xray`.

use crate::folder::Folder;
use crate::output::note;
use crate::recipe::Recipe;
use crate::run::{Purpose, Run};
use retrograd::autograd::sharded;
use retrograd::nn::text::{Batch, Corpus};
use retrograd::nn::{StateDict, XRay};
use retrograd::prelude::*;
use retrograd::study::RecordedStep;
use retrograd::tensor::machine::Roofline;

/// The steps of a run that are recorded.
pub fn steps(chosen: &Option<Vec<u64>>, last: u64) -> Vec<u64> {
    match chosen {
        None => Vec::new(),
        Some(steps) if steps.is_empty() => vec![0, last],
        Some(steps) => steps.clone(),
    }
}

/// Writes a page of the next step: its forward and backward pass, event by event, with values. It takes
/// no step, and changes nothing in the run. A page that cannot be written does not end the training.
///
/// `before` are the parameters before the last step, whose update the page shows.
pub fn write(run: &Run, before: Option<&StateDict>, corpus: &Corpus, folder: &Folder) {
    let path = folder.xray(run.step);
    match page(run, before, corpus).write(&path) {
        Ok(()) => note!("X-ray of step {}: {}", run.step, path.display()),
        Err(why) => {
            note!("warning: cannot write the X-ray of step {}: {why}", run.step);
        }
    }
}

fn page(run: &Run, before: Option<&StateDict>, corpus: &Corpus) -> RecordedStep {
    let Recipe { batch, context, shards, .. } = run.recipe;
    let seed = |purpose| run.recipe.seed_for(purpose);
    let Batch { tokens, targets } = corpus.batch(seed(Purpose::Batches), run.step, batch, context);
    let title = format!("Step {} of a run of {}", run.step + 1, run.recipe.steps);
    let mut xray = XRay::of(&run.model).title(&title).limits(Roofline::measure());
    if let Some(before) = before {
        xray = xray.updates(&run.model, before);
    }
    xray.record(|| {
        let mut pass = Pass::train_step(seed(Purpose::Dropout), run.step);
        let shards = run.model.shards(&tokens, &targets, shards, &mut pass);
        sharded(shards.counts(), |i| shards.loss(i))
    })
}
