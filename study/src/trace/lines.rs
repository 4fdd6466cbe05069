//! A line per kernel, or a table at the end, as the environment variable `RETROGRAD_TRACE` requests.

use super::table::{Line, Totals, header};
use crate::locked::locked;
use retrograd_tensor::machine::Roofline;
use retrograd_tensor::observe::{Event, Observer, observe_process};
use retrograd_tensor::par;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Traces the process, in a file or on standard error.
pub(crate) fn trace_process(file: Option<PathBuf>) -> Result<(), String> {
    let mut output: Box<dyn Write + Send> = match file {
        None => Box::new(io::stderr()),
        Some(path) => Box::new(
            File::create(&path)
                .map_err(|e| format!("{} cannot be created: {e}", path.display()))?,
        ),
    };
    let roofline = Roofline::measure();
    let limits = format!("trace: {roofline}\n{}\n", header());
    output.write_all(limits.as_bytes()).map_err(|error| error.to_string())?;
    let output = Mutex::new(output);
    observe_process(Arc::new(Printer { output, roofline, failed: AtomicBool::new(false) }));
    Ok(())
}

/// Prints a line per call: whole lines at once, so that lines of several threads do not mix, and without a buffer, which
/// nobody would flush at the end of the process.
struct Printer {
    output: Mutex<Box<dyn Write + Send>>,
    roofline: Roofline,
    /// Whether a line could not be written.
    failed: AtomicBool,
}

impl Observer for Printer {
    fn event(&self, event: &Event<'_>) {
        let Event::Kernel(call) = *event else { return };
        let lane = par::lane();
        let line = Line { call, lane: &lane, roofline: Some(&self.roofline) };
        if let Err(error) = locked(&self.output).write_all(format!("{line}\n").as_bytes())
            && !self.failed.swap(true, Relaxed)
        {
            eprintln!("RETROGRAD_TRACE: a line could not be written: {error}");
        }
    }
}

/// Prints the calls of each operation by each kernel together on standard error, when this thread ends.
pub(crate) fn summarize_process() -> Result<(), String> {
    thread_local! {
        static AT_END: Cell<Option<AtEnd>> = const { Cell::new(None) };
    }
    let (roofline, totals) = (Roofline::measure(), Mutex::default());
    let summary = Arc::new(Summary { totals, roofline });
    observe_process(summary.clone());
    AT_END.set(Some(AtEnd(summary)));
    Ok(())
}

/// Adds up the calls.
struct Summary {
    totals: Mutex<Totals>,
    roofline: Roofline,
}

impl Observer for Summary {
    fn event(&self, event: &Event<'_>) {
        if let Event::Kernel(call) = *event {
            locked(&self.totals).add(call, Some(&self.roofline));
        }
    }
}

/// Prints the summary when it is dropped.
struct AtEnd(Arc<Summary>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        let mut totals = locked(&self.0.totals);
        totals.sort();
        eprintln!("trace: {}\n{totals}", self.0.roofline);
    }
}
