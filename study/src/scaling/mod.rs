//! Predicts the time of a program on more cores from a record on one.
//!
//! [`predict`] schedules the tasks of a [`RegionTree`] on a number of cores by a simulation, in which
//! regions are divided by the rules of the library:
//!
//! - A region is distributed if its estimated time is above the threshold of [`par`](retrograd_tensor::par), and if
//!   it has more than one task. Other regions are serial.
//! - If [`par::shards`](retrograd_tensor::par::shards) has at least as many shards as there are cores, the regions
//!   inside a shard are not distributed.
//! - A matrix product is divided as for [`par::threads`](retrograd_tensor::par::threads): inside of fewer shards,
//!   for their share of the cores. The time of a task relative to that
//!   of the whole product is estimated by the cost model.
//! - Tasks are started in order, each as soon as a core is free (list scheduling: Graham 1969). A
//!   thread that waits for its region gives its core to other tasks.
//! - A distributed region takes [`Rules::overhead`] longer, times log₂ of the number of cores, because
//!   rayon divides a region in halves.
//!
//! No schedule is faster than the larger one of `T₁ / P`, the work divided by the number of cores, and
//! `T∞`, the longest chain of work that cannot be computed at the same time (the *span*):
//! [`Prediction::least`]. Without overhead, thresholds and shards, none of list scheduling is slower than
//! `T₁ / P + T∞` (Graham 1969, Brent 1974).
//!
//! The model assumes that a task takes the same time on every core, no matter what the other cores do. It
//! leaves out that cores share the bandwidth of the memory and the last cache, that data moves between
//! the private caches of cores, that two threads of one core share its units (SMT), that the clock
//! rate falls when more cores are busy, and that a task is started a little later on a core of another socket.
//! So a prediction says what the division of the work allows, and a machine may give less.

mod prediction;
mod simulation;

pub use prediction::{Place, Prediction, Rules};

use crate::regions::{Part, RegionTree, Task};
use retrograd_tensor::error::{ErrorKind, OrPanic, require};
use retrograd_tensor::observe::Division;
use simulation::Simulation;

/// Predicts the time on `rules.cores` cores; see the [module](self).
///
/// ```
/// use retrograd::study::{regions::record, scaling::{Rules, predict}};
/// use retrograd::tensor::par;
/// use std::{thread::sleep, time::Duration};
///
/// let (_, recording) = record(|| par::shards(4, |_| sleep(Duration::from_millis(2))));
/// let four = predict(&recording, Rules::new(4, &recording, 0.0));
/// assert!(four.speedup > 2.0);
/// ```
///
/// # Panics
/// If the number of cores is 0, or the overhead is negative or not finite.
#[track_caller]
pub fn predict(recording: &RegionTree, rules: Rules) -> Prediction {
    require(rules.cores > 0, "predict", ErrorKind::Value, || "needs at least 1 core, got 0".into())
        .or_panic();
    let is_valid = rules.overhead >= 0.0 && rules.overhead.is_finite();
    let why = || format!("the overhead must be finite and at least 0, got {}", rules.overhead);
    require(is_valid, "predict", ErrorKind::Value, why).or_panic();
    let work = recording.seconds();
    let mut simulation = Simulation::new(rules);
    simulation.run(&recording.task);
    let seconds = simulation.now;
    let (all, busy) = (seconds * rules.cores as f64, simulation.busy_before(seconds));
    let part = |time: f64| if all > 0.0 { time.max(0.0) / all } else { 0.0 };
    Prediction {
        cores: rules.cores,
        seconds,
        speedup: if seconds > 0.0 { work / seconds } else { 1.0 },
        idle: part(all - busy),
        extra: part(busy - work),
        least: (work / rules.cores as f64).max(span(&recording.task, rules.cores)),
        places: simulation.places(),
    }
}

/// The longest chain of work that cannot be computed at the same time, whatever the thresholds.
fn span(task: &Task, cores: usize) -> f64 {
    let of = |part: &Part| match part {
        Part::Serial(seconds) => *seconds,
        Part::Span(_, task) => span(task, cores),
        Part::Region(region) => {
            let longest = |spans: &mut dyn Iterator<Item = f64>| spans.fold(0.0, f64::max);
            let tasks = longest(&mut region.tasks.iter().map(|task| span(task, cores)));
            match &region.division {
                Division::ByThreads(divide) => {
                    let stages = divide(cores);
                    let stages = stages.into_iter().map(|s| longest(&mut s.into_iter()));
                    tasks * stages.sum::<f64>().min(1.0)
                }
                _ => tasks,
            }
        }
    };
    task.parts.iter().map(of).sum()
}
