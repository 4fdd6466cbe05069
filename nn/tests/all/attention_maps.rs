//! The output of `explain`. The patterns of masks are in `formulas`.

use crate::common::*;
use retrograd_nn::attention::{BigBirdLayout, Mask, Normalizer, Packed, Path, Spec};

#[test]
fn maps_of_heads_and_sequences() {
    let map = |mask: Mask, lq, lk| Spec::<f32>::new().mask(mask).explain(lq, lk);
    let text = map(Mask::by_head(vec![Mask::causal(), Mask::window(0, 0)]), 3, 3);
    assert!(text.contains("map of head 0\n  #..\n  ##.\n  ###\n  6 of 9 pairs attend: 66 %\n"));
    assert!(text.contains("map of head 1\n  #..\n  .#.\n  ..#\n"), "{text}");
    let text = map(Mask::prefix(&[0, 2]), 3, 3);
    assert!(text.contains("map of sequence 1\n  ##.\n  ##.\n  ###\n"), "{text}");
    assert!(text.contains("0 full, 1 partial and 0 skipped tiles of 64"), "{text}");
    let text = map(Mask::causal() & Mask::from_fn("by head", |at| at.head == 0), 2, 2);
    assert!(
        text.contains("map of sequence 0, head 0; other heads and sequences may differ\n"),
        "{text}"
    );
    let text = map(Mask::causal(), 2, 4);
    assert!(text.contains("map\n  ###.\n  ####\n"), "the last query at the last key: {text}");
}

#[test]
fn maps_of_long_sequences_are_small() {
    let big_bird = BigBirdLayout { block: 64, neighbours: 1, global: 1, random: 2, seed: 3 };
    let packed = Mask::causal() & Packed::new(&[300, 600, 380]).mask();
    for (mask, length) in [(big_bird.mask(1, 1280), 1280), (packed, 1280), (Mask::causal(), 10_000)]
    {
        let text = Spec::<f32>::new().mask(mask).explain(length, length);
        let is_row = |line: &&str| !line.is_empty() && line.chars().all(|c| "#+.".contains(c));
        let rows: Vec<&str> = text.lines().map(str::trim).filter(is_row).collect();
        assert!((20..=48).contains(&rows.len()), "{text}");
        assert!(rows.iter().all(|row| row.len() == rows.len()), "{text}");
    }
}

/// The output names the path and counts tiles; invalid inputs are errors.
#[test]
fn paths_and_invalid_inputs() {
    let spec = || Spec::<f32>::new().causal();
    let text = spec().explain(256, 256);
    assert!(text.contains("path        tiled"), "{text}");
    assert!(text.contains("6 full, 4 partial and 6 skipped tiles of 64: 62 % computed"), "{text}");
    let sparse = spec().normalizer(Normalizer::Sparsemax);
    for (path, of) in [
        ("composed, as required", spec().path(Path::Composed)),
        ("composed: the normalizer needs whole rows", sparse.clone()),
        ("none: the tiled path is required, but the normalizer", sparse.path(Path::Tiled)),
    ] {
        let text = of.explain(256, 256);
        assert!(text.contains(&format!("path        {path}")), "{text}");
        assert!(text.contains("6 empty tiles of 64: 100 % computed"), "{text}");
    }
    assert_panics("a length of 6 for 5 keys", || spec().mask(Mask::lengths(&[6])).explain(5, 5));
}
