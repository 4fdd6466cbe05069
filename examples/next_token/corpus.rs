//! The text: vocabulary, training part, held-out part, and batches.

use crate::files;
use crate::output::note;
use crate::stop::{OrFailed, Result, failed};
use crate::tales::tales;
use retrograd::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The default text.
const TALES: (u64, usize) = (1, 400_000);

/// The characters of a text, in order; a token is an index among them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Vocabulary(Vec<char>);

impl Vocabulary {
    fn of(text: &str) -> Vocabulary {
        Vocabulary(text.chars().collect::<BTreeSet<_>>().into_iter().collect())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The tokens of a text.
    ///
    /// # Errors
    /// The characters of the text that are not in the vocabulary.
    pub fn encode(&self, text: &str) -> std::result::Result<Vec<i64>, BTreeSet<char>> {
        let find = |c: char| self.0.binary_search(&c).map(|i| i as i64);
        let unknown: BTreeSet<char> = text.chars().filter(|&c| find(c).is_err()).collect();
        if unknown.is_empty() { Ok(text.chars().flat_map(find).collect()) } else { Err(unknown) }
    }

    pub fn decode(&self, token: i64) -> char {
        self.0[token as usize]
    }
}

impl From<String> for Vocabulary {
    fn from(text: String) -> Self {
        Vocabulary::of(&text)
    }
}

impl From<Vocabulary> for String {
    fn from(vocabulary: Vocabulary) -> Self {
        vocabulary.0.into_iter().collect()
    }
}

/// The file of the text, and a hash of its contents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// The path; `None` for the generated tales.
    pub file: Option<PathBuf>,
    /// FNV-1a of the bytes.
    pub fingerprint: u64,
}

/// A text as tokens.
pub struct Corpus {
    pub source: Source,
    pub vocabulary: Vocabulary,
    /// The first 90 % of the characters.
    pub train: Vec<i64>,
    /// The others.
    pub held_out: Vec<i64>,
}

impl Corpus {
    /// Reads a file, or generates the tales.
    pub fn read(file: Option<&Path>) -> Result<Corpus> {
        let text = match file {
            None => tales(TALES.0, TALES.1),
            Some(path) => {
                let bytes = bytes_of(path).or_failed(format!("cannot read {}", path.display()))?;
                text_of(bytes).or_failed(path.display())?
            }
        };
        // Absolute, so that a run can be resumed from another working folder.
        let file = file.map(|path| fs::canonicalize(path).unwrap_or_else(|_| path.into()));
        if let Some(path) = file.as_deref().filter(|path| path.to_str().is_none()) {
            return failed(format!(
                "the path {path:?} is not UTF-8, so a checkpoint cannot store it; rename or move \
                 the file"
            ));
        }
        Ok(Corpus::new(&text, file))
    }

    pub fn new(text: &str, file: Option<PathBuf>) -> Corpus {
        let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let fingerprint = text.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
        let vocabulary = Vocabulary::of(text);
        let mut train = vocabulary.encode(text).expect("the vocabulary is that of the text");
        let held_out = train.split_off(train.len() * 9 / 10);
        Corpus { source: Source { file, fingerprint }, vocabulary, train, held_out }
    }

    /// Checks that both parts hold a window of `context` characters and the one after it.
    pub fn check(&self, context: usize) -> Result<()> {
        let parts = [("training (90 %)", &self.train), ("validation (10 %)", &self.held_out)];
        for (what, part) in parts {
            if part.len() <= context {
                let all = self.train.len() + self.held_out.len();
                return failed(format!(
                    "the text is too short for a context of {context}: of its {all} characters {} \
                     are for {what}, and that must be at least {}",
                    part.len(),
                    context + 1
                ));
            }
        }
        Ok(())
    }

    /// The windows of a step, at random positions of the training part: a function of the seed and the
    /// step, so a run can be resumed at any step.
    pub fn batch(&self, seed: u64, step: u64, batch: usize, context: usize) -> Batch {
        // A step has its own range of streams, as in `Pass::train_step`.
        let mut rng = Rng::from_state((seed, step << 32));
        let starts = (0..batch).map(|_| rng.below(self.train.len() - context));
        Batch::new(starts.map(|i| &self.train[i..=i + context]))
    }

    /// The held-out part, cut into windows of `context` characters; a shorter one ends it.
    pub fn windows(&self, context: usize) -> Vec<&[i64]> {
        let predicted = self.held_out.len() - 1;
        let starts = (0..predicted).step_by(context);
        starts.map(|i| &self.held_out[i..=(i + context).min(predicted)]).collect()
    }

    /// Beginnings of paragraphs (of lines, if there are no paragraphs) of the held-out part: long
    /// ones, if there are any, and at least one that is not empty.
    pub fn beginnings(&self) -> Vec<String> {
        let text: String = self.held_out.iter().map(|&t| self.vocabulary.decode(t)).collect();
        let cut = |separator: &str, least: usize| -> Vec<String> {
            // The text before the first separator may start within a paragraph or a line.
            let parts = text.split(separator).skip(1).map(str::trim);
            parts.filter(|part| part.chars().count() >= least).map(str::to_string).collect()
        };
        let all = || vec![text.trim().to_string()];
        // A text of nothing but white space still has a first character.
        let first = || text.chars().take(1).collect();
        [cut("\n\n", 40), cut("\n", 40), cut("\n", 1), all()]
            .into_iter()
            .find(|list| list.iter().any(|part| !part.is_empty()))
            .unwrap_or_else(|| vec![first()])
    }
}

/// Windows of text, and the next character at each position.
pub struct Batch {
    pub tokens: Tensor<i64>,
    pub targets: Tensor<i64>,
}

impl Batch {
    /// From windows of equal length; the last token of each is only a target.
    pub fn new<'a>(windows: impl Iterator<Item = &'a [i64]>) -> Batch {
        let (mut tokens, mut targets, mut rows, mut length) = (vec![], vec![], 0, 0);
        for window in windows {
            length = window.len() - 1;
            tokens.extend(&window[..length]);
            targets.extend(&window[1..]);
            rows += 1;
        }
        let tensor = |data| Tensor::from_vec(data, [rows, length]);
        Batch { tokens: tensor(tokens), targets: tensor(targets) }
    }
}

/// The contents of a file or a pipe. Devices are rejected, because reading one may never end.
fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    if !is_pipe(path) {
        return files::read(path);
    }
    note!(
        "note: {} is a pipe: reading to its end. To --resume, save the text in a file \
         and pass it by --data",
        path.display()
    );
    fs::read(path)
}

#[cfg(unix)]
fn is_pipe(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::metadata(path).is_ok_and(|m| m.file_type().is_fifo())
}

#[cfg(not(unix))]
fn is_pipe(_: &Path) -> bool {
    false
}

fn text_of(bytes: Vec<u8>) -> std::result::Result<String, String> {
    if bytes.is_empty() {
        return Err("the file is empty".into());
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        format!("not UTF-8: byte {at} (0x{:02x}) begins no character", e.as_bytes()[at])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus() -> Corpus {
        Corpus::new(&"abcdefghij".repeat(10), None)
    }

    #[test]
    fn windows_cover_every_held_out_character_but_the_first() {
        let windows = corpus();
        let windows = windows.windows(4);
        let lengths: Vec<usize> = windows.iter().map(|w| w.len() - 1).collect();
        assert_eq!(lengths, [4, 4, 1]);
        let targets: Vec<i64> = windows.iter().flat_map(|w| w[1..].to_vec()).collect();
        assert_eq!(targets, (1..10).collect::<Vec<i64>>());
    }

    #[test]
    fn batches_depend_on_seed_and_step_only() {
        let tokens = |seed, step| corpus().batch(seed, step, 3, 8).tokens.to_vec();
        assert_eq!(tokens(1, 5), tokens(1, 5));
        assert_ne!(tokens(1, 5), tokens(1, 6));
        assert_ne!(tokens(1, 5), tokens(2, 5));
        let Batch { tokens, targets } = corpus().batch(1, 1, 3, 8);
        for (x, y) in tokens.to_vec().into_iter().zip(targets.to_vec()) {
            assert_eq!((x + 1) % 10, y);
        }
    }

    #[test]
    fn characters_round_trip() {
        let vocabulary = Vocabulary::of("naïve 語");
        let tokens = vocabulary.encode("語 ïe").unwrap();
        let back: String = tokens.iter().map(|&t| vocabulary.decode(t)).collect();
        assert_eq!(back, "語 ïe");
        assert_eq!(vocabulary.encode("nab").unwrap_err(), BTreeSet::from(['b']));
        let json = serde_json::to_string(&vocabulary).unwrap();
        assert_eq!(serde_json::from_str::<Vocabulary>(&json).unwrap(), vocabulary);
    }

    #[test]
    fn an_invalid_byte_is_named() {
        let e = text_of(b"caf\xc3\xa9 caf\xe9!".to_vec()).unwrap_err();
        assert_eq!(e, "not UTF-8: byte 9 (0xe9) begins no character");
    }

    #[test]
    fn beginnings_are_not_empty() {
        // The last tenth is what is held out.
        let of = |held_out: &str| {
            let text = "x".repeat(9 * held_out.chars().count()) + held_out;
            Corpus::new(&text, None).beginnings()
        };
        let long = "a line of more than forty characters, to be shown";
        assert_eq!(of(&format!("rest\n{long}\n\n{long}\nand more")), [format!("{long}\nand more")]);
        assert_eq!(of(&format!("rest\n{long}\nshort\n")), [long]);
        assert_eq!(of("\nAda\n\nGrace\nEmmy\n"), ["Ada", "Grace", "Emmy"]);
        assert_eq!(of("\r\nAda\r\nGrace\r\n"), ["Ada", "Grace"]);
        assert_eq!(of(" only one line\n"), ["only one line"]);
        assert_eq!(of("\n\n\n"), ["\n"]);
        assert_eq!(of(" \n "), [" "]);
    }

    #[test]
    fn texts_that_are_too_short_are_rejected() {
        assert!(corpus().check(9).is_ok());
        assert!(corpus().check(10).is_err());
    }
}
