//! A complete run: its output and its files.

use crate::program::Place;
use serde_json::Value;
use std::fs;

fn log(place: &Place, folder: &str) -> Vec<Value> {
    let text = fs::read_to_string(place.path(folder).join("log.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A page of the attention during training, and one of a sample.
#[test]
fn attention_pages_of_a_run_and_of_a_sample() {
    let place = Place::new();
    let page = |name: &str| fs::read_to_string(place.path(name)).unwrap();
    let args =
        ["train", "--preset", "tiny", "--steps", "20", "--eval-every", "10", "--tokens", "5"];
    place.run(&[&args[..], &["--attention-page", "run.html"]].concat()).ok();
    let html = page("run.html");
    assert!(html.contains("\"snapshots\":[\"step 0\",\"step 10\",\"step 20\"]"));
    assert!(html.contains("\"gradient\":{") && html.contains("\"without\":"));
    assert!(html.len() <= 2_000_000);
    let sample = ["sample", "Once", "--tokens", "9", "--attention-page", "sample.html"];
    place.run(&sample).ok();
    assert!(page("sample.html").contains("\"prompt\":4"));
    let nowhere = ["sample", "Once", "--attention-page", "missing/page.html"];
    place.run(&nowhere).failed(1, &["cannot write the attention page: missing/page.html"]);
}

/// The fields of the last line of a log.
const DONE: &[&str] =
    &["accuracy", "bits_per_byte", "done", "params", "perplexity", "seconds", "steps", "val_loss"];

#[test]
fn a_run_writes_all_documented_files() {
    let place = Place::new();
    let args =
        ["train", "--preset", "tiny", "--steps", "40", "--eval-every", "10", "--tokens", "50"];
    let out = place.run(&args).ok();
    for text in ["Once upon a time", "Held-out loss", "out/run\n", "What to try next"] {
        assert!(out.contains(text), "{text:?} is not in {out}");
    }

    let lines = log(&place, "out/run");
    let (done, lines) = lines.split_last().unwrap();
    let keys = |line: &Value| line.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(done), DONE);
    assert_eq!((&done["done"], &done["steps"]), (&true.into(), &40.into()));
    let (evaluations, steps): (Vec<_>, Vec<_>) =
        lines.iter().partition(|line| line.get("val_loss").is_some());
    assert!(evaluations.iter().all(|line| keys(line) == ["bits_per_byte", "step", "val_loss"]));
    let at: Vec<u64> = evaluations.iter().map(|line| line["step"].as_u64().unwrap()).collect();
    assert_eq!(at, [0, 10, 20, 30, 40]);
    // The curve ends on the windows that it began on, the result is on all of the text.
    let [last, whole] =
        [&evaluations[4]["val_loss"], &done["val_loss"]].map(|x| x.as_f64().unwrap());
    assert!(last != whole && (last - whole).abs() < 0.2, "{last} and {whole}");
    let number = |key: &str| done[key].as_f64().unwrap();
    assert!((number("perplexity") - whole.exp()).abs() < 1e-9);
    // Characters of the tales are bytes.
    assert!((number("bits_per_byte") - whole / 2f64.ln()).abs() < 1e-9);
    assert!((0.1..0.9).contains(&number("accuracy")));
    for (file, text) in [("tokenizer.json", "\"char\""), ("best.safetensors", "")] {
        let bytes = fs::read(place.path("out/run").join(file)).unwrap();
        assert!(String::from_utf8_lossy(&bytes).contains(text), "{file}");
    }
    assert!(evaluations[4]["val_loss"].as_f64() < evaluations[0]["val_loss"].as_f64());
    for (i, line) in (1u64..).zip(&steps) {
        assert_eq!(keys(line), ["grad_norm", "loss", "lr", "ms", "step", "tokens_per_s"]);
        assert_eq!(line["step"], i);
    }
    assert_eq!(steps.len(), 40);
}

#[test]
fn a_second_run_has_a_new_folder_and_quiet_prints_one_result() {
    let place = Place::new();
    let args = ["train", "--preset", "tiny", "--steps", "3", "--quiet"];
    for folder in ["out/run", "out/run-2", "out/run-3"] {
        let ended = place.run(&args);
        assert_eq!(ended.err, "");
        let out = ended.ok();
        assert_eq!(out.lines().count(), 2, "{out}");
        assert!(out.ends_with(&format!("in {folder}\n")), "{out}");
    }
    let loss = |folder| log(&place, folder).last().unwrap()["val_loss"].clone();
    assert_eq!(loss("out/run"), loss("out/run-3"));
    place.run(&[&args[..], &["--seed", "2"]].concat()).ok();
    assert_ne!(loss("out/run"), loss("out/run-4"));
}

#[test]
fn samples_are_a_function_of_seed_and_flags() {
    let place = Place::new();
    place.run(&["train", "--preset", "tiny", "--steps", "20", "--out", "here", "--quiet"]).ok();
    let sample = |more: &[&str]| {
        place.run(&[&["sample", "--out", "here", "The hill", "--tokens", "60"], more].concat()).ok()
    };
    let first = sample(&["--seed", "1"]);
    assert!(first.starts_with("The hill"));
    assert_eq!(first.chars().count(), "The hill".len() + 60 + 1);
    assert_eq!(sample(&["--seed", "1", "--threads", "1"]), first);
    assert_ne!(sample(&["--seed", "2"]), first);
    // Greedy decoding does not depend on the seed; top-k of 1 is the same.
    let likeliest = sample(&["--seed", "1", "--temperature", "0"]);
    assert_eq!(sample(&["--seed", "2", "--top-k", "1"]), likeliest);
}

#[test]
fn any_text_is_accepted() {
    let place = Place::new();
    let (emoji, one) = ("<&> \u{1}naïve 語🦊\t".repeat(40), "a".repeat(500));
    let crlf = "eins zwei drei\r\n".repeat(60);
    // The last tenth, which is held out, begins with the end of a line.
    let names = "Ada\nGrace\nEmmy\nRosalind\n".repeat(20);
    let held_out = names.len() * 9 / 10;
    let names = format!("{}\n{}", &names[..held_out], &names[held_out + 1..]);
    let nothing = "\n".repeat(500);
    let texts = [("emoji", emoji), ("one", one), ("crlf", crlf), ("names", names)];
    for (name, text) in texts.into_iter().chain([("nothing", nothing)]) {
        place.write(name, text);
        let args = ["train", "--preset", "tiny", "--steps", "5", "--tokens", "5", "--data", name];
        let run = place.run(&[&args[..], &["--out", &format!("out-{name}")]].concat());
        assert_eq!(run.err.contains(r"note: 60 line ends \r\n are read as \n"), name == "crlf");
        run.ok();
        place.run(&["resume", "--out", &format!("out-{name}")]).ok();
    }
}
