//! The first step at which something holds: `bisect`.

use crate::line::Step;
use crate::output::say;
use crate::past::{Past, Replay};
use crate::stop::{Result, usage};
use clap::Args;
use retrograd::autograd::sharded;
use retrograd::nn::Module;
use retrograd::prelude::*;
use retrograd::study::record::find_nonfinite;
use std::path::PathBuf;
use std::str::FromStr;

/// Find the first step of a run at which a condition holds
///
/// Conditions: 'loss>X' and 'gradients>X' (the norm of all), which are in the log; 'weight:NAME>X' and
/// 'gradient:NAME>X', the norm of a parameter after the step, and of its gradient; 'dead:NAME', a row or a column of
/// the gradient is 0: no token of the batch activates that unit of a ReLU layer; and nonfinite. NAME is the end of the
/// name of a parameter, as h.0.mlp.c_fc.weight. The step after each of log2(n) of n checkpoints is computed, on the
/// assumption that what holds goes on to hold, and then the steps between two checkpoints.
#[derive(Args, Debug)]
pub struct Bisect {
    /// The folder of the run
    #[arg(value_name = "DIR")]
    run: PathBuf,

    /// What must hold, such as 'loss>4' or 'weight:wte.weight>30'
    condition: Condition,

    /// The text of the run, if it has been moved
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
}

#[derive(Clone, Debug)]
enum Condition {
    Loss(f64),
    Gradients(f64),
    Weight(String, f64),
    Gradient(String, f64),
    Dead(String),
    NonFinite,
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (what, limit) = text.split_once('>').map_or((text, None), |(a, b)| (a, Some(b)));
        let limit = limit.map(|x| x.parse().map_err(|_| format!("{x:?} is not a number")));
        let limit = limit.transpose()?;
        let (what, name) = what.split_once(':').map_or((what, None), |(a, b)| (a, Some(b.into())));
        match (what, name, limit) {
            ("loss", None, Some(x)) => Ok(Condition::Loss(x)),
            ("gradients", None, Some(x)) => Ok(Condition::Gradients(x)),
            ("weight", Some(name), Some(x)) => Ok(Condition::Weight(name, x)),
            ("gradient", Some(name), Some(x)) => Ok(Condition::Gradient(name, x)),
            ("dead", Some(name), None) => Ok(Condition::Dead(name)),
            ("nonfinite", None, None) => Ok(Condition::NonFinite),
            _ => Err("not one of loss>X, gradients>X, weight:NAME>X, gradient:NAME>X, dead:NAME, nonfinite".into()),
        }
    }
}

/// Searches the step.
pub fn bisect(args: &Bisect) -> Result<()> {
    let past = Past::open(&args.run, args.data.as_deref())?;
    let logged = |value: fn(&Step) -> f64, limit: f64| {
        let found = past.steps.values().find(|step| value(step) > limit);
        match found {
            Some(step) => {
                say!("Step {}: {}, by the log; no step was computed", step.step, value(step))
            }
            None => say!("At no step of the log"),
        }
    };
    match &args.condition {
        Condition::Loss(x) => logged(|step| step.loss, *x),
        Condition::Gradients(x) => logged(|step| step.grad_norm, *x),
        condition => with_matmul_precision(past.run.recipe.precision, || search(&past, condition))?,
    }
    Ok(())
}

/// Searches by computing steps.
fn search(past: &Past, condition: &Condition) -> Result<()> {
    let mut replay = past.replay()?;
    let last = past.last() - 1;
    if let Condition::NonFinite = condition {
        replay.go_to(last)?;
        let shards = replay.session.trainer.shards();
        let (_, found) = find_nonfinite(|| drop(sharded(shards.counts(), |i| shards.loss(i))));
        let taken = replay.taken + 1;
        match found {
            Some(first) => say!("Step {}: {first}. {taken} steps were computed", last + 1),
            None => say!(
                "At no step: the one after the log is finite, too. {taken} steps were computed"
            ),
        }
        return Ok(());
    }
    let (name, param) = parameter(&past.run.model, condition)?;
    let mut holds =
        |step: u64| -> Result<Option<f64>> { value(&mut replay, step, condition, &param) };
    // Of the steps after checkpoints, the last one at which it does not hold.
    let from: Vec<u64> = past.checkpoints.keys().copied().filter(|&from| from < last).collect();
    let (mut low, mut high) = (0, from.len());
    while low < high {
        let middle = low.midpoint(high);
        if holds(from[middle] + 1)?.is_some() { high = middle } else { low = middle + 1 }
    }
    let first = if low == 0 { from.first().map_or(1, |from| from + 1) } else { from[low - 1] + 2 };
    let mut found = None;
    for step in first..=last {
        if let Some(x) = holds(step)? {
            found = Some((step, x));
            break;
        }
    }
    let taken = replay.taken;
    match found {
        Some((step, x)) => say!(
            "Step {step}: {} of {name}. {taken} of {last} steps were computed",
            words(condition, x)
        ),
        None => say!("At no step. {taken} of {last} steps were computed"),
    }
    replay.check()
}

/// What was found, in words.
fn words(condition: &Condition, x: f64) -> String {
    match condition {
        Condition::Dead(_) => format!("{x} rows or columns of the gradient are 0,"),
        Condition::Weight(..) => format!("norm {x}"),
        _ => format!("gradient norm {x}"),
    }
}

/// The parameter that a condition names.
fn parameter(model: &Gpt, condition: &Condition) -> Result<(String, Param)> {
    let (Condition::Weight(end, _) | Condition::Gradient(end, _) | Condition::Dead(end)) =
        condition
    else {
        unreachable!("the others name none")
    };
    let mut found = Vec::new();
    let mut all = Vec::new();
    model.for_each_parameter(&mut |name, param| {
        all.push(name.to_string());
        if name == end || name.ends_with(&format!(".{end}")) {
            found.push((name.to_string(), param.clone()));
        }
    });
    if found.len() == 1 {
        return Ok(found.remove(0));
    }
    let n = found.len();
    let names = if n == 0 { all } else { found.into_iter().map(|(name, _)| name).collect() };
    usage(format!("{n} parameters end in {end:?}; there are {}", names.join(", ")))
}

/// Takes a step; what the condition looks at, if it holds.
fn value(
    replay: &mut Replay<'_>,
    step: u64,
    condition: &Condition,
    param: &Param,
) -> Result<Option<f64>> {
    replay.go_to(step - 1)?;
    let mut gradient = None;
    replay.step(|grads| gradient = grads.get(param).cloned())?;
    let norm = |x: &Tensor| f64::from(x.square().sum(..).item()).sqrt();
    let (x, limit) = match (condition, &gradient) {
        (Condition::Weight(_, limit), _) => (norm(&param.value()), *limit),
        (Condition::Gradient(_, limit), Some(gradient)) => (norm(gradient), *limit),
        (_, Some(gradient)) => (zeros(gradient) as f64, 0.0),
        (_, None) => (0.0, 0.0),
    };
    Ok((x > limit).then_some(x))
}

/// The rows and columns of a matrix that are 0.
fn zeros(x: &Tensor) -> usize {
    let lines = |axis| x.abs().sum(axis).to_vec().into_iter().filter(|&sum| sum == 0.0).count();
    if x.rank() == 2 { lines(0) + lines(1) } else { 0 }
}
