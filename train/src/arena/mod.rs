//! Every attention variant in the same small model, trained on the same tasks with the same budget: `arena`.
//!
//! Read [`tasks`] first (what is learnt), then [`train`] (one run).

mod table;
mod tasks;
mod train;

pub use table::learned;

use crate::output::{note, say};
use crate::progress;
use crate::ranks::Ranks;
use crate::stop::{self, OrFailed, Result};
use crate::values::{attention, count};
use clap::Args;
use retrograd::nn::AttentionKind;
use retrograd::prelude::*;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use table::{LEGEND, Scores, tables};
use tasks::{Task, Text};
use train::Budget;

/// Train every attention variant in the same small model on the same tasks, and compare them
///
/// Prints one table, and writes it as table.md and table.csv. --quick takes about ten minutes on two cores, the
/// whole nearly two hours. As many runs as threads are trained at the same time. Under mpiexec, the runs are divided among processes.
#[derive(Args, Debug)]
pub struct Arena {
    /// Train for fewer steps: about ten minutes on two cores
    #[arg(long)]
    quick: bool,
    /// Training steps of each run [default: 1200, or 120 with --quick]
    #[arg(long, value_parser = count(100_000_000), value_name = "N")]
    steps: Option<u64>,
    /// Variants to train, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = attention)]
    only: Vec<AttentionKind>,
    /// Seed of weights and data
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Folder for the table
    #[arg(long, value_name = "DIR", default_value = "out/arena")]
    out: PathBuf,
}

/// Trains all variants.
pub fn arena(args: &Arena, ranks: &Ranks) -> Result<()> {
    let made = if ranks.is_first() { fs::create_dir_all(&args.out) } else { Ok(()) };
    let making = format!("cannot make the folder {}", args.out.display());
    ranks.agree(made.or_failed(making))?;
    let kinds = if args.only.is_empty() { AttentionKind::ALL } else { &args.only };
    let steps = args.steps.unwrap_or(if args.quick { 120 } else { 1200 });
    let budget = Budget { steps, batch: 32, width: 64, seed: args.seed };
    let text = Text::new(&crate::tales::tales(1, 400_000));
    let (variants, tasks, batch) = (kinds.len(), Task::ALL.len(), budget.batch);
    note!("{variants} variants, {tasks} tasks, {steps} steps of {batch} sequences each\n");
    let start = Instant::now();
    let scores = train_all(kinds, &text, budget, ranks);
    if !ranks.is_first() {
        return Ok(());
    }
    let failed = scores.values().flat_map(|score| score.as_ref().err()).count();
    let (markdown, csv) = tables(kinds, &scores);
    say!("{markdown}\n{LEGEND}");
    for (name, contents) in [("table.md", markdown), ("table.csv", csv)] {
        let path = args.out.join(name);
        fs::write(&path, contents).or_failed(format!("cannot write {}", path.display()))?;
    }
    let (seconds, out) = (start.elapsed().as_secs_f64(), args.out.display());
    say!("\n{seconds:.0} s. The table is in {out}, as table.md and table.csv");
    match failed {
        0 => Ok(()),
        n => stop::failed(format!("{n} runs failed, see the table")),
    }
}

/// Trains every variant on every task, several runs at a time, and divided among the ranks.
fn train_all(kinds: &[AttentionKind], text: &Text, budget: Budget, ranks: &Ranks) -> Scores {
    let all = (0..kinds.len()).flat_map(|k| (0..Task::ALL.len()).map(move |t| (k, t)));
    let jobs: Vec<(usize, usize)> = all.skip(ranks.rank()).step_by(ranks.count()).collect();
    let bar = progress::bar(jobs.len() as u64, "{pos}/{len} {msg}  {eta} left");
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
        (0..retrograd::tensor::threads()).for_each(|_| drop(s.spawn(worker)));
    });
    bar.finish_and_clear();
    let scores = scores.into_inner().expect("no worker panicked");
    ranks.share(&scores).into_iter().flatten().collect()
}
