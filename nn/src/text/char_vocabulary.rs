//! A token for each character of a text.

use super::encoding::{Encoding, SEPARATOR};
use super::error::TextError;
use std::collections::BTreeSet;

/// The different characters of a text, in order; a token is an index among them. This is the vocabulary
/// of nanoGPT's `shakespeare_char`.
///
/// ```
/// use retrograd::nn::text::CharVocabulary;
/// let vocabulary = CharVocabulary::of(["hello"]);
/// assert_eq!(vocabulary.chars(), ['e', 'h', 'l', 'o']);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CharVocabulary {
    pub(super) chars: Vec<char>,
    /// Whether one more token, the last one, separates documents.
    pub(super) separator: bool,
}

impl CharVocabulary {
    /// The characters of some texts.
    pub fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> CharVocabulary {
        let chars: BTreeSet<char> = texts.into_iter().flat_map(str::chars).collect();
        CharVocabulary { chars: chars.into_iter().collect(), separator: false }
    }

    /// The characters, in the order of their tokens.
    pub fn chars(&self) -> &[char] {
        &self.chars
    }

    /// The tokens of a text, and their bytes.
    ///
    /// # Errors
    /// If the text has characters that are not in the vocabulary; the error lists them.
    pub(super) fn encode(&self, text: &str) -> Result<Encoding, TextError> {
        let find = |c: char| self.chars.binary_search(&c).map(|i| i as i64);
        let unknown: BTreeSet<char> = text.chars().filter(|&c| find(c).is_err()).collect();
        if !unknown.is_empty() {
            return Err(TextError::UnknownCharacters {
                unknown: unknown.into_iter().collect(),
                known: self.chars.iter().collect(),
            });
        }
        Ok(Encoding {
            tokens: text.chars().flat_map(find).collect(),
            bytes: text.chars().map(|c| c.len_utf8() as u32).collect(),
        })
    }

    /// The text of tokens of the vocabulary.
    pub(super) fn decode(&self, tokens: &[i64]) -> String {
        let mut text = String::with_capacity(tokens.len());
        for &token in tokens {
            match self.chars.get(token as usize) {
                Some(&c) => text.push(c),
                None => text.push_str(SEPARATOR),
            }
        }
        text
    }
}
