//! A bar chart of the rungs' rates and the machine's limits.

use crate::ladder::Results;
use crate::svg::{Area, BACKGROUND, Drawing, Drawn, FAINT, INK, MUTED, draw, mix, text};
use plotters::prelude::*;

const ALL: RGBColor = RGBColor(38, 112, 176);
const LIMIT: RGBColor = RGBColor(214, 96, 32);

const WIDTH: i32 = 1040;
const LEFT: i32 = 150;
const RIGHT: i32 = 250;
const BAR: i32 = 22;
/// Space above and below the bars of a ladder.
const ABOVE: i32 = 58;
const BELOW: i32 = 26;

/// A chart with one panel per ladder. Light bars use one thread, dark ones all.
pub fn picture(results: &[Results]) -> Drawing {
    let heights = results.iter().map(|c| ABOVE + BELOW + BAR * c.steps.len() as i32);
    draw((WIDTH as u32, heights.clone().sum::<i32>().max(1) as u32), |area| {
        let mut top = 0;
        for (ladder, height) in results.iter().zip(heights) {
            panel(area, top, ladder)?;
            top += height;
        }
        Ok(())
    })
}

fn panel(area: &Area<'_>, top: i32, ladder: &Results) -> Drawn {
    let end = ladder.steps.iter().map(|s| s.rate).fold(ladder.all, f64::max);
    let at = |rate: f64| LEFT + (f64::from(WIDTH - LEFT - RIGHT) * rate / end) as i32;
    area.draw(&Text::new(ladder.title.clone(), (20, top + 16), text(18, &INK)))?;
    let bottom = top + ABOVE + BAR * ladder.steps.len() as i32;
    for (limit, threads) in [(ladder.one, "one thread"), (ladder.all, "all threads")] {
        let label = format!("{limit:.0}, {threads}");
        let x = at(limit) - 4 * label.len() as i32;
        area.draw(&Text::new(label, (x.max(LEFT), top + ABOVE - 22), text(12, &LIMIT)))?;
    }
    for (i, step) in ladder.steps.iter().enumerate() {
        let y = top + ABOVE + BAR * i as i32;
        let color = if step.threaded { ALL } else { mix(ALL, BACKGROUND, 0.5) };
        area.draw(&Rectangle::new([(LEFT, y), (WIDTH - RIGHT, y + BAR - 6)], FAINT.filled()))?;
        let bar = [(LEFT, y), (at(step.rate).max(LEFT + 1), y + BAR - 6)];
        area.draw(&Rectangle::new(bar, color.filled()))?;
        area.draw(&Text::new(step.name, (20, y + 1), text(14, &INK)))?;
        let share = 100.0 * ladder.share(step);
        let label = format!("{:.1} {}, {share:.0} % of the limit", step.rate, ladder.unit,);
        area.draw(&Text::new(label, (WIDTH - RIGHT + 10, y + 1), text(13, &MUTED)))?;
    }
    for limit in [ladder.one, ladder.all] {
        let line = [(at(limit), top + ABOVE - 6), (at(limit), bottom)];
        area.draw(&PathElement::new(line, LIMIT.stroke_width(2)))?;
    }
    Ok(())
}
