//! The observer that the environment variable `RETROGRAD_TRACE` requests.

use super::table::{Line, header};
use crate::machine::Roofline;
use crate::observe::{self, KernelCall, Observer};
use crate::par;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

const VARIABLE: &str = "RETROGRAD_TRACE";

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

/// Reads the variable in the first call in a process, and begins the trace. Other threads wait.
pub(super) fn read_once() {
    static READ: OnceLock<()> = OnceLock::new();
    READ.get_or_init(|| {
        if let Err(why) = start() {
            // There is nobody to return an error to: the caller is any operation on tensors.
            eprintln!("{VARIABLE}: {why}; nothing is traced");
        }
        observe::environment_was_read();
    });
}

fn start() -> Result<(), String> {
    let value = std::env::var_os(VARIABLE).unwrap_or_default();
    let request = Request::parse(&value.to_string_lossy())?;
    let another = || Err("the process has another observer".to_string());
    let output = match request {
        Request::Nothing => return Ok(()),
        // Before a file is made, and anything is measured.
        _ if observe::has_default_observer() => return another(),
        Request::StandardError => Output::StandardError,
        Request::File(path) => Output::File(create(&path)?),
    };
    let roofline = Roofline::measure();
    let limits = format!("trace: {roofline}\n{}\n", header());
    output.write(&limits).map_err(|error| error.to_string())?;
    let printer = Printer { output, roofline, failed: AtomicBool::new(false) };
    match observe::set_default_observer(Arc::new(printer)) {
        true => Ok(()),
        false => another(),
    }
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
    fn kernel(&self, call: &KernelCall) {
        let lane = par::lane();
        let line = Line { call, lane: &lane, roofline: Some(&self.roofline) };
        if let Err(error) = self.output.write(&format!("{line}\n"))
            && !self.failed.swap(true, Relaxed)
        {
            eprintln!("{VARIABLE}: a line could not be written: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_nothing_standard_error_or_files() {
        let parse = |text| Request::parse(text);
        for text in ["", " ", "0"] {
            assert_eq!(parse(text), Ok(Request::Nothing));
        }
        assert_eq!(parse("1"), Ok(Request::StandardError));
        for text in ["trace.txt", "/tmp/trace", "./1", "a/b"] {
            assert_eq!(parse(text), Ok(Request::File(text.into())));
        }
        for text in ["yes", "2", "summary", "-1"] {
            assert!(parse(text).is_err_and(|why| why.contains(text)), "{text}");
        }
    }
}
