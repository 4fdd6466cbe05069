//! A step of a run again: `replay`.

use crate::attention;
use crate::diff::beside_f64;
use crate::output::say;
use crate::past::{Past, PastArgs, Replay};
use crate::stop::{OrFailed, Result};
use crate::watch::{Parts, Watch};
use crate::xray;
use clap::Args;
use retrograd::nn::training;
use retrograd::prelude::*;

/// Compute a step of a run again, from the nearest checkpoint that was kept, and compare its bits with the log
///
/// The run may be finished, killed, or still running. Loss, gradient norm and weights must have the bits of the log,
/// on any number of threads, and at any SIMD level with FMA.
#[derive(Args, Debug)]
pub struct ReplayStep {
    #[command(flatten)]
    past: PastArgs,

    /// The number of the step, from 1
    #[arg(value_name = "STEP")]
    step: u64,

    /// Write a page of the step, event by event: xray-N.html, after N steps
    #[arg(long)]
    xray: bool,

    /// Write a page of the attention within the first sequence of the batch: attention-N.html
    #[arg(long)]
    attention: bool,

    /// Print the norms of the gradients and of the updates
    #[arg(long)]
    gradients: bool,

    /// Search the first NaN or infinity
    #[arg(long)]
    nonfinite: bool,

    /// Compare the step with the same one in f64, operation by operation: page f64-N.html
    #[arg(long, value_name = "f64", value_parser = ["f64"])]
    precision: Option<String>,
}

/// Takes the step.
pub fn replay(args: &ReplayStep) -> Result<()> {
    let past = args.past.open()?;
    past.check_step(args.step)?;
    with_matmul_precision(past.run.recipe.precision, || {
        let mut replay = past.replay()?;
        replay.go_to(args.step - 1)?;
        replay.check()?;
        before(&replay, args)?;
        step(&past, &mut replay, args)
    })
}

/// Looks at the step before it is taken.
fn before(replay: &Replay<'_>, args: &ReplayStep) -> Result<()> {
    let (session, n) = (&replay.session, args.step - 1);
    if args.xray {
        let path = session.folder.join(&xray::page_of(n));
        let page = xray::record(session, None, 0);
        page.write(&path).or_failed(format!("cannot write {}", path.display()))?;
        say!("The page of step {} is {}", args.step, path.display());
    }
    if args.attention {
        let path = session.folder.join(&format!("attention-{n}.html"));
        let tokens = session.trainer.batch().tokens.select(0, 0).to_vec();
        attention::of_sample(session.run, n, tokens.len(), &tokens, &path)?;
    }
    if args.nonfinite {
        match replay.first_nonfinite() {
            Some(first) => say!("{first}"),
            None => say!("All values and gradients of step {} are finite", args.step),
        }
    }
    if args.precision.is_some() {
        beside_f64(replay, &session.folder.join(&format!("f64-{n}.html")))?;
    }
    Ok(())
}

/// Takes the step, and says what it was.
fn step(past: &Past, replay: &mut Replay<'_>, args: &ReplayStep) -> Result<()> {
    let parts = Parts::of(&past.run.model);
    let mut watch = Watch::begin(&parts);
    let step = replay.step(|grads| watch.gradients(grads))?;
    if args.gradients {
        let norms = watch.end(&watch.norms);
        let text = |x: &Option<f64>| x.map_or("not finite".into(), |x| format!("{x:.3e}"));
        let width = parts.names.iter().map(String::len).max().unwrap_or(0);
        say!("{:<width$}  gradient norm   update / weights", "");
        for ((name, norm), update) in parts.names.iter().zip(&norms.grad_norms).zip(&norms.updates)
        {
            say!("{name:<width$}  {:>13}   {:>16}", text(norm), text(update));
        }
    }
    replay.check()?;
    let bits = match past.steps.contains_key(&step.number) {
        true => "the bits of the log",
        false => "no step of the log",
    };
    let training::Step { number, loss, grad_norm, lr, .. } = step;
    let (taken, from) = (replay.taken, replay.from.unwrap_or(0));
    say!(
        "Step {number}: loss {loss}, gradient norm {grad_norm}, learning rate {lr}: {bits}. Computed {taken} steps from the \
         checkpoint of step {from}."
    );
    Ok(())
}
