//! What is needed to compute scores of pairs on the page.

use crate::base64::encode;
use serde::{Serialize, Serializer};

/// From scores to weights: the last step of a score on its way to a weight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "name")]
pub enum ScoreNormalizer {
    /// `e^(s - c)` with the log-sum-exp `c` of the row.
    Softmax,
    /// The same over the `k` largest scores.
    TopK {
        /// The number of scores.
        k: usize,
    },
    /// `1 / (1 + e^-(s + bias))`
    Sigmoid {
        /// The bias.
        bias: f64,
    },
    /// `max(s - c, 0)`
    Sparsemax,
    /// `max(s/2 - c, 0)²`
    Entmax15,
    /// `s / c`, where `s` is the product of feature maps.
    Linear,
}

/// Where a number is added to a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AddedTo {
    /// To `q·k`, before the scale.
    Product,
    /// To the score, after scale and softcap.
    Score,
}

/// A part of the scores that is neither `q·k` nor a factor, for the pairs of the kept rows.
#[derive(Clone, Debug, Serialize)]
pub struct AddedPart {
    /// What it is, such as `"ALiBi"`.
    pub name: String,
    /// Where it is added.
    pub to: AddedTo,
    /// By head, `[queries.len() · keys.len()]` each.
    #[serde(serialize_with = "floats")]
    pub values: Vec<Vec<f32>>,
}

/// Queries, keys and all other parts of the scores of a layer, for some queries and some keys.
///
/// With these the page computes `s = scale · (Σ q[d] k[d] + products)`, `s = c · tanh(s / c)` if there
/// is a softcap, `s = s + biases`, and the weight, which is 0 if the pair is masked. In the data of the page, elements
/// have four bytes and constants eight.
#[derive(Clone, Debug, Serialize)]
pub struct ScoreParts {
    /// The rows of queries that are kept.
    pub queries: Vec<usize>,
    /// The keys that are kept.
    pub keys: Vec<usize>,
    /// Elements of a query or key.
    pub width: usize,
    /// By head, the queries `[queries.len() · width]` as they enter the product.
    #[serde(serialize_with = "floats")]
    pub q: Vec<Vec<f32>>,
    /// By key head.
    #[serde(serialize_with = "floats")]
    pub k: Vec<Vec<f32>>,
    /// Queries and keys before rotary positions, if there are any.
    #[serde(serialize_with = "two_of_floats", skip_serializing_if = "Option::is_none")]
    pub before: Option<[Vec<Vec<f32>>; 2]>,
    /// The factor of `q·k`.
    pub scale: f64,
    /// The softcap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub softcap: Option<f64>,
    /// Products and biases.
    pub added: Vec<AddedPart>,
    /// From scores to weights.
    pub normalizer: ScoreNormalizer,
    /// By head, the constant `c` of each kept query in the formula of the normaliser.
    #[serde(serialize_with = "doubles")]
    pub constants: Vec<Vec<f64>>,
    /// Of [`ScoreNormalizer::TopK`] by head, the score of each kept query from which on a weight is not 0:
    /// the mean of the smallest score that is kept and the largest one that is dropped.
    #[serde(serialize_with = "some_doubles", skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<Vec<Vec<f64>>>,
    /// By head, the logit of the sink, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sinks: Option<Vec<f64>>,
}

impl ScoreParts {
    /// The parts for the pairs of some of the kept queries and keys.
    pub(super) fn only(&self, queries: &[usize], keys: &[usize]) -> ScoreParts {
        let places = |kept: &[usize], of: &[usize]| -> Vec<usize> {
            (0..kept.len()).filter(|&i| of.contains(&kept[i])).collect()
        };
        let (i, j) = (places(&self.queries, queries), places(&self.keys, keys));
        let rows = |all: &[Vec<f32>], at: &[usize]| -> Vec<Vec<f32>> {
            let row = |x: &Vec<f32>, r: usize| x[r * self.width..][..self.width].to_vec();
            all.iter().map(|x| at.iter().flat_map(|&r| row(x, r)).collect()).collect()
        };
        let pairs = |x: &Vec<f32>| {
            let row = |&i: &usize| j.iter().map(move |&j| x[i * self.keys.len() + j]);
            i.iter().flat_map(row).collect()
        };
        let added = self.added.iter().map(|part| AddedPart {
            values: part.values.iter().map(pairs).collect(),
            ..part.clone()
        });
        let kept = |all: &[Vec<f64>]| -> Vec<Vec<f64>> {
            all.iter().map(|x| i.iter().map(|&i| x[i]).collect()).collect()
        };
        ScoreParts {
            queries: i.iter().map(|&i| self.queries[i]).collect(),
            keys: j.iter().map(|&j| self.keys[j]).collect(),
            width: self.width,
            q: rows(&self.q, &i),
            k: rows(&self.k, &j),
            before: self.before.as_ref().map(|[q, k]| [rows(q, &i), rows(k, &j)]),
            added: added.collect(),
            constants: kept(&self.constants),
            thresholds: self.thresholds.as_deref().map(kept),
            sinks: self.sinks.clone(),
            ..*self
        }
    }
}

/// Numbers in base64, the lower byte first.
fn text<X: Copy, const N: usize>(numbers: &[X], bytes: fn(X) -> [u8; N]) -> String {
    encode(&numbers.iter().flat_map(|&x| bytes(x)).collect::<Vec<u8>>())
}

fn floats<S: Serializer>(all: &[Vec<f32>], s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(all.iter().map(|x| text(x, f32::to_le_bytes)))
}

fn two_of_floats<S: Serializer>(all: &Option<[Vec<Vec<f32>>; 2]>, s: S) -> Result<S::Ok, S::Error> {
    let texts = |all: &Vec<Vec<f32>>| -> Vec<String> {
        all.iter().map(|x| text(x, f32::to_le_bytes)).collect()
    };
    s.collect_seq(all.iter().flatten().map(texts))
}

fn doubles<S: Serializer>(all: &[Vec<f64>], s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(all.iter().map(|x| text(x, f64::to_le_bytes)))
}

fn some_doubles<S: Serializer>(all: &Option<Vec<Vec<f64>>>, s: S) -> Result<S::Ok, S::Error> {
    doubles(all.as_deref().unwrap_or_default(), s)
}
