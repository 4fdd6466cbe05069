//! Folders of Hugging Face's `transformers` as models.

use crate::invalid_usage::USAGE;
use crate::program::Place;
use retrograd::nn::checkpoint::Checkpoint;
use retrograd::nn::text::Tokenizer;
use retrograd::prelude::*;
use std::fs;
use std::path::Path;

/// 65 characters, as many as there are tokens in the fixtures.
const CHARACTERS: &str = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Copies a fixture, and gives it a tokenizer of some characters.
fn place_with(model: &str, characters: &str) -> Place {
    let place = Place::new();
    fs::create_dir(place.path(model)).unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(model);
    for file in ["config.json", "model.safetensors"] {
        fs::copy(fixture.join(file), place.path(model).join(file)).unwrap();
    }
    Tokenizer::chars([characters]).save(&place.path(model).join("tokenizer.json")).unwrap();
    place.write("text", "Now is the winter of our discontent\nMade glorious summer. ".repeat(40));
    place
}

#[test]
fn models_are_sampled_evaluated_and_fine_tuned() {
    for name in ["gpt2", "llama"] {
        let place = place_with(name, CHARACTERS);
        let sample = ["sample", "--model", name, "Now is", "--tokens", "8", "--temperature", "0"];
        let model = Gpt::<f32>::from_pretrained(&place.path(name)).unwrap();
        let tokenizer = Tokenizer::chars([CHARACTERS]);
        let prompt = tokenizer.encode("Now is").unwrap();
        let tokens: Vec<i64> =
            model.generate(&prompt, Sampler::greedy(), &mut Rng::new(1)).take(8).collect();
        let expected = format!("Now is{}\n", tokenizer.decode(&tokens));
        assert_eq!(place.run(&sample).ok(), expected);

        place.run(&["attention", "--model", name, "Now is the winter"]).ok();
        let evaluate = |out: &str| place.run(&["evaluate", "--out", out, "--data", "text"]).ok();
        let loss = |out: &str| -> f64 {
            let text = evaluate(out);
            text.split_whitespace().nth(2).unwrap().parse().unwrap_or_else(|_| panic!("{text}"))
        };
        let before = loss(name);
        let flags = ["--data", "text", "--steps", "40", "--lr", "0.01", "--out", "tuned"];
        let ended = place.run(&[&["train", "--init-from", name], &flags[..]].concat());
        assert!(ended.err.contains(&format!("those of {name} after step 0")), "{ended:?}");
        ended.ok();
        assert!(loss("tuned") < before - 1.0, "{} and {before}", loss("tuned"));
        // The run is one as any other.
        let file = Checkpoint::load(&place.path("tuned/checkpoint.safetensors")).unwrap();
        let is_rms = file.tensors.keys().any(|tensor| tensor.ends_with("norm.weight"));
        assert_eq!(is_rms, name == "llama");
        place.run(&["resume", "--out", "tuned", "--steps", "42"]).ok();
        // Its page shows the output of each layer.
        let looks = fs::read_to_string(place.path("tuned/looks.jsonl")).unwrap();
        assert!(looks.contains("\"scales\":[") && !looks.contains("\"scales\":[null"), "{looks}");
        place.run(&["xray", "--out", "tuned"]).ok();
        place
            .run(&[&["train", "--init-from", name, "--layers", "3"], &flags[..2]].concat())
            .failed(USAGE, &["--layers: 2, not 3"]);
    }
}

#[test]
fn vocabularies_that_differ_are_errors_that_say_what_to_do() {
    let place = place_with("gpt2", "abc");
    // Weights of tokens that the tokenizer lacks are left out.
    place.run(&["sample", "--model", "gpt2", "abc", "--tokens", "50"]).ok();
    place
        .run(&["train", "--init-from", "gpt2", "--data", "text"])
        .failed(1, &["the vocabularies of gpt2 and ", "Only in the text: ", "--tokenizer byte"]);
    let model = ["--model", "gpt2"];
    let run = |more: &[&str]| place.run(&[&more[..1], &model, &more[1..]].concat());
    run(&["sample", "a", "--tokenizer", "byte"])
        .failed(USAGE, &["byte has 256 tokens, and gpt2 has weights for 65", "--tokenizer"]);
    run(&["sample", "a", "--tokenizer", "char"]).failed(USAGE, &["--tokenizer is byte, or a file"]);
    run(&["sample", "a", "--checkpoint", "best"]).failed(USAGE, &["gpt2 is no run"]);
    run(&["evaluate"]).failed(USAGE, &["the weights come without a text: name one by --data"]);
    fs::remove_file(place.path("gpt2/tokenizer.json")).unwrap();
    run(&["sample", "a"]).failed(USAGE, &["there is no gpt2/tokenizer.json", "--tokenizer byte"]);
    place.write("gpt2/config.json", "{}");
    run(&["sample", "a", "--tokenizer", "byte"]).failed(1, &["cannot load: gpt2/config.json"]);
    // A run has its own tokenizer.
    place.run(&["train", "--preset", "tiny", "--steps", "1", "--quiet"]).ok();
    place
        .run(&["sample", "a", "--tokenizer", "byte"])
        .failed(USAGE, &["--tokenizer is for weights of another program"]);
}
