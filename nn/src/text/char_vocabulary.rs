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
/// assert_eq!(vocabulary.encode("hole").unwrap().tokens, [1, 3, 2, 0]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CharVocabulary {
    chars: Vec<char>,
    separator: bool,
}

impl CharVocabulary {
    /// The characters of some texts.
    pub fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> CharVocabulary {
        let chars: BTreeSet<char> = texts.into_iter().flat_map(str::chars).collect();
        CharVocabulary { chars: chars.into_iter().collect(), separator: false }
    }

    /// The vocabulary with one more token, the last one, that separates documents.
    pub fn with_separator(self) -> CharVocabulary {
        CharVocabulary { separator: true, ..self }
    }

    /// The token that separates documents.
    pub fn separator(&self) -> Option<i64> {
        self.separator.then_some(self.chars.len() as i64)
    }

    /// The characters, in the order of their tokens.
    pub fn chars(&self) -> &[char] {
        &self.chars
    }

    /// The number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.chars.len() + usize::from(self.separator)
    }

    /// The tokens of a text, and their bytes.
    ///
    /// # Errors
    /// If the text has characters that are not in the vocabulary; the error lists them.
    ///
    /// ```
    /// use retrograd::nn::text::CharVocabulary;
    /// let vocabulary = CharVocabulary::of(["abc"]);
    /// assert_eq!(vocabulary.encode("cab").unwrap().tokens, [2, 0, 1]);
    /// let error = vocabulary.encode("bad").unwrap_err().to_string();
    /// assert!(error.starts_with("the vocabulary does not contain 'd'; it contains \"abc\"."));
    /// ```
    pub fn encode(&self, text: &str) -> Result<Encoding, TextError> {
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

    /// The text of tokens below [`CharVocabulary::vocab_size`].
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
