//! Invalid configurations.

use crate::text::Printable;
use std::fmt;

/// The reason why the configuration of a model, an optimiser or a schedule is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(pub(crate) String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printable(&self.0).fmt(f)
    }
}

impl std::error::Error for ConfigError {}
