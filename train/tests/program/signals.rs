//! The first signal ends a run after the current step, when the run has been saved. The exit code is
//! 128 plus the signal number. A second Ctrl-C half a second later ends it at once.
#![cfg(unix)]

use crate::program::{Ended, Place, TINY, wait_until};
use crate::resume::{FOLDER, RESUME, assert_same, recipe, remains, started, wait_for_lines};
use std::process::{Child, Command, Stdio};

/// Sends signals, one right after the other.
fn send(child: &Child, signals: &[&str]) {
    let kill = |signal: &&str| format!("kill -{signal} {};", child.id());
    let script: String = signals.iter().map(kill).collect();
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
}

/// Whether this process ignores SIGHUP, as under `nohup`. Child processes inherit this.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1)
}

#[test]
fn each_signal_has_its_exit_code_after_saving() {
    // Programs such as `timeout` may send their signal twice.
    let cases: [(&[&str], i32); 5] = [
        (&["INT"], 130),
        (&["TERM"], 143),
        (&["HUP"], 129),
        (&["TERM", "TERM"], 143),
        (&["INT", "INT"], 130),
    ];
    for (signals, code) in cases {
        if signals == ["HUP"] && hangup_is_ignored() {
            continue;
        }
        let place = Place::new();
        let child = started(&place, 1);
        send(&child, signals);
        let ended = Ended::of(child);
        let step: u64 = place.loaded(FOLDER).read_note("step").unwrap();
        let words = format!("Stopped after step {step} of 400, saved in out/run.");
        ended.failed(code, &[&words, " resume --out"]);
        if signals == ["INT"] {
            place.ok(&format!("{RESUME} --threads 2"));
            assert_same(&remains(&place, FOLDER));
        }
    }
}

#[test]
fn a_second_ctrl_c_ends_the_run_at_once() {
    let place = Place::new();
    // Steps that take long enough for two signals to arrive during one.
    let mut child = place.start("train --layers 2 --context 256 --batch 128 --threads 1");
    wait_for_lines(&place, &mut child, 1);
    // Those of the first half second count as one.
    while child.try_wait().unwrap().is_none() {
        send(&child, &["INT"]);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let ended = Ended::of(child);
    assert!(!ended.err.contains("Stopped"), "{ended:?}");
    let last = ended.err.lines().last().unwrap();
    let said = "Ended without saving. out/run/checkpoint.safetensors still holds step 0, from which it goes on: ";
    assert!(last.starts_with(said) && last.ends_with(" resume --out out/run"), "{last}");
    ended.failed(130, &[]);
}

#[test]
fn a_signal_ends_a_long_sample_after_training() {
    let place = Place::new();
    let mut command = place.command(&format!("{TINY} --steps 2 --tokens 100000000 --out run"));
    // The sample is not needed.
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let is_done = || place.lines("run").last().is_some_and(|line| line.contains("\"done\""));
    wait_until(&mut child, is_done);
    send(&child, &["TERM"]);
    Ended::of(child).failed(143, &["Stopped after step 2 of 2, saved in run."]);
}

#[cfg(target_os = "linux")]
#[test]
fn an_ignored_hangup_stays_ignored() {
    let place = Place::new();
    let program = place.command(&recipe(""));
    // Ignores SIGHUP, as `nohup` does.
    let mut ignoring = Command::new("sh");
    ignoring.args(["-c", r#"trap "" HUP; exec "$0" "$@""#]).arg(program.get_program());
    ignoring.args(program.get_args()).current_dir(place.path(""));
    let mut child = ignoring.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for_lines(&place, &mut child, 40);
    send(&child, &["HUP"]);
    let before = place.lines(FOLDER).len();
    wait_until(&mut child, || place.lines(FOLDER).len() > before + 10);
    child.kill().unwrap();
    child.wait().unwrap();
}
