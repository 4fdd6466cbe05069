//! The line protocol between benches/compare and the programs that execute the work.
//!
//! | request | response |
//! |---|---|
//! | `about` | one line of JSON |
//! | `open NAME` | `ok FLOPS BYTES` once the operands are allocated, or `unknown` |
//! | `check CALLS` | numbers that summarise the results of `CALLS` calls: `digest` (data.rs) of every result, or the loss of a training step; an empty line if results are random |
//! | `run SECONDS` | `SECONDS CALLS`: the median time of a call, and the number of calls, for about the given time and at least one |
//! | `close` | `ok`; the operands are freed |
//!
//! Between two requests a program is idle, so that another one can be measured.

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

/// Executes the work once; if the argument is true, returns a few numbers that summarise the result.
pub type Run = Box<dyn FnMut(bool) -> Vec<f64>>;

/// Work whose operands have been allocated.
pub struct Opened {
    /// Floating-point operations that the work requires.
    pub flops: f64,
    /// The least number of bytes that the work must read and write (compulsory memory traffic).
    pub bytes: f64,
    pub run: Run,
}

/// Answers requests until the end of standard input.
pub fn serve(about: impl Fn() -> String, open: impl Fn(&str) -> Option<Opened>) {
    let mut opened: Option<Opened> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("lines of text");
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let answer = match (word, &mut opened) {
            ("about", _) => about(),
            ("open", _) => {
                drop(opened.take()); // frees the old operands before new ones are allocated
                opened = open(rest);
                match &opened {
                    Some(work) => format!("ok {} {}", work.flops, work.bytes),
                    None => "unknown".into(),
                }
            }
            ("check", Some(work)) => {
                let calls = 0..rest.parse().expect("a number of calls");
                let numbers = calls.flat_map(|_| (work.run)(true)).map(|x| format!("{x:e}"));
                numbers.collect::<Vec<_>>().join(" ")
            }
            ("run", Some(work)) => {
                let (time, calls) = run(&mut work.run, rest.parse().expect("seconds"));
                format!("{time:e} {calls}")
            }
            ("close", _) => {
                opened = None;
                "ok".into()
            }
            _ => panic!("unknown request: {line}"),
        };
        println!("{answer}");
        std::io::stdout().flush().expect("standard output is open");
    }
}

/// The median time of a call in seconds, and the number of calls, for about these seconds and at least one call.
pub fn run(f: &mut Run, seconds: f64) -> (f64, u32) {
    // Shorter calls are timed in groups that take at least this long, as the clock is too coarse.
    const LEAST: Duration = Duration::from_micros(20);
    let start = Instant::now();
    let (mut samples, mut calls, mut at_once) = (Vec::new(), 0u32, 1u32);
    while samples.is_empty() || start.elapsed().as_secs_f64() < seconds {
        let before = Instant::now();
        for _ in 0..at_once {
            f(false);
        }
        let time = before.elapsed();
        calls += at_once;
        if time < LEAST && seconds > 0.0 {
            at_once *= 2;
        } else {
            samples.push(time.as_secs_f64() / f64::from(at_once));
        }
    }
    samples.sort_by(f64::total_cmp);
    (samples[samples.len() / 2], calls)
}
