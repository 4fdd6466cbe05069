//! The choice of a tokenizer.

use crate::stop::{Result, failed, usage};
use crate::text::HELD_OUT;
use retrograd::nn::text::{Documents, SEPARATOR, TextError, Tokenizer};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A tokenizer, as `--tokenizer` names it.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum TokenizerKind {
    /// The characters of the text.
    #[default]
    Char,
    /// The 256 bytes.
    Byte,
    /// Byte-level BPE of this many tokens, trained on the training part of the text.
    Bpe(usize),
    /// A file: a `tokenizer.json`, or that of a run.
    File(PathBuf),
}

impl FromStr for TokenizerKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let size =
            |n: &str| n.parse().map_err(|_| format!("{n:?} is no number of tokens, as in bpe:512"));
        match (name, name.strip_prefix("bpe:")) {
            ("", _) => Err("one of char, byte, bpe:N and the name of a file".into()),
            ("char", _) => Ok(TokenizerKind::Char),
            ("byte", _) => Ok(TokenizerKind::Byte),
            ("bpe", _) => Err("bpe needs a number of tokens, as in bpe:512".into()),
            (_, Some(n)) => size(n).map(TokenizerKind::Bpe),
            (file, None) => Ok(TokenizerKind::File(file.into())),
        }
    }
}

impl fmt::Display for TokenizerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenizerKind::Char => f.write_str("char"),
            TokenizerKind::Byte => f.write_str("byte"),
            TokenizerKind::Bpe(n) => write!(f, "bpe:{n}"),
            TokenizerKind::File(path) => write!(f, "{}", path.display()),
        }
    }
}

impl TokenizerKind {
    /// The tokenizer for a text. If the text has several documents, there is a token between them.
    pub fn make(&self, documents: &Documents) -> Result<Tokenizer> {
        let separated = documents.len() > 1;
        let own = |tokenizer: Tokenizer| {
            if separated { tokenizer.with_separator() } else { tokenizer }
        };
        match self {
            TokenizerKind::Char => Ok(own(Tokenizer::chars(documents.texts()))),
            TokenizerKind::Byte => Ok(own(Tokenizer::bytes())),
            TokenizerKind::Bpe(n) => {
                let (train, _) = documents.hold_out(HELD_OUT);
                let special: &[&str] = if separated { &[SEPARATOR] } else { &[] };
                Tokenizer::train_bpe(train.texts(), *n, special).or_else(stop)
            }
            TokenizerKind::File(path) => match Tokenizer::load(path) {
                Err(e @ TextError::Read(..)) => {
                    failed(format!("{e} (a tokenizer is char, byte, bpe:N, or such a file)"))
                }
                loaded => loaded.or_else(stop),
            },
        }
    }
}

/// The error of a tokenizer as the end of the program; a missing feature with the command that has it.
fn stop<T>(e: TextError) -> Result<T> {
    match e {
        TextError::NeedsFeature { .. } => usage(format!("{e}{}", with_feature())),
        TextError::Tokenizer(why) => usage(why),
        e => failed(e),
    }
}

/// How to build the program with the feature for BPE.
pub fn with_feature() -> &'static str {
    ". Build it with:\n    cargo install --path train --features tokenizers"
}
