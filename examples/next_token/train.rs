//! The training loop.

use crate::corpus::{Batch, Corpus};
use crate::folder::Folder;
use crate::log::{Evaluation, Line, Log, Step};
use crate::progress::Progress;
use crate::recipe::{CLIP, Recipe};
use crate::rescue::{interrupted, rescue, stopped};
use crate::run::{Purpose, Run};
use crate::signals::StopRequest;
use crate::stop::{Result, failed};
use retrograd::nn::optim::StepError;
use retrograd::prelude::*;
use std::time::Instant;

/// The number of held-out windows in an evaluation during training.
const EVAL_WINDOWS: usize = 64;
/// Held-out windows per batch.
const EVAL_BATCH: usize = 32;

/// Takes the remaining steps. Before the first step and every `eval_every` steps, the held-out loss
/// is evaluated and a checkpoint written. A checkpoint is also written after the last step, on a
/// signal, and if the log cannot be written.
pub fn train(
    run: &mut Run,
    corpus: &Corpus,
    folder: &Folder,
    eval_every: u64,
    log: &mut Log,
    progress: &mut Progress,
    request: &StopRequest,
) -> Result<()> {
    let windows = corpus.windows(run.recipe.context);
    let windows = spread(&windows, EVAL_WINDOWS);
    let last = run.recipe.steps;
    // Before the first step. The checkpoint is saved first, so every folder with a log has one.
    if run.step == 0 && log.lines.is_empty() {
        run.save(folder)?;
        log.write(folder, evaluation(run, &windows, folder, progress)?)?;
    }
    while run.step < last {
        let step = take_step(run, corpus, folder)?;
        let mut record = || {
            let mut logged = log.write(folder, Line::Step(step));
            progress.step(&step);
            // The last evaluation uses all of the held-out text, and is not part of the loop.
            let evaluate = run.step.is_multiple_of(eval_every) && run.step < last;
            if evaluate {
                let line = evaluation(run, &windows, folder, progress)?;
                logged = logged.and_then(|()| log.write(folder, line));
            }
            let stop = request.exit_code();
            if evaluate || stop.is_some() || run.step == last || logged.is_err() {
                run.save(folder)?;
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
fn take_step(run: &mut Run, corpus: &Corpus, folder: &Folder) -> Result<Step> {
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

/// The loss on some held-out windows, as a line of the log.
fn evaluation(
    run: &Run,
    windows: &[&[i64]],
    folder: &Folder,
    progress: &mut Progress,
) -> Result<Line> {
    let never = StopRequest::default();
    let val_loss = held_out_loss(&run.model, windows, &never).unwrap_or(f64::NAN);
    if !val_loss.is_finite() {
        return run.diverged(folder, format!("the loss on held-out text is {val_loss}"));
    }
    let evaluation = Evaluation { step: run.step, val_loss };
    progress.evaluation(&evaluation);
    Ok(Line::Evaluation(evaluation))
}

/// The mean loss over the targets of all windows; `None` if a signal was received.
pub fn held_out_loss(model: &Gpt, windows: &[&[i64]], request: &StopRequest) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0);
    // The last window may be shorter, and is then a batch of its own.
    let equal = windows.chunk_by(|a, b| a.len() == b.len());
    for group in equal.flat_map(|windows| windows.chunks(EVAL_BATCH)) {
        if request.is_made() {
            return None;
        }
        let Batch { tokens, targets } = Batch::new(group.iter().copied());
        let loss = no_grad(|| model.loss(&tokens, &targets, &mut Pass::eval()));
        sum += f64::from(loss.item()) * tokens.numel() as f64;
        count += tokens.numel();
    }
    Some(sum / count as f64)
}

/// At most `n` of the windows, evenly spread.
fn spread<'a>(windows: &[&'a [i64]], n: usize) -> Vec<&'a [i64]> {
    let n = n.min(windows.len());
    (0..n).map(|i| windows[i * windows.len() / n]).collect()
}
