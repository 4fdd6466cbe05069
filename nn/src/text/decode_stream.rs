//! The text of tokens, as they come.

use super::Tokenizer;

/// The longest character in UTF-8, in bytes and so in tokens.
const LONGEST: usize = 4;

/// The text of tokens that come one at a time, as while text is generated. A token of bytes or of BPE may
/// be a part of a character only; its text comes with the token that completes the character.
///
/// ```
/// use retrograd_nn::text::Tokenizer;
/// let bytes = Tokenizer::bytes();
/// let mut stream = bytes.decode_stream();
/// let parts: Vec<String> = [110, 195, 169, 33].map(|token| stream.step(token)).to_vec();
/// assert_eq!(parts, ["n", "", "é", "!"]);
/// assert_eq!(stream.finish(), "");
/// ```
#[derive(Clone, Debug)]
pub struct DecodeStream<'a> {
    tokenizer: &'a Tokenizer,
    /// Bytes that are a part of a character, of the vocabulary of bytes.
    bytes: Vec<u8>,
    /// In the other vocabularies, the tokens of the last text that was returned, and those after it.
    /// Some decoders depend on the token before.
    tokens: Vec<i64>,
    /// The first of these tokens whose text was not returned yet.
    fresh: usize,
}

impl<'a> DecodeStream<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Self {
        DecodeStream { tokenizer, bytes: Vec::new(), tokens: Vec::new(), fresh: 0 }
    }

    /// The text that one more token completes; empty if that is a part of a character only.
    ///
    /// # Panics
    /// If the token is outside the vocabulary.
    ///
    /// ```
    /// # use retrograd_nn::text::Tokenizer;
    /// let tokenizer = Tokenizer::chars(["abc"]);
    /// assert_eq!(tokenizer.decode_stream().step(2), "c");
    /// ```
    #[track_caller]
    pub fn step(&mut self, token: i64) -> String {
        if let Tokenizer::Byte(_) = self.tokenizer {
            return self.byte(token);
        }
        self.tokens.push(token);
        let text = self.fresh_text();
        if text.ends_with('\u{fffd}') && self.tokens.len() - self.fresh < LONGEST {
            return String::new();
        }
        self.tokens.drain(..self.fresh);
        self.fresh = self.tokens.len();
        text
    }

    /// The text that one more byte completes.
    #[track_caller]
    fn byte(&mut self, token: i64) -> String {
        let Ok(byte) = u8::try_from(token) else {
            let before = String::from_utf8_lossy(&self.bytes).into_owned();
            self.bytes.clear();
            return before + &self.tokenizer.decode(&[token]);
        };
        self.bytes.push(byte);
        let mut text = String::new();
        loop {
            let Err(e) = std::str::from_utf8(&self.bytes) else {
                text += &String::from_utf8_lossy(&self.bytes);
                self.bytes.clear();
                return text;
            };
            let valid: Vec<u8> = self.bytes.drain(..e.valid_up_to()).collect();
            text += &String::from_utf8_lossy(&valid);
            // The rest may be the beginning of a character.
            let Some(wrong) = e.error_len() else { return text };
            self.bytes.drain(..wrong);
            text.push('\u{fffd}');
        }
    }

    /// The text of the tokens that completed no character, with `U+FFFD` for what is missing.
    ///
    /// ```
    /// # use retrograd_nn::text::Tokenizer;
    /// let bytes = Tokenizer::bytes();
    /// let mut stream = bytes.decode_stream();
    /// assert_eq!(stream.step(195), "");
    /// assert_eq!(stream.finish(), "\u{fffd}");
    /// ```
    #[track_caller]
    pub fn finish(self) -> String {
        match self.tokenizer {
            Tokenizer::Byte(_) => String::from_utf8_lossy(&self.bytes).into_owned(),
            _ => self.fresh_text(),
        }
    }

    #[track_caller]
    fn fresh_text(&self) -> String {
        let before = self.tokenizer.decode(&self.tokens[..self.fresh]);
        let all = self.tokenizer.decode(&self.tokens);
        let same = before.chars().zip(all.chars()).take_while(|(a, b)| a == b);
        let known: usize = same.map(|(c, _)| c.len_utf8()).sum();
        all[known..].to_string()
    }
}
