//! The decoders of Hugging Face's library, token by token.

use super::decode_stream::complete;
use tokenizers::Decoder;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::decoders::strip::Strip;

/// A decoder after others. Each takes pieces of text, and gives pieces to the next one.
#[derive(Clone, Debug)]
struct Stage<'a> {
    /// None separates tokens by spaces.
    decoder: Option<&'a DecoderWrapper>,
    /// Whether pieces are parts of one text, which a decoder before has joined.
    is_joined: bool,
    /// Pieces that the next ones depend on, or that depend on the next ones.
    held: Vec<String>,
    bytes: Vec<u8>,
    /// The most characters that are still stripped from the beginning.
    left: usize,
}

/// The decoders of a tokenizer, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Stages<'a>(Vec<Stage<'a>>);

impl<'a> Stages<'a> {
    pub fn new(decoder: Option<&'a DecoderWrapper>) -> Self {
        let mut stages = Stages::default();
        match decoder {
            None => stages.push(None),
            Some(decoder) => stages.add(decoder),
        }
        stages
    }

    fn add(&mut self, decoder: &'a DecoderWrapper) {
        match decoder {
            DecoderWrapper::Sequence(list) => list.get_decoders().iter().for_each(|d| self.add(d)),
            decoder => self.push(Some(decoder)),
        }
    }

    fn push(&mut self, decoder: Option<&'a DecoderWrapper>) {
        let joins = |stage: &Stage<'_>| {
            let decoder = stage.decoder;
            matches!(decoder, Some(DecoderWrapper::Fuse(_) | DecoderWrapper::ByteLevel(_)))
        };
        let is_joined = self.0.iter().any(joins);
        let left = if let Some(DecoderWrapper::Strip(strip)) = decoder { strip.start } else { 0 };
        self.0.push(Stage { decoder, is_joined, held: Vec::new(), bytes: Vec::new(), left });
    }

    /// The text that one more token completes; with no token, the rest of the text.
    pub fn next(&mut self, token: Option<String>) -> String {
        let is_end = token.is_none();
        let mut pieces = Vec::from_iter(token);
        for stage in &mut self.0 {
            let mut next: Vec<String> =
                pieces.into_iter().flat_map(|piece| stage.next(Some(piece))).collect();
            if is_end {
                next.extend(stage.next(None));
            }
            pieces = next;
        }
        pieces.concat()
    }

    /// The bytes of a token, if the tokenizer has a token for each byte of the text.
    pub fn bytes(&self, token: &str) -> Option<Vec<u8>> {
        let is_level = |s: &Stage<'_>| matches!(s.decoder, Some(DecoderWrapper::ByteLevel(_)));
        self.0.iter().any(is_level).then(|| bytes_of(token))
    }
}

impl Stage<'_> {
    /// What becomes of a piece, or of what is held at the end.
    fn next(&mut self, piece: Option<String>) -> Vec<String> {
        use DecoderWrapper as D;
        let held = &mut self.held;
        let Some(decoder) = self.decoder else {
            let space = if held.is_empty() { "" } else { " " };
            held.resize(1, String::new());
            return piece.map(|piece| format!("{space}{piece}")).into_iter().collect();
        };
        match decoder {
            D::Fuse(_) => Vec::from_iter(piece),
            D::Strip(strip) if self.is_joined && strip.stop == 0 => {
                let Some(piece) = piece else { return Vec::new() };
                let rest = stripped(&piece, &Strip::new(strip.content, self.left, 0));
                let removed = (piece.len() - rest.len()) / strip.content.len_utf8();
                self.left = if rest.is_empty() { self.left - removed } else { 0 };
                vec![rest]
            }
            _ if self.is_joined => {
                if let Some(piece) = piece {
                    held.push(piece);
                    return Vec::new();
                }
                apply(decoder, vec![held.concat()])
            }
            D::ByteLevel(_) => match piece {
                Some(piece) => {
                    self.bytes.extend(bytes_of(&piece));
                    vec![complete(&mut self.bytes)]
                }
                None => vec![String::from_utf8_lossy(&self.bytes).into_owned()],
            },
            // What a run of bytes means is known when it has ended.
            D::ByteFallback(_) => {
                let is_byte = |s: &String| {
                    let digits = s.strip_prefix("<0x").and_then(|s| s.strip_suffix('>'));
                    s.len() == 6 && digits.is_some_and(|d| u8::from_str_radix(d, 16).is_ok())
                };
                let is_run = piece.as_ref().is_some_and(is_byte);
                held.extend(piece);
                if is_run { Vec::new() } else { apply(decoder, std::mem::take(held)) }
            }
            // The last piece is decoded otherwise.
            D::BPE(_) => {
                let mut pieces = std::mem::take(held);
                let count = pieces.len();
                pieces.extend(piece.as_ref().map(|_| String::new()));
                held.extend(piece);
                let mut made = if count > 0 { apply(decoder, pieces) } else { Vec::new() };
                made.truncate(count);
                made
            }
            // Of equal pieces in a row one is decoded.
            D::CTC(_) if piece.as_ref() == held.first() => Vec::new(),
            D::CTC(_) => {
                *held = Vec::from_iter(piece.clone());
                apply(decoder, Vec::from_iter(piece))
            }
            // The first piece may be decoded otherwise.
            _ => {
                let Some(piece) = piece else { return Vec::new() };
                let before = held.len();
                let mut made = apply(decoder, [held.clone(), vec![piece]].concat());
                held.resize(1, String::new());
                made.split_off(before.min(made.len()))
            }
        }
    }
}

/// What a decoder makes of pieces. Errors become `U+FFFD`: they are those of regular expressions that take
/// too long.
fn apply(decoder: &DecoderWrapper, pieces: Vec<String>) -> Vec<String> {
    let count = pieces.len();
    match decoder {
        _ if count == 0 => pieces,
        // The library panics if a piece is shorter than what may be stripped from its end.
        DecoderWrapper::Strip(strip) => pieces.iter().map(|piece| stripped(piece, strip)).collect(),
        _ => decoder.decode_chain(pieces).unwrap_or_else(|_| vec!["\u{fffd}".into(); count]),
    }
}

fn stripped(piece: &str, strip: &Strip) -> String {
    let is_content = |c: &char| *c == strip.content;
    let size = strip.content.len_utf8();
    let start = piece.chars().take(strip.start).take_while(is_content).count();
    let rest = &piece[start * size..];
    let stop = rest.chars().rev().take(strip.stop).take_while(is_content).count();
    rest[..rest.len() - stop * size].into()
}

/// The bytes of a token, each of which is a character, as in GPT-2: printable ones stand for themselves, and
/// the others are the characters from `U+0100` on. A token with other characters is its text.
fn bytes_of(token: &str) -> Vec<u8> {
    let is_printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..);
    let byte = |c: char| match u32::from(c).checked_sub(256) {
        None => u8::try_from(c).ok().filter(is_printable),
        Some(n) => (0..=255).filter(|byte| !is_printable(byte)).nth(n as usize),
    };
    token.chars().map(byte).collect::<Option<_>>().unwrap_or_else(|| token.into())
}
