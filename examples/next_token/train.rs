//! The training loop.

use crate::checkpoints::Best;
use crate::evaluate::{metrics, spread};
use crate::folder::Folder;
use crate::log::{Evaluation, Line, Log, Step};
use crate::plots::draw_loss_curve;
use crate::progress::Progress;
use crate::recipe::{CLIP, Recipe};
use crate::rescue::{interrupted, rescue, stopped};
use crate::run::{Purpose, Run};
use crate::signals::StopRequest;
use crate::stop::{Result, failed};
use retrograd::nn::optim::StepError;
use retrograd::nn::text::{Batch, Corpus, Window};
use retrograd::prelude::*;
use std::time::Instant;

/// Checkpoints and evaluations of a run.
pub struct Plan {
    /// Steps between evaluations.
    pub eval_every: u64,
    /// How many checkpoints of evaluations are kept, beside the last and the best one.
    pub keep: Option<usize>,
}

/// Takes the remaining steps. Before the first step, every `eval_every` steps and after the last one,
/// the held-out loss is evaluated, always on the same windows, a checkpoint written and the loss curve
/// drawn. The same, without the evaluation, happens on a signal and if the log cannot be written.
pub fn train(
    run: &mut Run,
    corpus: &Corpus,
    folder: &Folder,
    plan: &Plan,
    log: &mut Log,
    progress: &mut Progress,
    request: &StopRequest,
) -> Result<()> {
    let windows = spread(&corpus.windows(run.recipe.context));
    let last = run.recipe.steps;
    // Before the first step. The checkpoint is saved first, so every folder with a log has one.
    if run.step == 0 && log.lines.is_empty() {
        run.save(folder)?;
        let evaluation = evaluation(run, &windows, folder, progress)?;
        log.write(folder, Line::Evaluation(evaluation))?;
    }
    // The program may have been killed between the checkpoint and its copy.
    if run.best.is_some_and(|best| best.step == run.step) {
        folder.copy_as_best()?;
    }
    while run.step < last {
        let step = take_step(run, corpus, folder)?;
        let mut record = || {
            let mut logged = log.write(folder, Line::Step(step));
            progress.step(&step);
            let evaluate = run.step.is_multiple_of(plan.eval_every) || run.step == last;
            let mut is_best = false;
            if evaluate {
                let evaluation = evaluation(run, &windows, folder, progress)?;
                let Evaluation { step, val_loss, .. } = evaluation;
                is_best = run.best.is_none_or(|best| val_loss < best.val_loss);
                if is_best {
                    run.best = Some(Best { step, val_loss });
                }
                logged = logged.and_then(|()| log.write(folder, Line::Evaluation(evaluation)));
            }
            let stop = request.exit_code();
            if evaluate || stop.is_some() || logged.is_err() {
                run.save(folder)?;
                draw_loss_curve(folder, log)?;
            }
            if is_best {
                folder.copy_as_best()?;
            }
            if let Some(count) = plan.keep.filter(|_| evaluate) {
                folder.keep(run.step, count)?;
            }
            match (logged, stop) {
                (Err(why), _) => failed(format!("{}. {}", why.text(), stopped(run, folder))),
                (Ok(()), Some(code)) => Err(interrupted(run, folder, code)),
                (Ok(()), None) => Ok(()),
            }
        };
        record().or_else(|stop| rescue(run, folder, log, stop))?;
    }
    Ok(())
}

/// One step: batch, loss, gradients, clipping, update.
pub fn take_step(run: &mut Run, corpus: &Corpus, folder: &Folder) -> Result<Step> {
    let start = Instant::now();
    let Recipe { batch, context, .. } = run.recipe;
    let (step, lr) = (run.step, run.recipe.schedule().lr(run.step));
    let seed = |purpose| run.recipe.seed_for(purpose);
    let Batch { tokens, targets } = corpus.batch(seed(Purpose::Batches), step, batch, context);
    let mut pass = Pass::train_step(seed(Purpose::Dropout), step);

    let (loss, mut grads) = run.model.loss_and_gradients(&tokens, &targets, &mut pass);
    let value = f64::from(loss);
    run.step += 1;
    if !value.is_finite() {
        return run.diverged(folder, format!("the loss is {value}"));
    }
    let grad_norm = grads.clip_norm(CLIP);
    run.optimizer.set_lr(lr);
    match run.optimizer.step(&grads) {
        Ok(()) => {}
        Err(StepError::NotFinite(names)) => {
            let all = names.len();
            let why = format!("the gradient of {} is not finite ({all} such parameters)", names[0]);
            return run.diverged(folder, why);
        }
        Err(e) => return failed(e),
    }
    let seconds = start.elapsed().as_secs_f64();
    let tokens_per_s = (batch * context) as f64 / seconds;
    Ok(Step { step: run.step, loss: value, lr, grad_norm, ms: seconds * 1e3, tokens_per_s })
}

/// The loss on some held-out windows.
fn evaluation(
    run: &Run,
    windows: &[Window<'_>],
    folder: &Folder,
    progress: &mut Progress,
) -> Result<Evaluation> {
    let never = StopRequest::default();
    let metrics = metrics(&run.model, windows, &never).unwrap_or_default();
    let val_loss = metrics.loss();
    if !val_loss.is_finite() {
        return run.diverged(folder, format!("the loss on held-out text is {val_loss}"));
    }
    let bits_per_byte = Some(metrics.bits_per_byte());
    let evaluation = Evaluation { step: run.step, val_loss, bits_per_byte };
    progress.evaluation(&evaluation);
    Ok(evaluation)
}
