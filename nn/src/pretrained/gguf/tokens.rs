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
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;

/// The entries of a tokenizer.
pub(super) fn write(tokenizer: &Tokenizer) -> Result<Vec<(String, Value)>, ConfigError> {
    let separator = tokenizer.separator();
    let mut texts = Vec::new();
    #[allow(unused_mut, reason = "only Hugging Face's tokenizers have merges")]
    let mut merges: Option<Vec<String>> = None;
    match tokenizer {
        Tokenizer::Char(vocabulary) => {
            texts.extend(vocabulary.chars().iter().map(|c| escaped(c.to_string().as_bytes())));
        }
        Tokenizer::Byte { .. } => texts.extend((0..=255).map(|byte| escaped(&[byte]))),
        #[cfg(feature = "tokenizers")]
        Tokenizer::HuggingFace(_) => {
            let json = serde_json::from_str(&tokenizer.to_json()).unwrap_or_default();
            let (tokens, pairs) = byte_level_bpe(&json, tokenizer.vocab_size())?;
            texts = tokens;
            merges = Some(pairs);
        }
    }
    if merges.is_none() && separator.is_some() {
        texts.push(SEPARATOR.into());
    }
    let kind = |i: usize| i128::from(if Some(i as i64) == separator { CONTROL } else { NORMAL });
    let kinds = (0..texts.len()).map(kind).collect();
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
    all.extend(separator.map(|token| ("eos_token_id", Value::Integer(token.into()))));
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

/// The inverse of [`escaped`], of the escapes that llama.cpp knows.
fn unescaped(token: &str) -> Option<Vec<u8>> {
    let (mut out, mut rest) = (Vec::new(), token.bytes());
    while let Some(byte) = rest.next() {
        out.push(match (byte, byte == b'\\') {
            (byte, false) => byte,
            _ => match rest.next()? {
                b't' => b'\t',
                b'n' => b'\n',
                b'r' => b'\r',
                b'x' => {
                    let digits = [rest.next()?, rest.next()?];
                    u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?
                }
                other => other,
            },
        });
    }
    Some(out)
}

/// The tokens and merges of a `tokenizer.json` with byte-level BPE and GPT-2's division into words.
#[cfg_attr(not(feature = "tokenizers"), allow(dead_code))]
fn byte_level_bpe(json: &Json, size: usize) -> Result<(Vec<String>, Vec<String>), ConfigError> {
    let pre = &json["pre_tokenizer"];
    let is_gpt2 = json["model"]["type"] == "BPE"
        && json["normalizer"].is_null()
        && json["model"]["byte_fallback"] != true
        && pre["type"] == "ByteLevel"
        && pre["use_regex"] != false
        && pre["add_prefix_space"] != true;
    let Some(vocab) = json["model"]["vocab"].as_object().filter(|_| is_gpt2) else {
        return Err(ConfigError(
            "GGUF has no such tokenizer: this library exports characters, bytes, and byte-level BPE with \
             GPT-2's division into words (hint: train with --tokenizer char, byte or bpe:N)"
                .into(),
        ));
    };
    // Numbers without a token have a text that occurs in no other.
    let mut tokens: Vec<String> = (0..size).map(|i| format!("[unused{i}]")).collect();
    let added = json["added_tokens"].as_array().into_iter().flatten();
    let added = added.filter_map(|token| Some((token["content"].as_str()?, &token["id"])));
    for (text, id) in vocab.iter().map(|(text, id)| (text.as_str(), id)).chain(added) {
        if let Some(token) = id.as_u64().and_then(|id| tokens.get_mut(id as usize)) {
            *token = text.into();
        }
    }
    let merges = json["model"]["merges"].as_array().into_iter().flatten();
    let merges = merges.map(|merge| match merge {
        Json::Array(pair) => pair.iter().filter_map(Json::as_str).collect::<Vec<_>>().join(" "),
        text => text.as_str().unwrap_or_default().to_string(),
    });
    Ok((tokens, merges.collect()))
}

/// The tokenizer of a file, if it is of a kind that can be read.
pub(super) fn read(entries: &BTreeMap<String, Value>) -> Option<Tokenizer> {
    let entry = |name: &str| entries.get(&format!("tokenizer.ggml.{name}"));
    let Some(Value::Texts(texts)) = entry("tokens") else { return None };
    match entry("model")? {
        Value::Text(kind) if kind == "rwkv" => {
            let (texts, separated) = match texts.split_last() {
                Some((last, texts)) if last == SEPARATOR => (texts, true),
                _ => (&texts[..], false),
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
            let kinds = match entry("token_type") {
                Some(Value::Integers(kinds)) => &kinds[..],
                _ => &[],
            };
            let is_control = |i: usize| kinds.get(i) == Some(&CONTROL.into());
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
