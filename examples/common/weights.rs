//! Plots of attention weights as matrices of coloured squares.

use crate::svg::{Area, BACKGROUND, Drawn, FAINT, MUTED, mix, text};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use retrograd::prelude::Tensor;

/// Draws a matrix of weights with its top left corner at `(x, y)`: a square of this side for each
/// weight. Masked pairs are grey.
pub fn cells(
    root: &Area,
    (x, y): (i32, i32),
    side: i32,
    weights: &Tensor,
    visible: impl Fn(usize, usize) -> bool,
) -> Drawn {
    let (rows, columns) = (weights.size(0), weights.size(1));
    let end = (x + columns as i32 * side, y + rows as i32 * side);
    root.draw(&Rectangle::new([(x, y), end], FAINT.filled()))?;
    for i in 0..rows {
        for j in (0..columns).filter(|&j| visible(i, j)) {
            let (left, top) = (x + j as i32 * side, y + i as i32 * side);
            let color = color(weights.at(&[i, j]).sqrt());
            let corners = [(left, top), (left + side, top + side)];
            root.draw(&Rectangle::new(corners, color.filled()))?;
        }
    }
    Ok(())
}

/// Draws the colour scale, with its right end at `right`.
pub fn scale(root: &Area, right: i32) -> Drawn {
    const WIDTH: i32 = 160;
    let left = right - WIDTH;
    for i in 0..WIDTH {
        let color = color(i as f32 / (WIDTH - 1) as f32);
        root.draw(&Rectangle::new([(left + i, 26), (left + i + 1, 38)], color.filled()))?;
    }
    for (weight, label) in [(0.0f64, "0"), (0.1, "0.1"), (0.3, "0.3"), (0.6, "0.6"), (1.0, "1")] {
        let x = left + (weight.sqrt() * f64::from(WIDTH)) as i32;
        let style = text(12, &MUTED).pos(Pos::new(HPos::Center, VPos::Top));
        root.draw(&Text::new(label, (x, 42), style))?;
    }
    let style = text(12, &MUTED).pos(Pos::new(HPos::Right, VPos::Center));
    root.draw(&Text::new("attention weight", (left - 12, 32), style))
}

/// The colour of a weight, given its square root: from the background through blue to almost black.
/// The scale is linear in the square root, so that small weights are visible.
fn color(root_of_weight: f32) -> RGBColor {
    const STOPS: [RGBColor; 5] = [
        BACKGROUND,
        RGBColor(178, 216, 232),
        RGBColor(70, 150, 200),
        RGBColor(28, 84, 150),
        RGBColor(12, 28, 66),
    ];
    let place = root_of_weight.clamp(0.0, 1.0) * (STOPS.len() - 1) as f32;
    let i = (place as usize).min(STOPS.len() - 2);
    mix(STOPS[i], STOPS[i + 1], place - i as f32)
}
