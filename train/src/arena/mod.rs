//! Every attention variant in the same small model, trained on the same tasks with the same budget.
//!
//! `cargo run --release --example arena` trains each variant on each task, prints one table, and writes
//! it as `table.md` and `table.csv`. `--quick` takes two minutes on two cores, the whole half an
//! hour at most. With the feature `mpi`, `mpiexec` divides the runs among processes. Read [`tasks`] first (what is learnt), then [`train`] (one run).

mod table;
mod tasks;
mod train;

use crate::environment;
use crate::output::{self, note, say};
use crate::ranks::Ranks;
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use retrograd::nn::AttentionKind;
use retrograd::prelude::*;
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use table::{Scores, Table};
use tasks::{Task, Text};
use train::Budget;

/// Trains every attention variant in the same small model on the same tasks, and compares them.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Train for fewer steps: two minutes on two cores
    #[arg(long)]
    quick: bool,
    /// Training steps of each run [default: 1200, or 120 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Variants to train, separated by commas [default: all]
    #[arg(long, value_delimiter = ',')]
    only: Vec<AttentionKind>,
    /// Seed of weights and data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs at the same time, each with one thread [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: Option<u64>,
    /// Folder for the table
    #[arg(long, default_value = "out/arena")]
    out: PathBuf,
}

pub fn main() -> ExitCode {
    retrograd::study::from_env();
    let args = Args::parse_from(std::env::args_os().skip(1));
    environment::check("close other programs");
    output::exit_code(Ranks::start().and_then(|ranks| run(&args, &ranks)))
}

fn run(args: &Args, ranks: &Ranks) -> Result<(), String> {
    let made = || std::fs::create_dir_all(&args.out);
    let made = if ranks.is_first() { made() } else { Ok(()) };
    let made = made.map_err(|e| format!("cannot make the folder {}: {e}", args.out.display()));
    if ranks.share(&made.is_err()).contains(&true) {
        return made;
    }
    let kinds = if args.only.is_empty() { AttentionKind::ALL } else { &args.only };
    let steps = args.steps.unwrap_or(if args.quick { 120 } else { 1200 });
    let budget = Budget { steps, batch: 32, width: 64, seed: args.seed };
    let text = Text::new(&crate::tales::tales(1, 400_000));
    note!(
        "{} variants, {} tasks, {steps} steps of {} sequences each\n",
        kinds.len(),
        Task::ALL.len(),
        budget.batch
    );
    let start = Instant::now();
    let scores = train_all(kinds, &text, budget, args.threads, ranks);
    if !ranks.is_first() {
        return Ok(());
    }
    let failed = scores.values().flat_map(|score| score.as_ref().err()).count();
    let table = Table::new(kinds, scores);
    say!("{table}");
    for (name, contents) in [("table.md", table.markdown()), ("table.csv", table.csv())] {
        let path = args.out.join(name);
        std::fs::write(&path, contents)
            .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    say!(
        "\n{:.0} s. The table is in {}, as table.md and table.csv",
        start.elapsed().as_secs_f64(),
        args.out.display()
    );
    match failed {
        0 => Ok(()),
        n => Err(format!("{n} runs failed, see the table")),
    }
}

/// Trains every variant on every task, several runs at a time, and divided among the ranks.
fn train_all(
    kinds: &[AttentionKind],
    text: &Text,
    budget: Budget,
    threads: Option<u64>,
    ranks: &Ranks,
) -> Scores {
    let all = (0..kinds.len()).flat_map(|k| (0..Task::ALL.len()).map(move |t| (k, t)));
    let jobs: Vec<(usize, usize)> = all.skip(ranks.rank()).step_by(ranks.count()).collect();
    let bar = progress_bar(jobs.len());
    let (next, scores) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let worker = || {
        with_threads(1, || {
            while let Some(&(k, t)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let score = train::run(kinds[k], Task::ALL[t], text, budget);
                scores.lock().expect("no worker panicked").push(((k, t), score));
                bar.set_message(format!("{} on {}", kinds[k], Task::ALL[t].name()));
                bar.inc(1);
            }
        })
    };
    std::thread::scope(|s| {
        (0..ranks.threads(threads)).for_each(|_| drop(s.spawn(worker)));
    });
    bar.finish_and_clear();
    let scores = scores.into_inner().expect("no worker panicked");
    ranks.share(&scores).into_iter().flatten().collect()
}

fn progress_bar(runs: usize) -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar:.green/dim} {pos}/{len} {msg}  {eta} left");
    let style = style.expect("a template").progress_chars("━━─");
    ProgressBar::new(runs as u64).with_style(style)
}
