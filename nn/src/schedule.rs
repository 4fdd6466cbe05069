//! Learning rate schedules.

use crate::config_error::ConfigError;
use std::f64::consts::PI;

/// The learning rate as a function of the step, counted from 0.
///
/// A training loop calls `optimizer.set_lr(schedule.lr(step))` before each step. Any function of the step
/// can stand in its place.
///
/// ```
/// use retrograd::prelude::*;
///
/// // 10 steps of warm-up, 80 steps at 1e-3, then a decay to 0 within 10 steps.
/// let schedule = Schedule::Sequence(vec![
///     (90, Schedule::Linear { lr: 1e-3, min_lr: 1e-3, warmup: 10, steps: 90 }),
///     (10, Schedule::Linear { lr: 1e-3, min_lr: 0.0, warmup: 0, steps: 10 }),
/// ]);
/// assert_eq!((schedule.lr(50), schedule.lr(95), schedule.lr(100)), (1e-3, 5e-4, 0.0));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// A constant rate.
    Constant {
        /// The rate.
        lr: f64,
    },
    /// A linear warm-up in `warmup` steps, then a cosine decay until `steps`, then constant; as in
    /// nanoGPT. Loshchilov, Hutter 2016 (arXiv 1608.03983).
    WarmupCosine {
        /// The rate after the warm-up.
        lr: f64,
        /// The rate at the end.
        min_lr: f64,
        /// Steps of the warm-up.
        warmup: u64,
        /// Steps until the end.
        steps: u64,
    },
    /// A linear warm-up in `warmup` steps, then a linear decay until `steps`, then constant.
    Linear {
        /// The rate after the warm-up.
        lr: f64,
        /// The rate at the end.
        min_lr: f64,
        /// Steps of the warm-up.
        warmup: u64,
        /// Steps until the end.
        steps: u64,
    },
    /// Linear warm-up, constant, then linear decay to `min_lr` in the last `decay` steps (WSD). Hu et al.
    /// 2024 (arXiv 2404.06395).
    WarmupStableDecay {
        /// The rate after the warm-up.
        lr: f64,
        /// The last rate.
        min_lr: f64,
        /// Steps of the warm-up.
        warmup: u64,
        /// Steps of the decay.
        decay: u64,
        /// Steps of the run.
        steps: u64,
    },
    /// Multiplied by `factor` every `every` steps.
    Step {
        /// The first rate.
        lr: f64,
        /// Steps between changes.
        every: u64,
        /// The factor.
        factor: f64,
    },
    /// `lr · factor^step`.
    Exponential {
        /// The first rate.
        lr: f64,
        /// The factor of each step.
        factor: f64,
    },
    /// A linear warm-up in `warmup` steps to `lr`, then `lr · √(warmup / step)`. Vaswani et al. 2017 (arXiv
    /// 1706.03762), where `lr` is `1 / √(width · warmup)`.
    InverseSqrt {
        /// The rate after the warm-up.
        lr: f64,
        /// Steps of the warm-up, at least 1.
        warmup: u64,
    },
    /// Cosine decays from `lr` to `min_lr`, each of which starts at `lr` again. The first one takes `period`
    /// steps, each further one `growth` times as many. Loshchilov, Hutter 2016 (arXiv 1608.03983).
    CosineRestarts {
        /// The rate at the beginning of each decay.
        lr: f64,
        /// The rate that each decay approaches.
        min_lr: f64,
        /// Steps of the first decay, at least 1.
        period: u64,
        /// The factor of the period, at least 1.
        growth: u64,
    },
    /// Schedules one after the other, each with its number of steps and counted from 0 at its
    /// beginning. The last one goes on after its steps.
    Sequence(Vec<(u64, Schedule)>),
}

impl Schedule {
    /// The learning rate of a step.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let s = Schedule::WarmupCosine { lr: 1.0, min_lr: 0.0, warmup: 4, steps: 104 };
    /// assert_eq!((s.lr(0), s.lr(4), s.lr(54), s.lr(104)), (0.2, 1.0, 0.5, 0.0));
    /// ```
    pub fn lr(&self, step: u64) -> f64 {
        match *self {
            Schedule::Exponential { lr, factor } => lr * factor.powf(step as f64),
            Schedule::InverseSqrt { lr, warmup } => ramp(lr, warmup, step)
                .unwrap_or_else(|| lr * (warmup.max(1) as f64 / step.max(1) as f64).sqrt()),
            Schedule::CosineRestarts { lr, min_lr, period, growth } => {
                let (mut period, mut step) = (period.max(1), step);
                while step >= period && growth > 1 {
                    step -= period;
                    period = period.saturating_mul(growth);
                }
                let at = (step % period) as f64 / period as f64;
                min_lr + 0.5 * (1.0 + (PI * at).cos()) * (lr - min_lr)
            }
            Schedule::Sequence(ref parts) => {
                let mut step = step;
                for (steps, schedule) in &parts[..parts.len().saturating_sub(1)] {
                    match step.checked_sub(*steps) {
                        Some(rest) => step = rest,
                        None => return schedule.lr(step),
                    }
                }
                parts.last().map_or(0.0, |(_, schedule)| schedule.lr(step))
            }
            Schedule::Constant { lr } => lr,
            Schedule::WarmupCosine { lr, min_lr, warmup, steps } => ramp(lr, warmup, step)
                .unwrap_or_else(|| {
                    let left = 0.5 * (1.0 + (PI * progress(step, warmup, steps)).cos());
                    min_lr + left * (lr - min_lr)
                }),
            Schedule::Linear { lr, min_lr, warmup, steps } => ramp(lr, warmup, step)
                .unwrap_or_else(|| lr + progress(step, warmup, steps) * (min_lr - lr)),
            Schedule::WarmupStableDecay { lr, min_lr, warmup, decay, steps } => {
                let decay = decay.min(steps.saturating_sub(warmup));
                ramp(lr, warmup, step).unwrap_or_else(|| {
                    match (steps - decay.min(steps)).max(warmup) {
                        start if step < start => lr,
                        start => lr + progress(step, start, steps) * (min_lr - lr),
                    }
                })
            }
            Schedule::Step { lr, every, factor } => lr * factor.powf((step / every.max(1)) as f64),
        }
    }

    /// Checks the schedule.
    ///
    /// # Errors
    /// If a rate or a factor is negative or not finite, if `every`, `warmup` of [`Schedule::InverseSqrt`],
    /// `period` or `growth` is 0, or if a sequence is empty or one of its schedules is invalid.
    pub fn check(&self) -> Result<(), ConfigError> {
        let (lr, min_lr) = match *self {
            Schedule::Sequence(ref parts) => {
                if parts.is_empty() {
                    return Err(ConfigError("a sequence needs at least one schedule".into()));
                }
                return parts.iter().try_for_each(|(_, schedule)| schedule.check());
            }
            Schedule::Constant { lr }
            | Schedule::Step { lr, .. }
            | Schedule::Exponential { lr, .. }
            | Schedule::InverseSqrt { lr, .. } => (lr, 0.0),
            Schedule::WarmupCosine { lr, min_lr, .. }
            | Schedule::CosineRestarts { lr, min_lr, .. }
            | Schedule::Linear { lr, min_lr, .. }
            | Schedule::WarmupStableDecay { lr, min_lr, .. } => (lr, min_lr),
        };
        for (name, rate) in [("learning rate", lr), ("final learning rate", min_lr)] {
            if !(rate.is_finite() && rate >= 0.0) {
                return Err(ConfigError(format!("the {name} must be finite and >= 0, got {rate}")));
            }
        }
        if let Schedule::Step { factor, .. } | Schedule::Exponential { factor, .. } = *self
            && !(factor.is_finite() && factor >= 0.0)
        {
            return Err(ConfigError(format!("the factor must be finite and >= 0, got {factor}")));
        }
        let (name, count) = match *self {
            Schedule::Step { every, .. } => ("steps between changes", every),
            Schedule::InverseSqrt { warmup, .. } => ("steps of the warm-up", warmup),
            Schedule::CosineRestarts { period: 0, .. } => ("steps of the first period", 0),
            Schedule::CosineRestarts { growth, .. } => ("the growth of the period", growth),
            _ => return Ok(()),
        };
        if count == 0 {
            return Err(ConfigError(format!("{name} must be at least 1, got 0")));
        }
        Ok(())
    }
}

fn ramp(lr: f64, warmup: u64, step: u64) -> Option<f64> {
    (step < warmup).then(|| lr * (step as f64 + 1.0) / (warmup as f64 + 1.0))
}

/// From 0 at the end of the warm-up to 1 at the end.
fn progress(step: u64, warmup: u64, steps: u64) -> f64 {
    if step >= steps { 1.0 } else { (step - warmup) as f64 / (steps - warmup) as f64 }
}
