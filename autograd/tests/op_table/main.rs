//! All checks of every differentiable operation, from one table.
//!
//! `PROPTEST_CASES` sets the number of random cases per row, `OP_SIZES=130` adds vectors of every size
//! up to 130, and `OP` selects the rows of one operation. `cargo test --test op_table -- --nocapture`
//! prints the number of executions of each check, and the largest errors: `worst` is relative, `share`
//! and `f32` are fractions of the allowed error.

mod checks;
mod complete;
mod draw;
mod fused;
mod layouts;
mod record;
mod rows;
mod special;
mod table;
mod wrong;

use checks::{CHECKS, Done, check, check_threads};
use complete::fused_operations;
use draw::{Case, case};
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use retrograd_support::panics::message;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use table::{ROWS, Row, Second};

/// The number of random cases per row, unless `PROPTEST_CASES` is set.
const CASES: u32 = 48;

/// As proptest's own, which does not read the environment in WebAssembly.
fn config() -> Config {
    let number = |name| std::env::var(name).ok().map(|n| n.parse::<u64>().expect("a number"));
    Config {
        cases: number("PROPTEST_CASES").map_or(CASES, |n| n as u32),
        rng_seed: number("PROPTEST_RNG_SEED").map_or(RngSeed::Random, RngSeed::Fixed),
        max_shrink_iters: 500,
        ..Config::default()
    }
}

/// Runs all checks of one row; returns their results, the failure if any, and the number of cases.
fn check_row(row: &Row) -> (Done, Option<String>, u32) {
    let mut done = Done::default();
    for case in Case::always() {
        let result = catch_unwind(AssertUnwindSafe(|| check(row, &case, &mut done)));
        let text = match result {
            Ok(Ok(())) => continue,
            Ok(Err(failure)) => format!("{}: {}", failure.check, failure.text),
            Err(panic) => format!("panicked: {}", message(panic)),
        };
        return (done, Some(format!("{text}\n    {case:?}")), 0);
    }
    let shared = RefCell::new(done);
    let config = config();
    let cases = config.cases;
    let random = TestRunner::new(config).run(&case(), |case| {
        check(row, &case, &mut shared.borrow_mut())
            .map_err(|f| TestCaseError::fail(format!("{}: {}", f.check, f.text)))
    });
    let mut done = shared.into_inner();
    if let Err(e) = random {
        return (done, Some(e.to_string()), cases);
    }
    let threads = catch_unwind(AssertUnwindSafe(|| check_threads(row, &mut done)));
    let failure = match threads {
        Ok(Ok(())) => None,
        Ok(Err(f)) => Some(format!("{}: {}", f.check, f.text)),
        Err(panic) => Some(format!("panicked: {}", message(panic))),
    };
    let flat = row.second == Second::Nonzero && !done.curved;
    let flat = flat.then(|| "second: all second derivatives were 0".to_string());
    (done, failure.or(flat), cases)
}

#[test]
fn every_operation_passes_every_check() {
    let start = Instant::now();
    let only = std::env::var("OP").ok();
    let rows: Vec<&Row> =
        ROWS.iter().filter(|r| only.as_deref().is_none_or(|o| o == r.name)).collect();
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let worker = || {
        while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = check_row(row);
            results.lock().unwrap().push((*row, result));
        }
    };
    // WebAssembly has this thread only.
    let others = std::thread::available_parallelism().map_or(0, |n| n.get() - 1);
    std::thread::scope(|s| {
        (0..others).for_each(|_| drop(s.spawn(worker)));
        worker();
    });
    let mut results = results.into_inner().unwrap();
    results.sort_by_key(|(row, _)| ROWS.iter().position(|r| std::ptr::eq(r, *row)));
    report(&results, start.elapsed().as_secs_f64());
    let failed: Vec<String> = results
        .iter()
        .filter_map(|(row, (_, failure, _))| {
            failure.as_ref().map(|f| format!("{} {}: {f}", row.name, row.variant))
        })
        .collect();
    assert!(failed.is_empty(), "{} rows failed:\n{}", failed.len(), failed.join("\n"));
    if only.is_none() {
        let compared = results.iter().flat_map(|(_, (done, ..))| done.fused.iter().copied());
        assert_eq!(compared.collect::<BTreeSet<_>>().len(), fused_operations());
    }
}

type Results<'a> = [(&'a Row, (Done, Option<String>, u32))];

fn report(results: &Results, seconds: f64) {
    print!("{:<32}{:>7}", "operation", "cases");
    CHECKS.iter().for_each(|c| print!("{c:>12}"));
    println!("{:>12}{:>12}{:>10}{:>8}{:>8}", "derivatives", "elements", "worst", "share", "f32");
    for (row, (done, ..)) in results {
        print!("{:<32}{:>7}", format!("{} {}", row.name, row.variant), done.cases);
        CHECKS.iter().for_each(|c| print!("{:>12}", done.checks.get(c).copied().unwrap_or(0)));
        print!("{:>12}{:>12}", done.derivatives, done.elements);
        println!("{:>10.1e}{:>8.3}{:>8.3}", done.worst, done.worst_share, done.worst_f32);
    }
    let all = || results.iter().map(|(row, (done, ..))| (*row, done));
    let names: BTreeSet<&str> = all().map(|(row, _)| row.name).collect();
    let sum = |f: &dyn Fn(&Done) -> u64| all().map(|(_, d)| f(d)).sum::<u64>();
    let worst = all().max_by(|a, b| a.1.worst.total_cmp(&b.1.worst)).expect("rows");
    let proptest: u64 = results.iter().map(|(_, (_, _, cases))| u64::from(*cases)).sum();
    let failed = results.iter().filter(|(_, (_, failure, _))| failure.is_some()).count();
    println!(
        "op_table: ops={} rows={} checks={} executed={} cases={} proptest_cases={proptest} \
         derivatives={} elements={} worst={:.2e} worst_op={} \
         worst_share={:.3} worst_f32={:.3} failed={failed} seconds={seconds:.1}",
        names.len(),
        results.len(),
        CHECKS.len(),
        sum(&|d| d.checks.values().sum()),
        sum(&|d| d.cases),
        sum(&|d| d.derivatives),
        sum(&|d| d.elements),
        worst.1.worst,
        worst.0.name,
        all().map(|(_, d)| d.worst_share).fold(0.0, f64::max),
        all().map(|(_, d)| d.worst_f32).fold(0.0, f64::max),
    );
}
