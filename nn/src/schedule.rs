//! Learning rate schedules.

use crate::config_error::ConfigError;
use std::f64::consts::PI;

/// The learning rate as a function of the step, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq)]
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
}

impl Schedule {
    /// The learning rate of a step.
    ///
    /// ```
    /// use retrograd_nn::schedule::Schedule;
    /// let s = Schedule::WarmupCosine { lr: 1.0, min_lr: 0.0, warmup: 4, steps: 104 };
    /// assert_eq!((s.lr(0), s.lr(4), s.lr(54), s.lr(104)), (0.2, 1.0, 0.5, 0.0));
    /// ```
    pub fn lr(&self, step: u64) -> f64 {
        match *self {
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
    /// If a rate or a factor is negative or not finite, or `every` is 0.
    ///
    /// ```
    /// use retrograd_nn::schedule::Schedule;
    /// assert!(Schedule::Constant { lr: 0.1 }.check().is_ok());
    /// assert!(Schedule::Constant { lr: -0.1 }.check().is_err());
    /// ```
    pub fn check(&self) -> Result<(), ConfigError> {
        let (lr, min_lr) = match *self {
            Schedule::Constant { lr } | Schedule::Step { lr, .. } => (lr, 0.0),
            Schedule::WarmupCosine { lr, min_lr, .. }
            | Schedule::Linear { lr, min_lr, .. }
            | Schedule::WarmupStableDecay { lr, min_lr, .. } => (lr, min_lr),
        };
        for (name, rate) in [("learning rate", lr), ("final learning rate", min_lr)] {
            if !(rate.is_finite() && rate >= 0.0) {
                return Err(ConfigError(format!("the {name} must be finite and >= 0, got {rate}")));
            }
        }
        if let Schedule::Step { every, factor, .. } = *self {
            if !(factor.is_finite() && factor >= 0.0) {
                let text = format!("the factor must be finite and >= 0, got {factor}");
                return Err(ConfigError(text));
            }
            if every == 0 {
                return Err(ConfigError("steps between changes must be at least 1, got 0".into()));
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        let s = Schedule::Linear { lr: 1.0, min_lr: 0.5, warmup: 0, steps: 10 };
        assert_eq!((s.lr(0), s.lr(5), s.lr(10), s.lr(99)), (1.0, 0.75, 0.5, 0.5));
        let s =
            Schedule::WarmupStableDecay { lr: 1.0, min_lr: 0.0, warmup: 1, decay: 4, steps: 10 };
        assert_eq!([0, 1, 6, 8, 10, 99].map(|step| s.lr(step)), [0.5, 1.0, 1.0, 0.5, 0.0, 0.0]);
        let s =
            Schedule::WarmupStableDecay { lr: 1.0, min_lr: 0.0, warmup: 4, decay: 99, steps: 8 };
        assert_eq!([4, 6, 8].map(|step| s.lr(step)), [1.0, 0.5, 0.0]);
        let s = Schedule::Step { lr: 1.0, every: 10, factor: 0.5 };
        assert_eq!((s.lr(9), s.lr(10), s.lr(25)), (1.0, 0.5, 0.25));
        // A warm-up longer than the run.
        let s = Schedule::WarmupCosine { lr: 1.0, min_lr: 0.0, warmup: 10, steps: 5 };
        assert!(s.lr(7) < 1.0 && s.lr(10) == 0.0);
    }

    #[test]
    fn rates_must_be_rates() {
        assert!(Schedule::Constant { lr: 0.0 }.check().is_ok());
        for lr in [f64::NAN, f64::INFINITY, -1.0] {
            let e = Schedule::Constant { lr }.check().unwrap_err().to_string();
            assert!(e.contains("learning rate") && e.contains(&lr.to_string()), "{e}");
        }
    }
}
