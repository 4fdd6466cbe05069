//! Removal of the folder or the log during a run: the weights are saved elsewhere.
#![cfg(unix)]

use crate::program::{Ended, FAILED, Place, wait_until};
use crate::resume::{
    FOLDER, RESUME, Remains, assert_same, assert_same_lines, recipe, remains, started,
    wait_for_lines,
};
use std::fs;

fn saved_step(place: &Place, folder: &str) -> u64 {
    place.loaded(folder).read_note("step").unwrap()
}

/// Checks that the run stopped for this reason and was saved in this other folder, with its complete
/// log.
fn rescued(place: &Place, ended: Ended, reason: &str, other: &str) {
    let step = saved_step(place, other);
    let folder = format!("the folder of the run, out/run, {reason}");
    let saved = format!("Stopped after step {step} of 400, saved in ");
    ended.failed(FAILED, &[&folder, &saved, &format!("{other}. To resume:"), "resume --out"]);
    let Remains { log, .. } = remains(place, other);
    assert_same_lines(&log);
    let steps = log.iter().filter(|line| line.contains("grad_norm")).count();
    assert_eq!(steps as u64, step);
}

/// Resumes the run, and checks that it ends like an uninterrupted one.
fn resumes(place: &Place, folder: &str) {
    place.ok(&format!("{RESUME} --out {folder}"));
    assert_same(&remains(place, folder));
}

const GONE: &str = "was deleted, emptied or renamed";

#[test]
fn a_run_is_saved_elsewhere_if_its_folder_is_deleted() {
    let place = Place::new();
    let child = started(&place, 2);
    // The run may write into the folder while it is being deleted.
    while place.exists(FOLDER) {
        let _ = fs::remove_dir_all(place.path(FOLDER));
    }
    rescued(&place, Ended::of(child), GONE, "out/run-2");
    assert!(!place.exists(FOLDER));
    resumes(&place, "out/run-2");
}

#[test]
fn a_run_is_saved_elsewhere_if_its_folder_is_renamed() {
    let place = Place::new();
    let child = started(&place, 2);
    fs::rename(place.path(FOLDER), place.path("kept")).unwrap();
    let ended = Ended::of(child);
    // Detected at the next step: the old log lacks one step, and at most one evaluation.
    let [kept, saved] = ["kept", "out/run-2"].map(|folder| place.lines(folder).len());
    assert!((kept + 1..=kept + 2).contains(&saved), "{kept} lines, then {saved}");
    assert!(saved_step(&place, "kept") <= saved_step(&place, "out/run-2"));
    rescued(&place, ended, GONE, "out/run-2");
    // The old run is unchanged, and can be resumed too.
    resumes(&place, "kept");
}

#[test]
fn a_run_is_saved_elsewhere_if_its_folder_is_replaced() {
    let place = Place::new();
    let files = ["checkpoint.safetensors", "log.jsonl", "run.lock"];
    fs::create_dir(place.path("other")).unwrap();
    for file in files {
        place.write(&format!("other/{file}"), "another run");
    }
    let child = started(&place, 2);
    fs::rename(place.path(FOLDER), place.path("kept")).unwrap();
    fs::rename(place.path("other"), place.path(FOLDER)).unwrap();
    let ended = Ended::of(child);
    for file in files {
        assert_eq!(place.read(&format!("{FOLDER}/{file}")), "another run", "{file}");
    }
    // Between the two renames there is no folder.
    let reason = if ended.err.contains(GONE) { GONE } else { "was replaced by another" };
    rescued(&place, ended, reason, "out/run-2");
}

#[test]
fn a_run_is_saved_in_the_temporary_folder_as_a_last_resort() {
    let place = Place::new();
    fs::create_dir(place.path("tmp")).unwrap();
    let mut child = place.command(&recipe("")).env("TMPDIR", place.path("tmp")).spawn().unwrap();
    wait_for_lines(&place, &mut child, 40);
    fs::rename(place.path("out"), place.path("kept")).unwrap();
    place.write("out", "no folder");
    let ended = Ended::of(child).says("cannot make the folder");
    let reason = if ended.err.contains(GONE) { GONE } else { "cannot be reached: Not a directory" };
    rescued(&place, ended, reason, "tmp/run-2");
}

#[test]
fn a_removed_log_is_written_again() {
    let place = Place::new();
    let mut child = started(&place, 2);
    let log = place.path(FOLDER).join("log.jsonl");
    fs::remove_file(&log).unwrap();
    // The log exists again, and lines are appended.
    wait_until(&mut child, || place.lines(FOLDER).len() >= 50);
    place.write("another", "another file");
    fs::rename(place.path("another"), &log).unwrap();
    Ended::of(child).says("log.jsonl was removed or replaced; it is written again").ok();
    assert_same(&remains(&place, FOLDER));
}

#[test]
fn a_log_that_cannot_be_written_ends_the_run_after_saving() {
    let place = Place::new();
    let child = started(&place, 2);
    let log = place.path(FOLDER).join("log.jsonl");
    fs::create_dir(place.path("folder")).unwrap();
    // The program may write the file again before the rename.
    while fs::rename(place.path("folder"), &log).is_err() {
        let _ = fs::remove_file(&log);
    }
    let ended = Ended::of(child);
    let step = saved_step(&place, FOLDER);
    let saved = format!("Stopped after step {step} of 400, saved in out/run.");
    let cannot = "cannot write out/run/log.jsonl: it is not a regular file";
    ended.failed(FAILED, &[cannot, &saved]);
    assert!(step >= 38, "{step}");
}
