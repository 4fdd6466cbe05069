//! The text of a run: a file, a folder, or the generated tales.

use crate::output::note;
use crate::stop::{Result, failed};
use crate::tales::tales;
use retrograd::nn::text::{Corpus, Document, Documents, TextError, Tokenizer};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// The seed and the size of the default text.
const TALES: (u64, usize) = (1, 400_000);
/// The part of the characters that is held out, from the end of the text.
pub const HELD_OUT: f64 = 0.1;

/// The file or folder of the text, and a hash of its contents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// The path; `None` for the generated tales.
    pub file: Option<PathBuf>,
    /// A hash of the texts, see [`Documents::fingerprint`].
    pub fingerprint: u64,
}

impl Source {
    /// The source for messages.
    pub fn name(&self) -> String {
        self.file.as_ref().map_or("generated tales".into(), |file| file.display().to_string())
    }
}

/// A text and its source.
pub struct Text {
    /// Where it is from.
    pub source: Source,
    /// Its files.
    pub documents: Documents,
}

impl Text {
    /// Reads a file or a folder, or generates the tales. Line ends become `\n`, and byte order marks are dropped,
    /// unless the text of an earlier run has them: it was trained when they were kept.
    pub fn read(file: Option<&Path>, earlier: Option<&Source>) -> Result<Text> {
        let documents = match file {
            None => Documents::of(tales(TALES.0, TALES.1)),
            Some(path) => {
                #[cfg(unix)]
                note_if_pipe(path);
                let unchanged = Documents::read_unchanged(path).or_else(|e| invalid(path, &e))?;
                let is_earlier = |text: &Source| text.fingerprint == unchanged.fingerprint();
                match earlier.is_some_and(is_earlier) {
                    true => unchanged,
                    false => without_marks(path, unchanged)?.with_lf(),
                }
            }
        };
        if documents.crlf() > 0 {
            note!("note: {} line ends \\r\\n are read as \\n", documents.crlf());
        }
        // Absolute, so that a run can be resumed from another working folder.
        let file = file.map(|path| fs::canonicalize(path).unwrap_or_else(|_| path.into()));
        if let Some(path) = file.as_deref().filter(|path| path.to_str().is_none()) {
            return failed(format!(
                "the path {path:?} is not UTF-8, so a checkpoint cannot store it; rename or move \
                 the file"
            ));
        }
        let source = Source { file, fingerprint: documents.fingerprint() };
        Ok(Text { source, documents })
    }

    /// The tokens of the training part and of the held-out part.
    pub fn corpus(&self, tokenizer: &Tokenizer) -> Result<Corpus, TextError> {
        Corpus::new(&self.documents, HELD_OUT, tokenizer)
    }

    /// Checks that this text, from `file`, is that of a run.
    pub fn check_same(&self, source: &Source, run: &str, file: Option<&Path>) -> Result<()> {
        if self.source.fingerprint == source.fingerprint {
            return Ok(());
        }
        let file = file.unwrap_or(Path::new("the tales"));
        failed(format!(
            "the run in {run} was trained on a text that differs from the one in {}",
            file.display()
        ))
    }

    /// Beginnings of paragraphs (of lines, if there are no paragraphs) of the held-out part: long
    /// ones, if there are any, and at least one that is not empty.
    pub fn beginnings(&self) -> Vec<String> {
        let (_, held_out) = self.documents.hold_out(HELD_OUT);
        let texts: Vec<&str> = held_out.texts().collect();
        // Every document begins a paragraph.
        let text = texts.join("\n\n");
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

/// As many whole words of a text as fit into `most` characters; if there is none, `most` characters.
pub fn first_words(text: &str, most: usize) -> String {
    let line: Vec<char> = text.chars().map(|c| if c == '\n' { ' ' } else { c }).collect();
    if line.len() <= most {
        return text.to_string();
    }
    let end = (1..=most).rev().find(|&i| line[i] == ' ').unwrap_or(most);
    text.chars().take(end).collect()
}

/// The error of a text that cannot be read, with what to do.
fn invalid<T>(path: &Path, e: &TextError) -> Result<T> {
    let advice = match e {
        TextError::NotUtf8 { .. } if path.is_dir() => LEAVE_OUT,
        TextError::NotUtf8 { .. } => {
            ". If it is a text in another encoding, convert it: iconv -f LATIN1 -t UTF-8 FILE > NEW"
        }
        _ => "",
    };
    failed(format!("{e}{advice}"))
}

/// What to do with a file of a folder that is no text.
const LEAVE_OUT: &str = ". Files whose names begin with a dot are left out; a text in another encoding is converted by \
                         iconv -f LATIN1 -t UTF-8 FILE > NEW";

/// The documents without the byte order marks at their beginnings, which are reported.
///
/// # Errors
/// If a file of the folder has a NUL byte, so it is no text.
fn without_marks(path: &Path, documents: Documents) -> Result<Documents> {
    const MARK: char = '\u{feff}';
    let is_binary = |document: &&Document| path.is_dir() && document.text.contains('\0');
    if let Some(binary) = documents.list().iter().find(is_binary) {
        let file = path.join(&binary.name);
        return failed(format!("{}: no text, but NUL bytes{LEAVE_OUT}", file.display()));
    }
    let marks = documents.texts().filter(|text| text.starts_with(MARK)).count();
    if marks == 0 {
        return Ok(documents);
    }
    note!("note: the byte order mark at the beginning of {marks} files is left out");
    let without = |Document { name, text }: &Document| Document {
        name: name.clone(),
        text: text.strip_prefix(MARK).unwrap_or(text).to_string(),
    };
    Ok(documents.list().iter().map(without).collect::<Vec<_>>().into())
}

/// Prints a note that a run with a pipe as its text cannot simply be resumed.
#[cfg(unix)]
fn note_if_pipe(path: &Path) {
    use std::os::unix::fs::FileTypeExt;
    if fs::metadata(path).is_ok_and(|m| m.file_type().is_fifo()) {
        note!(
            "note: {} is a pipe: reading to its end. To resume the run, save the text in a \
             file and pass it by --data",
            path.display()
        );
    }
}
