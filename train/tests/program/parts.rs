//! Parts of the model by flags: every attention variant trains, is saved and continues a text.

use crate::invalid_usage::USAGE;
use crate::program::{Ended, Place};

const SHORT: &[&str] = &["train", "--preset", "tiny", "--steps", "2", "--context", "16", "--quiet"];

#[test]
fn every_attention_variant_trains_and_generates() {
    let place = Place::new();
    let list = place.run(&["train", "--attention", "list"]);
    let names: Vec<&str> = list.out.lines().filter_map(|l| l.split_whitespace().next()).collect();
    assert!(names.len() > 30 && names.contains(&"talking-heads"), "{list:?}");
    for four in names.chunks(4) {
        let start =
            |name: &&str| place.start(&[SHORT, &["--attention", name, "--out", name]].concat());
        let running: Vec<_> = four.iter().map(start).collect();
        running.into_iter().for_each(|child| drop(Ended::of(child).ok()));
        let sample = |name: &&str| place.start(&["sample", "--out", name, "The", "--tokens", "20"]);
        let running: Vec<_> = four.iter().map(sample).collect();
        running.into_iter().for_each(|child| drop(Ended::of(child).ok()));
    }
}

#[test]
fn parts_of_the_model_are_saved_and_cannot_be_changed() {
    let place = Place::new();
    let parts =
        ["--norm", "rms-norm", "--mlp", "swiglu", "--positions", "rope", "--key-heads", "1"];
    let parts = [&parts[..], &["--qk-norm", "--attention", "gated"]].concat();
    let ended = place.run(&[&SHORT[..7], &parts, &["--out", "run"]].concat());
    let said = "attention gated, 1 key heads, QK-norm, norm rms-norm, feed-forward swiglu, \
                positions rope";
    assert!(ended.err.contains(said), "{ended:?}");
    ended.ok();
    place.run(&["resume", "--out", "run"]).ok();
}

#[test]
fn invalid_combinations_are_errors() {
    let place = Place::new();
    let run = |more: &[&str]| place.run(&[SHORT, more].concat());
    run(&["--attention", "linear", "--positions", "alibi"])
        .failed(USAGE, &["attention \"linear\" has no bias of positions: it has no scores"]);
    run(&["--key-heads", "3"]).failed(USAGE, &["3 key heads do not divide 2 heads"]);
    run(&["--attention", "best"]).failed(USAGE, &["there is no attention \"best\"", "causal"]);
    run(&["--norm", "batch"]).failed(USAGE, &["there is no norm \"batch\"", "rms-norm"]);
    run(&["--mlp", "moe"]).failed(USAGE, &["there is no feed-forward layer \"moe\"", "swiglu"]);
    run(&["--positions", "3"]).failed(USAGE, &["no encoding of positions \"3\"", "rope"]);
}
