//! The reasons for an early end, and their exit codes.

use crate::output::note;
use std::fmt;
use std::process::ExitCode;

/// The result of most functions of the program.
pub type Result<T> = std::result::Result<T, Stop>;

/// The reason for an early end.
#[derive(Debug)]
pub enum Stop {
    /// Invalid usage: exit code 2, as for unknown flags.
    Usage(String),
    /// A failure: exit code 1.
    Failed(String),
    /// A signal: exit code 128 plus its number, by the convention of shells. Not an error.
    Interrupted(String, u8),
}

/// A [`Stop::Usage`] with this text.
pub fn usage<T>(text: impl fmt::Display) -> Result<T> {
    Err(Stop::Usage(text.to_string()))
}

/// A [`Stop::Failed`] with this text.
pub fn failed<T>(text: impl fmt::Display) -> Result<T> {
    Err(Stop::Failed(text.to_string()))
}

impl Stop {
    /// The reason.
    pub fn text(&self) -> &str {
        match self {
            Stop::Usage(text) | Stop::Failed(text) | Stop::Interrupted(text, _) => text,
        }
    }

    /// Prints the reason to standard error; returns the exit code.
    pub fn report(self) -> ExitCode {
        ExitCode::from(self.print())
    }

    /// Ends the program inside an operation that cannot stop early.
    pub fn leave(self) -> ! {
        std::process::exit(self.print().into())
    }

    fn print(self) -> u8 {
        let (text, code) = match self {
            Stop::Usage(text) => (format!("error: {text}\n\nFor more, try --help."), 2),
            Stop::Failed(text) => (format!("error: {text}"), 1),
            Stop::Interrupted(text, code) => (text, code),
        };
        note!("{text}");
        code
    }
}

/// For `?` on the errors of files and libraries: `.or_failed("what was tried")`.
pub trait OrFailed<T> {
    /// The value, or a [`Stop::Failed`] that says what was tried and why it did not work.
    fn or_failed(self, tried: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> OrFailed<T> for std::result::Result<T, E> {
    fn or_failed(self, tried: impl fmt::Display) -> Result<T> {
        self.or_else(|e| failed(format!("{tried}: {e}")))
    }
}
