//! Faults of the system: the run ends with an error or goes on, and a resumed one ends with the same bytes.
//! `RETROGRAD_FAULTS` sets how often each is tried (2).
#![cfg(target_os = "linux")]

use crate::program::{Ended, FAILED, Place, TINY, setting};
use retrograd::prelude::Rng;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::SystemTime;

fn recipe() -> String {
    format!("{TINY} --quiet --steps 60 --eval-every 10 --keep-every 20 --tokens 1 --out run")
}

const RESUME: &str = "resume --quiet --eval-every 10 --keep-every 20 --tokens 1";

/// The last checkpoint of an undisturbed run.
static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let place = Place::new();
    place.ok(&recipe());
    place.checkpoint("run")
});

/// A place for each trial, with random numbers.
fn trials(count: u64) -> impl Iterator<Item = (Place, Rng)> {
    let seed = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("{count} trials with seeds from {seed}");
    (0..count).map(move |i| (Place::new(), Rng::new(seed + i)))
}

fn times() -> u64 {
    setting("RETROGRAD_FAULTS", 2)
}

/// Resumes the run, or trains it anew if it has not been saved, to the bytes of the undisturbed one.
#[track_caller]
fn nothing_is_lost(place: &Place, what: &str) {
    if place.exists("run/checkpoint.safetensors") {
        place.ok(&format!("{RESUME} --out run"));
    } else {
        let _ = fs::remove_dir_all(place.path("run"));
        place.ok(&recipe());
    }
    assert!(place.checkpoint("run") == *WHOLE, "{what}");
}

/// Runs a script of `sh` in a place, by another command: `$0` is the program.
fn script(place: &Place, by: &str, text: &str) -> Ended {
    let (mut words, program) = (by.split(' '), place.command(""));
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(["sh", "-c", text]).arg(program.get_program());
    command.current_dir(place.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ended::of(command.spawn().unwrap())
}

fn works(by: &str, text: &str) -> bool {
    script(&Place::new(), by, text).code == Some(0)
}

#[test]
fn a_full_disk_loses_nothing() {
    // A file system that no other process sees.
    let by = "unshare --map-root-user --mount";
    if !works(by, "mount -t tmpfs none .") {
        return println!("skipped: no file system can be mounted");
    }
    let mut full = 0;
    for (place, mut random) in trials(2 * times()) {
        fs::create_dir(place.path("disk")).unwrap();
        let limit = match random.below(2) {
            0 => format!("size={}k", 4 * random.below(800)),
            _ => format!("nr_inodes={}", 2 + random.below(8)),
        };
        let (mount, train) = (format!("mount -t tmpfs -o {limit} none disk"), recipe());
        let text = format!(r#"{mount} && cd disk && "$0" {train}; e=$?; cp -r run ..; exit $e"#);
        let ended = script(&place, by, &text);
        if ended.code != Some(0) {
            ended.failed(FAILED, &["error: cannot ", "No space left on device"]);
            full += 1;
        }
        nothing_is_lost(&place, &limit);
    }
    println!("{full} disks were full before the end");
}

#[test]
fn a_read_only_folder_loses_nothing() {
    // Without it, root may write all the same.
    let setpriv = "setpriv --bounding-set=-dac_override,-dac_read_search";
    let by = if works(setpriv, "true") { setpriv } else { "env" };
    for (place, mut random) in trials(times()) {
        let seconds = random.below(40) as f64 / 100.0;
        let text = format!(
            r#""$0" {} & while ! [ -e run/checkpoint.safetensors ]; do sleep 0.01; done
            sleep {seconds}; chmod 555 run; wait $!; e=$?
            "$0" sample a --out run --tokens 1 > /dev/null || exit 9
            "$0" train --out run/new; [ $? = 1 ] || exit 9; chmod 755 run; exit $e"#,
            recipe()
        );
        let ended = script(&place, by, &text).says("cannot make the folder run/new: Permission");
        if ended.code != Some(0) {
            ended.failed(FAILED, &["error: cannot ", "Permission denied"]);
        }
        nothing_is_lost(&place, &format!("read-only after {seconds} s"));
    }
}

/// Without a terminal, stopped and continued, with files of 1970 or 2096.
#[test]
fn stops_and_jumps_of_the_clock_change_nothing() {
    for (place, mut random) in trials(times()) {
        let [stopped, more] = [50, 20].map(|most| random.below(most) as f64 / 100.0);
        let text = format!(
            r#"setsid "$0" {} & while ! grep -q grad_norm run/log.jsonl; do sleep 0.01; done 2> /dev/null
            kill -STOP $!; sleep {stopped}; kill -CONT $!; sleep {more}; kill -TERM $!
            wait $!; e=$?; touch -d @{} run/*; exit $e"#,
            recipe(),
            [0, 4_000_000_000_u64][random.below(2)]
        );
        let ended = script(&place, "env", &text);
        assert!([Some(0), Some(143)].contains(&ended.code), "{ended:?}");
        nothing_is_lost(&place, &format!("stopped for {stopped} s"));
    }
}

/// Damage to any file of a run is an error that names the file, or has no influence on the weights.
#[test]
fn damaged_files_are_errors_or_have_no_influence() {
    let clean = Place::new();
    clean.ok(&recipe());
    let files = fs::read_dir(clean.path("run")).unwrap().flatten();
    let mut files: Vec<_> = files
        .map(|f| (f.file_name().into_string().unwrap(), fs::read(f.path()).unwrap()))
        .collect();
    files.sort();
    let more = format!("{RESUME} --steps 70 --out run");
    clean.ok(&more);
    let mut errors = 0;
    for (i, (place, mut random)) in trials(times() * files.len() as u64).enumerate() {
        fs::create_dir(place.path("run")).unwrap();
        files.iter().for_each(|(name, bytes)| place.write(&format!("run/{name}"), bytes));
        let (name, mut bytes) = files[i % files.len()].clone();
        let at = random.below(bytes.len().max(1));
        let end = (at + random.below(300)).min(bytes.len());
        match random.below(4) {
            0 => bytes.truncate(at),
            1 => bytes[at..end].fill(0),
            2 => bytes[at..end].iter_mut().for_each(|byte| *byte = random.below(256) as u8),
            _ => drop(bytes.splice(at..at, vec![b'7'; 1 + end - at])),
        }
        place.write(&format!("run/{name}"), &bytes);
        let ended = place.run(&more);
        if ended.code == Some(0) {
            assert!(place.checkpoint("run") == clean.checkpoint("run"), "{name}: {ended:?}");
        } else {
            ended.failed(FAILED, &["error: ", &name]);
            errors += 1;
        }
    }
    println!("{} files: {errors} errors, else the same weights", files.len());
}
