//! Progress of training on the terminal.

use crate::line::{Evaluation, Step};
use crate::output::note;
use crate::recipe::Recipe;
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};

/// The number of steps between lines, if there is no terminal.
const EVERY: u64 = 100;

/// A bar on a terminal, lines elsewhere, or nothing.
pub struct Progress {
    bar: Option<ProgressBar>,
    lines: bool,
    loss: Smooth,
    ms: Smooth,
    tokens: f64,
}

impl Progress {
    pub fn new(recipe: &Recipe, (step, last): (u64, u64), quiet: bool) -> Progress {
        let bar = (!quiet && stderr().is_terminal()).then(|| {
            let bar = bar(last, "{msg}");
            bar.set_position(step);
            bar
        });
        let lines = !quiet && bar.is_none();
        let tokens = (recipe.batch * recipe.context) as f64;
        let (loss, ms) = (Smooth::new(0.95), Smooth::new(0.95));
        Progress { bar, lines, loss, ms, tokens }
    }

    /// Shows a step; `last` is the number of the last one.
    pub fn step(&mut self, step: &Step, last: u64) {
        let (loss, ms) = (self.loss.add(step.loss), self.ms.add(step.ms));
        let speed = HumanCount((self.tokens / ms * 1e3) as u64);
        let left = duration((last - step.step) as f64 * ms / 1e3);
        let (n, width) = (step.step, last.to_string().len());
        let text =
            format!("step {n:>width$}/{last}  loss {loss:.3}  {speed} tokens/s  {left} left");
        match &self.bar {
            Some(bar) => {
                bar.set_length(last);
                bar.set_position(step.step);
                bar.set_message(text);
            }
            None if self.lines && step.step.is_multiple_of(EVERY) => note!("{text}"),
            None => {}
        }
    }

    pub fn evaluation(&self, e: &Evaluation) {
        let per_byte = e.per_byte.map_or(String::new(), |bits| format!(", {bits}"));
        let text = format!("after step {}: held-out loss {:.4}{per_byte}", e.step, e.val_loss);
        match &self.bar {
            Some(bar) => bar.println(text),
            None if self.lines => note!("{text}"),
            None => {}
        }
    }

    /// Removes the bar.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A bar on standard error, hidden if that is no terminal, with a text after it.
pub fn bar(length: u64, text: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(&format!("{{wide_bar:.green/dim}} {text}"));
    let target = ProgressDrawTarget::stderr_with_hz(10);
    let bar = ProgressBar::with_draw_target(Some(length), target);
    bar.with_style(style.expect("a template").progress_chars("━━─"))
}

/// An exponential moving average.
pub struct Smooth {
    keep: f64,
    sum: f64,
    weight: f64,
}

impl Smooth {
    pub fn new(keep: f64) -> Smooth {
        Smooth { keep, sum: 0.0, weight: 0.0 }
    }

    /// The mean with one more value.
    pub fn add(&mut self, x: f64) -> f64 {
        self.sum = self.keep * self.sum + x;
        self.weight = self.keep * self.weight + 1.0;
        self.sum / self.weight
    }
}

/// A duration in readable units.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}
