//! The weights of one head in a few bytes.

use super::PairMask;
use super::patterns::{PatternSums, Patterns};
use crate::base64::encode;
use serde::Serialize;

/// Up to this number of keys, all weights of a query are kept.
const ALL: usize = 256;
/// With more keys, this number of the largest weights.
const LARGEST: usize = 16;

/// The attention weights of one head, given query by query.
///
/// A weight `w` is kept as one byte, `round(255 √w)`, so that `(byte / 255)²` differs from it by at most
/// 1/255, and by less where it is small. With more than 256 keys, the 16 largest weights of each query
/// are kept, and the sum of the others.
#[derive(Clone, Debug)]
pub struct HeadMap {
    mask: PairMask,
    patterns: PatternSums,
    /// The largest absolute weight, of weights with signs.
    scale: Option<f64>,
    rows: usize,
    weights: Layout,
    /// The gradients of the loss by the weights that are kept.
    gradient: Vec<f32>,
    /// The loss without this head.
    loss_without: Option<f64>,
}

/// What is kept of the weights.
#[derive(Clone, Debug)]
struct Layout {
    /// The number of links per query, if not all weights are kept.
    most: Option<usize>,
    /// The keys of the links.
    keys: Vec<u16>,
    bytes: Vec<u8>,
    /// The sums of the weights that are not kept, by query.
    rest: Vec<u8>,
}

/// A weight in one byte.
fn byte(w: f64) -> u8 {
    // A NaN becomes 0.
    (255.0 * w.clamp(0.0, 1.0).sqrt()).round() as u8
}

/// A number from -1 to 1 in one byte.
fn signed_byte(x: f64) -> u8 {
    let part = if x.is_finite() { x.signum() * x.abs().sqrt() } else { 0.0 };
    (128.0 + 127.0 * part).round() as u8
}

/// The weight of a byte.
fn weight(byte: u8) -> f64 {
    (f64::from(byte) / 255.0).powi(2)
}

impl HeadMap {
    /// A head without rows so far. `tokens` are the tokens of the text, if queries and keys are the same
    /// ones; patterns such as the previous token are defined only then.
    ///
    /// # Panics
    /// If there are more than 65,536 keys.
    ///
    /// ```
    /// use retrograd::study::attention::{HeadMap, PairMask};
    /// let mask = PairMask::new([2, 2], |query, key| key <= query, "+", 64);
    /// let mut head = HeadMap::new(mask, Some(&[3, 5]));
    /// head.push(&[1.0, 0.0], None);
    /// head.push(&[0.75, 0.25], None);
    /// assert_eq!(head.patterns().previous, Some(0.75));
    /// ```
    #[track_caller]
    pub fn new(mask: PairMask, tokens: Option<&[i64]>) -> HeadMap {
        assert!(mask.keys() <= 1 << 16, "HeadMap: {} keys, more than 65,536", mask.keys());
        let most = (mask.keys() > ALL).then_some(LARGEST);
        let weights = Layout { most, keys: Vec::new(), bytes: Vec::new(), rest: Vec::new() };
        let patterns = PatternSums::new(tokens);
        let (scale, gradient) = (None, Vec::new());
        HeadMap { mask, patterns, scale, rows: 0, weights, gradient, loss_without: None }
    }

    /// A head whose weights have signs and absolute values up to `scale`: the equivalent weights of a recurrence. A
    /// weight `w` is kept as `128 + 127 sign(w) √(|w| / scale)`, and patterns are those of the shares `|w| / Σ |w|`.
    ///
    /// # Panics
    /// If there are more than 65,536 keys.
    ///
    /// ```
    /// use retrograd::study::attention::{HeadMap, PairMask};
    /// let mask = PairMask::new([2, 2], |query, key| key <= query, "+", 64);
    /// let mut head = HeadMap::signed(mask, Some(&[3, 5]), 3.0);
    /// head.push(&[1.0, 0.0], None);
    /// head.push(&[-3.0, 1.0], None);
    /// assert_eq!(head.patterns().previous, Some(0.75));
    /// ```
    #[track_caller]
    pub fn signed(mask: PairMask, tokens: Option<&[i64]>, scale: f64) -> HeadMap {
        HeadMap { scale: Some(scale), ..HeadMap::new(mask, tokens) }
    }

    /// Adds the weights of the next query to all keys, and the gradients of the loss by them.
    ///
    /// # Panics
    /// If there are not as many weights or gradients as keys, or all queries have been added.
    #[track_caller]
    pub fn push(&mut self, row: &[f64], gradient: Option<&[f64]>) {
        let (i, keys) = (self.rows, self.mask.keys());
        assert!(i < self.mask.queries(), "HeadMap::push: all {i} queries have been added");
        assert!(
            row.len() == keys && gradient.is_none_or(|g| g.len() == keys),
            "HeadMap::push: {} weights and {:?} gradients for {keys} keys",
            row.len(),
            gradient.map(<[f64]>::len)
        );
        let sizes: Vec<f64>;
        let shares = match self.scale {
            None => row,
            Some(_) => {
                let all: f64 = self.mask.visible(i).map(|j| row[j].abs()).sum();
                sizes = row.iter().map(|w| w.abs() / if all > 0.0 { all } else { 1.0 }).collect();
                &sizes
            }
        };
        self.patterns.add(i, shares, &self.mask);
        self.rows += 1;
        let mut kept: Vec<usize> = self.mask.visible(i).collect();
        if let Some(most) = self.weights.most {
            keep_largest(&mut kept, most, |&j| shares[j]);
            let all: f64 = self.mask.visible(i).map(|j| shares[j]).sum();
            let largest: f64 = kept.iter().map(|&j| shares[j]).sum();
            self.weights.rest.push(byte(all - largest));
            self.weights.keys.extend(kept.iter().map(|&j| j as u16));
        }
        let scale = self.scale;
        let in_byte = |w: f64| scale.map_or_else(|| byte(w), |scale| signed_byte(w / scale));
        self.weights.bytes.extend(kept.iter().map(|&j| in_byte(row[j])));
        if let Some(gradient) = gradient {
            self.gradient.extend(kept.iter().map(|&j| gradient[j] as f32));
        }
    }

    /// Sets the loss of the model with the output of this head set to 0.
    pub fn set_loss_without(&mut self, loss: f64) {
        self.loss_without = Some(loss);
    }

    /// What the head attends to, as averages over the queries so far.
    pub fn patterns(&self) -> Patterns {
        self.patterns.patterns()
    }

    /// The mask.
    pub(super) fn mask(&self) -> &PairMask {
        &self.mask
    }

    /// Whether more than this number of weights per query are kept.
    fn exceeds(&self, most: usize) -> bool {
        self.weights.most.is_none_or(|now| now > most)
            && (0..self.rows).any(|i| self.mask.count(i) > most)
    }

    /// The head in the data of a page: at most `most` links per query and no gradients if given, else with or
    /// without gradients. `mask` is the number of its mask.
    pub(super) fn data(&self, mask: usize, most: Option<usize>, gradient: bool) -> HeadData {
        let weights = match most {
            Some(most) if self.exceeds(most) => &self.reduced(most),
            _ => &self.weights,
        };
        let links = weights.most.map(|most| LinksData {
            most,
            keys: encode(&weights.keys.iter().flat_map(|k| k.to_le_bytes()).collect::<Vec<_>>()),
            rest: encode(&weights.rest),
        });
        let has_gradient = gradient && most.is_none() && !self.gradient.is_empty();
        let gradient = has_gradient.then(|| GradientData::of(&self.gradient));
        HeadData {
            mask,
            weights: encode(&weights.bytes),
            scale: self.scale,
            links,
            gradient,
            patterns: self.patterns(),
            without: self.loss_without,
        }
    }

    /// The weights of fewer links per query.
    fn reduced(&self, most: usize) -> Layout {
        let mut out = Layout { most: Some(most), keys: vec![], bytes: vec![], rest: vec![] };
        let mut start = 0;
        for i in 0..self.rows {
            let visible: Vec<usize> = self.mask.visible(i).collect();
            let n = self.weights.most.map_or(visible.len(), |most| most.min(visible.len()));
            let keys: Vec<u16> = match self.weights.most {
                Some(_) => self.weights.keys[start..start + n].to_vec(),
                None => visible.iter().map(|&j| j as u16).collect(),
            };
            let bytes = &self.weights.bytes[start..start + n];
            let before = self.weights.rest.get(i).map_or(0.0, |&rest| weight(rest));
            let mut kept: Vec<usize> = (0..n).collect();
            // Of weights with signs, the absolute values.
            let magnitude = |at: usize| match self.scale {
                None => bytes[at],
                Some(_) => bytes[at].abs_diff(128),
            };
            keep_largest(&mut kept, most, |&at| f64::from(magnitude(at)));
            let all: f64 = (0..n).map(|at| weight(magnitude(at))).sum();
            let parts = if self.scale.is_some() && all > 0.0 { (1.0 - before) / all } else { 1.0 };
            let sum = |at: &mut dyn Iterator<Item = usize>| {
                parts * at.map(|at| weight(magnitude(at))).sum::<f64>()
            };
            let rest = before + sum(&mut (0..n)) - sum(&mut kept.iter().copied());
            out.rest.push(byte(rest));
            out.keys.extend(kept.iter().map(|&at| keys[at]));
            out.bytes.extend(kept.iter().map(|&at| bytes[at]));
            start += n;
        }
        out
    }
}

/// Keeps the `most` elements with the largest values, in their order; of equal ones the first.
fn keep_largest(all: &mut Vec<usize>, most: usize, value: impl Fn(&usize) -> f64) {
    if all.len() > most {
        let order = |a: &usize, b: &usize| value(b).total_cmp(&value(a)).then(a.cmp(b));
        all.select_nth_unstable_by(most, order);
        all.truncate(most);
        all.sort_unstable();
    }
}

/// A [`HeadMap`] in the data of a page.
#[derive(Serialize)]
pub(super) struct HeadData {
    mask: usize,
    /// `round(255 √w)` of each pair that is kept, by query and by key.
    weights: String,
    /// The largest absolute weight, if weights have signs: then bytes are as those of gradients.
    #[serde(skip_serializing_if = "Option::is_none")]
    scale: Option<f64>,
    /// The keys of these pairs, if they are not all that attend.
    #[serde(skip_serializing_if = "Option::is_none")]
    links: Option<LinksData>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gradient: Option<GradientData>,
    patterns: Patterns,
    #[serde(skip_serializing_if = "Option::is_none")]
    without: Option<f64>,
}

#[derive(Serialize)]
struct LinksData {
    /// Links of a query, if so many keys are visible.
    most: usize,
    /// Of each link, the key: two bytes, the lower one first.
    keys: String,
    /// Of each query, the sum of the other weights, as a weight.
    rest: String,
}

/// Gradients by the weights, in one byte each: `128 + 127 sign(g) √(|g| / scale)`.
#[derive(Serialize)]
struct GradientData {
    scale: f64,
    bytes: String,
}

impl GradientData {
    fn of(values: &[f32]) -> Self {
        let finite = values.iter().filter(|g| g.is_finite());
        let scale = finite.fold(0.0f64, |most, g| most.max(f64::from(g.abs())));
        let byte = |&g: &f32| signed_byte(f64::from(g) / if scale > 0.0 { scale } else { 1.0 });
        GradientData { scale, bytes: encode(&values.iter().map(byte).collect::<Vec<_>>()) }
    }
}
