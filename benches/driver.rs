//! Times the cases that are named, such as
//! `cargo bench -p retrograd-benches --bench driver -- "softmax fwd+bwd 16384 65" "gemm nn 512 512 512"`.
//!
//! Without names it executes the requests of benches/compare (see protocol.rs there). `--precision NAME` sets the
//! precision of matrix multiplication. At its start it warns if other processes use the cores; `--no-warning` omits
//! this, for a caller that watches the load itself. `--count` calls each case twice in a function, for `.ci/counts`.

#[path = "compare/protocol.rs"]
mod protocol;
#[path = "tasks/mod.rs"]
mod tasks;

use protocol::Opened;
use retrograd::machine::Machine;
use retrograd::prelude::{MatmulPrecision, with_matmul_precision, with_threads};
use retrograd::study::conditions;
use retrograd::study::load::{self, Reading};
use retrograd::tensor::settings::level;
use retrograd::tensor::{matmul_precision, threads};
use serde_json::json;

fn main() {
    retrograd::study::from_env();
    let (mut precision, mut names, mut warn) = (MatmulPrecision::F32, Vec::new(), true);
    let mut action: fn(&[String]) = time;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--precision" => {
                let name = args.next().expect("a precision");
                precision = name.parse().unwrap_or_else(|e| panic!("{e}"));
            }
            "--no-warning" => warn = false,
            "--count" => (action, warn) = (count, false),
            "--bench" => {} // from cargo
            _ => names.push(arg),
        }
    }
    assert!(
        precision.is_supported(),
        "this CPU does not support matrix multiplication in {precision}"
    );
    if warn {
        load::warn_if_busy();
    }
    // As in training, everything happens within a pool that is entered once.
    let work = || if names.is_empty() { serve() } else { action(&names) };
    with_threads(threads(), || with_matmul_precision(precision, work));
}

fn serve() {
    protocol::serve(about, |name| {
        let work = tasks::work(name)?;
        Some(Opened { flops: work.flops, bytes: work.bytes, run: (work.start)() })
    });
}

/// Prints the median time of a call of each case within a second, and its rates as fractions of the machine's limits:
/// of the FMA peak of all threads, and of the bandwidth of the fastest memory level that holds as many bytes.
fn time(names: &[String]) {
    let machine = Machine::measure();
    println!("{}\n{}\n", conditions::sentence(), machine.summary());
    for name in names {
        let work = tasks::work(name).unwrap_or_else(|| panic!("there is no work named {name}"));
        let mut run = (work.start)();
        protocol::run(&mut run, 0.3);
        let before = Reading::now();
        let (seconds, calls) = protocol::run(&mut run, 1.0);
        let others = before.since();
        print!("{name:40} {:>12.3} us", seconds * 1e6);
        if work.flops > 0.0 {
            let rate = work.flops / seconds / 1e9;
            let share = 100.0 * rate / machine.peak().gflops.all;
            print!("  {rate:.1} GFLOP/s = {share:.0} % of the peak");
        }
        if work.bytes > 0.0 {
            let share = 100.0 * machine.least_seconds(0.0, work.bytes) / seconds;
            let (rate, level) = (work.bytes / seconds / 1e9, machine.holding(work.bytes).name);
            print!("  {rate:.1} GB/s = {share:.0} % of {level}");
        }
        println!("  ({calls} calls)");
        if others.disturb() {
            eprintln!("warning: {others} during {name}; its time is not to be trusted\n");
        }
    }
}

fn count(names: &[String]) {
    for name in names {
        let work = tasks::work(name).unwrap_or_else(|| panic!("there is no work named {name}"));
        let mut run = (work.start)();
        (0..2).for_each(|_| drop(run(false))); // takes memory that later calls recycle
        counted(&mut run);
    }
}

/// The calls whose instructions are counted.
#[inline(never)]
fn counted(run: &mut protocol::Run) {
    (0..2).for_each(|_| drop(run(false)));
}

/// The limits of the machine, all threads together.
fn about() -> String {
    let machine = Machine::measure();
    let memory = machine.memory.iter().map(|m| {
        let cores = if m.per_core { machine.threads as f64 } else { 1.0 };
        let bytes = m.bytes as f64 * cores;
        json!({ "name": m.name, "bytes": bytes, "gb": machine.bandwidth(bytes) })
    });
    let about = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "threads": machine.threads,
        "level": level().name(),
        "precision": matmul_precision().name(),
        "cpu": conditions::cpu_model(),
        "governor": conditions::governor(),
        "turbo": conditions::turbo(),
        "gflops": machine.peak().gflops.all,
        "memory": memory.collect::<Vec<_>>(),
        "report": machine.to_string(),
    });
    about.to_string()
}
