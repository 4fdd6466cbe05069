//! Central differences of a recorded closure, beside the gradients that its rules gave.

use super::build::Shown;
use super::data::{CheckRow, Data};
use super::elements::number;
use crate::locked::locked;
use crate::record::{Recorder, Recording, Seen};
use retrograd_autograd::Var;
use retrograd_tensor::{Real, Tensor};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex};

/// A gradient that differs by more than so many expected errors is not the derivative.
pub(super) const MOST_ERRORS: f64 = 10.0;
/// Steps that are tried, each four times the one before.
const MOST_STEPS: usize = 8;

/// A parameter that can be changed between two runs of a closure.
#[derive(Clone)]
pub(super) struct Adjustable(pub(super) Arc<Difference>);

/// The central difference at an element, by the loss of a run.
pub(super) type Difference = dyn Fn(usize, Loss<'_>) -> Option<CheckRow> + Send + Sync;
/// Runs the closure, and returns its loss.
pub(super) type Loss<'a> = &'a mut dyn FnMut() -> Option<f64>;

impl fmt::Debug for Adjustable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Adjustable")
    }
}

impl Adjustable {
    pub(super) fn new<T: Real>(
        get: impl Fn() -> Tensor<T> + Send + Sync + 'static,
        set: impl Fn(Tensor<T>) + Send + Sync + 'static,
    ) -> Adjustable {
        Adjustable(Arc::new(move |place, loss| difference(&get(), &set, place, loss)))
    }
}

/// Restores a parameter, also if the closure panics.
struct Restore<'a, T: Real, S: Fn(Tensor<T>)>(&'a S, &'a Tensor<T>);

impl<T: Real, S: Fn(Tensor<T>)> Drop for Restore<'_, T, S> {
    fn drop(&mut self) {
        (self.0)(self.1.clone());
    }
}

/// `(L(x + h) - L(x - h)) / 2h`, with the step of the smallest expected error.
///
/// Rounding of the loss contributes `3 u |L| / h`, if its relative error is `4 u` for the unit roundoff `u`.
/// What the Taylor series leaves out grows with `h²`, to less than a third of the change to a step of `4 h`. The first
/// step is the cube root of `u`, relative to the magnitude of the element and of the tensor. It is multiplied by 4
/// as long as the sum of the errors becomes smaller: a single weight of a large matrix has little influence.
pub(super) fn difference<T: Real>(
    original: &Tensor<T>,
    set: &impl Fn(Tensor<T>),
    place: usize,
    loss: Loss<'_>,
) -> Option<CheckRow> {
    let all = original.to_vec();
    let x = all[place].to_f64();
    let squares: f64 = all.iter().map(|x| x.to_f64().powi(2)).sum();
    let scale = x.abs().max((squares / all.len() as f64).sqrt());
    let u = T::EPSILON.to_f64() / 2.0;
    let _restore = Restore(set, original);
    let mut at = |x: f64| {
        let mut all = all.clone();
        all[place] = T::from_f64(x);
        let x = all[place].to_f64();
        set(Tensor::from_vec(all, original.shape()));
        loss().map(|loss| (x, loss))
    };
    // The difference, and its error from rounding.
    let mut slope = |h: f64| {
        let ((right, above), (left, below)) = (at(x + h)?, at(x - h)?);
        let (slope, size) = ((above - below) / (right - left), above.abs().max(below.abs()));
        let rounding = 3.0 * u * size / h + 16.0 * u * slope.abs();
        (slope.is_finite() && rounding.is_finite()).then_some((slope, rounding))
    };
    let mut h = u.cbrt() * if scale > 0.0 && scale.is_finite() { scale } else { 1.0 };
    let (mut near, mut rounding) = slope(h)?;
    let mut best: Option<CheckRow> = None;
    for _ in 0..MOST_STEPS {
        let Some((far, next)) = slope(4.0 * h) else { break };
        let error = rounding + (far - near).abs() / 3.0;
        if best.as_ref().is_some_and(|best| error >= best.error) {
            break;
        }
        best = Some(CheckRow { difference: near, error, step: h, agrees: true });
        (near, rounding, h) = (far, next, 4.0 * h);
    }
    best
}

/// A sentence on runs of the recorded code of which one differs from the last.
pub(super) fn of_runs(runs: &[Recording], last: &Recording) -> Option<String> {
    let (again, bits) = (Shown::of(last), |run: &Recording| run.loss.map(f64::to_bits));
    let how = runs.iter().find_map(|run| match Shown::of(run).difference(&again) {
        Some(event) => Some(format!("from event {} on", event + 1)),
        None if bits(run) == bits(last) => None,
        None => Some(format!("the loss was {:?}, then {:?}", run.loss?, last.loss?)),
    })?;
    Some(format!(
        "the runs of the recorded code differ ({how}): times are of one run, values of another (hint: fix the \
         seeds of random numbers, and update no parameter in the recorded code)"
    ))
}

/// A sentence on runs that differ, and on each gradient that is not its central difference.
pub(super) fn findings(data: &Data) -> Vec<String> {
    let mut findings = Vec::from_iter(data.difference.clone());
    for node in &data.nodes {
        for element in &node.elements {
            let (Some(check), Some(gradient)) = (&element.check, element.gradient()) else {
                continue;
            };
            if !check.agrees {
                let place = if element.index.starts_with('[') { &element.index } else { "" };
                findings.push(format!(
                    "the gradient of {}{place} is {}, but its central difference is {} (expected error {}): a \
                     rule between it and the loss is wrong, or the loss is not smooth there",
                    node.name,
                    number(gradient),
                    number(check.difference),
                    number(check.error)
                ));
            }
        }
    }
    findings
}

/// The loss of a run, the one of the shard that is shown, and the gradient that its backward pass began with; `None`
/// if it has not one loss, or one that is not finite.
pub(super) fn loss_of<R>(f: &mut impl FnMut() -> R) -> Option<(f64, f64, f64)> {
    let losses = Arc::new(Mutex::new(Vec::new()));
    let sink = losses.clone();
    let recorder = Recorder::new().watching(move |seen| {
        if let Seen::Seeded { lane: 0, root, gradient, .. } = seen {
            let loss = scalars::<f32>(*root, *gradient).or(scalars::<f64>(*root, *gradient));
            locked(&sink).push(loss);
        }
    });
    let (_, recording) = recorder.record(f);
    let losses = locked(&losses);
    match losses[..] {
        [Some((loss, seed))] if (loss * seed).is_finite() => Some((recording.loss?, loss, seed)),
        _ => None,
    }
}

fn scalars<T: Real>(root: &dyn Any, gradient: &dyn Any) -> Option<(f64, f64)> {
    let (root, gradient) = (root.downcast_ref::<Var<T>>()?, gradient.downcast_ref::<Tensor<T>>()?);
    (root.value().numel() == 1).then(|| (root.item().to_f64(), gradient.item().to_f64()))
}
