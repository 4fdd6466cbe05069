//! Tokenizers of Hugging Face's library against its Python version, and BPE.

use retrograd_nn::checkpoint::Checkpoint;
use retrograd_nn::text::{Corpus, Documents, SEPARATOR, TextError, Tokenizer};
use serde_json::Value;
use std::path::PathBuf;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/tokenizers").join(name)
}

fn text() -> String {
    std::fs::read_to_string(fixture("text.txt")).unwrap()
}

fn trained(vocab_size: usize) -> Tokenizer {
    Tokenizer::train_bpe([text().as_str()], vocab_size, &[SEPARATOR]).unwrap()
}

#[test]
fn encodes_and_decodes_as_in_python() {
    let encoded = std::fs::read_to_string(fixture("encoded.json")).unwrap();
    let encoded: Value = serde_json::from_str(&encoded).unwrap();
    for name in ["byte_level", "metaspace"] {
        let tokenizer = Tokenizer::load(&fixture(&format!("{name}.json"))).unwrap();
        assert_eq!(tokenizer.kind(), "BPE");
        assert_eq!(encoded[name]["vocab_size"], tokenizer.vocab_size());
        let cases = encoded[name]["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 6);
        for case in cases {
            let text = case["text"].as_str().unwrap();
            let encoding = tokenizer.encode_with_bytes(text).unwrap();
            let ids: Vec<i64> =
                case["ids"].as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect();
            assert_eq!(encoding.tokens, ids, "{name}: {text:?}");
            assert_eq!(encoding.bytes.iter().sum::<u32>() as usize, text.len(), "{name}: {text:?}");
            assert_eq!(case["back"], tokenizer.decode(&ids), "{name}: {text:?}");
            // Token by token it is the same text.
            let mut stream = tokenizer.decode_stream();
            let mut parts: String = ids.iter().map(|&id| stream.step(id)).collect();
            parts += &stream.finish();
            assert_eq!(case["back"], parts, "{name}: {text:?}");
        }
    }
}

#[test]
fn training_gives_the_tokenizer_of_python() {
    let python = Tokenizer::load(&fixture("byte_level.json")).unwrap();
    let (ours, python) = (trained(320).to_json(), python.to_json());
    let parts = |json: &str| serde_json::from_str::<Value>(json).unwrap()["model"].clone();
    assert_eq!(parts(&ours)["merges"], parts(&python)["merges"]);
    assert_eq!(parts(&ours)["vocab"], parts(&python)["vocab"]);
}

#[test]
fn any_text_survives_bpe_and_the_separator_is_one_token() {
    let tokenizer = trained(300);
    assert_eq!((tokenizer.vocab_size(), tokenizer.separator()), (300, Some(0)));
    for text in ["", "the cat", "\u{0}\r\n\t 語🦊é", "e\u{301} ﬁ \u{a0}\u{200b}"] {
        assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()), text);
    }
    // A vocabulary of bytes alone, and one that the text is too short for.
    let tokens = trained(257).encode("the cat").unwrap();
    assert_eq!(tokens.len(), "the cat".len());
    let most = trained(100_000).vocab_size();
    assert!((320..1000).contains(&most), "{most}");
    let error = Tokenizer::train_bpe(["a"], 256, &[SEPARATOR]).unwrap_err().to_string();
    assert!(error.contains("256 tokens is too small") && error.contains("257"), "{error}");
}

#[test]
fn tokenizers_are_saved_in_files_and_checkpoints() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("tokenizer.json");
    let tokenizer = trained(300);
    tokenizer.save(&path).unwrap();
    assert_eq!(Tokenizer::load(&path).unwrap(), tokenizer);
    let mut file = Checkpoint::new();
    file.note("tokenizer", &tokenizer);
    let path = folder.path().join("checkpoint.safetensors");
    file.save(&path).unwrap();
    let back: Tokenizer = Checkpoint::load(&path).unwrap().read_note("tokenizer").unwrap();
    assert_eq!(back, tokenizer);
    assert_ne!(trained(290), tokenizer);
    let error = Tokenizer::from_json(r#"{"model":{"type":"LSTM"}}"#).unwrap_err();
    assert!(matches!(error, TextError::NotATokenizer(_)), "{error}");
}

#[test]
fn padding_and_truncation_of_a_file_are_switched_off() {
    let json = std::fs::read_to_string(fixture("byte_level.json")).unwrap();
    let mut json: Value = serde_json::from_str(&json).unwrap();
    json["truncation"] = serde_json::json!({
        "direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0
    });
    json["padding"] = serde_json::json!({
        "strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
        "pad_type_id": 0, "pad_token": SEPARATOR
    });
    let tokenizer = Tokenizer::from_json(&json.to_string()).unwrap();
    let plain = Tokenizer::load(&fixture("byte_level.json")).unwrap();
    for text in ["The", "where the rat sat on the mat"] {
        assert_eq!(tokenizer.encode(text).unwrap(), plain.encode(text).unwrap());
    }
}

#[test]
fn corpora_of_any_tokenizer_have_the_same_held_out_bytes() {
    let documents = Documents::of(text()).split("\n");
    let byte_counts = |tokenizer: &Tokenizer| {
        let corpus = Corpus::new(&documents, 0.3, tokenizer).unwrap();
        let first = tokenizer.decode(&corpus.held_out()[..1]).len() as u64;
        first + corpus.windows(7).iter().map(|w| w.bytes).sum::<u64>()
    };
    let bytes = byte_counts(&Tokenizer::bytes().with_separator());
    assert_eq!(byte_counts(&Tokenizer::chars(documents.texts()).with_separator()), bytes);
    assert_eq!(byte_counts(&trained(300)), bytes);
}
