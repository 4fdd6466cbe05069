//! A picture of the loss over the run.

use crate::log::{Evaluation, Log};
use crate::svg::{BACKGROUND, Drawing, FAINT, INK, MUTED, mix, text};
use plotters::prelude::*;

const TRAIN: RGBColor = RGBColor(38, 112, 176);
const HELD_OUT: RGBColor = RGBColor(214, 96, 32);

/// The log of a run as an SVG: the loss of each step, their mean, and the loss on held-out
/// text.
pub fn picture(log: &Log) -> Drawing {
    let steps: Vec<(f64, f64)> = log.steps().map(|s| (s.step as f64, s.loss)).collect();
    let means = means(&steps);
    let held_out: Vec<(f64, f64)> =
        log.evaluations().map(|Evaluation { step, val_loss }| (step as f64, val_loss)).collect();

    let losses = || steps.iter().chain(&held_out).map(|&(_, loss)| loss);
    let (low, high) = (losses().fold(f64::MAX, f64::min), losses().fold(f64::MIN, f64::max));
    let space = ((high - low) * 0.06).max(0.01);
    let end = steps.iter().chain(&held_out).fold(1.0, |end: f64, &(x, _)| end.max(x));
    crate::svg::draw((960, 560), |root| {
        root.draw(&Text::new("How the loss falls", (28, 20), text(22, &INK)))?;
        let title = match held_out.last() {
            Some((_, loss)) => {
                format!("Nats per character; at the end {loss:.3} on held-out text.")
            }
            None => "Nats per character.".to_string(),
        };
        root.draw(&Text::new(title, (28, 50), text(14, &MUTED)))?;
        let (_, below) = root.split_vertically(74);
        let mut chart = ChartBuilder::on(&below)
            .margin_right(32)
            .margin_left(10)
            .margin_bottom(14)
            .x_label_area_size(46)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..end, (low - space).max(0.0)..high + space)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(MUTED)
            .x_desc("step")
            .y_desc("loss")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .label_style(text(13, &MUTED))
            .axis_desc_style(text(14, &INK))
            .draw()?;
        let pale = mix(TRAIN, BACKGROUND, 0.65);
        chart.draw_series(LineSeries::new(steps, pale.stroke_width(1)))?;
        let line = |color: RGBColor| {
            move |(x, y)| PathElement::new([(x, y), (x + 22, y)], color.stroke_width(3))
        };
        chart
            .draw_series(LineSeries::new(means, TRAIN.stroke_width(2)))?
            .label("training batches (pale: each; dark: their mean)")
            .legend(line(TRAIN));
        chart
            .draw_series(LineSeries::new(held_out.clone(), HELD_OUT.stroke_width(2)))?
            .label("held-out text")
            .legend(line(HELD_OUT));
        let dot = |at: &(f64, f64)| Circle::new(*at, 4, HELD_OUT.filled());
        chart.draw_series(held_out.iter().map(dot))?;
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .margin(14)
            .legend_area_size(34)
            .background_style(BACKGROUND)
            .label_font(text(14, &INK))
            .draw()
    })
}

/// The mean of each loss and its neighbours: as many before as after, so that the curve does not
/// lag behind.
fn means(steps: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let reach = (steps.len() / 60).max(2);
    let mean = |i: usize| {
        let reach = reach.min(i).min(steps.len() - 1 - i);
        let near = &steps[i - reach..=i + reach];
        near.iter().map(|&(_, loss)| loss).sum::<f64>() / near.len() as f64
    };
    steps.iter().enumerate().map(|(i, &(step, _))| (step, mean(i))).collect()
}
