//! Tokenizers of Hugging Face's library.

use super::encoding::{Encoding, SEPARATOR};
use super::error::TextError;
use super::exported::byte_char;
use super::file_checks::{self as checks, wrong};
use serde_json::Value;
use std::cell::Cell;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Once};
use std::{fmt, iter, slice};
use tokenizers::decoders::DecoderWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::models::{ModelWrapper, TrainerWrapper};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer};

/// Tokens that end a text, in vocabularies that are in use.
const ENDS: [&str; 4] = [SEPARATOR, "<|end_of_text|>", "<eos>", "</s>"];

/// The bytes of a text that are encoded at a time, and tokens that are decoded, if [these are the same](is_divisible):
/// the library holds up to 270 bytes for each.
const PIECE: usize = 4096;

/// The pattern of the pre-tokenizers of Qwen 2 and, with `\p{N}{1,3}`, of Llama 3.
const LLAMA: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|",
    r"\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// A tokenizer of Hugging Face's library: trained by
/// [`Tokenizer::train_bpe`](super::Tokenizer::train_bpe), or from a `tokenizer.json`. Padding and
/// truncation are switched off. Needs the feature `tokenizers`.
#[derive(Clone)]
pub struct HuggingFace {
    tokenizer: Arc<Tokenizer>,
    json: Arc<str>,
    vocab_size: usize,
    /// How much is encoded or decoded at a time.
    piece: usize,
}

impl fmt::Debug for HuggingFace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} tokens", self.kind(), self.vocab_size)
    }
}

impl PartialEq for HuggingFace {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

/// An error of the library as an error of this crate.
fn failed(e: tokenizers::Error) -> TextError {
    TextError::Tokenizer(e.to_string())
}

impl HuggingFace {
    pub(super) fn train_bpe<'a>(
        texts: impl IntoIterator<Item = &'a str>,
        vocab_size: usize,
        special: &[&str],
    ) -> Result<HuggingFace, TextError> {
        let token = |&text: &&str| AddedToken::from(text, true);
        let trainer = BpeTrainerBuilder::new()
            .show_progress(false)
            .vocab_size(vocab_size)
            .min_frequency(2)
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .special_tokens(special.iter().map(token).collect())
            .build();
        let mut tokenizer = Tokenizer::new(BPE::default());
        let byte_level = ByteLevel::new(false, false, true);
        tokenizer
            .with_pre_tokenizer(Some(byte_level))
            .with_post_processor(Some(byte_level))
            .with_decoder(Some(byte_level));
        // Collected, because the library takes iterators that can be sent to another thread.
        let texts: Vec<&str> = texts.into_iter().collect();
        let mut trainer = TrainerWrapper::BpeTrainer(trainer);
        tokenizer.train(&mut trainer, texts.into_iter()).map_err(failed)?;
        // Read again, so that a trained tokenizer equals the one that is loaded from its file.
        HuggingFace::from_json(&tokenizer.to_string(false).map_err(failed)?)
    }

    pub(super) fn from_json(json: &str) -> Result<HuggingFace, TextError> {
        let mut value: Value = serde_json::from_str(json).map_err(wrong)?;
        // Encoding is a function of the text.
        for (pointer, of) in [("", "padding"), ("", "truncation"), ("/model", "dropout")] {
            if let Some(option) = value.pointer_mut(pointer).and_then(|part| part.get_mut(of)) {
                *option = Value::Null;
            }
        }
        checks::file(&value)?;
        let read =
            |json: &str| guarded(|| Tokenizer::from_bytes(json)).map_err(wrong)?.map_err(wrong);
        let mut tokenizer = read(&value.to_string())?;
        let saved = tokenizer.to_string(false).map_err(wrong)?;
        // What is used is what will be loaded again.
        if saved != json {
            tokenizer = read(&saved)?;
        }
        let value = serde_json::from_str(&saved).map_err(wrong)?;
        checks::growth(&value)?;
        let piece = if is_divisible(&value) { PIECE } else { usize::MAX };
        // Some invalid tables are noticed only when they are used.
        guarded(|| tokenizer.encode("A trial, naïve 語 12!\n", false).is_ok()).map_err(wrong)?;
        let vocab_size = tokenizer.get_vocab(true).values().max().map_or(0, |&id| id as usize + 1);
        Ok(HuggingFace { tokenizer: Arc::new(tokenizer), json: saved.into(), vocab_size, piece })
    }

    pub(super) fn json(&self) -> &str {
        &self.json
    }

    pub(super) fn kind(&self) -> &'static str {
        match self.tokenizer.get_model() {
            ModelWrapper::BPE(_) => "BPE",
            ModelWrapper::WordPiece(_) => "WordPiece",
            ModelWrapper::WordLevel(_) => "WordLevel",
            ModelWrapper::Unigram(_) => "Unigram",
        }
    }

    pub(super) fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    pub(super) fn separator(&self) -> Option<i64> {
        ENDS.iter().find_map(|end| self.tokenizer.token_to_id(end)).map(i64::from)
    }

    pub(super) fn encode(&self, text: &str) -> Result<Encoding, TextError> {
        let is_space = |byte: u8| byte == b' ' || byte.is_ascii_control();
        let all = text.as_bytes();
        let begins = |at: usize| all[at - 1].is_ascii_alphabetic() && is_space(all[at]);
        let (mut tokens, mut bytes, mut done) = (vec![], vec![], 0);
        for Range { start, end } in pieces(all.len(), self.piece, begins) {
            let piece = &text[start..end];
            let encoding = guarded(|| self.tokenizer.encode(piece, false))?.map_err(failed)?;
            tokens.extend(encoding.get_ids().iter().map(|&id| i64::from(id)));
            // Parts of a character have its whole range; normalised text may lack some ranges. Here every
            // byte belongs to one token, so that sums over a text are its length.
            for &(_, end) in encoding.get_offsets() {
                let end = (start + end).max(done);
                bytes.push((end - done) as u32);
                done = end;
            }
        }
        if let Some(last) = bytes.last_mut() {
            *last += (text.len() - done) as u32;
        }
        Ok(Encoding { tokens, bytes })
    }

    pub(super) fn decode(&self, tokens: &[i64]) -> String {
        // Of bytes, a token that begins with an ASCII character continues no other character.
        let begins = |at: usize| {
            let token = self.token(tokens[at]);
            token.is_some_and(|text| text.starts_with(|c: char| c.is_ascii_graphic()))
        };
        let decode = |piece: Range<usize>| {
            let tokens = &tokens[piece];
            let ids: Vec<u32> = tokens.iter().map(|&token| token as u32).collect();
            // Some decoders panic, without tokens or if a piece is shorter than what they strip.
            match guarded(|| self.tokenizer.decode(&ids, false)) {
                Ok(Ok(text)) => text,
                _ => tokens.iter().filter_map(|&token| self.token(token)).collect(),
            }
        };
        pieces(tokens.len(), self.piece, begins).map(decode).collect()
    }

    /// The text of a token in the vocabulary. Some numbers may have none.
    pub(super) fn token(&self, token: i64) -> Option<String> {
        self.tokenizer.id_to_token(token as u32)
    }

    fn decoders(&self) -> Vec<&DecoderWrapper> {
        fn parts(decoder: &DecoderWrapper) -> Vec<&DecoderWrapper> {
            match decoder {
                DecoderWrapper::Sequence(list) => {
                    list.get_decoders().iter().flat_map(parts).collect()
                }
                decoder => vec![decoder],
            }
        }
        self.tokenizer.get_decoder().map(parts).unwrap_or_default()
    }

    /// Whether the next token may change the text of tokens before it. What a run of bytes means is known when
    /// it has ended; some decoders, and unusual sequences of them, need the whole text.
    pub(super) fn is_open(&self, tokens: &[i64]) -> bool {
        use DecoderWrapper as D;
        let decoders = self.decoders();
        let mut texts = tokens.iter().rev().filter_map(|&token| self.token(token));
        let last = texts.next().unwrap_or_default();
        // From here on there is one piece, of the whole text.
        let joined = decoders.iter().position(|d| matches!(d, D::Fuse(_) | D::ByteLevel(_)));
        let joined = joined.unwrap_or(decoders.len());
        let no_byte = |d: &&D| matches!(d, D::Replace(replace) if replace.content.contains(' '));
        let is_open = |(i, decoder): (usize, &&D)| match decoder {
            D::Fuse(_) => false,
            D::Strip(strip) => strip.stop > 0,
            D::ByteLevel(_) => i > joined,
            D::ByteFallback(_) => {
                !decoders[..i].iter().all(no_byte) || last.len() == 6 && last.starts_with("<0x")
            }
            // In a token that is not the last one, every suffix is a space.
            D::BPE(bpe) => {
                decoders.len() > 1 || last.trim_end_matches(&bpe.suffix).contains(&bpe.suffix)
            }
            _ => i > joined,
        };
        decoders.iter().enumerate().any(is_open)
    }

    /// The bytes of a token, if the tokenizer has a token for each byte of the text, of which each is a
    /// [character](byte_char). A token with other characters is its text.
    pub(super) fn bytes(&self, token: &str) -> Option<Vec<u8>> {
        let byte = |c: char| (0..=255).find(|&byte| byte_char(byte) == c);
        let is_level = |d: &&DecoderWrapper| matches!(d, DecoderWrapper::ByteLevel(_));
        let bytes = || token.chars().map(byte).collect::<Option<_>>();
        self.decoders().iter().any(is_level).then(|| bytes().unwrap_or_else(|| token.into()))
    }
}

/// Whether a text has the same tokens if it is divided between an ASCII letter and a space or control character: if the
/// pre-tokenizer divides it there, and no other part depends on what is on the other side.
fn is_divisible(json: &Value) -> bool {
    let has_type = |part: &Value, name: &str| part["type"] == name;
    let is_local = |part: &Value| {
        has_type(part, "ByteLevel") && part["add_prefix_space"] == false || has_type(part, "Digits")
    };
    let divides = |part: &Value| {
        let pattern = part["pattern"]["Regex"].as_str().unwrap_or_default();
        let is_llama = pattern.replace("{1,3}", "") == LLAMA;
        let takes_matches = part["behavior"] == "Isolated" && part["invert"] == false;
        is_llama && takes_matches || is_local(part) && part["use_regex"] == true
    };
    let parts = |of: &'static str, list: &str| {
        json[of][list].as_array().map_or(slice::from_ref(&json[of]), |list| list).iter()
    };
    let mut before = parts("pre_tokenizer", "pretokenizers").skip_while(|p| has_type(p, "Digits"));
    // Where the first token is not as others.
    let mut after = parts("post_processor", "processors");
    let trims_first = |p: &Value| p["trim_offsets"] == true && p["add_prefix_space"] == true;
    let whole = |token: &Value| {
        let text = token["content"].as_str().unwrap_or_default();
        token["rstrip"] == false && !text.contains(|c: char| c == ' ' || c.is_ascii_control())
    };
    (json["normalizer"].is_null() || has_type(&json["normalizer"], "NFC"))
        && before.next().is_some_and(divides)
        && before.all(is_local)
        && !after.any(trims_first)
        && has_type(&json["decoder"], "ByteLevel")
        && json["added_tokens"].as_array().is_none_or(|tokens| tokens.iter().all(whole))
}

/// Ranges of at least so many positions, or of all: each begins at 0 or where `begins` holds.
fn pieces(
    len: usize,
    least: usize,
    begins: impl Fn(usize) -> bool,
) -> impl Iterator<Item = Range<usize>> {
    let mut next: Option<usize> = Some(0);
    iter::from_fn(move || {
        let start = next?;
        next = (start.saturating_add(least)..len).find(|&at| begins(at));
        Some(start..next.unwrap_or(len))
    })
}

/// Calls the library. A panic in it is an error, and is not printed.
fn guarded<R>(f: impl FnOnce() -> R) -> Result<R, TextError> {
    thread_local! { static INSIDE: Cell<bool> = const { Cell::new(false) } }
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !INSIDE.try_with(Cell::get).unwrap_or(false) {
                before(info);
            }
        }));
    });
    let outer = INSIDE.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(f));
    INSIDE.set(outer);
    result.map_err(|cause| {
        let texts = (cause.downcast_ref::<String>().map(|s| &**s), cause.downcast_ref::<&str>());
        let why = texts.0.or(texts.1.copied()).unwrap_or("for an unknown reason");
        TextError::Tokenizer(format!("the library `tokenizers` failed: {why}"))
    })
}
