//! Masking after the softmax: multiplication by the mask, then division by the sum of the rest.

use super::cross::CrossAttention;
use crate::attention::engine::{self, Align, Mask, Spec};
use crate::attention::parts::heads::{join_heads, split_heads};
use crate::dropout::Dropout;
use crate::module::{Call, Layer, visits};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::random::Rng;

/// `P' = P ∘ M`, then `P' / Σ P'` along the last axis, with `M` 1 where the mask keeps a pair and
/// 0 elsewhere; a row whose sum is 0 is 0. Weights have 2 to 4 axes, `[B, H, Lq, Lk]` at most;
/// the last query has the position of the last key.
///
/// If `P` is a softmax, this is the softmax over the unmasked keys, in exact arithmetic:
/// `e^s / Σ_all · Σ_all / Σ_kept`. In floating point it is not: where the kept share of `P` is tiny
/// it has few correct digits, and where it underflows (in `f32`, once kept scores are about 104
/// below the largest masked score) the row is 0 although keys are unmasked. A masked NaN is still
/// part of the sum of the first softmax. A masked softmax has neither problem and costs less.
///
/// # Panics
/// If the mask does not fit the weights, or the weights do not have 2 to 4 axes.
///
/// ```
/// use retrograd::nn::attention::{Mask, renormalize};
/// use retrograd::prelude::*;
/// let weights = Var::constant(Tensor::from([[0.5f64, 0.25, 0.25]]));
/// let y = renormalize(&weights, &Mask::first(2));
/// assert_eq!(y.value().to_vec(), [0.5 / 0.75, 0.25 / 0.75, 0.0]);
/// ```
#[track_caller]
pub fn renormalize<T: Real>(weights: &Var<T>, mask: &Mask) -> Var<T> {
    let rank = weights.rank();
    assert((2..=4).contains(&rank), "renormalize", ErrorKind::Rank, || {
        format!("2 to 4 axes, got {:?}", weights.shape())
    });
    let mut sizes = [1; 4];
    sizes[4 - rank..].copy_from_slice(weights.shape());
    let keep = mask.tensor(sizes, Align::BottomRight).broadcast_to(sizes).reshape(weights.shape());
    let kept = weights.masked_fill(&!keep, T::ZERO);
    let sum = kept.sum_keepdim(-1);
    let nothing = sum.value().eq(T::ZERO);
    kept / sum.masked_fill(&nothing, T::ONE)
}

/// Single-head self-attention, masked after the softmax by [`renormalize`].
///
/// ```text
/// P = softmax(q · kᵀ / √d_k)     P' = P ∘ M     o = dropout(P' / Σ P') · v
/// ```
///
/// Shapes, parameters and names are as in [`SelfAttention`](crate::attention::SelfAttention), to
/// which it is equal in exact arithmetic under the same mask; with `Mask::full()` it is equal in
/// floating point, too. It is here for study, not for use: [`renormalize`] describes its problems.
/// The work is the same `O(L² (d_k + d_v))`, none of it skipped.
#[derive(Clone, Debug)]
pub struct RenormalizedSelfAttention<T: Real = f32> {
    /// The projections.
    pub attention: CrossAttention<T>,
}

impl<T: Real> RenormalizedSelfAttention<T> {
    /// A layer without biases.
    #[track_caller]
    pub fn new(d_in: usize, d_k: usize, d_v: usize, rng: &mut Rng) -> Self {
        RenormalizedSelfAttention { attention: CrossAttention::new(d_in, d_in, d_k, d_v, rng) }
    }

    /// Sets the dropout of the weights, in training passes.
    ///
    /// # Panics
    /// If `p` is not in `[0, 1]`.
    #[track_caller]
    pub fn dropout(mut self, p: f64) -> Self {
        self.attention.dropout = Dropout::new(p);
        self
    }

    /// The output under a mask.
    ///
    /// # Panics
    /// If the last axis of `x` is not `d_in`, or the mask does not match the sizes.
    #[track_caller]
    pub fn forward(&self, x: &Var<T>, mask: &Mask, pass: &mut Pass) -> Var<T> {
        Call::start(self).end(self.forward_with_weights(x, mask, pass).0)
    }

    /// The output and the weights `[.., L, L]`, renormalised, before dropout.
    #[track_caller]
    pub fn forward_with_weights(
        &self,
        x: &Var<T>,
        mask: &Mask,
        pass: &mut Pass,
    ) -> (Var<T>, Var<T>) {
        assert((2..=3).contains(&x.rank()), "attention", ErrorKind::Rank, || {
            format!("x must be [length, width] or [batch, length, width], got {:?}", x.shape())
        });
        let CrossAttention { query, key, value, dropout } = &self.attention;
        let q = split_heads(&query.forward(x, pass), 1);
        let k = split_heads(&key.forward(x, pass), 1);
        let v = split_heads(&value.forward(x, pass), 1);
        // Not reported: the weights of this variant are computed below.
        let call = engine::Operands::new(&q, &k, &v, &Spec::new());
        let all = call.restore_rank(&call.composed_all().weights);

        let weights = renormalize(&all, mask);
        let y = join_heads(&dropout.forward(&weights, pass).matmul(&v));
        (y, weights.squeeze(-3))
    }
}

visits!(RenormalizedSelfAttention: all attention);
