//! What the library `tokenizers` does not check in a `tokenizer.json`, and what would end the process.

use super::error::TextError;
use serde_json::Value;
use std::collections::BTreeMap;
use tokenizers::Tokenizer;

/// Numbers of tokens are below it: the library lists all numbers between them that have no token.
const MOST_TOKENS: u64 = 1 << 24;
/// The most times that a text may become longer.
const MOST_GROWTH: f64 = 1024.0;

fn wrong(why: String) -> TextError {
    TextError::NotATokenizer(why)
}

/// Checks a file before the library reads it.
pub(super) fn file(json: &Value) -> Result<(), TextError> {
    let model = &json["model"];
    let ids = model["vocab"].as_object().into_iter().flat_map(|vocab| vocab.values());
    if let Some(id) = ids.filter_map(Value::as_u64).find(|&id| id >= MOST_TOKENS) {
        return Err(wrong(format!("the number {id} of a token is not below {MOST_TOKENS}")));
    }
    // The library cuts the second part of a merge at the length of the prefix, whatever it begins with.
    let prefix = model["continuing_subword_prefix"].as_str().unwrap_or_default();
    for merge in model["merges"].as_array().into_iter().flatten() {
        let parts = match merge.as_str() {
            Some(line) => line.split_once(' '),
            None => merge[0].as_str().zip(merge[1].as_str()),
        };
        if let Some((a, b)) = parts.filter(|(_, b)| !b.starts_with(prefix)) {
            return Err(wrong(format!(
                "the merge of {a:?} and {b:?} lacks the continuing_subword_prefix {prefix:?}"
            )));
        }
    }
    charsmaps(&json["normalizer"])
}

/// Checks that tables are not larger than what is stored: the library reserves the memory for them.
fn charsmaps(normalizer: &Value) -> Result<(), TextError> {
    if let Some(map) = normalizer["precompiled_charsmap"].as_str() {
        let bytes = base64(map);
        let size = bytes.first_chunk().map_or(0, |&first| u32::from_le_bytes(first) as usize);
        if size > bytes.len() {
            return Err(wrong(format!(
                "the precompiled_charsmap of {} bytes should have a table of {size}",
                bytes.len()
            )));
        }
    }
    normalizer["normalizers"].as_array().into_iter().flatten().try_for_each(charsmaps)
}

/// Up to the first character that is not of Base64.
fn base64(text: &str) -> Vec<u8> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for c in text.bytes() {
        let digit = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => break,
        };
        (bits, count) = (bits << 6 | u32::from(digit), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

/// Checks that no two tokens have one number: only one of them would be saved.
pub(super) fn ids(tokenizer: &Tokenizer) -> Result<(), TextError> {
    let mut tokens: Vec<(String, u32)> = tokenizer.get_vocab(true).into_iter().collect();
    tokens.sort();
    let mut known = BTreeMap::new();
    for (token, id) in &tokens {
        if let Some(other) = known.insert(id, token) {
            return Err(wrong(format!("the tokens {other:?} and {token:?} have the number {id}")));
        }
    }
    Ok(())
}

/// Checks how much longer a text can become, of the JSON as the library writes it.
pub(super) fn growth(json: &Value) -> Result<(), TextError> {
    let before = growth_of(&json["normalizer"]) * growth_of(&json["pre_tokenizer"]);
    let after = growth_of(&json["decoder"]);
    let whose = [("normalizer and pre_tokenizer", before), ("decoder", after)];
    match whose.into_iter().find(|&(_, times)| times > MOST_GROWTH) {
        Some((name, times)) => Err(wrong(format!(
            "its {name} can make a text {times:.1e} times as long, more than {MOST_GROWTH} times"
        ))),
        None => Ok(()),
    }
}

/// The most times that a part makes a text longer, in bytes. Tables of Unicode are not counted: what they have
/// replaced stays the same when they are applied again.
fn growth_of(part: &Value) -> f64 {
    let text = |key: &str| part[key].as_str().unwrap_or_default();
    let length = |key: &str| text(key).len() as f64;
    match text("type") {
        "Sequence" => {
            let lists = ["normalizers", "pretokenizers", "decoders"];
            lists.iter().filter_map(|list| part[list].as_array()).flatten().map(growth_of).product()
        }
        "Replace" => match part["pattern"]["String"].as_str() {
            Some(from) if !from.is_empty() => (length("content") / from.len() as f64).max(1.0),
            // A regular expression may match between any two characters.
            _ => 1.0 + length("content"),
        },
        "Prepend" => 1.0 + length("prepend"),
        "Metaspace" => 1.0 + length("replacement"),
        "ByteLevel" => 2.0,
        "BPEDecoder" if length("suffix") == 0.0 => 2.0,
        "CTC" if length("word_delimiter_token") == 0.0 => 2.0,
        // The texts of the table end in 0.
        "Precompiled" => {
            let table = base64(text("precompiled_charsmap"));
            table.split(|&byte| byte == 0).map(|text| text.len() as f64).fold(1.0, f64::max)
        }
        _ => 1.0,
    }
}
