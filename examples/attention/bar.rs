//! A progress bar.

use crate::output::note;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, stderr};

/// The number of steps between lines, if there is no terminal.
const EVERY: u64 = 250;

/// A bar on a terminal, lines elsewhere.
pub struct Bar {
    bar: Option<ProgressBar>,
    steps: u64,
}

impl Bar {
    pub fn new(steps: u64) -> Bar {
        let bar = stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{wide_bar:.green/dim} {msg}  {eta} left");
            let style = style.expect("a template").progress_chars("━━─");
            ProgressBar::new(steps).with_style(style)
        });
        Bar { bar, steps }
    }

    /// Shows the progress after a step, counted from 1.
    pub fn step(&self, step: u64, loss: f32) {
        let text = format!("step {step}/{}  loss {loss:.3}", self.steps);
        match &self.bar {
            Some(bar) => {
                bar.set_position(step);
                bar.set_message(text);
            }
            None if step.is_multiple_of(EVERY) => note!("{text}"),
            None => {}
        }
    }

    /// Removes the bar.
    pub fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
