//! Trains small language models, and shows what happens in them: the program `retrograd`.
//!
//! Each command is a file: `train`, `resume`, `sample`, `evaluate`, `export`, `xray`, `attention`, `replay`,
//! `bisect`, `diff`, `blame`, `compare`, `grid`, `versus`, `scaling`, `arena`. `cli` lists them, and `flags`
//! has the flags that they share. To read the code of a run: `training` (the loop), `session` (a step, an
//! evaluation, a checkpoint), `text`, `run` (the contents of a checkpoint), `recipe` (the hyperparameters),
//! then the rest; `past` is a run that is computed again. The step itself is
//! [`retrograd::nn::training::Trainer`].

mod arena;
mod attention;
mod bisect;
mod blame;
mod checkpoints;
mod cli;
mod clock;
mod compare;
mod diff;
mod environment;
mod evaluate;
mod export;
mod facts;
mod files;
mod fine_tune;
mod finish;
mod flags;
mod folder;
mod grid;
mod json_lines;
mod line;
mod log;
mod looks;
pub mod memory;
mod output;
pub mod outside;
mod page;
mod paired;
mod past;
mod presets;
mod pretrained;
mod progress;
mod ranks;
mod recipe;
mod replay;
mod rescue;
mod resume;
mod run;
mod sample;
mod scaling;
mod session;
mod signals;
mod stop;
mod tales;
pub mod text;
mod tokenizer;
mod train;
mod training;
mod values;
mod versus;
pub mod watch;
mod xray;

pub use arena::learned;
use clap::error::ContextKind::{InvalidArg, InvalidValue};
pub use page::scales;
pub use tales::tales;

use cli::{Cli, Command};
use output::say;
use ranks::Ranks;
use recipe::LESS_MEMORY;
use retrograd::nn::AttentionKind;
use retrograd::prelude::*;
use retrograd::tensor::kernels::gemm::arithmetic;
use retrograd::tensor::simd::Level;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hasher};
use std::process::ExitCode;
use stop::{OrFailed, Result, Stop};

/// Runs the program with a command line, whose first argument is the name of the program.
pub fn main(line: impl IntoIterator<Item = OsString>) -> ExitCode {
    // Before the command line, whose parser allocates.
    environment::check_memory(std::thread::available_parallelism().map_or(1, usize::from));
    retrograd::study::from_env();
    let line: Vec<OsString> = line.into_iter().collect();
    let done = Ranks::start().and_then(|ranks| {
        let done = parse(&line, &ranks).and_then(|cli| {
            let threads = ranks.threads(cli.threads);
            environment::check_memory(threads);
            with_threads(threads, || run(&cli, &line, &ranks))
        });
        ranks.agree(done)
    });
    output::end(done.map_or_else(Stop::report, |()| 0))
}

/// The command line.
///
/// # Errors
/// Also requests for help and for a list, which are printed: the exit code is 0.
fn parse(line: &[OsString], ranks: &Ranks) -> Result<Cli> {
    ranks.check_same(&program(line, ranks)?)?;
    let error = match Cli::read(&mut Cli::commands(), line) {
        Ok(cli) => {
            environment::check(LESS_MEMORY);
            return Ok(cli);
        }
        Err(e) => e,
    };
    let invalid = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    // The name of no variant, but a request.
    if invalid(InvalidArg).starts_with("--attention ") && invalid(InvalidValue) == "list" {
        for kind in AttentionKind::ALL {
            say!("{:<16} {}", kind.name(), kind.summary());
        }
        return Err(Stop::printed(0));
    }
    if ranks.is_first() {
        match error.use_stderr() {
            true => output::fault(error.render().to_string().trim_end()),
            false => drop(error.print()),
        }
    }
    // For help and the version it is 0.
    Err(Stop::printed(error.exit_code() as u8))
}

/// What must be the same on all ranks from the start.
fn program(line: &[OsString], ranks: &Ranks) -> Result<Vec<(&'static str, String)>> {
    if ranks.count() == 1 {
        return Ok(Vec::new());
    }
    let file =
        std::env::current_exe().and_then(std::fs::read).or_failed("cannot read the program")?;
    let flags: Vec<String> = line.iter().skip(1).map(|a| format!("{a:?}")).collect();
    Ok(vec![
        ("version", env!("CARGO_PKG_VERSION").to_string()),
        ("program", format!("{} bytes with checksum {:016x}", file.len(), checksum(&file))),
        ("flags", flags.join(" ")),
        // An invalid level is an error later, on all ranks.
        (
            "arithmetic",
            Level::from_environment().map_or_else(|e| e.to_string(), |_| arithmetic::<f32>()),
        ),
    ])
}

/// To recognise another program, not an attack.
fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

fn run(cli: &Cli, line: &[OsString], ranks: &Ranks) -> Result<()> {
    let quiet = cli.quiet;
    let Some(command) = &cli.command else {
        cli::introduce();
        return Ok(());
    };
    match command {
        Command::Train(args) => train::train(args, quiet, ranks),
        Command::Resume(args) => resume::resume(args, quiet, ranks),
        Command::Evaluate(args) => evaluate::evaluate(args, ranks),
        Command::Grid(args) => grid::grid(args, line, ranks),
        Command::Scaling(args) => scaling::scaling(args, ranks),
        Command::Arena(args) => arena::arena(args, ranks),
        // The others are for one process.
        _ if !ranks.is_first() => Ok(()),
        Command::Sample(args) => sample::sample(args, quiet),
        Command::Export(args) => export::export(args),
        Command::Xray(args) => xray::xray(args),
        Command::Attention(args) => attention::attention(args),
        Command::Replay(args) => replay::replay(args),
        Command::Bisect(args) => bisect::bisect(args),
        Command::Diff(args) => diff::diff(args),
        Command::Versus(args) => versus::versus(args, line),
        Command::Blame(args) => blame::blame(args),
        Command::Compare(args) => compare::compare(args),
    }
}
