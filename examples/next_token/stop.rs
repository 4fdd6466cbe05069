//! The reasons to end before the work is done, and their exit codes.

use crate::output::note;
use std::fmt;
use std::process::ExitCode;

/// What most functions of the program return.
pub type Result<T> = std::result::Result<T, Stop>;

/// The reason for an early end.
#[derive(Debug)]
pub enum Stop {
    /// What was asked for makes no sense: exit code 2, as for unknown flags.
    Usage(String),
    /// It makes sense, but did not work: exit code 1.
    Failed(String),
    /// A signal: 128 and its number, which is what shells expect. What it says is no error.
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
    /// Why.
    pub fn text(&self) -> &str {
        match self {
            Stop::Usage(text) | Stop::Failed(text) | Stop::Interrupted(text, _) => text,
        }
    }

    /// Says why on stderr, and how in the exit code.
    pub fn report(self) -> ExitCode {
        ExitCode::from(self.told())
    }

    /// Ends the program inside an operation that cannot stop early.
    pub fn leave(self) -> ! {
        std::process::exit(self.told().into())
    }

    fn told(self) -> u8 {
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
