//! `log.jsonl`: a line of JSON for each step, each evaluation, and the end.

use crate::files;
use crate::folder::Folder;
use crate::json_lines::{JsonLines, lines_of};
use crate::line::{Evaluation, Line, Step};
use crate::output::note;
use crate::page::RunRecord;
use crate::stop::{OrFailed, Result};
use std::collections::BTreeSet;

/// The log of a run, opened for appending.
pub struct Log {
    file: JsonLines,
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
        let number = |line: &Line| if let Line::Step(s) = line { Some(s.step) } else { None };
        let known: BTreeSet<u64> = lines.iter().filter_map(number).collect();
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
        let writing = format!("cannot write {}", path.display());
        let file = JsonLines::begin(path, kept).or_failed(writing)?;
        Ok(Log { file, lines, page: None })
    }

    /// Appends a line in one write, so that the file can be watched. If the file was removed, it is
    /// written again from the first line.
    pub fn write(&mut self, folder: &Folder, line: Line) -> Result<()> {
        self.file.add(&line);
        if let Some(page) = &mut self.page {
            page.line(folder, &line);
        }
        self.lines.push(line);
        folder.check()?;
        if self.file.is_there() {
            let written = self.file.write();
            return written.or_failed(format!("cannot write {}", self.file.path.display()));
        }
        self.write_again(folder)?;
        note!("note: {} was removed or replaced; it is written again", self.file.path.display());
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
        let writing = format!("cannot write {}", folder.log().display());
        self.file.move_to(folder.log()).or_failed(writing)
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
