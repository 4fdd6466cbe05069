//! A loss in shards: parts of a batch that are computed at the same time.

use crate::gradients::Gradients;
use crate::var::Var;
use retrograd_tensor::{Real, Tensor, par};

/// The losses `loss(0), .., loss(n - 1)`, and the gradients of their sum: gradient accumulation,
/// but of all parts at the same time.
///
/// Each part has a graph of its own; they share leaves only. Where there are as many parts as
/// threads, each is done by one thread from beginning to end, which neither waits for others nor
/// fetches what they wrote. Gradients are added in order, so results depend on the number of
/// parts and not on threads. Weigh the losses so that their sum is what you want:
///
/// ```
/// use retrograd_autograd::{Var, sharded};
/// use retrograd_tensor::Tensor;
///
/// let w = Var::leaf(Tensor::from([2.0f32, -1.0]));
/// let x = Tensor::from([[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]);
/// let mean = |x: &Tensor| Var::constant(x.clone()).matmul(&w).square().mean(..);
/// let (losses, grads) = sharded(2, |i| mean(&x.narrow(0, 2 * i, 2)) * 0.5);
///
/// let whole = mean(&x);
/// assert_eq!(losses[0].item() + losses[1].item(), whole.item());
/// assert_eq!(grads.get(&w), whole.backward().get(&w));
/// ```
///
/// # Panics
/// As [`Var::backward`], of each loss.
#[track_caller]
pub fn sharded<T: Real>(
    n: usize,
    loss: impl Fn(usize) -> Var<T> + Send + Sync,
) -> (Vec<Tensor<T>>, Gradients<T>) {
    let part = |i| {
        let loss = loss(i);
        let value = loss.value().clone();
        (value, loss.backward())
    };
    let mut values = Vec::with_capacity(n);
    let mut sum = Gradients::empty();
    for (value, grads) in par::shards(n, part) {
        values.push(value);
        sum.accumulate(grads);
    }
    (values, sum)
}
