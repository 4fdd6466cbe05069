//! Tokenizers of Hugging Face's library.

use super::error::TextError;
use super::tokenizer::{Encoding, SEPARATOR};
use std::fmt;
use std::sync::Arc;
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
    fn new(mut tokenizer: Tokenizer) -> Result<HuggingFace, TextError> {
        tokenizer.with_padding(None).with_truncation(None).map_err(failed)?;
        let ids = tokenizer.get_vocab(true);
        let vocab_size = ids.values().max().map_or(0, |&id| id as usize + 1);
        let json = tokenizer.to_string(false).map_err(failed)?.into();
        Ok(HuggingFace { tokenizer: Arc::new(tokenizer), json, vocab_size })
    }

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
        let wrong = |e: tokenizers::Error| TextError::NotATokenizer(e.to_string());
        HuggingFace::new(Tokenizer::from_bytes(json).map_err(wrong)?)
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
        let encoding = self.tokenizer.encode(text, false).map_err(failed)?;
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
        // Only decoders that replace by a regular expression have errors.
        self.tokenizer.decode(&ids, false).unwrap_or_else(|_| "\u{fffd}".into())
    }
}
