//! Attention maps: for each token of a sentence, the attention weights of each head.

use crate::svg::{Drawing, INK, MUTED, text};
use crate::weights::{cells, scale};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use retrograd::nn::text::Printable;
use retrograd::prelude::*;

/// Side of a cell, in pixels.
const CELL: i32 = 11;
/// Heads in a row of pictures, at most.
const ACROSS: usize = 4;
const MARGIN: i32 = 40;
/// Above all heads, for the title and the colour scale.
const TOP: i32 = 92;
/// Above each head, for its name.
const HEADER: i32 = 30;
/// The longest label, in characters.
const LONGEST: usize = 8;

/// The weights `[heads, L, L]` of a layer as an SVG: a matrix per head, a row per query, a column
/// per key.
pub fn picture(layer: usize, weights: &Tensor, sentence: &[String]) -> Drawing {
    let (heads, length) = (weights.size(0), sentence.len());
    let labels: Vec<String> = sentence.iter().map(|token| shown(token)).collect();
    // Tokens of several characters are written from bottom to top above the columns.
    let longest = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let (header, gap) = if longest > 1 {
        (HEADER + 8 * LONGEST as i32, 8 * LONGEST as i32)
    } else {
        (HEADER + 14, 30)
    };
    let rows = heads.div_ceil(ACROSS);
    let columns = heads.div_ceil(rows);
    let side = length as i32 * CELL;
    let width = (2 * MARGIN + columns as i32 * (side + gap)).max(640);
    let height = TOP + rows as i32 * (header + side) + MARGIN;
    crate::svg::draw((width as u32, height as u32), |root| {
        let title = format!("Attention weights of layer {layer}");
        root.draw(&Text::new(title, (MARGIN, 22), text(22, &INK)))?;
        let legend = "Row: query token. Column: key token. Masked pairs are grey.";
        root.draw(&Text::new(legend, (MARGIN, 52), text(14, &MUTED)))?;
        scale(root, width - MARGIN)?;
        for head in 0..heads {
            let (row, column) = ((head / columns) as i32, (head % columns) as i32);
            let corner =
                (MARGIN + gap + column * (side + gap), TOP + row * (header + side) + header);
            let (x, y) = corner;
            let name = format!("head {}", head + 1);
            root.draw(&Text::new(name, (x, y - header + 4), text(14, &INK)))?;
            square(root, corner, &weights.select(0, head), &labels)?;
        }
        Ok(())
    })
}

/// One head.
fn square(
    root: &crate::svg::Area,
    (x, y): (i32, i32),
    weights: &Tensor,
    labels: &[String],
) -> crate::svg::Drawn {
    let is_long = labels.iter().any(|label| label.chars().count() > 1);
    for (i, label) in labels.iter().enumerate() {
        let at = i as i32 * CELL;
        let style = text(11, &MUTED);
        let above = match is_long {
            true => {
                let up = style.transform(FontTransform::Rotate270);
                up.pos(Pos::new(HPos::Left, VPos::Center))
            }
            false => style.pos(Pos::new(HPos::Center, VPos::Bottom)),
        };
        root.draw(&Text::new(label.clone(), (x + at + CELL / 2, y - 4), above))?;
        let left = text(11, &MUTED).pos(Pos::new(HPos::Right, VPos::Center));
        root.draw(&Text::new(label.clone(), (x - 6, y + at + CELL / 2), left))?;
    }
    // Masked pairs stay grey.
    cells(root, (x, y), CELL, weights, |i, j| j <= i)
}

/// A token as a label; the beginning of a long one.
fn shown(token: &str) -> String {
    let shown = |c: char| match c {
        ' ' => '␣',
        '\n' => '⏎',
        '\t' => '⇥',
        c => c,
    };
    let token: String = token.chars().map(shown).collect();
    let token = Printable(token).to_string();
    let mut label: String = token.chars().take(LONGEST).collect();
    if token.chars().count() > LONGEST {
        label.pop();
        label.push('…');
    }
    label
}
