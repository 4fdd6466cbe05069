//! The load of other processes on the cores that this program may use. `benches/compare/load.py` does the
//! same.
//!
//! `/proc/stat` counts the busy time of every core; the CPU time of this program is subtracted. What remains
//! is the time of other processes and, as steal time, of other virtual machines. On systems without `/proc`, the
//! load is unknown and nothing is printed.

use std::fmt::{self, Display, Formatter};
use std::fs::read_to_string;
use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The unit of CPU times in `/proc`, in seconds: `1 / USER_HZ`, which is 100 on all platforms of Rust.
const TICK: f64 = 0.01;

/// CPU time of other processes so far, and the time at which it was read.
pub struct Reading {
    at: Instant,
    others: Option<f64>,
}

/// CPU seconds that other processes used within some seconds. They can be negative, as the counters are
/// read one after the other and count in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Others {
    /// CPU seconds.
    pub seconds: f64,
    /// The time that passed.
    pub took: f64,
}

impl Reading {
    /// Reads the counters.
    ///
    /// ```
    /// use retrograd::study::load::Reading;
    /// let before = Reading::now();
    /// assert!(before.since().to_string().starts_with("other processes used "));
    /// ```
    pub fn now() -> Reading {
        Reading { at: Instant::now(), others: others() }
    }

    /// The load of others since then; nothing if it is unknown.
    pub fn since(&self) -> Others {
        let (Some(before), Some(now)) = (self.others, others()) else { return Others::default() };
        Others { seconds: now - before, took: self.at.elapsed().as_secs_f64() }
    }
}

impl Others {
    /// Whether a measurement of that duration is disturbed: by more than a twentieth of it and three ticks.
    pub fn disturb(&self) -> bool {
        self.seconds > 0.03 + 0.05 * self.took
    }
}

/// `other processes used 1.3 of 2 cores`
impl Display for Others {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let cores = if self.took > 0.0 { self.seconds.max(0.0) / self.took } else { 0.0 };
        write!(f, "other processes used {cores:.1} of {} cores", used_cores().len())
    }
}

/// Watches the cores for a fifth of a second, and prints a warning if other processes use them.
pub fn warn_if_busy() {
    let before = Reading::now();
    if before.others.is_none() {
        return;
    }
    sleep(Duration::from_millis(200));
    let others = before.since();
    if others.disturb() {
        // A closed standard error is no reason to end.
        let text =
            format!("warning: {others}; times that are measured now are not to be trusted\n");
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

fn others() -> Option<f64> {
    let busy = busy_seconds(&read_to_string("/proc/stat").ok()?, &used_cores())?;
    Some(busy - process_seconds(&read_to_string("/proc/self/stat").ok()?)?)
}

/// The cores that this process may run on.
pub(crate) fn used_cores() -> Vec<usize> {
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.and_then(core_list).unwrap_or_default()
}

/// The numbers in a list such as `0-2,5`.
fn core_list(text: &str) -> Option<Vec<usize>> {
    let mut cores = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cores.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(cores)
}

/// CPU seconds of these cores so far, steal time included, from the text of `/proc/stat`.
fn busy_seconds(stat: &str, cores: &[usize]) -> Option<f64> {
    let mut ticks = 0;
    for line in stat.lines() {
        let mut words = line.split_whitespace();
        let core = words.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
        if !core.is_some_and(|core| cores.contains(&core)) {
            continue;
        }
        let fields = words.take(8).map(|word| word.parse::<u64>().ok());
        let fields: Vec<u64> = fields.collect::<Option<_>>()?;
        let &[user, nice, system, _idle, _waiting, interrupts, soft, stolen] = &fields[..] else {
            return None;
        };
        ticks += user + nice + system + interrupts + soft + stolen;
    }
    Some(ticks as f64 * TICK)
}

/// CPU seconds of a process, user and system, from the text of `/proc/PID/stat`.
fn process_seconds(stat: &str) -> Option<f64> {
    // Its name, in brackets, may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some((next()? + next()?) as f64 * TICK)
}
