//! The first difference between two runs: `diff`, and the differences of a step to itself in f64.

use crate::line::Step;
use crate::output::say;
use crate::past::{Past, Replay};
use crate::session::Session;
use crate::stop::{OrFailed, Result, failed};
use clap::Args;
use retrograd::autograd::sharded;
use retrograd::nn::text::Batch;
use retrograd::nn::{Module, StateDict};
use retrograd::prelude::*;
use retrograd::study::deviation::{Deviation, Values, ulps};
use std::path::PathBuf;

/// Find the first step, operation and element at which two runs differ
///
/// Reads the logs up to the first step that differs, computes both runs again up to it, and compares the weights
/// before it, then all values and gradients of the step.
#[derive(Args, Debug)]
pub struct Diff {
    /// The folder of a run
    a: PathBuf,

    /// The folder of another one
    b: PathBuf,

    /// The text of both runs, if it has been moved
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,

    /// Compare this step, not the first one that differs
    #[arg(long, value_name = "STEP")]
    step: Option<u64>,

    /// The file of a page of the distances of all values [default: none]
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

/// Compares two runs.
pub fn diff(args: &Diff) -> Result<()> {
    let past = |folder| Past::open(folder, args.data.as_deref());
    let (a, b) = (past(&args.a)?, past(&args.b)?);
    for line in a.run.recipe.differences(&b.run.recipe, &[]) {
        say!("{line}");
    }
    let Some(step) = args.step.or_else(|| first_difference(&a, &b)) else {
        let n = a.last().min(b.last()) - 1;
        say!("The logs have the same bits in all {n} steps that both runs have taken");
        return Ok(());
    };
    for past in [&a, &b] {
        past.check_step(step)?;
    }
    let replayed = |past: &Past| -> Result<(StateDict, Values)> {
        with_matmul_precision(past.run.recipe.precision, || {
            let mut replay = past.replay()?;
            replay.go_to(step - 1)?;
            let weights = past.run.model.state_dict();
            let values = values(&replay.session);
            // A step that fails has no bits to compare.
            let _ = replay.step(|_| ());
            if let Some(differs) = &replay.differs {
                say!("{} computed again: {differs}", past.folder.name());
            }
            Ok((weights, values))
        })
    };
    let ((first, of_a), (second, of_b)) = (replayed(&a)?, replayed(&b)?);
    let is_same = same_weights(&first, &second, step);
    let all = of_a.deviations(&of_b).or_failed(format!("step {step} of both runs"))?;
    match all.iter().find(|deviation| deviation.first.is_some()) {
        Some(first) => say!("First operation that differs: {}", named(first)),
        None if is_same => say!(
            "Computed again, both runs have the same bits in step {step}: what differs is not in the program, the text \
             or the checkpoints, but in the logs, or in how the runs were trained (--all-reduce, another machine)"
        ),
        None => say!("All values of step {step} have the same bits"),
    }
    report(&all);
    write(args.page.as_ref(), &format!("Step {step} of two runs"), &all)
}

/// The first step of which the logs differ.
fn first_difference(a: &Past, b: &Past) -> Option<u64> {
    let bits = |step: &Step| (step.loss.to_bits(), step.grad_norm.to_bits(), step.lr.to_bits());
    let differs = |(n, step): (&u64, &Step)| {
        let other = b.steps.get(n)?;
        let (Step { loss, .. }, Step { loss: second, .. }) = (step, other);
        (bits(step) != bits(other)).then(|| {
            let norms = (step.grad_norm, other.grad_norm);
            say!("First step that differs: {n}, with losses {loss} and {second}, gradient norms {} and {}", norms.0, norms.1);
            *n
        })
    };
    a.steps.iter().find_map(differs)
}

/// Compares the weights before a step, and says what differs.
fn same_weights(a: &StateDict, b: &StateDict, step: u64) -> bool {
    let mut differing = Vec::new();
    for (name, a) in a {
        let Some(b) = b.get(name).filter(|b| b.shape() == a.shape()) else {
            differing.push(format!("{name} is not the same parameter in both"));
            continue;
        };
        let elements = |x: &Tensor| x.cast::<f64>().to_vec();
        let all = Deviation::of(a.shape().to_vec(), &elements(a), &elements(b));
        if let Some((index, x, y)) = &all.first {
            let (n, distance) = (a.numel(), ulps(*x, *y));
            let (differ, x, y) = (n - all.counts[0], *x as f32, *y as f32);
            differing.push(format!(
                "{name}: {differ} of {n} elements, first {index:?}, {x:e} and {y:e}, {distance} ULP"
            ));
        }
    }
    match &differing[..] {
        [] => say!("The weights before step {step} have the same bits"),
        [first, rest @ ..] => {
            let (n, all) = (differing.len(), a.len());
            say!("The weights before step {step} differ in {n} of {all} parameters");
            say!("    {first}");
            rest.iter().take(4).for_each(|line| say!("    {line}"));
        }
    }
    differing.is_empty()
}

/// The values of the next step, which is not taken.
fn values(session: &Session<'_>) -> Values {
    let shards = session.trainer.shards();
    Values::record(|| sharded(shards.counts(), |i| shards.loss(i))).1
}

/// Compares the next step of a run with the same step in f64, and writes a page.
pub fn beside_f64(replay: &Replay<'_>, path: &PathBuf) -> Result<()> {
    let session = &replay.session;
    let model = &session.run.model;
    let exact = Gpt::<f64>::new(model.config().clone(), &mut Rng::new(0)).or_else(failed)?;
    let weights = model.state_dict();
    let weights = weights.iter().map(|(name, x)| (name.clone(), x.cast::<f64>())).collect();
    exact.load_state_dict(&weights).or_else(failed)?;
    let Batch { tokens, targets } = session.trainer.batch();
    let shards =
        exact.shards(&tokens, &targets, session.run.recipe.shards, &mut session.trainer.pass());
    let (_, exact) = Values::record(|| sharded(shards.counts(), |i| shards.loss(i)));
    let all = values(session).deviations(&exact).or_failed("the step in f64")?;
    report(&all);
    let step = session.step() + 1;
    write(Some(path), &format!("Step {step} of a run, compared with the same step in f64"), &all)
}

/// A value by its operation, with the first element that differs.
fn named(d: &Deviation) -> String {
    let what = d.input.map_or(String::new(), |input| format!(", gradient of its {input}"));
    let (index, x, y) = d.first.clone().unwrap_or_default();
    let Deviation { operation, module, lane, shape, .. } = d;
    let module = if module.is_empty() { "the model" } else { module };
    format!(
        "{operation}{what}, in {module} (shard {lane}), element {index:?} of {shape:?}: {x:e} and {y:e}, {} ULP",
        ulps(x, y)
    )
}

/// A table by operation.
fn report(all: &[Deviation]) {
    say!(
        "operation                 pass      elements   differ   median ULP   largest ULP   norm of error / 2^-24"
    );
    for d in Deviation::by_operation(all) {
        let elements: usize = d.counts.iter().sum();
        let share = 100.0 * (1.0 - d.counts[0] as f64 / elements.max(1) as f64);
        let pass = if d.is_backward { "backward" } else { "forward" };
        say!(
            "{:<25} {pass:<8} {elements:>9} {share:>6.1} % {:>12} {:>13.3e} {:>23.4}",
            d.operation,
            d.median,
            d.largest,
            d.relative
        );
    }
}

fn write(path: Option<&PathBuf>, title: &str, all: &[Deviation]) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    crate::files::make_folder_of(path)?;
    let written = Deviation::page(title, all).write(path);
    written.or_failed(format!("cannot write {}", path.display()))?;
    say!("The page is {}", path.display());
    Ok(())
}
