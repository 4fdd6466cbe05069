//! Tokenizers of the program: characters, bytes, BPE, and files.

use crate::program::{FAILED, Place, USAGE};
use retrograd::nn::text::Tokenizer;
use serde_json::Value;
use std::fs;

/// The beginning of runs whose text is named after it.
const SHORT: &str = "train --preset tiny --no-page --steps 20 --context 16 --tokens 30";

fn number(line: &Value, key: &str) -> f64 {
    line[key].as_f64().unwrap()
}

#[test]
fn a_byte_model_trains_resumes_and_prints_whole_characters() {
    let place = Place::new();
    place.write("text", "naïve façade, 語 and Ädäm. ".repeat(60));
    let ended = place.run(&format!("{SHORT} --out run --data text --tokenizer byte"));
    ended.says("tokens of 256 different ones (byte)").ok();
    let tokenizer: Tokenizer = place.loaded("run").read_note("tokenizer").unwrap();
    assert_eq!(tokenizer, Tokenizer::bytes());
    let first = place.done("run");
    // A token is a byte.
    let bits = number(&first, "val_loss") / 2f64.ln();
    assert!((number(&first, "bits_per_byte") - bits).abs() < 1e-9);
    // Invalid UTF-8 is printed as such, and the prompt has characters that no text needs to have.
    assert!(place.ok("sample 'Où 語' --tokens 50 --out run").starts_with("Où 語"));
    place.ok("resume --out run");
    assert_eq!(place.done("run")["val_loss"], first["val_loss"]);
}

#[test]
fn tokenizers_have_the_same_held_out_bytes() {
    let place = Place::new();
    place.write("text", "Ein Bär aß süße Äpfel. ".repeat(80));
    let text = "Ein Bär aß süße Äpfel. ".repeat(8);
    for tokenizer in ["char", "byte"] {
        let flags = format!("--data text --quiet --tokenizer {tokenizer} --out {tokenizer}");
        place.ok(&format!("{SHORT} {flags}"));
        let out = place.ok(&format!("evaluate --out {tokenizer}"));
        // All but the first character, which is no target.
        let bytes = format!(" held-out tokens ({} bytes", text.len() - 1);
        assert!(out.contains(&bytes), "{bytes} is not in {out}");
    }
}

#[test]
fn a_folder_is_a_text_of_several_documents() {
    let place = Place::new();
    fs::create_dir_all(place.path("texts/more")).unwrap();
    for (name, word) in [("b.txt", "second "), ("a.txt", "first "), ("more/c.txt", "third ")] {
        place.write(&format!("texts/{name}"), word.repeat(100));
    }
    let ended = place.run(&format!("{SHORT} --out run --data texts"));
    ended.says("3 documents, 1,902 tokens of 13 different ones (char)").ok();
    let tokenizer = Tokenizer::load(place.path("run/tokenizer.json")).unwrap();
    assert_eq!(tokenizer.separator(), Some(12));
    place.ok("resume --out run");
    // Another name is another order, and so another text.
    fs::rename(place.path("texts/a.txt"), place.path("texts/z.txt")).unwrap();
    place.fails("resume --out run", FAILED, &["differs from the one in", "texts"]);
    place.write("texts/bad", b"caf\xe9");
    let left_out = "Files whose names begin with a dot are left out";
    let said = ["texts/bad: not UTF-8: byte 3 (0xe9) begins no character", "iconv", left_out];
    place.fails("train --data texts", FAILED, &said);
    place.write("texts/bad", "ELF\0");
    place.fails("train --data texts", FAILED, &["texts/bad: no text, but NUL bytes", left_out]);
}

#[test]
fn a_tokenizer_may_be_that_of_another_run() {
    let place = Place::new();
    place.write("one", "abcdefg hijk lmnop. ".repeat(50));
    place.write("other", "a fig a kiln. ".repeat(50));
    place.ok(&format!("{SHORT} --out one.run --data one --quiet"));
    let file = "--tokenizer one.run/tokenizer.json";
    place.ok(&format!("{SHORT} --out other.run --data other {file}"));
    assert_eq!(place.read("one.run/tokenizer.json"), place.read("other.run/tokenizer.json"));
    place.write("more", "a quiz? ".repeat(50));
    let said = ["the vocabulary does not contain '?', 'q', 'u', 'z'; it contains"];
    place.fails(&format!("train --data more {file}"), FAILED, &said);
}

#[test]
fn invalid_tokenizers_are_errors() {
    let place = Place::new();
    place.write("list.json", "[1, 2]");
    let cases: [(&str, i32, &[&str]); 6] = [
        ("''", USAGE, &["one of char, byte, bpe:N"]),
        ("bpe", USAGE, &["bpe needs a number of tokens, as in bpe:512"]),
        ("bpe:many", USAGE, &["\"many\" is no number of tokens"]),
        ("bpe:100", USAGE, &["a BPE vocabulary of 100 tokens is too small", "256"]),
        ("words", FAILED, &["cannot read words: ", "a tokenizer is char, byte, bpe:N"]),
        ("list.json", FAILED, &["no tokenizer: list.json: "]),
    ];
    for (name, code, said) in cases {
        place.fails(&format!("train --preset tiny --tokenizer {name}"), code, said);
    }
    assert!(!place.exists("out"), "no folder is created for an invalid tokenizer");
}

#[cfg(not(feature = "tokenizers"))]
#[test]
fn bpe_without_its_feature_is_an_error_that_names_it() {
    let place = Place::new();
    let said = [
        "needs the cargo feature `tokenizers`, and this build is without it. Build it with:",
        "cargo install --path train --features tokenizers",
    ];
    place.fails("train --tokenizer bpe:512", USAGE, &said);
    place.write("tokenizer.json", r#"{"version":"1.0","model":{"type":"BPE"}}"#);
    place.fails("train --tokenizer tokenizer.json", USAGE, &said);
    // A run of a build with the feature.
    place.train("run", 1, "");
    let mut file = place.loaded("run");
    file.note("tokenizer", &serde_json::json!({"version": "1.0", "model": {"type": "BPE"}}));
    file.save(place.path("run/checkpoint.safetensors")).unwrap();
    place.fails("sample --out run a", FAILED, &said);
}

#[cfg(feature = "tokenizers")]
#[test]
fn a_bpe_model_trains_resumes_samples_and_starts_others() {
    let place = Place::new();
    let short = SHORT.replace("--no-page ", "");
    let ended = place.run(&format!("{short} --out run --tokenizer bpe:300"));
    ended.says("tokens of 300 different ones (bpe:300)").ok();
    let first = place.done("run");
    // A token is more than a byte, so a nat per token is less per byte.
    assert!(number(&first, "bits_per_byte") < 0.8 * number(&first, "val_loss") / 2f64.ln());
    let sample = place.ok("sample 'The naïve 語' --tokens 20 --out run");
    assert!(sample.starts_with("The naïve 語"));
    place.ok("resume --out run");
    assert_eq!(place.done("run")["val_loss"], first["val_loss"]);
    // The same tokens by the file, and other steps.
    let file = "--tokenizer run/tokenizer.json --quiet";
    place.ok(&format!("{SHORT} --out again {file}"));
    assert_eq!(place.done("again")["val_loss"], first["val_loss"]);
    place.ok(&format!("train --init-from run --steps 2 --out tuned {file}"));
    let said = ["--tokenizer is not that of run: bpe:300 with 300 tokens"];
    place.fails("train --init-from run --tokenizer bpe:290 --out no", USAGE, &said);
    assert!(place.read("run/run.html").ends_with("</html>\n"));
}

/// A `tokenizer.json` of words, with spaces before those that do not begin with `##`.
#[cfg(feature = "tokenizers")]
fn words(words: &[&str]) -> String {
    let vocab: Value = words.iter().zip(0..).map(|(word, id)| (word.to_string(), id)).collect();
    serde_json::json!({
        "version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": false},
        "model": {"type": "WordPiece", "vocab": vocab, "unk_token": "[UNK]",
            "continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
    })
    .to_string()
}

#[cfg(feature = "tokenizers")]
#[test]
fn samples_follow_the_prompt_and_lost_text_has_no_bits_per_byte() {
    let place = Place::new();
    place.write("the.json", words(&["[UNK]", "the"]));
    let learn = |out: &str, data: &str| {
        let flags = "--preset tiny --steps 20 --context 16 --tokens 8 --tokenizer the.json";
        place.run(&format!("train {flags} --data {data} --out {out}"))
    };
    place.write("the", "the ".repeat(400).trim_end());
    learn("run", "the").ok();
    let sample = place.ok("sample --out run 'the the' --tokens 2 --temperature 0");
    assert_eq!(sample, "the the the the\n");
    assert!(place.done("run")["lost_share"].is_null());
    // Of " cat the" the first word is lost.
    place.write("cat", "the cat ".repeat(400).trim_end());
    let said = "no bits per byte, since 50.63 % of the bytes do not come back from the tokens";
    let ended = learn("lossy", "cat");
    assert!(ended.out.contains(said) && ended.err.contains(said), "{ended:?}");
    assert!(place.ok("evaluate --out lossy").contains(said));
    let line = place.done("lossy");
    assert!(line["bits_per_byte"].is_null());
    assert!((number(&line, "lost_share") - 160.0 / 316.0).abs() < 1e-9);
    assert!(place.read("lossy/run.html").contains(said));
    // No panic of the library is printed.
    let bad = words(&["[UNK]"]).replace(r#"WhitespaceSplit""#, r#"FixedLength","length":0"#);
    place.write("bad.json", bad);
    let said = ["no tokenizer: bad.json: the library"];
    place.fails("train --tokenizer bad.json", FAILED, &said);
}

/// A file or a pipe gets a sample as it was generated.
#[test]
fn control_characters_are_escaped_on_a_terminal_and_in_messages() {
    let place = Place::new();
    place.write("text", "\u{1b}[31m\r \n\tred ".repeat(100));
    let ended = place.run(&format!("{SHORT} --out \u{1b}run --data text"));
    let sample = "sample --out \u{1b}run '\u{1b}[31m\r \n\t' --tokens 40";
    assert!(place.ok(sample).starts_with("\u{1b}[31m\r \n\t"));
    let missing = place.run("train --data \u{1b}[31m");
    let usage = place.run("train --steps \u{1b}[31m");
    let shown = r"\u{1b}";
    let is_raw = |c: char| c.is_control() && c != '\n' && c != '\t';
    for (ended, said) in [(ended, shown), (missing, shown), (usage, "--steps")] {
        assert!(!ended.err.contains(is_raw) && ended.err.contains(said), "{ended:?}");
    }
    // util-linux runs a command on a terminal, which turns \n into \r\n.
    #[cfg(target_os = "linux")]
    {
        let program = place.command("").get_program().to_str().unwrap().to_string();
        let mut terminal = std::process::Command::new("script");
        terminal.args(["-qec", &format!("{program} {sample} --quiet"), "/dev/null"]);
        let output = terminal.current_dir(place.path("")).output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n");
        assert!(out.starts_with("\\u{1b}[31m\\r \n\t"), "{out:?}");
        assert!(!out.contains(is_raw), "{out:?}");
    }
}
