//! A line per kernel, as the environment variable `RETROGRAD_TRACE` requests.

use super::table::{Line, header};
use retrograd_tensor::machine::Roofline;
use retrograd_tensor::observe::{Event, Observer, observe_process};
use retrograd_tensor::par;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What the variable requests.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Nothing,
    StandardError,
    File(PathBuf),
}

impl Request {
    fn parse(value: &str) -> Result<Request, String> {
        match value.trim() {
            "" | "0" => Ok(Request::Nothing),
            "1" => Ok(Request::StandardError),
            path if path.contains(['/', '.', '\\']) => Ok(Request::File(path.into())),
            other => Err(format!(
                "{other:?} is neither 0, nor 1 for standard error, nor a file (a path with a / or a .)"
            )),
        }
    }
}

/// Traces the process as a value of the variable requests.
pub(crate) fn trace_process(value: &OsStr) -> Result<(), String> {
    let output = match Request::parse(&value.to_string_lossy())? {
        Request::Nothing => return Ok(()),
        Request::StandardError => Output::StandardError,
        Request::File(path) => Output::File(create(&path)?),
    };
    let roofline = Roofline::measure();
    let limits = format!("trace: {roofline}\n{}\n", header());
    output.write(&limits).map_err(|error| error.to_string())?;
    observe_process(Arc::new(Printer { output, roofline, failed: AtomicBool::new(false) }));
    Ok(())
}

fn create(path: &Path) -> Result<File, String> {
    File::create(path).map_err(|error| format!("{} cannot be created: {error}", path.display()))
}

enum Output {
    StandardError,
    File(File),
}

impl Output {
    /// Writes whole lines at once, so that lines of several threads do not mix, and without a buffer, which
    /// nobody would flush at the end of the process.
    fn write(&self, lines: &str) -> io::Result<()> {
        match self {
            Output::StandardError => io::stderr().lock().write_all(lines.as_bytes()),
            Output::File(file) => (&*file).write_all(lines.as_bytes()),
        }
    }
}

/// Prints a line per call.
struct Printer {
    output: Output,
    roofline: Roofline,
    /// Whether a line could not be written.
    failed: AtomicBool,
}

impl Observer for Printer {
    fn event(&self, event: &Event<'_>) {
        let Event::Kernel(call) = *event else { return };
        let lane = par::lane();
        let line = Line { call, lane: &lane, roofline: Some(&self.roofline) };
        if let Err(error) = self.output.write(&format!("{line}\n"))
            && !self.failed.swap(true, Relaxed)
        {
            eprintln!("RETROGRAD_TRACE: a line could not be written: {error}");
        }
    }
}
