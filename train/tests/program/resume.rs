//! A run that is killed or interrupted, and resumed, ends with the same weights and log as an
//! uninterrupted one, for any number of threads.
#![cfg(unix)]

use crate::program::{FAILED, Place, TINY, wait_until};
use retrograd::prelude::Rng;
use std::fs;
use std::process::Child;
use std::sync::LazyLock;
use std::time::SystemTime;

pub const RESUME: &str = "resume --eval-every 25";

/// The command of the run, with further flags.
pub fn recipe(more: &str) -> String {
    format!("{TINY} --steps 400 --dropout 0.1 --seed 7 --eval-every 25 {more}")
}

/// The files of a run, without times.
pub struct Remains {
    pub checkpoint: Vec<u8>,
    pub log: Vec<String>,
}

/// The files of the run in this folder.
pub fn remains(place: &Place, folder: &str) -> Remains {
    let untimed = |line: serde_json::Value| {
        let serde_json::Value::Object(mut line) = line else { panic!("{line} is no object") };
        for time in ["ms", "tokens_per_s", "seconds"] {
            line.remove(time);
        }
        format!("{line:?}")
    };
    let log = place.log(folder).into_iter().map(untimed).collect();
    Remains { checkpoint: place.checkpoint(folder), log }
}

/// An uninterrupted run, on 2 threads.
static WHOLE: LazyLock<Remains> = LazyLock::new(|| {
    let place = Place::new();
    place.ok(&recipe("--threads 2"));
    remains(&place, FOLDER)
});

/// The default folder.
pub const FOLDER: &str = "out/run";

/// Waits until a run has been saved and its log has this many lines.
pub fn wait_for_lines(place: &Place, child: &mut Child, count: usize) {
    let saved = place.path("out/run/checkpoint.safetensors");
    wait_until(child, || saved.exists() && place.lines(FOLDER).len() >= count);
}

/// Starts the run, and waits for some steps.
pub fn started(place: &Place, threads: usize) -> Child {
    let mut child = place.start(&recipe(&format!("--threads {threads}")));
    wait_for_lines(place, &mut child, 40);
    child
}

/// Checks that the lines of a log are the first ones of the uninterrupted run.
pub fn assert_same_lines(found: &[String]) {
    // Line by line, because a message with both logs would be too long to read.
    for (found, whole) in found.iter().zip(&WHOLE.log) {
        assert_eq!(found, whole);
    }
}

/// Checks that the log and the checkpoint equal those of the uninterrupted run.
pub fn assert_same(found: &Remains) {
    assert_same_lines(&found.log);
    assert_eq!(found.log.len(), WHOLE.log.len());
    assert!(found.checkpoint == WHOLE.checkpoint, "the checkpoints differ");
}

#[test]
fn a_run_killed_at_random_times_resumes_bit_for_bit() {
    let clock = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("random seed {clock}");
    let mut rng = Rng::new(clock);
    let place = Place::new();
    let mut count = 0;
    for (i, threads) in [2, 1, 3, 1, 2].into_iter().enumerate() {
        let threads = format!("--threads {threads}");
        let line = if i == 0 { recipe(&threads) } else { format!("{RESUME} {threads}") };
        let mut child = place.start(&line);
        count += 2 + rng.below(60);
        wait_for_lines(&place, &mut child, count);
        // SIGKILL, which cannot be handled.
        child.kill().unwrap();
        child.wait().unwrap();
        // What was saved still loads.
        place.loaded(FOLDER);
        count = place.lines(FOLDER).len() / 26 * 26;
    }
    place.ok(&format!("{RESUME} --threads 3"));
    assert_same(&remains(&place, FOLDER));
    let left: Vec<_> = fs::read_dir(place.path("out/run")).unwrap().flatten().collect();
    let temporary = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".tmp");
    assert!(!left.iter().any(temporary), "{left:?}");
}

#[test]
fn a_run_that_is_complete_can_be_resumed() {
    let place = Place::new();
    place.ok(&recipe("--threads 3"));
    assert_same(&remains(&place, FOLDER));
    let said = "finished: all 400 steps were taken; resume --steps N takes more";
    place.run("resume").says(said).ok();
    assert_same(&remains(&place, FOLDER));
}

#[test]
fn sampling_does_not_load_the_optimiser() {
    let place = Place::new();
    place.train("run", 20, "--threads 1");
    let sample = "sample On --out run --tokens 20 --seed 3";
    let with_all = place.ok(sample);
    let mut file = place.loaded("run");
    file.tensors.retain(|name, _| name.starts_with("model."));
    file.save(place.path("run/checkpoint.safetensors")).unwrap();
    assert_eq!(place.ok(sample), with_all);
    place.fails("resume --out run", FAILED, &["cannot load", "missing: m."]);
}
