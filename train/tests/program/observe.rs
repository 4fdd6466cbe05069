//! `--xray`, `RETROGRAD_XRAY` and `RETROGRAD_NONFINITE`.

use crate::program::{Place, TINY, USAGE, contains};
use retrograd_support::browser::check_page;
use std::fs;

/// The command of a run of 3 steps.
fn three_steps(folder: &str) -> String {
    format!("{TINY} --no-page --tokens 1 --steps 3 --out {folder}")
}

/// Whether a file is a whole page of a step of the model.
fn check(place: &Place, file: &str) {
    let html = place.read(file);
    assert!(html.contains("{\"xray\":1,") && html.ends_with("</html>\n"), "{file}");
    assert!(html.contains("\"feed_forward\"") && html.contains("\"cross_entropy\""), "{file}");
}

#[test]
fn steps_are_recorded_as_pages_and_the_run_is_the_same() {
    let place = Place::new();
    place.ok(&three_steps("plain"));
    place.ok(&(three_steps("first-and-last") + " --xray"));
    place.ok(&(three_steps("chosen") + " --xray 1,2"));
    for file in ["first-and-last/xray-0", "first-and-last/xray-3", "chosen/xray-1", "chosen/xray-2"]
    {
        check(&place, &format!("{file}.html"));
    }
    assert!(!place.exists("chosen/xray-0.html"));
    for folder in ["first-and-last", "chosen"] {
        assert!(place.checkpoint(folder) == place.checkpoint("plain"), "{folder}");
    }
    // After a step, the page shows its update.
    check_page(&place.path("chosen/xray-1.html"));
    assert!(place.read("chosen/xray-1.html").contains("\"update\":"));
}

/// All parts of the recipe `modern`, in a small model, whose gradients are also compared with central differences.
#[test]
#[ignore = "takes long: .ci/long pages"]
fn pages_of_modern_models_pass_their_tests() {
    let place = Place::new();
    let model = "--preset modern --layers 2 --width 64 --context 16 --batch 2";
    place.ok(&format!("train {model} --steps 1 --no-page --xray 0 --xray-check 1 --out run"));
    let html = place.read("run/xray-0.html");
    let checks = html.matches("\"agrees\":").count();
    assert!(checks > 15 && html.matches("\"agrees\":true").count() == checks, "{checks}");
    check_page(&place.path("run/xray-0.html"));
}

#[test]
fn steps_that_do_not_come_are_said() {
    let place = Place::new();
    let said = ["999", "has taken 0, and ends after 3"];
    place.fails(&(three_steps("new") + " --xray 1,999"), USAGE, &said);
    assert!(!place.exists("new"));
    place.ok(&three_steps("run"));
    place.fails("resume --out run --xray 1", USAGE, &["has taken 3, and ends after 3"]);
    place.ok("resume --out run --attention-page page.html");
    assert!(place.exists("page.html"));
    let diverged = place.run(&(three_steps("diverged") + " --lr 1e30 --xray 0,3"));
    diverged.says("No X-ray of step 3: the run has ended after ");
    // Checks need a page.
    place.fails(&(three_steps("new") + " --xray-check 1"), USAGE, &["--xray"]);
}

#[test]
fn a_page_that_cannot_be_written_is_a_warning() {
    let place = Place::new();
    fs::create_dir_all(place.path("run/xray-0.html")).unwrap();
    let ended = place.run(&(three_steps("run") + " --xray 0"));
    ended.says("warning: cannot write the X-ray of step 0").ok();
}

#[test]
fn a_variable_records_the_first_backward_pass() {
    let place = Place::new();
    place.ok(&three_steps("plain"));
    let run = |value, folder| place.run_with("RETROGRAD_XRAY", value, &three_steps(folder));
    let said = "RETROGRAD_XRAY: the first backward pass is in step.html";
    run("step.html", "recorded").says(said).ok();
    check(&place, "step.html");
    // Modules and parameters have the names that the model gives them.
    let names = ["\"transformer.h.0.attn\"", "\"transformer.h.0.ln_1.weight\"", "\"Gpt\""];
    contains(&place.read("step.html"), &names);
    assert!(place.checkpoint("plain") == place.checkpoint("recorded"));
    let said = "RETROGRAD_XRAY: cannot write the page: missing/step.html";
    run("missing/step.html", "again").says(said).ok();
    run("yes", "invalid").says("\"yes\" is neither 0, nor 1 for xray.html, nor a file").ok();
    assert!(!run("0", "off").err.contains("XRAY"));
}

/// On any number of threads, the page has all events, and the loss of the log.
#[test]
fn the_page_of_a_variable_has_all_shards() {
    let recorded = |threads| {
        let place = Place::new();
        let line = format!("{} --shards 2 --threads {threads}", three_steps("run"));
        let ended = place.run_with("RETROGRAD_XRAY", "1", &line);
        ended.says("the first backward pass is going to be in xray.html").ok();
        let (page, log) = (place.read("xray.html"), place.read("run/log.jsonl"));
        let loss = log.split("\"loss\":").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
        assert!(page.contains(&format!("\"loss\":{loss}")), "{loss} is not on the page");
        page.matches("{\"what\":").count()
    };
    let all = recorded(1);
    assert!(all > 80 && [2; 4].iter().all(|&threads| recorded(threads) == all));
}

#[test]
fn a_variable_finds_the_first_value_that_is_not_finite() {
    let place = Place::new();
    let run = |value, line: &str| place.run_with("RETROGRAD_NONFINITE", value, line);
    run("1", &three_steps("finite")).ok();
    let ended = run("1", &(three_steps("infinite") + " --lr 1e38"));
    let ended = ended.says("RETROGRAD_NONFINITE: the first ");
    // With the module, and the line of the program.
    let ended = ended.says(" in transformer.").says(") at nn/");
    assert_ne!(ended.code, Some(0));
    let said = "\"yes\" is neither 0 nor 1; nothing is searched";
    run("yes", &three_steps("invalid")).says(said).ok();
}
