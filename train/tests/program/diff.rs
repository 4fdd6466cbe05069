//! Differences between runs, and the first step at which something holds.

use crate::program::{FAILED, Place, USAGE, contains};
use retrograd_support::browser::check_page;
use std::fs;

/// Two runs of 24 steps, of which the second one was resumed after step 16 with a flipped bit.
fn flipped() -> Place {
    let place = Place::new();
    place.train("a", 24, "--eval-every 8 --dropout 0.1 --batch 4");
    fs::create_dir(place.path("b")).unwrap();
    for entry in fs::read_dir(place.path("a")).unwrap().flatten() {
        fs::copy(entry.path(), place.path("b").join(entry.file_name())).unwrap();
    }
    place.flip_bit("b/checkpoint-16.safetensors");
    fs::copy(place.path("b/checkpoint-16.safetensors"), place.path("b/checkpoint.safetensors"))
        .unwrap();
    place.ok("resume --out b --quiet --no-page --eval-every 8");
    place
}

#[test]
fn a_flipped_bit_of_a_weight_is_found_at_its_step_and_operation() {
    let place = flipped();
    let out = place.ok("diff a b --page page.html");
    let said = [
        "First step that differs: 17, with losses",
        "b computed again: the weights after step 16 are not those of the log",
        "The weights before step 17 differ in 1 of ",
        "transformer.h.0.mlp.c_fc.weight: 1 of 4096 elements, first [0, 3], ",
        "First operation that differs: feed_forward, in transformer.h.0.mlp.c_fc (shard 0), element [0, 5, 7]",
        "layer_norm                forward",
    ];
    contains(&out, &said);
    // The share of the elements that differ, of an operation with many.
    let row = out.lines().find(|line| line.starts_with("matmul ") && line.contains("backward"));
    let share: f64 = row.unwrap().split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!((1.0..=100.0).contains(&share), "{out}");
    check_page(&place.path("page.html"));
    assert!(place.ok("diff a a").contains("the same bits in all 24 steps"));
    let same = place.ok("diff a b --step 3");
    assert!(same.contains("Computed again, both runs have the same bits in step 3"), "{same}");
    place.fails("diff a b --step 26", USAGE, &["no step 26"]);
    place.train("other", 24, "--eval-every 8 --layers 1");
    place.fails("diff a other", FAILED, &["step 1 of both runs: value", "of shard 0"]);
    let out = place.run("diff a other").out;
    assert!(out.contains("--layers: 2, not 1"), "{out}");
}

#[test]
fn a_step_beside_the_same_one_in_f64() {
    let place = Place::new();
    place.train("run", 4, "--mlp swiglu --positions rope --norm rms-norm --shards 2 --dropout 0.1");
    let out = place.ok("replay run 3 --precision f64");
    let row =
        out.lines().find(|line| line.starts_with("cross_entropy ") && line.contains("forward"));
    let columns: Vec<&str> = row.unwrap().split_whitespace().collect();
    // The loss has errors of some ULP, and no more.
    let largest: f64 = columns[6].parse().unwrap();
    assert!(largest > 0.0 && largest < 64.0, "{out}");
    check_page(&place.path("run/f64-2.html"));
    place.fails("replay run 3 --precision f16", USAGE, &["[possible values: f64]"]);
}

#[test]
fn the_first_step_at_which_a_condition_holds_is_found() {
    let place = Place::new();
    place.train("run", 40, "--keep-every 4 --mlp relu");
    let logged = |name: &str, limit: f64| {
        let log = place.log("run");
        let found = log.iter().find(|line| line[name].as_f64().is_some_and(|x| x > limit));
        format!("Step {}: ", found.unwrap()["step"])
    };
    let bisect = |condition: &str| place.ok(&format!("bisect run '{condition}'"));
    let said = bisect("gradients>1.2");
    assert!(said.starts_with(&logged("grad_norm", 1.2)) && said.contains("no step was"), "{said}");
    assert!(bisect("loss>1e9").starts_with("At no step of the log"));
    assert!(bisect("nonfinite").starts_with("At no step. "));
    place.fails("bisect run 'loss>nan'", USAGE, &["must be finite"]);
    place.fails("bisect run dead:ln_f.weight", USAGE, &["the parameter is no matrix"]);
    // The same run, with all checkpoints: the norm of these weights grows.
    place.train("all", 40, "--keep-every 1 --mlp relu");
    let norm = |step: u64| {
        let weights = place.weights(&format!("all/checkpoint-{step}.safetensors"));
        f64::from(weights["transformer.h.0.mlp.c_fc.weight"].square().sum(..).item()).sqrt()
    };
    let limit = norm(22).midpoint(norm(23));
    let first = (1..=40).find(|&step| norm(step) > limit).unwrap();
    let said = bisect(&format!("weight:h.0.mlp.c_fc.weight>{limit}"));
    assert_eq!(first, 23);
    assert!(said.starts_with("Step 23: norm ") && said.contains("7 of 40 steps were"), "{said}");
    assert!(bisect("gradient:wte.weight>1e9").starts_with("At no step. "));
    place.train("dead", 20, "--keep-every 4 --mlp relu --lr 0.1");
    let said = place.ok("bisect dead dead:h.1.mlp.c_fc.weight");
    assert!(said.contains(" rows of the gradient are 0, of transformer.h.1"), "{said}");
    place.fails("bisect run gradient:w>1", USAGE, &["0 parameters end in \"w\"; there are "]);
    place.fails("bisect run loss", USAGE, &["not one of loss>X, gradients>X, "]);
}
