//! Models for other programs.

use crate::program::{FAILED, Place, USAGE, contains};
use retrograd_support::python_with;
use std::fs;

/// The parts of three models: their flags, and the targets that have them.
const MODELS: [(&str, &str, &[&str]); 6] = [
    ("llama", "--preset llama", &["hf", "gguf", "onnx"]),
    ("gpt2", "--preset nanogpt-cpu --mlp gelu-tanh", &["hf", "gguf", "onnx"]),
    ("modern", "--preset modern", &["hf", "gguf", "onnx"]),
    ("qwen3", "--preset modern --mlp swiglu", &["hf", "gguf", "onnx"]),
    ("arcee", "--preset modern --qk-norm false", &["hf", "gguf", "onnx"]),
    ("alibi", "--positions alibi --mlp geglu", &["onnx"]),
];

/// Trains a small model of these parts for some steps.
fn train(place: &Place, name: &str, flags: &str) {
    place.write(
        "text",
        "Now is the winter of our discontent\nMade glorious summer; naïve 語. ".repeat(60),
    );
    let sizes =
        "--layers 2 --heads 2 --width 64 --context 32 --batch 4 --steps 20 --no-page --tokens 1";
    place.ok(&format!("train --data text --out {name} {flags} {sizes}"));
}

#[test]
fn models_are_written_for_every_target_and_continue_text_as_before() {
    for (name, flags, targets) in MODELS {
        let place = Place::new();
        train(&place, name, flags);
        let sample = |of: &str| {
            place.ok(&format!("sample 'Now is ' {of} --tokens 20 --temperature 0 --quiet"))
        };
        let expected = sample(&format!("--out {name}"));
        for target in targets {
            let out = format!("written.{target}");
            let said = place.ok(&format!("export {name} {out} --to {target}"));
            assert!(said.contains("in f32, read again with the same bits"), "{said}");
            assert_eq!(sample(&format!("--model {out}")), expected, "{name} {target}");
            place.fails(&format!("export {name} {out} --to {target}"), USAGE, &["exists"]);
            // From one program to the next, and on.
            place.ok(&format!("export {out} again.{target} --to {target}"));
            let flags = "--data text --steps 2 --no-page --tokens 1";
            place.ok(&format!("train --init-from {out} --out tuned-{target} {flags}"));
        }
        for (dtype, target) in [("bf16", "onnx"), ("q8_0", "onnx"), ("f16", "hf"), ("q8_0", "gguf")]
        {
            if targets.contains(&target) {
                let out = format!("{dtype}.{target}");
                let said = place.ok(&format!("export {name} {out} --to {target} --dtype {dtype}"));
                assert!(said.contains(&format!("in {dtype}")), "{said}");
                place.ok(&format!("evaluate --model {out} --data text"));
            }
        }
        for target in ["hf", "gguf"].into_iter().filter(|target| !targets.contains(target)) {
            let said = ["has no ", "(hint: train with"];
            place.fails(&format!("export {name} no.{target} --to {target}"), FAILED, &said);
            assert!(!place.exists(&format!("no.{target}")));
        }
    }
}

#[test]
fn what_cannot_be_exported_leaves_nothing() {
    let place = Place::new();
    train(&place, "hybrid", "--preset hybrid");
    let said = ["no pattern of attention variants (hint: train without --pattern)"];
    for target in ["hf", "gguf", "onnx"] {
        place.fails(&format!("export hybrid out --to {target}"), FAILED, &said);
        assert!(!place.exists("out"));
    }
    train(&place, "run", "--preset modern");
    let said = ["q8_0 is a type of GGUF and ONNX"];
    place.fails("export run out --to hf --dtype q8_0", FAILED, &said);
    place.fails("export run out --to pt", USAGE, &["hf, gguf, onnx"]);
    let said = ["there is no element type", "q4", "but f32, f16, bf16, q8_0"];
    place.fails("export run out --to gguf --dtype q4", USAGE, &said);
    place.fails("export none out --to gguf", FAILED, &["none"]);
    assert!(!place.exists("out"));
    // A card says what the model is.
    place.ok("export run out --to hf");
    let said =
        ["| training text | text |", "--preset modern", "after step ", "char of ", "retrograd 0."];
    contains(&place.read("out/README.md"), &said);
    // Damaged files are refused as a whole.
    place.ok("export run out.gguf --to gguf");
    let bytes = fs::read(place.path("out.gguf")).unwrap();
    fs::write(place.path("out.gguf"), &bytes[..bytes.len() - 100]).unwrap();
    place.fails("sample Now --model out.gguf", FAILED, &["cannot load", "ends after the file"]);
    fs::write(place.path("out.onnx"), "no graph").unwrap();
    place.fails("sample Now --model out.onnx", FAILED, &["it is neither a file of GGUF"]);
}

#[test]
fn a_program_that_is_missing_or_computes_something_else_is_reported() {
    let place = Place::new();
    train(&place, "run", "--preset modern");
    let with = |python: &str, line: &str| {
        fs::create_dir_all(place.path("bin")).unwrap();
        place.write("bin/python3", format!("#!/bin/sh\n{python}\n"));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(place.path("bin/python3"), mode).unwrap();
        let _ = fs::remove_file(place.path("out"));
        place.run_with("PATH", &format!("{}:/usr/bin:/bin", place.path("bin").display()), line)
    };
    let line = "export run out --to gguf --verify";
    let said = ["the other program failed: ImportError: no such thing"];
    with("echo 'ImportError: no such thing' >&2; exit 1", line).failed(FAILED, &said);
    with("echo none", line).failed(FAILED, &["python3 printed something else"]);
    let empty = r#"cat > /dev/null; echo '{"program": "p", "results": []}'"#;
    with(empty, line).failed(FAILED, &["p has not continued every prompt"]);
    let Some(path) = python_with("json") else { return };
    // Uniform probabilities, and rows that are too short.
    for (row, said) in
        [("[0.0] * task['vocab']", "; its tokenizer differs"), ("[]", "differ by at most inf")]
    {
        let code = format!(
            "import json, sys; task = json.load(sys.stdin); print(json.dumps({{'program': 'p', 'results': [{{'tokens': \
             [0] * p['count'], 'logits': [{row}] * p['count'], 'agrees': False, 'seconds': 1}} for p in task['prompts']]}}))"
        );
        let python = format!("PATH='{path}' exec python3 -c \"{code}\"");
        let ended = with(&python, line);
        assert!(ended.out.contains(said), "{ended:?}");
        ended.failed(FAILED, &["p computes something else"]);
    }
}

#[test]
fn other_programs_compute_the_same() {
    for (module, target) in [("onnxruntime", "onnx"), ("xllamacpp", "gguf"), ("transformers", "hf")]
    {
        let Some(path) = python_with(module) else { continue };
        for (name, flags, targets) in MODELS {
            if !targets.contains(&target) {
                continue;
            }
            let place = Place::new();
            train(&place, name, flags);
            let line = format!("export {name} out --to {target} --verify");
            let said = place.run_with("PATH", &path, &line).ok();
            assert!(said.contains("200 of 200 greedy tokens agree"), "{name} {target}: {said}");
            if name != "modern" {
                continue;
            }
            let rounded = if target == "hf" { "bf16" } else { "q8_0" };
            let line = format!("export {name} {rounded} --to {target} --dtype {rounded} --verify");
            place.run_with("PATH", &path, &line).ok();
        }
    }
}

#[cfg(feature = "tokenizers")]
#[test]
fn tokenizers_of_bpe_are_exported() {
    let place = Place::new();
    train(&place, "run", "--preset llama --tokenizer bpe:300");
    for (module, target) in [("xllamacpp", "gguf"), ("transformers", "hf"), ("onnxruntime", "onnx")]
    {
        place.ok(&format!("export run out.{target} --to {target}"));
        let expected = place.ok("sample 'Now is ' --out run --tokens 9 --temperature 0 --quiet");
        let sample =
            format!("sample 'Now is ' --model out.{target} --tokens 9 --temperature 0 --quiet");
        assert_eq!(place.ok(&sample), expected, "{target}");
        let Some(path) = python_with(module) else { continue };
        let line = format!("export run verified.{target} --to {target} --verify");
        place.run_with("PATH", &path, &line).ok();
    }
}
