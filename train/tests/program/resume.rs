//! A run that is killed or interrupted, and resumed, ends with the same weights and log as an
//! uninterrupted one, for any number of threads.
#![cfg(unix)]

use crate::program::{Ended, Place, wait_until};
use retrograd::nn::checkpoint::Checkpoint;
use retrograd::prelude::Rng;
use std::fs;
use std::process::Child;
use std::sync::LazyLock;
use std::time::SystemTime;

pub const RECIPE: &[&str] = &[
    "train",
    "--preset",
    "tiny",
    "--steps",
    "400",
    "--dropout",
    "0.1",
    "--seed",
    "7",
    "--eval-every",
    "25",
];
pub const RESUME: &[&str] = &["resume", "--eval-every", "25"];

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
    let log =
        lines(place, folder).map(|line| untimed(serde_json::from_str(&line).unwrap())).collect();
    let checkpoint = fs::read(place.path(folder).join("checkpoint.safetensors")).unwrap();
    Remains { checkpoint, log }
}

/// The lines of the log in this folder.
pub fn lines(place: &Place, folder: &str) -> impl Iterator<Item = String> {
    let text = fs::read_to_string(place.path(folder).join("log.jsonl")).unwrap_or_default();
    text.lines().map(str::to_string).collect::<Vec<_>>().into_iter()
}

/// An uninterrupted run, on 2 threads.
static WHOLE: LazyLock<Remains> = LazyLock::new(|| {
    let place = Place::new();
    place.run(&[RECIPE, &["--threads", "2"]].concat()).ok();
    remains(&place, FOLDER)
});

/// The default folder.
pub const FOLDER: &str = "out/run";

pub fn start(place: &Place, resume: bool, threads: &str) -> Child {
    let args: &[&str] = if resume { RESUME } else { RECIPE };
    place.start(&[args, &["--threads", threads]].concat())
}

/// Waits until a run has been saved and its log has this many lines.
pub fn wait_for_lines(place: &Place, child: &mut Child, count: usize) {
    let saved = place.path("out/run/checkpoint.safetensors");
    wait_until(child, || saved.exists() && lines(place, FOLDER).count() >= count);
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
    for (i, threads) in ["2", "1", "3", "1", "2"].into_iter().enumerate() {
        let mut child = start(&place, i > 0, threads);
        count += 2 + rng.below(60);
        wait_for_lines(&place, &mut child, count);
        // SIGKILL, which cannot be handled.
        child.kill().unwrap();
        child.wait().unwrap();
        let path = place.path("out/run/checkpoint.safetensors");
        Checkpoint::load(&path).expect("what was saved still loads");
        count = lines(&place, FOLDER).count() / 26 * 26;
    }
    Ended::of(start(&place, true, "3")).ok();
    assert_same(&remains(&place, FOLDER));
    let left: Vec<_> = fs::read_dir(place.path("out/run")).unwrap().flatten().collect();
    let temporary = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".tmp");
    assert!(!left.iter().any(temporary), "{left:?}");
}

#[test]
fn a_run_that_is_complete_can_be_resumed() {
    let place = Place::new();
    place.run(&[RECIPE, &["--threads", "3"]].concat()).ok();
    assert_same(&remains(&place, FOLDER));
    place.run(&["resume"]).ok();
    assert_same(&remains(&place, FOLDER));
}

#[test]
fn sampling_does_not_load_the_optimiser() {
    let place = Place::new();
    place.run(&[RECIPE, &["--threads", "1"]].concat()).ok();
    let sample = ["sample", "Once", "--tokens", "20", "--seed", "3"];
    let with_all = place.run(&sample).ok();
    let path = place.path("out/run/checkpoint.safetensors");
    let mut file = Checkpoint::load(&path).unwrap();
    file.tensors.retain(|name, _| name.starts_with("model."));
    file.save(&path).unwrap();
    assert_eq!(place.run(&sample).ok(), with_all);
    place.run(&["resume"]).failed(1, &["cannot load", "missing: m."]);
}
