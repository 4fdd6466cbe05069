//! Pipes, devices and folders instead of files: an error, without blocking or endless reading.
#![cfg(unix)]

use crate::program::{Ended, FAILED, Place, TINY};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

const SHORT: &str = "train --preset tiny --steps 3 --quiet --no-page";

fn make_pipe(place: &Place, name: &str) {
    assert!(Command::new("mkfifo").arg(place.path(name)).status().unwrap().success());
}

/// Creates a pipe, a folder or a link to a device at this path, instead of any file there.
fn put(place: &Place, name: &str, kind: &str) {
    let path = place.path(name);
    let _ = fs::remove_file(&path);
    match kind {
        "pipe" => make_pipe(place, name),
        "folder" => fs::create_dir(&path).unwrap(),
        device => symlink(device, &path).unwrap(),
    }
}

fn remove(place: &Place, name: &str) {
    let path = place.path(name);
    fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)).unwrap();
}

#[test]
fn special_files_in_the_folder_of_a_run_are_errors() {
    let place = Place::new();
    place.train("run", 3, "");
    let resume = || place.run("resume --out run --quiet");
    let files = [
        ("log.jsonl", "cannot read run/log.jsonl: "),
        ("checkpoint.safetensors", "cannot load: run/checkpoint.safetensors: "),
        ("run.lock", "cannot lock run/run.lock: "),
    ];
    for (file, tried) in files {
        let name = format!("run/{file}");
        let whole = fs::read(place.path(&name)).unwrap();
        for kind in ["pipe", "/dev/zero", "folder"] {
            put(&place, &name, kind);
            let why = if kind == "folder" { "Is a directory" } else { "it is not a regular file" };
            resume().failed(FAILED, &[&format!("{tried}{why}")]);
            if file == "checkpoint.safetensors" {
                place.fails("sample a --out run", FAILED, &[tried, why]);
            }
            remove(&place, &name);
        }
        place.write(&name, whole);
    }
    resume().ok();
}

#[test]
fn special_files_in_the_folder_of_a_new_run_are_errors() {
    let place = Place::new();
    for (file, tried) in [("log.jsonl", "cannot read new/log.jsonl"), ("run.lock", "cannot lock")] {
        for kind in ["pipe", "/dev/zero"] {
            fs::create_dir(place.path("new")).unwrap();
            put(&place, &format!("new/{file}"), kind);
            let line = format!("{TINY} --steps 3 --out new");
            place.fails(&line, FAILED, &[tried, "it is not a regular file"]);
            fs::remove_dir_all(place.path("new")).unwrap();
        }
    }
}

#[test]
fn a_pipe_as_the_folder_is_an_error() {
    let place = Place::new();
    make_pipe(&place, "pipe");
    place.fails("train --out pipe", FAILED, &["cannot make the folder pipe: File exists"]);
    for line in ["resume --quiet --out pipe", "sample a --out pipe"] {
        place.fails(line, FAILED, &["there is no run in pipe: it is no folder"]);
    }
}

#[test]
fn a_text_may_be_a_pipe_but_not_a_device() {
    let place = Place::new();
    let learn = |data| format!("{SHORT} --out run --data {data}");
    for device in ["/dev/zero", "/dev/null"] {
        let said = format!("cannot read {device}: it is not a regular file");
        place.fails(&learn(device), FAILED, &[&said]);
    }
    for kind in ["pipe", "/dev/zero"] {
        put(&place, "tokenizer.json", kind);
        let line = format!("{SHORT} --tokenizer tokenizer.json");
        place.fails(&line, FAILED, &["tokenizer.json: it is not a regular file"]);
        remove(&place, "tokenizer.json");
    }
    assert!(!place.exists("run"));
    // A shell passes <(command) as a pipe.
    make_pipe(&place, "pipe");
    let (child, text) = (place.start(&learn("pipe")), "word ".repeat(200));
    fs::write(place.path("pipe"), &text).unwrap();
    let said = "note: pipe is a pipe: reading to its end. To resume the run, save the text in a file and \
                pass it by --data";
    Ended::of(child).says(said).ok();
    place.write("text", text);
    place.ok("resume --out run --data text");
}
