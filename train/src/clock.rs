//! Runs by the clock: `--minutes`.

use crate::ranks::Ranks;
use retrograd::autograd::sharded;
use retrograd::nn::training::Trainer;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// The steps after which the number of all steps is estimated from the share of the time that was used. Before, it
/// is the first estimate: the first steps of a process are slow.
const SETTLED: u64 = 16;

/// The time of a run that ends by the clock. Steps, evaluations during training, checkpoints and pages use it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// All of it, in seconds.
    pub limit: f64,
    /// Seconds that were used.
    pub used: f64,
    /// The seconds of the last step.
    pub step: f64,
    /// The seconds of the last evaluation, with its checkpoint and page.
    pub evaluation: f64,
}

impl Clock {
    pub fn minutes(minutes: f64) -> Clock {
        Clock { limit: minutes * 60.0, used: 0.0, step: 0.0, evaluation: 0.0 }
    }

    /// Whether a step would be the last one: no other one has time after it, and the last evaluation.
    fn is_last(&self) -> bool {
        self.used + 2.0 * self.step + self.evaluation > self.limit
    }

    /// The number of all steps, after `step` steps at this speed.
    fn steps(&self, step: u64) -> u64 {
        (step as f64 * self.limit / self.used).round() as u64
    }
}

/// A clock that runs.
pub struct Running {
    /// At the beginning of this process.
    before: Clock,
    begun: Instant,
    /// What was measured last.
    pub step: f64,
    pub evaluation: f64,
}

impl Running {
    pub fn new(before: Clock) -> Running {
        let Clock { step, evaluation, .. } = before;
        Running { before, begun: Instant::now(), step, evaluation }
    }

    /// The clock now.
    pub fn now(&self) -> Clock {
        let Running { before, begun, step, evaluation } = *self;
        Clock { used: before.used + begun.elapsed().as_secs_f64(), step, evaluation, ..before }
    }

    /// The number of all steps of a new run, for which a step is computed twice. It is not taken.
    pub fn estimate(&mut self, trainer: &Trainer<'_>, ranks: &Ranks) -> u64 {
        let shards = trainer.shards();
        for _ in 0..2 {
            let begun = Instant::now();
            drop(sharded(shards.counts(), |i| shards.loss(i)));
            self.step = begun.elapsed().as_secs_f64();
        }
        let clock = ranks.share(&self.now())[0];
        self.step = clock.step;
        ((clock.limit - clock.used) / clock.step).max(1.0) as u64
    }

    /// The number of the last step, after `step` steps and the estimate `last`; that of the next step if it is the
    /// last one. The clock of rank 0 decides.
    pub fn last(&self, step: u64, last: u64, ranks: &Ranks) -> u64 {
        let clock = ranks.share(&self.now())[0];
        let last = if step < SETTLED { last } else { clock.steps(step) };
        if clock.is_last() { step + 1 } else { last.max(step + 2) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_step_follows_from_the_time_that_was_used() {
        let clock = Clock { limit: 1000.0, used: 500.0, step: 0.1, evaluation: 0.0 };
        let ranks = Ranks::start().ok().unwrap();
        let last = |clock, step| Running::new(clock).last(step, 70, &ranks);
        assert_eq!([4, 100].map(|step| last(clock, step)), [70, 200]);
        assert_eq!(last(Clock { used: 999.9, ..clock }, 100), 101);
    }
}
