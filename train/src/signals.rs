//! Signals that end the program: SIGINT (Ctrl-C), SIGTERM and SIGHUP.

use crate::stop::{OrFailed, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Whether a signal to end the program was received. Clones share the state; that of the default
/// value never changes.
#[derive(Clone, Debug, Default)]
pub struct StopRequest {
    /// The number of the signal; 0 if there was none.
    signal: Arc<AtomicUsize>,
}

impl StopRequest {
    /// Handles SIGINT (Ctrl-C), SIGTERM and SIGHUP from now on. The first one ends the run after
    /// the current step. A second Ctrl-C ends the program at once; a second SIGTERM or SIGHUP does not,
    /// because `timeout` and shells often send them twice.
    pub fn watch() -> Result<StopRequest> {
        let request = StopRequest::default();
        install(&request.signal).or_failed("cannot install signal handlers")?;
        Ok(request)
    }

    pub fn is_made(&self) -> bool {
        self.signal.load(Relaxed) != 0
    }

    /// The conventional exit code of the signal, 128 plus its number, if there was one.
    pub fn exit_code(&self) -> Option<u8> {
        let signal = self.signal.load(Relaxed) as u8;
        (signal != 0).then_some(128 + signal)
    }
}

#[cfg(unix)]
fn install(received: &Arc<AtomicUsize>) -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::flag;
    use std::sync::atomic::AtomicBool;

    let again = Arc::new(AtomicBool::new(false));
    // Registered first, because actions run in the order of registration: it sees the flag of an
    // earlier signal only.
    flag::register_conditional_shutdown(SIGINT, 128 + SIGINT, Arc::clone(&again))?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Started by `nohup`, which ignores SIGHUP.
        if signal == SIGHUP && is_ignored(signal) {
            continue;
        }
        flag::register_usize(signal, Arc::clone(received), signal as usize)?;
        flag::register(signal, Arc::clone(&again))?;
    }
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
fn install(received: &Arc<AtomicUsize>) -> std::result::Result<(), ctrlc::Error> {
    const SIGINT: usize = 2;
    let received = Arc::clone(received);
    ctrlc::set_handler(move || {
        if received.swap(SIGINT, Relaxed) != 0 {
            std::process::exit(128 + SIGINT as i32);
        }
    })
}
