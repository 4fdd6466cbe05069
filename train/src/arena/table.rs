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

/// The results by the indices of variant and task, or why a run failed.
pub type Scores = BTreeMap<(usize, usize), Result<Score, String>>;

/// What the numbers mean.
pub const LEGEND: &str = "Accuracy in percent on held-out sequences; for text the loss in nats per character. Parameters,
ms a step and cache are those of the text task. A task is learned from 99 % on.";

/// The results as Markdown and as CSV, with a row for each variant.
pub fn tables(kinds: &[AttentionKind], scores: &Scores) -> (String, String) {
    let tasks = Task::ALL.iter().map(|task| match task {
        Task::Text => "text, loss".to_string(),
        task => format!("{} %", task.name()),
    });
    let rest = ["parameters", "ms a step", "cache, bytes a token"].map(String::from);
    let names: Vec<String> = tasks.chain(rest).collect();
    let aligned = "---:|".repeat(names.len());
    let mut markdown =
        format!("| variant | {} | learned |\n|---|{aligned}---|\n", names.join(" | "));
    let names: Vec<String> = names.iter().map(|name| name.replace(", ", " ")).collect();
    let mut csv = format!("variant,{}\n", names.join(","));
    for (k, kind) in kinds.iter().enumerate() {
        let scores: Vec<_> = (0..Task::ALL.len()).map(|t| scores[&(k, t)].as_ref()).collect();
        let accuracies = scores.iter().map(|score| score.map_or(0.0, |s| s.accuracy));
        let (cells, learned) = (cells(&scores), learned(&accuracies.collect::<Vec<_>>()));
        markdown += &format!("| `{kind}` | {} | {learned} |\n", cells.join(" | "));
        csv += &format!("{kind},{}\n", cells.join(","));
    }
    (markdown, csv)
}

/// The row of a variant.
fn cells(scores: &[Result<&Score, &String>]) -> Vec<String> {
    let cell = |(task, score): (&Task, &Result<&Score, &String>)| match (task, score) {
        (_, Err(why)) => format!("failed: {why}"),
        (Task::Text, Ok(score)) => format!("{:.3}", score.loss),
        (_, Ok(score)) => format!("{:.1}", 100.0 * score.accuracy),
    };
    let mut cells: Vec<String> = Task::ALL.iter().zip(scores).map(cell).collect();
    // Parameters, time and cache are those of the text, the longest sequence.
    cells.extend(match scores.last().expect("a task") {
        Err(_) => ["-", "-", "-"].map(String::from),
        Ok(text) => [
            text.parameters.to_string(),
            format!("{:.1}", text.ms),
            text.cache.map_or("-".into(), |bytes| bytes.to_string()),
        ],
    });
    cells
}
