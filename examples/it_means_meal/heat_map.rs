//! The attention maps of all heads.

use crate::study::Head;
use crate::svg::{Area, Drawing, Drawn, INK, MUTED, draw, text};
use crate::weights::{cells, scale};
use plotters::prelude::*;
use plotters::style::FontTransform;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use retrograd::prelude::Tensor;

/// Side of a cell, in pixels.
const CELL: i32 = 15;
const MARGIN: i32 = 36;
/// Height of the title and the colour scale.
const TOP: i32 = 92;
/// Height of the name and the words above each head.
const HEADER: i32 = 104;
/// Width of the words at the left of each head.
const LEFT: i32 = 84;
/// The colour of a marked cell.
const POINTER: RGBColor = RGBColor(214, 96, 32);

/// The weights `[heads, L, L]` of each layer, for the model before and after training, as an SVG:
/// a matrix per head, a row per query, a column per key.
pub fn picture(words: &[&str], best: Head, maps: &[&[Tensor]; 2]) -> Drawing {
    let (layers, heads) = (maps[0].len() as i32, maps[0][0].size(0) as i32);
    let side = words.len() as i32 * CELL;
    let (across, down) = (LEFT + side + 12, HEADER + side + 16);
    let width = 2 * MARGIN + heads * across;
    let height = TOP + 2 * layers * down + MARGIN;
    draw((width as u32, height as u32), |root| {
        let title = "Attention weights before and after training";
        root.draw(&Text::new(title, (MARGIN, 22), text(22, &INK)))?;
        let legend = "Row: query word. Column: key word. The frame \
                   marks the row of \"it\" in the head that attends to its noun.";
        root.draw(&Text::new(legend, (MARGIN, 52), text(14, &MUTED)))?;
        scale(root, width - MARGIN)?;
        for (time, maps) in (0..).zip(maps) {
            for (layer, weights) in (0..).zip(maps.iter()) {
                for head in 0..heads {
                    let x = MARGIN + head * across + LEFT;
                    let y = TOP + (time * layers + layer) * down + HEADER;
                    let when = ["before", "after"][time as usize];
                    let name = format!("{when}: layer {}, head {}", layer + 1, head + 1);
                    square(root, (x, y), &name, &weights.select(0, head as usize), words)?;
                    if best == (Head { layer: layer as usize, head: head as usize }) {
                        let it = words.iter().position(|&w| w == "it").unwrap_or(0) as i32;
                        let row = [(x, y + it * CELL), (x + side, y + (it + 1) * CELL)];
                        root.draw(&Rectangle::new(row, POINTER.stroke_width(2)))?;
                    }
                }
            }
        }
        Ok(())
    })
}

/// One head.
fn square(root: &Area, (x, y): (i32, i32), name: &str, weights: &Tensor, words: &[&str]) -> Drawn {
    root.draw(&Text::new(name, (x, y - HEADER + 14), text(14, &INK)))?;
    let above = text(12, &MUTED)
        .transform(FontTransform::Rotate270)
        .pos(Pos::new(HPos::Left, VPos::Center));
    let left = text(12, &MUTED).pos(Pos::new(HPos::Right, VPos::Center));
    for (i, &word) in (0..).zip(words) {
        let middle = i * CELL + CELL / 2;
        root.draw(&Text::new(word, (x + middle, y - 5), above.clone()))?;
        root.draw(&Text::new(word, (x - 6, y + middle), left.clone()))?;
    }
    cells(root, (x, y), CELL, weights, |i, j| j <= i)
}
