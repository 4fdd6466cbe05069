//! Several runs on one page.

use super::json::bounded;
use super::{RunPage, json, scripts};
use crate::Page;
use serde_json::{Value, json};

const PAIRS: &str = include_str!("../../assets/run_pairs.js");

/// A page with several runs: their losses over steps, time and tokens, the differences of their recipes, their
/// results, and their last samples side by side. `notes` are sentences about what could not be shown. With `pairs`, the
/// results of `retrograd versus`, the runs are A and B of the first pair, of the second one, and so on.
///
/// ```
/// use retrograd::study::{RunPage, RunStep, compare_runs};
///
/// let run = |lr: f64| {
///     let mut run = RunPage::new(&format!("lr {lr}"));
///     run.step(RunStep { step: 1, loss: 4.0, lr, grad_norm: 1.0, seconds: 0.1 });
///     run
/// };
/// let html = compare_runs("Two runs", &[run(0.1), run(0.2)], &[], None).html();
/// assert!(html.contains("lr 0.2"));
/// ```
pub fn compare_runs(title: &str, runs: &[RunPage], notes: &[String], pairs: Option<Value>) -> Page {
    let data = bounded(|size| {
        let each = json::Size {
            points: (size.points / runs.len().max(1)).clamp(50, 1000),
            // The last one only.
            looks: 1,
            weights: 0,
        };
        let runs: Vec<_> = runs.iter().map(|run| run.json(each, 0.0)).collect();
        json!({ "compare": 1, "title": title, "runs": runs, "notes": notes, "pairs": pairs })
    });
    let page = Page::new(title, &data);
    scripts(if pairs.is_some() { page.script(PAIRS) } else { page })
}
