//! One element of a result with its numbers: `0.31 · -1.2 + 0.08 · 0.55 = -0.328`.
//!
//! The terms are computed from the inputs in f64. They are shown only if their sum is the element that was
//! recorded, so an operation of another meaning with a known name is not explained wrongly.

use crate::grouped;
use retrograd_tensor::ops::pointwise::{ForEachOp, Pointwise};
use retrograd_tensor::ops::{activation, unary};
use retrograd_tensor::{Real, Shape, Tensor};
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// Terms of a sum that are written out.
const TERMS: usize = 4;
/// Sums of more terms are not computed.
const MOST_TERMS: usize = 1 << 20;
/// Products of queries and keys that are computed for one element of attention.
const MOST_PRODUCTS: usize = 1 << 18;

/// An operation, the values of its inputs (constants included) and its first result.
pub(super) struct Operation<'a, T: Real> {
    pub(super) name: &'a str,
    pub(super) inputs: &'a [&'a Tensor<T>],
    /// The numbers in its formula.
    pub(super) constants: &'a [(&'static str, f64)],
    pub(super) output: &'a Tensor<T>,
}

/// A sum that was evaluated: its text, and its value.
pub(super) type Evaluated = (String, f64);

impl<T: Real> Operation<'_, T> {
    /// How the element at `index` is computed, in one line.
    pub(super) fn explain(&self, index: &[usize]) -> String {
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
        let given = |i: usize| self.inputs.get(i).copied();
        let first = given(0)?;
        let same_shape = first.shape() == self.output.shape();
        match (self.name, given(1)) {
            ("add", Some(b)) => self.infix(first, b, index, "+", |a, b| a + b),
            ("sub", Some(b)) => self.infix(first, b, index, "−", |a, b| a - b),
            ("mul", Some(b)) => self.infix(first, b, index, "·", |a, b| a * b),
            ("div", Some(b)) => self.infix(first, b, index, "/", |a, b| a / b),
            ("matmul", Some(b)) => self.matmul(first, b, index),
            ("linear", Some(w)) => self.linear(first, w, &self.inputs[2..], index),
            ("sum" | "mean", None) => self.reduction(first, index),
            ("softmax" | "log_softmax", None) => self.softmax(first, index),
            ("layer_norm" | "rms_norm", _) => self.norm(first, index),
            ("embedding", None) => self.row(first, index),
            ("attention", _) => self.attention(index),
            ("reshape", None) => {
                let from = unflat(flat(index, self.output.shape()), first.shape());
                Some((format!("x{}", bracketed(&from)), first.at(&from).to_f64()))
            }
            (name, None) if same_shape && is_pointwise(name) => {
                // The value is not computed again: these operations have no other meaning.
                let x = first.at(index).to_f64();
                let constants = self.constants.iter();
                let constants: String =
                    constants.map(|(name, c)| format!(", {name} = {}", number(*c))).collect();
                Some((format!("{name}({}{constants})", number(x)), self.output.at(index).to_f64()))
            }
            _ => None,
        }
    }

    fn infix(
        &self,
        a: &Tensor<T>,
        b: &Tensor<T>,
        index: &[usize],
        symbol: &str,
        f: impl Fn(f64, f64) -> f64,
    ) -> Option<Evaluated> {
        let (a, b) = (broadcast_at(a, index)?, broadcast_at(b, index)?);
        Some((format!("{} {symbol} {}", number(a), factor(b)), f(a, b)))
    }

    /// A row of `a` by a column of `b`, in the matrices that `index` chooses.
    fn matmul(&self, a: &Tensor<T>, b: &Tensor<T>, index: &[usize]) -> Option<Evaluated> {
        let (batch, place) = index.split_at(index.len().checked_sub(2)?);
        if a.rank() < 2 || b.rank() < 2 {
            return None;
        }
        let at = |x: &Tensor<T>, i: usize, j: usize| {
            broadcast_at(x, &[batch, [i, j].as_slice()].concat())
        };
        let k = a.shape()[a.rank() - 1];
        dot((0..k).map(|k| Some((at(a, place[0], k)?, at(b, k, place[1])?))), k)
    }

    /// `x · wᵀ`, plus a bias, plus a residual.
    fn linear(
        &self,
        x: &Tensor<T>,
        w: &Tensor<T>,
        rest: &[&Tensor<T>],
        index: &[usize],
    ) -> Option<Evaluated> {
        let (column, rows) = index.split_last()?;
        let k = w.shape().last().copied()?;
        let at = |k: usize| [rows, [k].as_slice()].concat();
        let products =
            (0..k).map(|k| Some((broadcast_at(x, &at(k))?, w.at(&[*column, k]).to_f64())));
        let (mut text, mut sum) = dot(products, k)?;
        for addend in rest {
            let addend = broadcast_at(addend, index)?;
            text += &format!(" + {}", factor(addend));
            sum += addend;
        }
        Some((text, sum))
    }

    /// The elements that differ from `index` in the reduced axes, which are those of other sizes.
    fn reduction(&self, x: &Tensor<T>, index: &[usize]) -> Option<Evaluated> {
        let kept: Vec<usize> = match index.len() == x.rank() {
            true => (0..x.rank()).filter(|&a| self.output.shape()[a] == x.shape()[a]).collect(),
            false => kept_axes(x.shape(), self.output.shape())?,
        };
        let all = x.numel();
        if all > MOST_TERMS {
            return None;
        }
        let chosen = |i: &Vec<usize>| {
            kept.iter().enumerate().all(|(at, &axis)| {
                i[axis] == if index.len() == x.rank() { index[axis] } else { index[at] }
            })
        };
        let terms: Vec<f64> = (0..all)
            .map(|i| unflat(i, x.shape()))
            .filter(chosen)
            .map(|i| x.at(&i).to_f64())
            .collect();
        let (text, sum) = (listed(&terms, " + "), terms.iter().sum::<f64>());
        match self.name {
            "mean" => Some((format!("({text}) / {}", terms.len()), sum / terms.len() as f64)),
            _ => Some((text, sum)),
        }
    }

    /// Along the last axis: softmax of another axis has other values, and is not explained.
    fn softmax(&self, x: &Tensor<T>, index: &[usize]) -> Option<Evaluated> {
        let row = self.row_of(x, index)?;
        let here = broadcast_at(x, index)?;
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let exps: Vec<f64> = row.iter().map(|x| (x - max).exp()).collect();
        let sum: f64 = exps.iter().sum();
        let shift = format!("{} − {}", number(here), factor(max));
        Some(match self.name {
            "softmax" => {
                (format!("exp({shift}) / ({})", listed(&exps, " + ")), (here - max).exp() / sum)
            }
            _ => (format!("{shift} − ln({})", listed(&exps, " + ")), here - max - sum.ln()),
        })
    }

    /// Over the last axis.
    fn norm(&self, x: &Tensor<T>, index: &[usize]) -> Option<Evaluated> {
        let row = self.row_of(x, index)?;
        let here = broadcast_at(x, index)?;
        let n = row.len() as f64;
        let is_layer = self.name == "layer_norm";
        let mean = if is_layer { row.iter().sum::<f64>() / n } else { 0.0 };
        let std = (row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n).sqrt();
        let (mut text, mut y) = match is_layer {
            true => (
                format!("({} − {}) / {}", number(here), factor(mean), number(std)),
                (here - mean) / std,
            ),
            false => (format!("{} / {}", number(here), number(std)), here / std),
        };
        if let Some(weight) = self.inputs.get(1) {
            let weight = broadcast_at(weight, index)?;
            text += &format!(" · {}", factor(weight));
            y *= weight;
        }
        if let Some(bias) = self.inputs.get(2) {
            let bias = broadcast_at(bias, index)?;
            text += &format!(" + {}", factor(bias));
            y += bias;
        }
        Some((text, y))
    }

    /// The row of the table that the result is a copy of.
    fn row(&self, table: &Tensor<T>, index: &[usize]) -> Option<Evaluated> {
        let (column, before) = index.split_last()?;
        let [rows, width] = table.shape()[..] else { return None };
        let out: Vec<f64> = (0..width)
            .map(|j| self.output.at(&[before, [j].as_slice()].concat()).to_f64())
            .collect();
        let is_copy = |r: &usize| (0..width).all(|j| table.at(&[*r, j]).to_f64() == out[j]);
        let row = (0..rows).find(is_copy)?;
        Some((format!("w[{row}, {column}]"), table.at(&[row, *column]).to_f64()))
    }

    /// A row of `softmax(q kᵀ / √d)` by a column of `v`, over the keys up to the query or over all keys,
    /// whichever is the result. Heads of keys may be shared; `q`, `k` and `v` may be parts of one input, whose
    /// last axis they divide. Attention with other scores is not explained.
    fn attention(&self, index: &[usize]) -> Option<Evaluated> {
        let y = self.output.at(index).to_f64();
        let shape = self.output.shape();
        let (&[row, column], lead) = index.split_last_chunk().map(|(l, r)| (r, l))?;
        let (rows, width) = (shape[shape.rank() - 2], shape[shape.rank() - 1]);
        // An element of the query, a key or a value at a position.
        let at = |part: usize, position: usize, c: usize| -> Option<f64> {
            let x = self.inputs.get(if self.inputs.len() == 1 { 0 } else { part })?;
            let place = match (self.inputs.len(), lead, x.rank()) {
                (1, &[batch, head], 3) => {
                    vec![batch, position, (part * shape[1] + head) * width + c]
                }
                (3, _, rank) if rank == shape.rank() => {
                    let shared = |(axis, &i): (usize, &usize)| i * x.shape()[axis] / shape[axis];
                    let lead = lead.iter().enumerate().map(shared);
                    lead.chain([position, c]).collect()
                }
                _ => return None,
            };
            let fits = place.iter().zip(x.shape().iter()).all(|(i, n)| i < n);
            fits.then(|| x.at(&place).to_f64())
        };
        let k = self.inputs.get(1);
        let keys = k.map_or(rows, |k| k.shape()[k.rank().saturating_sub(2)]);
        let dims = k.map_or(width, |k| k.shape()[k.rank() - 1]);
        if keys * dims > MOST_PRODUCTS {
            return None;
        }
        let score = |j: usize| -> Option<f64> {
            let products = (0..dims).map(|c| Some(at(0, row, c)? * at(1, j, c)?));
            Some(products.sum::<Option<f64>>()? / (dims as f64).sqrt())
        };
        let scores: Vec<f64> = (0..keys).map(score).collect::<Option<_>>()?;
        let mixed = |seen: usize| {
            let scores = &scores[..seen];
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
            let weights = scores.iter().enumerate().map(|(j, s)| (j, (s - max).exp() / sum));
            dot(weights.map(|(j, p)| Some((p, at(2, j, column)?))), seen)
        };
        let up_to_query =
            (row + 1 + keys).checked_sub(rows).filter(|seen| (1..keys).contains(seen));
        let candidates = [up_to_query, Some(keys)].into_iter().flatten();
        candidates
            .filter_map(mixed)
            .find(|(_, x)| (x - y).abs() <= 1e-3 * y.abs().max(1e-3))
            .map(|(text, x)| (format!("p v = {text}"), x))
    }

    fn row_of(&self, x: &Tensor<T>, index: &[usize]) -> Option<Vec<f64>> {
        let (_, before) = index.split_last()?;
        if x.shape() != self.output.shape() {
            return None;
        }
        let n = x.shape().last().copied()?;
        Some((0..n).map(|j| x.at(&[before, [j].as_slice()].concat()).to_f64()).collect())
    }
}

/// The elements that are explained: the first one, the last one, and some between.
pub(super) fn chosen<T: Real>(x: &Tensor<T>, most: usize) -> Vec<Vec<usize>> {
    chosen_places(x.numel(), most).into_iter().map(|i| unflat(i, x.shape())).collect()
}

/// The places in the flat tensor of `n` elements of those that are explained.
pub(super) fn chosen_places(n: usize, most: usize) -> Vec<usize> {
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
pub(super) fn number(x: f64) -> String {
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
fn factor(x: f64) -> String {
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

/// The axes of `all` that remain in `kept`, if only one choice is possible.
fn kept_axes(all: &Shape, kept: &Shape) -> Option<Vec<usize>> {
    fn choices(all: &[usize], kept: &[usize], first: usize) -> Vec<Vec<usize>> {
        let Some((size, rest)) = kept.split_first() else { return vec![Vec::new()] };
        let mut found = Vec::new();
        for axis in first..all.len() {
            if all[axis] == *size {
                for mut tail in choices(all, rest, axis + 1) {
                    tail.insert(0, axis);
                    found.push(tail);
                }
            }
        }
        found
    }
    match choices(all, kept, 0).as_slice() {
        [axes] => Some(axes.clone()),
        _ => None,
    }
}

fn flat(index: &[usize], shape: &Shape) -> usize {
    index.iter().zip(shape.iter()).fold(0, |flat, (i, n)| flat * n + i)
}

fn unflat(mut flat: usize, shape: &Shape) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for axis in (0..shape.len()).rev() {
        index[axis] = flat % shape[axis];
        flat /= shape[axis];
    }
    index
}

/// Whether an operation of this name maps every element by itself.
fn is_pointwise(name: &str) -> bool {
    struct Names(BTreeSet<&'static str>);
    impl ForEachOp<f32> for Names {
        fn op<P: Pointwise<f32>>(&mut self, _: P) {
            self.0.insert(P::NAME);
        }
    }
    static NAMES: OnceLock<BTreeSet<&'static str>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let mut names = Names(BTreeSet::new());
        activation::for_each(&mut names);
        unary::for_each(&mut names);
        names.0
    });
    names.contains(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explain(
        name: &str,
        inputs: &[&Tensor<f64>],
        output: &Tensor<f64>,
        index: &[usize],
    ) -> String {
        Operation { name, inputs, constants: &[], output }.explain(index)
    }

    #[test]
    fn numbers_stand_in_the_formula() {
        let x = Tensor::from([[1.0, -2.0], [0.5, 4.0]]);
        let w = Tensor::from([[3.0, 0.25], [1.0, -1.0], [2.0, 0.0]]);
        let (b, r) = (Tensor::from([10.0, 20.0, 30.0]), Tensor::ones([2, 3]));
        let cases = [
            (
                explain("add", &[&x, &b.narrow(0, 0, 2)], &(&x + &b.narrow(0, 0, 2)), &[1, 1]),
                "y[1, 1] = 4 + 20 = 24",
            ),
            (explain("mul", &[&x, &x], &(&x * &x), &[0, 1]), "y[0, 1] = −2 · (−2) = 4"),
            (
                explain("matmul", &[&x, &x], &x.matmul(&x), &[0, 1]),
                "y[0, 1] = 1 · (−2) + (−2) · 4 = −10",
            ),
            (
                explain("linear", &[&x, &w, &b, &r], &(x.linear(&w, Some(&b)) + &r), &[0, 0]),
                "y[0, 0] = 1 · 3 + (−2) · 0.25 + 10 + 1 = 13.5",
            ),
            (explain("sum", &[&x], &x.sum(..), &[]), "y = 1 + (−2) + 0.5 + 4 = 3.5"),
            (explain("mean", &[&b], &b.mean(..), &[]), "y = (10 + 20 + 30) / 3 = 20"),
            (explain("tanh", &[&x], &x.tanh(), &[1, 0]), "y[1, 0] = tanh(0.5) = 0.4621"),
            (explain("reshape", &[&x], &x.reshape([4]), &[2]), "y[2] = x[1, 0] = 0.5"),
            (
                explain("softmax", &[&x], &x.softmax(-1), &[1, 0]),
                "y[1, 0] = exp(0.5 − 4) / (0.0302 + 1) = 0.02931",
            ),
            (explain("rms_norm", &[&b], &b.rms_norm(None, 0.0), &[0]), "y[0] = 10 / 21.6 = 0.4629"),
        ];
        for (got, wanted) in cases {
            assert_eq!(got, wanted);
        }
    }

    #[test]
    fn an_operation_of_another_meaning_is_not_explained() {
        let x = Tensor::from([1.0, 2.0]);
        assert_eq!(explain("add", &[&x, &x], &x.square(), &[1]), "y[1] = 2 + 2 = 4");
        assert_eq!(explain("add", &[&x, &x], &(&x * 7.0), &[1]), "y[1] = 14");
        assert_eq!(explain("mine", &[&x], &(&x * 7.0), &[1]), "y[1] = 14");
        assert_eq!(
            explain("softmax", &[&x.reshape([2, 1])], &x.reshape([2, 1]).softmax(0), &[1, 0]),
            "y[1, 0] = 0.7311"
        );
    }

    #[test]
    fn attention_is_weights_by_values() {
        let mut rng = retrograd_tensor::random::Rng::new(2);
        let q = Tensor::<f64>::randn([1, 4, 3, 2], &mut rng);
        let [k, v] = [0, 1].map(|_| Tensor::<f64>::randn([1, 2, 3, 2], &mut rng));
        // Two heads of queries share one of keys.
        let shared = |x: &Tensor<f64>| {
            Tensor::from_fn([1, 4, 3, 2], |i| x.at(&[i[0], i[1] / 2, i[2], i[3]]))
        };
        let scores = q.matmul(&shared(&k).transpose(-1, -2)) / 2f64.sqrt();
        let masked = Tensor::from_fn([1, 4, 3, 3], |i| {
            if i[3] > i[2] { f64::NEG_INFINITY } else { scores.at(i) }
        });
        let (all, causal) = (scores.softmax(-1), masked.softmax(-1));
        let mix = |p: &Tensor<f64>| p.matmul(&shared(&v));
        let n = |x: &Tensor<f64>, i: [usize; 4]| number(x.at(&i));
        let f = |x: &Tensor<f64>, i: [usize; 4]| factor(x.at(&i));
        for (weights, keys) in [(&all, 3), (&causal, 2)] {
            let y = mix(weights);
            let index = [0, 3, 1, 1];
            let terms: Vec<String> = (0..keys)
                .map(|j| format!("{} · {}", n(weights, [0, 3, 1, j]), f(&v, [0, 1, j, 1])))
                .collect();
            let wanted = format!("y[0, 3, 1, 1] = p v = {} = {}", terms.join(" + "), n(&y, index));
            assert_eq!(explain("attention", &[&q, &k, &v], &y, &index), wanted);
        }
        // Queries, keys and values in one input, whose heads are side by side.
        let packed = Tensor::from_fn([1, 3, 24], |i| {
            let (part, head, c) = (i[2] / 8, i[2] % 8 / 2, i[2] % 2);
            [&q, &shared(&k), &shared(&v)][part].at(&[i[0], head, i[1], c])
        });
        let text = explain("attention", &[&packed], &mix(&causal), &[0, 3, 1, 1]);
        assert_eq!(text, explain("attention", &[&q, &k, &v], &mix(&causal), &[0, 3, 1, 1]));
        // Another scale.
        let text =
            explain("attention", &[&q, &k, &v], &mix(&(scores * 3.0).softmax(-1)), &[0, 3, 1, 1]);
        assert!(!text.contains("p v"), "{text}");
    }

    #[test]
    fn every_element_of_a_small_tensor_is_chosen() {
        assert_eq!(chosen(&Tensor::<f32>::ones([2, 2]), 8).len(), 4);
        assert_eq!(chosen(&Tensor::<f32>::ones([]), 8), [Vec::<usize>::new()]);
        assert_eq!(chosen_places(9, 8), [0, 1, 2, 3, 4, 5, 6, 8]);
        let columns = chosen(&Tensor::<f32>::ones([64, 128]), 8).into_iter().map(|at| at[1]);
        assert_eq!(columns.collect::<BTreeSet<usize>>().len(), 8);
        let some = chosen(&Tensor::<f32>::ones([100, 10]), 8);
        assert_eq!((some.len(), &some[0], some.last().unwrap()), (8, &vec![0, 0], &vec![99, 9]));
        assert!(chosen(&Tensor::<f32>::ones([0]), 8).is_empty());
    }
}
