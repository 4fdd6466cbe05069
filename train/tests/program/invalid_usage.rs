//! Invalid usage: every error has a message and an exit code.

use crate::program::{Ended, Place, wait_until};
use std::fs;

const FAILED: i32 = 1;
pub const USAGE: i32 = 2;

/// A temporary folder with a short run in `run`.
fn place_with_run() -> Place {
    let place = Place::new();
    let args = ["train", "--preset", "tiny", "--steps", "3", "--out", "run", "--quiet"];
    place.run(&args).ok();
    place
}

#[test]
fn invalid_flags_are_rejected() {
    let place = Place::new();
    let cases: [(&[&str], &[&str]); 18] = [
        (&["train", "--width", "0"], &["'0'", "--width", "1..=16384"]),
        (&["train", "--batch", "0"], &["'0'", "--batch"]),
        (&["train", "--threads", "0"], &["'0'", "--threads"]),
        (&["train", "--layers", "-1"], &["'-1'", "--layers", "1..=1024"]),
        (&["train", "--lr", "-1"], &["'-1'", "--lr", "must be above 0"]),
        (&["train", "--seed", "-1"], &["'-1'", "--seed"]),
        (&["train", "--steps", "many"], &["'many'", "--steps"]),
        (&["train", "--heads", "3"], &["3 heads do not divide a width of 128"]),
        (&["train", "--lr", "NaN"], &["'NaN'", "--lr", "must be finite"]),
        (&["train", "--lr", "0"], &["'0'", "--lr", "must be above 0"]),
        (&["train", "--dropout", "1"], &["'1'", "--dropout", "at least 0 and below 1"]),
        (&["sample", "--temperature", "inf", "a"], &["'inf'", "--temperature", "finite"]),
        (&["sample", ""], &["the prompt is empty"]),
        (&["sample", "a", "--steps", "5"], &["unexpected argument '--steps'"]),
        (
            &["train", "--preset", "large"],
            &["'large'", "tales, nanogpt-cpu, modern, fast, best, llama, baby, tiny"],
        ),
        (&["train", "--precision", "half"], &["'half'", "(one of: f32, bf16x6, bf16x3, bf16)"]),
        (&["train", "--step", "5"], &["'--step'", "'--steps'"]),
        (&["tain"], &["unrecognized subcommand 'tain'", "'train'"]),
    ];
    for (args, said) in cases {
        place.run(args).failed(USAGE, said);
    }
    assert!(!place.path("out").exists(), "no folder is created for an invalid flag");
}

#[test]
fn invalid_texts_are_rejected() {
    let place = Place::new();
    place.write("empty", "");
    place.write("short", "word ".repeat(20));
    place.write("latin1", b"caf\xc3\xa9 caf\xe9!");
    fs::create_dir(place.path("folder")).unwrap();
    let cases: [(&str, &[&str]); 5] = [
        ("missing", &["cannot read missing: No such file"]),
        ("empty", &["empty: the file is empty"]),
        ("short", &["too short for a context of 64", "100 tokens", "must be at least 65"]),
        ("latin1", &["latin1: not UTF-8: byte 9 (0xe9)"]),
        ("folder", &["folder: the folder has no files"]),
    ];
    for (file, said) in cases {
        place.run(&["train", "--data", file]).failed(FAILED, said);
    }
    assert!(!place.path("out").exists(), "no folder is created for an invalid text");
}

#[test]
fn invalid_folders_are_rejected() {
    let place = place_with_run();
    let before = fs::read(place.path("run/log.jsonl")).unwrap();
    place.run(&["train", "--out", "run"]).failed(USAGE, &["run contains a run already; resume"]);
    assert_eq!(fs::read(place.path("run/log.jsonl")).unwrap(), before);
    fs::remove_file(place.path("run/checkpoint.safetensors")).unwrap();
    let alone = "run has a log but no checkpoint, so its run cannot be resumed; name another folder, \
                 or remove run/log.jsonl";
    place.run(&["train", "--out", "run"]).failed(USAGE, &[alone]);
    place.run(&["resume", "--out", "run"]).failed(FAILED, &[alone]);
    fs::remove_file(place.path("run/log.jsonl")).unwrap();
    place.run(&["train", "--preset", "tiny", "--steps", "1", "--out", "run", "--quiet"]).ok();
    place.write("file", "no folder");
    place.run(&["train", "--out", "file/run"]).failed(FAILED, &["cannot make the folder file/run"]);
    place.run(&["train", "--out", "file"]).failed(FAILED, &["cannot make the folder file"]);
    place.run(&["resume", "--out", "file"]).failed(FAILED, &["no run in file: it is a file"]);
    place.run(&["resume"]).failed(FAILED, &["there is no run in out/run"]);
    place.run(&["sample", "a", "--out", "none"]).failed(FAILED, &["there is no run in none"]);
}

#[cfg(unix)]
#[test]
fn a_path_that_is_not_utf_8_is_rejected() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9.txt");
    if fs::write(place.path("").join(name), "word ".repeat(200)).is_err() {
        return; // Some file systems reject such names.
    }
    let mut command = place.retrograd(&["train", "--preset", "tiny", "--data"]);
    Ended::new(command.arg(name).output().unwrap())
        .failed(FAILED, &["caf\\xE9.txt\" is not UTF-8", "rename or move the file"]);
    assert!(!place.path("out").exists());
}

#[test]
fn a_folder_in_use_is_rejected() {
    let place = Place::new();
    let args = ["train", "--preset", "tiny", "--steps", "100000", "--quiet"];
    let mut first = place.start(&args);
    wait_until(&mut first, || place.path("out/run/log.jsonl").exists());
    let said = ["another process is training in out/run"];
    place.run(&["train", "--out", "out/run"]).failed(FAILED, &said);
    place.run(&["resume"]).failed(FAILED, &said);
    // Sampling from it is allowed once it has a checkpoint, and a run without --out takes another
    // folder.
    wait_until(&mut first, || place.path("out/run/checkpoint.safetensors").exists());
    place.run(&["sample", "The", "--tokens", "5"]).ok();
    let out = place.run(&["train", "--preset", "tiny", "--steps", "1", "--quiet"]).ok();
    assert!(out.ends_with("in out/run-2\n"), "{out}");
    first.kill().unwrap();
    first.wait().unwrap();
    place.run(&["train", "--out", "out/run"]).failed(USAGE, &["contains a run already"]);
}

#[test]
fn damaged_lines_of_a_log_are_reported() {
    let place = place_with_run();
    let log = place.path("run/log.jsonl");
    let whole = fs::read_to_string(&log).unwrap();
    let note = |bytes: &[u8]| {
        fs::write(&log, bytes).unwrap();
        let ended = place.run(&["resume", "--out", "run", "--quiet"]);
        let said = ended.err.clone();
        ended.ok();
        said
    };
    // An incomplete last line, after a kill: its step is in the checkpoint, or is repeated.
    assert_eq!(note(format!("{whole}{{\"step\":4,\"lo").as_bytes()), "");
    assert_eq!(note(whole.as_bytes()), "");
    let step_2 = whole.find("{\"step\":2").unwrap();
    let mut bytes = whole.clone().into_bytes();
    bytes[step_2 + 3] = 0xff;
    let lost = "run/log.jsonl: unreadable lines, left out: 1 (line 4: no line of a log); steps \
                missing: 1 of 3.";
    assert!(note(&bytes).contains(lost));
    let cut = note(&whole.as_bytes()[..step_2]);
    assert!(cut.contains("unreadable lines, left out: 0; steps missing: 2 of 3."), "{cut}");
    assert!(note(b"").contains("steps missing: 3 of 3."));
}

#[test]
fn values_out_of_range_in_a_log_are_reported() {
    let place = place_with_run();
    let log = place.path("run/log.jsonl");
    let whole = fs::read_to_string(&log).unwrap();
    // Even lines are steps; odd ones are evaluations.
    let resume = |line: usize, field: &str, value: &str| {
        let mut lines: Vec<String> = whole.lines().map(str::to_string).collect();
        let mut json: serde_json::Value = serde_json::from_str(&lines[line - 1]).unwrap();
        assert!(json.get(field).is_some());
        json[field] = serde_json::from_str(value).unwrap();
        lines[line - 1] = json.to_string();
        place.write("run/log.jsonl", lines.join("\n") + "\n");
        let ended = place.run(&["resume", "--out", "run", "--quiet"]);
        let said = ended.err.clone();
        ended.ok();
        let page = fs::read_to_string(place.path("run/run.html")).unwrap();
        assert!(page.ends_with("</html>\n"));
        said
    };
    let wrong = [
        (2, "loss", "1e308"),
        (4, "loss", "-1e308"),
        (1, "val_loss", "1e308"),
        (6, "ms", "1e308"),
        (2, "ms", "-1.0"),
        (4, "step", "0"),
    ];
    for (line, field, value) in wrong {
        let said = resume(line, field, value);
        let number: f64 = value.parse().unwrap();
        let words = format!("left out: 1 (line {line}: {field} cannot be {number:e})");
        assert!(said.contains(&words), "{words:?} is not in {said}");
    }
    // Losses that a model can have are kept.
    for value in ["3.4e38", "1e30", "0.0", "5e-324", "1e-300"] {
        assert_eq!(resume(2, "loss", value), "");
        assert_eq!(resume(1, "val_loss", value), "");
    }
}

#[test]
fn divergence_suggests_a_lower_learning_rate() {
    let place = Place::new();
    let args = ["train", "--preset", "tiny", "--steps", "60", "--quiet", "--lr"];
    let hint = "so this model has learnt nothing; try a --lr below 20,";
    let ended = place.run(&[&args[..], &["20"]].concat());
    assert!(ended.err.contains(hint), "{ended:?}");
    ended.ok();
    assert_eq!(place.run(&[&args[..], &["3e-3"]].concat()).err, "");
}

#[test]
fn resuming_with_other_hyperparameters_or_text() {
    let place = place_with_run();
    let resume = |more: &[&str]| place.run(&[&["resume", "--out", "run"], more].concat());
    for flag in ["--width", "--tokenizer", "--lr", "--precision", "--preset"] {
        resume(&[flag, "64"]).failed(USAGE, &[&format!("unexpected argument '{flag}'")]);
    }
    place.write("other", "Another text. ".repeat(99));
    resume(&["--data", "other"])
        .failed(FAILED, &["trained on a text that differs from the one in other"]);
    resume(&[]).ok();
    // A grid resumes runs of its own flags only.
    fs::create_dir(place.path("grid")).unwrap();
    fs::rename(place.path("run"), place.path("grid/lr=0.003")).unwrap();
    fs::remove_file(place.path("grid/lr=0.003/log.jsonl")).unwrap();
    let flags = ["--preset", "tiny", "--width", "64", "--precision", "bf16", "--out", "grid"];
    let table = place.run(&[&["grid", "lr=0.003"], &flags[..]].concat()).ok();
    assert!(
        table.contains("failed: the run in grid/lr=0.003 cannot be resumed with other"),
        "{table}"
    );
    let csv = fs::read_to_string(place.path("grid/grid.csv")).unwrap();
    for said in ["--width: 32, not 64", "--precision: 'f32', not 'bf16'"] {
        assert!(csv.contains(said), "{csv}");
    }
}

#[test]
fn invalid_prompts_are_rejected() {
    let place = place_with_run();
    let sample = |prompt| place.run(&["sample", "--out", "run", prompt]);
    sample("Où? 語").failed(USAGE, &["does not contain 'ù', '語'; it contains \"\\n !"]);
}

#[test]
fn damaged_checkpoints_are_rejected() {
    let place = place_with_run();
    let path = place.path("run/checkpoint.safetensors");
    let whole = fs::read(&path).unwrap();
    let fails = |bytes: &[u8], said: &[&str]| {
        fs::write(&path, bytes).unwrap();
        let said: Vec<&str> =
            ["cannot load: run/checkpoint.safetensors"].iter().chain(said).copied().collect();
        place.run(&["resume", "--out", "run"]).failed(FAILED, &said);
        place.run(&["sample", "a", "--out", "run"]).failed(FAILED, &said);
    };
    fails(b"", &["is no checkpoint"]);
    fails(b"no checkpoint at all, but a letter to a friend", &["is no checkpoint"]);
    fails(&whole[..whole.len() / 2], &["is no checkpoint"]);
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    fails(&flipped, &["is damaged: its contents do not match its checksum"]);
    fs::write(&path, &whole).unwrap();
    place.run(&["resume", "--out", "run"]).ok();
}

#[test]
fn divergence_keeps_the_last_good_checkpoint() {
    let place = Place::new();
    // Which number becomes non-finite first depends on rounding.
    let reasons =
        ["the loss is NaN", "the loss on held-out text is NaN", "is not finite", "are not finite"];
    for lr in ["1e20", "1e25", "1e30", "1e40"] {
        let args = ["train", "--preset", "tiny", "--steps", "50", "--lr", lr, "--out", lr];
        let kept = format!("{lr}/checkpoint.safetensors still holds step 0");
        let ended = place.run(&args);
        assert!(reasons.iter().any(|why| ended.err.contains(why)), "{ended:?}");
        ended.failed(FAILED, &["stopped at step ", &kept, "try a --lr below"]);
        let sample = place.run(&["sample", "a", "--out", lr]).ok();
        assert_eq!(sample.chars().count(), 502);
    }
}
