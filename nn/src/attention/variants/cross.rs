//! Cross-attention: queries from one sequence, keys and values from another.

use crate::attention::engine::Spec;
use crate::attention::parts::heads::SplitHeads;
use crate::dropout::Dropout;
use crate::linear::Linear;
use crate::module::{Call, Layer, visits};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::random::Rng;

/// Cross-attention with a single head; with several, it is
/// [`MultiHeadAttention`](crate::attention::MultiHeadAttention).
///
/// ```text
/// q = x₁ · W_queryᵀ     k = x₂ · W_keyᵀ     v = x₂ · W_valueᵀ     (+ biases)
/// o = dropout(softmax(q · kᵀ / √d_k, masked)) · v
/// ```
///
/// `x₁` is `[Lq, d₁]` or `[B, Lq, d₁]` and `x₂` `[Lk, d₂]` or `[B, Lk, d₂]`; widths and lengths
/// may differ. The result is `[.., Lq, d_v]`. The work is `O(Lq Lk (d_k + d_v))` and the
/// projections. The output of a query that attends to no key (if `Lk` is 0, say) is 0.
///
/// With `x₁ = x₂` it is [`SelfAttention`](crate::attention::SelfAttention). Parameters: `W_query`
/// `[d_k, d₁]`, `W_key` `[d_k, d₂]`, `W_value` `[d_v, d₂]`. Bahdanau et al. 2014 (arXiv
/// 1409.0473) attend from a decoder to an encoder; in this form, Vaswani et al. 2017 (arXiv
/// 1706.03762).
#[derive(Clone, Debug)]
pub struct CrossAttention<T: Real = f32> {
    /// The projection to queries, from the first sequence.
    pub query: Linear<T>,
    /// The projection to keys, from the second.
    pub key: Linear<T>,
    /// The projection to values, from the second.
    pub value: Linear<T>,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
}

impl<T: Real> CrossAttention<T> {
    /// A layer for sequences of widths `d_query` and `d_other`, without biases.
    #[track_caller]
    pub fn new(d_query: usize, d_other: usize, d_k: usize, d_v: usize, rng: &mut Rng) -> Self {
        CrossAttention {
            query: Linear::without_bias(d_query, d_k, rng),
            key: Linear::without_bias(d_other, d_k, rng),
            value: Linear::without_bias(d_other, d_v, rng),
            dropout: Dropout::new(0.0),
        }
    }

    /// A layer with biases.
    #[track_caller]
    pub fn with_bias(
        d_query: usize,
        d_other: usize,
        d_k: usize,
        d_v: usize,
        rng: &mut Rng,
    ) -> Self {
        CrossAttention {
            query: Linear::new(d_query, d_k, rng),
            key: Linear::new(d_other, d_k, rng),
            value: Linear::new(d_other, d_v, rng),
            dropout: Dropout::new(0.0),
        }
    }

    #[track_caller]
    fn parts(
        &self,
        x: &Var<T>,
        other: &Var<T>,
        spec: impl Into<Spec<T>>,
        pass: &mut Pass,
    ) -> (SplitHeads<T>, Spec<T>) {
        let q = self.query.forward(x, pass);
        let (k, v) = (self.key.forward(other, pass), self.value.forward(other, pass));
        (SplitHeads::new(&q, &k, &v, 1, 1), spec.into().dropout_of_module(self.dropout.p(), pass))
    }

    /// The attention from `x` to `other`, under a [`Mask`](crate::attention::Mask) or with a whole
    /// [`Spec`].
    ///
    /// # Panics
    /// If widths, batches or the mask do not match.
    ///
    /// ```
    /// use retrograd::nn::attention::{CrossAttention, Spec};
    /// use retrograd::prelude::*;
    /// let mut rng = Rng::new(1);
    /// let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let attention = CrossAttention::<f64>::new(8, 8, 6, 5, &mut rng);
    /// let other = x.narrow(1, 0, 1); // a single key: its value is the output
    /// let y = attention.forward(&x, &other, Spec::new(), &mut Pass::eval());
    /// let value = attention.value.forward(&other, &mut Pass::eval());
    /// assert!((y - value).value().abs().max(..).item() < 1e-12);
    /// ```
    #[track_caller]
    pub fn forward(
        &self,
        x: &Var<T>,
        other: &Var<T>,
        spec: impl Into<Spec<T>>,
        pass: &mut Pass,
    ) -> Var<T> {
        let call = Call::start(self);
        let (heads, spec) = self.parts(x, other, spec, pass);
        call.end(heads.attend(&spec))
    }

    /// The output and the weights `[.., Lq, Lk]`, before dropout.
    #[track_caller]
    pub fn forward_with_weights(
        &self,
        x: &Var<T>,
        other: &Var<T>,
        spec: impl Into<Spec<T>>,
        pass: &mut Pass,
    ) -> (Var<T>, Var<T>) {
        let (heads, spec) = self.parts(x, other, spec, pass);
        let (y, weights) = heads.attend_all(&spec);
        (y, weights.squeeze(-3))
    }
}

visits! { CrossAttention:
    module query as "W_query", module key as "W_key", module value as "W_value"
}
