//! Maps between state dicts: names, layouts, their inverse, and what cannot be mapped.

use crate::common::*;
use proptest::prelude::*;
use retrograd_nn::attention::{Pairing, Rope};
use retrograd_nn::checkpoint::{AnyTensor, Checkpoint};
use retrograd_nn::internals::{captures, renamed};
use retrograd_nn::{Module, StateDict, StateMap, StateRule};
use retrograd_support::random_tests;
use retrograd_tensor::Tensor;

fn file(tensors: &[(&str, AnyTensor)]) -> Checkpoint {
    let tensors = tensors.iter().map(|(name, t)| (name.to_string(), t.clone())).collect();
    Checkpoint { tensors, ..Checkpoint::new() }
}

fn any(shape: &[usize], seed: u64) -> AnyTensor {
    randn(shape, seed).into()
}

#[test]
fn rules_apply_in_order_and_are_undone_in_the_opposite_order() {
    let map = StateMap::new()
        .rename("encoder.**", "e.**")
        .transpose("e.*.w")
        .rename("e.*.w", "blocks.*.weight")
        .rename("e.**", "rest.**");
    let theirs = file(&[
        ("encoder.0.w", any(&[2, 3], 1)),
        ("encoder.0.b", any(&[3], 2)),
        ("x", any(&[], 3)),
    ]);
    let ours = map.import::<f64>(&theirs).unwrap();
    assert_eq!(ours.keys().collect::<Vec<_>>(), ["blocks.0.weight", "rest.0.b", "x"]);
    assert_eq!(ours["blocks.0.weight"], randn(&[2, 3], 1).t());
    assert_eq!(dict_bits(&map.export(&ours).unwrap()), dict_bits(&theirs.get::<f64>("").unwrap()));
    // The other order is another map: the name is no longer there.
    let map = StateMap::new().rename("encoder.**", "e.**").transpose("encoder.*.w");
    assert_eq!(map.import::<f64>(&theirs).unwrap()["e.0.w"], randn(&[2, 3], 1));
    assert_eq!(map.rules().len(), 2);
    assert!(matches!(&map.rules()[1], StateRule::Transpose { name } if name == "encoder.*.w"));
}

#[test]
fn what_is_left_out_may_be_of_any_type() {
    let mut theirs = file(&[
        ("m.w", any(&[2], 1)),
        ("m.mask", Tensor::from([true]).into()),
        ("m.steps", Tensor::from([3i64]).into()),
    ]);
    let reason = "which is not supported".to_string();
    let eight =
        retrograd_nn::checkpoint::Unsupported { dtype: "F8_E4M3".into(), shape: vec![1], reason };
    theirs.unsupported.insert("m.scale".into(), eight);
    let map = StateMap::new().strip_prefix("m").ignore("mask").ignore("s*").ignore("steps");
    let error = map.import::<f32>(&theirs).unwrap_err().to_string();
    let want =
        "the state dict cannot be mapped: m.scale: it is F8_E4M3 [1], which is not supported";
    assert_eq!(error, want);
    let map = map.ignore("scale");
    assert_eq!(map.import::<f32>(&theirs).unwrap().keys().collect::<Vec<_>>(), ["w"]);
    // They cannot come back: a prefix and a mask are not written.
    let ours =
        StateDict::from([("w".to_string(), randn(&[2], 1)), ("mask".into(), randn(&[1], 2))]);
    assert_eq!(dict_bits(&map.export(&ours).unwrap()), dict_bits(&ours));
}

#[test]
fn what_cannot_be_mapped_is_listed() {
    let theirs = file(&[
        ("a", any(&[2], 1)),
        ("b", any(&[2], 2)),
        ("deep", any(&[2, 2, 2], 3)),
        ("q", any(&[6, 2], 4)),
        ("scalar", any(&[], 5)),
        ("steps", Tensor::from([3i64]).into()),
        ("wide", Tensor::from([1e300]).into()),
    ]);
    let rope = |map: StateMap, name| map.rope(name, 4, 2, Pairing::Half, Pairing::Interleaved);
    let map = rope(rope(StateMap::new().alias("a", "b").transpose("deep"), "q"), "scalar");
    assert_eq!(
        map.import::<f32>(&theirs).unwrap_err().to_string(),
        "the state dict cannot be mapped: a and b both become b; \
         deep: [2, 2, 2] is no matrix, to be transposed; \
         q: [6, 2] are no rows of 4 heads of at least 2 elements; \
         scalar: [] are no rows of 4 heads of at least 2 elements; \
         steps: it is i64; \
         wide: its element 1e300 at [0] has no value in f32"
    );
    // And on the way back.
    let map = StateMap::new().rename("x", "a").rename("x", "b").transpose("c");
    let ours = ["a", "b", "c"].map(|name| (name.to_string(), randn(&[2], 1)));
    assert_eq!(
        map.export(&StateDict::from(ours)).unwrap_err().to_string(),
        "the state dict cannot be mapped: a and b both become x; c: [2] is no matrix, to be transposed"
    );
}

#[test]
fn wildcards_must_agree() {
    for (theirs, ours) in [("a.*", "a"), ("a", "*"), ("*.**", "**.*"), ("*", "**")] {
        let part = format!("state map: `{theirs}` and `{ours}` differ in their wildcards");
        assert_panics_here(&part, || StateMap::new().rename(theirs, ours));
        assert_panics_here(&part, || StateMap::new().alias(theirs, ours));
    }
    let rope = |heads, width| StateMap::new().rope("q", heads, width, Pairing::Half, Pairing::Half);
    assert_panics("rotary positions need a head and an even width, got 0 and 2", || rope(0, 2));
    assert_panics("rotary positions need a head and an even width, got 2 and 3", || rope(2, 3));
}

#[test]
fn a_tie_fills_in_what_is_missing() {
    let map = StateMap::new().rename("emb", "wte").tie("head", "wte").tie("other", "nothing");
    let alone = map.import::<f64>(&file(&[("emb", any(&[2], 1))])).unwrap();
    assert_eq!((alone.len(), &alone["head"]), (2, &randn(&[2], 1)));
    let both = file(&[("emb", any(&[2], 1)), ("head", any(&[2], 2))]);
    assert_eq!(map.import::<f64>(&both).unwrap()["head"], randn(&[2], 2));
    assert!(map.import::<f64>(&file(&[("x", any(&[2], 1))])).unwrap().len() == 1);
}

random_tests! {
    ProptestConfig::default();

    /// Permuting the rows of heads is undone by the export, and keeps what is not rotated.
    #[test]
    fn permutations_are_undone(heads in 1usize..5, half in 0usize..5, rest in 0usize..4, seed in proptest::num::u64::ANY) {
        let (width, head) = (2 * half, 2 * half + rest);
        let w = randn(&[heads * head, 3], seed);
        for (theirs, ours) in [
            (Pairing::Half, Pairing::Interleaved),
            (Pairing::Interleaved, Pairing::Half),
            (Pairing::Half, Pairing::Half),
        ] {
            let map = StateMap::new().rope("**.q", heads, width, theirs, ours);
            let imported = map.import::<f64>(&file(&[("h.0.q", AnyTensor::from(&w))])).unwrap();
            let want = Rope::new(width).pairing(theirs).converted(&w, heads, ours);
            prop_assert!(imported["h.0.q"] == want);
            // Row 2i of a head is row i of the halves, and 2i + 1 row half + i.
            for (h, i) in (0..heads).flat_map(|h| (0..half).map(move |i| (h, i))) {
                let row = |t: &Tensor<f64>, i| t.select(0, h * head + i).to_vec();
                let (split, woven) = match ours {
                    Pairing::Interleaved => (&w, &imported["h.0.q"]),
                    _ if theirs == ours => continue,
                    _ => (&imported["h.0.q"], &w),
                };
                prop_assert_eq!(row(woven, 2 * i), row(split, i));
                prop_assert_eq!(row(woven, 2 * i + 1), row(split, half + i));
            }
            prop_assert!(map.export(&imported).unwrap()["h.0.q"] == w);
        }
    }

    /// A map of renamings and transpositions is undone by the export, whatever the names.
    #[test]
    fn an_export_undoes_an_import(names in prop::collection::btree_set("(h\\.)?[ab](\\.[0-9]){0,2}(\\.[wv])?", 1..8)) {
        let map = StateMap::new()
            .transpose("h.**.w")
            .rename("h.*.*.w", "layers.*.*.weight")
            .rename("a.**", "first.**")
            .transpose("first.*.v");
        let tensors: Vec<(&str, AnyTensor)> =
            names.iter().enumerate().map(|(i, name)| (&name[..], any(&[2, 3], i as u64))).collect();
        let theirs = file(&tensors);
        let ours = map.import::<f64>(&theirs).unwrap();
        let back = map.export(&ours).unwrap();
        prop_assert_eq!(dict_bits(&back), dict_bits(&theirs.get::<f64>("").unwrap()));
    }
}

#[test]
fn a_model_is_loaded_through_a_map() {
    let model = gpt::<f32>(config(), 1);
    let map =
        StateMap::new().rename("gpt.blocks.*.**", "transformer.h.*.**").transpose("**.c_fc.weight");
    let mut theirs = Checkpoint::new();
    theirs.put("", &map.export(&model.state_dict()).unwrap());
    assert!(theirs.tensors.contains_key("gpt.blocks.1.mlp.c_fc.weight"));
    let other = gpt::<f64>(config(), 2);
    assert!(other.load_state_dict(&theirs.get("").unwrap()).is_err());
    other.load_state_dict(&map.import(&theirs).unwrap()).unwrap();
    for (name, w) in model.state_dict() {
        assert_eq!(other.state_dict()[&name], w.cast::<f64>(), "{name}");
    }
}

#[test]
fn patterns_match_whole_parts() {
    let cases: [(&str, &str, Option<&[&str]>); 18] = [
        ("a", "a", Some(&[])),
        ("a", "b", None),
        ("a", "a.b", None),
        ("a.b", "a", None),
        ("*", "a", Some(&["a"])),
        ("*", "a.b", None),
        ("*", "", Some(&[""])),
        ("**", "a.b.c", Some(&["a.b.c"])),
        ("h.*.w", "h.10.w", Some(&["10"])),
        ("h.*.w", "h.1.0.w", None),
        ("h.**.w", "h.1.0.w", Some(&["1.0"])),
        ("h.**.w", "h.w", None),
        ("h.**", "h", None),
        ("**.w", "h.w.w", Some(&["h.w"])),
        ("*.*.w", "x.y.w", Some(&["x", "y"])),
        ("**.*.w", "x.y.z.w", Some(&["x.y", "z"])),
        ("**.m.**", "a.m.b.m.c", Some(&["a", "b.m.c"])),
        ("hh", "h", None),
    ];
    for (pattern, name, want) in cases {
        assert_eq!(captures(pattern, name).as_deref(), want, "{pattern} {name}");
    }
    assert_eq!(renamed("h.3.mlp.w", "h.*.mlp.**", "x.*.**").unwrap(), "x.3.w");
    assert_eq!(renamed("m.a.b", "m.**", "**").unwrap(), "a.b");
    assert_eq!(renamed("a.b", "**", "m.**").unwrap(), "m.a.b");
}
