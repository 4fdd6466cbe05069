//! Random programs, on every path and in PyTorch.

mod draw;
pub mod language;

use draw::{draw, operations};
use language::{How, Outcome, Program, number};
use retrograd::nn::attention::Path;
use retrograd::prelude::*;
use retrograd::tensor::Real;
use retrograd::tensor::settings::with_level;
use retrograd::tensor::simd::Level;
use std::collections::BTreeMap;
use std::env;
use std::io::{Seek, Write};
use std::process::Command;

const FIXTURE: &str = "tests/fixtures/programs.jsonl";

fn largest(x: &[f64]) -> f64 {
    x.iter().fold(1.0, |a, x| if x.is_nan() { f64::INFINITY } else { a.max(x.abs()) })
}

/// The largest difference, infinite if there is a NaN.
fn difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let parts = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    parts.fold(0.0, |a, b| if b.is_nan() { f64::INFINITY } else { a.max(b) })
}

/// How far each part of the outcome moves, relative to the change of operands.
fn condition(program: &Program, exact: &Outcome, noise: f64) -> [f64; 4] {
    let of = |noise| program.outcome::<f64>(&How { noise, ..How::default() });
    let (up, down) = (of(noise), of(-noise));
    [0, 1, 2, 3].map(|k| difference(&up[k], &exact[k]).max(difference(&down[k], &exact[k])) / noise)
}

/// The outcome in f64, and what rounding to an epsilon of 1 may change.
fn reference(program: &Program) -> (Outcome, [f64; 4]) {
    let exact = program.outcome::<f64>(&How::default());
    let condition = condition(program, &exact, 1e-9);
    let bound = [0, 1, 2, 3].map(|k| 64.0 * (condition[k] + largest(&exact[k])));
    (exact, bound)
}

/// Comparisons, and the differences as parts of what is allowed.
type Compared = Vec<(String, f64)>;

/// Equal bits with any threads, on levels with fused multiply-add, and recomputed; else near the outcome in f64.
fn on_all_paths<T: Real>(program: &Program, wrong: &str) -> Compared {
    let (exact, bound) = reference(program);
    let how = |path| How { path, wrong: wrong.into(), ..How::default() };
    let near = |y: &Outcome| {
        let part = |k: usize| difference(&y[k], &exact[k]) / (T::EPSILON.to_f64() * bound[k]);
        (0..4).map(part).fold(0.0, f64::max)
    };
    let same = |a: &Outcome, b: &Outcome| {
        let equal =
            a.iter().flatten().zip(b.iter().flatten()).all(|(a, b)| a.to_bits() == b.to_bits());
        if equal { near(a) } else { f64::INFINITY }
    };
    let usual = program.outcome::<T>(&how(Path::Auto));
    let (mut all, mut first) = (Vec::new(), BTreeMap::new());
    for (level, threads) in Level::available().into_iter().flat_map(|l| [1, 2, 3].map(|n| (l, n))) {
        let run = || with_level(level, || program.outcome::<T>(&how(Path::Auto)));
        let y = with_threads(threads, run);
        let first = first.entry(level.is_fused()).or_insert_with(|| y.clone());
        all.push((format!("{level}, {threads} threads"), same(&y, first)));
    }
    let n = program.steps.len() as f64;
    let start = ((number(program.seed, 1, 0) + 2.0) / 4.0 * n) as usize;
    for again in [start..start + 1, start..program.steps.len(), 0..start] {
        let y = program.outcome::<T>(&How { again, ..how(Path::Auto) });
        all.push(("recomputed".into(), same(&y, &usual)));
    }
    for path in [Path::Composed, Path::Tiled] {
        all.push((format!("{path:?}"), near(&program.outcome::<T>(&how(path)))));
    }
    all
}

/// Against PyTorch's sums of each part times numbers.
fn with_pytorch(program: &Program, sums: [f64; 4], wrong: &str) -> Compared {
    let (_, bound) = reference(program);
    let y = program.outcome::<f64>(&How { wrong: wrong.into(), ..How::default() });
    let part = |k: usize| {
        let terms = y[k].iter().zip(0..).map(|(y, i)| y * number(program.seed, 300 + k as u64, i));
        let rounding = f64::EPSILON * bound[k] * (y[k].len() as f64).sqrt();
        (terms.sum::<f64>() - sums[k]).abs() / (rounding + 1e-12 * sums[k].abs())
    };
    (0..4).map(|k| (format!("PyTorch, part {k}"), part(k))).collect()
}

fn check(compared: impl Iterator<Item = (Program, Compared)>) {
    let (mut n, mut steps, mut worst) = (0, 0, 0.0);
    for (program, all) in compared {
        let of = all.iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("a comparison");
        assert!(of.1 <= 1.0, "{of:?}\n{program:?}");
        (n, steps, worst) = (n + 1, steps + program.steps.len(), of.1.max(worst));
    }
    println!("{n} programs of {steps} operations, largest part of what is allowed {worst:.3}");
}

/// A number from the environment.
pub fn variable(name: &str) -> Option<u64> {
    env::var(name).ok().map(|n| n.parse().unwrap_or_else(|e| panic!("{name}: {e}")))
}

/// As many seeds as `PROPTEST_CASES` says.
pub fn seeds(default: u64) -> std::ops::Range<u64> {
    let first = variable("PROPTEST_RNG_SEED").unwrap_or(1) << 32;
    first..first + variable("PROPTEST_CASES").unwrap_or(default)
}

#[test]
fn random_programs_agree_on_all_paths() {
    check(seeds(200).map(|seed| {
        let program = draw(seed, seed % 40 == 0);
        let mut all = on_all_paths::<f32>(&program, "");
        all.extend(on_all_paths::<f64>(&program, ""));
        (program, all)
    }));
}

/// PyTorch's sums for small programs, a line each; `None` if there is no PyTorch.
fn from_pytorch(seeds: impl Iterator<Item = u64>) -> Option<String> {
    let path = retrograd_support::python_with("torch")?;
    let mut programs = tempfile::tempfile().unwrap();
    for Program { seed, inputs, steps } in seeds.map(|seed| draw(seed, false)) {
        writeln!(programs, "{}", serde_json::json!([seed, inputs, steps])).unwrap();
    }
    programs.rewind().unwrap();
    let script = retrograd_support::fixture("make_programs.py");
    let run = Command::new("python3").arg(script).env("PATH", path).stdin(programs).output();
    let run = run.unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    Some(String::from_utf8(run.stdout).unwrap())
}

fn lines(text: &str) -> Vec<(Program, [f64; 4])> {
    let parse = |line| {
        let (seed, inputs, steps, sums) = serde_json::from_str(line).unwrap();
        (Program { seed, inputs, steps }, sums)
    };
    text.lines().map(parse).collect()
}

/// The programs of the fixture, or as many as `PROPTEST_CASES` says, if there is a PyTorch.
#[test]
fn programs_agree_with_pytorch() {
    let writes = retrograd_support::is_writing();
    let chosen = writes || variable("PROPTEST_CASES").is_some();
    let drawn = if chosen { from_pytorch(seeds(500)) } else { None };
    if let (true, Some(text)) = (writes, &drawn) {
        retrograd_support::check_written(FIXTURE, text);
    }
    let programs = lines(&drawn.unwrap_or_else(|| retrograd_support::read(FIXTURE)));
    check(programs.into_iter().map(|(program, sums)| {
        let all = with_pytorch(&program, sums, "");
        (program, all)
    }));
}

/// A gradient that is wrong by a thousandth is found: of every operation by the fixture, and on one path alone.
#[test]
fn planted_errors_are_found() {
    let fails = |all: Compared| all.iter().any(|(_, part)| *part > 1.0);
    let all = lines(&retrograd_support::read(FIXTURE));
    for (op, ..) in operations() {
        let mut with = all.iter().filter(|(p, _)| p.steps.iter().any(|(name, ..)| name == op));
        assert!(with.any(|(program, sums)| fails(with_pytorch(program, *sums, op))), "{op}");
    }
    let levels = Level::available().into_iter().map(Level::name);
    for wrong in levels.chain(["1", "2", "3", "again", "Composed", "Tiled"]) {
        let found = all.iter().any(|(program, _)| fails(on_all_paths::<f32>(program, wrong)));
        assert!(found, "{wrong}");
    }
}
