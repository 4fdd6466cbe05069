//! Runs by the clock, `--minutes`, and by floating-point operations, `--budget`.
#![cfg(unix)]

use crate::program::{Place, TINY, USAGE, kill, wait_until};
use serde_json::Value;

/// The minutes of the runs, as seconds.
const LIMIT: f64 = 6.0;

/// The steps that a run has taken and those of its recipe, and the seconds that it has used.
fn taken(place: &Place, folder: &str) -> (u64, u64, f64) {
    let file = place.loaded(folder);
    let note = |name: &str| file.read_note::<Value>(name).unwrap();
    let number = |value: &Value| value.as_u64().unwrap();
    let used = note("clock")["used"].as_f64().unwrap();
    (number(&note("step")), number(&note("recipe")["steps"]), used)
}

#[test]
fn a_run_by_the_clock_ends_in_time_with_a_low_learning_rate_and_resumes_with_its_clock() {
    let place = Place::new();
    let train = format!("{TINY} --minutes 0.1 --out run --eval-every 50 --no-page --tokens 1");
    let log = place.path("run/log.jsonl");
    let lines = || std::fs::read_to_string(&log).map_or(0, |log| log.lines().count());
    let interrupted = |line: &str, after: usize| {
        let mut child = place.start(line);
        wait_until(&mut child, || lines() > after);
        kill("INT", child.id());
        assert_eq!(child.wait().unwrap().code(), Some(130));
        taken(&place, "run")
    };
    let (_, _, first) = interrupted(&train, 30);
    let (step, all, used) = interrupted("resume --out run --no-page", lines() + 2);
    assert!(step < all && first < used && used < LIMIT, "{step} of {all} steps, {first} {used} s");

    place.run("resume --out run --no-page --tokens 1").says("of 6.0 s were used").ok();
    let (last, all, now) = taken(&place, "run");
    assert!(last == all && last > step && now > used && now < LIMIT + 2.0, "{last} {all} {now}");
    let lr = |line: &Value| line["lr"].as_f64();
    let rates: Vec<f64> = place.log("run").iter().filter_map(lr).collect();
    assert_eq!(rates.len() as u64, last);
    let peak = rates.iter().copied().fold(0.0, f64::max);
    assert!(peak > 2.9e-3 && rates[rates.len() - 1] < 0.25 * peak, "{peak} {rates:?}");
    // The clock has ended; more steps are counted.
    place.run("resume --out run --no-page --tokens 1").says("finished: all").ok();
    let more = format!("resume --out run --no-page --tokens 1 --steps {}", last + 5);
    place.run(&more).says("trained by the clock; it goes on by the number of steps").ok();
    assert!(!place.loaded("run").notes.contains_key("clock"));
}

#[test]
fn the_size_follows_from_the_time_unless_it_is_given() {
    let place = Place::new();
    let run = |flags: &str| {
        let ended = place.run(&format!("train --minutes 0.02 --no-page --tokens 1 {flags}"));
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.err
    };
    let said = run("--out chosen");
    assert!(said.contains("size     --preset fast, chosen by the time"), "{said}");
    let recipe: Value = place.loaded("chosen").read_note("recipe").unwrap();
    assert_eq!((&recipe["layers"], &recipe["batch"]), (&3.into(), &16.into()));
    assert!(!run("--out given --width 64").contains("size "));
    assert!(!run("--out named --preset tiny").contains("size "));
}

#[test]
fn a_budget_of_operations_is_a_number_of_steps() {
    let place = Place::new();
    let train = |more: &str| place.ok(&format!("{TINY} --no-page --tokens 1 {more}"));
    train("--budget 1e9 --out budget");
    let steps = place.done("budget")["steps"].as_u64().unwrap();
    // 6 operations for each of 25,000 weights and 8 times 32 tokens, and attention.
    assert!((5..25).contains(&steps), "{steps}");
    train(&format!("--steps {steps} --threads 1 --out steps"));
    assert!(place.checkpoint("budget") == place.checkpoint("steps"));
    let short = format!("{TINY} --budget 1e6");
    place.fails(&short, USAGE, &["a step takes", "more than the --budget"]);
}

#[test]
fn a_run_has_one_end() {
    let place = Place::new();
    for flags in ["--minutes 1 --steps 3", "--minutes 1 --budget 1e9", "--budget 1e9 --steps 3"] {
        place.fails(&format!("train {flags}"), USAGE, &["cannot be used with"]);
    }
    place.fails("train --minutes 0", USAGE, &["must be above 0"]);
    place.fails("resume --minutes 1", USAGE, &["unexpected argument '--minutes'"]);
}
