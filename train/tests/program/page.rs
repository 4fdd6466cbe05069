//! The page of a run: what is on it, and that it changes nothing; several runs on one page.

use crate::program::{FAILED, Place, TINY, USAGE, contains};
use retrograd_support::document::numbers;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

/// The command of a run on the tales.
const RECIPE: &str = "train --preset tiny --quiet --eval-every 10 --dropout 0.1";

fn train(place: &Place, folder: &str, more: &str) {
    place.ok(&format!("{RECIPE} --out {folder} {more}"));
}

/// The data in a page.
fn data(path: PathBuf) -> Value {
    let html = fs::read_to_string(path).unwrap();
    assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"));
    retrograd_support::document::data(&html)
}

fn page(place: &Place, folder: &str) -> Value {
    data(place.path(folder).join("run.html"))
}

/// The lines of `looks.jsonl` with this key.
fn looks(place: &Place, folder: &str, key: &str) -> Vec<Value> {
    let text = place.read(&format!("{folder}/looks.jsonl"));
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter_map(|line| line.get(key).cloned()).collect()
}

#[test]
fn a_run_has_a_page() {
    let place = Place::new();
    train(&place, "run", "--steps 40 --lr 0.005 --positions rope");
    let page = page(&place, "run");
    assert_eq!((&page["status"]["state"], &page["step"]), (&json!("finished"), &json!(40)));
    assert_eq!(numbers(&page["series"]["step"]), (1..=40).map(f64::from).collect::<Vec<_>>());
    // The numbers are those of the log.
    let log = place.log("run");
    let steps = log.iter().filter(|line| line.get("lr").is_some());
    for (name, key) in [("loss", "loss"), ("grad_norm", "grad_norm"), ("lr", "lr")] {
        let shown = numbers(&page["series"][name]["mean"]);
        let logged = steps.clone().map(|line| line[key].as_f64().unwrap());
        assert!(shown.iter().zip(logged).all(|(a, b)| (a / b - 1.0).abs() < 1e-4), "{name}");
    }
    assert_eq!(numbers(&page["evaluations"]["step"]), [0.0, 10.0, 20.0, 30.0, 40.0]);
    // Counts predict better than nothing.
    let level = |name: &str| page["levels"][name].as_f64().unwrap();
    assert!(level("bigram") < level("unigram") && level("unigram") < level("uniform"));
    assert!((level("uniform") - 63f64.ln()).abs() < 1e-3);
    for used in numbers(&page["series"]["utilisation"]["mean"]) {
        assert!((0.0..1.0).contains(&used), "{used} of the peak");
    }
    // 2 layers: products with 12 · 32² weights each, scores, and the head; three times for all windows.
    let (context, width, vocab) = (32.0, 32.0, 63.0);
    let layer = 12.0 * width * width + 2.0 * context * width;
    let flops = 3.0 * 8.0 * context * 2.0 * (2.0 * layer + width * vocab);
    assert_eq!(page["flops"].as_f64().unwrap(), flops);

    let at = page["looks"]["at"].as_array().unwrap();
    let steps_of_looks: Vec<_> = at.iter().map(|look| look["step"].as_u64().unwrap()).collect();
    assert_eq!(steps_of_looks, [0, 10, 20, 30, 40]);
    let parts = page["looks"]["parts"].as_array().unwrap().len();
    for (i, look) in at.iter().enumerate() {
        assert_eq!(look["weights"].as_array().unwrap().len(), 4);
        assert!(numbers(&look["entropy"]).iter().all(|x| (0.0..=1.0001).contains(x)), "{look}");
        assert!(numbers(&look["distance"]).iter().all(|x| (0.0..36.0).contains(x)), "{look}");
        let scales = numbers(&look["scales"]);
        assert!(scales.len() == 2 && scales.iter().all(|x| *x > 0.0), "{look}");
        assert!(!look["sample"].as_str().unwrap().is_empty());
        // Before the first step, no step was observed.
        let norms =
            [&look["grad_norms"], &look["updates"]].map(|list| list.as_array().unwrap().len());
        assert_eq!(norms, if i == 0 { [0, 0] } else { [parts, parts] });
    }
    // The parts together have the norm that was logged.
    let norm = numbers(&at[4]["grad_norms"]).iter().map(|g| g * g).sum::<f64>().sqrt();
    let logged = steps.clone().next_back().unwrap()["grad_norm"].as_f64().unwrap();
    assert!((norm / logged - 1.0).abs() < 1e-3, "{norm}, not {logged}");
    // Of equal weights over i + 1 tokens, the mean distance is i / 2; the sentence has at most 32 tokens.
    let far = numbers(&at[0]["distance"]);
    assert!(far.iter().all(|x| (4.0..9.0).contains(x)), "{far:?}");
    // Weights and moments, and at the peak the activations of a step.
    assert_eq!(numbers(&page["memory"]["step"]), [0.0, 10.0, 20.0, 30.0, 40.0]);
    let params = log.last().unwrap()["params"].as_f64().unwrap();
    let (live, peak) = (numbers(&page["memory"]["live"]), numbers(&page["memory"]["peak"]));
    assert!(live.iter().all(|x| *x >= 2.0 * 4.0 * params), "{live:?} of {params} parameters");
    assert!(peak.is_sorted() && live[4] < peak[4], "{live:?}, {peak:?}");
    // A new model attends to everything equally.
    assert!(numbers(&at[0]["entropy"]).iter().all(|&x| x > 0.95));
    assert_ne!(at[0]["sample"], at[4]["sample"]);

    let rows = page["recipe"]["rows"].as_array().unwrap();
    assert_eq!(page["recipe"]["base"], "tiny");
    let changed: Vec<&Value> =
        rows.iter().filter(|row| row[1] != row[2]).map(|row| &row[0]).collect();
    assert_eq!(changed, ["dropout", "lr", "positions", "steps"]);
    // Values are in words, and numbers in groups; a seed is a name.
    let value = |name: &str| rows.iter().find(|row| row[0] == name).unwrap()[1].clone();
    assert_eq!(value("positions"), "rope (base 10,000, pairing half)");
    assert_eq!((value("seed"), value("dropout")), (json!("1337"), json!("0.1")));
    let facts = ["401,212 tokens", "last 40,122", "26,752 parameters", "in 1 shard;", "4 steps of"];
    contains(&page["facts"].to_string(), &facts);
    let kinds: Vec<&Value> = page["events"].as_array().unwrap().iter().map(|e| &e[1]).collect();
    assert_eq!(kinds, ["start", "best", "end"]);
}

#[test]
fn the_page_changes_no_bit_of_training() {
    let place = Place::new();
    train(&place, "with", "--steps 30");
    train(&place, "without", "--steps 30 --no-page");
    let [with, without] = ["with", "without"].map(|folder| crate::resume::remains(&place, folder));
    assert!(with.checkpoint == without.checkpoint && with.log == without.log);
    for file in ["run.html", "looks.jsonl"] {
        assert!(place.exists(&format!("with/{file}")));
        assert!(!place.exists(&format!("without/{file}")));
    }
}

#[cfg(unix)]
#[test]
fn a_killed_run_leaves_a_page_that_a_resumed_run_continues() {
    use crate::program::wait_until;
    use crate::resume::{RESUME, recipe};
    let place = Place::new();
    place.ok(&recipe("--out whole --quiet"));
    let mut child = place.start(&recipe("--out run --threads 1"));
    let is_written = || place.lines("run").len() > 120 && place.exists("run/run.html");
    wait_until(&mut child, is_written);
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = page(&place, "run");
    assert_eq!(killed["status"]["state"], "running");
    assert!(killed["written"].as_f64().unwrap() > 1.7e12);
    // A run that has not ended can be compared, too.
    place.ok("compare run whole --out both.html");
    let both = data(place.path("both.html"));
    let states: Vec<&Value> =
        both["runs"].as_array().unwrap().iter().map(|run| &run["status"]["state"]).collect();
    assert_eq!(states, ["running", "finished"]);
    // What is left if it is killed while the page is written.
    place.write("run/.run.html.1.partial", "<!doctype html>");
    // A part of a line, and one of a version to come.
    let text = place.read("run/looks.jsonl");
    let damaged = format!("{text}{{\"dream\":{{\"step\":1}}}}\n{{\"look\":{{\"st");
    place.write("run/looks.jsonl", damaged);
    let ended = place.run(&format!("{RESUME} --out run"));
    ended.says("looks.jsonl: 1 unreadable lines were left out").ok();
    let (whole, run) = (page(&place, "whole"), page(&place, "run"));
    let parts = "/series/step /series/loss /series/grad_norm /evaluations/loss /looks /levels";
    for part in parts.split(' ') {
        assert_eq!(run.pointer(part), whole.pointer(part), "{part}");
    }
    assert_eq!(looks(&place, "run", "look"), looks(&place, "whole", "look"));
    let kinds: Vec<Value> =
        run["events"].as_array().unwrap().iter().map(|e| e[1].clone()).collect();
    assert_eq!(kinds, ["start", "resume", "best", "end"]);
    assert!(run["facts"].to_string().contains(" s since step "), "{}", run["facts"]);
    assert!(!whole["facts"].to_string().contains("since step"));
    assert_eq!(run["status"]["state"], "finished");
    let left = fs::read_dir(place.path("run")).unwrap().flatten();
    let partial = left.filter(|entry| entry.file_name().to_string_lossy().ends_with(".partial"));
    assert_eq!(partial.count(), 0);
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_says_so_on_its_page() {
    use crate::program::{Ended, kill, wait_until};
    let place = Place::new();
    let mut child = place.start(&format!("{TINY} --steps 100000 --eval-every 30 --out run"));
    wait_until(&mut child, || place.lines("run").len() > 40);
    kill("INT", child.id());
    Ended::of(child).failed(130, &["Stopped after step "]);
    let page = page(&place, "run");
    assert_eq!(page["status"]["state"], "interrupted");
    assert!(page["status"]["text"].as_str().unwrap().contains("resume --out run"));
    assert!(place.exists("run/best.safetensors"));
    // Every step is there that is in the log.
    let steps = place.lines("run").iter().filter(|line| line.contains("\"lr\"")).count();
    assert_eq!(page["step"].as_u64(), Some(steps as u64));
}

#[test]
fn a_run_that_diverged_says_so_on_its_page() {
    let place = Place::new();
    let line = format!("{RECIPE} --out run --steps 50 --lr 1e30");
    place.fails(&line, FAILED, &["stopped at step "]);
    let page = page(&place, "run");
    assert_eq!(page["status"]["state"], "failed");
    let verdict = page["verdicts"][0]["text"].as_str().unwrap();
    assert!(verdict.contains("learning rate was too high"), "{verdict}");
}

#[test]
fn a_page_that_cannot_be_written_does_not_end_the_run() {
    let place = Place::new();
    for file in ["run.html", "looks.jsonl"] {
        fs::create_dir_all(place.path("run").join(file)).unwrap();
        let ended = place.run(&format!("{RECIPE} --out run --steps 20"));
        assert_eq!(ended.err.matches("warning: cannot write ").count(), 1, "{ended:?}");
        ended.says("Training goes on without it").ok();
        assert_eq!(place.lines("run").len(), 20 + 3 + 1);
        fs::remove_dir_all(place.path("run")).unwrap();
    }
}

#[test]
fn runs_are_compared() {
    let place = Place::new();
    train(&place, "a", "--steps 30");
    train(&place, "b", "--steps 20 --lr 0.01 --width 16");
    train(&place, "old", "--steps 20 --no-page");
    fs::create_dir(place.path("empty")).unwrap();
    // Damaged lines, and files of a version to come.
    let log = place.read("b/log.jsonl");
    let damaged = format!("no json\n{log}{{\"step\":1e999}}\n{{\"step\":21,\"lo");
    place.write("b/log.jsonl", damaged);
    let text = place.read("a/looks.jsonl");
    let text = text.replace("\"recipe\":{", "\"recipe\":{\"moe\":{\"experts\":8},");
    place.write("a/looks.jsonl", text + "{\"dream\":1}\n");
    let ended = place.run("compare a b old empty missing --out both.html");
    let notes = [
        "b: 2 damaged lines of log.jsonl",
        "a: 1 unreadable lines of looks.jsonl",
        "empty is left out: its log.jsonl cannot be read",
        "missing is left out: it is not a folder",
    ];
    contains(&ended.err, &notes);
    assert!(ended.ok().contains("both.html"));
    let page = data(place.path("both.html"));
    let shown: Vec<&Value> = page["notes"].as_array().unwrap().iter().collect();
    assert_eq!(shown.len(), notes.len(), "{shown:?}");
    let runs = page["runs"].as_array().unwrap();
    assert_eq!(runs.iter().map(|run| &run["title"]).collect::<Vec<_>>(), ["a", "b", "old"]);
    let value = |run: usize, name: &str| {
        let rows = runs[run]["recipe"]["rows"].as_array().unwrap();
        rows.iter().find(|row| row[0] == name).map(|row| row[1].clone())
    };
    let rates = ["0.003", "0.01", "0.003"].map(|x| Some(json!(x)));
    assert_eq!([0, 1, 2].map(|run| value(run, "lr")), rates);
    assert_eq!(value(0, "moe"), Some(json!("experts 8")));
    assert_eq!((value(1, "moe"), value(1, "width")), (None, Some(json!("16"))));
    for (run, steps) in runs.iter().zip([30, 20, 20]) {
        assert_eq!(run["step"], steps);
        assert_eq!(run["tokens_per_step"], 8 * 32);
        assert_eq!(run["status"]["state"], "finished");
    }
    assert!(runs[0]["looks"]["at"][0]["sample"].is_string() && runs[2]["looks"]["at"] == json!([]));

    // Two logs in one file.
    place.write("b/log.jsonl", format!("{log}{log}"));
    place.run("compare b --out one.html").says("b: 20 lines of log.jsonl are left out").ok();
    let one = data(place.path("one.html"));
    let steps = numbers(&one["runs"][0]["series"]["step"]);
    assert_eq!(steps, (1..=20).map(f64::from).collect::<Vec<_>>());

    let said = ["none of these folders has a log that can be read"];
    place.fails("compare empty", FAILED, &said);
    place.fails("compare a --out empty", FAILED, &["empty is a folder; --out is the file"]);
    place.fails("compare a --steps 3", USAGE, &["unexpected argument"]);
}

/// The pages in a browser, if there is one.
#[test]
fn pages_of_runs_pass_their_tests() {
    let place = Place::new();
    train(&place, "a", "--steps 60");
    train(&place, "b", "--steps 40 --attention linear");
    place.ok("compare a b --out both.html");
    for file in ["a/run.html", "b/run.html", "both.html"] {
        retrograd_support::browser::check_page(&place.path(file));
    }
}
