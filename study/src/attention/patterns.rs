//! Numbers that describe what a head attends to.

use super::PairMask;
use serde::Serialize;

/// Averages over the queries of a text that describe the attention weights `w` of a head.
///
/// The first five are the mean weights of a query on certain keys. A query for which there is no such
/// key that it may attend to does not count, and without any query the number is `None`. All but
/// `first`, `entropy`, `most` and `sum` require that queries and keys are the same tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Patterns {
    /// The previous token: `w[i, i-1]`. Clark et al. 2019 (arXiv 1906.04341), Voita et al. 2019
    /// (arXiv 1905.09418).
    pub previous: Option<f64>,
    /// The query's own token: `w[i, i]`.
    pub own: Option<f64>,
    /// Other places with the same token: `Σ w[i, j]` over `j ≠ i` with `token[j] = token[i]`. The
    /// duplicate-token heads of Wang et al. 2022 (arXiv 2211.00593).
    pub same: Option<f64>,
    /// The first token, `w[i, 0]` for `i > 0`: an attention sink. Xiao et al. 2023 (arXiv 2309.17453).
    pub first: Option<f64>,
    /// The token behind an earlier occurrence of the query's token: `Σ w[i, j]` over `0 < j < i` with
    /// `token[j-1] = token[i]`. The prefix-matching score of Olsson et al. 2022 (arXiv 2209.11895),
    /// who evaluate it on repeated random tokens; this one is of the given text.
    pub induction: Option<f64>,
    /// The distance in tokens: `Σ w[i, j] · |i - j| / Σ w[i, j]`. Vig, Belinkov 2019
    /// (arXiv 1906.04284).
    pub distance: Option<f64>,
    /// The entropy in nats: `-Σ p ln p` with `p[i, j] = w[i, j] / Σ w[i, j]`. Clark et al. 2019.
    pub entropy: Option<f64>,
    /// The largest weight: `max w[i, j]`. The confidence of Voita et al. 2019.
    pub most: Option<f64>,
    /// The sum of the weights: 1, or less with a sink in the denominator.
    pub sum: Option<f64>,
}

/// A mean over the rows so far.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: usize,
}

impl Mean {
    fn add(&mut self, x: Option<f64>) {
        if let Some(x) = x {
            self.sum += x;
            self.count += 1;
        }
    }
    fn value(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// Computes [`Patterns`] from rows of weights.
#[derive(Clone, Debug, Default)]
pub(super) struct PatternSums {
    /// The tokens, if queries and keys are the same ones.
    tokens: Option<Vec<i64>>,
    means: [Mean; 9],
}

impl PatternSums {
    pub fn new(tokens: Option<&[i64]>) -> Self {
        PatternSums { tokens: tokens.map(<[i64]>::to_vec), ..PatternSums::default() }
    }

    /// Adds the weights of query `i` over all keys.
    pub fn add(&mut self, i: usize, row: &[f64], mask: &PairMask) {
        let tokens = self.tokens.as_deref().unwrap_or(&[]);
        let own = tokens.get(i);
        let (mut total, mut most) = (0.0, None::<f64>);
        // The weights of the keys of a kind, if the query attends to any.
        let mut sums = [None::<f64>; 5];
        let mut add = |kind: usize, w: f64| *sums[kind].get_or_insert(0.0) += w;
        // Learned keys behind those of the tokens have no position.
        let (mut within, mut moved) = (0.0, 0.0);
        for j in mask.visible(i) {
            let w = row[j];
            total += w;
            most = Some(most.map_or(w, |most| most.max(w)));
            if j == 0 && i > 0 {
                add(3, w);
            }
            if j >= tokens.len() {
                continue;
            }
            within += w;
            moved += w * i.abs_diff(j) as f64;
            if j + 1 == i {
                add(0, w);
            }
            if j == i {
                add(1, w);
            } else if own == Some(&tokens[j]) {
                add(2, w);
            }
            if 0 < j && j < i && own == Some(&tokens[j - 1]) {
                add(4, w);
            }
        }
        let entropy = || {
            let of = |p: f64| if p > 0.0 { -p * p.ln() } else { 0.0 };
            mask.visible(i).map(|j| of(row[j] / total)).sum::<f64>()
        };
        let [previous, itself, same, first, induction] = sums;
        let distance = (within > 0.0).then(|| moved / within);
        let entropy = (total > 0.0).then(entropy);
        let sum = most.map(|_| total);
        let found = [previous, itself, same, first, induction, distance, entropy, most, sum];
        for (mean, x) in self.means.iter_mut().zip(found) {
            mean.add(x);
        }
    }

    pub fn patterns(&self) -> Patterns {
        let [previous, own, same, first, induction, distance, entropy, most, sum] =
            self.means.map(Mean::value);
        Patterns { previous, own, same, first, induction, distance, entropy, most, sum }
    }
}
