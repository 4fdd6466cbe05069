//! A loss in shards: parts of a batch that are computed at the same time.

use crate::backprop::Backprop;
use crate::gradients::Gradients;
use crate::graph::Var;
use retrograd_tensor::{Real, par};

/// The mean of a loss over all parts of a batch, and its gradients: gradient accumulation, with all
/// parts computed at the same time.
///
/// `mean(i)` is the mean loss of part `i`, a scalar, and `counts[i]` is the number of elements that
/// this mean is over, such as the targets that are not ignored. The result is that of one mean over
/// all elements:
///
/// ```text
/// loss = Σ counts[i] / N · mean(i),   N = Σ counts[i]
/// ```
///
/// Parts of equal size do not have equal counts if some of their elements are ignored. A part whose
/// count is 0 is not computed. If all counts are 0, all parts are computed and have equal weights,
/// so that the loss is what `mean` gives for no elements.
///
/// Each part has a graph of its own; they share leaves only. Where there are as many parts as
/// threads, each part is computed by one thread, without synchronisation
/// and without data of other threads. Gradients are added in order, so results depend on the parts and not on
/// threads. Every part is computed in the [`settings`](retrograd_tensor::settings) of the caller.
///
/// ```
/// use retrograd_autograd::{Var, sharded};
/// use retrograd_tensor::Tensor;
///
/// let w = Var::leaf(Tensor::from([2.0f32, -1.0]));
/// let x = Tensor::from([[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]);
/// let mean = |x: &Tensor| Var::constant(x.clone()).matmul(&w).square().mean(..);
/// // The first three rows, and the last.
/// let (loss, grads) = sharded(&[3, 1], |i| mean(&x.narrow(0, 3 * i, [3, 1][i])));
///
/// let whole = mean(&x);
/// assert_eq!(loss, whole.item());
/// assert_eq!(grads.get(&w), whole.backward().get(&w));
/// ```
///
/// # Panics
/// If `counts` is empty; as [`Var::backward`], of each loss.
#[track_caller]
pub fn sharded<T: Real>(
    counts: &[usize],
    mean: impl Fn(usize) -> Var<T> + Send + Sync,
) -> (T, Gradients<T>) {
    assert!(!counts.is_empty(), "sharded: needs the count of at least 1 part, got none");
    let parts = weights(counts);
    // Errors are returned, so that they are reported at the caller's line.
    let part = |i| {
        let (index, weight) = parts[i];
        let forward = par::span("forward");
        let loss = mean(index) * T::from_f64(weight);
        let value = loss.value().clone();
        drop(forward);
        let _backward = par::span("backward");
        Backprop::from(&loss).try_run().map(|gradients| (value.item(), gradients))
    };
    let (mut losses, mut gradients) = (Vec::new(), Vec::new());
    let parts = par::shards(parts.len(), part);
    let _span = par::span("sum of gradients");
    for part in parts {
        match part {
            Ok((loss, of_part)) => {
                losses.push(loss);
                gradients.push(of_part);
            }
            Err(why) => panic!("{why}"),
        }
    }
    (losses.into_iter().sum(), Gradients::sum(gradients))
}

/// The parts to be computed, and the weights of their means.
fn weights(counts: &[usize]) -> Vec<(usize, f64)> {
    let all: f64 = counts.iter().map(|&n| n as f64).sum();
    let weight = |n: usize| if all > 0.0 { n as f64 / all } else { 1.0 / counts.len() as f64 };
    let weights = counts.iter().map(|&n| weight(n)).enumerate();
    weights.filter(|&(_, weight)| weight > 0.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_shares_of_what_counts() {
        assert_eq!(weights(&[3, 1]), [(0, 0.75), (1, 0.25)]);
        assert_eq!(weights(&[0, 5, 0, 3]), [(1, 0.625), (3, 0.375)]);
        assert_eq!(weights(&[0, 0, 0, 0]), [(0, 0.25), (1, 0.25), (2, 0.25), (3, 0.25)]);
    }
}
