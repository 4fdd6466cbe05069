//! An interactive page: hovering over a word shows its attention weights in each head.

use crate::language::Sentence;
use crate::study::Head;
use retrograd::prelude::Tensor;
use serde::Serialize;

#[derive(Serialize)]
struct Page<'a> {
    best: [usize; 2],
    sentences: Vec<Shown<'a>>,
}

#[derive(Serialize)]
struct Shown<'a> {
    words: &'a [&'static str],
    it: usize,
    /// Weights by time (before and after training), layer, head, word and word.
    weights: [Vec<Vec<Vec<Vec<f32>>>>; 2],
}

/// A self-contained page of HTML with sentences and their weights `[heads, L, L]` of each layer.
pub fn page(
    sentences: &[Sentence],
    best: Head,
    before: &[Vec<Tensor>],
    after: &[Vec<Tensor>],
) -> serde_json::Result<String> {
    let sentences = sentences
        .iter()
        .zip(before.iter().zip(after))
        .map(|(s, (before, after))| Shown {
            words: &s.words,
            it: s.it,
            weights: [before, after].map(|maps| maps.iter().map(nested).collect()),
        })
        .collect();
    let data = serde_json::to_string(&Page { best: [best.layer, best.head], sentences })?;
    Ok(include_str!("page.html").replace("\"the data\"", &data))
}

/// The weights as nested arrays, rounded to four digits.
fn nested(weights: &Tensor) -> Vec<Vec<Vec<f32>>> {
    let short = |w: f32| (w * 1e4).round() / 1e4;
    let row = |t: Tensor| t.to_vec().into_iter().map(short).collect();
    let rows = |t: Tensor| (0..t.size(0)).map(|i| row(t.select(0, i))).collect();
    (0..weights.size(0)).map(|h| rows(weights.select(0, h))).collect()
}
