//! The training loop.

use crate::agree::Status;
use crate::attention_page::AttentionLooks;
use crate::checkpoints::Best;
use crate::evaluate::{metrics, spread};
use crate::folder::Folder;
use crate::line::{Evaluation, Line, PerByte, Step};
use crate::log::Log;
use crate::progress::Progress;

use crate::recipe::{CLIP, Recipe};
use crate::rescue::{interrupted, rescue, stopped};
use crate::run::{Purpose, Run, Training};
use crate::signals::StopRequest;
use crate::stop::{Result, failed};
use crate::watch::{Norms, Parts, Watch};
use crate::xray;
use retrograd::nn::StateDict;
use retrograd::nn::optim::StepError;
use retrograd::nn::text::{Batch, Corpus, Window};
use retrograd::prelude::*;
use std::time::{Duration, Instant};

/// Checkpoints and evaluations of a run.
pub struct Plan {
    /// Steps between evaluations.
    pub eval_every: u64,
    /// How many checkpoints of evaluations are kept, beside the last and the best one.
    pub keep: Option<usize>,
    /// Steps between looks at the model for the page of the run, if there is one.
    pub look_every: Option<u64>,
    /// The numbers of steps after which the next one is recorded as a page.
    pub xray: xray::Plan,
    /// The attention page, on rank 0.
    pub attention: Option<AttentionLooks>,
}

/// Takes the remaining steps. Before the first step, every `eval_every` steps and after the last one,
/// the held-out loss is evaluated, always on the same windows, a checkpoint written and the loss curve
/// drawn. The same, without the evaluation, happens on a signal and if the log cannot be written.
///
/// All ranks take the same way through this function. Rank 0 alone has a log and writes to the folder; the
/// others learn from it whether that failed.
pub fn train(
    run: &mut Run,
    corpus: &Corpus,
    folder: &Folder,
    mut log: Option<&mut Log>,
    plan: &Plan,
    progress: &mut Progress,
    request: &StopRequest,
) -> Result<()> {
    let ranks = run.training.ranks.clone();
    let held_out = (spread(&corpus.windows(run.recipe.context)), corpus.lost_share());
    let last = run.recipe.steps;
    // Before the first step. The checkpoint is saved first, so every folder with a log has one.
    let is_new = log.as_ref().is_some_and(|log| log.lines.is_empty());
    if run.step == 0 && ranks.share(&is_new)[0] {
        let saved = run.optimizer_state().map_or(Ok(()), |state| run.save(folder, &state));
        ranks.agree(saved)?;
        let evaluation = evaluation(run, &held_out, folder, progress)?;
        let logged =
            log.as_mut().map_or(Ok(()), |log| log.write(folder, Line::Evaluation(evaluation)));
        if let Some(page) = log.as_mut().and_then(|log| log.page.as_mut()) {
            page.evaluated(run, folder, Some(Norms::default()));
        }
        ranks.agree(logged)?;
    }
    // Before the first step, or if there is none.
    if run.step == 0 || run.step == last {
        plan.attention.iter().for_each(|looks| looks.record(run));
    }
    // The program may have been killed between the checkpoint and its copy.
    if ranks.is_first() && run.best.is_some_and(|best| best.step == run.step) {
        folder.copy_as_best()?;
    }
    let parts = Parts::of(&run.model);
    let is_recorded = |step| ranks.is_first() && plan.xray.steps.contains(&step);
    let mut before = None;
    while run.step < last {
        if is_recorded(run.step) {
            plan.xray.write(run, before.as_ref(), corpus, folder);
        }
        let next = run.step + 1;
        before = is_recorded(next).then(|| run.model.state_dict());
        let evaluate = next.is_multiple_of(plan.eval_every) || next == last;
        let looks = plan.look_every.is_some_and(|n| next.is_multiple_of(n) || next == last);
        let mut watch = (evaluate && looks).then(|| Watch::begin(&parts));
        let step = take_step(run, corpus, folder, watch.as_mut());
        let mut logged = Ok(());
        if let Ok(step) = &step {
            logged = log.as_mut().map_or(Ok(()), |log| log.write(folder, Line::Step(*step)));
            progress.step(step);
        }
        let all = ranks.share(&Status {
            error: step.as_ref().err().map(|stop| (stop.code(), stop.text().to_string())),
            signal: request.exit_code(),
            log_failed: logged.is_err(),
        });
        let errors: Vec<_> = all.iter().map(|status| status.error.clone()).collect();
        if let Some(stop) = ranks.common_error(&errors) {
            return Err(stop);
        }
        let signal = all.iter().find_map(|status| status.signal);
        let log_failed = all.iter().any(|status| status.log_failed);
        if !evaluate && signal.is_none() && !log_failed {
            continue;
        }
        let norms = watch.map(|watch| watch.end(&ranks.share(&watch.norms).concat()));
        let evaluation = evaluate.then(|| evaluation(run, &held_out, folder, progress)).transpose();
        let is_best = match evaluation {
            Ok(Some(Evaluation { step, val_loss, .. })) => {
                let is_best = run.best.is_none_or(|best| val_loss < best.val_loss);
                if is_best {
                    run.best = Some(Best { step, val_loss });
                }
                is_best
            }
            _ => false,
        };
        // The other ranks have no state, and wait for what rank 0 reports.
        let record = |state: &StateDict, log: &mut Log| {
            if let Some(evaluation) = evaluation? {
                logged = logged.and_then(|()| log.write(folder, Line::Evaluation(evaluation)));
            }
            run.save(folder, state)?;
            if let Some(page) = log.page.as_mut().filter(|_| evaluate) {
                page.evaluated(run, folder, norms);
            }
            if is_best {
                folder.copy_as_best()?;
            }
            if let Some(count) = plan.keep.filter(|_| evaluate) {
                folder.keep(run.step, count)?;
            }
            match (logged, signal) {
                (Err(why), _) => failed(format!("{}. {}", why.text(), stopped(run, folder))),
                (Ok(()), Some(code)) => Err(interrupted(run, folder, code)),
                (Ok(()), None) => Ok(()),
            }
        };
        let recorded = match (run.optimizer_state(), &mut log) {
            (Some(state), Some(log)) => {
                record(&state, log).or_else(|stop| rescue(run, &state, folder, log, stop))
            }
            _ => Ok(()),
        };
        ranks.agree(recorded)?;
        plan.attention.iter().for_each(|looks| looks.record(run));
    }
    if is_recorded(last) {
        plan.xray.write(run, before.as_ref(), corpus, folder);
    }
    Ok(())
}

/// One step: batch, loss, gradients, clipping, update. An error may be that of this rank alone. `watch` observes
/// the step; its time does not count.
pub fn take_step(
    run: &mut Run,
    corpus: &Corpus,
    folder: &Folder,
    mut watch: Option<&mut Watch<'_>>,
) -> Result<Step> {
    let start = Instant::now();
    let Recipe { batch, context, shards, .. } = run.recipe;
    let (step, lr) = (run.step, run.recipe.schedule().lr(run.step));
    let seed = |purpose| run.recipe.seed_for(purpose);
    let Batch { tokens, targets } = corpus.batch(seed(Purpose::Batches), step, batch, context);
    let mut pass = Pass::train_step(seed(Purpose::Dropout), step);

    let Training { parallel, optimizer, .. } = &mut run.training;
    let shards = run.model.shards(&tokens, &targets, shards, &mut pass);
    let (loss, mut grads) = parallel.gradients(shards.counts(), |i| shards.loss(i));
    let value = f64::from(loss);
    run.step += 1;
    if !value.is_finite() {
        return run.diverged(folder, format!("the loss is {value}"));
    }
    if let Some(watch) = &mut watch {
        watch.gradients(&grads);
    }
    let grad_norm = parallel.clip_norm(&mut grads, CLIP);
    optimizer.set_lr(lr);
    let stepped = optimizer.step(&grads);
    parallel.share_parameters();
    let exchange = parallel.timing();
    // The same text on all ranks.
    match stepped.map_err(|e| if let StepError::OtherRank(_, e) = e { *e } else { e }) {
        Ok(()) => {}
        Err(StepError::NotFinite(names)) => {
            let all = names.len();
            let why = format!("the gradient of {} is not finite ({all} such parameters)", names[0]);
            return run.diverged(folder, why);
        }
        Err(e) => return failed(e),
    }
    let aside = watch.map_or(Duration::ZERO, |watch| watch.gradients_time);
    let seconds = start.elapsed().saturating_sub(aside).as_secs_f64();
    let tokens_per_s = (batch * context) as f64 / seconds;
    let ms = |time: Duration| (run.training.ranks.count() > 1).then_some(time.as_secs_f64() * 1e3);
    Ok(Step {
        step: run.step,
        loss: value,
        lr,
        grad_norm,
        ms: seconds * 1e3,
        tokens_per_s,
        exchange_ms: ms(exchange.total),
        exposed_ms: ms(exchange.exposed),
    })
}

/// The loss on some held-out windows.
fn evaluation(
    run: &Run,
    (windows, lost_share): &(Vec<Window<'_>>, f64),
    folder: &Folder,
    progress: &mut Progress,
) -> Result<Evaluation> {
    let never = StopRequest::default();
    let ranks = &run.training.ranks;
    let metrics = metrics(&run.model, windows, ranks, &never).unwrap_or_default();
    let val_loss = metrics.loss();
    if !val_loss.is_finite() {
        return run.diverged(folder, format!("the loss on held-out text is {val_loss}"));
    }
    let per_byte = Some(PerByte::of(&metrics, *lost_share));
    let evaluation = Evaluation { step: run.step, val_loss, per_byte };
    progress.evaluation(&evaluation);
    Ok(evaluation)
}
