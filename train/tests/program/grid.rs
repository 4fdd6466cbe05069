//! Grids of recipes.

use crate::program::{Ended, Place, USAGE, flags_of_tiny, kill, wait_until};
use std::fs;

fn recipe() -> String {
    format!("{} --steps 5 --threads 1", flags_of_tiny())
}

#[test]
fn a_grid_trains_every_combination_and_goes_on_after_failures() {
    let (place, recipe) = (Place::new(), recipe());
    let out = place.ok(&format!("grid --out grid {recipe} lr=1e-3,1e9 seed=1,2"));
    for name in ["lr=1e-3,seed=1 ", "lr=1e-3,seed=2 ", "lr=1e9,seed=1 ", "lr=1e9,seed=2 "] {
        assert_eq!(out.matches(name).count(), 1, "{out}");
    }
    assert_eq!(out.matches("failed: stopped at step").count(), 2, "{out}");
    assert_eq!(out.matches(" *\n").count(), 1, "the best one is marked: {out}");
    assert_eq!(place.read("grid/grid.csv").lines().count(), 5);

    // A run of the grid is the run of these flags.
    place.ok(&format!("train --lr 1e-3 --seed 2 --out alone {recipe}"));
    assert!(place.checkpoint("alone") == place.checkpoint("grid/lr=1e-3,seed=2"));

    // Rows are compared with the first one, in pairs of seeds.
    let pairs = place.ok(&format!("grid --out pairs {recipe} lr=1e-3,1e-4 seed=1,2,3,4,5,6"));
    let said = "lr=1e-4 is worse, decided after 6 pairs: +0.";
    assert!(pairs.contains(said) && pairs.contains("the first row, in 6 pairs"), "{pairs}");

    // Finished runs are not repeated.
    let written = || fs::metadata(place.path("grid/lr=1e-3,seed=1/log.jsonl")).unwrap().modified();
    let before = written().unwrap();
    let out = place.ok(&format!("grid --out grid {recipe} lr=1e-3 seed=1,3"));
    assert!(out.contains("lr=1e-3,seed=3"), "{out}");
    assert_eq!(written().unwrap(), before);
}

#[cfg(unix)]
#[test]
fn an_interrupted_grid_says_what_is_done_and_goes_on() {
    let place = Place::new();
    let line = format!("grid --out grid {} steps=2,100000 --no-page --threads 1", flags_of_tiny());
    let mut child = place.start(&line);
    wait_until(&mut child, || place.lines("grid/steps=100000").len() > 2);
    kill("INT", child.id());
    let said = "\nStopped; 1 of 2 runs are done (steps=2). The same command goes on\n";
    Ended::of(child).failed(130, &[said]);
    let mut child = place.start(&line);
    let before = place.lines("grid/steps=100000").len();
    wait_until(&mut child, || place.lines("grid/steps=100000").len() > before + 20);
    kill("INT", child.id());
    Ended::of(child).failed(130, &[said]);
}

#[test]
fn invalid_grids_are_refused_before_any_run() {
    let place = Place::new();
    let cases: [(&str, &[&str]); 4] = [
        ("lr", &["\"lr\" is not FLAG=VALUE"]),
        ("lr=1e-3,a", &["lr=a: invalid value 'a' for '--lr <RATE>'"]),
        ("rate=1", &["unexpected argument '--rate'"]),
        ("steps=7", &["--steps", "cannot be used multiple times"]),
    ];
    for (grid, said) in cases {
        place.fails(&format!("grid --out grid {grid} {}", recipe()), USAGE, said);
    }
    assert!(!place.exists("grid"));
}
