//! Tokenizers of Hugging Face's library against its Python version, and BPE.

use proptest::prelude::*;
use retrograd_nn::checkpoint::Checkpoint;
use retrograd_nn::text::{
    Corpus, DecodeStream, Documents, Encoding, SEPARATOR, TextError, Tokenizer,
};
use serde_json::{Value, json};
use std::path::PathBuf;

fn fixture(name: &str) -> PathBuf {
    retrograd_support::fixture("tokenizers").join(name)
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
        let tokenizer = Tokenizer::load(fixture(&format!("{name}.json"))).unwrap();
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
            // Tokens that begin with whole characters stand for the bytes of their text.
            let mut at = 0;
            let starts = encoding.bytes.iter().enumerate().filter(|(_, bytes)| **bytes > 0);
            for (i, &bytes) in starts.filter(|_| name == "byte_level") {
                let rest = tokenizer.decode_stream_after(&ids[..i]);
                assert_eq!(rest_of(rest, &ids[i..]), text[at..], "{name}: {text:?}");
                at += bytes as usize;
            }
            // Token by token it is the same text.
            let parts = rest_of(tokenizer.decode_stream(), &ids);
            assert_eq!(case["back"], parts, "{name}: {text:?}");
        }
    }
}

/// Tokenizers that divide a text at letters, or must not.
fn divided_or_not() -> impl Iterator<Item = String> {
    let llama = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let qwen = llama.replace("{1,3}", "");
    let split = |pattern: &str| {
        let pattern = json!({ "Regex": pattern });
        json!({ "type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": false })
    };
    let byte_level = |prefix: bool, regex: bool| {
        let mut part: Value = serde_json::from_str(LEVEL).unwrap();
        (part["add_prefix_space"], part["use_regex"]) = (prefix.into(), regex.into());
        part
    };
    let digits = json!({ "type": "Digits", "individual_digits": true });
    let list = |parts: &[Value]| json!({ "type": "Sequence", "pretokenizers": parts });
    let rest = byte_level(false, false);
    let token = |text: &str, rstrip: bool| {
        let mut token = json!({ "id": 5, "content": text, "lstrip": true, "rstrip": rstrip });
        token["single_word"] = (text == "end").into();
        (token["normalized"], token["special"]) = (false.into(), true.into());
        json!([token])
    };
    let cases = [
        ("pre_tokenizer", byte_level(false, true)),
        ("pre_tokenizer", byte_level(true, true)),
        ("pre_tokenizer", rest.clone()),
        ("pre_tokenizer", list(&[digits, byte_level(false, true)])),
        ("pre_tokenizer", list(&[split(llama), rest.clone()])),
        ("pre_tokenizer", list(&[split(&qwen), rest.clone()])),
        ("pre_tokenizer", list(&[split("o w"), rest.clone()])),
        ("pre_tokenizer", list(&[rest, split(llama)])),
        ("added_tokens", token("end", false)),
        ("added_tokens", token("end", true)),
        ("added_tokens", token("o w", false)),
        ("normalizer", json!({ "type": "NFC" })),
        ("normalizer", json!({ "type": "Replace", "pattern": { "String": "o w" }, "content": "" })),
        ("post_processor", byte_level(true, true)),
    ];
    let own: Value = serde_json::from_str(&trained(320).to_json()).unwrap();
    cases.into_iter().map(move |(part, value)| {
        let mut json = own.clone();
        json[part] = value;
        json.to_string()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn long_texts_have_the_tokens_of_the_library(
        parts in prop::collection::vec("( |\n|\0|'|end|o|w|'re|1|9|é|e\u{301}|語|<){1,40}", 1..40),
    ) {
        let text = parts.concat();
        let text = text.repeat(10_000 / text.len() + 1);
        for json in divided_or_not() {
            let library = tokenizers::Tokenizer::from_bytes(&json).unwrap();
            let expected = library.encode(&*text, false).unwrap();
            let tokenizer = Tokenizer::from_json(&json).unwrap();
            let Encoding { tokens, bytes } = tokenizer.encode_with_bytes(&text).unwrap();
            let ids: Vec<u32> = tokens.iter().map(|&id| id as u32).collect();
            prop_assert!(ids == expected.get_ids(), "{json}");
            let mut done = 0;
            for (i, &(_, end)) in expected.get_offsets().iter().enumerate() {
                let end = if i + 1 < bytes.len() { end.max(done) } else { text.len() };
                prop_assert!(bytes[i] as usize == end - done, "{json}");
                done = end;
            }
            let decoded = library.decode(expected.get_ids(), false).unwrap();
            prop_assert!(tokenizer.decode(&tokens) == decoded, "{json}");
        }
    }
}

#[test]
fn training_gives_the_tokenizer_of_python() {
    let python = Tokenizer::load(fixture("byte_level.json")).unwrap();
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
fn options_of_a_file_that_change_encodings_are_switched_off() {
    let json = std::fs::read_to_string(fixture("byte_level.json")).unwrap();
    let mut json: Value = serde_json::from_str(&json).unwrap();
    json["truncation"] = serde_json::json!({
        "direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0
    });
    json["padding"] = serde_json::json!({
        "strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
        "pad_type_id": 0, "pad_token": SEPARATOR
    });
    json["model"]["dropout"] = 0.5.into();
    let tokenizer = Tokenizer::from_json(&json.to_string()).unwrap();
    assert_eq!(Tokenizer::from_json(&tokenizer.to_json()).unwrap(), tokenizer);
    let plain = Tokenizer::load(fixture("byte_level.json")).unwrap();
    for text in ["The", &text()] {
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

fn rest_of(mut stream: DecodeStream<'_>, ids: &[i64]) -> String {
    ids.iter().map(|&id| stream.step(id)).collect::<String>() + &stream.finish()
}

/// Marked words, bytes of `語` in two forms, other bytes, `U+FFFD` in two forms, and no text.
const PIECES: &str = "[UNK] ▁the the ##s cats e</w>nd</w> <0xE8> <0xAA> <0x9E> <0xFF> è ª ŀ ï¿½ \u{fffd} <pad> | \
    ▁ Ġa é ";

/// A `tokenizer.json` of these pieces as words, with another part.
fn file(part: &str, json: &str) -> String {
    let pieces = PIECES.split(' ').chain([" "]).zip(0..);
    let vocab: Value = pieces.map(|(piece, id)| (piece.to_string(), id)).collect();
    let mut file = json!({
        "version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"}
    });
    file[part] = serde_json::from_str(json).unwrap();
    file.to_string()
}

const MARKS: &str = r#"{"type":"Replace","pattern":{"String":"▁"},"content":" "}"#;
const STRIP: &str = r#"{"type":"Strip","content":" ","start":1,"stop":0}"#;
const PIECE: &str = r###"{"type":"WordPiece","prefix":"##","cleanup":true}"###;
const SPACE: &str = r#"{"type":"Metaspace","replacement":"▁","prepend_scheme":"always"}"#;
const LEVEL: &str =
    r#"{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}"#;
const SUFFIX: &str = r#"{"type":"BPEDecoder","suffix":"</w>"}"#;
const CTC: &str = r#"{"type":"CTC","pad_token":"<pad>","word_delimiter_token":"|","cleanup":true}"#;
const BYTES: &str = r#"{"type":"ByteFallback"}"#;
const FUSE: &str = r#"{"type":"Fuse"}"#;
const REGEX: &str = r#"{"type":"Replace","pattern":{"Regex":"s+$|^"},"content":"x"}"#;

const SINGLE: [&str; 9] = [PIECE, SPACE, LEVEL, SUFFIX, CTC, MARKS, BYTES, FUSE, STRIP];

/// The decoders of Llama, and unusual sequences.
const SEQUENCES: [&[&str]; 6] = [
    &[MARKS, BYTES, FUSE, STRIP],
    &[BYTES, SPACE],
    &[FUSE, REGEX],
    &[CTC, PIECE, CTC],
    &[SUFFIX, PIECE],
    &[MARKS, LEVEL, STRIP, STRIP, FUSE, SPACE],
];

fn sequence(list: &[&str]) -> String {
    format!(r#"{{"type":"Sequence","decoders":[{}]}}"#, list.join(","))
}

proptest! {
    #[test]
    fn streams_give_the_text_of_the_whole_after_any_prompt(
        ids in prop::collection::vec(0..22i64, 1..10),
        more in prop::collection::vec(0..22i64, 0..100),
        prompt in 0usize..120,
    ) {
        let ids = [ids, more].concat();
        let (before, new) = ids.split_at(prompt.min(ids.len()));
        let single = SINGLE.iter().copied().chain(["null"]).map(String::from);
        for decoder in single.chain(SEQUENCES.map(sequence)) {
            let json = file("decoder", &decoder);
            let tokenizer = Tokenizer::from_json(&json).unwrap();
            let whole = tokenizer.decode(&ids);
            let original = tokenizers::Tokenizer::from_bytes(&json).unwrap();
            let numbers: Vec<u32> = ids.iter().map(|&id| id as u32).collect();
            prop_assert_eq!(&original.decode(&numbers, false).unwrap(), &whole, "{}", decoder);
            prop_assert_eq!(&rest_of(tokenizer.decode_stream(), &ids), &whole, "{}", decoder);
            // What differs from the text of the prompt, which was printed before.
            let printed = tokenizer.decode(before);
            let same = printed.chars().zip(whole.chars()).take_while(|(a, b)| a == b);
            let same: usize = same.map(|(c, _)| c.len_utf8()).sum();
            let stream = tokenizer.decode_stream_after(before);
            prop_assert_eq!(rest_of(stream, new), &whole[same..], "{} {:?}", decoder, before);
        }
    }
}

#[test]
fn streams_return_text_at_once_and_do_not_grow() {
    let llama = sequence(SEQUENCES[0]);
    for decoder in SINGLE.iter().copied().chain(["null", &llama]) {
        let tokenizer = Tokenizer::from_json(&file("decoder", decoder)).unwrap();
        let mut stream = tokenizer.decode_stream();
        for id in [2, 4].repeat(200) {
            assert!(stream.step(id).ends_with(['e', 's']), "{decoder}");
        }
        assert!(format!("{stream:?}").len() < 700, "{stream:?}");
    }
}

#[test]
fn hostile_files_are_refused_or_harmless() {
    let many = |list: &str, part: &str| {
        format!(r#"{{"type":"Sequence","{list}":[{}]}}"#, [part; 24].join(","))
    };
    let map = |map| format!(r#"{{"type":"Precompiled","precompiled_charsmap":"{map}"}}"#);
    let bpe = |vocab: &str, prefix: &str| {
        format!(
            r#"{{"type":"BPE","vocab":{vocab},"merges":[["a","b"]],
                "continuing_subword_prefix":"{prefix}"}}"#
        )
    };
    let double = r#"{"type":"Replace","pattern":{"String":"a"},"content":"aa"}"#;
    let spaces = r#"{"type":"BPEDecoder","suffix":""}"#;
    let prepend = format!(r#"{{"type":"Prepend","prepend":"{}"}}"#, "a".repeat(2000));
    let (long, panicked) = ("times as long", "the library `tokenizers` failed");
    for (part, json, said) in [
        ("normalizer", map(""), panicked),
        ("normalizer", map("AAAAAA=="), panicked),
        ("normalizer", map("/////w=="), "a table of 4294967295"),
        ("normalizer", many("normalizers", double), long),
        ("normalizer", many("normalizers", r#"{"type":"ByteLevel"}"#), long),
        ("normalizer", many("normalizers", r#"{"type":"NFKD"}"#), ""),
        ("normalizer", prepend, long),
        ("pre_tokenizer", many("pretokenizers", LEVEL), long),
        ("pre_tokenizer", r#"{"type":"FixedLength","length":0}"#.into(), panicked),
        ("decoder", many("decoders", double), long),
        ("decoder", many("decoders", spaces), long),
        ("decoder", STRIP.replace('0', "5"), ""),
        ("decoder", SUFFIX.into(), ""),
        ("model", bpe(r#"{"a":0,"b":1,"ab":2}"#, "##"), "lacks the continuing_subword_prefix"),
        ("model", bpe(r#"{"a":0,"b":1,"ab":1}"#, ""), r#""ab" and "b" have the number 1"#),
        (
            "model",
            bpe(r#"{"a":0,"b":1,"ab":99999}"#, ""),
            "99999 of a token is too large for 3 tokens",
        ),
    ] {
        let made = Tokenizer::from_json(&file(part, &json));
        let error = made.as_ref().err().map(TextError::to_string).unwrap_or_default();
        assert!(error.contains(said) && made.is_ok() == said.is_empty(), "{said}: {error}");
        if let Ok(tokenizer) = made {
            let texts = [&[][..], &[20], &[19, 20, 2]].map(|ids| tokenizer.decode(ids));
            assert!(texts[0].is_empty() && texts[2].ends_with("the"), "{texts:?}");
        }
    }
}

#[test]
fn labels_show_marks_and_bytes() {
    let labels = |json: &str| {
        let tokenizer = Tokenizer::from_json(json).unwrap();
        [1, 2, 3, 6, 10, 18].map(|id| tokenizer.label(id))
    };
    assert_eq!(labels(&file("decoder", SPACE)), ["▁the", "the", "##s", "<0xE8>", "è", "Ġa"]);
    assert_eq!(labels(&file("decoder", LEVEL)), ["▁the", "the", "##s", "<0xE8>", "<0xE8>", " a"]);
}

#[test]
fn bits_per_byte_need_a_text_that_comes_back() {
    let words = file("decoder", PIECE);
    let small = file("normalizer", r#"{"type":"Lowercase"}"#);
    let drops = file(
        "model",
        r#"{"type":"BPE","vocab":{"t":0,"h":1,"e":2,"the":3,"th":4},"merges":["t h","th e"]}"#,
    );
    let load = |json: &str| Tokenizer::from_json(json).unwrap();
    let fixture = |name| Tokenizer::load(fixture(name)).unwrap();
    for (tokenizer, text, lost) in [
        (fixture("byte_level.json"), text(), 0),
        (fixture("metaspace.json"), text(), 0),
        (load(&words), "the cats the cats".into(), 0),
        (load(&words), "the dogs the  cats".into(), " dogs  cats".len()),
        (load(&small), "the The the".into(), " The".len()),
        (load(&drops), "the axe the".into(), " axe".len()),
    ] {
        let corpus = Corpus::new(&Documents::of(text.as_str()), 1.0, &tokenizer).unwrap();
        let bytes: u64 = corpus.windows(3).iter().map(|window| window.bytes).sum();
        assert_eq!(corpus.lost_share(), lost as f64 / bytes as f64, "{tokenizer:?}: {text}");
    }
}
