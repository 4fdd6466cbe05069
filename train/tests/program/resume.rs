//! A run that is killed or interrupted, and resumed, ends with the same weights and log as an
//! uninterrupted one, for any number of threads.
#![cfg(unix)]

use crate::program::{FAILED, Place, TINY, setting, wait_until};
use retrograd::prelude::Rng;
use retrograd::tensor::settings::level;
use retrograd::tensor::simd::Level;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

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

/// `RETROGRAD_KILLS` sets the number of kills (5).
#[test]
fn a_run_killed_at_random_times_resumes_bit_for_bit() {
    let clock = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("random seed {clock}");
    let mut rng = Rng::new(clock);
    let (kills, is_fused) = (setting("RETROGRAD_KILLS", 5), level().is_fused());
    let (mut done, mut runs, mut during_save) = (0, 0, 0);
    while done < kills {
        let place = Place::new();
        let temporary = || {
            let names = fs::read_dir(place.path(FOLDER)).into_iter().flatten().flatten();
            names.filter(|entry| entry.file_name().to_string_lossy().ends_with(".tmp")).count()
        };
        let mut line = recipe("");
        for _ in 0..5.min(kills - done) {
            let mut child = place.start(&format!("{line} --threads {}", 1 + rng.below(3)));
            // Without a checkpoint, a run begins again.
            let begun = || place.path("out/run/checkpoint.safetensors").exists();
            // Any moment, or while a checkpoint is written. A limit, as the run may be about to end.
            let (saving, left) = (rng.below(3) == 0, temporary());
            let wait = Duration::from_millis(rng.below(if saving { 5000 } else { 400 }) as u64);
            let start = Instant::now();
            while child.try_wait().unwrap().is_none()
                && (!begun() || start.elapsed() < wait && !(saving && temporary() > left))
            {
                sleep(Duration::from_micros(200));
            }
            // SIGKILL, which cannot be handled.
            child.kill().unwrap();
            let ended = child.wait().unwrap();
            // What was saved still loads.
            place.loaded(FOLDER);
            if ended.success() {
                break;
            }
            assert_eq!(ended.signal(), Some(9), "{ended}");
            during_save += u64::from(temporary() > left);
            done += 1;
            line = RESUME.to_string();
        }
        // Another level, with the same bits.
        let level = Level::available().into_iter().find(|level| level.is_fused() == is_fused);
        let level = level.unwrap_or(Level::Scalar).name();
        place.run_with("RETROGRAD_SIMD", level, &format!("{RESUME} --threads 3")).ok();
        assert_same(&remains(&place, FOLDER));
        assert_eq!(temporary(), 0);
        runs += 1;
    }
    println!(
        "{done} kills, {during_save} of them during a save; {runs} runs ended with the same bytes"
    );
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
