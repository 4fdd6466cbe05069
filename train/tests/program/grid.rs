//! Grids of recipes.

use crate::program::Place;
use std::fs;

const RECIPE: &[&str] = &["--preset", "tiny", "--steps", "5", "--threads", "1"];

#[test]
fn a_grid_trains_every_combination_and_goes_on_after_failures() {
    let place = Place::new();
    let grid = |more: &[&'static str]| [&["grid", "--out", "grid"], RECIPE, more].concat();
    let out = place.run(&grid(&["lr=1e-3,1e9", "seed=1,2"])).ok();
    for name in ["lr=1e-3,seed=1 ", "lr=1e-3,seed=2 ", "lr=1e9,seed=1 ", "lr=1e9,seed=2 "] {
        assert_eq!(out.matches(name).count(), 1, "{out}");
    }
    assert_eq!(out.matches("failed: stopped at step").count(), 2, "{out}");
    assert_eq!(out.matches(" *\n").count(), 1, "the best one is marked: {out}");
    let table = fs::read_to_string(place.path("grid/grid.csv")).unwrap();
    assert_eq!(table.lines().count(), 5);

    // A run of the grid is the run of these flags.
    place.run(&[&["train", "--lr", "1e-3", "--seed", "2", "--out", "alone"], RECIPE].concat()).ok();
    let checkpoint = |folder: &str| fs::read(place.path(folder).join("checkpoint.safetensors"));
    assert!(checkpoint("alone").unwrap() == checkpoint("grid/lr=1e-3,seed=2").unwrap());

    // Finished runs are not repeated.
    let written = || fs::metadata(place.path("grid/lr=1e-3,seed=1/log.jsonl")).unwrap().modified();
    let before = written().unwrap();
    let out = place.run(&grid(&["lr=1e-3", "seed=1,3"])).ok();
    assert!(out.contains("lr=1e-3,seed=3"), "{out}");
    assert_eq!(written().unwrap(), before);
}

#[test]
fn invalid_grids_are_refused_before_any_run() {
    let place = Place::new();
    let run = |grid| place.run(&[&["grid", "--out", "grid", grid], RECIPE].concat());
    run("lr").failed(2, &["\"lr\" is not FLAG=VALUE"]);
    run("lr=1e-3,a").failed(2, &["lr=a: invalid value 'a' for '--lr <RATE>'"]);
    run("rate=1").failed(2, &["unexpected argument '--rate'"]);
    run("steps=7").failed(2, &["--steps", "cannot be used multiple times"]);
    assert!(!place.path("grid").exists());
}
