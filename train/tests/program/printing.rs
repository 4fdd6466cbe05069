//! Closed and full output, and invalid environments.
#![cfg(unix)]

use crate::program::{Ended, Place};
use std::fs::File;
use std::process::{Command, Stdio};

/// A command, and the files that it writes to the folder `o`.
type Case = (&'static [&'static str], &'static [&'static str]);

const COMMANDS: [Case; 2] = [
    (
        &["train", "--preset", "tiny", "--steps", "2", "--out", "o"],
        &["checkpoint.safetensors", "log.jsonl", "run.html"],
    ),
    (&["arena", "--steps", "1", "--only", "causal", "--out", "o"], &["table.md", "table.csv"]),
];

fn wrote_all_files(place: &Place, (args, files): Case) {
    for file in files {
        assert!(place.path("o").join(file).exists(), "{args:?} has not written {file}");
    }
}

/// Runs a command and collects standard error; a piped standard output is closed.
fn run(command: &mut Command) -> Ended {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    // A pipe is closed before anything is printed.
    drop(child.stdout.take());
    Ended::new(child.wait_with_output().unwrap())
}

#[test]
fn a_closed_pipe_does_not_end_the_run() {
    for case in COMMANDS {
        let place = Place::new();
        let ended = run(place.retrograd(case.0).stdout(Stdio::piped()));
        assert!(!ended.err.contains("error"), "{case:?}: {ended:?}");
        ended.ok();
        wrote_all_files(&place, case);
    }
}

#[test]
fn samples_end_when_the_pipe_is_closed() {
    let place = Place::new();
    place.run(&["train", "--preset", "tiny", "--steps", "2", "--out", "o", "--quiet"]).ok();
    let endless = ["sample", "--out", "o", "The", "--tokens", "100000000"];
    run(place.retrograd(&endless).stdout(Stdio::piped())).ok();
}

#[test]
fn a_closed_standard_error_does_not_end_the_run() {
    let place = Place::new();
    let (args, _) = COMMANDS[0];
    let mut child =
        place.retrograd(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
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
        run(place.retrograd(case.0).stdout(full))
            .failed(1, &["error: cannot write to standard output: No space left"]);
        wrote_all_files(&place, case);
    }
}

#[test]
fn an_unknown_instruction_set_is_an_error_at_the_start() {
    for (args, _) in COMMANDS {
        let place = Place::new();
        run(place.retrograd(args).env("RETROGRAD_SIMD", "fast").stdout(Stdio::piped()))
            .failed(2, &["error: RETROGRAD_SIMD=fast is not a SIMD level (one of: scalar, "]);
        assert!(!place.path("o").exists());
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_model_larger_than_memory_is_an_error() {
    let large = [
        ["train", "--preset", "tiny", "--width", "16384", "--layers", "64"],
        ["train", "--preset", "tiny", "--width", "16384", "--layers", "1"],
        ["train", "--preset", "tiny", "--context", "30000", "--batch", "65536"],
    ];
    for args in large {
        let place = Place::new();
        limited(place.retrograd(&args), &place, 3_000_000)
            .failed(1, &["no memory for ", "a smaller --width, --layers"]);
        assert!(!place.path("out").exists());
    }
}

/// Runs a command with so much address space, in kB.
#[cfg(target_os = "linux")]
fn limited(command: Command, place: &Place, kilobytes: usize) -> Ended {
    // `ulimit` holds for the shell, and for the program that replaces it.
    let mut limited = Command::new("sh");
    let shell = format!(r#"ulimit -v {kilobytes}; exec "$0" "$@""#);
    limited.args(["-c", &shell]).arg(command.get_program()).args(command.get_args());
    run(limited.current_dir(place.path("")).stdout(Stdio::piped()))
}

#[cfg(target_os = "linux")]
#[test]
fn too_little_memory_for_the_program_is_an_error_at_the_start() {
    let said = ["error: no memory for the ", " MB that a program with ", "`ulimit -v` shows"];
    for (args, _) in COMMANDS {
        let place = Place::new();
        limited(place.retrograd(args), &place, 30_000).failed(1, &said);
    }
    let threads = ["train", "--preset", "tiny", "--threads", "64"];
    for (kilobytes, args) in [
        (20_000, &threads[..3]),
        (60_000, &threads[..3]),
        (90_000, &threads[..3]),
        (200_000, &threads),
    ] {
        let place = Place::new();
        limited(place.retrograd(args), &place, kilobytes).failed(1, &said);
        assert!(!place.path("out").exists());
    }
}
