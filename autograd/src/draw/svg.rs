//! Graphs as SVG pictures.

use super::layout::{Layout, Sizes, layout};
use super::{Drawn, Outline};
use crate::graph::{Id, Var};
use retrograd_tensor::Real;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The width of a character of 12 px, at most, in common fonts of one width.
const CHARACTER: f64 = 7.4;
const HEIGHT: f64 = 40.0;
/// Colours of a light and of a dark page.
const STYLE: &str = "text{font:12px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#1c2128;\
    text-anchor:middle}.s{fill:#5b6472}rect{fill:#fff;stroke:#5b6472}.l{fill:#eef4fb;stroke:#1f5fa8}\
    path{fill:none;stroke:#98a1ae;stroke-width:1.4}@media(prefers-color-scheme:dark){text{fill:#e4e7ec}\
    .s{fill:#9aa4b2}rect{fill:#1b1f26;stroke:#9aa4b2}.l{fill:#1c2c3f;stroke:#7db4ee}path{stroke:#69727f}}";

/// The graph that `roots` were computed by, as an SVG picture, which browsers show: operations as boxes
/// with the shapes of their results, leaves as boxes with round ends. Every line leads down from a variable
/// to an operation that uses it. `names` are names of leaves; constants are not drawn.
///
/// ```
/// use retrograd_autograd::{Var, to_svg};
/// use retrograd_tensor::Tensor;
/// let x = Var::leaf(Tensor::<f32>::ones([2, 3]));
/// let svg = to_svg(&[&x.exp().sum(..)], &[("x", &x)]);
/// assert!(svg.starts_with("<svg ") && svg.contains(">exp</text>") && svg.contains(">x</text>"));
/// ```
#[inline(never)]
pub fn to_svg<T: Real>(roots: &[&Var<T>], names: &[(&str, &Var<T>)]) -> String {
    let named = |&(name, var): &(&str, &Var<T>)| Some((var.id()?, name.to_string()));
    picture(&Outline::of(roots), &names.iter().filter_map(named).collect())
}

fn picture(outline: &Outline, names: &BTreeMap<Id, String>) -> String {
    let lines = |id: &Id, drawn: &Drawn| {
        let name = names.get(id).map_or("leaf", String::as_str);
        [drawn.operation.unwrap_or(name).to_string(), drawn.shapes()]
    };
    let texts: Vec<[String; 2]> = outline.boxes.iter().map(|(id, d)| lines(id, d)).collect();
    let numbers: BTreeMap<Id, usize> = outline.boxes.keys().copied().zip(0..).collect();
    let mut edges: Vec<_> = outline.edges.iter().map(|(a, b)| (numbers[a], numbers[b])).collect();
    edges.sort_unstable();
    edges.dedup(); // an operation on the same variable twice
    let characters = |text: &[String; 2]| text.iter().map(|t| t.chars().count()).max().unwrap_or(0);
    let widths: Vec<f64> =
        texts.iter().map(|text| (characters(text) as f64 * CHARACTER + 20.0).max(64.0)).collect();
    let sizes = Sizes { widths, height: HEIGHT, gap: 14.0, rank_gap: 26.0 };
    let Layout { width, height, boxes, edges } = layout(&sizes, &edges);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\">\n<style>{STYLE}</style>\n"
    );
    let half = HEIGHT / 2.0;
    for line in edges {
        let last = line.len() - 1;
        let _ = write!(out, "<path d=\"M{:.1} {:.1}", line[0].0, line[0].1 + half);
        for i in 1..=last {
            let ((x0, y0), (x1, y1)) = (line[i - 1], line[i]);
            let y0 = if i == 1 { y0 + half } else { y0 };
            let y1 = if i == last { y1 - half } else { y1 };
            let middle = (y0 + y1) / 2.0;
            let _ = write!(out, "C{x0:.1} {middle:.1} {x1:.1} {middle:.1} {x1:.1} {y1:.1}");
        }
        out.push_str("\"/>\n");
    }
    let drawn = outline.boxes.values().zip(&texts).zip(boxes).zip(&sizes.widths);
    for (((drawn, [first, second]), (x, y)), width) in drawn {
        let (class, round) = if drawn.operation.is_none() { (" class=\"l\"", 20) } else { ("", 5) };
        let (left, top) = (x - width / 2.0, y - half);
        let (first, second) = (escaped(first), escaped(second));
        let _ = writeln!(
            out,
            "<rect{class} x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{HEIGHT}\" rx=\"{round}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\">{first}</text><text class=\"s\" x=\"{x:.1}\" y=\"{:.1}\">{second}</text>",
            y - 3.0,
            y + 13.0
        );
    }
    out.push_str("</svg>\n");
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
