//! The reasons for an early end, and their exit codes.

use crate::output::fault;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The result of most functions of the program.
pub type Result<T, E = Stop> = std::result::Result<T, E>;

/// The exit code of a failure.
const FAILED: u8 = 1;
/// The exit code of invalid usage, as for unknown flags.
const USAGE: u8 = 2;

/// The reason for an early end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// The exit code. For a signal it is 128 plus its number, by the convention of shells.
    pub code: u8,
    /// The reason; empty if this or another rank has printed it.
    pub text: String,
}

/// Invalid usage, with this text.
pub fn usage<T>(text: impl fmt::Display) -> Result<T> {
    Err(Stop { code: USAGE, text: text.to_string() })
}

/// A failure, with this text.
pub fn failed<T>(text: impl fmt::Display) -> Result<T> {
    Err(Stop { code: FAILED, text: text.to_string() })
}

impl Stop {
    /// A stop whose reason has been printed, by this or another rank.
    pub fn printed(code: u8) -> Stop {
        Stop { code, text: String::new() }
    }

    /// Whether it was caused by a signal, and is not an error.
    pub fn is_signal(&self) -> bool {
        self.code > 128
    }

    /// Whether the program was called in a wrong way.
    pub fn is_usage(&self) -> bool {
        self.code == USAGE
    }

    /// Prints the reason to standard error; returns the exit code.
    pub fn report(self) -> u8 {
        let Stop { code, text } = self;
        match code {
            _ if text.is_empty() => {}
            USAGE => fault(&format!("error: {text}\n\nFor more, try --help.")),
            FAILED => fault(&format!("error: {text}")),
            _ => fault(&text),
        }
        code
    }
}

/// For `?` on the errors of files and libraries: `.or_failed("what was tried")`.
pub trait OrFailed<T> {
    /// The value, or a failure that says what was tried and why it did not work.
    fn or_failed(self, tried: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> OrFailed<T> for Result<T, E> {
    fn or_failed(self, tried: impl fmt::Display) -> Result<T> {
        self.or_else(|e| failed(format!("{tried}: {e}")))
    }
}
