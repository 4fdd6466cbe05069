//! Code that the plots of the examples share.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::TextStyle;
use std::fmt::Display;

pub const BACKGROUND: RGBColor = RGBColor(255, 255, 255);
pub const INK: RGBColor = RGBColor(32, 36, 44);
pub const MUTED: RGBColor = RGBColor(104, 112, 124);
#[allow(dead_code)] // Not every example needs it.
pub const FAINT: RGBColor = RGBColor(234, 236, 240);

/// The text of an SVG file, or why it could not be drawn.
pub type Drawing = Result<String, String>;
/// A surface to draw on.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// The result of drawing.
pub type Drawn =
    Result<(), DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>>;

/// Draws a picture of this size.
pub fn draw(size: (u32, u32), f: impl FnOnce(&Area<'_>) -> Drawn) -> Drawing {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let explain = |e: &dyn Display| e.to_string();
    area.fill(&BACKGROUND).map_err(|e| explain(&e))?;
    f(&area).map_err(|e| explain(&e))?;
    area.present().map_err(|e| explain(&e))?;
    drop(area);
    Ok(svg)
}

/// A text style of this height and colour.
pub fn text(size: i32, color: &RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(color)
}

/// Interpolates between two colours: `a` at 0, `b` at 1.
pub fn mix(a: RGBColor, b: RGBColor, part: f32) -> RGBColor {
    let mix = |a: u8, b: u8| (f32::from(a) + part * (f32::from(b) - f32::from(a))).round() as u8;
    RGBColor(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}
