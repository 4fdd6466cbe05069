//! Drawings in SVG for pages with a light or a dark background: lines and letters have the colour of the
//! text around them (`currentColor`), and other colours are legible on both.

use std::fmt::{Display, Write};

pub(crate) const INK: &str = "currentColor";
pub(crate) const BLUE: &str = "#4a8fd6";
pub(crate) const ORANGE: &str = "#e07b39";
pub(crate) const GREEN: &str = "#3fa66b";
pub(crate) const PURPLE: &str = "#9a6fd0";

/// Where a text is, relative to its point.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing.
pub(crate) struct Svg {
    body: String,
    width: f64,
    height: f64,
    title: String,
}

/// Coordinates with one decimal place, and without a trailing `.0`.
fn round(x: f64) -> f64 {
    let x = (10.0 * x).round() / 10.0;
    if x == 0.0 { 0.0 } else { x } // no -0
}

fn escaped(text: impl Display) -> String {
    text.to_string().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Svg {
    /// An empty drawing; the title is what a screen reader says.
    pub(crate) fn new(width: f64, height: f64, title: &str) -> Svg {
        Svg { body: String::new(), width, height, title: title.into() }
    }

    fn push(&mut self, element: impl Display) {
        writeln!(self.body, "{element}").expect("writing to a string");
    }

    pub(crate) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, text: impl Display) {
        self.styled(((x, y), anchor), (13.0, INK), text);
    }

    /// A text of a size and a colour.
    pub(crate) fn styled(
        &mut self,
        ((x, y), anchor): ((f64, f64), Anchor),
        (size, color): (f64, &str),
        text: impl Display,
    ) {
        let (x, y, text) = (round(x), round(y), escaped(text));
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.push(format_args!(
            r#"<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{color}" stroke="none">{text}</text>"#
        ));
    }

    /// A rectangle, filled with a colour of this opacity.
    fn filled(
        &mut self,
        (x, y): (f64, f64),
        (w, h): (f64, f64),
        (color, opacity): (&str, f64),
        outline: &str,
    ) {
        let [x, y, w, h] = [x, y, w, h].map(round);
        let opacity = (100.0 * opacity).round() / 100.0;
        self.push(format_args!(
            r#"<rect x="{x}" y="{y}" width="{w}" height="{h}" fill="{color}" fill-opacity="{opacity}" {outline}/>"#
        ));
    }

    pub(crate) fn rect(&mut self, at: (f64, f64), size: (f64, f64), color: (&str, f64)) {
        self.filled(at, size, color, r#"stroke-opacity="0.45""#);
    }

    /// A rectangle without an outline.
    pub(crate) fn area(&mut self, at: (f64, f64), size: (f64, f64), color: (&str, f64)) {
        self.filled(at, size, color, r#"stroke="none""#);
    }

    pub(crate) fn circle(
        &mut self,
        (x, y): (f64, f64),
        radius: f64,
        (color, opacity): (&str, f64),
    ) {
        let [x, y, radius] = [x, y, radius].map(round);
        self.push(format_args!(
            r#"<circle cx="{x}" cy="{y}" r="{radius}" fill="{color}" fill-opacity="{opacity}"/>"#
        ));
    }

    /// A line through points; dashed or not.
    pub(crate) fn path(
        &mut self,
        points: &[(f64, f64)],
        (color, width): (&str, f64),
        dashed: bool,
    ) {
        let points: Vec<String> =
            points.iter().map(|&(x, y)| format!("{},{}", round(x), round(y))).collect();
        let dash = if dashed { r#" stroke-dasharray="5 4""# } else { "" };
        self.push(format_args!(
            r#"<polyline points="{}" fill="none" stroke="{color}" stroke-width="{width}"{dash}/>"#,
            points.join(" ")
        ));
    }

    /// A line with a head at its end.
    pub(crate) fn arrow(&mut self, from: (f64, f64), to: (f64, f64), (color, width): (&str, f64)) {
        self.path(&[from, to], (color, width), false);
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx.hypot(dy).max(1e-9);
        let (dx, dy) = (7.0 * dx / length, 7.0 * dy / length);
        let side = |s: f64| (to.0 - dx - 0.5 * s * dy, to.1 - dy + 0.5 * s * dx);
        self.path(&[side(1.0), to, side(-1.0)], (color, width), false);
    }

    /// A box with lines of text, the first one larger.
    pub(crate) fn node(
        &mut self,
        (x, y): (f64, f64),
        (w, h): (f64, f64),
        color: &str,
        lines: &[String],
    ) {
        self.rect((x - w / 2.0, y - h / 2.0), (w, h), (color, 0.18));
        let top = y - 8.0 * (lines.len() as f64 - 1.0) + 4.5;
        for (i, line) in lines.iter().enumerate() {
            let size = if i == 0 { 14.0 } else { 12.0 };
            self.styled(((x, top + 16.0 * i as f64), Anchor::Middle), (size, INK), line);
        }
    }

    /// The file. It has no empty line, at which Markdown would end it.
    pub(crate) fn finish(self) -> String {
        let Svg { body, width, height, title } = self;
        let title = escaped(title);
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" style="max-width:100%;height:auto" role="img" font-family="sans-serif" stroke="currentColor" stroke-linejoin="round">
<title>{title}</title>
{body}</svg>
"#
        )
    }
}

/// The area of a plot, and the ranges that it shows.
pub(crate) struct Plot {
    pub(crate) at: (f64, f64),
    pub(crate) size: (f64, f64),
    pub(crate) x: (f64, f64),
    pub(crate) y: (f64, f64),
    /// Whether the second axis is logarithmic.
    pub(crate) log: bool,
}

impl Plot {
    pub(crate) fn point(&self, x: f64, y: f64) -> (f64, f64) {
        let scale = |y: f64| if self.log { y.ln() } else { y };
        let part = |v: f64, (lo, hi): (f64, f64)| (v - lo) / (hi - lo);
        let up = part(scale(y), (scale(self.y.0), scale(self.y.1)));
        (self.at.0 + self.size.0 * part(x, self.x), self.at.1 + self.size.1 * (1.0 - up))
    }

    /// Axes with these ticks and names.
    pub(crate) fn axes(&self, svg: &mut Svg, (xs, x): (&[f64], &str), (ys, y): (&[f64], &str)) {
        let ((left, top), (width, height)) = (self.at, self.size);
        let bottom = top + height;
        for &tick in ys {
            let (_, at) = self.point(self.x.0, tick);
            svg.area((left, at - 0.5), (width, 1.0), (INK, 0.15));
            let label =
                if self.log && tick < 1e-3 { format!("{tick:e}") } else { tick.to_string() };
            svg.styled(((left - 6.0, at + 4.0), Anchor::End), (11.5, INK), label);
        }
        for &tick in xs {
            let (at, _) = self.point(tick, self.y.0);
            svg.path(&[(at, bottom), (at, bottom + 4.0)], (INK, 1.0), false);
            svg.styled(((at, bottom + 17.0), Anchor::Middle), (11.5, INK), tick);
        }
        svg.path(&[(left, top), (left, bottom), (left + width, bottom)], (INK, 1.0), false);
        svg.styled(((left + width / 2.0, bottom + 34.0), Anchor::Middle), (12.5, INK), x);
        svg.styled(((left - 30.0, top - 10.0), Anchor::Start), (12.5, INK), y);
    }

    /// A line through the points that are finite and within the range of the first axis.
    pub(crate) fn line(&self, svg: &mut Svg, points: &[(f64, f64)], pen: (&str, f64)) {
        let finite = |p: &(f64, f64)| p.1.is_finite() && (!self.log || p.1 > 0.0);
        for run in points.split(|p| !finite(p)).filter(|run| !run.is_empty()) {
            let run: Vec<_> =
                run.iter().map(|&(x, y)| self.point(x, y.clamp(self.y.0, self.y.1))).collect();
            svg.path(&run, pen, false);
        }
    }
}
