//! The text of tokens, as they come.

use super::Tokenizer;

/// The text of tokens that come one at a time, as while text is generated. A token of bytes or of BPE may
/// be a part of a character only; its text comes with the token that completes the character. All texts
/// together are the text that [`Tokenizer::decode`] returns.
///
/// ```
/// use retrograd::prelude::*;
/// let bytes = Tokenizer::bytes();
/// let mut stream = bytes.decode_stream();
/// let parts: Vec<String> = [110, 195, 169, 33].map(|token| stream.step(token)).to_vec();
/// assert_eq!(parts, ["n", "", "é", "!"]);
/// assert_eq!(stream.finish(), "");
/// ```
#[derive(Clone, Debug)]
pub struct DecodeStream<'a> {
    tokenizer: &'a Tokenizer,
    /// The last tokens.
    tokens: Vec<i64>,
    /// Their text that was returned, or is the text of the prompt.
    known: String,
}

impl<'a> DecodeStream<'a> {
    #[track_caller]
    pub(super) fn new(tokenizer: &'a Tokenizer, prompt: &[i64]) -> Self {
        DecodeStream { tokenizer, tokens: prompt.into(), known: tokenizer.decode(prompt) }
    }

    /// The text that one more token completes; empty if that is a part of a character only.
    ///
    /// # Panics
    /// If the token is outside the vocabulary.
    #[track_caller]
    pub fn step(&mut self, token: i64) -> String {
        self.tokenizer.check_tokens(&[token]);
        self.tokens.push(token);
        #[cfg(feature = "tokenizers")]
        if let Tokenizer::HuggingFace(tokenizer) = self.tokenizer
            && tokenizer.is_open(&self.tokens)
        {
            return String::new();
        }
        let text = self.tokenizer.decode(&self.tokens);
        // The next token may complete a character at the end.
        let new = self.next(text.strip_suffix('\u{fffd}').unwrap_or(&text));
        // The last 16 tokens are enough, so that the time for a token does not depend on their number.
        let first = self.tokens.len().saturating_sub(16);
        if first > 32 && self.known == text {
            let known = self.tokenizer.decode(&self.tokens[first..]);
            if !known.is_empty() {
                self.tokens.drain(..first);
                self.known = known;
            }
        }
        new
    }

    /// The text of the tokens that completed no character, with `U+FFFD` for what is missing.
    pub fn finish(mut self) -> String {
        let text = self.tokenizer.decode(&self.tokens);
        self.next(&text)
    }

    /// The text from the first character on that is not the known one.
    fn next(&mut self, text: &str) -> String {
        let new = &text[same(&self.known, text)..];
        if !self.known.starts_with(text) {
            self.known = text.into();
        }
        new.into()
    }
}

/// The bytes of the characters that two texts begin with.
fn same(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(c, _)| c.len_utf8()).sum()
}

/// # Streams of tokens
impl Tokenizer {
    /// Decodes tokens one at a time.
    pub fn decode_stream(&self) -> DecodeStream<'_> {
        DecodeStream::new(self, &[])
    }

    /// Decodes tokens that follow a prompt one at a time: the text of both from the first character on that
    /// differs from the text of the prompt. The same tokens alone may have another text, without the space
    /// before the first word for example.
    ///
    /// # Panics
    /// If a token is outside the vocabulary.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let tokenizer = Tokenizer::bytes();
    /// let mut stream = tokenizer.decode_stream_after(&[110, 195]);
    /// assert_eq!(stream.step(169), "é");
    /// ```
    #[track_caller]
    pub fn decode_stream_after(&self, prompt: &[i64]) -> DecodeStream<'_> {
        DecodeStream::new(self, prompt)
    }
}
