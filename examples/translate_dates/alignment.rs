//! Cross-attention weights, as text and as a plot.

use crate::output::say;
use crate::svg::{Area, Drawing, Drawn, INK, MUTED, draw, text};
use crate::weights::{cells, scale};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use retrograd::prelude::Tensor;

/// Prints a line for each symbol, with a shade under each character: darker is a larger weight.
/// `weights` is `[symbols, characters]`.
pub fn print(weights: &Tensor, written: &str, iso: &str) {
    const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];
    say!("      {written}");
    for (i, symbol) in iso.chars().enumerate() {
        let row = weights.select(0, i).to_vec();
        let shade = |w: f32| SHADES[((w.sqrt() * 5.0) as usize).min(4)];
        say!("    {symbol} {}", row.into_iter().map(shade).collect::<String>());
    }
}

/// Side of a cell, in pixels.
const CELL: i32 = 20;
const MARGIN: i32 = 36;
/// Height of the title and the colour scale.
const TOP: i32 = 92;
/// Height of the name and the characters above each head.
const HEADER: i32 = 50;
/// Width of the symbols at the left of each head.
const LEFT: i32 = 24;

/// The weights `[heads, symbols, characters]` of each layer as an SVG.
pub fn picture(maps: &[Tensor], written: &str, iso: &str) -> Drawing {
    let heads = maps[0].size(0) as i32;
    let (across, down) =
        (LEFT + written.len() as i32 * CELL + 24, HEADER + iso.len() as i32 * CELL + 24);
    let columns = 2.min(heads);
    let rows = maps.len() as i32 * heads / columns;
    let (width, height) = (2 * MARGIN + columns * across, TOP + rows * down + MARGIN);
    draw((width.max(720) as u32, height as u32), |root| {
        let title = format!("Cross-attention weights: \"{written}\" to {iso}");
        root.draw(&Text::new(title, (MARGIN, 22), text(22, &INK)))?;
        let legend = "Row: symbol of the output. Column: character of the input.";
        root.draw(&Text::new(legend, (MARGIN, 52), text(14, &MUTED)))?;
        scale(root, width.max(720) - MARGIN)?;
        for (layer, weights) in (0..).zip(maps) {
            for head in 0..heads {
                let place = layer * heads + head;
                let x = MARGIN + place % columns * across + LEFT;
                let y = TOP + place / columns * down + HEADER;
                let name = format!("layer {}, head {}", layer + 1, head + 1);
                let weights = weights.select(0, head as usize);
                square(root, (x, y), &name, &weights, written, iso)?;
            }
        }
        Ok(())
    })
}

/// One head.
fn square(
    root: &Area,
    (x, y): (i32, i32),
    name: &str,
    weights: &Tensor,
    written: &str,
    iso: &str,
) -> Drawn {
    root.draw(&Text::new(name.to_string(), (x, y - 44), text(14, &INK)))?;
    let above = text(14, &MUTED).pos(Pos::new(HPos::Center, VPos::Bottom));
    for (i, c) in (0..).zip(written.chars()) {
        let at = (x + i * CELL + CELL / 2, y - 4);
        root.draw(&Text::new(c.to_string(), at, above.clone()))?;
    }
    let left = text(14, &MUTED).pos(Pos::new(HPos::Right, VPos::Center));
    for (i, c) in (0..).zip(iso.chars()) {
        let at = (x - 8, y + i * CELL + CELL / 2);
        root.draw(&Text::new(c.to_string(), at, left.clone()))?;
    }
    cells(root, (x, y), CELL, weights, |_, _| true)
}
