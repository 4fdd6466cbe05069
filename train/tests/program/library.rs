//! What is called as a library: texts, what is seen of a model in training, what an arena counts as learned.

use retrograd::nn::text::Documents;
use retrograd::prelude::*;
use retrograd::study::record::{Operation, Recorder, Seen};
use retrograd_train::text::{Source, Text};
use retrograd_train::watch::{Norms, Parts, Watch};
use retrograd_train::{learned, scales, tales};
use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex};

/// All that the grammar and the paragraphs do is in this text, the default one.
#[test]
fn equal_seeds_give_equal_text() {
    let text = tales(1, 400_000);
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
    assert_eq!(hash, 0xe7b3_9850_939c_f56e, "the text has changed: {hash:#x}");
    assert!(text.starts_with(&tales(1, 50_000)));
    assert_ne!(tales(2, 400_000), text);
}

#[test]
fn the_text_has_the_requested_length_and_typography() {
    let text = tales(3, 1_000_000);
    assert!((1_000_000..1_010_000).contains(&text.len()));
    assert!(text.ends_with(".\n\n"));
    let known = |c: char| c.is_ascii_alphabetic() || " \n.,;:!?'\"-".contains(c);
    assert_eq!(text.chars().find(|&c| !known(c)), None, "a part of the grammar is left");
    for wrong in ["  ", " \n", "\n ", "\n\n\n", " ,", " .", ",,", "..", "?.", "!.", "?,", "!,"] {
        assert!(!text.contains(wrong), "the text contains {wrong:?}");
    }
    assert!(text.lines().all(|line| line.len() <= 72));
    let words: Vec<&str> = text.split_whitespace().collect();
    let of_vowel = |word: &str| word.starts_with(['a', 'e', 'i', 'o', 'u']);
    let wrong = words
        .windows(2)
        .find(|w| w[0] == "a" && of_vowel(w[1]) && w[1] != "one" && !w[1].starts_with("us"));
    assert_eq!(wrong, None);
    for paragraph in text.trim_end().split("\n\n") {
        assert!(paragraph.matches('"').count() % 2 == 0, "an open quotation: {paragraph}");
        assert!(paragraph.ends_with(['.', '?', '!', '"']) || paragraph.to_uppercase() == paragraph);
        assert!(paragraph.trim_start_matches('"').starts_with(|c: char| c.is_ascii_uppercase()));
    }
}

#[test]
fn a_run_that_was_trained_with_its_line_ends_keeps_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text");
    fs::write(&file, "one\r\ntwo").unwrap();
    let text = |earlier: Option<&Source>| Text::read(Some(&file), earlier).unwrap();
    let unchanged = Documents::read_unchanged(&file).unwrap();
    let earlier = Source { file: None, fingerprint: unchanged.fingerprint() };
    assert_eq!(text(Some(&earlier)).documents, unchanged);
    let now = text(None);
    assert_eq!(now.documents.texts().collect::<String>(), "one\ntwo");
    assert_eq!(text(Some(&now.source)).documents, now.documents);
}

#[test]
fn beginnings_are_not_empty() {
    // The last tenth is what is held out.
    let of = |held_out: &str| {
        let text = "x".repeat(9 * held_out.chars().count()) + held_out;
        let source = Source { file: None, fingerprint: 0 };
        Text { source, documents: Documents::of(text) }.beginnings()
    };
    let long = "a line of more than forty characters, to be shown";
    assert_eq!(of(&format!("rest\n{long}\n\n{long}\nand more")), [format!("{long}\nand more")]);
    assert_eq!(of(&format!("rest\n{long}\nshort\n")), [long]);
    assert_eq!(of("\nAda\n\nGrace\nEmmy\n"), ["Ada", "Grace", "Emmy"]);
    assert_eq!(of("\r\nAda\r\nGrace\r\n"), ["Ada", "Grace"]);
    assert_eq!(of(" only one line\n"), ["only one line"]);
    assert_eq!(of("\n\n\n"), ["\n"]);
    assert_eq!(of(" \n "), [" "]);
}

/// A small model of so many layers.
fn model(layers: usize, heads: usize, width: usize) -> Gpt {
    let config = GptConfig { vocab: 7, context: 4, layers, heads, width, ..GptConfig::default() };
    Gpt::new(config, &mut Rng::new(1)).unwrap()
}

#[test]
fn the_scale_of_the_last_layer_is_that_of_the_input_of_the_last_norm() {
    let model = model(11, 2, 8);
    let tokens = Tensor::from([[1i64, 2, 3]]);
    let found = scales(&model, &tokens);
    assert_eq!(found.len(), 11);
    // Layer 1 is another one than layer 10.
    assert!(found.iter().all(|x| x.is_some()) && found[1] != found[10], "{found:?}");
    let inputs = Arc::new(Mutex::new(BTreeMap::new()));
    let seen = inputs.clone();
    let recorder = Recorder::new().watching(move |event| {
        if let Seen::Computed { operation, inputs, .. } = event
            && let Some(x) = inputs[0].1.downcast_ref::<Tensor>()
        {
            seen.lock().unwrap().insert(*operation, x.clone());
        }
    });
    let (_, recording) = recorder.record(|| model.forward(&tokens, &mut Pass::eval()));
    let of_norm =
        |op: &Operation| op.module.as_ref().is_some_and(|module| module.path == "transformer.ln_f");
    let norm = recording.operations.iter().position(of_norm).unwrap();
    let x = f64::from(inputs.lock().unwrap()[&norm].square().mean(..).item()).sqrt();
    assert!((found[10].unwrap() / x - 1.0).abs() < 1e-6, "{found:?}, not {x}");
}

#[test]
fn norms_are_those_of_the_step() {
    let model = model(2, 2, 8);
    let parts = Parts::of(&model);
    for name in ["wte", "h.0.attn.c_attn", "h.1.mlp.c_proj", "h.1 (vectors)", "ln_f"] {
        assert!(parts.names.iter().any(|part| part == name), "{name} is not in {:?}", parts.names);
    }
    let mut sgd = Sgd::new(&model, SgdConfig { lr: 0.5, ..SgdConfig::default() }).unwrap();
    let tokens = Tensor::from([[1i64, 2, 3]]);
    let before = model.state_dict();
    let grads = model.loss(&tokens, &tokens, &mut Pass::eval()).backward();
    let mut watch = Watch::begin(&parts);
    watch.gradients(&grads);
    sgd.step(&grads).unwrap();
    let Norms { grad_norms: gradients, updates } = watch.end(&watch.norms);
    let at = parts.names.iter().position(|part| part == "h.1.mlp.c_proj").unwrap();
    let name = "transformer.h.1.mlp.c_proj.weight";
    let params = model.named_parameters();
    let param = &params.iter().find(|p| p.0 == name).unwrap().1;
    let norm = |x: &Tensor| x.square().sum(..).item().sqrt();
    let gradient = f64::from(norm(grads.get(param).unwrap()));
    let weight = f64::from(norm(&before[name]));
    assert!((gradients[at].unwrap() / gradient - 1.0).abs() < 1e-5);
    assert!((updates[at].unwrap() / (0.5 * gradient / weight) - 1.0).abs() < 1e-4);
    // The parts together are the model.
    let all = gradients.iter().map(|g| g.unwrap().powi(2)).sum::<f64>().sqrt();
    assert!((all / grads.norm() - 1.0).abs() < 1e-9);
}

#[test]
fn large_models_have_a_part_for_each_layer() {
    let parts = Parts::of(&model(13, 1, 4));
    assert!(parts.names.len() < 48 && parts.names.contains(&"h.12".to_string()));
}

#[test]
fn what_is_learned_follows_from_the_accuracies() {
    assert_eq!(learned(&[0.12, 0.5, 0.326, 0.1, 0.26, 0.2, 0.0, 1.0]), "");
    assert_eq!(learned(&[0.99, 0.2, 0.989, 0.1, 1.0, 0.3, 0.09, 0.5]), "copy, induction");
}
