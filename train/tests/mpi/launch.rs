//! Starting ranks with `mpiexec`.

use crate::program::{Ended, Place};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// `mpiexec` with these arguments before the program, in a place.
pub fn mpiexec(place: &Place, before: &[&str]) -> Command {
    let mut command = Command::new("mpiexec");
    command.args(before).current_dir(place.path("")).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts `retrograd` on so many ranks of one thread.
pub fn start(place: &Place, ranks: usize, line: &str) -> Child {
    let program = place.command(line);
    let mut command = mpiexec(place, &["-n", &ranks.to_string()]);
    command.arg(program.get_program()).args(program.get_args()).args(["--threads", "1"]);
    command.spawn().expect("mpiexec is installed")
}

pub fn run(place: &Place, ranks: usize, line: &str) -> Ended {
    Ended::of(start(place, ranks, line))
}

/// The process ids of the ranks that run in a folder.
pub fn ranks_of(place: &Place) -> Vec<u32> {
    let folder = fs::canonicalize(place.path("")).unwrap();
    let is_rank = |process: &Path| {
        let here = fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == folder);
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        here && name.trim() == "retrograd"
    };
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let id = |process: &Path| process.file_name()?.to_str()?.parse().ok();
    processes.filter(|process| is_rank(process)).filter_map(|process| id(&process)).collect()
}
