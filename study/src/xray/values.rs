//! What the page shows of a tensor: statistics, a histogram, a picture, and a few of its elements.

use retrograd_tensor::{Real, Shape, Tensor};
use serde::{Serialize, Serializer};

/// Tensors of at most so many elements are shown as numbers.
const FULL: usize = 256;
/// Rows and columns of a picture.
const PICTURE: usize = 32;
/// Bins of a histogram.
const BINS: usize = 32;
/// Elements of a sample, which a comparison of two recordings counts by their distance.
const SAMPLE: usize = 64;
/// The characters of a picture. The first one stands for what is not finite, the middle one for 0.
const LEVELS: &[u8; 64] = crate::base64::DIGITS;
const ZERO: f64 = 32.0;

/// A summary of the elements of a tensor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Values {
    pub(super) count: usize,
    /// Of the finite elements; `None` if there are none, as for the following three.
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
    pub(super) mean: Option<f64>,
    /// The standard deviation, by the number of elements.
    pub(super) std: Option<f64>,
    /// The Euclidean norm of the finite elements.
    pub(super) norm: f64,
    pub(super) zeros: usize,
    pub(super) nan: usize,
    pub(super) inf: usize,
    /// A hash of the shape and of the bits of all elements.
    pub(super) digest: String,
    /// Finite elements between `min` and `max`, in bins of equal width.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) histogram: Option<Vec<u32>>,
    /// All elements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) full: Option<Vec<Number>>,
    /// The size of the last axis.
    pub(super) columns: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) picture: Option<Picture>,
    /// The bits of some elements in f32, eight hexadecimal digits each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sample: Option<String>,
}

/// A matrix of at most 32 by 32 cells, each with the element of largest magnitude in its part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Picture {
    rows: usize,
    columns: usize,
    /// A character for each cell: a level from -31 to 31.
    cells: String,
    /// The magnitude of level 31.
    scale: f64,
    /// What a cell is, if it is not one element.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// A number in JSON, which has none that are not finite: they are strings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Number(pub(super) f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            x if x.is_finite() => s.serialize_f64(x),
            x if x.is_nan() => s.serialize_str("NaN"),
            x if x > 0.0 => s.serialize_str("Infinity"),
            _ => s.serialize_str("-Infinity"),
        }
    }
}

impl Values {
    pub(super) fn of<T: Real>(tensor: &Tensor<T>) -> Values {
        let shape = tensor.shape();
        let x: Vec<f64> = tensor.to_vec().into_iter().map(T::to_f64).collect();
        let (mut finite, mut zeros, mut nan, mut inf) = (0, 0, 0, 0);
        let (mut min, mut max, mut sum, mut squares) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0.0);
        for &x in &x {
            if x.is_nan() {
                nan += 1;
            } else if x.is_infinite() {
                inf += 1;
            } else {
                finite += 1;
                zeros += usize::from(x == 0.0);
                (min, max) = (min.min(x), max.max(x));
                sum += x;
                squares += x * x;
            }
        }
        let known = |value: f64| (finite > 0).then_some(value);
        let mean = sum / finite as f64;
        let deviations = x.iter().filter(|x| x.is_finite()).map(|x| (x - mean) * (x - mean));
        let std = (deviations.sum::<f64>() / finite as f64).sqrt();
        let is_small = x.len() <= FULL;
        Values {
            count: x.len(),
            min: known(min),
            max: known(max),
            mean: known(mean),
            std: known(std),
            norm: squares.sqrt(),
            zeros,
            nan,
            inf,
            digest: format!("{:016x}", digest(shape, &x)),
            histogram: (finite > 1 && max > min).then(|| histogram(&x, min, max)),
            full: is_small.then(|| x.iter().copied().map(Number).collect()),
            columns: shape.last().copied().unwrap_or(1),
            picture: (!is_small).then(|| Picture::of(shape, &x, min.abs().max(max.abs()))),
            sample: (!x.is_empty()).then(|| sample(&x)),
        }
    }
}

/// FNV-1a over words of 64 bits.
fn digest(shape: &Shape, x: &[f64]) -> u64 {
    let words = shape.iter().map(|&n| n as u64).chain(x.iter().map(|x| x.to_bits()));
    let next =
        |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    words.fold(0xcbf2_9ce4_8422_2325, next)
}

fn histogram(x: &[f64], min: f64, max: f64) -> Vec<u32> {
    let mut counts = vec![0; BINS];
    for x in x.iter().filter(|x| x.is_finite()) {
        // Halves, because the difference of two large numbers may overflow.
        let place = (x / 2.0 - min / 2.0) / (max / 2.0 - min / 2.0) * BINS as f64;
        counts[(place as usize).min(BINS - 1)] += 1;
    }
    counts
}

fn sample(x: &[f64]) -> String {
    let n = x.len().min(SAMPLE);
    (0..n).map(|i| format!("{:08x}", (x[i * x.len() / n] as f32).to_bits())).collect()
}

impl Picture {
    fn of(shape: &Shape, x: &[f64], largest: f64) -> Picture {
        // A matrix of its rows along the last axis; a vector is folded into rows.
        let last = shape.last().copied().unwrap_or(1);
        let width = if last == x.len() { last.min(PICTURE) } else { last };
        let height = x.len().div_ceil(width);
        let (rows, columns) = (height.min(PICTURE), width.min(PICTURE));
        let scale = if largest.is_finite() && largest > 0.0 { largest } else { 1.0 };
        let mut cells = String::with_capacity(rows * columns);
        for i in 0..rows {
            for j in 0..columns {
                let part = (i * height / rows..(i + 1) * height / rows)
                    .flat_map(|r| {
                        (j * width / columns..(j + 1) * width / columns).map(move |c| (r, c))
                    })
                    .filter_map(|(r, c)| x.get(r * width + c).copied());
                // What is not finite is the largest.
                let size = |x: f64| if x.is_finite() { x.abs() } else { f64::INFINITY };
                let shown = part.max_by(|a, b| size(*a).total_cmp(&size(*b))).unwrap_or(0.0);
                let level = match shown.is_finite() {
                    true => ZERO + (shown / scale * 31.0).round(),
                    false => 0.0,
                };
                cells.push(LEVELS[level as usize] as char);
            }
        }
        let (r, c) = (height.div_ceil(rows), width.div_ceil(columns));
        let note =
            (r * c > 1).then(|| format!("A cell is the largest of up to {r} x {c} elements."));
        Picture { rows, columns, cells, scale, note }
    }
}
