//! From text to tokens and back.

#[cfg(feature = "tokenizers")]
use super::HuggingFace;
use super::char_vocabulary::CharVocabulary;
use super::encoding::{Encoding, SEPARATOR};
use super::error::TextError;
use super::exported;
use crate::checkpoint::{read_json, write_atomically};
use retrograd_tensor::error::{ErrorKind, assert};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use std::path::Path;

/// A map from text to tokens and back.
///
/// A tokenizer is saved as JSON, by [`Tokenizer::save`] in a file, or by serde as a note of a
/// [`Checkpoint`](crate::checkpoint::Checkpoint). [`Tokenizer::load`] reads such files, and with the
/// feature `tokenizers` every `tokenizer.json` of Hugging Face's library.
///
/// ```
/// use retrograd::prelude::*;
/// let tokenizer = Tokenizer::chars(["to be or not to be"]);
/// let tokens = tokenizer.encode("not").unwrap();
/// assert_eq!(tokens, [3, 4, 6]);
/// assert_eq!(tokenizer.decode(&tokens), "not");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Tokenizer {
    /// A token for each character of a text.
    Char(CharVocabulary),
    /// A token for each byte of the text in UTF-8: its value. Tokens that are not UTF-8 decode to `U+FFFD`.
    Byte {
        /// Whether the token 256 separates documents.
        separator: bool,
    },
    /// A tokenizer of Hugging Face's library, BPE for example.
    #[cfg(feature = "tokenizers")]
    HuggingFace(HuggingFace),
}

/// The JSON of the tokenizers of this crate.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Own {
    Char {
        characters: String,
        #[serde(default)]
        separator: bool,
    },
    Byte {
        #[serde(default)]
        separator: bool,
    },
}

impl Tokenizer {
    /// A token for each different character of some texts.
    pub fn chars<'a>(texts: impl IntoIterator<Item = &'a str>) -> Tokenizer {
        Tokenizer::Char(CharVocabulary::of(texts))
    }

    /// A token for each of the 256 bytes.
    pub fn bytes() -> Tokenizer {
        Tokenizer::Byte { separator: false }
    }

    /// Byte-level BPE with at most `vocab_size` tokens, trained on some texts; as in GPT-2, whose pattern
    /// divides the text into words. The vocabulary has the 256 bytes, `special` tokens, which come
    /// first, and merges, from the most frequent pair on. It is smaller if there are no more pairs.
    ///
    /// Source: Sennrich, Haddow and Birch, "Neural Machine Translation of Rare Words with Subword
    /// Units", 2016; Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
    ///
    /// # Errors
    /// If `vocab_size` is less than the bytes and the special tokens, or the crate was built without the
    /// feature `tokenizers`.
    ///
    /// ```
    /// use retrograd::nn::text::SEPARATOR;
    /// use retrograd::prelude::*;
    /// let text = "the cat and the hat and the bat. ".repeat(9);
    /// match Tokenizer::train_bpe([text.as_str()], 270, &[SEPARATOR]) {
    ///     Ok(bpe) => {
    ///         let tokens = bpe.encode("the cat, naïve").unwrap();
    ///         assert!(tokens.len() < "the cat, naïve".len());
    ///         assert_eq!(bpe.decode(&tokens), "the cat, naïve");
    ///         assert_eq!(bpe.separator(), Some(0));
    ///     }
    ///     Err(e) => assert!(e.to_string().contains("needs the cargo feature `tokenizers`")),
    /// }
    /// ```
    pub fn train_bpe<'a>(
        texts: impl IntoIterator<Item = &'a str>,
        vocab_size: usize,
        special: &[&str],
    ) -> Result<Tokenizer, TextError> {
        let least = 256 + special.len();
        if vocab_size < least {
            return Err(TextError::Tokenizer(format!(
                "a BPE vocabulary of {vocab_size} tokens is too small: it has all bytes and {} \
                 special tokens, which are {least}",
                special.len()
            )));
        }
        #[cfg(feature = "tokenizers")]
        return HuggingFace::train_bpe(texts, vocab_size, special).map(Tokenizer::HuggingFace);
        #[cfg(not(feature = "tokenizers"))]
        {
            drop(texts.into_iter());
            Err(TextError::NeedsFeature { what: "BPE", feature: "tokenizers" })
        }
    }

    /// The tokenizer with a token that separates documents. One of Hugging Face's is returned as it is:
    /// its vocabulary is fixed.
    pub fn with_separator(mut self) -> Tokenizer {
        match &mut self {
            Tokenizer::Char(CharVocabulary { separator, .. }) | Tokenizer::Byte { separator } => {
                *separator = true;
            }
            #[cfg(feature = "tokenizers")]
            Tokenizer::HuggingFace(_) => {}
        }
        self
    }

    /// The token that separates documents, if there is one. In Hugging Face's tokenizers that is
    /// `<|endoftext|>`, `<|end_of_text|>`, `<eos>` or `</s>`.
    pub fn separator(&self) -> Option<i64> {
        match self {
            Tokenizer::Char(v) => v.separator.then_some(v.chars.len() as i64),
            Tokenizer::Byte { separator } => separator.then_some(256),
            #[cfg(feature = "tokenizers")]
            Tokenizer::HuggingFace(tokenizer) => tokenizer.separator(),
        }
    }

    /// The name of the algorithm: `char`, `byte`, `BPE`, `Unigram`, `WordPiece` or `WordLevel`.
    pub fn kind(&self) -> &'static str {
        match self {
            Tokenizer::Char(_) => "char",
            Tokenizer::Byte { .. } => "byte",
            #[cfg(feature = "tokenizers")]
            Tokenizer::HuggingFace(tokenizer) => tokenizer.kind(),
        }
    }

    /// The number of tokens: all tokens are below it.
    pub fn vocab_size(&self) -> usize {
        match self {
            Tokenizer::Char(v) => v.chars.len() + usize::from(v.separator),
            Tokenizer::Byte { separator } => 256 + usize::from(*separator),
            #[cfg(feature = "tokenizers")]
            Tokenizer::HuggingFace(tokenizer) => tokenizer.vocab_size(),
        }
    }

    /// The tokens of a text. No special tokens are added.
    ///
    /// # Errors
    /// If characters are not in the vocabulary, which only happens with a tokenizer of characters.
    pub fn encode(&self, text: &str) -> Result<Vec<i64>, TextError> {
        Ok(self.encode_with_bytes(text)?.tokens)
    }

    /// The tokens of a text, and the bytes that each stands for, for
    /// [bits per byte](super::TextMetrics::bits_per_byte).
    ///
    /// # Errors
    /// As for [`Tokenizer::encode`].
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// assert_eq!(Tokenizer::chars(["né語"]).encode_with_bytes("né語").unwrap().bytes, [1, 2, 3]);
    /// ```
    pub fn encode_with_bytes(&self, text: &str) -> Result<Encoding, TextError> {
        match self {
            Tokenizer::Char(vocabulary) => vocabulary.encode(text),
            Tokenizer::Byte { .. } => Ok(Encoding {
                tokens: text.bytes().map(i64::from).collect(),
                bytes: vec![1; text.len()],
            }),
            #[cfg(feature = "tokenizers")]
            Tokenizer::HuggingFace(tokenizer) => tokenizer.encode(text),
        }
    }

    /// The text of some tokens. Bytes that are not UTF-8 become `U+FFFD`. To print tokens as they are
    /// generated, see [`Tokenizer::decode_stream`].
    ///
    /// # Panics
    /// If a token is outside the vocabulary.
    #[track_caller]
    pub fn decode(&self, tokens: &[i64]) -> String {
        self.check_tokens(tokens);
        match self {
            Tokenizer::Char(vocabulary) => vocabulary.decode(tokens),
            Tokenizer::Byte { .. } => {
                let mut text = Vec::with_capacity(tokens.len());
                for &token in tokens {
                    match u8::try_from(token) {
                        Ok(byte) => text.push(byte),
                        Err(_) => text.extend(SEPARATOR.bytes()),
                    }
                }
                String::from_utf8_lossy(&text).into_owned()
            }
            #[cfg(feature = "tokenizers")]
            Tokenizer::HuggingFace(tokenizer) => tokenizer.decode(tokens),
        }
    }

    #[track_caller]
    pub(super) fn check_tokens(&self, tokens: &[i64]) {
        let vocab = self.vocab_size();
        let outside = tokens.iter().find(|&&token| !(0..vocab as i64).contains(&token));
        assert(outside.is_none(), "decode", ErrorKind::Index, || {
            format!("token {} is outside 0..{vocab}", outside.unwrap_or(&0))
        });
    }

    /// The bytes of a text from `begin` on that do not come back from its tokens: the bytes of words that do not
    /// come back after the word before, each with the white space before it.
    pub(super) fn lost(&self, text: &str, tokens: &[i64], begin: usize) -> Result<u64, TextError> {
        let ends = |tokens: &[i64], part: &[u8]| self.decode(tokens).as_bytes().ends_with(part);
        if ends(tokens, &text.as_bytes()[begin..]) {
            return Ok(0);
        }
        let is_end = |end: &usize| {
            let (before, after) = text.split_at(*end);
            !before.ends_with(char::is_whitespace) && after.starts_with(char::is_whitespace)
        };
        let all = (begin + 1..text.len()).filter(|&end| text.is_char_boundary(end));
        let (mut before, mut word, mut lost) = (0, begin, 0);
        for end in all.filter(is_end).chain([text.len()]) {
            if !ends(&self.encode(&text[before..end])?, &text.as_bytes()[word..end]) {
                lost += (end - word) as u64;
            }
            (before, word) = (word, end);
        }
        Ok(lost.max(1))
    }

    /// A token as a label, with what [`Tokenizer::decode`] drops or changes by its neighbours: the marks of
    /// words (`▁the`, `##s`), and bytes that are a part of a character (`<0xC3>`).
    ///
    /// # Panics
    /// If the token is outside the vocabulary.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// assert_eq!([110, 195].map(|token| Tokenizer::bytes().label(token)), ["n", "<0xC3>"]);
    /// ```
    #[track_caller]
    pub fn label(&self, token: i64) -> String {
        self.check_tokens(&[token]);
        let label = |bytes: &[u8]| -> String {
            let part = |part: std::str::Utf8Chunk<'_>| {
                let bytes = part.invalid().iter().map(|byte| format!("<0x{byte:02X}>"));
                part.valid().to_string() + &bytes.collect::<String>()
            };
            bytes.utf8_chunks().map(part).collect()
        };
        match self {
            Tokenizer::Byte { .. } if token < 256 => label(&[token as u8]),
            #[cfg(feature = "tokenizers")]
            Tokenizer::HuggingFace(tokenizer) => {
                let token = tokenizer.token(token).unwrap_or_default();
                tokenizer.bytes(&token).map_or(token, |bytes| label(&bytes))
            }
            _ => self.decode(&[token]),
        }
    }

    /// The tokenizer as JSON: Hugging Face's format, or for characters and bytes
    /// `{"type":"char","characters":"..","separator":false}` and `{"type":"byte","separator":false}`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let json = Tokenizer::chars(["cab"]).to_json();
    /// assert_eq!(json, r#"{"type":"char","characters":"abc","separator":false}"#);
    /// ```
    pub fn to_json(&self) -> String {
        let own = match self {
            Tokenizer::Char(CharVocabulary { chars, separator }) => {
                Own::Char { characters: chars.iter().collect(), separator: *separator }
            }
            Tokenizer::Byte { separator } => Own::Byte { separator: *separator },
            #[cfg(feature = "tokenizers")]
            Tokenizer::HuggingFace(tokenizer) => return tokenizer.json().to_string(),
        };
        serde_json::to_string(&own).expect("text has a JSON form")
    }

    /// The tokenizer as `tokenizer.json` of Hugging Face's library, with the same tokens for every text without a
    /// separator, whose text is one token there. A character that is not in the vocabulary is an error there, too.
    ///
    /// [`Tokenizer::from_json`] reads it, that of characters or bytes also without the feature `tokenizers`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let tokenizer = Tokenizer::chars(["to be"]);
    /// let json = tokenizer.to_hugging_face();
    /// assert!(json.contains("WordLevel"));
    /// assert_eq!(Tokenizer::from_json(&json).unwrap(), tokenizer);
    /// ```
    pub fn to_hugging_face(&self) -> String {
        match self {
            Tokenizer::Char(vocabulary) => exported::json(Some(vocabulary), self.separator()),
            Tokenizer::Byte { .. } => exported::json(None, self.separator()),
            #[cfg(feature = "tokenizers")]
            Tokenizer::HuggingFace(_) => self.to_json(),
        }
    }

    /// The tokenizer of such JSON.
    ///
    /// # Errors
    /// If it is no tokenizer, or one that is not supported; or if it is Hugging Face's and the crate was
    /// built without the feature `tokenizers`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// assert_eq!(Tokenizer::from_json(r#"{"type":"byte"}"#).unwrap(), Tokenizer::bytes());
    /// assert!(Tokenizer::from_json(r#"{"type":"bit"}"#).is_err());
    /// ```
    pub fn from_json(json: &str) -> Result<Tokenizer, TextError> {
        #[derive(Deserialize)]
        struct Kind<'a> {
            #[serde(borrow)]
            model: Option<&'a RawValue>,
        }
        let wrong = |e: serde_json::Error| TextError::NotATokenizer(e.to_string());
        let kind: Kind<'_> = serde_json::from_str(json).map_err(wrong)?;
        if kind.model.is_some() {
            if let Some((characters, separator)) = exported::own(json) {
                return Ok(match characters {
                    Some(vocabulary) => Tokenizer::Char(CharVocabulary { separator, ..vocabulary }),
                    None => Tokenizer::Byte { separator },
                });
            }
            #[cfg(feature = "tokenizers")]
            return HuggingFace::from_json(json).map(Tokenizer::HuggingFace);
            #[cfg(not(feature = "tokenizers"))]
            return Err(TextError::NeedsFeature {
                what: "a tokenizer of Hugging Face's library",
                feature: "tokenizers",
            });
        }
        Ok(match serde_json::from_str(json).map_err(wrong)? {
            Own::Char { characters, separator } => {
                let vocabulary = CharVocabulary::of([characters.as_str()]);
                Tokenizer::Char(CharVocabulary { separator, ..vocabulary })
            }
            Own::Byte { separator } => Tokenizer::Byte { separator },
        })
    }

    /// Writes the tokenizer to a file, atomically.
    ///
    /// # Errors
    /// If the operating system reports one.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), TextError> {
        let path = path.as_ref();
        write_atomically(path, self.to_json().as_bytes())
            .map_err(|e| TextError::Write(path.into(), e))
    }

    /// Reads a tokenizer from a file: one of [`Tokenizer::save`], or a `tokenizer.json`.
    ///
    /// # Errors
    /// As for [`Tokenizer::from_json`], or if the file cannot be read.
    pub fn load(path: impl AsRef<Path>) -> Result<Tokenizer, TextError> {
        let path = path.as_ref();
        let json = read_json(path).map_err(|e| TextError::Read(path.into(), e))?;
        Tokenizer::from_json(&json).map_err(|e| match e {
            TextError::NotATokenizer(why) => {
                TextError::NotATokenizer(format!("{}: {why}", path.display()))
            }
            other => other,
        })
    }
}

/// As JSON; see [`Tokenizer::to_json`].
impl Serialize for Tokenizer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.to_json()).expect("JSON").serialize(serializer)
    }
}

/// From JSON; see [`Tokenizer::from_json`].
impl<'de> Deserialize<'de> for Tokenizer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tokenizer, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        Tokenizer::from_json(json.get()).map_err(serde::de::Error::custom)
    }
}
