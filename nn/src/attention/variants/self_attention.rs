//! Scaled dot-product self-attention with a single head.

use super::cross::CrossAttention;
use crate::attention::engine::Spec;
use crate::dropout::Dropout;
use crate::module::{Call, visits};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::random::Rng;

/// Self-attention with a single head.
///
/// ```text
/// q = x · W_queryᵀ     k = x · W_keyᵀ     v = x · W_valueᵀ     (+ biases)
/// o = dropout(softmax(q · kᵀ / √d_k, masked)) · v
/// ```
///
/// `[L, d_in]` or `[B, L, d_in]` to `[.., L, d_v]`. The work is `O(L² (d_k + d_v))` and, for
/// the projections, `O(L d_in (d_k + d_v))`. Vaswani et al. 2017 (arXiv 1706.03762).
///
/// The mask makes it full, causal or padded attention: `Mask::full()`, `Mask::causal()`,
/// `Mask::lengths(..)`, or a combination. The output of a query that attends to no key is 0.
///
/// It is [`CrossAttention`] of a sequence to itself, and one head of
/// [`MultiHeadWrapper`](crate::attention::MultiHeadWrapper). Parameters: `W_query` and
/// `W_key` `[d_k, d_in]`, `W_value` `[d_v, d_in]`.
///
/// ```
/// use retrograd::nn::attention::{Mask, SelfAttention};
/// use retrograd::prelude::*;
///
/// let mut rng = Rng::new(1);
/// let attention = SelfAttention::<f32>::new(3, 2, 4, &mut rng);
/// let x = Var::constant(Tensor::randn([6, 3], &mut rng));
/// let (y, weights) = attention.forward_with_weights(&x, Mask::causal(), &mut Pass::eval());
/// assert_eq!((*y.shape(), *weights.shape()), ([6, 4].into(), [6, 6].into()));
/// assert_eq!(weights.value().at(&[0, 0]), 1.0); // the first token attends to itself only
/// ```
#[derive(Clone, Debug)]
pub struct SelfAttention<T: Real = f32> {
    /// The cross-attention of the sequence to itself.
    pub attention: CrossAttention<T>,
}

impl<T: Real> SelfAttention<T> {
    /// A layer without biases.
    #[track_caller]
    pub fn new(d_in: usize, d_k: usize, d_v: usize, rng: &mut Rng) -> Self {
        SelfAttention { attention: CrossAttention::new(d_in, d_in, d_k, d_v, rng) }
    }

    /// A layer with biases.
    pub fn with_bias(d_in: usize, d_k: usize, d_v: usize, rng: &mut Rng) -> Self {
        SelfAttention { attention: CrossAttention::with_bias(d_in, d_in, d_k, d_v, rng) }
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

    /// The output under a [`Mask`](crate::attention::Mask), or with a whole [`Spec`].
    ///
    /// # Panics
    /// If the last axis of `x` is not `d_in`, or the mask does not match the sizes.
    #[track_caller]
    pub fn forward(&self, x: &Var<T>, spec: impl Into<Spec<T>>, pass: &mut Pass) -> Var<T> {
        Call::start(self).end(self.attention.forward(x, x, spec, pass))
    }

    /// The output and the weights `[.., L, L]`, before dropout.
    #[track_caller]
    pub fn forward_with_weights(
        &self,
        x: &Var<T>,
        spec: impl Into<Spec<T>>,
        pass: &mut Pass,
    ) -> (Var<T>, Var<T>) {
        self.attention.forward_with_weights(x, x, spec, pass)
    }
}

visits!(SelfAttention: all attention);
