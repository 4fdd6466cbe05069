//! Signals that end the program: SIGINT (Ctrl-C), SIGTERM and SIGHUP.
//!
//! The first one ends the run after the current step. A later Ctrl-C ends the program at once. A later SIGTERM or
//! SIGHUP does not, nor a Ctrl-C within [`TWICE`], because `timeout` and shells often send a signal twice.

use crate::output::fault;
use crate::stop::{OrFailed, Result};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// In this time after the first signal, others count as the same.
const TWICE: Duration = Duration::from_millis(500);
const SIGINT: usize = 2;

/// The number of the last signal; 0 if there was none.
static RECEIVED: AtomicUsize = AtomicUsize::new(0);

type Words = Box<dyn Fn() -> String + Send>;
/// What is printed before the program ends at once.
static LAST_WORDS: Mutex<Option<Words>> = Mutex::new(None);

/// Handles signals from now on. A later Ctrl-C prints `last_words`, if there are any.
pub fn watch(last_words: impl Fn() -> String + Send + 'static) -> Result<()> {
    let mut words = LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    match words.replace(Box::new(last_words)) {
        None => install().or_failed("cannot install signal handlers"),
        Some(_) => Ok(()),
    }
}

/// Whether a signal to end the program was received.
pub fn is_received() -> bool {
    RECEIVED.load(Relaxed) != 0
}

/// The conventional exit code of the signal, 128 plus its number, if there was one.
pub fn exit_code() -> Option<u8> {
    let signal = RECEIVED.load(Relaxed) as u8;
    (signal != 0).then_some(128 + signal)
}

/// Called by the thread that waits for signals.
fn receive(signal: usize) {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let is_later = FIRST.get_or_init(Instant::now).elapsed() > TWICE;
    if signal == SIGINT && is_later {
        let words = LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner);
        let words = words.as_ref().map_or_else(String::new, |words| words());
        if !words.is_empty() {
            fault(&words);
        }
        std::process::exit(128 + SIGINT as i32);
    }
    RECEIVED.store(signal, Relaxed);
}

#[cfg(unix)]
fn install() -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    // Started by `nohup`, which ignores SIGHUP.
    let kinds = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&s| s != SIGHUP || !is_ignored(s));
    let mut signals = signal_hook::iterator::Signals::new(kinds)?;
    std::thread::spawn(move || signals.forever().for_each(|signal| receive(signal as usize)));
    Ok(())
}

/// Whether a signal is ignored since the start of the process. Only Linux shows it without `unsafe`.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(not(unix))]
fn install() -> Result<(), ctrlc::Error> {
    ctrlc::set_handler(|| receive(SIGINT))
}
