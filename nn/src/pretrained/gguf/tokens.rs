//! Tokenizers in GGUF, as llama.cpp reads them.
//!
//! Characters and bytes are a vocabulary of the kind `rwkv`, which takes the longest token that the text continues with:
//! as no token is the beginning of another, that is exact. Byte-level BPE is of the kind `gpt2`.

use super::file::Value;
use crate::config_error::ConfigError;
use crate::text::{SEPARATOR, Tokenizer};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// The types of tokens.
const NORMAL: i64 = 1;
const CONTROL: i64 = 3;
const UNUSED: i64 = 5;

/// The entries of a tokenizer, for so many rows of the embedding.
pub(super) fn write(
    tokenizer: &Tokenizer,
    rows: usize,
) -> Result<Vec<(String, Value)>, ConfigError> {
    let separator = tokenizer.separator();
    let own =
        |texts: Vec<String>| (texts, Vec::from_iter(separator), None::<Vec<String>>, separator);
    // The tokens, those that are no text, the merges, and the token that ends a text.
    let (mut texts, special, merges, end) = match tokenizer {
        Tokenizer::Char(vocabulary) => {
            own(vocabulary.chars().iter().map(|c| escaped(c.to_string().as_bytes())).collect())
        }
        Tokenizer::Byte { .. } => own((0..=255).map(|byte| escaped(&[byte])).collect()),
        #[cfg(feature = "tokenizers")]
        Tokenizer::HuggingFace(_) => {
            let json = serde_json::from_str(&tokenizer.to_json()).unwrap_or_default();
            let (texts, special, pairs) = byte_level_bpe(&json, tokenizer.vocab_size())?;
            // Without one, llama.cpp takes the token 11, a comma: no text in UTF-8 has the byte 255.
            let unused = || texts.iter().position(|token| token == "ÿ").map(|i| i as i64);
            let end = separator.or_else(unused);
            (texts, special, Some(pairs), end)
        }
    };
    if merges.is_none() && separator.is_some() {
        texts.push(SEPARATOR.into());
    }
    let kind = |i: usize| match texts.get(i) {
        Some(_) if special.contains(&(i as i64)) => CONTROL,
        Some(_) => NORMAL,
        None => UNUSED,
    };
    let kinds = (0..rows).map(kind).collect();
    texts.extend((texts.len()..rows).map(|i| format!("[PAD{i}]")));
    let model = if merges.is_some() { "gpt2" } else { "rwkv" };
    let mut all = vec![
        ("model", Value::Text(model.into())),
        ("tokens", Value::Texts(texts)),
        ("token_type", Value::Integers(kinds)),
        ("add_bos_token", Value::Bool(false)),
        ("add_space_prefix", Value::Bool(false)),
    ];
    if let Some(pairs) = merges {
        all.extend([("pre", Value::Text("gpt-2".into())), ("merges", Value::Texts(pairs))]);
    }
    all.extend(end.map(|token| ("eos_token_id", Value::Integer(token))));
    Ok(all.into_iter().map(|(name, value)| (format!("tokenizer.ggml.{name}"), value)).collect())
}

/// Bytes as a token of an `rwkv` vocabulary: all that are not letters or digits are escaped.
fn escaped(bytes: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric();
    let text = |byte: &u8| match plain(byte) {
        true => char::from(*byte).to_string(),
        false => format!("\\x{byte:02x}"),
    };
    bytes.iter().map(text).collect()
}

/// The inverse of [`escaped`].
fn unescaped(token: &str) -> Option<Vec<u8>> {
    let (mut out, mut rest) = (Vec::new(), token);
    while let Some(first) = rest.bytes().next() {
        match rest.strip_prefix("\\x") {
            Some(digits) => {
                out.push(u8::from_str_radix(digits.get(..2)?, 16).ok()?);
                rest = &digits[2..];
            }
            None => {
                out.push(first);
                rest = rest.get(1..)?;
            }
        }
    }
    Some(out)
}

/// Tokens, those that are special, and merges.
#[cfg(feature = "tokenizers")]
type Bpe = (Vec<String>, Vec<i64>, Vec<String>);

/// Those of a `tokenizer.json` with byte-level BPE and GPT-2's division into words.
#[cfg(feature = "tokenizers")]
fn byte_level_bpe(json: &Json, size: usize) -> Result<Bpe, ConfigError> {
    let (model, pre) = (&json["model"], &json["pre_tokenizer"]);
    let is_empty = |name: &str| model[name].is_null() || model[name] == "";
    let is_gpt2 = model["type"] == "BPE"
        && json["normalizer"].is_null()
        && model["byte_fallback"] != true
        && model["ignore_merges"] != true
        && is_empty("continuing_subword_prefix")
        && is_empty("end_of_word_suffix")
        && pre["type"] == "ByteLevel"
        && pre["use_regex"] != false
        && pre["add_prefix_space"] != true;
    let Some(vocab) = model["vocab"].as_object().filter(|_| is_gpt2) else {
        return Err(ConfigError(
            "llama.cpp has no such tokenizer: exported are characters, bytes, and byte-level BPE with \
             GPT-2's division into words (hint: train with --tokenizer char, byte or bpe:N)"
                .into(),
        ));
    };
    // Numbers without a token have a text that occurs in no other.
    let mut tokens: Vec<String> = (0..size).map(|i| format!("[unused{i}]")).collect();
    let mut special = Vec::new();
    let added = json["added_tokens"].as_array().into_iter().flatten();
    let added = added.filter_map(|token| {
        Some((token["content"].as_str()?, &token["id"], token["special"] == true))
    });
    let vocab = vocab.iter().map(|(text, id)| (text.as_str(), id, false));
    for (text, id, is_special) in vocab.chain(added) {
        let id = id.as_i64().unwrap_or(-1);
        if let Some(token) = usize::try_from(id).ok().and_then(|id| tokens.get_mut(id)) {
            *token = text.into();
            special.extend(is_special.then_some(id));
        }
    }
    let merges = model["merges"].as_array().into_iter().flatten();
    let merges = merges.map(|merge| match merge {
        Json::Array(pair) => pair.iter().filter_map(Json::as_str).collect::<Vec<_>>().join(" "),
        text => text.as_str().unwrap_or_default().to_string(),
    });
    Ok((tokens, special, merges.collect()))
}

/// The tokenizer of a file, if it is of a kind that can be read.
pub(super) fn read(entries: &BTreeMap<String, Value>) -> Option<Tokenizer> {
    let entry = |name: &str| entries.get(&format!("tokenizer.ggml.{name}"));
    let Some(Value::Texts(texts)) = entry("tokens") else { return None };
    let Some(Value::Integers(kinds)) = entry("token_type") else { return None };
    let used = kinds.iter().rposition(|&kind| kind != UNUSED).map_or(0, |last| last + 1);
    let texts = texts.get(..used)?;
    match entry("model")? {
        Value::Text(kind) if kind == "rwkv" => {
            let (texts, separated) = match texts.split_last() {
                Some((last, texts)) if last == SEPARATOR => (texts, true),
                _ => (texts, false),
            };
            let bytes: Vec<Vec<u8>> =
                texts.iter().map(|text| unescaped(text)).collect::<Option<_>>()?;
            let is_bytes = (0..=255).map(|byte| vec![byte]).eq(bytes.iter().cloned());
            let tokenizer = match is_bytes {
                true => Tokenizer::bytes(),
                false => {
                    let text = bytes.iter().map(|bytes| str::from_utf8(bytes).ok());
                    let text: Vec<&str> = text.collect::<Option<_>>()?;
                    let tokenizer = Tokenizer::chars(text.iter().copied());
                    // In the order of characters, each once.
                    let Tokenizer::Char(vocabulary) = &tokenizer else { return None };
                    let chars = vocabulary.chars().iter().map(char::to_string);
                    chars.eq(text.iter().map(|c| c.to_string())).then_some(())?;
                    tokenizer
                }
            };
            Some(if separated { tokenizer.with_separator() } else { tokenizer })
        }
        Value::Text(kind) if kind == "gpt2" => {
            let Some(Value::Text(pre)) = entry("pre") else { return None };
            let Some(Value::Texts(merges)) = entry("merges") else { return None };
            let is_control = |i: usize| kinds.get(i) == Some(&CONTROL);
            (pre == "gpt-2").then_some(())?;
            let vocab: serde_json::Map<String, Json> =
                texts.iter().enumerate().map(|(i, text)| (text.clone(), i.into())).collect();
            let special =
                texts.iter().enumerate().filter(|(i, _)| is_control(*i)).map(|(i, text)| {
                    json!({ "id": i, "content": text, "single_word": false, "lstrip": false,
                        "rstrip": false, "normalized": false, "special": true })
                });
            let level = json!({
                "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
                "use_regex": true,
            });
            let json = json!({
                "version": "1.0",
                "added_tokens": special.collect::<Vec<_>>(),
                "pre_tokenizer": level, "post_processor": level, "decoder": level,
                "model": { "type": "BPE", "vocab": vocab, "merges": merges },
            });
            Tokenizer::from_json(&json.to_string()).ok()
        }
        _ => None,
    }
}
