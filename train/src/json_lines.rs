//! Files of lines of JSON that grow: `log.jsonl` and `looks.jsonl`.

use crate::files::is_same;
use retrograd::nn::checkpoint::write_atomically;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

/// A file, opened for appending.
pub struct JsonLines {
    pub path: PathBuf,
    file: File,
    /// All lines: the file may be removed, and is then written again.
    text: String,
    /// How many bytes of them are in the file.
    written: usize,
}

impl JsonLines {
    /// Writes a file with these lines, and opens it.
    pub fn begin(path: PathBuf, text: String) -> io::Result<JsonLines> {
        write_atomically(&path, text.as_bytes())?;
        let file = OpenOptions::new().append(true).open(&path)?;
        Ok(JsonLines { path, file, written: text.len(), text })
    }

    /// Adds a line, which the next write writes.
    pub fn add(&mut self, line: &impl Serialize) {
        self.text += &json(line);
    }

    /// Appends the lines that were added, in one write: the file can be watched.
    pub fn write(&mut self) -> io::Result<()> {
        let rest = &self.text[std::mem::replace(&mut self.written, self.text.len())..];
        self.file.write_all(rest.as_bytes())
    }

    /// Whether the path still names the file.
    pub fn is_there(&self) -> bool {
        is_same(&self.file, &self.path).is_ok_and(|same| same)
    }

    /// Writes all lines to a new file, and continues in it.
    pub fn move_to(&mut self, path: PathBuf) -> io::Result<()> {
        *self = JsonLines::begin(path, self.text.clone())?;
        Ok(())
    }
}

/// A line as JSON.
pub fn json(line: &impl Serialize) -> String {
    serde_json::to_string(line).expect("has a JSON form") + "\n"
}

/// The lines of a file that can be read, each with its text, and what is wrong with the others. The last one may
/// have been cut off with the process that wrote it.
pub fn lines_of<T>(
    text: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> (Vec<(T, &str)>, Vec<String>) {
    let (mut lines, mut wrong) = (Vec::new(), Vec::new());
    for (number, text) in (1..).zip(text.split_inclusive('\n')) {
        match read(text) {
            Ok(line) => lines.push((line, text)),
            Err(_) if !text.ends_with('\n') => {}
            Err(why) => wrong.push(format!("line {number}: {why}")),
        }
    }
    (lines, wrong)
}
