//! What comes after a run: evaluation, more steps, fine-tuning; and what an early end leaves.

use crate::invalid_usage::USAGE;
use crate::program::{Ended, Place};
use crate::resume::lines;
use retrograd::nn::checkpoint::Checkpoint;
use retrograd::tensor::settings::level;
use retrograd::tensor::simd::Level;
use serde_json::Value;
use std::fs;
use std::process::Stdio;

const TINY: &[&str] = &["train", "--preset", "tiny", "--quiet", "--dropout", "0.1"];

fn log(place: &Place, folder: &str) -> Vec<Value> {
    lines(place, folder).map(|line| serde_json::from_str(&line).unwrap()).collect()
}

/// The evaluations of a log: steps and losses.
fn evaluations(log: &[Value]) -> Vec<(u64, f64)> {
    let is_evaluation =
        |line: &&Value| line.get("done").is_none() && line.get("val_loss").is_some();
    let pair = |line: &Value| (line["step"].as_u64().unwrap(), line["val_loss"].as_f64().unwrap());
    log.iter().filter(is_evaluation).map(pair).collect()
}

fn train(place: &Place, folder: &str, more: &[&str]) {
    place.run(&[TINY, &["--out", folder], more].concat()).ok();
}

#[test]
fn a_run_that_goes_on_with_other_bits_says_so() {
    let place = Place::new();
    train(&place, "run", &["--steps", "2"]);
    for (steps, is_told) in [("3", level() != Level::Scalar), ("4", false)] {
        let resume = ["resume", "--quiet", "--out", "run", "--steps", steps];
        let mut command = place.retrograd(&resume);
        command.env("RETROGRAD_SIMD", "scalar").stdout(Stdio::piped()).stderr(Stdio::piped());
        let ended = Ended::of(command.spawn().unwrap());
        let text = "the run was trained with fused multiply-adds, matrix products in f32, and goes on with separate";
        assert_eq!(ended.err.contains(text), is_told, "{ended:?}");
        ended.ok();
    }
}

/// The number after a word in what `--evaluate` prints.
fn said(ended: Ended, word: &str) -> f64 {
    let out = ended.ok();
    let (_, rest) = out.split_once(word).unwrap_or_else(|| panic!("{word:?} is not in {out}"));
    let number: String =
        rest.trim().chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    number.parse().unwrap_or_else(|_| panic!("{rest}"))
}

#[test]
fn evaluation_reports_what_the_run_reported_at_its_end() {
    let place = Place::new();
    train(&place, "run", &["--steps", "30"]);
    let before = fs::read(place.path("run/checkpoint.safetensors")).unwrap();
    let done = log(&place, "run").pop().unwrap();
    for (word, key, unit) in [
        ("Held-out loss ", "val_loss", 1.0),
        ("perplexity ", "perplexity", 1.0),
        ("accuracy ", "accuracy", 100.0),
        ("): ", "bits_per_byte", 1.0),
    ] {
        let (word, wanted) = (word.to_string(), done[key].as_f64().unwrap() * unit);
        // The source is before the bits per byte.
        let word = if word == "): " { "tales: ".into() } else { word };
        let found = said(place.run(&["evaluate", "--out", "run"]), &word);
        assert!((found - wanted).abs() < 0.006, "{word}{found}, not {wanted}");
    }
    assert_eq!(fs::read(place.path("run/checkpoint.safetensors")).unwrap(), before);
    // Another text, with characters that the tales have.
    place.write("other", "zyx wvu tsr. ".repeat(100));
    let other = said(place.run(&["evaluate", "--out", "run", "--data", "other"]), "loss ");
    assert!(other > done["val_loss"].as_f64().unwrap() + 0.5, "{other}");
    place.write("other", "naïve ".repeat(100));
    place
        .run(&["evaluate", "--out", "run", "--data", "other"])
        .failed(1, &["the vocabulary does not contain 'ï'"]);
    place
        .run(&["evaluate", "--out", "run", "--steps", "3"])
        .failed(USAGE, &["unexpected argument"]);
    place.run(&["evaluate", "--out", "none"]).failed(1, &["there is no run in none"]);
}

#[test]
fn evaluation_notices_that_the_text_has_changed() {
    let place = Place::new();
    place.write("text", "some words. ".repeat(100));
    train(&place, "run", &["--steps", "2", "--data", "text"]);
    place.write("text", "some other words. ".repeat(100));
    place.run(&["evaluate", "--out", "run"]).failed(1, &["differs from the one in"]);
}

#[test]
fn a_run_takes_more_steps_by_the_schedule_of_the_longer_run() {
    let place = Place::new();
    train(&place, "short", &["--steps", "20", "--eval-every", "10"]);
    train(&place, "long", &["--steps", "40", "--eval-every", "10"]);
    let short = log(&place, "short");
    let ended = place.run(&["resume", "--out", "short", "--steps", "40", "--eval-every", "10"]);
    let lr = |log: &[Value], step: u64| {
        let line = log.iter().find(|line| line.get("lr").is_some() && line["step"] == step);
        line.unwrap()["lr"].as_f64().unwrap()
    };
    for text in [
        "4 steps of warm-up to 0.003, then half a cosine to 0.0003 at step 40",
        "until step 20 that of 20 steps; there the learning rate went from 0.000",
    ] {
        assert!(ended.err.contains(text), "{text:?} is not in {ended:?}");
    }
    ended.ok();
    let (longer, long) = (log(&place, "short"), log(&place, "long"));
    // What was there stays, without the line of the end.
    assert_eq!(longer[..short.len() - 1], short[..short.len() - 1]);
    assert_eq!(evaluations(&longer).iter().map(|e| e.0).collect::<Vec<_>>(), [0, 10, 20, 30, 40]);
    for step in 1..=40 {
        let same = if step <= 20 { &short } else { &long };
        assert_eq!(lr(&longer, step), lr(same, step), "step {step}");
    }
    assert!(lr(&longer, 21) > lr(&longer, 20));
    assert_eq!(longer.last().unwrap()["steps"], 40);
    let file = Checkpoint::load(&place.path("short/checkpoint.safetensors")).unwrap();
    let history: Value = file.read_note("history").unwrap();
    assert_eq!(history["changed_steps"][0]["at"], 20);
    // Now it is a run of 40 steps.
    place.run(&["resume", "--out", "short", "--steps", "40"]).ok();
    place
        .run(&["resume", "--out", "short", "--steps", "39"])
        .failed(USAGE, &["has taken 40 steps already, so it cannot end after 39"]);
}

#[test]
fn a_run_starts_from_the_weights_of_another() {
    let place = Place::new();
    place.write("old", "the cat sat on the mat. ".repeat(99));
    place.write("new", "a hat at the zoo. ".repeat(99));
    train(&place, "base", &["--data", "old", "--steps", "60"]);
    place.write("same", "a mat, a cat on the ten mats. ".replace(',', "").repeat(99));
    let ended = place.run(&[
        "train",
        "--init-from",
        "base",
        "--data",
        "same",
        "--out",
        "tuned",
        "--steps",
        "30",
        "--lr",
        "1e-3",
    ]);
    assert!(ended.err.contains("weights  begun with those of base after step 60"), "{ended:?}");
    ended.ok();
    // Before the first step it is the other model.
    let tuned = evaluations(&log(&place, "tuned"));
    let before = said(place.run(&["evaluate", "--out", "base", "--data", "same"]), "loss ");
    assert!((tuned[0].1 - before).abs() < 1e-4, "{tuned:?} and {before}");
    assert!(tuned.last().unwrap().1 < before - 0.2, "{tuned:?}");
    let file = Checkpoint::load(&place.path("tuned/checkpoint.safetensors")).unwrap();
    assert_eq!(file.read_note::<Value>("history").unwrap()["init_from"]["step"], 60);
    // From a file, too; and the run can be resumed.
    let best = ["--init-from", "base/best.safetensors", "--data", "same", "--out", "third"];
    train(&place, "third", &[&best[..4], &["--steps", "1"]].concat());
    place.run(&["resume", "--out", "tuned", "--quiet"]).ok();

    let run = |more: &[&str]| {
        place.run(&[&["train", "--init-from", "base", "--out", "no"], more].concat())
    };
    run(&["--data", "new"]).failed(
        1,
        &[
            "the vocabularies of base and ",
            "Only in the text: 'z'. Only in the run: 'c', 'm', 'n', 's'. The run has 11 characters",
        ],
    );
    run(&["--data", "same", "--width", "64", "--norm", "rms-norm"])
        .failed(USAGE, &["--width: 32, not 64", "--norm: "]);
    run(&["--data", "same", "--tokenizer", "byte"])
        .failed(USAGE, &["--tokenizer is not that of base: char with 11 tokens"]);
    place.run(&["train", "--init-from", "nothing"]).failed(1, &["there is no run in nothing"]);
    assert!(!place.path("no").exists());
}

#[test]
fn the_last_checkpoints_and_the_best_one_are_kept() {
    let place = Place::new();
    // A short text, which the model learns by heart.
    let words = "one two three four five six seven eight nine ten eleven twelve thirteen zip zap";
    let text: String =
        (0..60).map(|i| words.split(' ').nth(i * i % 15).unwrap().to_string() + " ").collect();
    place.write("text", text);
    let args = ["--data", "text", "--steps", "200", "--eval-every", "20", "--keep", "3"];
    train(&place, "run", &[&args[..], &["--context", "8", "--lr", "0.01"]].concat());
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
    assert_eq!(steps("run"), [160, 180, 200]);
    let step = |file: &str| {
        let file = Checkpoint::load(&place.path("run").join(file)).unwrap();
        file.read_note::<u64>("step").unwrap()
    };
    assert_eq!((step("checkpoint-160.safetensors"), step("checkpoint.safetensors")), (160, 200));
    let curve = evaluations(&log(&place, "run"));
    let trained = curve.iter().filter(|e| e.0 > 0);
    let best = *trained.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    assert!(best.0 < 200, "the model does not overfit: {curve:?}");
    assert_eq!(step("best.safetensors"), best.0);
    let loss = |which: &str| {
        said(place.run(&["evaluate", "--out", "run", "--checkpoint", which]), "Held-out loss ")
    };
    // So short a text has few windows, and all are part of the curve.
    assert!((loss("best") - best.1).abs() < 1e-4);
    assert!((loss("last") - curve.last().unwrap().1).abs() < 1e-4);
    assert!((loss("180") - curve[9].1).abs() < 1e-4);
    place.run(&["sample", "one", "--out", "run", "--checkpoint", "best", "--tokens", "5"]).ok();
    place
        .run(&["sample", "one", "--out", "run", "--checkpoint", "20"])
        .failed(USAGE, &["there is no run/checkpoint-20", "last, best, 160, 180, 200"]);
    place
        .run(&["resume", "--out", "run", "--checkpoint", "best"])
        .failed(USAGE, &["unexpected argument '--checkpoint'"]);
    // Private files remain private when the run goes on, and so do copies of them.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let path = |file: &str| place.path("run").join(file);
        let files = ["checkpoint.safetensors", "best.safetensors", "log.jsonl", "run.html"];
        for file in files {
            fs::set_permissions(path(file), fs::Permissions::from_mode(0o600)).unwrap();
        }
        place.run(&["resume", "--out", "run", "--steps", "240", "--keep", "3"]).ok();
        for file in files.into_iter().chain(["checkpoint-240.safetensors"]) {
            let mode = fs::metadata(path(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
    }
    // Without --keep, only the last and the best one.
    train(&place, "two", &["--data", "text", "--steps", "4", "--context", "8"]);
    assert!(steps("two").is_empty() && place.path("two/best.safetensors").exists());
}

#[test]
fn a_checkpoint_from_before_there_were_tokenizers_loads() {
    let place = Place::new();
    train(&place, "run", &["--steps", "4"]);
    let sample = ["sample", "Once", "--tokens", "20", "--out", "run"];
    let (text, evaluated) =
        (place.run(&sample).ok(), place.run(&["evaluate", "--out", "run"]).ok());
    let path = place.path("run/checkpoint.safetensors");
    let mut file = Checkpoint::load(&path).unwrap();
    let tokenizer: Value = file.read_note("tokenizer").unwrap();
    let mut recipe: Value = file.read_note("recipe").unwrap();
    recipe.as_object_mut().unwrap().remove("tokenizer");
    file.note("recipe", &recipe);
    file.note("vocabulary", &tokenizer["characters"]);
    for name in ["tokenizer", "best", "history"] {
        assert!(file.notes.remove(name).is_some());
    }
    file.save(&path).unwrap();
    assert_eq!(place.run(&sample).ok(), text);
    assert_eq!(place.run(&["evaluate", "--out", "run"]).ok(), evaluated);
    place.run(&["resume", "--steps", "6", "--quiet", "--out", "run"]).ok();
    let tokenizer_now = Checkpoint::load(&path).unwrap().read_note::<Value>("tokenizer").unwrap();
    assert_eq!(tokenizer_now, tokenizer);
}
