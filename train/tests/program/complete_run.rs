//! A complete run: its output and its files.

use crate::program::{FAILED, Place, TINY, contains};
use serde_json::Value;

/// A page of the attention during training, and one of a sample.
#[test]
fn attention_pages_of_a_run_and_of_a_sample() {
    let place = Place::new();
    let flags = "--no-page --steps 20 --eval-every 10 --tokens 5 --attention-page run.html";
    place.ok(&format!("{TINY} {flags}"));
    let html = place.read("run.html");
    assert!(html.contains("\"snapshots\":[\"step 0\",\"step 10\",\"step 20\"]"));
    assert!(html.contains("\"gradient\":{") && html.contains("\"without\":"));
    assert!(html.len() <= 2_000_000);
    place.ok("sample Work --tokens 9 --attention-page sample.html");
    assert!(place.read("sample.html").contains("\"prompt\":4"));
    place.ok("sample Work --tokens 9 --attention-page new/page.html");
    assert!(place.exists("new/page.html"));
    let said = "cannot make the folder run.html";
    place.fails("sample Work --attention-page run.html/page.html", FAILED, &[said]);
}

/// The fields of the last line of a log.
const DONE: &[&str] =
    &["accuracy", "bits_per_byte", "done", "params", "perplexity", "seconds", "steps", "val_loss"];

#[test]
fn a_run_writes_all_documented_files() {
    let place = Place::new();
    let out = place.ok("train --preset tiny --steps 40 --eval-every 10 --tokens 50");
    contains(&out, &["Once upon a time", "Held-out loss", "out/run\n", "What to try next"]);

    // The hint is a command with the same text and flags.
    let (_, larger) = out.split_once("train a larger model\n").unwrap();
    let (_, larger) = larger.lines().next().unwrap().split_once(" train ").unwrap();
    let flags = "--preset tiny --layers 4 --steps 40 --width 48";
    assert_eq!(larger, flags);
    place.ok(&format!("train {larger} --quiet"));

    let lines = place.log("out/run");
    let (done, lines) = lines.split_last().unwrap();
    let keys = |line: &Value| line.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(done), DONE);
    assert_eq!((&done["done"], &done["steps"]), (&true.into(), &40.into()));
    let (evaluations, steps): (Vec<_>, Vec<_>) =
        lines.iter().partition(|line| line.get("val_loss").is_some());
    let fields = ["bits_per_byte", "step", "val_loss", "weights"];
    assert!(evaluations.iter().all(|line| keys(line) == fields));
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
    assert!(place.read("out/run/tokenizer.json").contains("\"char\""));
    assert!(place.exists("out/run/best.safetensors"));
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
    let line = format!("{TINY} --steps 3 --quiet");
    for folder in ["out/run", "out/run-2", "out/run-3"] {
        let ended = place.run(&line);
        assert_eq!(ended.err, "");
        let out = ended.ok();
        assert_eq!(out.lines().count(), 2, "{out}");
        assert!(out.ends_with(&format!("in {folder}\n")), "{out}");
    }
    let loss = |folder| place.done(folder)["val_loss"].clone();
    assert_eq!(loss("out/run"), loss("out/run-3"));
    place.ok(&format!("{line} --seed 2"));
    assert_ne!(loss("out/run"), loss("out/run-4"));
}

#[test]
fn samples_are_a_function_of_seed_and_flags() {
    let place = Place::new();
    place.train("here", 20, "");
    let sample = |flags| place.ok(&format!("sample --out here 'The Work' --tokens 60 {flags}"));
    let first = sample("--seed 1");
    assert!(first.starts_with("The Work"));
    assert_eq!(first.chars().count(), "The Work".len() + 60 + 1);
    assert_eq!(sample("--seed 1 --threads 1"), first);
    assert_ne!(sample("--seed 2"), first);
    // Greedy decoding does not depend on the seed; top-k of 1 is the same.
    assert_eq!(sample("--seed 2 --top-k 1"), sample("--seed 1 --temperature 0"));
    // Nor do results depend on the locale.
    let line = "sample --out here 'The Work' --tokens 60 --seed 1";
    for (name, value) in [("LC_ALL", "de_DE.UTF-8"), ("TZ", "Asia/Kathmandu")] {
        assert_eq!(place.run_with(name, value, line).says("Sampled 60 tokens, ").ok(), first);
    }
}

#[test]
fn the_windows_of_the_loss_curve_are_spread_over_the_held_out_text() {
    let place = Place::new();
    // The held-out part is 125 windows, of which the second half is another text.
    place.write("text", "ab".repeat(19_000) + &"a".repeat(2000));
    place.ok("train --preset tiny --no-page --data text --steps 20 --out run");
    let curve = place.log("run").into_iter().rev().find(|line| line["weights"].is_u64()).unwrap();
    let loss = |line: &Value| line["val_loss"].as_f64().unwrap();
    let ratio = loss(&curve) / loss(&place.done("run"));
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
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
    let mark = format!("\u{feff}{}", "marked ".repeat(80));
    let texts = [("emoji", emoji), ("one", one), ("crlf", crlf), ("names", names), ("mark", mark)];
    for (name, text) in texts.into_iter().chain([("nothing", nothing)]) {
        place.write(name, text);
        let flags = format!("--steps 5 --tokens 5 --data {name} --out out-{name}");
        let run = place.run(&format!("train --preset tiny {flags}"));
        let dropped = "note: the byte order mark at the beginning of 1 files is left out";
        assert_eq!(run.err.contains(dropped), name == "mark");
        assert_eq!(run.err.contains(r"note: 60 line ends \r\n are read as \n"), name == "crlf");
        run.ok();
        place.ok(&format!("resume --out out-{name}"));
    }
}
