//! A loss in shards: parts of a batch that are computed at the same time.

use crate::backprop::{Backprop, or_panic};
use crate::gradients::Gradients;
use crate::graph::Var;
use crate::observe::shards_ended;
use retrograd_tensor::observe::shard;
use retrograd_tensor::{Real, par};

/// The mean of a loss over all parts of a batch, and its gradients: gradient accumulation, with all
/// parts computed at the same time.
///
/// `mean(i)` is the mean loss of part `i`, a scalar, and `counts[i]` is the number of elements that
/// this mean is over, such as the targets that are not ignored. The result equals one mean over
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
/// and without data of other threads. Gradients are added in pairs ([`pairwise_sum`]), so results depend on the
/// parts and not on threads. Every part is computed in the [`settings`](retrograd_tensor::settings) of the caller.
///
/// ```
/// use retrograd::autograd::sharded;
/// use retrograd::prelude::*;
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
    let weights = shard_weights(counts);
    let _span = par::span("loss and gradients");
    let parts: Vec<usize> = (0..counts.len()).filter(|&i| weights[i] > 0.0).collect();
    // Errors are returned, so that they are reported at the caller's line.
    let part = |k| {
        let _shard = shard(k);
        let i: usize = parts[k];
        let forward = par::span("forward");
        let loss = mean(i) * T::from_f64(weights[i]);
        let value = loss.value().clone();
        drop(forward);
        let _backward = par::span("backward");
        Backprop::from(&loss).try_run().map(|gradients| (value.item(), gradients))
    };
    let mut losses = Vec::with_capacity(parts.len());
    let mut gradients = vec![None; counts.len()];
    let computed = par::shards(parts.len(), part);
    let _span = par::span("sum of gradients");
    for (&i, part) in parts.iter().zip(computed) {
        match part {
            Ok((loss, g)) => {
                losses.push(loss);
                gradients[i] = Some(g);
            }
            Err(why) => panic!("{why}"),
        }
    }
    let (loss, gradients) = (losses.into_iter().sum(), Gradients::pairwise_sum(gradients));
    shards_ended::<T>(loss);
    (loss, gradients)
}

/// `f` of the gradients of each sample of a batch, in order: their norms, or the gradients themselves. `loss(i)` is the
/// loss of sample `i`, a scalar. Samples are distributed to threads, each of which keeps the gradients of one sample
/// at a time.
///
/// ```
/// use retrograd::autograd::per_sample;
/// use retrograd::prelude::*;
/// let w = Var::leaf(Tensor::from([2.0f32, -1.0]));
/// let x = Tensor::from([[3.0f32, 4.0], [0.0, 2.0]]);
/// let loss = |i| Var::constant(x.select(0, i)).dot(&w);
/// assert_eq!(per_sample(2, loss, |grads| grads.norm()), [5.0, 2.0]);
/// ```
///
/// # Panics
/// As [`Var::backward`], of each loss.
#[track_caller]
pub fn per_sample<T: Real, R: Send>(
    samples: usize,
    loss: impl Fn(usize) -> Var<T> + Send + Sync,
    f: impl Fn(Gradients<T>) -> R + Send + Sync,
) -> Vec<R> {
    let one = |i| {
        let _shard = shard(i);
        Backprop::from(&loss(i)).try_run().map(&f)
    };
    let results: Result<Vec<R>, String> = par::shards(samples, one).into_iter().collect();
    or_panic(results)
}

/// The mean of the gradients of samples, of which each is scaled to a norm of at most `max`, as
/// [`Gradients::clip_norm`]. With noise added it is the gradient of DP-SGD: Abadi et al. 2016 (arXiv 1607.00133).
///
/// ```
/// use retrograd::autograd::mean_clipped_per_sample;
/// use retrograd::prelude::*;
/// let w = Var::leaf(Tensor::from([0.0f64]));
/// let loss = |i| w.sum(..) * [100.0, 0.5][i];
/// let grads = mean_clipped_per_sample(2, 1.0, loss);
/// assert!((grads.get(&w).unwrap().item() - (1.0 + 0.5) / 2.0).abs() < 1e-6);
/// ```
///
/// # Panics
/// As [`per_sample`]; or if `max` is negative or NaN.
#[track_caller]
pub fn mean_clipped_per_sample<T: Real>(
    samples: usize,
    max: f64,
    loss: impl Fn(usize) -> Var<T> + Send + Sync,
) -> Gradients<T> {
    let clipped = per_sample(samples, loss, |mut grads| {
        grads.clip_norm(max);
        Some(grads)
    });
    let mut mean = Gradients::pairwise_sum(clipped);
    mean.scale(T::from_f64(1.0 / samples.max(1) as f64));
    mean
}

/// The weights of the means of the parts of a batch, see [`sharded`]; 0 for a part that is not computed.
///
/// ```
/// use retrograd::autograd::shard_weights;
/// assert_eq!(shard_weights(&[3, 0, 1]), [0.75, 0.0, 0.25]);
/// assert_eq!(shard_weights(&[0, 0]), [0.5, 0.5]);
/// ```
///
/// # Panics
/// If `counts` is empty.
#[track_caller]
pub fn shard_weights(counts: &[usize]) -> Vec<f64> {
    assert!(!counts.is_empty(), "sharded: needs the count of at least 1 part, got none");
    let all: f64 = counts.iter().map(|&n| n as f64).sum();
    let weight = |n: usize| if all > 0.0 { n as f64 / all } else { 1.0 / counts.len() as f64 };
    counts.iter().map(|&n| weight(n)).collect()
}

/// The sum of the items that there are, in a fixed order: neighbours are added, then neighbouring sums, and so
/// on: `((x0 + x1) + (x2 + x3)) + (x4 + x5)`. A rounding error grows with the logarithm of the number of
/// items; and sums of 2, 4, 8, .. items that begin at a multiple of this number can be computed apart.
///
/// ```
/// use retrograd::autograd::pairwise_sum;
/// let items = ["a", "b", "c"].map(|x| Some(x.to_string()));
/// let sum = pairwise_sum(items.to_vec(), |x, y| format!("({x}+{y})"));
/// assert_eq!(sum.unwrap(), "((a+b)+c)");
/// ```
pub fn pairwise_sum<X>(mut items: Vec<Option<X>>, mut add: impl FnMut(X, X) -> X) -> Option<X> {
    while items.len() > 1 {
        let mut left = items.into_iter();
        let mut sums = Vec::with_capacity(left.len().div_ceil(2));
        while let Some(a) = left.next() {
            sums.push(match (a, left.next().flatten()) {
                (Some(a), Some(b)) => Some(add(a, b)),
                (a, b) => a.or(b),
            });
        }
        items = sums;
    }
    items.pop().flatten()
}
