//! What the library `tokenizers` does not check in a `tokenizer.json`, and what would end the process.

use super::error::TextError;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Display;

/// The most numbers that have no token, below the largest that has one: the library lists them.
const MOST_GAPS: u64 = 1 << 16;
/// The most times that a text may become longer.
const MOST_GROWTH: f64 = 1024.0;

pub(super) fn wrong(why: impl Display) -> TextError {
    TextError::NotATokenizer(why.to_string())
}

/// Checks a file before the library reads it.
pub(super) fn file(json: &Value) -> Result<(), TextError> {
    let mut known = BTreeMap::new();
    let vocab = json["model"]["vocab"].as_object();
    let tokens = vocab.map_or(0, |vocab| vocab.len());
    for (token, id) in vocab.into_iter().flatten() {
        let Some(id) = id.as_u64() else { continue };
        if id >= tokens as u64 + MOST_GAPS {
            return Err(wrong(format!(
                "the number {id} of a token is too large for {tokens} tokens"
            )));
        }
        // Only one of them would be saved.
        if let Some(other) = known.insert(id, token) {
            return Err(wrong(format!("the tokens {other:?} and {token:?} have the number {id}")));
        }
    }
    // The library cuts the second part of a merge at the length of the prefix, unchecked.
    let prefix = json["model"]["continuing_subword_prefix"].as_str().unwrap_or_default();
    for merge in json["model"]["merges"].as_array().into_iter().flatten() {
        let line = || merge.as_str().and_then(|line| Some(line.split_once(' ')?.1));
        if let Some(second) = merge[1].as_str().or_else(line).filter(|b| !b.starts_with(prefix)) {
            let why = "lacks the continuing_subword_prefix";
            return Err(wrong(format!("{second:?}, the second part of a merge, {why} {prefix:?}")));
        }
    }
    charsmaps(&json["normalizer"])
}

/// Checks that tables are not larger than what is stored: the library reserves the memory for them.
fn charsmaps(normalizer: &Value) -> Result<(), TextError> {
    if let Some(map) = normalizer["precompiled_charsmap"].as_str() {
        let bytes = base64::decode(map).unwrap_or_default();
        let (all, first) = (bytes.len(), bytes.first_chunk().copied().unwrap_or_default());
        let size = u32::from_le_bytes(first) as usize;
        if size > all {
            let why = "the precompiled_charsmap should have a table of";
            return Err(wrong(format!("{why} {size} bytes, and has {all}")));
        }
    }
    normalizer["normalizers"].as_array().into_iter().flatten().try_for_each(charsmaps)
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
        _ => 1.0,
    }
}
