//! A token for each byte of a text in UTF-8.

use super::encoding::{Encoding, SEPARATOR};

/// The 256 bytes; a token is the value of a byte of the text in UTF-8. Every text has tokens, and tokens
/// that are not UTF-8 decode to `U+FFFD`.
///
/// ```
/// use retrograd::nn::text::ByteVocabulary;
/// assert_eq!(ByteVocabulary::new().encode("né").tokens, [110, 195, 169]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteVocabulary {
    separator: bool,
}

impl ByteVocabulary {
    /// All bytes.
    pub fn new() -> ByteVocabulary {
        ByteVocabulary::default()
    }

    /// All bytes, and the token 256 that separates documents.
    pub fn with_separator(self) -> ByteVocabulary {
        ByteVocabulary { separator: true }
    }

    /// The token that separates documents.
    pub fn separator(&self) -> Option<i64> {
        self.separator.then_some(256)
    }

    /// The number of tokens, 256 or 257.
    pub fn vocab_size(&self) -> usize {
        256 + usize::from(self.separator)
    }

    /// The tokens of a text, of one byte each.
    pub fn encode(&self, text: &str) -> Encoding {
        Encoding { tokens: text.bytes().map(i64::from).collect(), bytes: vec![1; text.len()] }
    }

    /// The text of tokens below [`ByteVocabulary::vocab_size`].
    pub(super) fn decode(&self, tokens: &[i64]) -> String {
        let mut text = Vec::with_capacity(tokens.len());
        for &token in tokens {
            match u8::try_from(token) {
                Ok(byte) => text.push(byte),
                Err(_) => text.extend(SEPARATOR.bytes()),
            }
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}
