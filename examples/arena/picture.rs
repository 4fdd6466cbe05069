//! The table as a plot: a row per variant, a column per task, a colour per accuracy.

use crate::svg::{BACKGROUND, INK, MUTED, draw, mix, text};
use crate::table::Table;
use crate::tasks::Task;
use crate::train::Score;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const ROW: i32 = 18;
const COLUMN: i32 = 96;
const LEFT: i32 = 140;
const TOP: i32 = 96;

/// The share of the best possible result: accuracy, or for text the place of the loss between the
/// worst and the best variant.
fn share(table: &Table, score: &Score, task: usize) -> f64 {
    if Task::ALL[task] != Task::Text {
        return score.accuracy;
    }
    let scores = || table.rows.iter().flat_map(|row| &row.scores[task]);
    let losses = || scores().map(|score| score.loss);
    let (best, worst) = (losses().fold(f64::MAX, f64::min), losses().fold(0.0, f64::max));
    if worst > best { (worst - score.loss) / (worst - best) } else { 1.0 }
}

pub fn picture(table: &Table) -> Result<String, String> {
    let tasks = Task::ALL.len() as i32;
    let size = (LEFT + tasks * COLUMN + 24, TOP + table.rows.len() as i32 * ROW + 24);
    draw((size.0.max(560) as u32, size.1 as u32), |root| {
        root.draw(&Text::new("Attention variants by task", (16, 14), text(22, &INK)))?;
        let legend = "Accuracy in percent; text: loss in nats per character. Darker is better.";
        root.draw(&Text::new(legend, (16, 44), text(14, &MUTED)))?;
        let centre = |color: &RGBColor| text(13, color).pos(Pos::new(HPos::Center, VPos::Center));
        for (t, task) in Task::ALL.iter().enumerate() {
            let x = LEFT + t as i32 * COLUMN + COLUMN / 2;
            root.draw(&Text::new(task.name(), (x, TOP - 12), centre(&INK)))?;
        }
        for (r, row) in table.rows.iter().enumerate() {
            let y = TOP + r as i32 * ROW;
            let right = text(13, &INK).pos(Pos::new(HPos::Right, VPos::Center));
            root.draw(&Text::new(row.kind.name(), (LEFT - 8, y + ROW / 2), right))?;
            for (t, task) in Task::ALL.iter().enumerate() {
                let x = LEFT + t as i32 * COLUMN;
                let Ok(score) = &row.scores[t] else {
                    let at = (x + COLUMN / 2, y + ROW / 2 - 1);
                    root.draw(&Text::new("failed", at, centre(&MUTED)))?;
                    continue;
                };
                let share = share(table, score, t);
                let color = mix(BACKGROUND, RGBColor(28, 84, 150), share as f32);
                let corners = [(x, y), (x + COLUMN - 2, y + ROW - 2)];
                root.draw(&Rectangle::new(corners, color.filled()))?;
                let value = match task {
                    Task::Text => format!("{:.3}", score.loss),
                    _ => format!("{:.1}", 100.0 * score.accuracy),
                };
                let ink = if share > 0.55 { BACKGROUND } else { INK };
                let at = (x + COLUMN / 2, y + ROW / 2 - 1);
                root.draw(&Text::new(value, at, centre(&ink)))?;
            }
        }
        Ok(())
    })
}
