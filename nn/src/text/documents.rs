//! Texts from a file or a folder.

use super::error::TextError;
use crate::checkpoint::read;
use retrograd_tensor::error::{ErrorKind, assert};
use std::fs;
use std::path::{Path, PathBuf};

/// A text and its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// The path within the folder; empty for one file or a text of the program.
    pub name: String,
    /// The text.
    pub text: String,
}

/// The texts of a corpus, in a fixed order.
///
/// ```
/// use retrograd::prelude::*;
/// let folder = std::env::temp_dir().join(format!("doc-documents-{}", std::process::id()));
/// std::fs::create_dir_all(&folder).unwrap();
/// std::fs::write(folder.join("b.txt"), "second").unwrap();
/// std::fs::write(folder.join("a.txt"), "first").unwrap();
/// let documents = Documents::read(&folder).unwrap();
/// assert_eq!(documents.texts().collect::<Vec<_>>(), ["first", "second"]);
/// std::fs::remove_dir_all(&folder).unwrap();
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Documents {
    documents: Vec<Document>,
    crlf: usize,
}

impl From<Vec<Document>> for Documents {
    fn from(documents: Vec<Document>) -> Self {
        Documents { documents, crlf: 0 }
    }
}

impl Documents {
    /// One text.
    pub fn of(text: impl Into<String>) -> Documents {
        vec![Document { name: String::new(), text: text.into() }].into()
    }

    /// Reads a file, or all files of a folder and its subfolders, in the order of their paths. In a
    /// folder, files whose names begin with a dot are left out, empty files are empty documents, and
    /// links to folders are not followed. A pipe is read to its end, if it is the path itself. Line ends
    /// `\r\n` become `\n`, see [`Documents::with_lf`].
    ///
    /// # Errors
    /// If something cannot be read, is not UTF-8 (the error names the file and the byte), or is a
    /// device; if the file, or every file of the folder, is empty; or if the folder has no file.
    pub fn read(path: impl AsRef<Path>) -> Result<Documents, TextError> {
        Documents::read_unchanged(path).map(Documents::with_lf)
    }

    /// As [`Documents::read`], with the line ends of the files.
    ///
    /// # Errors
    /// As [`Documents::read`].
    pub fn read_unchanged(path: impl AsRef<Path>) -> Result<Documents, TextError> {
        let path = path.as_ref();
        let failed = |e| TextError::Read(path.into(), e);
        if fs::metadata(path).map_err(failed)?.is_dir() {
            return Documents::read_folder(path);
        }
        let text = read_text(path, is_pipe(path))?;
        if text.is_empty() {
            return Err(TextError::Empty(path.into()));
        }
        Ok(Documents::of(text))
    }

    fn read_folder(folder: &Path) -> Result<Documents, TextError> {
        let mut paths = Vec::new();
        list(folder, &mut paths)?;
        paths.sort();
        let read = |path: PathBuf| {
            let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
            Ok(Document { name, text: read_text(&path, false)? })
        };
        let documents: Vec<Document> = paths.into_iter().map(read).collect::<Result<_, _>>()?;
        if documents.is_empty() {
            return Err(TextError::NoFiles(folder.into()));
        }
        if documents.iter().all(|document| document.text.is_empty()) {
            return Err(TextError::Empty(folder.into()));
        }
        Ok(documents.into())
    }

    /// The texts with line ends `\n` in place of `\r\n`. Positions and numbers of bytes count what results;
    /// [`Documents::crlf`] says how many line ends have been replaced.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let documents = Documents::of("one\r\ntwo\r\n").with_lf();
    /// assert_eq!(documents.texts().collect::<String>(), "one\ntwo\n");
    /// assert_eq!(documents.crlf(), 2);
    /// ```
    pub fn with_lf(mut self) -> Documents {
        for Document { text, .. } in &mut self.documents {
            let replaced = text.matches("\r\n").count();
            if replaced > 0 {
                *text = text.replace("\r\n", "\n");
                self.crlf += replaced;
            }
        }
        self
    }

    /// The line ends `\r\n` that [`Documents::with_lf`] has replaced.
    pub fn crlf(&self) -> usize {
        self.crlf
    }

    /// The documents between the occurrences of a separator, without it; empty ones are left out.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let tales = Documents::of("one\n\n\ntwo\n\n\nthree").split("\n\n\n");
    /// assert_eq!(tales.texts().collect::<Vec<_>>(), ["one", "two", "three"]);
    /// ```
    pub fn split(&self, separator: &str) -> Documents {
        let part = |name: &String, text: &str| Document { name: name.clone(), text: text.into() };
        let parts = |Document { name, text }: &Document| -> Vec<Document> {
            text.split(separator).filter(|t| !t.is_empty()).map(|t| part(name, t)).collect()
        };
        self.documents.iter().flat_map(parts).collect::<Vec<Document>>().into()
    }

    /// The documents.
    pub fn list(&self) -> &[Document] {
        &self.documents
    }

    /// The texts.
    pub fn texts(&self) -> impl Iterator<Item = &str> + Clone {
        self.documents.iter().map(|document| document.text.as_str())
    }

    /// The number of documents.
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// Whether there is no document.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// The first documents for training, and the last `fraction` of all characters, held out for
    /// validation. The document at this place is divided. With a fraction of 0.1 the training part of
    /// `n` characters has `⌊0.9 n⌋`, as in nanoGPT.
    ///
    /// # Panics
    /// If the fraction is not in `[0, 1]`.
    #[track_caller]
    pub fn hold_out(&self, fraction: f64) -> (Documents, Documents) {
        assert((0.0..=1.0).contains(&fraction), "hold_out", ErrorKind::Value, || {
            format!("the fraction must be in [0, 1], got {fraction}")
        });
        let lengths: Vec<usize> = self.texts().map(|text| text.chars().count()).collect();
        let all: usize = lengths.iter().sum();
        let mut left = (all as f64 * (1.0 - fraction)) as usize;
        let (mut train, mut held_out) = (Vec::new(), Vec::new());
        for (Document { name, text }, length) in self.documents.iter().zip(lengths) {
            let part = |text: &str| Document { name: name.clone(), text: text.into() };
            let here = if held_out.is_empty() { left.min(length) } else { 0 };
            let at = text.char_indices().nth(here).map_or(text.len(), |(at, _)| at);
            if here == length && held_out.is_empty() {
                train.push(part(text));
            } else if here == 0 {
                held_out.push(part(text));
            } else {
                train.push(part(&text[..at]));
                held_out.push(part(&text[at..]));
            }
            left -= here;
        }
        (train.into(), held_out.into())
    }

    /// A hash of the texts, and of the names if there are several: FNV-1a of 64 bits.
    pub fn fingerprint(&self) -> u64 {
        let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let basis = 0xcbf2_9ce4_8422_2325;
        if let [Document { text, .. }] = &self.documents[..] {
            return text.bytes().fold(basis, fnv);
        }
        self.documents.iter().fold(basis, |hash, Document { name, text }| {
            // No byte of UTF-8 is 255.
            name.bytes().chain([255]).chain(text.bytes()).chain([255]).fold(hash, fnv)
        })
    }
}

/// The files of a folder and its subfolders.
fn list(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<(), TextError> {
    let failed = |e| TextError::Read(folder.into(), e);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if entry.file_type().map_err(failed)?.is_dir() {
            list(&entry.path(), paths)?;
        } else if !entry.path().is_dir() {
            paths.push(entry.path());
        }
    }
    Ok(())
}

/// The text of a regular file, or of a pipe.
fn read_text(path: &Path, pipe: bool) -> Result<String, TextError> {
    let failed = |e| TextError::Read(path.into(), e);
    let bytes = if pipe { fs::read(path) } else { read(path, u64::MAX) };
    String::from_utf8(bytes.map_err(failed)?).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        TextError::NotUtf8 { path: path.into(), at, byte: e.as_bytes()[at] }
    })
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
