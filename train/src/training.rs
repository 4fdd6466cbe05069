//! The training loop.

use crate::attention::AttentionLooks;
use crate::checkpoints::Best;
use crate::line::{Evaluation, Line};
use crate::log::Log;
use crate::progress::Progress;
use crate::rescue::rescue;
use crate::session::Session;
use crate::signals;
use crate::stop::{Result, Stop, failed};
use crate::watch::{Norms, Parts, Watch};
use crate::xray;
use retrograd::nn::checkpoint::Checkpoint;
use retrograd::prelude::*;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// What a rank tells the others after each step.
#[derive(Clone, Serialize, Deserialize)]
struct Status {
    error: Option<Stop>,
    /// The exit code of a signal.
    signal: Option<u8>,
    log_failed: bool,
}

/// Checkpoints and evaluations of a run.
pub struct Plan {
    /// Steps between evaluations.
    pub eval_every: u64,
    /// Steps between the checkpoints that are kept, and the most bytes of all of them.
    pub keep: (u64, u64),
    /// Steps between looks at the model for the page of the run, if there is one.
    pub look_every: Option<u64>,
    /// The numbers of steps after which the next one is recorded as a page.
    pub xray: xray::Plan,
    /// The attention page, on rank 0.
    pub attention: Option<AttentionLooks>,
}

/// Takes the remaining steps. Before the first step, every `eval_every` steps and after the last one,
/// the held-out loss is evaluated, always on the same windows, and a checkpoint written. The checkpoint is also
/// written on a signal and if the log cannot be written.
///
/// All ranks take the same way through this function. Rank 0 alone has a log and writes to the folder; the
/// others learn from it whether that failed.
pub fn train(
    session: &mut Session<'_>,
    mut log: Option<&mut Log>,
    plan: &Plan,
    progress: &mut Progress,
) -> Result<()> {
    let Session { run, folder, ranks, .. } = *session;
    // Before the first step. The checkpoint is saved first, so every folder with a log has one.
    let is_new = log.as_ref().is_some_and(|log| log.lines.is_empty());
    if session.step() == 0 && ranks.share(&is_new)[0] {
        let file = session.trainer.checkpoint();
        let keep = || folder.keep(0, plan.keep.1);
        ranks
            .agree(file.map_or(Ok(()), |file| session.save(folder, file).and_then(|()| keep())))?;
        let begun = Instant::now();
        let evaluation = session.evaluate()?;
        progress.evaluation(&evaluation);
        let logged =
            log.as_mut().map_or(Ok(()), |log| log.write(folder, Line::Evaluation(evaluation)));
        if let Some(page) = log.as_mut().and_then(|log| log.page.as_mut()) {
            page.evaluated(session, Some(Norms::default()));
        }
        ranks.agree(logged)?;
        session.end_evaluation(begun.elapsed());
    }
    // Before the first step, or if there is none.
    if session.step() == 0 || session.step() == session.last {
        plan.attention.iter().for_each(|looks| looks.record(session));
    }
    // The program may have been killed between the checkpoint and its copy.
    if ranks.is_first() && session.best.is_some_and(|best| best.step == session.step()) {
        folder.copy_as_best()?;
    }
    let parts = Parts::of(&run.model);
    let is_recorded = |step| ranks.is_first() && plan.xray.steps.contains(&step);
    let mut before = None;
    while session.step() < session.last {
        session.look_at_clock();
        let last = session.last;
        if is_recorded(session.step()) {
            plan.xray.write(session, before.as_ref());
        }
        let next = session.step() + 1;
        before = is_recorded(next).then(|| run.model.state_dict());
        let evaluate = next.is_multiple_of(plan.eval_every) || next == last;
        let keep = next.is_multiple_of(plan.keep.0);
        let looks = plan.look_every.is_some_and(|n| next.is_multiple_of(n) || next == last);
        let mut watch = (evaluate && looks).then(|| Watch::begin(&parts));
        let step = session.take_step(watch.as_mut());
        let mut logged = Ok(());
        if let Ok(step) = &step {
            logged = log.as_mut().map_or(Ok(()), |log| log.write(folder, Line::Step(*step)));
            progress.step(step, last);
        }
        let all = ranks.share(&Status {
            error: step.as_ref().err().cloned(),
            signal: signals::exit_code(),
            log_failed: logged.is_err(),
        });
        let errors: Vec<_> = all.iter().map(|status| status.error.clone()).collect();
        if let Some(stop) = ranks.common_error(&errors) {
            return Err(stop);
        }
        let signal = all.iter().find_map(|status| status.signal);
        let log_failed = all.iter().any(|status| status.log_failed);
        if !evaluate && !keep && signal.is_none() && !log_failed {
            continue;
        }
        let begun = Instant::now();
        let norms = watch.map(|watch| watch.end(&ranks.share(&watch.norms).concat()));
        let evaluation = evaluate.then(|| session.evaluate()).transpose();
        let mut is_best = false;
        if let Ok(Some(evaluation @ Evaluation { step, val_loss, .. })) = &evaluation {
            progress.evaluation(evaluation);
            is_best = session.best.is_none_or(|best| *val_loss < best.val_loss);
            if is_best {
                session.best = Some(Best { step: *step, val_loss: *val_loss });
            }
        }
        let saved = &*session;
        // The other ranks have no state, and wait for what rank 0 reports.
        let record = |file: &Checkpoint, log: &mut Log| {
            if let Some(evaluation) = evaluation? {
                logged = logged.and_then(|()| log.write(folder, Line::Evaluation(evaluation)));
            }
            saved.save(folder, file.clone())?;
            if let Some(page) = log.page.as_mut().filter(|_| evaluate) {
                page.evaluated(saved, norms);
            }
            if is_best {
                folder.copy_as_best()?;
            }
            if keep {
                folder.keep(saved.step(), plan.keep.1)?;
            }
            match (logged, signal) {
                (Err(why), _) => failed(format!("{}. {}", why.text, saved.stopped(folder))),
                (Ok(()), Some(code)) => Err(saved.interrupted(code)),
                (Ok(()), None) => Ok(()),
            }
        };
        let recorded = match (saved.trainer.checkpoint(), &mut log) {
            (Some(file), Some(log)) => {
                record(&file, log).or_else(|stop| rescue(saved, &file, log, stop))
            }
            _ => Ok(()),
        };
        ranks.agree(recorded)?;
        plan.attention.iter().for_each(|looks| looks.record(saved));
        if evaluate {
            session.end_evaluation(begun.elapsed());
        }
    }
    // By the clock, the run may have ended before the steps that were chosen.
    if is_recorded(session.step()) || session.clock.is_some() && plan.xray.has_after(session.step())
    {
        plan.xray.write(session, before.as_ref());
    }
    Ok(())
}
