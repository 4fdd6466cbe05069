//! The results as Markdown and CSV.

use super::tasks::Task;
use super::train::Score;
use retrograd::nn::AttentionKind;
use std::collections::BTreeMap;

/// The accuracy from which on a task counts as learned.
const LEARNED: f64 = 0.99;

/// The tasks that are learned, except for the text, given the accuracies on all of them; 0 if a run failed.
pub fn learned(accuracies: &[f64]) -> String {
    let learned = Task::ALL.iter().zip(accuracies).filter(|(_, accuracy)| **accuracy >= LEARNED);
    let tasks = learned.map(|(task, _)| *task).filter(|task| *task != Task::Text);
    tasks.map(Task::name).collect::<Vec<_>>().join(", ")
}

/// The results of a variant.
pub struct Row {
    pub kind: AttentionKind,
    /// In the order of [`Task::ALL`]; why a run failed, if it did.
    pub scores: Vec<Result<Score, String>>,
}

/// The results by the indices of variant and task.
pub type Scores = BTreeMap<(usize, usize), Result<Score, String>>;

/// What the numbers mean.
pub const LEGEND: &str = "Accuracy in percent on held-out sequences; for text the loss in nats per character. Parameters,
ms a step and cache are those of the text task. A task is learned from 99 % on.";

/// A row for each variant.
pub struct Table {
    pub rows: Vec<Row>,
}

impl Table {
    pub fn new(kinds: &[AttentionKind], mut scores: Scores) -> Table {
        let mut score = |at| scores.remove(&at).expect("every run has a result");
        let row = |(k, &kind): (usize, &AttentionKind)| Row {
            kind,
            scores: (0..Task::ALL.len()).map(|t| score((k, t))).collect(),
        };
        Table { rows: kinds.iter().enumerate().map(row).collect() }
    }

    fn header() -> Vec<String> {
        let tasks = Task::ALL.iter().map(|task| match task {
            Task::Text => "text, loss".to_string(),
            task => format!("{} %", task.name()),
        });
        let names = ["parameters", "ms a step", "cache, bytes a token"].map(String::from);
        ["variant".to_string()].into_iter().chain(tasks).chain(names).collect()
    }

    fn cells(row: &Row) -> Vec<String> {
        let mut cells = vec![row.kind.name().to_string()];
        for (task, score) in Task::ALL.iter().zip(&row.scores) {
            cells.push(match (task, score) {
                (_, Err(why)) => format!("failed: {why}"),
                (Task::Text, Ok(score)) => format!("{:.3}", score.loss),
                (_, Ok(score)) => format!("{:.1}", 100.0 * score.accuracy),
            });
        }
        // Parameters, time and cache are those of the text, the longest sequence.
        let Ok(text) = row.scores.last().expect("a task") else {
            cells.extend(["-".into(), "-".into(), "-".into()]);
            return cells;
        };
        cells.push(text.parameters.to_string());
        cells.push(format!("{:.1}", text.ms));
        cells.push(text.cache.map_or("-".into(), |bytes| bytes.to_string()));
        cells
    }

    pub fn markdown(&self) -> String {
        let header = Table::header();
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut text = line([&header[..], &["learned".to_string()]].concat());
        text += &format!("|---|{}---|\n", "---:|".repeat(header.len() - 1));
        for row in &self.rows {
            let mut cells = Table::cells(row);
            cells[0] = format!("`{}`", cells[0]);
            let accuracy =
                |score: &Result<Score, String>| score.as_ref().map_or(0.0, |s| s.accuracy);
            cells.push(learned(&row.scores.iter().map(accuracy).collect::<Vec<_>>()));
            text += &line(cells);
        }
        text
    }

    pub fn csv(&self) -> String {
        let header = Table::header().iter().map(|name| name.replace(", ", " ")).collect::<Vec<_>>();
        let mut text = header.join(",") + "\n";
        for row in &self.rows {
            text += &(Table::cells(row).join(",") + "\n");
        }
        text
    }
}
