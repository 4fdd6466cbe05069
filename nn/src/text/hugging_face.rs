//! Tokenizers of Hugging Face's library.

use super::encoding::{Encoding, SEPARATOR};
use super::error::TextError;
use super::exported::byte_char;
use super::file_checks::{self as checks, wrong};
use serde_json::Value;
use std::cell::Cell;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Once};
use tokenizers::decoders::DecoderWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::models::{ModelWrapper, TrainerWrapper};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer};

/// Tokens that end a text, in vocabularies that are in use.
const ENDS: [&str; 4] = [SEPARATOR, "<|end_of_text|>", "<eos>", "</s>"];

/// A tokenizer of Hugging Face's library: trained by
/// [`Tokenizer::train_bpe`](super::Tokenizer::train_bpe), or from a `tokenizer.json`. Padding and
/// truncation are switched off. Needs the feature `tokenizers`.
#[derive(Clone)]
pub struct HuggingFace {
    tokenizer: Arc<Tokenizer>,
    json: Arc<str>,
    vocab_size: usize,
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
        checks::growth(&serde_json::from_str(&saved).map_err(wrong)?)?;
        // Some invalid tables are noticed only when they are used.
        guarded(|| tokenizer.encode("A trial, naïve 語 12!\n", false).is_ok()).map_err(wrong)?;
        let vocab_size = tokenizer.get_vocab(true).values().max().map_or(0, |&id| id as usize + 1);
        Ok(HuggingFace { tokenizer: Arc::new(tokenizer), json: saved.into(), vocab_size })
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
        let encoding = guarded(|| self.tokenizer.encode(text, false))?.map_err(failed)?;
        let tokens: Vec<i64> = encoding.get_ids().iter().map(|&id| i64::from(id)).collect();
        // Parts of a character have its whole range; normalised text may lack some ranges. Here every
        // byte belongs to one token, so that sums over a text are its length.
        let mut done = 0;
        let mut bytes: Vec<u32> = Vec::with_capacity(tokens.len());
        for &(_, end) in encoding.get_offsets() {
            let end = end.max(done);
            bytes.push((end - done) as u32);
            done = end;
        }
        if let Some(last) = bytes.last_mut() {
            *last += (text.len() - done) as u32;
        }
        Ok(Encoding { tokens, bytes })
    }

    pub(super) fn decode(&self, tokens: &[i64]) -> String {
        let ids: Vec<u32> = tokens.iter().map(|&token| token as u32).collect();
        // Some decoders panic, without tokens or if a piece is shorter than what they strip.
        match guarded(|| self.tokenizer.decode(&ids, false)) {
            Ok(Ok(text)) => text,
            _ => tokens.iter().filter_map(|&token| self.token(token)).collect(),
        }
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
