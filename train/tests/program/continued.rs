//! What comes after a run: evaluation, more steps, fine-tuning; and what an early end leaves.

use crate::program::{FAILED, Place, USAGE};
use retrograd::nn::checkpoint::Checkpoint;
use retrograd::tensor::settings::level;
use retrograd::tensor::simd::Level;
use serde_json::Value;
use std::fs;

/// The evaluations of a log: steps and losses.
fn evaluations(log: &[Value]) -> Vec<(u64, f64)> {
    let is_evaluation =
        |line: &&Value| line.get("done").is_none() && line.get("val_loss").is_some();
    let pair = |line: &Value| (line["step"].as_u64().unwrap(), line["val_loss"].as_f64().unwrap());
    log.iter().filter(is_evaluation).map(pair).collect()
}

/// Trains on a text that was written to the place.
fn train(place: &Place, folder: &str, steps: u64, more: &str) {
    let flags = format!("--no-page --dropout 0.1 --out {folder} --steps {steps} {more}");
    place.ok(&format!("train --preset tiny --quiet {flags}"));
}

#[test]
fn a_run_that_goes_on_with_other_bits_says_so() {
    let place = Place::new();
    place.train("run", 2, "");
    for (steps, is_told) in [("3", level() != Level::Scalar), ("4", false)] {
        let resume = format!("resume --quiet --out run --steps {steps}");
        let ended = place.run_with("RETROGRAD_SIMD", "scalar", &resume);
        let text = "the run was trained with fused multiply-adds, matrix products in f32, and goes on with separate";
        assert_eq!(ended.err.contains(text), is_told, "{ended:?}");
        ended.ok();
    }
}

/// The number after a word in what `evaluate` prints.
fn said(out: &str, word: &str) -> f64 {
    let (_, rest) = out.split_once(word).unwrap_or_else(|| panic!("{word:?} is not in {out}"));
    let number: String =
        rest.trim().chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    number.parse().unwrap_or_else(|_| panic!("{rest}"))
}

/// The held-out loss that `evaluate` prints.
fn loss(place: &Place, flags: &str) -> f64 {
    said(&place.ok(&format!("evaluate {flags}")), "Held-out loss ")
}

#[test]
fn evaluation_reports_what_the_run_reported_at_its_end() {
    let place = Place::new();
    train(&place, "run", 30, "");
    let before = place.checkpoint("run");
    let done = place.done("run");
    let out = place.ok("evaluate --out run");
    for (word, key, unit) in [
        ("Held-out loss ", "val_loss", 1.0),
        ("perplexity ", "perplexity", 1.0),
        ("accuracy ", "accuracy", 100.0),
        // The source is before the bits per byte.
        ("tales: ", "bits_per_byte", 1.0),
    ] {
        let (found, wanted) = (said(&out, word), done[key].as_f64().unwrap() * unit);
        assert!((found - wanted).abs() < 0.006, "{word}{found}, not {wanted}");
    }
    assert_eq!(place.checkpoint("run"), before);
    // Another text, with characters that the tales have.
    place.write("other", "zyx wvu tsr. ".repeat(100));
    let other = loss(&place, "--out run --data other");
    assert!(other > done["val_loss"].as_f64().unwrap() + 0.5, "{other}");
    place.write("other", "naïve ".repeat(100));
    let said = ["the vocabulary does not contain 'ï'"];
    place.fails("evaluate --out run --data other", FAILED, &said);
    place.fails("evaluate --out run --steps 3", USAGE, &["unexpected argument"]);
    place.fails("evaluate --out none", FAILED, &["there is no run in none"]);
}

#[test]
fn a_run_takes_more_steps_by_the_schedule_of_the_longer_run() {
    let place = Place::new();
    place.train("short", 20, "--eval-every 10");
    place.train("long", 40, "--eval-every 10");
    let short = place.log("short");
    let ended = place.run("resume --out short --steps 40 --eval-every 10 --no-page");
    let lr = |log: &[Value], step: u64| {
        let line = log.iter().find(|line| line.get("lr").is_some() && line["step"] == step);
        line.unwrap()["lr"].as_f64().unwrap()
    };
    ended
        .says("4 steps of warm-up to 0.003, then half a cosine to 0.0003 at step 40")
        .says("until step 20 that of 20 steps; there the learning rate went from 0.000")
        .ok();
    let (longer, long) = (place.log("short"), place.log("long"));
    // What was there stays, without the line of the end.
    assert_eq!(longer[..short.len() - 1], short[..short.len() - 1]);
    assert_eq!(evaluations(&longer).iter().map(|e| e.0).collect::<Vec<_>>(), [0, 10, 20, 30, 40]);
    for step in 1..=40 {
        let same = if step <= 20 { &short } else { &long };
        assert_eq!(lr(&longer, step), lr(same, step), "step {step}");
    }
    assert!(lr(&longer, 21) > lr(&longer, 20));
    assert_eq!(longer.last().unwrap()["steps"], 40);
    // The time of all steps, before and after.
    let ms: f64 = longer.iter().filter_map(|line| line["ms"].as_f64()).sum();
    let seconds = longer.last().unwrap()["seconds"].as_f64().unwrap();
    assert!((seconds * 1e3 / ms - 1.0).abs() < 1e-9, "{seconds} s, and {ms} ms of steps");
    let history: Value = place.loaded("short").read_note("history").unwrap();
    assert_eq!(history["changed_steps"][0]["at"], 20);
    // Now it is a run of 40 steps.
    place.ok("resume --out short --steps 40");
    let said =
        ["has taken 40 steps already, so it cannot end after 39; --steps counts those before, too"];
    place.fails("resume --out short --steps 39", USAGE, &said);
}

#[test]
fn a_run_starts_from_the_weights_of_another() {
    let place = Place::new();
    place.write("old", "the cat sat on the mat. ".repeat(99));
    place.write("new", "a hat at the zoo. ".repeat(99));
    place.write("same", "a mat a cat on the ten mats. ".repeat(99));
    train(&place, "base", 60, "--data old");
    let ended =
        place.run("train --init-from base --data same --out tuned --steps 30 --lr 1e-3 --no-page");
    ended.says("weights  begun with those of base after step 60").ok();
    // Before the first step it is the other model.
    let tuned = evaluations(&place.log("tuned"));
    let before = loss(&place, "--out base --data same");
    assert!((tuned[0].1 - before).abs() < 1e-4, "{tuned:?} and {before}");
    assert!(tuned.last().unwrap().1 < before - 0.2, "{tuned:?}");
    let history: Value = place.loaded("tuned").read_note("history").unwrap();
    assert_eq!(history["init_from"]["step"], 60);
    // From a file, too; and the run can be resumed.
    train(&place, "third", 1, "--init-from base/best.safetensors --data same");
    place.ok("resume --out tuned --quiet");

    let vocabularies = [
        "the vocabularies of base and ",
        "Only in the text: 'z'. Only in the run: 'c', 'm', 'n', 's'. The run has 11 characters",
    ];
    let tokenizer = ["--tokenizer is not that of base: char with 11 tokens"];
    let cases: [(&str, i32, &[&str]); 4] = [
        ("base --data new", FAILED, &vocabularies),
        (
            "base --data same --width 64 --norm rms-norm",
            USAGE,
            &["--width: 32, not 64", "--norm: "],
        ),
        ("base --data same --tokenizer byte", USAGE, &tokenizer),
        ("nothing", FAILED, &["there is no run in nothing"]),
    ];
    for (flags, code, said) in cases {
        place.fails(&format!("train --out no --init-from {flags}"), code, said);
    }
    assert!(!place.exists("no"));
}

#[test]
fn evenly_spread_checkpoints_and_the_best_one_are_kept() {
    let place = Place::new();
    // A short text, which the model learns by heart.
    let words = "one two three four five six seven eight nine ten eleven twelve thirteen zip zap";
    let text: String =
        (0..60).map(|i| words.split(' ').nth(i * i % 15).unwrap().to_string() + " ").collect();
    place.write("text", text);
    train(&place, "run", 200, "--data text --eval-every 20 --context 8 --lr 0.01 --keep-size 2MB");
    let steps = |folder: &str| {
        let entries = fs::read_dir(place.path(folder)).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        let mut steps: Vec<u64> = names
            .filter_map(|name| {
                name.strip_prefix("checkpoint-")?.strip_suffix(".safetensors")?.parse().ok()
            })
            .collect();
        steps.sort_unstable();
        steps
    };
    assert_eq!(steps("run"), [0, 40, 80, 120, 160, 200]);
    let step = |file: &str| {
        let file = Checkpoint::load(place.path("run").join(file)).unwrap();
        file.read_note::<u64>("step").unwrap()
    };
    assert_eq!((step("checkpoint-160.safetensors"), step("checkpoint.safetensors")), (160, 200));
    let curve = evaluations(&place.log("run"));
    let trained = curve.iter().filter(|e| e.0 > 0);
    let best = *trained.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    assert!(best.0 < 200, "the model does not overfit: {curve:?}");
    assert_eq!(step("best.safetensors"), best.0);
    let loss = |which: &str| loss(&place, &format!("--out run --checkpoint {which}"));
    // So short a text has few windows, and all are part of the curve.
    assert!((loss("best") - best.1).abs() < 1e-4);
    assert!((loss("last") - curve.last().unwrap().1).abs() < 1e-4);
    assert!((loss("160") - curve[8].1).abs() < 1e-4);
    place.ok("sample one --out run --checkpoint best --tokens 5");
    let said = ["there is no run/checkpoint-20", "last, best, 0, 40, 80, 120, 160, 200"];
    place.fails("sample one --out run --checkpoint 20", USAGE, &said);
    let said = ["unexpected argument '--checkpoint'"];
    place.fails("resume --out run --checkpoint best", USAGE, &said);
    // A damaged checkpoint, and the kept one that is the same file.
    let last = place.checkpoint("run");
    place.write("run/checkpoint.safetensors", &last[..last.len() / 2]);
    let said = [
        "cannot load: run/checkpoint.safetensors",
        "note: run/checkpoint-160.safetensors is whole",
    ];
    place.fails("resume --out run", FAILED, &said);
    place.fails("sample one --out run", FAILED, &said);
    fs::remove_file(place.path("run/checkpoint.safetensors")).unwrap();
    place.fails("resume --out run", FAILED, &["has a log but no checkpoint", said[1]]);
    let kept = fs::read(place.path("run/checkpoint-160.safetensors")).unwrap();
    place.write("run/checkpoint.safetensors", kept);
    place.ok("resume --out run --eval-every 20 --keep-size 2MB");
    assert!(place.checkpoint("run") == last, "the run ends with the same bytes");
    // Private files remain private when the run goes on, and so do copies of them.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let path = |file: &str| place.path("run").join(file);
        place.ok("resume --out run");
        let files = ["checkpoint.safetensors", "best.safetensors", "log.jsonl", "run.html"];
        for file in files {
            fs::set_permissions(path(file), fs::Permissions::from_mode(0o600)).unwrap();
        }
        place.ok("resume --out run --steps 240 --eval-every 20");
        for file in files.into_iter().chain(["checkpoint-240.safetensors"]) {
            let mode = fs::metadata(path(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
        assert_eq!(steps("run"), [0, 40, 80, 120, 160, 200, 220, 240]);
    }
    // If not one fits, only the last and the best one.
    train(&place, "two", 4, "--data text --context 8 --keep-size 1KB");
    assert!(steps("two").is_empty() && place.exists("two/best.safetensors"));
}

#[test]
fn a_checkpoint_from_before_there_were_tokenizers_loads() {
    let place = Place::new();
    place.train("run", 4, "");
    let (sample, evaluate) = ("sample Work --tokens 20 --out run", "evaluate --out run");
    let (text, evaluated) = (place.ok(sample), place.ok(evaluate));
    let mut file = place.loaded("run");
    let tokenizer: Value = file.read_note("tokenizer").unwrap();
    let mut recipe: Value = file.read_note("recipe").unwrap();
    recipe.as_object_mut().unwrap().remove("tokenizer");
    file.note("recipe", &recipe);
    file.note("vocabulary", &tokenizer["characters"]);
    for name in ["tokenizer", "best", "history"] {
        assert!(file.notes.remove(name).is_some());
    }
    file.save(place.path("run/checkpoint.safetensors")).unwrap();
    assert_eq!(place.ok(sample), text);
    assert_eq!(place.ok(evaluate), evaluated);
    place.ok("resume --steps 6 --quiet --out run");
    assert_eq!(place.loaded("run").read_note::<Value>("tokenizer").unwrap(), tokenizer);
}
