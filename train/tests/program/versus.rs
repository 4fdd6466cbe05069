//! Pairs of runs.

use crate::program::{FAILED, Place, USAGE, flags_of_tiny as recipe};
use retrograd_support::browser::check_page;
use serde_json::Value;

#[test]
fn a_worse_recipe_is_found_in_pairs_that_share_their_first_weights() {
    let place = Place::new();
    let flags = format!("{} --steps 20 --keep-size 10MB --eval-every 20", recipe());
    let out = place.ok(&format!("versus '--lr 1e-2' 'lr=1e-4 layers=1' --seeds 8 {flags}"));
    let result: Value = serde_json::from_str(&place.read("out/versus/result.json")).unwrap();
    let pairs = result["pairs"].as_array().unwrap();
    // It is decided before all pairs are trained.
    assert!((4..8).contains(&pairs.len()), "{out}");
    let verdict = format!("B is worse, decided after {} pairs", pairs.len());
    assert_eq!(result["verdict"], verdict);
    assert!(out.contains(&verdict) && out.contains("B has won 0"), "{out}");
    let interval = &result["b_minus_a"]["interval"];
    assert!(interval[0].as_f64().unwrap() > 0.0, "{result}");
    assert!(pairs[0]["a"]["memory"].as_u64().unwrap() > pairs[0]["b"]["memory"].as_u64().unwrap());
    check_page(&place.path("out/versus/versus.html"));

    let first = |folder: &str| place.weights(&format!("{folder}/checkpoint-0.safetensors"));
    let (a, b) = (first("out/versus/a-1338"), first("out/versus/b-1338"));
    assert!(b.len() < a.len() && b.iter().all(|(name, b)| a[name].to_vec() == b.to_vec()));
    // Run A is the run of its flags.
    place.ok(&format!("train {flags} --lr 1e-2 --seed 1338 --quiet --out alone"));
    assert!(place.checkpoint("alone") == place.checkpoint("out/versus/a-1338"));
}

#[test]
fn equal_recipes_are_not_decided_and_finished_runs_are_not_repeated() {
    let place = Place::new();
    let flags = format!("{} --steps 3 --no-page --seeds", recipe());
    let out = place.ok(&format!("versus '' lr=3e-3 {flags} 2"));
    assert!(out.contains("Not decided: all differences are 0"), "{out}");
    let out = place.ok(&format!("versus lr=3e-3 lr=4e-3 {flags} 2 --out other"));
    assert!(out.contains("Not decided: at this mean") && out.contains("more pairs"), "{out}");
    let again = place.ok(&format!("versus lr=3e-3 lr=4e-3 {flags} 3 --out other"));
    assert!(again.contains("of 3 pairs"), "{again}");
    let result: Value = serde_json::from_str(&place.read("other/result.json")).unwrap();
    let memory = |pair: usize| &result["pairs"][pair]["a"]["memory"];
    assert!(memory(0).is_null() && memory(2).is_u64());
}

#[test]
fn a_run_may_be_a_side_and_misuse_is_refused() {
    let place = Place::new();
    place.train("run", 3, "--lr 2e-3");
    let out = place.ok("versus run 'lr=2e-3 preset=tiny steps=3' --no-page --seeds 1");
    assert!(out.contains("all differences are 0"), "{out}");
    let cases = [
        ("nothing tiny", USAGE, "unexpected argument 'nothing' found"),
        ("'--lr 1 --learning 2' tiny", USAGE, "unexpected argument '--learning'"),
        ("'--out here' tiny", USAGE, "cannot be used multiple times"),
        ("tiny 'preset=tiny data=LICENSE'", USAGE, "A and B have different texts"),
        ("--seeds 2 tiny tiny", USAGE, "A and B come first"),
        ("tiny tiny --seeds 0", USAGE, "0 is not in 1..=1000"),
    ];
    for (line, code, said) in cases {
        place.fails(&format!("versus {line}"), code, &[said]);
    }
    let other_steps = format!("versus lr=2e-3 lr=2e-3 {} --steps 4 --seeds 1", recipe());
    place.fails(&other_steps, USAGE, &["a-1337 has another number of steps, or other minutes"]);
    place.ok(&format!("--quiet versus lr=2e-3 lr=2e-3 {} --steps 1 --seeds 1 --out q", recipe()));
    let diverging = format!("versus lr=1e30 lr=1e31 {} --steps 9 --seeds 1 --out d", recipe());
    place.fails(&diverging, FAILED, &["failed, so its seed has no pair", "no pair of runs"]);
}
