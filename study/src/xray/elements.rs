//! One element of a result with its numbers: `0.31 · -1.2 + 0.08 · 0.55 = -0.328`.
//!
//! The terms are computed from the inputs in f64. They are shown only if their sum is the element that was
//! recorded, so an operation of another meaning with a known name is not explained wrongly.

use crate::grouped;
use retrograd_autograd::{Attribute, Call, Kind};
use retrograd_tensor::{AxisSet, Real, Shape, Tensor};
use std::collections::BTreeMap;

/// Elements of a tensor that are explained.
pub const ELEMENTS: usize = 8;
/// Terms of a sum that are written out.
const TERMS: usize = 4;
/// Sums of more terms are not computed.
const MOST_TERMS: usize = 1 << 20;
/// Products of queries and keys that are computed for one element of attention.
const MOST_PRODUCTS: usize = 1 << 18;

/// A call of an operation, the values of its inputs by name (constants included), and its first result.
pub struct Operation<'a, T: Real> {
    /// The call.
    pub call: &'a Call,
    /// The inputs.
    pub inputs: &'a [(&'static str, &'a Tensor<T>)],
    /// The first result.
    pub output: &'a Tensor<T>,
}

/// A sum that was evaluated: its text, and its value.
pub type Evaluated = (String, f64);

impl<T: Real> Operation<'_, T> {
    /// How the element at `index` is computed, in one line.
    pub fn explain(&self, index: &[usize]) -> String {
        let y = self.output.at(index).to_f64();
        let place = bracketed(index);
        let is_this = |x: f64| {
            let scale = y.abs().max(1e-3);
            (x - y).abs() <= 1e-3 * scale
                || x.to_bits() == y.to_bits()
                || (x.is_nan() && y.is_nan())
        };
        match self.terms(index).filter(|(_, x)| is_this(*x)) {
            Some((text, _)) => format!("y{place} = {text} = {}", number(y)),
            None => format!("y{place} = {}", number(y)),
        }
    }

    fn terms(&self, index: &[usize]) -> Option<Evaluated> {
        let op = self.call.op;
        match (op.kind, op.name) {
            (Kind::Pointwise, _) => self.formula(index),
            (Kind::Sum, _) => self.sum(index),
            (Kind::Product(indices), _) => self.product(indices, index),
            (_, "softmax" | "log_softmax") => self.softmax(index),
            (_, "layer_norm" | "rms_norm") => self.norm(index),
            (_, "embedding") => self.row(index),
            (_, "attention") => self.attention(index),
            (_, "reshape") => {
                let x = self.input("x")?;
                let from = unflat(flat(index, self.output.shape()), x.shape());
                Some((format!("x{}", bracketed(&from)), x.at(&from).to_f64()))
            }
            _ => None,
        }
    }

    fn input(&self, name: &str) -> Option<&Tensor<T>> {
        self.inputs.iter().find(|(own, _)| *own == name).map(|(_, x)| *x)
    }

    fn axes(&self) -> Option<AxisSet> {
        match self.call.attribute("axes")? {
            Attribute::Along(axes) => Some(*axes),
            _ => None,
        }
    }

    /// The formula with the numbers in the places of the names. The operation computed the value.
    fn formula(&self, index: &[usize]) -> Option<Evaluated> {
        let value = |name: &str| match self.input(name) {
            Some(x) => broadcast_at(x, index),
            None => self.call.numbers().find(|(own, _)| *own == name).map(|(_, x)| x),
        };
        let formula = self.call.formula()?;
        let text = formula.forward.strip_prefix("y = ")?;
        Some((with_numbers(text, value), self.output.at(index).to_f64()))
    }

    /// The sum of products of the first two inputs, plus the others.
    fn product(&self, indices: &str, index: &[usize]) -> Option<Evaluated> {
        let [(_, a), (_, b), rest @ ..] = self.inputs else { return None };
        let ([of_a, of_b], of_y) = letters(indices)?;
        let (mut text, mut sum) = contract([(a, of_a), (b, of_b)], (of_y, index))?;
        for (_, addend) in rest {
            let addend = broadcast_at(addend, index)?;
            text += &format!(" + {}", factor(addend));
            sum += addend;
        }
        Some((text, sum))
    }

    fn sum(&self, index: &[usize]) -> Option<Evaluated> {
        let (x, axes) = (self.input("x")?, self.axes()?);
        let is_kept = index.len() == x.rank();
        if x.numel() > MOST_TERMS {
            return None;
        }
        let kept = (0..x.rank()).filter(|axis| !axes.contains(*axis)).enumerate();
        let kept: Vec<_> =
            kept.map(|(at, axis)| (axis, index[if is_kept { axis } else { at }])).collect();
        let places = (0..x.numel()).map(|i| unflat(i, x.shape()));
        let chosen = places.filter(|place| kept.iter().all(|(axis, i)| place[*axis] == *i));
        let terms: Vec<f64> = chosen.map(|place| x.at(&place).to_f64()).collect();
        Some((listed(&terms, " + "), terms.iter().sum()))
    }

    fn softmax(&self, index: &[usize]) -> Option<Evaluated> {
        let (x, axis) = (self.input("x")?, self.axes()?.iter().next()?);
        let line = line(x, index, axis);
        let here = line[index[axis]];
        let max = line.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let exps: Vec<f64> = line.iter().map(|x| (x - max).exp()).collect();
        let sum: f64 = exps.iter().sum();
        let shift = format!("{} − {}", number(here), factor(max));
        Some(match self.call.op.name {
            "softmax" => {
                (format!("exp({shift}) / ({})", listed(&exps, " + ")), (here - max).exp() / sum)
            }
            _ => (format!("{shift} − ln({})", listed(&exps, " + ")), here - max - sum.ln()),
        })
    }

    fn norm(&self, index: &[usize]) -> Option<Evaluated> {
        let x = self.input("x")?;
        let row = line(x, index, x.rank().checked_sub(1)?);
        let (here, n) = (x.at(index).to_f64(), row.len() as f64);
        let is_layer = self.call.op.name == "layer_norm";
        let mean = if is_layer { row.iter().sum::<f64>() / n } else { 0.0 };
        let var = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
        let eps = self.call.numbers().find(|(name, _)| *name == "ε").map_or(0.0, |(_, eps)| eps);
        let std = (var + eps).sqrt();
        let mut text = match is_layer {
            true => format!("({} − {}) / {}", number(here), factor(mean), number(std)),
            false => format!("{} / {}", number(here), number(std)),
        };
        let mut y = (here - mean) / std;
        if let Some(weight) = self.input("w") {
            let weight = broadcast_at(weight, index)?;
            text += &format!(" · {}", factor(weight));
            y *= weight;
        }
        if let Some(bias) = self.input("b") {
            let bias = broadcast_at(bias, index)?;
            text += &format!(" + {}", factor(bias));
            y += bias;
        }
        Some((text, y))
    }

    /// The element of the table that the result is a copy of.
    fn row(&self, index: &[usize]) -> Option<Evaluated> {
        let (column, place) = index.split_last()?;
        let Attribute::At(row) = self.call.attribute("row")? else { return None };
        let at = [row(place), *column];
        Some((format!("w{}", bracketed(&at)), self.input("w")?.at(&at).to_f64()))
    }

    /// A row of `softmax(q kᵀ · scale)` by a column of `v`. Heads of keys may be shared; `q`, `k` and `v` may be
    /// parts of one input, whose last axis they divide. Attention with other scores has no attribute `keep`.
    fn attention(&self, index: &[usize]) -> Option<Evaluated> {
        let (scale, keep) = match (self.call.attribute("scale")?, self.call.attribute("keep")?) {
            (Attribute::Number(scale), Attribute::At(keep)) => (*scale, keep),
            _ => return None,
        };
        let &[batch, head, row, column] = index else { return None };
        let [_, heads, queries, width] = self.output.shape()[..] else { return None };
        let number_of = |name| self.call.numbers().find(|(own, _)| *own == name);
        // An element of the query, a key or a value at a position.
        let at = |name: &str, position: usize, c: usize| -> Option<f64> {
            if let Some(x) = self.input(name) {
                return Some(x.at(&[batch, head * x.shape()[1] / heads, position, c]).to_f64());
            }
            let key_heads = number_of("key_heads")?.1 as usize;
            let shared = head * key_heads / heads;
            let part = match name {
                "q" => head,
                "k" => heads + shared,
                _ => heads + key_heads + shared,
            };
            Some(self.input("q, k, v")?.at(&[batch, position, part * width + c]).to_f64())
        };
        let [keys, dims] = match self.input("k") {
            Some(k) => [k.shape()[2], k.shape()[3]],
            None => [queries, width],
        };
        if keys * dims > MOST_PRODUCTS {
            return None;
        }
        let kept: Vec<usize> = (0..keys).filter(|&j| keep(&[batch, head, row, j]) == 1).collect();
        let score = |&j: &usize| -> Option<f64> {
            let products = (0..dims).map(|c| Some(at("q", row, c)? * at("k", j, c)?));
            Some(products.sum::<Option<f64>>()? * scale)
        };
        let scores: Vec<f64> = kept.iter().map(score).collect::<Option<_>>()?;
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
        let weights = scores.iter().map(|s| (s - max).exp() / sum);
        let products = kept.iter().zip(weights).map(|(&j, p)| Some((p, at("v", j, column)?)));
        let (text, x) = dot(products, kept.len())?;
        Some((format!("p v = {text}"), x))
    }
}

/// The gradients that the rule of a product delivers to its inputs: for each, some elements as sums of products.
/// Empty for an input whose gradient is not explained.
pub fn gradients<T: Real>(
    call: &Call,
    inputs: &[(&'static str, Tensor<T>)],
    g: &Tensor<T>,
) -> Option<Vec<Vec<Evaluated>>> {
    let Kind::Product(indices) = call.op.kind else { return None };
    let ([of_a, of_b], of_y) = letters(indices)?;
    let [(_, a), (_, b), rest @ ..] = inputs else { return None };
    let each = |x: &Tensor<T>, f: &dyn Fn(&[usize]) -> Option<Evaluated>| -> Vec<Evaluated> {
        let places = chosen(x, ELEMENTS);
        places.iter().map(|at| f(at)).collect::<Option<_>>().unwrap_or_default()
    };
    let mut all = vec![
        each(a, &|at| contract([(g, of_y), (b, of_b)], (of_a, at))),
        each(b, &|at| contract([(g, of_y), (a, of_a)], (of_b, at))),
    ];
    // Addends: a bias for each column, or a residual of the same shape.
    let rows = g.reshape([g.numel() / g.size(-1).max(1), g.size(-1)]);
    all.extend(rest.iter().map(|(_, addend)| match addend.rank() {
        1 => each(addend, &|at| {
            let terms: Vec<f64> =
                (0..rows.size(0)).map(|r| rows.at(&[r, at[0]]).to_f64()).collect();
            Some((listed(&terms, " + "), terms.iter().sum()))
        }),
        _ => Vec::new(),
    }));
    Some(all)
}

/// The index letters of two operands and of their product, from `ik,kj->ij`.
fn letters(indices: &str) -> Option<([&str; 2], &str)> {
    let (operands, product) = indices.split_once("->")?;
    let (a, b) = operands.split_once(',')?;
    Some(([a, b], product))
}

/// The product of two operands at one place, as a sum over the indices that the place does not have.
fn contract<T: Real>(
    operands: [(&Tensor<T>, &str); 2],
    (letters, index): (&str, &[usize]),
) -> Option<Evaluated> {
    // Leading axes have numbers for letters, from the last one on.
    let named = |letters: &str, rank: usize| -> Option<Vec<char>> {
        let own: Vec<char> = letters.chars().filter(|&c| c != '…').collect();
        let leading = rank.checked_sub(own.len()).filter(|&n| n == 0 || letters.contains('…'))?;
        let numbers = (0..leading).rev().map(|i| char::from(b'0' + i as u8));
        Some(numbers.chain(own).collect())
    };
    let place = named(letters, index.len())?;
    let mut at: BTreeMap<char, usize> = place.into_iter().zip(index.iter().copied()).collect();
    let names =
        [named(operands[0].1, operands[0].0.rank())?, named(operands[1].1, operands[1].0.rank())?];
    let mut summed: Vec<(char, usize)> = Vec::new();
    for ((x, _), names) in operands.iter().zip(&names) {
        for (&name, &size) in names.iter().zip(x.shape().iter()) {
            if !at.contains_key(&name) && summed.iter().all(|(known, _)| *known != name) {
                summed.push((name, size));
            }
        }
    }
    // Leading axes in their order, then the others.
    summed.sort_by_key(|(name, _)| (!name.is_ascii_digit(), std::cmp::Reverse(*name)));
    let sizes: Vec<usize> = summed.iter().map(|(_, size)| *size).collect();
    let n = sizes.iter().product();
    if n > MOST_TERMS {
        return None;
    }
    let terms = (0..n).map(|i| {
        at.extend(summed.iter().map(|(name, _)| *name).zip(unflat(i, &sizes)));
        let element = |x: &Tensor<T>, names: &[char]| {
            let place = names.iter().zip(x.shape().iter());
            let place: Vec<usize> =
                place.map(|(name, &size)| if size == 1 { 0 } else { at[name] }).collect();
            let fits = place.iter().zip(x.shape().iter()).all(|(i, n)| i < n);
            fits.then(|| x.at(&place).to_f64())
        };
        Some((element(operands[0].0, &names[0])?, element(operands[1].0, &names[1])?))
    });
    dot(terms, n)
}

/// A formula with numbers in the places of names.
fn with_numbers(formula: &str, value: impl Fn(&str) -> Option<f64>) -> String {
    let mut text = String::new();
    let is_name = |c: char| c.is_alphabetic() || c.is_ascii_digit() || c == '_';
    let mut rest = formula;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_name(c) != is_name(first)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let is_alone = (text.is_empty() || text.ends_with(['(', '|']))
            && (after.is_empty() || after.starts_with([')', ' ', '|']));
        match value(word).filter(|_| is_name(first)) {
            Some(x) if is_alone => text += &number(x),
            Some(x) => text += &factor(x),
            None => text += word,
        }
        rest = after;
    }
    text
}

/// The elements of a tensor along an axis through a place.
fn line<T: Real>(x: &Tensor<T>, index: &[usize], axis: usize) -> Vec<f64> {
    let mut place = index.to_vec();
    let at = |i| {
        place[axis] = i;
        x.at(&place).to_f64()
    };
    (0..x.shape()[axis]).map(at).collect()
}

/// The elements that are explained: the first one, the last one, and some between.
pub fn chosen<T: Real>(x: &Tensor<T>, most: usize) -> Vec<Vec<usize>> {
    chosen_places(x.numel(), most).into_iter().map(|i| unflat(i, x.shape())).collect()
}

/// The places in the flat tensor of `n` elements of those that are explained.
pub fn chosen_places(n: usize, most: usize) -> Vec<usize> {
    if n <= most {
        return (0..n).collect();
    }
    // In equal parts of the tensor, at places that differ: the first of each would often be in the first column.
    let part = n / most;
    let place = |i: usize| i * part + i.wrapping_mul(0x9e37_79b1) % part;
    (0..most - 1).map(place).chain([n - 1]).collect()
}

/// `[0, 3]`, or nothing for a scalar.
pub(super) fn bracketed(index: &[usize]) -> String {
    let parts: Vec<String> = index.iter().map(usize::to_string).collect();
    if parts.is_empty() { String::new() } else { format!("[{}]", parts.join(", ")) }
}

/// A number with four significant digits.
pub fn number(x: f64) -> String {
    let text = match x.abs() {
        _ if x.is_nan() => return "NaN".into(),
        _ if x.is_infinite() => return if x > 0.0 { "∞" } else { "−∞" }.into(),
        0.0 => "0".into(),
        size if !(1e-3..1e6).contains(&size) => format!("{x:.2e}"),
        size => {
            let digits = (3 - size.log10().floor() as i32).max(0) as usize;
            let text = format!("{x:.digits$}");
            match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
                false => text,
            }
        }
    };
    let (whole, rest) = text.split_at(text.find(['.', 'e']).unwrap_or(text.len()));
    let digits = whole.trim_start_matches('-');
    let whole = whole.replace(digits, &digits.parse().map_or(digits.into(), grouped));
    format!("{whole}{rest}").replace('-', "−")
}

/// A number after an operator: a negative one in parentheses.
pub fn factor(x: f64) -> String {
    if x < 0.0 { format!("({})", number(x)) } else { number(x) }
}

/// The first terms, and how many there are.
pub(super) fn listed(terms: &[f64], separator: &str) -> String {
    let shown: Vec<String> = terms.iter().take(TERMS).map(|x| factor(*x)).collect();
    let text = shown.join(separator);
    if terms.len() > TERMS {
        format!("{text}{separator}… ({} terms)", grouped(terms.len() as u64))
    } else {
        text
    }
}

pub(super) fn dot(
    products: impl Iterator<Item = Option<(f64, f64)>>,
    n: usize,
) -> Option<Evaluated> {
    let (mut shown, mut sum) = (Vec::new(), 0.0);
    for product in products {
        let (a, b) = product?;
        if shown.len() < TERMS {
            shown.push(format!("{} · {}", factor(a), factor(b)));
        }
        sum += a * b;
    }
    let text = shown.join(" + ");
    Some((if n > TERMS { format!("{text} + … ({} terms)", grouped(n as u64)) } else { text }, sum))
}

/// An element of a tensor that is broadcast to a shape with this index.
fn broadcast_at<T: Real>(x: &Tensor<T>, index: &[usize]) -> Option<f64> {
    let own = &index[index.len().checked_sub(x.rank())?..];
    let own: Vec<usize> =
        own.iter().zip(x.shape().iter()).map(|(&i, &n)| if n == 1 { 0 } else { i }).collect();
    let fits = own.iter().zip(x.shape().iter()).all(|(i, n)| i < n);
    fits.then(|| x.at(&own).to_f64())
}

fn flat(index: &[usize], shape: &Shape) -> usize {
    index.iter().zip(shape.iter()).fold(0, |flat, (i, n)| flat * n + i)
}

fn unflat(mut flat: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for axis in (0..shape.len()).rev() {
        index[axis] = flat % shape[axis];
        flat /= shape[axis];
    }
    index
}
