//! `log.jsonl`: a line of JSON for each step, each evaluation, and the end.

use crate::files;
use crate::folder::Folder;
use crate::line::{Evaluation, Line, Step, lines_of};
use crate::output::note;
use crate::page::RunRecord;
use crate::stop::{OrFailed, Result};
use retrograd::nn::checkpoint::write_atomically;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The log of a run, opened for appending.
pub struct Log {
    path: PathBuf,
    file: File,
    /// All lines so far.
    pub lines: Vec<Line>,
    /// The page of the run, which shows them.
    pub page: Option<RunRecord>,
}

impl Log {
    /// Opens the log of a run that has taken `step` steps. Lines after the last checkpoint, written
    /// by a process that was killed, are removed, so that each step occurs once. Missing and
    /// unreadable lines are reported; the run does not need them.
    ///
    /// # Errors
    /// If it is something other than a file, or cannot be read or written.
    pub fn open(folder: &Folder, step: u64) -> Result<Log> {
        let path = folder.log();
        let bytes = if path.exists() { files::read(&path) } else { Ok(Vec::new()) };
        let bytes = bytes.or_failed(format!("cannot read {}", path.display()))?;
        let text = String::from_utf8_lossy(&bytes);
        let stays = |line: &Line| match line {
            Line::Step(s) => s.step <= step,
            Line::Evaluation(e) => e.step <= step,
            Line::Done(_) => false,
        };
        let (mut lines, unreadable) = lines_of(&text, Line::read);
        lines.retain(|(line, _)| stays(line));
        let kept: String = lines.iter().flat_map(|(_, text)| [text.trim_end(), "\n"]).collect();
        let lines: Vec<Line> = lines.into_iter().map(|(line, _)| line).collect();
        let known: BTreeSet<u64> = lines.iter().filter_map(Line::step).collect();
        let missing = step.saturating_sub(known.len() as u64);
        if !unreadable.is_empty() || missing > 0 {
            note!(
                "note: {}: unreadable lines, left out: {}{}; steps missing: {missing} of {step}. The \
                 pictures and the time lack them too",
                path.display(),
                unreadable.len(),
                unreadable.first().map_or_else(String::new, |why| format!(" ({why})")),
            );
        }
        let file = begin(&path, &kept)?;
        Ok(Log { path, file, lines, page: None })
    }

    /// Appends a line in one write, so that the file can be watched. If the file was removed, it is
    /// written again from the first line.
    pub fn write(&mut self, folder: &Folder, line: Line) -> Result<()> {
        let text = json(&line);
        if let Some(page) = &mut self.page {
            page.line(folder, &line);
        }
        self.lines.push(line);
        folder.check()?;
        if files::is_same(&self.file, &self.path).is_ok_and(|same| same) {
            let written = self.file.write_all(text.as_bytes());
            return written.or_failed(format!("cannot write {}", self.path.display()));
        }
        self.write_again(folder)?;
        note!("note: {} was removed or replaced; it is written again", self.path.display());
        Ok(())
    }

    /// Writes all lines to a new file in this folder, and continues in it; so does the page.
    pub fn move_to(&mut self, folder: &Folder) -> Result<()> {
        self.write_again(folder)?;
        if let Some(page) = &mut self.page {
            page.move_to(folder);
        }
        Ok(())
    }

    fn write_again(&mut self, folder: &Folder) -> Result<()> {
        let text: String = self.lines.iter().map(json).collect();
        self.file = begin(&folder.log(), &text)?;
        self.path = folder.log();
        Ok(())
    }

    pub fn steps(&self) -> impl Iterator<Item = Step> {
        self.lines.iter().filter_map(|line| if let Line::Step(s) = line { Some(*s) } else { None })
    }

    pub fn evaluations(&self) -> impl Iterator<Item = Evaluation> {
        self.lines
            .iter()
            .filter_map(|line| if let Line::Evaluation(e) = line { Some(*e) } else { None })
    }
}

/// A line as JSON.
fn json(line: &Line) -> String {
    serde_json::to_string(line).expect("numbers have a JSON form") + "\n"
}

/// Writes a log with this text, and opens it for appending.
fn begin(path: &Path, text: &str) -> Result<File> {
    write_atomically(path, text.as_bytes())
        .and_then(|()| OpenOptions::new().append(true).open(path))
        .or_failed(format!("cannot write {}", path.display()))
}
