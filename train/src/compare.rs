//! Several runs on one page: `compare`.

use crate::files;
use crate::folder::Folder;
use crate::json_lines::lines_of;
use crate::line::{Line, Step};
use crate::looks::{self, Start};
use crate::output::{note, say, silently};
use crate::page::restored;
use crate::stop::{OrFailed, Result, failed};
use clap::Args;
use retrograd::nn::checkpoint::Checkpoint;
use retrograd::study::{RunPage, RunStatus, compare_runs};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Write a page that compares runs: losses, recipes, samples
#[derive(Args, Debug)]
pub struct Compare {
    /// The folders of the runs
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,

    /// The file of the page
    #[arg(long, value_name = "FILE", default_value = "out/compare.html")]
    out: PathBuf,
}

/// Writes a page of the runs in some folders. What cannot be read is reported, here and on the page, and the
/// rest shown.
pub fn compare(args: &Compare) -> Result<()> {
    let path = args.out.display();
    if args.out.is_dir() {
        return failed(format!("{path} is a folder; --out is the file of the page"));
    }
    write(&args.runs, &args.out, None)?;
    say!("The page is {path}");
    Ok(())
}

/// Writes the page, and says where it is, or why there is none.
pub fn write_or_warn(folders: &[PathBuf], path: &Path, pairs: Option<Value>) {
    match silently(|| write(folders, path, pairs)) {
        Ok(()) => note!("The page of all runs is {}", path.display()),
        Err(why) => note!("warning: {}", why.text),
    }
}

/// Writes the page of the runs in these folders, with the result of `versus` if they are pairs.
pub fn write(folders: &[PathBuf], path: &Path, pairs: Option<Value>) -> Result<()> {
    let (mut runs, mut notes) = (Vec::new(), Vec::new());
    for folder in folders {
        match run(folder, &mut notes) {
            Ok(run) => runs.push(run),
            Err(why) => notes.push(format!("{} is left out: {why}.", folder.display())),
        }
    }
    for text in &notes {
        note!("note: {text}");
    }
    if runs.is_empty() {
        return failed("none of these folders has a log that can be read");
    }
    files::make_folder_of(path)?;
    let title = match runs.len() {
        1 => "One training run".to_string(),
        n => format!("{n} training runs"),
    };
    let page = compare_runs(&title, &runs, &notes, pairs);
    page.write(path).or_failed(format!("cannot write {}", path.display()))
}

/// The run in a folder, or why it cannot be shown. What is missing in it is added to `notes`.
fn run(path: &Path, notes: &mut Vec<String>) -> Result<RunPage, String> {
    let folder = Folder::from(path.to_path_buf());
    let name = folder.name();
    if !path.is_dir() {
        return Err("it is not a folder".into());
    }
    let bytes =
        files::read(&folder.log()).map_err(|e| format!("its log.jsonl cannot be read: {e}"))?;
    let text = String::from_utf8_lossy(&bytes);
    let (log, damaged) = lines_of(&text, Line::read);
    let (mut log, damaged): (Vec<Line>, _) =
        (log.into_iter().map(|(line, _)| line).collect(), damaged.len());
    if log.is_empty() {
        return Err(match damaged {
            0 => "its log.jsonl is empty".into(),
            n => format!("its log.jsonl has no line that can be read ({n} are damaged)"),
        });
    }
    if damaged > 0 {
        notes.push(format!("{name}: {damaged} damaged lines of log.jsonl are left out."));
    }
    let mut last = 0;
    let before = log.len();
    log.retain(|line| match line {
        Line::Step(Step { step, .. }) => {
            let is_next = *step > last;
            last = last.max(*step);
            is_next
        }
        _ => true,
    });
    if log.len() < before {
        let count = before - log.len();
        notes.push(format!(
            "{name}: {count} lines of log.jsonl are left out, whose steps are there already."
        ));
    }
    let (mut lines, damaged) = looks::read(&folder, u64::MAX).unwrap_or_else(|e| {
        notes.push(format!("{name}: its looks.jsonl cannot be read: {e}."));
        (Vec::new(), 0)
    });
    if damaged > 0 {
        notes.push(format!(
            "{name}: {damaged} unreadable lines of looks.jsonl are left out; it may be of another \
             version."
        ));
    }
    let is_start = |line: &looks::Line| matches!(line, looks::Line::Start(_));
    if !lines.iter().any(is_start) {
        match start(&folder) {
            Ok(start) => lines.insert(0, looks::Line::Start(start)),
            Err(why) => notes.push(format!("{name}: its recipe is not known: {why}.")),
        }
    }
    let mut page = restored(&name, &lines, &log);
    page.status(status(&log, &lines));
    Ok(page)
}

/// What a checkpoint says about a run that has no page.
fn start(folder: &Folder) -> Result<Start, String> {
    // Only its metadata.
    let file = Checkpoint::load_filtered(folder.checkpoint(), |_| false);
    let recipe = file.and_then(|file| file.read_note("recipe")).map_err(|e| e.to_string())?;
    Ok(Start { recipe, ..Start::default() })
}

/// How a run has ended, by the last lines of its files.
fn status(log: &[Line], looks: &[looks::Line]) -> RunStatus {
    let last = looks.iter().rev().find_map(|line| match line {
        looks::Line::Event(event) => Some(event),
        _ => None,
    });
    match last {
        _ if matches!(log.last(), Some(Line::Done(_))) => RunStatus::Finished,
        Some(event) if event.kind == "interrupt" => RunStatus::Interrupted(event.text.clone()),
        Some(event) if event.kind == "diverged" || event.kind == "failure" => {
            RunStatus::Failed(event.text.clone())
        }
        // Whether it goes on is not known here.
        _ => RunStatus::Running { every: f64::NAN },
    }
}
