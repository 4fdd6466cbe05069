//! `--xray`, `RETROGRAD_XRAY` and `RETROGRAD_NONFINITE`.

use crate::program::{Ended, Place};
use retrograd_support::browser::check_page;
use std::fs;
use std::process::Stdio;

fn run(place: &Place, variable: Option<(&str, &str)>, folder: &str, flags: &[&str]) -> Ended {
    let recipe = ["train", "--preset", "tiny", "--steps", "3", "--out", folder];
    let args = match flags {
        ["resume", flags @ ..] => [&["resume", "--out", folder], flags].concat(),
        flags => [&recipe, flags].concat(),
    };
    let mut command = place.retrograd(&args);
    command.envs(variable);
    Ended::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

/// Whether a file is a whole page of a step of the model.
fn check(place: &Place, file: &str) {
    let html = fs::read_to_string(place.path(file)).unwrap();
    assert!(html.contains("{\"xray\":1,") && html.ends_with("</html>\n"), "{file}");
    assert!(html.contains("\"feed_forward\"") && html.contains("\"cross_entropy\""), "{file}");
}

#[test]
fn steps_are_recorded_as_pages_and_the_run_is_the_same() {
    let place = Place::new();
    run(&place, None, "plain", &[]).ok();
    run(&place, None, "first-and-last", &["--xray"]).ok();
    let chosen = run(&place, None, "chosen", &["--xray", "1,2"]);
    for file in ["first-and-last/xray-0.html", "first-and-last/xray-3.html"] {
        check(&place, file);
    }
    for file in ["chosen/xray-1.html", "chosen/xray-2.html"] {
        check(&place, file);
    }
    assert!(!place.path("chosen/xray-0.html").exists());
    chosen.ok();
    let weights =
        |folder: &str| fs::read(place.path(&format!("{folder}/checkpoint.safetensors"))).unwrap();
    assert!(weights("plain") == weights("first-and-last") && weights("plain") == weights("chosen"));
    // After a step, the page shows its update.
    check_page(&place.path("chosen/xray-1.html"));
    let html = fs::read_to_string(place.path("chosen/xray-1.html")).unwrap();
    assert!(html.contains("\"update\":"));
}

/// All parts of the recipe `modern`, in a small model, whose gradients are also compared with central differences.
#[test]
fn pages_of_modern_models_pass_their_tests() {
    let place = Place::new();
    let flags = [
        "train", "--preset", "modern", "--steps", "1", "--layers", "2", "--width", "64", "--batch",
        "2",
    ];
    let flags = [&flags[..], &["--xray", "0", "--xray-check", "1", "--out", "run"]].concat();
    let mut command = place.retrograd(&flags);
    Ended::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()).ok();
    let html = fs::read_to_string(place.path("run/xray-0.html")).unwrap();
    let checks = html.matches("\"agrees\":").count();
    assert!(checks > 15 && html.matches("\"agrees\":true").count() == checks, "{checks}");
    check_page(&place.path("run/xray-0.html"));
}

#[test]
fn the_page_of_a_custom_operation_passes_its_test() {
    let place = Place::new();
    let mut command = place.example("gradients", &["--xray", "custom.html"]);
    Ended::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()).ok();
    let html = fs::read_to_string(place.path("custom.html")).unwrap();
    assert_eq!(html.matches("\"agrees\":true").count(), 6);
    check_page(&place.path("custom.html"));
}

#[test]
fn steps_that_do_not_come_are_said() {
    let place = Place::new();
    run(&place, None, "new", &["--xray", "1,999"])
        .failed(2, &["999", "has taken 0, and ends after 3"]);
    assert!(!place.path("new").exists());
    run(&place, None, "run", &[]).ok();
    let resumed = run(&place, None, "run", &["resume", "--xray", "1"]);
    resumed.failed(2, &["has taken 3, and ends after 3"]);
    run(&place, None, "run", &["resume", "--attention-page", "page.html"]).ok();
    assert!(place.path("page.html").exists());
    let diverged = run(&place, None, "diverged", &["--lr", "1e30", "--xray", "0,3"]);
    assert!(diverged.err.contains("No X-ray of step 3: the run has ended after "), "{diverged:?}");
}

#[test]
fn checks_need_a_page() {
    let place = Place::new();
    let ended = run(&place, None, "run", &["--xray-check", "1"]);
    assert!(ended.err.contains("--xray"), "{ended:?}");
    assert_eq!(ended.code, Some(2));
}

#[test]
fn a_page_that_cannot_be_written_is_a_warning() {
    let place = Place::new();
    fs::create_dir_all(place.path("run/xray-0.html")).unwrap();
    let ended = run(&place, None, "run", &["--xray", "0"]);
    assert!(ended.err.contains("warning: cannot write the X-ray of step 0"), "{ended:?}");
    ended.ok();
}

#[test]
fn a_variable_records_the_first_backward_pass() {
    let place = Place::new();
    run(&place, None, "plain", &[]).ok();
    let ended = run(&place, Some(("RETROGRAD_XRAY", "step.html")), "recorded", &[]);
    assert!(
        ended.err.contains("RETROGRAD_XRAY: the first backward pass is in step.html"),
        "{ended:?}"
    );
    ended.ok();
    check(&place, "step.html");
    // Modules and parameters have the names that the model gives them.
    let html = fs::read_to_string(place.path("step.html")).unwrap();
    for name in ["\"transformer.h.0.attn\"", "\"transformer.h.0.ln_1.weight\"", "\"Gpt\""] {
        assert!(html.contains(name), "{name}");
    }
    let weights =
        |folder: &str| fs::read(place.path(&format!("{folder}/checkpoint.safetensors"))).unwrap();
    assert!(weights("plain") == weights("recorded"));
    let ended = run(&place, Some(("RETROGRAD_XRAY", "missing/step.html")), "again", &[]);
    assert!(
        ended.err.contains("RETROGRAD_XRAY: cannot write the page: missing/step.html"),
        "{ended:?}"
    );
    ended.ok();
}

/// Several variables at once.
#[test]
fn variables_do_not_exclude_each_other() {
    let place = Place::new();
    let mut command = place.example("gradients", &[]);
    command.envs([
        ("RETROGRAD_XRAY", "1"),
        ("RETROGRAD_NONFINITE", "1"),
        ("RETROGRAD_TRACE", "t.txt"),
    ]);
    let ended = Ended::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    assert!(ended.err.contains("the first backward pass is in xray.html"), "{ended:?}");
    ended.ok();
    let trace = fs::read_to_string(place.path("t.txt")).unwrap();
    assert!(trace.lines().any(|line| line.contains("  matmul  ")), "{trace}");
}

/// On any number of threads, the page has all events, and the loss of the log.
#[test]
fn the_page_of_a_variable_has_all_shards() {
    let recorded = |threads| {
        let (place, flags) = (Place::new(), ["--shards", "2", "--threads", threads]);
        let ended = run(&place, Some(("RETROGRAD_XRAY", "1")), "run", &flags);
        assert!(
            ended.err.contains("the first backward pass is going to be in xray.html"),
            "{ended:?}"
        );
        let read = |file| fs::read_to_string(place.path(file)).unwrap();
        let (page, log) = (read("xray.html"), read("run/log.jsonl"));
        let loss = log.split("\"loss\":").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
        assert!(page.contains(&format!("\"loss\":{loss}")), "{loss} is not on the page");
        page.matches("{\"what\":").count()
    };
    let all = recorded("1");
    assert!(all > 80 && ["2"; 4].iter().all(|threads| recorded(threads) == all));
}

#[test]
fn a_variable_records_any_program_or_says_why_not() {
    let place = Place::new();
    let mut command = place.example("gradients", &[]);
    command.env("RETROGRAD_XRAY", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    let said = Ended::of(command.spawn().unwrap()).err;
    // A program without a model.
    assert_eq!(said.matches("the first backward pass is in xray.html").count(), 1, "{said}");
    assert!(place.path("xray.html").exists());
    let ended = run(&place, Some(("RETROGRAD_XRAY", "yes")), "run", &[]);
    assert!(
        ended.err.contains("\"yes\" is neither 0, nor 1 for xray.html, nor a file"),
        "{ended:?}"
    );
    assert!(!run(&place, Some(("RETROGRAD_XRAY", "0")), "off", &[]).err.contains("XRAY"));
}

#[test]
fn a_variable_finds_the_first_value_that_is_not_finite() {
    let place = Place::new();
    let searched = ("RETROGRAD_NONFINITE", "1");
    run(&place, Some(searched), "finite", &[]).ok();
    let ended = run(&place, Some(searched), "infinite", &["--lr", "1e38"]);
    assert!(ended.err.contains("RETROGRAD_NONFINITE: the first "), "{ended:?}");
    // With the module, and the line of the program.
    assert!(ended.err.contains(" in transformer.") && ended.err.contains(") at nn/"), "{ended:?}");
    assert_ne!(ended.code, Some(0));
    let ended = run(&place, Some(("RETROGRAD_NONFINITE", "yes")), "invalid", &[]);
    assert!(ended.err.contains("\"yes\" is neither 0 nor 1; nothing is searched"), "{ended:?}");
    ended.ok();
}
