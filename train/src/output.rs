//! Printing to a pipe that may be closed (`| head`), or to a disk that may be full. `println!` panics
//! then; here printing stops, the work continues, and the exit code reports the error.

use retrograd::nn::text::Printable;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `println!` for results.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}
/// `eprintln!` for everything else.
macro_rules! note {
    ($($text:tt)*) => { $crate::output::remark(format_args!("{}\n", format_args!($($text)*))) };
}
pub(crate) use {note, say};

/// The first error of standard output. After it nothing is printed.
fn error() -> MutexGuard<'static, Option<io::Error>> {
    static ERROR: Mutex<Option<io::Error>> = Mutex::new(None);
    ERROR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints and flushes, until the first error. Control characters are escaped on a terminal, and always below; a file
/// or a pipe gets the text as it is.
pub fn print(text: Arguments<'_>) {
    let mut error = error();
    if error.is_none() && !SILENT.load(Relaxed) {
        let mut out = io::stdout().lock();
        let written = match out.is_terminal() {
            true => write!(out, "{}", Printable(text)),
            false => out.write_fmt(text),
        };
        *error = written.and_then(|()| out.flush()).err();
    }
}

/// Whether nothing but errors is printed.
static SILENT: AtomicBool = AtomicBool::new(false);

/// Prints nothing from now on, except errors.
#[cfg(feature = "mpi")]
pub fn silence() {
    SILENT.store(true, Relaxed);
}

/// Calls `f` while nothing but errors is printed.
pub fn silently<R>(f: impl FnOnce() -> R) -> R {
    let before = SILENT.swap(true, Relaxed);
    let result = f();
    SILENT.store(before, Relaxed);
    result
}

/// Prints to standard error. A failure is ignored, because it cannot be reported.
pub fn remark(text: Arguments<'_>) {
    if !SILENT.load(Relaxed) {
        let _ = write!(io::stderr(), "{}", Printable(text));
    }
}

/// Prints an error to standard error, in any case.
pub fn fault(text: &str) {
    let _ = writeln!(io::stderr(), "{}", Printable(text));
}

/// Whether printing has not failed so far.
pub fn is_open() -> bool {
    error().is_none()
}

/// Whether printing failed, other than by a closed pipe; prints the error if so.
fn has_failed() -> bool {
    let error = error();
    let other = error.as_ref().filter(|e| e.kind() != ErrorKind::BrokenPipe);
    if let Some(e) = other {
        note!("error: cannot write to standard output: {e}");
    }
    other.is_some()
}

/// The exit code: `code`, unless printing failed.
pub fn end(code: u8) -> ExitCode {
    if has_failed() { ExitCode::FAILURE } else { code.into() }
}

/// Ends the program after a printing error, where only printing is left to do.
pub fn leave() -> ! {
    std::process::exit(i32::from(has_failed()))
}
