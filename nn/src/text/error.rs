//! Errors of texts and tokenizers.

use super::Printable;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{fmt, io};

/// An error of reading a text, or of a tokenizer.
#[derive(Debug)]
#[non_exhaustive]
pub enum TextError {
    /// The file or folder cannot be read.
    Read(PathBuf, io::Error),
    /// The file cannot be written.
    Write(PathBuf, io::Error),
    /// The file has no bytes.
    Empty(PathBuf),
    /// The folder has no files.
    NoFiles(PathBuf),
    /// The file is not UTF-8.
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// The offset of the first byte that begins no character.
        at: usize,
        /// That byte.
        byte: u8,
    },
    /// A text has characters that the vocabulary lacks.
    UnknownCharacters {
        /// The characters, in order.
        unknown: Vec<char>,
        /// The vocabulary.
        known: String,
    },
    /// A part of a corpus has no window of the context and the token after it.
    TooShort {
        /// `"training"` or `"validation"`.
        part: &'static str,
        /// The tokens of that part.
        tokens: usize,
        /// The tokens of both parts.
        all: usize,
        /// The context.
        context: usize,
    },
    /// What was read is no tokenizer, or one that is not supported.
    NotATokenizer(String),
    /// A tokenizer cannot be trained or used as asked.
    Tokenizer(String),
    /// The crate was built without the feature that this needs.
    NeedsFeature {
        /// What needs it.
        what: &'static str,
        /// The name of the feature.
        feature: &'static str,
    },
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let f = &mut Printable(f);
        match self {
            TextError::Read(path, e) => write!(f, "cannot read {}: {e}", path.display()),
            TextError::Write(path, e) => write!(f, "cannot write {}: {e}", path.display()),
            TextError::Empty(path) => write!(f, "{}: the file is empty", path.display()),
            TextError::NoFiles(path) => write!(f, "{}: the folder has no files", path.display()),
            TextError::NotUtf8 { path, at, byte } => write!(
                f,
                "{}: not UTF-8: byte {at} (0x{byte:02x}) begins no character",
                path.display()
            ),
            TextError::UnknownCharacters { unknown, known } => {
                // A text in another script may have thousands.
                const SHOWN: usize = 20;
                let shown: Vec<String> =
                    unknown.iter().take(SHOWN).map(|c| format!("{c:?}")).collect();
                let more = match unknown.len().saturating_sub(SHOWN) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                write!(
                    f,
                    "the vocabulary does not contain {}{more}; it contains {known:?}. A model that is trained with \
                     bytes as tokens (`Tokenizer::bytes()`, `--tokenizer byte`) reads every text",
                    shown.join(", ")
                )
            }
            TextError::TooShort { part, tokens, all, context } => write!(
                f,
                "the text is too short for a context of {context}: of its {all} tokens {tokens} are \
                 for {part}, and that must be at least {}",
                context + 1
            ),
            TextError::NotATokenizer(why) => write!(f, "no tokenizer: {why}"),
            TextError::Tokenizer(why) => f.write_str(why),
            TextError::NeedsFeature { what, feature } => {
                write!(
                    f,
                    "{what} needs the cargo feature `{feature}`, and this build is without it"
                )
            }
        }
    }
}

impl std::error::Error for TextError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TextError::Read(_, e) | TextError::Write(_, e) => Some(e),
            _ => None,
        }
    }
}
