//! Folders of Hugging Face's `transformers` as models.

use crate::program::{FAILED, Place, USAGE};
use retrograd::nn::text::Tokenizer;
use retrograd::prelude::*;
use serde_json::Value;
use std::fs;

/// 65 characters, as many as there are tokens in the fixtures.
const CHARACTERS: &str = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Copies a fixture, and gives it a tokenizer of some characters.
fn place_with(model: &str, characters: &str) -> Place {
    let place = Place::new();
    fs::create_dir(place.path(model)).unwrap();
    let fixture = retrograd_support::fixture(model);
    for file in ["config.json", "model.safetensors"] {
        fs::copy(fixture.join(file), place.path(model).join(file)).unwrap();
    }
    Tokenizer::chars([characters]).save(place.path(model).join("tokenizer.json")).unwrap();
    place.write("text", "Now is the winter of our discontent\nMade glorious summer. ".repeat(40));
    place
}

#[test]
fn models_are_sampled_evaluated_and_fine_tuned() {
    for name in ["gpt2", "llama"] {
        let place = place_with(name, CHARACTERS);
        let model = Gpt::<f32>::from_pretrained(place.path(name)).unwrap();
        let tokenizer = Tokenizer::chars([CHARACTERS]);
        let prompt = tokenizer.encode("Now is").unwrap();
        let tokens: Vec<i64> =
            model.generate(&prompt, Sampler::greedy(), &mut Rng::new(1)).take(8).collect();
        let expected = format!("Now is{}\n", tokenizer.decode(&tokens));
        let sample = format!("sample --model {name} 'Now is' --tokens 8 --temperature 0");
        assert_eq!(place.ok(&sample), expected);

        place.ok(&format!("attention --model {name} 'Now is the winter'"));
        let loss = |out: &str| -> f64 {
            let text = place.ok(&format!("evaluate --out {out} --data text"));
            text.split_whitespace().nth(2).unwrap().parse().unwrap_or_else(|_| panic!("{text}"))
        };
        let before = loss(name);
        let flags = "--data text --steps 40 --lr 0.01 --out tuned";
        let ended = place.run(&format!("train --init-from {name} {flags}"));
        ended.says(&format!("those of {name} after step 0")).ok();
        assert!(loss("tuned") < before - 1.0, "{} and {before}", loss("tuned"));
        // The run is one as any other.
        let file = place.loaded("tuned");
        let recipe: Value = file.read_note("recipe").unwrap();
        assert_eq!(recipe["dropout"], model.config().dropout);
        let is_rms = file.tensors.keys().any(|tensor| tensor.ends_with("norm.weight"));
        assert_eq!(is_rms, name == "llama");
        place.ok("resume --out tuned --steps 42");
        // Its page shows the output of each layer.
        let looks = place.read("tuned/looks.jsonl");
        assert!(looks.contains("\"scales\":[") && !looks.contains("\"scales\":[null"), "{looks}");
        place.ok("xray --out tuned");
        let other = format!("train --init-from {name} --layers 3 --data text");
        place.fails(&other, USAGE, &["--layers: 2, not 3"]);
    }
}

#[test]
fn vocabularies_that_differ_are_errors_that_say_what_to_do() {
    let place = place_with("gpt2", "abc");
    // Weights of tokens that the tokenizer lacks are left out.
    place.ok("sample --model gpt2 abc --tokens 50");
    let said = ["the vocabularies of gpt2 and ", "Only in the text: ", "--tokenizer byte"];
    place.fails("train --init-from gpt2 --data text", FAILED, &said);
    let cases: [(&str, &[&str]); 4] = [
        (
            "sample a --tokenizer byte",
            &["byte has 256 tokens, and gpt2 has weights for 65", "--tokenizer"],
        ),
        ("sample a --tokenizer char", &["--tokenizer is byte, or a file"]),
        ("sample a --checkpoint best", &["gpt2 is no run"]),
        ("evaluate", &["the weights come without a text: name one by --data"]),
    ];
    for (line, said) in cases {
        place.fails(&format!("{line} --model gpt2"), USAGE, said);
    }
    fs::remove_file(place.path("gpt2/tokenizer.json")).unwrap();
    let said = ["there is no gpt2/tokenizer.json", "--tokenizer byte"];
    place.fails("sample --model gpt2 a", USAGE, &said);
    place.write("gpt2/config.json", "{}");
    let said = ["cannot load: gpt2/config.json"];
    place.fails("sample --model gpt2 a --tokenizer byte", FAILED, &said);
    // A run has its own tokenizer.
    place.train("run", 1, "");
    let said = ["--tokenizer is for weights of another program"];
    place.fails("sample a --out run --tokenizer byte", USAGE, &said);
}
