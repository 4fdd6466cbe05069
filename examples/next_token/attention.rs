//! Attention maps: for each character of a sentence, the attention weights of each head.

use crate::svg::{Drawing, INK, MUTED, text};
use crate::weights::{cells, scale};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use retrograd::prelude::*;

/// Side of a cell, in pixels.
const CELL: i32 = 11;
/// Heads in a row of pictures, at most.
const ACROSS: usize = 4;
const MARGIN: i32 = 40;
/// Above all heads, for the title and the colour scale.
const TOP: i32 = 92;
/// Above each head, for its name and the characters.
const HEADER: i32 = 44;
/// Between heads, and left of the first, for characters.
const GAP: i32 = 30;

/// The weights `[heads, L, L]` of a layer as an SVG: a matrix per head, a row per query, a column
/// per key.
pub fn picture(layer: usize, weights: &Tensor, sentence: &[char]) -> Drawing {
    let (heads, length) = (weights.size(0), sentence.len());
    let rows = heads.div_ceil(ACROSS);
    let columns = heads.div_ceil(rows);
    let side = length as i32 * CELL;
    let width = (2 * MARGIN + columns as i32 * (side + GAP)).max(640);
    let height = TOP + rows as i32 * (HEADER + side) + MARGIN;
    crate::svg::draw((width as u32, height as u32), |root| {
        let title = format!("Attention weights of layer {layer}");
        root.draw(&Text::new(title, (MARGIN, 22), text(22, &INK)))?;
        let legend = "Row: query character. Column: key character. Masked pairs are grey.";
        root.draw(&Text::new(legend, (MARGIN, 52), text(14, &MUTED)))?;
        scale(root, width - MARGIN)?;
        for head in 0..heads {
            let (row, column) = ((head / columns) as i32, (head % columns) as i32);
            let corner =
                (MARGIN + GAP + column * (side + GAP), TOP + row * (HEADER + side) + HEADER);
            square(root, corner, head, &weights.select(0, head), sentence)?;
        }
        Ok(())
    })
}

/// One head.
fn square(
    root: &crate::svg::Area,
    (x, y): (i32, i32),
    head: usize,
    weights: &Tensor,
    sentence: &[char],
) -> crate::svg::Drawn {
    root.draw(&Text::new(format!("head {}", head + 1), (x, y - 40), text(14, &INK)))?;
    for (i, &c) in sentence.iter().enumerate() {
        let at = i as i32 * CELL;
        let label = text(11, &MUTED);
        let above = label.pos(Pos::new(HPos::Center, VPos::Bottom));
        root.draw(&Text::new(shown(c), (x + at + CELL / 2, y - 4), above))?;
        let left = text(11, &MUTED).pos(Pos::new(HPos::Right, VPos::Center));
        root.draw(&Text::new(shown(c), (x - 6, y + at + CELL / 2), left))?;
    }
    // Masked pairs stay grey.
    cells(root, (x, y), CELL, weights, |i, j| j <= i)
}

/// A character as a label.
fn shown(c: char) -> String {
    match c {
        ' ' => '␣',
        '\n' => '⏎',
        '\t' => '⇥',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
    .to_string()
}
