//! The reasons for an early end, and their exit codes.

use crate::output::fault;
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
    /// Any of these, already printed, by this or another rank: the exit code.
    Reported(u8),
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
            Stop::Reported(_) => "",
        }
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        match *self {
            Stop::Usage(_) => 2,
            Stop::Failed(_) => 1,
            Stop::Interrupted(_, code) | Stop::Reported(code) => code,
        }
    }

    /// The stop with this exit code.
    pub fn new(code: u8, text: String) -> Stop {
        match code {
            2 => Stop::Usage(text),
            1 => Stop::Failed(text),
            code => Stop::Interrupted(text, code),
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
        match &self {
            Stop::Usage(text) => fault(&format!("error: {text}\n\nFor more, try --help.")),
            Stop::Failed(text) => fault(&format!("error: {text}")),
            Stop::Interrupted(text, _) => fault(text),
            Stop::Reported(_) => {}
        }
        self.code()
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
