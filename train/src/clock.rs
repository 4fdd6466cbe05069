//! Runs by the clock: `--minutes`.

use crate::session::Session;
use retrograd::autograd::sharded;
use retrograd::nn::schedule::Schedule;
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
}

impl Session<'_> {
    /// Estimates the number of all steps of a run by the clock, by computing a step twice. They are not taken.
    pub fn estimate_steps(&mut self) {
        let Some(running) = &mut self.clock else { return };
        if self.trainer.steps() == 0 {
            let shards = self.trainer.shards();
            for _ in 0..2 {
                let begun = Instant::now();
                drop(sharded(shards.counts(), |i| shards.loss(i)));
                running.step = begun.elapsed().as_secs_f64();
            }
        }
        let clock = self.ranks.share(&running.now())[0];
        running.step = clock.step;
        self.last = match self.trainer.steps() {
            0 => ((clock.limit - clock.used) / clock.step).max(1.0) as u64,
            step => clock.steps(step).max(step),
        };
    }

    /// Notes the time of an evaluation.
    pub fn end_evaluation(&mut self, begun: Instant) {
        if let Some(clock) = &mut self.clock {
            clock.evaluation = begun.elapsed().as_secs_f64();
        }
    }

    /// Takes the learning rate of the next step from the clock of rank 0, and whether that step is the last one.
    pub fn look_at_clock(&mut self) {
        let Some(running) = &self.clock else { return };
        let (clock, step) = (self.ranks.share(&running.now())[0], self.step());
        if step >= SETTLED {
            self.last = clock.steps(step);
        }
        self.last = if clock.is_last() { step + 1 } else { self.last.max(step + 2) };
        let schedule = self.recipe().schedule();
        self.trainer.set_schedule(Schedule::Constant { lr: schedule.lr(step) });
    }
}
