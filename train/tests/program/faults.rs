//! Faults of the system: whatever fails, the run ends with an error or goes on, and ends with the same bytes after a
//! resumption. `RETROGRAD_FAULTS` sets how often each is tried (2).
#![cfg(target_os = "linux")]

use crate::printing::limited;
use crate::program::{Ended, FAILED, Place, TINY, kill, setting, wait_until};
use retrograd::prelude::Rng;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

fn recipe(more: &str) -> String {
    format!("{TINY} --quiet --steps 60 --eval-every 10 --keep-every 20 --tokens 1 {more}")
}

const RESUME: &str = "resume --out run --quiet --eval-every 10 --keep-every 20 --tokens 1";

/// The last checkpoint of an undisturbed run.
static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let place = Place::new();
    place.ok(&recipe("--out run"));
    place.checkpoint("run")
});

fn times() -> u64 {
    setting("RETROGRAD_FAULTS", 2)
}

fn random() -> Rng {
    let seed = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("random seed {seed}");
    Rng::new(seed)
}

/// Resumes the run, or trains it anew if it has not been saved, to the bytes of the undisturbed one.
#[track_caller]
fn nothing_is_lost(place: &Place, what: &str) {
    match place.exists("run/checkpoint.safetensors") {
        true => drop(place.ok(RESUME)),
        false => {
            let _ = fs::remove_dir_all(place.path("run"));
            place.ok(&recipe("--out run"));
        }
    }
    assert!(place.checkpoint("run") == *WHOLE, "{what}");
}

/// Runs a script of `sh` in a place: `$0` is the program.
fn script(place: &Place, before: &[&str], text: &str) -> Ended {
    let mut command = Command::new(before[0]);
    command.args(&before[1..]).args(["sh", "-c", text]).arg(place.command("").get_program());
    command.current_dir(place.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ended::of(command.spawn().unwrap())
}

fn works(command: &str) -> bool {
    let words: Vec<&str> = command.split(' ').collect();
    Command::new(words[0]).args(&words[1..]).output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_full_disk_loses_nothing() {
    // A file system of its own, which no other process sees.
    let own: Vec<&str> = "unshare --map-root-user --mount".split(' ').collect();
    if !works(&format!("{} mount -t tmpfs none /tmp", own.join(" "))) {
        return println!("skipped: no file system can be mounted");
    }
    let (mut random, mut failed) = (random(), 0);
    for i in 0..2 * times() {
        let place = Place::new();
        fs::create_dir(place.path("disk")).unwrap();
        let limit = match i % 2 {
            0 => format!("size={}k", 4 * random.below(800)),
            _ => format!("nr_inodes={}", 2 + random.below(8)),
        };
        let text = format!(
            r#"mount -t tmpfs -o {limit} none disk && cd disk && "$0" {}; ended=$?; cp -r run ..; exit $ended"#,
            recipe("--out run")
        );
        let ended = script(&place, &own, &text);
        if ended.code != Some(0) {
            ended.failed(FAILED, &["error: cannot ", "No space left on device"]);
            failed += 1;
        }
        nothing_is_lost(&place, &limit);
    }
    println!("{} disks, {failed} of them full before the end; nothing was lost", 2 * times());
}

#[test]
fn a_read_only_folder_loses_nothing() {
    // Root may write all the same.
    let setpriv = "setpriv --bounding-set=-dac_override,-dac_read_search";
    let own: Vec<&str> = match works(&format!("{setpriv} true")) {
        true => setpriv.split(' ').collect(),
        false => vec!["env"],
    };
    let mut random = random();
    for _ in 0..times() {
        let place = Place::new();
        let seconds = random.below(40) as f64 / 100.0;
        let text = format!(
            r#""$0" {} & while ! [ -e run/checkpoint.safetensors ]; do sleep 0.01; done
            sleep {seconds}; chmod 555 run; wait $!; ended=$?
            "$0" sample a --out run --tokens 1 > /dev/null || exit 9
            "$0" train --out run/new; [ $? = 1 ] || exit 9; chmod 755 run; exit $ended"#,
            recipe("--out run")
        );
        let ended = script(&place, &own, &text).says("cannot make the folder run/new: Permission");
        if ended.code != Some(0) {
            ended.failed(FAILED, &["error: cannot ", "Permission denied"]);
        }
        nothing_is_lost(&place, &format!("read-only after {seconds} s"));
    }
}

#[test]
fn little_memory_loses_nothing() {
    let (mut random, mut failed) = (random(), 0);
    for _ in 0..times() {
        let place = Place::new();
        let megabytes = 60 + random.below(600);
        let ended = limited(&place, &recipe("--threads 2 --out run"), 1000 * megabytes);
        if ended.code != Some(0) {
            ended.failed(FAILED, &["no memory for ", "MB"]);
            failed += 1;
        }
        nothing_is_lost(&place, &format!("{megabytes} MB"));
    }
    println!("{} limits of memory, {failed} of them too low; nothing was lost", times());
}

/// Without a terminal, stopped and continued, with clocks that have jumped.
#[test]
fn stops_and_jumps_of_the_clock_change_nothing() {
    let mut random = random();
    for i in 0..times() {
        let place = Place::new();
        let mut command = Command::new("setsid");
        let program = place.command(&recipe("--out run"));
        command.arg(program.get_program()).args(program.get_args()).stdin(Stdio::null());
        let mut child = command.current_dir(place.path("")).stderr(Stdio::piped()).spawn().unwrap();
        wait_until(&mut child, || place.lines("run").len() > 2);
        kill("STOP", child.id());
        sleep(Duration::from_millis(random.below(500) as u64));
        kill("CONT", child.id());
        sleep(Duration::from_millis(random.below(100) as u64));
        kill("TERM", child.id());
        let ended = Ended::of(child);
        assert!([Some(0), Some(143)].contains(&ended.code), "{ended:?}");
        for entry in fs::read_dir(place.path("run")).unwrap().flatten() {
            let time = [Duration::ZERO, Duration::from_secs(4_000_000_000)][i as usize % 2];
            let file = fs::File::options().append(true).open(entry.path()).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + time).unwrap();
        }
        nothing_is_lost(&place, "stopped");
    }
}

/// Any damage to any file of a run is an error that names the file, or has no influence on the weights.
#[test]
fn damaged_files_are_errors_or_have_no_influence() {
    let (place, mut random) = (Place::new(), random());
    place.ok(&recipe("--out run"));
    let more = RESUME.replace("--out run", "--steps 70") + " --out";
    let copy = |to: &str| {
        let _ = fs::remove_dir_all(place.path(to));
        fs::create_dir(place.path(to)).unwrap();
        for entry in fs::read_dir(place.path("run")).unwrap().flatten() {
            fs::copy(entry.path(), place.path(to).join(entry.file_name())).unwrap();
        }
    };
    copy("clean");
    place.ok(&format!("{more} clean"));
    let names = fs::read_dir(place.path("run")).unwrap().flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    let mut errors = 0;
    for i in 0..times() as usize * names.len() {
        copy("copy");
        let name = &names[i % names.len()];
        let mut bytes = fs::read(place.path("run").join(name)).unwrap();
        let at = random.below(bytes.len().max(1));
        let end = (at + random.below(300)).min(bytes.len());
        match random.below(4) {
            0 => bytes.truncate(at),
            1 => bytes[at..end].fill(0),
            2 => bytes[at..end].iter_mut().for_each(|byte| *byte = random.below(256) as u8),
            _ => drop(bytes.splice(at..at, vec![b'7'; 1 + end - at])),
        }
        place.write(&format!("copy/{name}"), &bytes);
        let ended = place.run(&format!("{more} copy"));
        match ended.code {
            Some(0) => {
                let same = place.checkpoint("copy") == place.checkpoint("clean");
                assert!(same, "{name}: {ended:?}");
            }
            _ => {
                ended.failed(FAILED, &["error: ", name]);
                errors += 1;
            }
        }
    }
    println!("{names:?}, each damaged {} times: {errors} errors, else the same weights", times());
}
