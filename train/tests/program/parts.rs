//! Parts of the model by flags: every attention variant trains, is saved and continues a text.

use crate::program::{Place, TINY, USAGE};

#[test]
fn every_attention_variant_trains_and_generates() {
    let place = Place::new();
    let list = place.ok("train --attention list");
    let names: Vec<&str> = list.lines().filter_map(|l| l.split_whitespace().next()).collect();
    assert!(names.len() > 30 && names.contains(&"talking-heads"), "{list}");
    for name in names {
        place.train(name, 2, &format!("--context 16 --attention {name}"));
        place.ok(&format!("sample --out {name} The --tokens 20"));
    }
}

#[test]
fn parts_of_the_model_are_saved_and_cannot_be_changed() {
    let place = Place::new();
    let parts =
        "--norm rms-norm --mlp swiglu --positions rope --key-heads 1 --qk-norm --attention gated";
    let ended = place.run(&format!("{TINY} --no-page --steps 2 --context 16 {parts} --out run"));
    let said = "attention gated, 1 key heads, QK-norm, norm rms-norm, feed-forward swiglu, \
                positions rope";
    ended.says(said).ok();
    place.ok("resume --out run");
}

#[test]
fn invalid_combinations_are_errors() {
    let place = Place::new();
    let cases: [(&str, &[&str]); 9] = [
        (
            "--attention linear --positions alibi",
            &["attention \"linear\" has no bias of positions: it has no scores"],
        ),
        ("--key-heads 3", &["3 key heads do not divide 2 heads"]),
        (
            "--attention linear --positions rope",
            &["no rotary positions: ", "; with --positions learned it is possible"],
        ),
        (
            "--attention multi-head --positions rope --qk-norm",
            &["with --positions learned --qk-norm false it is possible"],
        ),
        (
            "--attention casual",
            &["there is no attention \"casual\"; near it are causal, ", "--attention list"],
        ),
        ("--attention 3", &["there is no attention \"3\"", "--attention list"]),
        ("--norm batch", &["there is no norm \"batch\"", "rms-norm"]),
        ("--mlp moe", &["there is no feed-forward layer \"moe\"", "swiglu"]),
        ("--positions 3", &["no encoding of positions \"3\"", "rope"]),
    ];
    for (flags, said) in cases {
        place.fails(&format!("{TINY} {flags}"), USAGE, said);
    }
}
