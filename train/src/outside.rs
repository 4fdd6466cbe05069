//! What the program reads from outside, by itself: for tests with any input.

use crate::cli::Cli;
use crate::json_lines::{json, lines_of};
use crate::line::Line;
use crate::looks;
use crate::page::restored;
use crate::ranks;
use clap::Command;
use std::cell::RefCell;
use std::ffi::OsString;

/// Whether a command line is valid.
pub fn command_line(line: &[OsString]) -> bool {
    thread_local! { static COMMANDS: RefCell<Command> = Cli::commands().into() }
    COMMANDS.with_borrow_mut(|commands| Cli::read(commands, line).is_ok())
}

/// The lines of `log.jsonl` that can be read, and those of `looks.jsonl`, as they are written again; the page of a run
/// is made from them.
pub fn resumed(log: &str, looks: &str) -> [String; 2] {
    let (log, _) = lines_of(log, Line::read);
    let (looks, _) = lines_of(looks, looks::Line::read);
    let log: Vec<Line> = log.into_iter().map(|(line, _)| line).collect();
    let looks: Vec<looks::Line> = looks.into_iter().map(|(line, _)| line).collect();
    restored("run", &looks, &log).page();
    [log.iter().map(json).collect(), looks.iter().map(json).collect()]
}

/// In what the first rank that differs from rank 0 does so, given what each rank has sent.
pub fn difference(sent: &[Vec<u8>]) -> Option<String> {
    ranks::difference(sent).map(|(_, what)| what)
}
