//! The output of `explain` for every classic mask. Run with `--nocapture` to print them.

use crate::common::*;
use retrograd_nn::attention::{
    BigBirdLayout, HeadSizes, LongformerAttention, Mask, Normalizer, Packed, Path, Projections,
    SparseMerge, SparsePattern, Spec,
};
use retrograd_tensor::random::Rng;

fn longformer(dilation: &[usize], causal: bool) -> LongformerAttention {
    let sizes = HeadSizes::new(4 * dilation.len(), dilation.len());
    let projections = Projections::new(sizes, &mut Rng::new(1));
    let attention = LongformerAttention::new(projections, dilation, 2);
    if causal { attention.causal() } else { attention }
}

fn masks() -> Vec<(&'static str, Mask)> {
    let strided = SparsePattern::Strided { stride: 4 };
    let fixed = SparsePattern::Fixed { stride: 4, summary: 1 };
    let big_bird = BigBirdLayout { block: 2, neighbours: 1, global: 1, random: 1, seed: 3 };
    vec![
        ("causal", Mask::causal()),
        ("sliding window", Mask::causal() & Mask::window(3, 0)),
        ("dilated window", Mask::window(6, 6) & Mask::dilated(3)),
        ("Sparse Transformer, strided", strided.mask(SparseMerge::Heads, 2, 0)),
        ("Sparse Transformer, strided, union", strided.mask(SparseMerge::Union, 2, 0)),
        ("Sparse Transformer, fixed", fixed.mask(SparseMerge::Heads, 2, 0)),
        ("Sparse Transformer, fixed, union", fixed.mask(SparseMerge::Union, 2, 0)),
        ("Longformer", longformer(&[1, 3], false).mask(&[0, 9])),
        ("Longformer, causal", longformer(&[1], true).mask(&[0, 9])),
        ("BigBird", big_bird.mask(1, 16)),
        ("prefix", Mask::prefix(&[5])),
        ("prefixes", Mask::prefix(&[5, 9])),
        ("packed", Mask::causal() & Packed::new(&[4, 7, 5]).mask()),
        ("shared prefix", Mask::causal() & Packed::shared_prefix(5, &[4, 4, 3]).mask()),
        ("chunked local", Mask::causal() & Mask::chunks(5)),
        ("streaming", Mask::causal() & (Mask::window(3, 0) | Mask::first(2))),
    ]
}

#[test]
fn maps_of_classic_masks() {
    for (name, mask) in masks() {
        println!("== {name}\n{}", Spec::<f32>::new().mask(mask).explain(16, 16));
    }
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
fn maps_of_long_sequences() {
    let big_bird = BigBirdLayout { block: 64, neighbours: 1, global: 1, random: 2, seed: 3 };
    let fixed = SparsePattern::Fixed { stride: 256, summary: 64 };
    let projections = Projections::<f32>::new(HeadSizes::new(8, 2), &mut Rng::new(1));
    let local = LongformerAttention::new(projections, &[1, 2], 128);
    for (name, mask, length) in [
        ("BigBird", big_bird.mask(1, 1280), 1280),
        ("Sparse Transformer, fixed", fixed.mask(SparseMerge::Heads, 2, 0), 1280),
        ("Longformer", local.mask(&[0]), 1280),
        ("packed", Mask::causal() & Packed::new(&[300, 600, 380]).mask(), 1280),
        ("causal", Mask::causal(), 10_000),
    ] {
        println!("== {name}\n{}", Spec::<f32>::new().mask(mask).explain(length, length));
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
