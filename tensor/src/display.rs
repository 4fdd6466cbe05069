//! Tensors as text, in PyTorch's format with its default options; element types have Rust's names.
//!
//! Four digits; one width for all elements, computed from those that are printed; scientific
//! notation for all elements or for none; lines of at most 80 columns; of more than 1000 elements,
//! only three at each end of an axis. The alternate form `{:#}` adds a line with element type and
//! shape. A precision, as in `{:.2}`, is the number of digits after the point, PyTorch's
//! `set_printoptions(precision=2)`.
//!
//! ```
//! use retrograd::prelude::*;
//! let x = Tensor::from([[1.5f32, -2.0], [0.25, 10.0]]);
//! assert_eq!(
//!     format!("{x:#}"),
//!     "tensor([[ 1.5000, -2.0000],\n        [ 0.2500, 10.0000]])\nf32 [2, 2]"
//! );
//! assert_eq!(format!("{x:.1}"), "tensor([[ 1.5, -2.0],\n        [ 0.2, 10.0]])");
//! ```

use crate::element::{DType, Element};
use crate::tensor::Tensor;
use std::any::Any;
use std::fmt::{self, Debug, Display, Formatter};

const LINE: usize = 80;
const SHOWN_IN_FULL: usize = 1000;
const EDGE: usize = 3;
const DIGITS: usize = 4;
const PREFIX: &str = "tensor(";

impl<T: Element> Display for Tensor<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&text(self, f.precision()))?;
        if f.alternate() {
            write!(f, "\n{} {}", T::DTYPE, self.shape())?;
        }
        Ok(())
    }
}

/// The same text as [`Display`].
impl<T: Element> Debug for Tensor<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&text(self, f.precision()))
    }
}

#[inline(never)]
fn text<T: Element>(x: &Tensor<T>, digits: Option<usize>) -> String {
    let mut out = PREFIX.to_owned();
    let mut suffixes = Vec::new();
    let empty = x.numel() == 0;
    if empty {
        out.push_str("[]");
        if x.rank() != 1 {
            let sizes: Vec<String> = x.shape().iter().map(usize::to_string).collect();
            suffixes.push(format!("size=({})", sizes.join(", ")));
        }
    } else {
        let summary = x.numel() > SHOWN_IN_FULL;
        let mut seen = Vec::new();
        collect(x, summary, &mut seen);
        let style = Style::of(&seen, digits.unwrap_or(DIGITS));
        nested(x, PREFIX.len(), summary, &style, &mut out);
    }
    // The type is omitted where the elements determine it: without elements it is always printed,
    // unless it is the default.
    let is_printed = match T::DTYPE {
        DType::F32 => false,
        DType::F64 | DType::U32 => true,
        DType::I64 | DType::Bool => empty,
    };
    suffixes.extend(is_printed.then(|| format!("dtype={}", T::DTYPE)));
    // PyTorch counts two columns too many here; its line breaks depend on that.
    let mut column = match out.rfind('\n') {
        Some(at) => out.len() - at + 1,
        None => out.len() + 2,
    };
    for suffix in suffixes {
        if column + suffix.len() + 2 > LINE {
            out += &format!(",\n{:indent$}{suffix}", "", indent = PREFIX.len());
            column = PREFIX.len() + suffix.len();
        } else {
            out += &format!(", {suffix}");
            column += suffix.len() + 2;
        }
    }
    out + ")"
}

/// The indices of an axis that are printed; `None` stands for the omitted ones.
fn shown(size: usize, summary: bool) -> impl Iterator<Item = Option<usize>> {
    let cut = summary && size > 2 * EDGE;
    let (head, tail) = if cut { (EDGE, size - EDGE) } else { (size, size) };
    (0..head).map(Some).chain(cut.then_some(None)).chain((tail..size).map(Some))
}

/// Collects the elements that are printed.
fn collect<T: Element>(x: &Tensor<T>, summary: bool, seen: &mut Vec<Cell>) {
    if x.rank() == 0 {
        seen.push(Cell::of(x.item()));
        return;
    }
    for i in shown(x.shape()[0], summary).flatten() {
        collect(&x.select(0, i), summary, seen);
    }
}

/// Writes nested brackets; `indent` is the column of the opening one.
fn nested<T: Element>(
    x: &Tensor<T>,
    indent: usize,
    summary: bool,
    style: &Style,
    out: &mut String,
) {
    if x.rank() == 0 {
        *out += &style.show(&Cell::of(x.item()));
        return;
    }
    let per_line = match x.rank() {
        1 => ((LINE - indent) / (style.width + 2)).max(1),
        _ => 1,
    };
    let blank_lines = if x.rank() == 1 { 1 } else { x.rank() - 1 };
    out.push('[');
    for (at, i) in shown(x.shape()[0], summary).enumerate() {
        if at > 0 {
            out.push(',');
            if at % per_line > 0 {
                out.push(' ');
            } else {
                out.push_str(&"\n".repeat(blank_lines));
                out.push_str(&" ".repeat(indent + 1));
            }
        }
        match i {
            Some(i) => nested(&x.select(0, i), indent + 1, summary, style, out),
            None => out.push_str(if x.rank() == 1 { " ..." } else { "..." }),
        }
    }
    out.push(']');
}

/// An element to be formatted.
enum Cell {
    Float(f64),
    Other(String),
}

impl Cell {
    fn of<T: Element>(x: T) -> Cell {
        let x: &dyn Any = &x;
        if let Some(&x) = x.downcast_ref::<f32>() {
            Cell::Float(x.into())
        } else if let Some(&x) = x.downcast_ref::<f64>() {
            Cell::Float(x)
        } else if let Some(&x) = x.downcast_ref::<bool>() {
            Cell::Other(if x { "True" } else { "False" }.to_owned())
        } else {
            let integer = x.downcast_ref::<i64>().map(i64::to_string);
            let integer = integer.or_else(|| x.downcast_ref::<u32>().map(u32::to_string));
            Cell::Other(integer.expect("one of the five element types"))
        }
    }
}

/// The format of all elements of a tensor.
struct Style {
    notation: Notation,
    /// The number of digits after the point.
    digits: usize,
    width: usize,
}

#[derive(Clone, Copy)]
enum Notation {
    /// `2.`
    Whole,
    /// `2.5000`
    Fixed,
    /// `2.5000e+00`
    Scientific,
}

impl Style {
    /// The format is determined by the finite numbers other than 0.
    fn of(cells: &[Cell], digits: usize) -> Style {
        let finite = || {
            let float = |cell: &Cell| match *cell {
                Cell::Float(x) => Some(x),
                Cell::Other(_) => None,
            };
            cells.iter().filter_map(float).filter(|x| x.is_finite() && *x != 0.0)
        };
        let whole = finite().all(|x| x == x.ceil());
        let least = finite().map(f64::abs).fold(f64::INFINITY, f64::min);
        let most = finite().map(f64::abs).fold(0.0, f64::max);
        let wide = most / least > 1000.0 || most > 1e8;
        let notation = match whole {
            _ if finite().next().is_none() => Notation::Whole,
            true if wide => Notation::Scientific,
            false if wide || least < 1e-4 => Notation::Scientific,
            true => Notation::Whole,
            false => Notation::Fixed,
        };
        let counts = |cell: &&Cell| match **cell {
            Cell::Float(x) => x.is_finite() && x != 0.0,
            Cell::Other(_) => true,
        };
        let bare = Style { notation, digits, width: 1 };
        let widths = cells.iter().filter(counts).map(|cell| bare.show(cell).len());
        Style { notation, digits, width: widths.max().unwrap_or(1).max(1) }
    }

    /// An element, right-aligned to the common width.
    fn show(&self, cell: &Cell) -> String {
        let text = match *cell {
            Cell::Other(ref text) => text.clone(),
            Cell::Float(x) if x.is_nan() => "nan".to_owned(),
            Cell::Float(x) if x.is_infinite() => x.to_string(),
            Cell::Float(x) => match self.notation {
                Notation::Whole => format!("{x:.0}."),
                Notation::Fixed => format!("{x:.*}", self.digits),
                Notation::Scientific => scientific(x, self.digits),
            },
        };
        format!("{text:>width$}", width = self.width)
    }
}

/// A number by itself, in the format of a tensor of it alone, but for whole numbers, which get zeros.
pub(crate) fn number(x: f64, digits: Option<usize>) -> String {
    let digits = digits.unwrap_or(DIGITS);
    let size = x.abs();
    if x == 0.0 || !x.is_finite() || (1e-4..1e8).contains(&size) {
        format!("{x:.digits$}")
    } else {
        scientific(x, digits)
    }
}

/// A digit, those after the point, and an exponent of a sign and at least two digits.
fn scientific(x: f64, digits: usize) -> String {
    let text = format!("{x:.digits$e}");
    let (digits, exponent) = text.split_once('e').expect("scientific notation");
    let exponent: i32 = exponent.parse().expect("an exponent");
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}
