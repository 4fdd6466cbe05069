//! The first step at which something holds: `bisect`.

use crate::line::Step;
use crate::output::say;
use crate::past::{Past, PastArgs, Replay};
use crate::stop::{Result, usage};
use crate::values::at_least_0;
use clap::Args;
use retrograd::nn::Module;
use retrograd::prelude::*;
use std::str::FromStr;

/// Find the first step of a run at which a condition holds
///
/// Conditions: 'loss>X' and 'gradients>X' (the norm of all), which are in the log; 'weight:NAME>X' and
/// 'gradient:NAME>X', the norm of a parameter after the step, and of its gradient; 'dead:NAME', a row of the gradient
/// is 0, that is, no token of the batch activates that unit of a ReLU layer; and nonfinite, the step at which the run
/// has failed. NAME is the end of the name of a parameter, as h.0.mlp.c_fc.weight. The step after each of log2(n) of n
/// checkpoints is computed, on the assumption that what holds goes on to hold, and then the steps between two
/// checkpoints.
#[derive(Args, Debug)]
pub struct Bisect {
    #[command(flatten)]
    past: PastArgs,

    /// What must hold, such as 'loss>4' or 'weight:wte.weight>30'
    condition: Condition,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Loss,
    Gradients,
    Weight,
    Gradient,
    Dead,
    NonFinite,
}

/// A quantity is above a limit.
#[derive(Clone, Debug)]
struct Condition {
    quantity: Quantity,
    /// The end of the name of a parameter.
    name: String,
    limit: f64,
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const ALL: &str =
            "loss>X, gradients>X, weight:NAME>X, gradient:NAME>X, dead:NAME, nonfinite";
        let (what, limit) = text.split_once('>').map_or((text, None), |(a, b)| (a, Some(b)));
        let (what, name) = what.split_once(':').map_or((what, None), |(a, b)| (a, Some(b)));
        let quantity = match (what, name, limit) {
            ("loss", None, Some(_)) => Quantity::Loss,
            ("gradients", None, Some(_)) => Quantity::Gradients,
            ("weight", Some(_), Some(_)) => Quantity::Weight,
            ("gradient", Some(_), Some(_)) => Quantity::Gradient,
            ("dead", Some(_), None) => Quantity::Dead,
            ("nonfinite", None, None) => Quantity::NonFinite,
            _ => return Err(format!("not one of {ALL}")),
        };
        let limit = limit.map_or(Ok(0.0), at_least_0)?;
        Ok(Condition { quantity, name: name.unwrap_or_default().into(), limit })
    }
}

/// Searches the step.
pub fn bisect(args: &Bisect) -> Result<()> {
    let past = args.past.open()?;
    let condition = &args.condition;
    let logged = |value: fn(&Step) -> f64| {
        match past.steps.values().find(|step| value(step) > condition.limit) {
            Some(step) => {
                say!("Step {}: {}, by the log; no step was computed", step.step, value(step));
            }
            None => say!("At no step of the log"),
        }
        Ok(())
    };
    match condition.quantity {
        Quantity::Loss => logged(|step| step.loss),
        Quantity::Gradients => logged(|step| step.grad_norm),
        _ => with_matmul_precision(past.run.recipe.precision, || search(&past, condition)),
    }
}

/// Searches by computing steps.
fn search(past: &Past, condition: &Condition) -> Result<()> {
    let mut replay = past.replay()?;
    let last = past.last() - 1;
    let found = if condition.quantity == Quantity::NonFinite {
        replay.go_to(last)?;
        replay.first_nonfinite().map(|first| (last + 1, first.to_string()))
    } else {
        first_step(past, &mut replay, condition)?
    };
    replay.check()?;
    let taken = replay.taken;
    match found {
        Some((step, what)) => say!("Step {step}: {what}. {taken} of {last} steps were computed"),
        None => say!("At no step. {taken} of {last} steps were computed"),
    }
    Ok(())
}

/// The first step at which a condition about a parameter holds, and what was found.
fn first_step(
    past: &Past,
    replay: &mut Replay<'_>,
    condition: &Condition,
) -> Result<Option<(u64, String)>> {
    let last = past.last() - 1;
    let (name, param) = parameter(&past.run.model, &condition.name)?;
    let mut holds = |step: u64| value(replay, step, condition, &param);
    // Of the steps after checkpoints, the last one at which it does not hold.
    let from: Vec<u64> = past.checkpoints.keys().copied().filter(|&from| from < last).collect();
    let (mut low, mut high) = (0, from.len());
    while low < high {
        let middle = low.midpoint(high);
        if holds(from[middle] + 1)?.is_some() { high = middle } else { low = middle + 1 }
    }
    let after_first = from.first().map_or(1, |from| from + 1);
    let first = if low == 0 { after_first } else { from[low - 1] + 2 };
    for step in first..=last {
        if let Some(x) = holds(step)? {
            let what = match condition.quantity {
                Quantity::Dead => format!("{x} rows of the gradient are 0, of {name}"),
                Quantity::Weight => format!("norm {x} of {name}"),
                _ => format!("gradient norm {x} of {name}"),
            };
            let earlier = if step == after_first && step > 1 { ", or before" } else { "" };
            return Ok(Some((step, what + earlier)));
        }
    }
    Ok(None)
}

/// The parameter whose name ends so.
fn parameter(model: &Gpt, end: &str) -> Result<(String, Param)> {
    let (mut found, mut all) = (Vec::new(), Vec::new());
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

/// Takes a step; the quantity, if it is above the limit.
fn value(
    replay: &mut Replay<'_>,
    step: u64,
    condition: &Condition,
    param: &Param,
) -> Result<Option<f64>> {
    replay.go_to(step - 1)?;
    let mut gradient = None;
    replay.step(|grads| gradient = grads.get(param).cloned())?;
    let Some(gradient) = gradient else { return usage("the parameter has no gradient") };
    let norm = |x: &Tensor| f64::from(x.square().sum(..).item()).sqrt();
    let x = match condition.quantity {
        Quantity::Weight => norm(&param.value()),
        Quantity::Gradient => norm(&gradient),
        _ if gradient.rank() != 2 => return usage("dead: the parameter is no matrix"),
        _ => gradient.abs().sum(1).to_vec().into_iter().filter(|&sum| sum == 0.0).count() as f64,
    };
    Ok((x > condition.limit).then_some(x))
}
