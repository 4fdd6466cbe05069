//! Tokenizers of the example: characters, bytes, BPE, and files.

use crate::invalid_usage::USAGE;
use crate::program::Place;
use retrograd::nn::checkpoint::Checkpoint;
use retrograd::nn::text::Tokenizer;
use serde_json::Value;
use std::fs;

const SHORT: &[&str] =
    &["train", "--preset", "tiny", "--steps", "20", "--context", "16", "--tokens", "30", "--out"];

/// The last line of a log.
fn done(place: &Place, folder: &str) -> Value {
    let log = fs::read_to_string(place.path(folder).join("log.jsonl")).unwrap();
    serde_json::from_str(log.lines().last().unwrap()).unwrap()
}

fn number(line: &Value, key: &str) -> f64 {
    line[key].as_f64().unwrap()
}

#[test]
fn a_byte_model_trains_resumes_and_prints_whole_characters() {
    let place = Place::new();
    place.write("text", "naïve façade, 語 and Ädäm. ".repeat(60));
    let args = ["--data", "text", "--tokenizer", "byte"];
    let ended = place.run(&[SHORT, &["run"], &args].concat());
    assert!(ended.err.contains("tokens of 256 different ones (byte)"), "{ended:?}");
    ended.ok();
    let file = Checkpoint::load(&place.path("run/checkpoint.safetensors")).unwrap();
    assert_eq!(file.read_note::<Tokenizer>("tokenizer").unwrap(), Tokenizer::bytes());
    let (first, folder) = (done(&place, "run"), ["--out", "run"]);
    // A token is a byte.
    let bits = number(&first, "val_loss") / 2f64.ln();
    assert!((number(&first, "bits_per_byte") - bits).abs() < 1e-9);
    // Invalid UTF-8 is printed as such, and the prompt has characters that no text needs to have.
    let sample = ["sample", "Où 語", "--tokens", "50"];
    assert!(place.run(&[&sample[..], &folder].concat()).ok().starts_with("Où 語"));
    place.run(&[&["resume"], &folder[..]].concat()).ok();
    assert_eq!(number(&done(&place, "run"), "val_loss"), number(&first, "val_loss"));
}

#[test]
fn tokenizers_have_the_same_held_out_bytes() {
    let place = Place::new();
    place.write("text", "Ein Bär aß süße Äpfel. ".repeat(80));
    let bytes = |tokenizer: &str| {
        let args = ["--data", "text", "--quiet", "--tokenizer", tokenizer];
        place.run(&[SHORT, &[tokenizer], &args].concat()).ok();
        let out = place.run(&["evaluate", "--out", tokenizer]).ok();
        let (_, rest) = out.split_once(" held-out tokens (").unwrap();
        rest.split_once(" bytes").unwrap().0.replace(',', "").parse::<usize>().unwrap()
    };
    let text = "Ein Bär aß süße Äpfel. ".repeat(8);
    // All but the first character, which is no target.
    assert_eq!(bytes("char"), text.len() - 1);
    assert_eq!(bytes("byte"), text.len() - 1);
}

#[test]
fn a_folder_is_a_text_of_several_documents() {
    let place = Place::new();
    fs::create_dir_all(place.path("texts/more")).unwrap();
    for (name, word) in [("b.txt", "second "), ("a.txt", "first "), ("more/c.txt", "third ")] {
        place.write(&format!("texts/{name}"), word.repeat(100));
    }
    let args = ["--data", "texts"];
    let ended = place.run(&[SHORT, &["run"], &args].concat());
    assert!(
        ended.err.contains("3 documents, 1,902 tokens of 13 different ones (char)"),
        "{ended:?}"
    );
    ended.ok();
    let tokenizer = Tokenizer::load(&place.path("run/tokenizer.json")).unwrap();
    assert_eq!(tokenizer.separator(), Some(12));
    place.run(&["resume", "--out", "run"]).ok();
    // Another name is another order, and so another text.
    fs::rename(place.path("texts/a.txt"), place.path("texts/z.txt")).unwrap();
    place.run(&["resume", "--out", "run"]).failed(1, &["differs from the one in", "texts"]);
    place.write("texts/bad", b"caf\xe9");
    place
        .run(&["train", "--data", "texts"])
        .failed(1, &["texts/bad: not UTF-8: byte 3 (0xe9) begins no character"]);
}

#[test]
fn a_tokenizer_may_be_that_of_another_run() {
    let place = Place::new();
    place.write("one", "abcdefg hijk lmnop. ".repeat(50));
    place.write("other", "a fig, a kiln. ".replace(',', "").repeat(50));
    place.run(&[SHORT, &["one.run", "--data", "one", "--quiet"]].concat()).ok();
    let args = ["--data", "other", "--tokenizer", "one.run/tokenizer.json"];
    place.run(&[SHORT, &["other.run"], &args].concat()).ok();
    let [one, other] = ["one.run", "other.run"]
        .map(|run| fs::read_to_string(place.path(run).join("tokenizer.json")).unwrap());
    assert_eq!(one, other);
    place.write("more", "a quiz? ".repeat(50));
    let args = ["train", "--data", "more", "--tokenizer", "one.run/tokenizer.json"];
    place
        .run(&args)
        .failed(1, &["the vocabulary does not contain '?', 'q', 'u', 'z'; it contains"]);
}

#[test]
fn invalid_tokenizers_are_errors() {
    let place = Place::new();
    place.write("list.json", "[1, 2]");
    let run = |name: &str| place.run(&["train", "--preset", "tiny", "--tokenizer", name]);
    run("").failed(USAGE, &["one of char, byte, bpe:N"]);
    run("bpe").failed(USAGE, &["bpe needs a number of tokens, as in bpe:512"]);
    run("bpe:many").failed(USAGE, &["\"many\" is no number of tokens"]);
    run("bpe:100").failed(USAGE, &["a BPE vocabulary of 100 tokens is too small", "256"]);
    run("words").failed(1, &["cannot read words: ", "a tokenizer is char, byte, bpe:N"]);
    run("list.json").failed(1, &["no tokenizer: list.json: "]);
    assert!(!place.path("out").exists(), "no folder is created for an invalid tokenizer");
}

#[cfg(not(feature = "tokenizers"))]
#[test]
fn bpe_without_its_feature_is_an_error_that_names_it() {
    let place = Place::new();
    let said = [
        "needs the cargo feature `tokenizers`, and this build is without it. Build it with:",
        "cargo install --path train --features tokenizers",
    ];
    place.run(&["train", "--tokenizer", "bpe:512"]).failed(USAGE, &said);
    place.write("tokenizer.json", r#"{"version":"1.0","model":{"type":"BPE"}}"#);
    place.run(&["train", "--tokenizer", "tokenizer.json"]).failed(USAGE, &said);
    // A run of a build with the feature.
    place.run(&[SHORT, &["run", "--quiet"]].concat()).ok();
    let path = place.path("run/checkpoint.safetensors");
    let mut file = Checkpoint::load(&path).unwrap();
    file.note("tokenizer", &serde_json::json!({"version": "1.0", "model": {"type": "BPE"}}));
    file.save(&path).unwrap();
    place.run(&["sample", "--out", "run", "a"]).failed(1, &said);
}

#[cfg(feature = "tokenizers")]
#[test]
fn a_bpe_model_trains_resumes_samples_and_starts_others() {
    let place = Place::new();
    let ended = place.run(&[SHORT, &["run", "--tokenizer", "bpe:300"]].concat());
    assert!(ended.err.contains("tokens of 300 different ones (bpe:300)"), "{ended:?}");
    ended.ok();
    let (first, folder) = (done(&place, "run"), ["--out", "run"]);
    // A token is more than a byte, so a nat per token is less per byte.
    assert!(number(&first, "bits_per_byte") < 0.8 * number(&first, "val_loss") / 2f64.ln());
    let sample = [&["sample", "The naïve 語", "--tokens", "20"], &folder[..]].concat();
    assert!(place.run(&sample).ok().starts_with("The naïve 語"));
    place.run(&[&["resume"], &folder[..]].concat()).ok();
    assert_eq!(number(&done(&place, "run"), "val_loss"), number(&first, "val_loss"));
    // The same tokens by the file, and other steps.
    let file = ["--tokenizer", "run/tokenizer.json", "--quiet"];
    place.run(&[SHORT, &["again"], &file].concat()).ok();
    assert_eq!(number(&done(&place, "again"), "val_loss"), number(&first, "val_loss"));
    let tuned = ["train", "--init-from", "run", "--steps", "2", "--out", "tuned", "--quiet"];
    place.run(&[&tuned[..], &file[..2]].concat()).ok();
    let other = ["train", "--init-from", "run", "--tokenizer", "bpe:290", "--out", "no"];
    place.run(&other).failed(USAGE, &["--tokenizer is not that of run: bpe:300 with 300 tokens"]);
    assert!(fs::read_to_string(place.path("run/run.html")).unwrap().ends_with("</html>\n"));
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
        let args = ["--data", data, "--tokenizer", "the.json", "--out", out];
        place.run(&[&SHORT[..8], &["8"], &args].concat())
    };
    place.write("the", "the ".repeat(400).trim_end());
    learn("run", "the").ok();
    let sample = ["sample", "--out", "run", "the the", "--tokens", "2", "--temperature", "0"];
    assert_eq!(place.run(&sample).ok(), "the the the the\n");
    assert!(done(&place, "run")["lost_share"].is_null());
    // Of " cat the" the first word is lost.
    place.write("cat", "the cat ".repeat(400).trim_end());
    let said = "no bits per byte, since 50.63 % of the bytes do not come back from the tokens";
    let ended = learn("lossy", "cat");
    assert!(ended.out.contains(said) && ended.err.contains(said), "{ended:?}");
    assert!(place.run(&["evaluate", "--out", "lossy"]).ok().contains(said));
    let line = done(&place, "lossy");
    assert!(
        line["bits_per_byte"].is_null()
            && (number(&line, "lost_share") - 160.0 / 316.0).abs() < 1e-9
    );
    assert!(fs::read_to_string(place.path("lossy/run.html")).unwrap().contains(said));
    // No panic of the library is printed.
    let bad = words(&["[UNK]"]).replace(r#"WhitespaceSplit""#, r#"FixedLength","length":0"#);
    place.write("bad.json", bad);
    place
        .run(&["train", "--tokenizer", "bad.json"])
        .failed(1, &["no tokenizer: bad.json: the library"]);
}

#[test]
fn control_characters_are_printed_escaped() {
    let place = Place::new();
    place.write("text", "\u{1b}[31m\r\n\tred ".repeat(100));
    let ended = place.run(&[SHORT, &["\u{1b}run", "--data", "text"]].concat());
    let sample = ["sample", "--out", "\u{1b}run", "\u{1b}[31m\r\n\t", "--tokens", "40"];
    let (sample, missing) = (place.run(&sample), place.run(&["train", "--data", "\u{1b}[31m"]));
    let usage = place.run(&["train", "--steps", "\u{1b}[31m"]);
    assert!(sample.out.starts_with("\\u{1b}[31m\\r\n\t"), "{sample:?}");
    let shown = r"\u{1b}";
    for (ended, said) in [(ended, shown), (sample, shown), (missing, shown), (usage, "--steps")] {
        let text = ended.out + &ended.err;
        let is_raw = |c: char| c.is_control() && c != '\n' && c != '\t';
        assert!(!text.contains(is_raw) && text.contains(said), "{text:?}");
    }
}
