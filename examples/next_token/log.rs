//! `log.jsonl`: a line of JSON for each step, each evaluation, and the end.

use crate::files;
use crate::folder::Folder;
use crate::output::note;
use crate::page::RunRecord;
use crate::stop::{OrFailed, Result};
use retrograd::nn::checkpoint::write_atomically;
use retrograd::nn::text::TextMetrics;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The largest magnitude of a loss: the model computes it in f32.
const LOSS: f64 = f32::MAX as f64;
/// The longest step, in milliseconds: 30 years.
const MS: f64 = 1e12;

/// A line of the log. Its kind follows from its fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Line {
    Step(Step),
    Evaluation(Evaluation),
    Done(Done),
}

impl Line {
    /// The step, if it is the line of a step.
    fn step(&self) -> Option<u64> {
        if let Line::Step(step) = self { Some(step.step) } else { None }
    }

    /// A line from its JSON, or what is invalid in it.
    pub fn read(json: &str) -> std::result::Result<Line, String> {
        let line = serde_json::from_str(json).map_err(|_| "no line of a log".to_string())?;
        let within = |name: &str, x: f64, low: f64, high: f64| {
            let inside = (low..=high).contains(&x);
            inside.then_some(()).ok_or_else(|| format!("{name} cannot be {x:e}"))
        };
        match &line {
            Line::Step(s) => {
                within("step", s.step as f64, 1.0, f64::INFINITY)?;
                within("loss", s.loss, -LOSS, LOSS)?;
                within("ms", s.ms, 0.0, MS)?;
            }
            Line::Evaluation(e) => within("val_loss", e.val_loss, -LOSS, LOSS)?,
            Line::Done(_) => {}
        }
        Ok(line)
    }
}

/// A step of training; steps are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub step: u64,
    /// The loss of this step's batch, before the step.
    pub loss: f64,
    pub lr: f64,
    /// The norm of the gradients before clipping.
    pub grad_norm: f64,
    pub ms: f64,
    pub tokens_per_s: f64,
    /// With several ranks: the time in which this rank exchanged gradients, and the part of it after its last
    /// backward pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exposed_ms: Option<f64>,
}

/// The loss on held-out text after a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    pub step: u64,
    /// In nats per token, on windows that are the same in all evaluations.
    pub val_loss: f64,
    /// Older logs lack it.
    #[serde(flatten)]
    pub per_byte: Option<PerByte>,
}

/// The end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Always true.
    pub done: bool,
    pub params: usize,
    pub steps: u64,
    /// Time spent in training, over all processes.
    pub seconds: f64,
    /// The loss on all of the held-out text, in nats per token.
    pub val_loss: f64,
    /// The other metrics on that text.
    #[serde(flatten)]
    pub metrics: Option<Metrics>,
}

/// Metrics of the held-out text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    #[serde(flatten)]
    pub per_byte: PerByte,
    pub perplexity: f64,
    pub accuracy: f64,
}

/// What a log says of the bytes of the held-out text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PerByte {
    BitsPerByte(f64),
    /// The part of the bytes that the tokenizer loses.
    LostShare(f64),
}

impl PerByte {
    pub fn of(metrics: &TextMetrics, lost_share: f64) -> PerByte {
        match lost_share {
            0.0 => PerByte::BitsPerByte(metrics.bits_per_byte()),
            lost => PerByte::LostShare(lost),
        }
    }
}

impl fmt::Display for PerByte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PerByte::BitsPerByte(bits) => write!(f, "{bits:.4} bits per byte"),
            PerByte::LostShare(lost) => write!(
                f,
                "no bits per byte, since {:.2} % of the bytes do not come back from the tokens",
                100.0 * lost
            ),
        }
    }
}

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
        let (mut kept, mut lines, mut unreadable) = (String::new(), Vec::new(), Vec::new());
        for (number, text) in (1..).zip(text.split_inclusive('\n')) {
            match Line::read(text) {
                Ok(line) if stays(&line) => {
                    lines.push(line);
                    kept.extend([text.trim_end(), "\n"]);
                }
                Ok(_) => {}
                // The last line may have been cut off with the process that wrote it.
                Err(_) if !text.ends_with('\n') => {}
                Err(why) => unreadable.push(format!(" (line {number}: {why})")),
            }
        }
        let known: BTreeSet<u64> = lines.iter().filter_map(Line::step).collect();
        let missing = step.saturating_sub(known.len() as u64);
        if !unreadable.is_empty() || missing > 0 {
            note!(
                "note: {}: unreadable lines, left out: {}{}; steps missing: {missing} of {step}. The \
                 pictures and the time lack them too",
                path.display(),
                unreadable.len(),
                unreadable.first().map_or("", String::as_str),
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
