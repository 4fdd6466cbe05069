//! Invalid usage: every error has a message and an exit code.

use crate::program::{Ended, FAILED, Place, TINY, USAGE, contains, wait_until};
use std::fs;

/// A temporary folder with a short run in `run`.
fn place_with_run() -> Place {
    let place = Place::new();
    place.train("run", 3, "");
    place
}

#[test]
fn invalid_flags_are_rejected() {
    let place = Place::new();
    let cases: [(&str, &[&str]); 21] = [
        ("train --width 0", &["'0'", "--width", "1..=16384"]),
        ("train --batch 0", &["'0'", "--batch"]),
        ("train --threads 0", &["'0'", "--threads"]),
        ("train --layers -1", &["'-1'", "--layers", "1..=1024"]),
        ("train --lr -1", &["'-1'", "--lr", "must be above 0"]),
        ("train --seed -1", &["'-1'", "--seed"]),
        ("train --steps many", &["'many'", "--steps"]),
        ("train --heads 3", &["3 heads do not divide a width of 128"]),
        ("train --lr NaN", &["'NaN'", "--lr", "must be finite"]),
        ("train --memory 500", &["'500'", "needs a unit: 500MB"]),
        ("train --lr 0", &["'0'", "--lr", "must be above 0"]),
        ("train --dropout 1", &["'1'", "--dropout", "at least 0 and below 1"]),
        ("sample --temperature inf a", &["'inf'", "--temperature", "finite"]),
        ("sample --top-p 0 a", &["'0'", "--top-p", "must be above 0 and at most 1"]),
        ("sample ''", &["the prompt is empty"]),
        ("sample a --stop ''", &["a value is required for '--stop <TEXT>'"]),
        ("sample a --steps 5", &["unexpected argument '--steps'"]),
        (
            "train --preset large",
            &[
                "'large'",
                "tales, nanogpt-cpu, modern, hybrid, fast, minute, five-minutes, best, llama, baby, tiny",
            ],
        ),
        ("train --precision half", &["'half'", "(one of: f32, bf16x6, bf16x3, bf16)"]),
        ("train --step 5", &["'--step'", "'--steps'"]),
        ("tain", &["unrecognized subcommand 'tain'", "'train'"]),
    ];
    for (line, said) in cases {
        place.fails(line, USAGE, said);
    }
    assert!(!place.exists("out"), "no folder is created for an invalid flag");
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
        ("latin1", &["latin1: not UTF-8: byte 9 (0xe9)", "iconv -f LATIN1 -t UTF-8 FILE"]),
        ("folder", &["folder: the folder has no files"]),
    ];
    for (file, said) in cases {
        place.fails(&format!("train --data {file}"), FAILED, said);
    }
    assert!(!place.exists("out"), "no folder is created for an invalid text");
}

#[test]
fn invalid_folders_are_rejected() {
    let place = place_with_run();
    let before = place.read("run/log.jsonl");
    place.fails("train --out run", USAGE, &["run contains a run already; resume"]);
    assert_eq!(place.read("run/log.jsonl"), before);
    fs::remove_file(place.path("run/checkpoint.safetensors")).unwrap();
    let alone = "run has a log but no checkpoint, so its run cannot be resumed; name another folder, \
                 or remove run/log.jsonl";
    place.fails("train --out run", USAGE, &[alone]);
    place.fails("resume --out run", FAILED, &[alone]);
    fs::remove_file(place.path("run/log.jsonl")).unwrap();
    place.train("run", 1, "");
    place.write("file", "no folder");
    let cases = [
        ("train --out file/run", "cannot make the folder file/run"),
        ("train --out file", "cannot make the folder file"),
        ("resume --out file", "no run in file: it is a file"),
        ("resume", "there is no run in out/run"),
        ("sample a --out none", "there is no run in none"),
    ];
    for (line, said) in cases {
        place.fails(line, FAILED, &[said]);
    }
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
    let mut command = place.command("train --preset tiny --data");
    Ended::of(command.arg(name).spawn().unwrap())
        .failed(FAILED, &["caf\\xE9.txt\" is not UTF-8", "rename or move the file"]);
    assert!(!place.exists("out"));
}

#[test]
fn a_folder_in_use_is_rejected() {
    let place = Place::new();
    let mut first = place.start(&format!("{TINY} --steps 100000 --quiet"));
    wait_until(&mut first, || place.exists("out/run/log.jsonl"));
    let said = ["another process is training in out/run"];
    place.fails("train --out out/run", FAILED, &said);
    place.fails("resume", FAILED, &said);
    // Sampling from it is allowed once it has a checkpoint, and a run without --out takes another
    // folder.
    wait_until(&mut first, || place.exists("out/run/checkpoint.safetensors"));
    place.ok("sample The --tokens 5");
    let out = place.ok(&format!("{TINY} --steps 1 --quiet"));
    assert!(out.ends_with("in out/run-2\n"), "{out}");
    first.kill().unwrap();
    first.wait().unwrap();
    place.fails("train --out out/run", USAGE, &["contains a run already"]);
}

#[test]
fn damaged_lines_of_a_log_are_reported() {
    let place = place_with_run();
    let whole = place.read("run/log.jsonl");
    let note = |bytes: &[u8]| {
        place.write("run/log.jsonl", bytes);
        let ended = place.run("resume --out run --quiet --no-page");
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
    let whole = place.read("run/log.jsonl");
    // Even lines are steps; odd ones are evaluations.
    let resume = |line: usize, field: &str, value: &str| {
        let mut lines: Vec<String> = whole.lines().map(str::to_string).collect();
        let mut json: serde_json::Value = serde_json::from_str(&lines[line - 1]).unwrap();
        assert!(json.get(field).is_some());
        json[field] = serde_json::from_str(value).unwrap();
        lines[line - 1] = json.to_string();
        place.write("run/log.jsonl", lines.join("\n") + "\n");
        let ended = place.run("resume --out run --quiet");
        let said = ended.err.clone();
        ended.ok();
        assert!(place.read("run/run.html").ends_with("</html>\n"));
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
    let run = |lr: &str| place.run(&format!("{TINY} --no-page --steps 60 --quiet --lr {lr}"));
    run("20").says("so this model has learnt nothing; try a --lr below 20,").ok();
    assert_eq!(run("3e-3").err, "");
}

#[test]
fn resuming_with_other_hyperparameters_or_text() {
    let place = place_with_run();
    for flag in ["--width", "--tokenizer", "--lr", "--precision", "--preset"] {
        let said = format!("unexpected argument '{flag}'");
        place.fails(&format!("resume --out run {flag} 64"), USAGE, &[&said]);
    }
    place.write("other", "Another text. ".repeat(99));
    let said = ["trained on a text that differs from the one in other"];
    place.fails("resume --out run --data other", FAILED, &said);
    place.ok("resume --out run");
    // A grid resumes runs of its own flags only.
    fs::create_dir(place.path("grid")).unwrap();
    fs::rename(place.path("run"), place.path("grid/lr=0.003")).unwrap();
    fs::remove_file(place.path("grid/lr=0.003/log.jsonl")).unwrap();
    let flags = "--preset tiny --width 64 --precision bf16 --out grid";
    let ended = place.run(&format!("grid lr=0.003 {flags}"));
    let failed = "failed: the run in grid/lr=0.003 cannot be resumed with other";
    assert!(ended.out.contains(failed) && !ended.out.contains("best"), "{ended:?}");
    ended.failed(FAILED, &["error: every run failed"]);
    let said = ["--width: 32, not 64", "--precision: 'f32', not 'bf16'"];
    contains(&place.read("grid/grid.csv"), &said);
}

#[test]
fn damaged_checkpoints_and_invalid_prompts_are_rejected() {
    let place = place_with_run();
    let said = ["does not contain 'ù', '語'; it contains \"\\t\\n"];
    place.fails("sample --out run 'Où 語'", USAGE, &said);
    let whole = place.checkpoint("run");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    let cases: [(&[u8], &str); 4] = [
        (b"", "is no checkpoint"),
        (b"no checkpoint at all, but a letter to a friend", "is no checkpoint"),
        (&whole[..whole.len() / 2], "is no checkpoint"),
        (&flipped, "is damaged: its contents do not match its checksum"),
    ];
    for (bytes, why) in cases {
        place.write("run/checkpoint.safetensors", bytes);
        for line in ["resume --out run", "sample a --out run"] {
            place.fails(line, FAILED, &["cannot load: run/checkpoint.safetensors", why]);
        }
    }
    place.write("run/checkpoint.safetensors", &whole);
    place.ok("resume --out run");
}

#[test]
fn divergence_keeps_the_last_good_checkpoint() {
    let place = Place::new();
    // Which number becomes non-finite first depends on rounding.
    let reasons =
        ["the loss is NaN", "the loss on held-out text is NaN", "is not finite", "are not finite"];
    for lr in ["1e20", "1e25", "1e30", "1e40"] {
        let kept = format!("{lr}/checkpoint.safetensors still holds step 0");
        let ended = place.run(&format!("{TINY} --no-page --steps 50 --lr {lr} --out {lr}"));
        assert!(reasons.iter().any(|why| ended.err.contains(why)), "{ended:?}");
        ended.failed(FAILED, &["stopped at step ", &kept, "try a --lr below"]);
        let sample = place.ok(&format!("sample a --out {lr}"));
        assert_eq!(sample.chars().count(), 502);
    }
}
