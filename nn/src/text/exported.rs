//! Tokenizers of this crate in the format of Hugging Face's library.

use super::char_vocabulary::CharVocabulary;
use super::encoding::SEPARATOR;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// `tokenizer.json` of characters, or without a vocabulary of bytes.
pub(super) fn json(characters: Option<&CharVocabulary>, separator: Option<i64>) -> String {
    let (model, pre_tokenizer, decoder) = match characters {
        Some(vocabulary) => {
            let chars = vocabulary.chars().iter().map(char::to_string);
            let split = json!({
                "type": "Split", "pattern": { "Regex": r"[\s\S]" }, "behavior": "Isolated", "invert": false,
            });
            // The unknown token is none of the vocabulary: an error.
            let model =
                json!({ "type": "WordLevel", "vocab": numbered(chars), "unk_token": "<unk>" });
            (model, split, json!({ "type": "Fuse" }))
        }
        None => {
            let level = json!({
                "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false,
            });
            let chars = (0..=255).map(|byte| byte_char(byte).to_string());
            let model = json!({ "type": "BPE", "vocab": numbered(chars), "merges": [] });
            (model, level.clone(), level)
        }
    };
    let separator = separator.map(|id| {
        json!({
            "id": id, "content": SEPARATOR, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        })
    });
    let all = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": Vec::from_iter(separator), "normalizer": null,
        "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": decoder, "model": model,
    });
    format!("{all:#}\n")
}

/// The vocabulary of [`json`], none for bytes, and whether there is a separator.
pub(super) fn own(text: &str) -> Option<(Option<CharVocabulary>, bool)> {
    let value: Value = serde_json::from_str(text).ok()?;
    let vocab = value.pointer("/model/vocab")?.as_object()?;
    let separator = !value["added_tokens"].as_array()?.is_empty();
    let is_words = value["model"]["type"] == "WordLevel";
    let characters = is_words.then(|| CharVocabulary::of(vocab.keys().map(String::as_str)));
    let size = characters.as_ref().map_or(256, |vocabulary| vocabulary.chars().len() as i64);
    let same = json(characters.as_ref(), separator.then_some(size));
    (serde_json::from_str::<Value>(&same).ok()? == value).then_some((characters, separator))
}

/// Tokens with their numbers.
fn numbered(texts: impl Iterator<Item = String>) -> Value {
    texts.enumerate().map(|(i, text)| (text, i.into())).collect::<Map<String, Value>>().into()
}

/// The character that stands for a byte in the byte-level vocabularies of GPT-2: printable ones stand for themselves,
/// and the others are the characters from `U+0100` on.
pub(super) fn byte_char(byte: u8) -> char {
    static CHARS: LazyLock<[char; 256]> =
        LazyLock::new(|| std::array::from_fn(|i| char_of(i as u8)));
    CHARS[usize::from(byte)]
}

fn char_of(byte: u8) -> char {
    let is_printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..);
    match is_printable(&byte) {
        true => byte.into(),
        false => {
            let before = (0..byte).filter(|byte| !is_printable(byte)).count() as u32;
            char::from_u32(256 + before).expect("a letter of Latin Extended-A")
        }
    }
}
