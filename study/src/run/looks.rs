//! What a model does at an evaluation: attention to a sentence, a sample, gradients and updates.

use crate::base64::encode;
use serde::{Deserialize, Serialize};

/// The most characters of a sample on a page.
pub(crate) const SAMPLE: usize = 2000;

/// What was observed of the model after a step: attention weights within a sentence, a sample, and for each part
/// of the model the gradient and the update of that step. It is compact, and has a JSON form for files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunLook {
    /// Steps taken before.
    pub step: u64,
    /// The continuation of the prompt.
    pub sample: String,
    /// The heads of all layers with attention weights, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heads: Vec<HeadLook>,
    /// For each part, the norm of its gradient before clipping. Empty if no step was observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grad_norms: Vec<Option<f64>>,
    /// For each part, the norm of its update divided by the norm of its weights before the step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub updates: Vec<Option<f64>>,
    /// For each layer, the root of the mean square of its output for the sentence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scales: Vec<Option<f64>>,
}

/// The attention weights of a head within a sentence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeadLook {
    /// How spread the weights are: for each query but the first, the entropy of its weights divided by the
    /// logarithm of the number of tokens that it may attend to; the mean over queries. 0 if every query attends
    /// to one token, 1 if to all equally.
    pub entropy: f64,
    /// How far back the weights reach: for each query but the first, the mean of the distance to the token that
    /// is attended to, in tokens, by the weights; the mean over queries. 0 if every query attends to its own
    /// token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<f64>,
    /// The lower triangle row by row, a byte `round(255 √w)` for each weight, in base64.
    pub weights: String,
}

impl HeadLook {
    /// The weights of a causal head: `weights` has a row for each of `tokens` queries, row by row, with a weight
    /// for each of `tokens` keys. Weights of later keys are left out.
    ///
    /// # Panics
    /// If the number of weights is not `tokens²`.
    ///
    /// ```
    /// use retrograd::study::HeadLook;
    ///
    /// let first = HeadLook::new(&[1.0, 0.0, 1.0, 0.0], 2); // both queries attend to the first token
    /// assert_eq!(first.entropy, 0.0);
    /// let both = HeadLook::new(&[1.0, 0.0, 0.5, 0.5], 2);
    /// assert!((both.entropy - 1.0).abs() < 1e-6);
    /// assert_eq!((first.distance, both.distance), (Some(1.0), Some(0.5)));
    /// ```
    #[track_caller]
    pub fn new(weights: &[f32], tokens: usize) -> HeadLook {
        assert!(
            weights.len() == tokens * tokens,
            "HeadLook::new: {} weights, but {tokens} tokens",
            weights.len()
        );
        let rows = || (0..tokens).map(|i| &weights[i * tokens..=i * tokens + i]);
        let bytes = rows().flatten().map(|&w| (255.0 * w.max(0.0).sqrt()).round().min(255.0) as u8);
        let weights = encode(&bytes.collect::<Vec<u8>>());
        let mean = |of: fn(&[f32]) -> f64| {
            let sum = rows().skip(1).map(of).sum::<f64>();
            (sum / tokens.saturating_sub(1).max(1) as f64 * 1e4).round() / 1e4
        };
        let distance = Some(mean(distance)).filter(|x| x.is_finite());
        HeadLook { entropy: mean(relative_entropy), distance, weights }
    }
}

/// The entropy of weights, scaled to the sum 1, divided by the entropy of equal weights.
fn relative_entropy(weights: &[f32]) -> f64 {
    let sum: f64 = weights.iter().map(|&w| f64::from(w)).sum();
    let part = |&w: &f32| match f64::from(w) / sum {
        p if p > 0.0 => -p * p.ln(),
        _ => 0.0,
    };
    weights.iter().map(part).sum::<f64>() / (weights.len() as f64).ln()
}

/// The mean distance of the keys to the query, which is the last one, by weights that are scaled to the sum 1.
fn distance(weights: &[f32]) -> f64 {
    let sum: f64 = weights.iter().map(|&w| f64::from(w)).sum();
    let far = weights.iter().rev().enumerate().map(|(d, &w)| d as f64 * f64::from(w)).sum::<f64>();
    if sum == 0.0 { 0.0 } else { far / sum }
}
