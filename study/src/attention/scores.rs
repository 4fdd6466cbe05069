//! What is needed to compute scores of pairs on the page.

use crate::base64::encode;
use serde::Serialize;

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
#[derive(Clone, Debug)]
pub struct AddedPart {
    /// What it is, such as `"ALiBi"`.
    pub name: String,
    /// Where it is added.
    pub to: AddedTo,
    /// By head, `[queries.len() · keys.len()]` each.
    pub values: Vec<Vec<f32>>,
}

/// Queries, keys and all other parts of the scores of a layer, for some queries and some keys.
///
/// With these the page computes `s = scale · (Σ q[d] k[d] + products)`, `s = c · tanh(s / c)` if there
/// is a softcap, `s = s + biases`, and the weight, which is 0 if the pair is masked.
#[derive(Clone, Debug)]
pub struct ScoreParts {
    /// The rows of queries that are kept.
    pub queries: Vec<usize>,
    /// The keys that are kept.
    pub keys: Vec<usize>,
    /// Elements of a query or key.
    pub width: usize,
    /// By head, the queries `[queries.len() · width]` as they enter the product.
    pub q: Vec<Vec<f32>>,
    /// By key head.
    pub k: Vec<Vec<f32>>,
    /// Queries and keys before rotary positions, if there are any.
    pub before: Option<[Vec<Vec<f32>>; 2]>,
    /// The factor of `q·k`.
    pub scale: f64,
    /// The softcap.
    pub softcap: Option<f64>,
    /// Products and biases.
    pub added: Vec<AddedPart>,
    /// From scores to weights.
    pub normalizer: ScoreNormalizer,
    /// By head, the constant `c` of each kept query in the formula of the normaliser.
    pub constants: Vec<Vec<f64>>,
    /// Of [`ScoreNormalizer::TopK`] by head, the score of each kept query from which on a weight is not 0:
    /// the mean of the smallest score that is kept and the largest one that is dropped.
    pub thresholds: Option<Vec<Vec<f64>>>,
    /// By head, the logit of the sink, if there is one.
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

    pub(super) fn data(&self) -> ScoreData {
        let floats = |all: &[Vec<f32>]| -> Vec<String> {
            let bytes = |x: &Vec<f32>| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
            all.iter().map(|x| encode(&bytes(x))).collect()
        };
        let doubles =
            |x: &Vec<f64>| encode(&x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
        let added = |part: &AddedPart| AddedData {
            name: part.name.clone(),
            to: part.to,
            values: floats(&part.values),
        };
        ScoreData {
            queries: self.queries.clone(),
            keys: self.keys.clone(),
            width: self.width,
            q: floats(&self.q),
            k: floats(&self.k),
            before: self.before.as_ref().map(|[q, k]| [floats(q), floats(k)]),
            scale: self.scale,
            softcap: self.softcap,
            added: self.added.iter().map(added).collect(),
            normalizer: self.normalizer,
            constants: self.constants.iter().map(doubles).collect(),
            thresholds: self.thresholds.as_ref().map(|all| all.iter().map(doubles).collect()),
            sinks: self.sinks.clone(),
        }
    }
}

/// [`ScoreParts`] in the data of a page: numbers of four bytes, constants of eight, the lower byte first.
#[derive(Serialize)]
pub(super) struct ScoreData {
    queries: Vec<usize>,
    keys: Vec<usize>,
    width: usize,
    q: Vec<String>,
    k: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<[Vec<String>; 2]>,
    scale: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    softcap: Option<f64>,
    added: Vec<AddedData>,
    normalizer: ScoreNormalizer,
    constants: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thresholds: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sinks: Option<Vec<f64>>,
}

#[derive(Serialize)]
struct AddedData {
    name: String,
    to: AddedTo,
    values: Vec<String>,
}
