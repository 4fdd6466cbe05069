//! Additive attention.

use crate::attention::engine::{Spec, attend};
use crate::attention::parts::scores::{additive_scores, attend_by_scores, hidden_weights};
use crate::dropout::Dropout;
use crate::linear::Linear;
use crate::module::{Call, Layer, visits};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::random::Rng;

/// Additive (Bahdanau) attention: scores from a small network instead of a dot product.
///
/// ```text
/// s_ij = vᵀ tanh(W q_i + U k_j + b)
/// o_i  = Σ_j softmax_j(s_ij, masked) · value_j
/// ```
///
/// Queries `[Lq, d_q]` or `[B, Lq, d_q]`, keys `[.., Lk, d_k]`, values `[.., Lk, d_v]`, to
/// `[.., Lq, d_v]`. The work is `O(Lq Lk a)` with `a` hidden units. The `Lq · Lk · a` hidden
/// values are computed in tiles of queries and recomputed in the backward pass, so that they are
/// never all in memory (except in a recorded backward pass).
///
/// Without `b` it equals [`LuongConcat`](crate::attention::LuongConcat) with the matrix `[W U]`.
///
/// Parameters: `query.weight` (W) `[a, d_q]`, `key.weight` (U) `[a, d_k]`, `key.bias` (b)
/// `[a]`, `v` `[a]`. Bahdanau, Cho, Bengio 2014 (arXiv 1409.0473).
#[derive(Clone, Debug)]
pub struct AdditiveAttention<T: Real = f32> {
    /// `W`
    pub query: Linear<T>,
    /// `U` and `b`
    pub key: Linear<T>,
    /// `v`
    pub v: Param<T>,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
}

impl<T: Real> AdditiveAttention<T> {
    /// A layer for queries and keys of these widths, with `hidden` units.
    #[track_caller]
    pub fn new(query_width: usize, key_width: usize, hidden: usize, rng: &mut Rng) -> Self {
        AdditiveAttention {
            query: Linear::without_bias(query_width, hidden, rng),
            key: Linear::new(key_width, hidden, rng),
            v: hidden_weights(hidden, rng),
            dropout: Dropout::new(0.0),
        }
    }

    /// The output under a [`Mask`](crate::attention::Mask), or with a whole [`Spec`].
    ///
    /// # Panics
    /// If the shapes do not match each other or the mask.
    ///
    /// ```
    /// use retrograd::nn::attention::{AdditiveAttention, Spec};
    /// use retrograd::prelude::*;
    /// let mut rng = Rng::new(1);
    /// let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let attention = AdditiveAttention::<f64>::new(8, 8, 6, &mut rng);
    /// let one = x.narrow(1, 0, 1); // a single key and value
    /// let y = attention.forward(&x, &one, &one, Spec::new(), &mut Pass::eval());
    /// assert!((y - &one).value().abs().max(..).item() < 1e-12);
    /// ```
    #[track_caller]
    pub fn forward(
        &self,
        queries: &Var<T>,
        keys: &Var<T>,
        values: &Var<T>,
        spec: impl Into<Spec<T>>,
        pass: &mut Pass,
    ) -> Var<T> {
        let call = Call::start(self);
        let (q, k) = (self.query.forward(queries, pass), self.key.forward(keys, pass));
        let scores = additive_scores(&q, &k, &self.v.to_var());
        let spec = spec.into().dropout_of_module(self.dropout.p(), pass);
        call.end(attend_by_scores(attend, &scores, values, &spec))
    }
}

visits!(AdditiveAttention: module query, module key, param v);
