//! Closed and full output, and invalid environments.
#![cfg(unix)]

use crate::program::{Ended, FAILED, Place, USAGE};
use std::fs::File;
use std::process::{Command, Stdio};

/// A command, and the files that it writes to the folder `o`.
type Case = (&'static str, &'static [&'static str]);

const COMMANDS: [Case; 2] = [
    (
        "train --preset tiny --steps 2 --tokens 30 --out o",
        &["checkpoint.safetensors", "log.jsonl", "run.html"],
    ),
    ("arena --steps 1 --only causal --out o", &["table.md", "table.csv"]),
];

fn wrote_all_files(place: &Place, (line, files): Case) {
    for file in files {
        assert!(place.path("o").join(file).exists(), "{line} has not written {file}");
    }
}

/// Runs a command and collects standard error; a piped standard output is closed.
fn run(command: &mut Command) -> Ended {
    let mut child = command.spawn().unwrap();
    // A pipe is closed before anything is printed.
    drop(child.stdout.take());
    Ended::new(child.wait_with_output().unwrap())
}

#[test]
fn a_closed_pipe_does_not_end_the_run() {
    for case in COMMANDS {
        let place = Place::new();
        let ended = run(&mut place.command(case.0));
        assert!(!ended.err.contains("error"), "{case:?}: {ended:?}");
        ended.ok();
        wrote_all_files(&place, case);
    }
}

#[test]
fn samples_end_when_the_pipe_is_closed() {
    let place = Place::new();
    place.train("o", 2, "");
    run(&mut place.command("sample --out o The --tokens 100000000")).ok();
}

#[test]
fn a_closed_standard_error_does_not_end_the_run() {
    let place = Place::new();
    let mut child = place.command(COMMANDS[0].0).stdout(Stdio::null()).spawn().unwrap();
    drop(child.stderr.take());
    assert!(child.wait().unwrap().success());
    wrote_all_files(&place, COMMANDS[0]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported_and_the_run_completes() {
    for case in COMMANDS {
        let place = Place::new();
        let full = File::options().write(true).open("/dev/full").unwrap();
        run(place.command(case.0).stdout(full))
            .failed(FAILED, &["error: cannot write to standard output: No space left"]);
        wrote_all_files(&place, case);
    }
}

#[test]
fn an_unknown_instruction_set_is_an_error_at_the_start() {
    for (line, _) in COMMANDS {
        let place = Place::new();
        let said = ["error: RETROGRAD_SIMD=fast is not a SIMD level (one of: scalar, "];
        place.run_with("RETROGRAD_SIMD", "fast", line).failed(USAGE, &said);
        assert!(!place.exists("o"));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_model_larger_than_memory_is_an_error() {
    for (flags, size) in [
        ("--width 16384 --layers 64", "2.06e11 parameters"),
        ("--width 16384 --layers 1", "need more than 52 GB"),
        ("--context 30000 --batch 65536", "need more than 31 GB"),
    ] {
        let place = Place::new();
        limited(&place, &format!("train --preset tiny {flags}"), 3_000_000)
            .failed(FAILED, &["no memory for ", size, "a smaller --width, --layers"]);
        assert!(!place.exists("out"));
    }
}

/// Runs a command with so much address space, in kB.
#[cfg(target_os = "linux")]
fn limited(place: &Place, line: &str, kilobytes: usize) -> Ended {
    // `ulimit` holds for the shell, and for the program that replaces it.
    let (command, mut limited) = (place.command(line), Command::new("sh"));
    let shell = format!(r#"ulimit -v {kilobytes}; exec "$0" "$@""#);
    limited.args(["-c", &shell]).arg(command.get_program()).args(command.get_args());
    run(limited.current_dir(place.path("")).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

#[cfg(target_os = "linux")]
#[test]
fn too_little_memory_for_the_program_is_an_error_at_the_start() {
    let said = ["error: no memory for the ", " MB that a program with ", "`ulimit -v` shows"];
    // The least that the program can be loaded in, which depends on how it was compiled: the loader ends after its work.
    let command = Place::new().command("");
    let is_loaded = |limit: &usize| {
        let shell = format!(r#"ulimit -v {limit}; LD_TRACE_LOADED_OBJECTS=1 exec "$0""#);
        let mut loader = Command::new("sh");
        let ended = loader.args(["-c", &shell]).arg(command.get_program()).output().unwrap();
        ended.status.success()
    };
    let least = (10_000..=30_000).step_by(1000).find(is_loaded).unwrap();
    let cases = [
        (30_000, COMMANDS[0].0),
        (30_000, COMMANDS[1].0),
        (least, "train --preset tiny"),
        (60_000, "train --preset tiny"),
        (90_000, "train --preset tiny"),
        (200_000, "train --preset tiny --threads 64"),
    ];
    for (kilobytes, line) in cases {
        let place = Place::new();
        limited(&place, line, kilobytes).failed(FAILED, &said);
        assert!(!place.exists("out"));
    }
}
