//! T5: a learned bias for each head and bucket of distances.

use crate::attention::engine::{Buckets, Rule, Spec, attend};
use crate::attention::parts::heads::{check_heads_divide, join_heads, split_heads};
use crate::attention::parts::incremental::{Incremental, Past};
use crate::dropout::Dropout;
use crate::embedding::Embedding;
use crate::init::Init;
use crate::linear::Linear;
use crate::module::{Layer, visits};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::error::OrPanic;
use retrograd_tensor::random::Rng;

/// T5 self-attention: scores without a scale, with a learned bias by distance.
///
/// ```text
/// s_pj = q_p · k_j + table[bucket(j - p), h]
/// ```
///
/// Small distances have a bucket each, large ones share buckets ([`Buckets`]). `[L, width]` or
/// `[B, L, width]` to the same, in `O(L² width)`. With a table of 0 it is plain (causal)
/// self-attention with scale 1.
///
/// Parameters, named as in Hugging Face's `T5Attention`: `q`, `k`, `v`, `o` `[width, width]`
/// without biases, and `relative_attention_bias.weight` `[buckets, heads]`, all normal initially,
/// with deviations for which scores need no scale. Raffel et al. 2019 (arXiv 1910.10683).
///
/// ```
/// use retrograd::nn::attention::{Incremental, Spec, T5Attention};
/// use retrograd::prelude::*;
///
/// let mut rng = Rng::new(1);
/// let encoder = T5Attention::<f32>::encoder(8, 2, &mut rng);
/// let x = Var::constant(Tensor::randn([3, 10, 8], &mut rng));
/// assert_eq!(*encoder.forward(&x, Spec::new(), &mut Pass::eval()).shape(), [3, 10, 8]);
/// assert_eq!(*encoder.state_dict()["relative_attention_bias.weight"].shape(), [32, 2]);
/// ```
#[derive(Clone, Debug)]
pub struct T5Attention<T: Real = f32> {
    /// The projection to queries.
    pub q: Linear<T>,
    /// The projection to keys.
    pub k: Linear<T>,
    /// The projection to values.
    pub v: Linear<T>,
    /// The output projection.
    pub o: Linear<T>,
    /// A bias for each bucket and head.
    pub relative_attention_bias: Embedding<T>,
    /// The map from distances to buckets.
    pub buckets: Buckets,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
}

impl<T: Real> T5Attention<T> {
    /// An encoder layer: bidirectional, with 32 buckets up to a distance of 128, half of them for
    /// keys after the query.
    ///
    /// # Panics
    /// If the heads do not divide the width.
    #[track_caller]
    pub fn encoder(width: usize, heads: usize, rng: &mut Rng) -> Self {
        let buckets = Buckets { count: 32, max_distance: 128, bidirectional: true };
        T5Attention::with_buckets(width, heads, buckets, rng)
    }

    /// A decoder layer: causal, with 32 buckets up to a distance of 128.
    ///
    /// # Panics
    /// If the heads do not divide the width.
    #[track_caller]
    pub fn decoder(width: usize, heads: usize, rng: &mut Rng) -> Self {
        let buckets = Buckets { count: 32, max_distance: 128, bidirectional: false };
        T5Attention::with_buckets(width, heads, buckets, rng)
    }

    /// A layer with other buckets; causal if they are not bidirectional.
    ///
    /// # Panics
    /// If the heads do not divide the width, or `max_distance` is within the buckets of one
    /// distance each.
    #[track_caller]
    pub fn with_buckets(width: usize, heads: usize, buckets: Buckets, rng: &mut Rng) -> Self {
        check_heads_divide("T5Attention", width, heads).or_panic();
        buckets.check("T5Attention").or_panic();
        let of_width = 1.0 / (width.max(1) as f64).sqrt();
        let of_head = 1.0 / ((width / heads).max(1) as f64).sqrt();
        let mut linear =
            |std: f64| Linear::without_bias(width, width, rng).init(Init::Normal { std }, rng);
        T5Attention {
            q: linear(of_width * of_head),
            k: linear(of_width),
            v: linear(of_width),
            o: linear(of_width),
            relative_attention_bias: Embedding::new(buckets.count, heads, rng)
                .init(Init::Normal { std: of_width }, rng),
            buckets,
            dropout: Dropout::new(0.0),
        }
    }
}

visits!(T5Attention: module q, module k, module v, module o, module relative_attention_bias);

impl<T: Real> Incremental<T> for T5Attention<T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T> {
        let table = self.relative_attention_bias.weight.to_var().t();
        let heads = table.size(0);
        let spec = spec
            .clone()
            .scale_unless_given(1.0)
            .rule(Rule::buckets(table, self.buckets))
            .dropout_of_module(self.dropout.p(), pass);
        let spec = if self.buckets.bidirectional { spec } else { spec.causal() };
        let [q, k, v] =
            [&self.q, &self.k, &self.v].map(|by| split_heads(&by.forward(x, pass), heads));
        let (k, v) = past.extend(&k, &v);
        self.o.forward(&join_heads(&attend(&q, &k, &v, &spec)), pass)
    }
}
