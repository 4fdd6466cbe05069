//! The plot of the loss over the steps of a run.

use crate::svg::{BACKGROUND, Drawing, FAINT, INK, MUTED, mix, text};
use plotters::prelude::*;

const TRAIN: RGBColor = RGBColor(38, 112, 176);
const HELD_OUT: RGBColor = RGBColor(214, 96, 32);

/// Losses above this are divided by a power of ten, so that the labels of the axis fit.
const PLAIN: f64 = 1e5;

/// The steps of a run and their losses as an SVG: the loss of each step, their mean, and the loss
/// on held-out text. Losses may be any finite numbers.
pub fn picture(steps: &[(u64, f64)], held_out: &[(u64, f64)]) -> Drawing {
    let losses = || steps.iter().chain(held_out).map(|&(_, loss)| loss);
    let largest = losses().fold(0.0, |max: f64, loss| max.max(loss.abs()));
    // plotters searches for the ticks of an axis with a step that it halves and doubles. The search
    // does not end if the step overflows, or is too small to change the numbers it is added to.
    let unit = if largest < PLAIN { 1.0 } else { 10f64.powf(largest.log10().floor()) };
    let y_name = if unit == 1.0 { "loss".into() } else { format!("loss / {unit:e}") };
    let scaled = |losses: &[(u64, f64)]| -> Vec<(f64, f64)> {
        losses.iter().map(|&(step, loss)| (step as f64, loss / unit)).collect()
    };
    let last = held_out.last();
    let (steps, held_out) = (scaled(steps), scaled(held_out));
    let means = means(&steps);

    let losses = || steps.iter().chain(&held_out).map(|&(_, loss)| loss);
    let low = losses().reduce(f64::min).unwrap_or(0.0);
    let high = losses().reduce(f64::max).unwrap_or(0.0);
    let space = ((high - low) * 0.06).max(0.01);
    let bottom = if low < 0.0 { low - space } else { (low - space).max(0.0) };
    let end = steps.iter().chain(&held_out).fold(1.0, |end: f64, &(x, _)| end.max(x));
    crate::svg::draw((960, 560), |root| {
        root.draw(&Text::new("Training and held-out loss", (28, 20), text(22, &INK)))?;
        let title = match last {
            Some((_, loss)) => {
                format!("Nats per token; at the end {loss:.3} on the held-out windows.")
            }
            None => "Nats per token.".to_string(),
        };
        root.draw(&Text::new(title, (28, 50), text(14, &MUTED)))?;
        let (_, below) = root.split_vertically(74);
        let mut chart = ChartBuilder::on(&below)
            .margin_right(32)
            .margin_left(10)
            .margin_bottom(14)
            .x_label_area_size(46)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..end, bottom..high + space)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(MUTED)
            .x_desc("step")
            .y_desc(y_name)
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
            .label("training batches (pale: each; dark: moving average)")
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

/// The centred moving average of the losses, which does not lag behind them.
fn means(steps: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let reach = (steps.len() / 60).max(2);
    let mean = |i: usize| {
        let reach = reach.min(i).min(steps.len() - 1 - i);
        let near = &steps[i - reach..=i + reach];
        near.iter().map(|&(_, loss)| loss).sum::<f64>() / near.len() as f64
    };
    steps.iter().enumerate().map(|(i, &(step, _))| (step, mean(i))).collect()
}

#[cfg(test)]
mod tests {
    use super::picture;

    /// The picture of these losses, also as those on held-out text.
    fn drawn(losses: &[f64]) -> String {
        let losses: Vec<(u64, f64)> = (1..).zip(losses.iter().copied()).collect();
        let svg = picture(&losses, &losses).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{losses:?}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{losses:?}: {svg}");
        svg
    }

    #[test]
    fn any_finite_losses_can_be_drawn() {
        let (max, min) = (f64::MAX, f64::MIN_POSITIVE);
        let tiny = f64::from_bits(1);
        let numbers = [0.0, tiny, min, 1e-300, 1e-9, 2.5, 99_999.9, 1e5, 1e16, 1e30, 1e308, max];
        let signed = || numbers.into_iter().flat_map(|x| [x, -x]);
        drawn(&[]);
        for x in signed() {
            drawn(&[x]);
            drawn(&[x, x, x]);
            drawn(&[x, x.next_up().min(max), x.next_down().max(-max)]);
            for y in signed() {
                drawn(&[x, y, 4.0, x]);
            }
        }
    }

    #[test]
    fn large_losses_have_a_unit() {
        assert!(drawn(&[4.1, 99_999.0]).contains("\nloss\n"));
        assert!(drawn(&[4.1, 2.5e38]).contains("\nloss / 1e38\n"));
    }
}
