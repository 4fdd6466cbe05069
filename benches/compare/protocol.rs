//! How benches/compare talks, line by line, to the programs that do the work.
//!
//! | it says | the answer |
//! |---|---|
//! | `about` | one line of JSON |
//! | `open NAME` | `ok FLOPS BYTES` once the operands are made, or `unknown` |
//! | `check CALLS` | numbers that tell what came out of so many calls: `digest` (data.rs) of every result, or the loss of a training step; nothing if that is random |
//! | `run SECONDS` | `SECONDS CALLS`: the median time of a call, of that many for about as long as was said and at least one |
//! | `close` | `ok`; the operands are gone |
//!
//! Between two lines a program does nothing at all, so that another one can be measured.

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

/// Does work once; if it is asked, it says in a few numbers what came out.
pub type Run = Box<dyn FnMut(bool) -> Vec<f64>>;

/// Work whose operands have been made.
pub struct Opened {
    /// Multiplications and additions that cannot be avoided.
    pub flops: f64,
    /// Bytes that have to be moved.
    pub bytes: f64,
    pub run: Run,
}

/// Answers until there is no more to read.
pub fn serve(about: impl Fn() -> String, open: impl Fn(&str) -> Option<Opened>) {
    let mut opened: Option<Opened> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("lines of text");
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let answer = match (word, &mut opened) {
            ("about", _) => about(),
            ("open", _) => {
                drop(opened.take()); // not both at once
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
            ("run", Some(work)) => run(&mut work.run, rest.parse().expect("seconds")),
            ("close", _) => {
                opened = None;
                "ok".into()
            }
            _ => panic!("cannot do: {line}"),
        };
        println!("{answer}");
        std::io::stdout().flush().expect("somebody listens");
    }
}

fn run(f: &mut Run, seconds: f64) -> String {
    // Calls that are too short for the clock are timed several at once.
    const LEAST: Duration = Duration::from_micros(20);
    let start = Instant::now();
    let (mut samples, mut calls, mut at_once) = (Vec::new(), 0, 1u32);
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
    format!("{:e} {calls}", samples[samples.len() / 2])
}
