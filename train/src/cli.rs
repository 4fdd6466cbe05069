//! The command line.

use crate::arena::Arena;
use crate::attention::Attention;
use crate::bisect::Bisect;
use crate::blame::Blame;
use crate::compare::Compare;
use crate::diff::Diff;
use crate::evaluate::Evaluate;
use crate::export::Export;
use crate::flags::{RUN, program};
use crate::grid::Grid;
use crate::output::say;
use crate::replay::ReplayStep;
use crate::resume::Resume;
use crate::sample::Sample;
use crate::scaling::Scaling;
use crate::train::Train;
use crate::values::size;
use crate::versus::Versus;
use crate::xray::Xray;
use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;

/// Trains small language models on the CPU, and shows what happens in them.
#[derive(Parser, Debug)]
#[command(name = "retrograd", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Number of threads, of each process; results do not depend on it [default: one per core]
    ///
    /// Under mpiexec, the cores of a machine are divided among its ranks.
    #[arg(long, global = true, value_name = "N", value_parser = size(1024), help_heading = RUN)]
    #[arg(hide_short_help = true)]
    pub threads: Option<usize>,

    /// Print only the result
    #[arg(long, global = true, help_heading = RUN, hide_short_help = true)]
    pub quiet: bool,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    Train(Train),
    Resume(Resume),
    Sample(Sample),
    Evaluate(Evaluate),
    Export(Export),
    Xray(Xray),
    Attention(Attention),
    Replay(ReplayStep),
    Bisect(Bisect),
    Diff(Diff),
    Blame(Blame),
    Compare(Compare),
    Grid(Grid),
    Versus(Versus),
    Scaling(Scaling),
    Arena(Arena),
}

/// The flags that `-h` shows, besides those without a heading; `--help` shows all.
fn is_usual(command: &str, flag: &str) -> bool {
    match flag {
        "heads" | "attention" => command != "versus",
        "steps" | "batch" | "context" | "layers" | "width" | "lr" => true,
        "seed" | "minutes" => command == "train",
        "temperature" | "top_k" | "stop" => command == "sample",
        _ => false,
    }
}

impl Cli {
    /// All commands with their flags.
    pub fn commands() -> clap::Command {
        let adapt = |command: &str, arg: Arg| {
            let has_heading = arg.get_help_heading().is_some();
            let is_hidden = has_heading && !is_usual(command, arg.get_id().as_str());
            // `--lr -1` is an invalid value, not an unknown flag.
            let takes_value = arg.get_action().takes_values();
            arg.hide_short_help(is_hidden).allow_negative_numbers(takes_value)
        };
        Cli::command().mut_subcommands(|command| {
            let name = command.get_name().to_string();
            command.mut_args(|arg| adapt(&name, arg))
        })
    }

    /// # Errors
    /// The errors of clap, and requests for help, which are no errors.
    pub fn read(commands: &mut clap::Command, line: &[OsString]) -> Result<Cli, clap::Error> {
        Cli::from_arg_matches(&commands.try_get_matches_from_mut(line)?)
    }
}

/// What `retrograd` alone prints.
pub fn introduce() {
    let program = program();
    say!(
        "retrograd trains small language models on the CPU, and shows what happens in them.

    {program} train --data FILE            train on a text, print samples, write a page of the run
    {program} sample 'Once upon a time'    continue a text with the latest run
    {program} resume                       go on with the latest run, if it was stopped

Without --data, it trains on a generated text for about a minute and a half.
Further commands: evaluate, export, xray, attention, replay, bisect, diff, blame, compare, grid, versus, scaling, arena.
`{program} --help` says what they do, `{program} train --help` has all options of one."
    );
}
