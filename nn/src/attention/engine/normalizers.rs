//! The normalizers of the composed path: from scores to weights.

use super::feature_map::normalize_by_sum;
use super::operands::Operands;
use super::spec::{Normalizer, Sink};
use retrograd_autograd::Var;
use retrograd_tensor::{Real, Tensor};

impl<T: Real> Operands<T> {
    /// Scores with the sink, if there is one, appended as one more column.
    pub fn with_sink(&self, s: &Var<T>) -> Var<T> {
        let heads = self.sizes.heads;
        let sink = match &self.spec.sink {
            Sink::None => return s.clone(),
            Sink::Zero => Var::constant(Tensor::zeros([heads])),
            Sink::Learned(sink) => sink.clone(),
        };
        let mut dims = s.shape().to_vec();
        dims[3] = 1;
        Var::cat(&[s, &sink.reshape([1, heads, 1, 1]).broadcast_to(dims)], -1)
    }

    /// The weights of the scores, over the pairs that attend.
    pub fn normalize(&self, s: &Var<T>, keep: &Tensor<bool>) -> Var<T> {
        match self.spec.normalizer {
            Normalizer::Softmax => match self.spec.sink {
                Sink::None => s.masked_softmax(-1, keep),
                _ => {
                    let keep = keep.broadcast_to(s.shape()).pad(-1, 0, 1, true);
                    self.with_sink(s).masked_softmax(-1, &keep).narrow(-1, 0, self.sizes.lk)
                }
            },
            Normalizer::Sigmoid { bias } => {
                let bias = bias.unwrap_or(-(self.sizes.lk.max(1) as f64).ln());
                s.add_scalar(T::from_f64(bias)).sigmoid().masked_fill(&!keep, T::ZERO)
            }
            Normalizer::Linear => normalize_by_sum(s),
            Normalizer::Sparsemax | Normalizer::Entmax15 => {
                let (s, keep) = (spread_nan_over_rows(s, keep), keep.broadcast_to(s.shape()));
                match self.spec.normalizer {
                    Normalizer::Sparsemax => sparsemax(&s, &keep),
                    _ => entmax15(&s, &keep),
                }
            }
            Normalizer::TopK(k) => {
                let low = s.value().masked_fill(&!keep, T::NEG_INFINITY);
                s.masked_softmax(-1, &top_k_mask(&low, k).and(keep))
            }
        }
    }
}

/// True for the `k` largest elements of every row; of equal elements, the first.
fn top_k_mask<T: Real>(x: &Tensor<T>, k: usize) -> Tensor<bool> {
    let index = x.topk(-1, k.min(x.size(-1)), true).1;
    let ones = Tensor::<T>::ones(index.shape());
    Tensor::zeros(x.shape()).scatter_add(-1, &index, &ones).gt(T::ZERO)
}

/// Scores in which a row with an unmasked NaN or +∞ is NaN everywhere, as its threshold would be.
fn spread_nan_over_rows<T: Real>(s: &Var<T>, keep: &Tensor<bool>) -> Var<T> {
    let unmasked = s.value().masked_fill(&!keep, T::NEG_INFINITY);
    let numbers = unmasked.lt(T::INFINITY).all([-1]).unsqueeze(-1);
    if numbers.all(..).item() {
        return s.clone();
    }
    s.masked_fill(&!&numbers, T::from_f64(f64::NAN))
}

/// The support of sparsemax or entmax: true for the elements of each row with a positive weight.
/// `threshold` is computed from the `n` largest elements, given in descending order; the support is the
/// largest `n` whose smallest element exceeds it. In a row of NaN, all unmasked elements.
fn support<T: Real>(
    s: &Tensor<T>,
    keep: &Tensor<bool>,
    threshold: impl Fn(&[f64]) -> f64,
) -> Tensor<bool> {
    let width = s.size(-1);
    let (s, keep) = (s.contiguous(), keep.contiguous());
    let mut out = Vec::with_capacity(s.numel());
    for (row, keep) in s.as_slice().chunks(width.max(1)).zip(keep.as_slice().chunks(width.max(1))) {
        let mut kept: Vec<f64> =
            row.iter().zip(keep).filter(|(_, k)| **k).map(|(x, _)| x.to_f64()).collect();
        if kept.iter().any(|x| x.is_nan()) {
            out.extend(keep);
            continue;
        }
        kept.sort_by(|a, b| b.total_cmp(a));
        let reaches = |&n: &usize| kept[n - 1] > threshold(&kept[..n]);
        let last = (1..=kept.len()).take_while(reaches).last();
        let lowest = last.map_or(f64::INFINITY, |n| kept[n - 1]);
        out.extend(row.iter().zip(keep).map(|(x, k)| *k && x.to_f64() >= lowest));
    }
    Tensor::from_vec(out, s.shape())
}

/// `max(s - τ, 0)` with `τ = (Σ s - 1) / n` over the support. The support is treated as a constant:
/// the gradient is exact wherever it is defined.
fn sparsemax<T: Real>(s: &Var<T>, keep: &Tensor<bool>) -> Var<T> {
    let inside = support(s.value(), keep, |x| (x.iter().sum::<f64>() - 1.0) / x.len() as f64);
    let n = row_counts(&inside);
    let s = s.masked_fill(&!&inside, T::ZERO);
    let tau = (s.sum_keepdim(-1) - T::ONE) / n;
    (s - tau).masked_fill(&!&inside, T::ZERO)
}

/// `max(s/2 - τ, 0)²` with `Σ = 1`: over the support, `τ = mean - √((1 - Σ(s/2 - mean)²) / n)`.
fn entmax15<T: Real>(s: &Var<T>, keep: &Tensor<bool>) -> Var<T> {
    let inside = support(s.value(), keep, |x| {
        let n = x.len() as f64;
        let mean = x.iter().sum::<f64>() / n / 2.0;
        let spread: f64 = x.iter().map(|x| (x / 2.0 - mean).powi(2)).sum();
        2.0 * (mean - ((1.0 - spread) / n).max(0.0).sqrt())
    });
    let n = row_counts(&inside);
    let outside = !&inside;
    let half = (s * T::from_f64(0.5)).masked_fill(&outside, T::ZERO);
    let mean = half.sum_keepdim(-1) / &n;
    let spread = (&half - &mean).masked_fill(&outside, T::ZERO).square().sum_keepdim(-1);
    // The derivative of the root is infinite at 0, where the support loses an element.
    let root = ((-spread + T::ONE) / n).clamp(T::ZERO, T::INFINITY).sqrt();
    (half - (mean - root)).masked_fill(&outside, T::ZERO).square()
}

/// The number of true elements of each row, at least 1, `[.., 1]`.
fn row_counts<T: Real>(inside: &Tensor<bool>) -> Var<T> {
    let ones = inside.where_(&Tensor::scalar(T::ONE), &Tensor::scalar(T::ZERO));
    Var::constant(ones.sum_keepdim(-1).maximum(&Tensor::scalar(T::ONE)))
}
