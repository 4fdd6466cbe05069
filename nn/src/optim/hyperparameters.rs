//! Checks of hyperparameters.

use crate::config_error::ConfigError;

/// Checks a hyperparameter.
pub(super) fn at_least_0(name: &str, x: f64) -> Result<(), ConfigError> {
    if x.is_finite() && x >= 0.0 {
        return Ok(());
    }
    Err(ConfigError(format!("the {name} must be finite and at least 0, got {x}")))
}

/// Checks the argument of [`Optimizer::set_lr`](super::Optimizer::set_lr).
#[track_caller]
pub(super) fn checked_lr(lr: f64) -> f64 {
    match at_least_0("learning rate", lr) {
        Ok(()) => lr,
        Err(e) => panic!("set_lr: {e}"),
    }
}

/// Checks a decay rate of an average.
pub(super) fn in_unit_interval(name: &str, x: f64) -> Result<(), ConfigError> {
    if (0.0..1.0).contains(&x) {
        return Ok(());
    }
    Err(ConfigError(format!("{name} must be in [0, 1), got {x}")))
}
