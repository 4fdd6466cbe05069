//! The text of tokens, as they come.

use super::Tokenizer;
#[cfg(feature = "tokenizers")]
use super::decoder::Stages;
use super::tokenizer::SEPARATOR;

/// The text of tokens that come one at a time, as while text is generated. A token of bytes or of BPE may
/// be a part of a character only; its text comes with the token that completes the character. All texts
/// together are the text that [`Tokenizer::decode`] returns.
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
    #[cfg(feature = "tokenizers")]
    stages: Stages<'a>,
    /// Text that comes, and was known before.
    known: String,
}

impl<'a> DecodeStream<'a> {
    #[track_caller]
    pub(super) fn new(tokenizer: &'a Tokenizer, prompt: &[i64]) -> Self {
        #[cfg(feature = "tokenizers")]
        let stages = match tokenizer {
            Tokenizer::HuggingFace(tokenizer) => tokenizer.stages(),
            _ => Stages::default(),
        };
        let mut new = DecodeStream {
            tokenizer,
            bytes: Vec::new(),
            #[cfg(feature = "tokenizers")]
            stages,
            known: String::new(),
        };
        for &token in prompt {
            new.step(token);
        }
        new.take_held();
        new
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
        self.tokenizer.check_tokens(&[token]);
        let text = match self.tokenizer {
            Tokenizer::Char(vocabulary) => vocabulary.decode(&[token]),
            Tokenizer::Byte(_) => {
                match u8::try_from(token) {
                    Ok(byte) => self.bytes.push(byte),
                    Err(_) => self.bytes.extend(SEPARATOR.bytes()),
                }
                complete(&mut self.bytes)
            }
            #[cfg(feature = "tokenizers")]
            Tokenizer::HuggingFace(tokenizer) => {
                let token = tokenizer.token(token);
                token.map_or_else(String::new, |token| self.stages.next(Some(token)))
            }
        };
        self.unknown(text)
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
    pub fn finish(mut self) -> String {
        let text = match self.tokenizer {
            #[cfg(feature = "tokenizers")]
            Tokenizer::HuggingFace(_) => self.stages.next(None),
            _ => String::from_utf8_lossy(&self.bytes).into_owned(),
        };
        self.unknown(text)
    }

    /// The text that would end the stream here, of which only what differs comes later.
    pub(super) fn take_held(&mut self) -> String {
        let rest = self.clone().finish();
        self.known.clear();
        self.known = self.clone().finish();
        rest
    }

    /// The text from the first character on that is not the known one.
    fn unknown(&mut self, text: String) -> String {
        let same = self.known.chars().zip(text.chars()).take_while(|(a, b)| a == b);
        let same: usize = same.map(|(c, _)| c.len_utf8()).sum();
        let differs = same < self.known.len().min(text.len());
        self.known.drain(..if differs { self.known.len() } else { same });
        text[same..].into()
    }
}

/// Takes the characters that are complete from bytes, with `U+FFFD` for what is not UTF-8. The beginning of a
/// character is left.
pub(super) fn complete(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let (valid, wrong) = match std::str::from_utf8(rest) {
            Ok(valid) => (valid.len(), Some(0)),
            Err(e) => (e.valid_up_to(), e.error_len()),
        };
        text += &String::from_utf8_lossy(&rest[..valid]);
        rest = &rest[valid..];
        let Some(wrong) = wrong else { break };
        if wrong > 0 {
            text.push('\u{fffd}');
        }
        rest = &rest[wrong..];
    }
    *bytes = rest.to_vec();
    text
}
