//! The tokens of a text.

/// The text of the token that separates documents, as in GPT-2.
pub const SEPARATOR: &str = "<|endoftext|>";

/// The tokens of a text, and the number of bytes of the text that each stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoding {
    /// The tokens.
    pub tokens: Vec<i64>,
    /// The bytes of each token. Their sum is the length of the text in UTF-8.
    pub bytes: Vec<u32>,
}
