//! Grouped-query and multi-query attention: heads that share keys and values.

use super::multi_head::MultiHeadAttention;
use crate::attention::engine::Spec;
use crate::attention::parts::heads::{SplitHeads, check_heads_divide};
use crate::attention::parts::incremental::{Incremental, Past};
use crate::dropout::Dropout;
use crate::linear::Linear;
use crate::module::{Call, Layer, Module, Visitor};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::error::{ErrorKind, OrPanic, require};
use retrograd_tensor::random::Rng;

/// Grouped-query attention: self-attention with `H` query heads, of which each `H / H_k` adjacent
/// ones share one of `H_k` key and value heads.
///
/// ```text
/// q = x · W_qᵀ   [.., L, H·D]      k = x · W_kᵀ, v = x · W_vᵀ   [.., L, H_k·D]
/// o_h = dropout(softmax(q_h · k_gᵀ / √D, masked)) · v_g     g = ⌊h · H_k / H⌋
/// o = [o_0 .. o_H-1] · W_oᵀ
/// ```
///
/// `[L, width]` or `[B, L, width]` to the same, with `D = width / H`. The work of attention is
/// that of [`MultiHeadAttention`], `O(L² width)`; keys and values, and a cache of them, are
/// `H / H_k` times smaller.
///
/// In x-transformers, query head `h` uses key head `h mod H_k`. To convert such weights, move query
/// head `h`, which is `D` rows of `q_proj` and `D` columns of `o_proj`, to index
/// `(h mod H_k) · H / H_k + ⌊h / H_k⌋`.
///
/// With `H_k = H` it is multi-head self-attention; with `H_k = 1` multi-query attention (Shazeer
/// 2019, arXiv 1911.02150); with `H_k` in between, Ainslie et al. 2023 (arXiv 2305.13245).
/// [`GroupedQueryAttention::from_multi_head`] converts a multi-head attention.
///
/// Parameters, named as in Llama: `q_proj` and `o_proj` `[width, width]`, `k_proj` and `v_proj`
/// `[H_k·D, width]`.
///
/// ```
/// use retrograd_nn::{Module, Pass, attention::{GroupedQueryAttention, Mask}};
/// use retrograd_autograd::Var;
/// use retrograd_tensor::{Tensor, random::Rng};
///
/// let mut rng = Rng::new(1);
/// let attention = GroupedQueryAttention::<f32>::new(8, 4, 2, &mut rng);
/// assert_eq!(attention.num_parameters(), 8 * 8 + 2 * 4 * 8 + 8 * 8);
/// let x = Var::constant(Tensor::randn([2, 5, 8], &mut rng));
/// let y = attention.forward(&x, Mask::causal(), &mut Pass::eval());
/// assert_eq!(*y.shape(), [2, 5, 8]);
/// ```
#[derive(Clone, Debug)]
pub struct GroupedQueryAttention<T: Real = f32> {
    /// The projection to queries, `[H·D, width]`.
    pub q_proj: Linear<T>,
    /// The projection to keys, `[H_k·D, width]`.
    pub k_proj: Linear<T>,
    /// The projection to values, `[H_k·D, width]`.
    pub v_proj: Linear<T>,
    /// The output projection, `[width, H·D]`.
    pub o_proj: Linear<T>,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
    heads: usize,
    key_heads: usize,
}

#[track_caller]
fn check_heads(width: usize, heads: usize, key_heads: usize) {
    check_heads_divide("GroupedQueryAttention", width, heads).or_panic();
    let valid = key_heads > 0 && heads.is_multiple_of(key_heads);
    require(valid, "GroupedQueryAttention", ErrorKind::Mismatch, || {
        format!("{key_heads} key heads do not divide {heads} heads")
    })
    .or_panic();
}

impl<T: Real> GroupedQueryAttention<T> {
    /// A layer without biases.
    ///
    /// # Panics
    /// If `heads` does not divide `width`, or `key_heads` does not divide `heads`.
    #[track_caller]
    pub fn new(width: usize, heads: usize, key_heads: usize, rng: &mut Rng) -> Self {
        check_heads(width, heads, key_heads);
        let shared = width / heads * key_heads;
        GroupedQueryAttention {
            q_proj: Linear::without_bias(width, width, rng),
            k_proj: Linear::without_bias(width, shared, rng),
            v_proj: Linear::without_bias(width, shared, rng),
            o_proj: Linear::without_bias(width, width, rng),
            dropout: Dropout::new(0.0),
            heads,
            key_heads,
        }
    }

    /// Multi-query attention: one head of keys and values for all.
    ///
    /// # Panics
    /// If `heads` does not divide `width`.
    ///
    /// ```
    /// # use retrograd_nn::attention::GroupedQueryAttention;
    /// # use retrograd_tensor::random::Rng;
    /// # let mut rng = Rng::new(1);
    /// let attention = GroupedQueryAttention::<f64>::multi_query(8, 4, &mut rng);
    /// assert_eq!(attention.k_proj.weight.shape(), [2, 8]); // 1 key head
    /// ```
    #[track_caller]
    pub fn multi_query(width: usize, heads: usize, rng: &mut Rng) -> Self {
        Self::new(width, heads, 1, rng)
    }

    /// Converts a multi-head attention, with new parameters: the projections to keys and to values
    /// of each group are the means of those of its heads. With as many key heads as heads the
    /// outputs are the same; with fewer, some more training recovers most of the quality
    /// ("uptraining" in the paper).
    ///
    /// # Panics
    /// If `key_heads` does not divide the heads, if keys or values have another width than
    /// queries, or if there is a `bias_kv` or `zero_attn`.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_nn::Pass;
    /// # use retrograd_nn::attention::{GroupedQueryAttention, MultiHeadAttention, MultiHeadConfig, Spec};
    /// # use retrograd_tensor::Tensor;
    /// # use retrograd_tensor::random::Rng;
    /// # let mut rng = Rng::new(1);
    /// # let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let full = MultiHeadAttention::<f64>::new(&MultiHeadConfig { bias: false, ..MultiHeadConfig::new(8, 4) }, &mut rng);
    /// let same = GroupedQueryAttention::from_multi_head(&full, 4); // nothing is shared
    /// let pass = &mut Pass::eval();
    /// let y = same.forward(&x, Spec::new(), pass) - full.forward(&x, &x, &x, Spec::new(), pass);
    /// assert!(y.value().abs().max(..).item() < 1e-12);
    /// ```
    #[track_caller]
    pub fn from_multi_head(from: &MultiHeadAttention<T>, key_heads: usize) -> Self {
        let config = from.config();
        let (width, heads) = (config.width, config.heads);
        check_heads(width, heads, key_heads);
        let valid = config.key_width == width && config.value_width == width;
        require(valid, "GroupedQueryAttention", ErrorKind::Mismatch, || {
            format!(
                "keys of width {} and values of width {} for queries of {width}",
                config.key_width, config.value_width
            )
        })
        .or_panic();
        let valid = !config.bias_kv && !config.zero_attn;
        require(valid, "GroupedQueryAttention", ErrorKind::Mismatch, || {
            "a multi-head with bias_kv or zero_attn cannot be converted".into()
        })
        .or_panic();
        let (weights, biases) = (from.in_weights(), from.in_biases());
        let pooled = |x: &Var<T>, groups: usize| {
            // [H·D, ..] to [groups, H / groups, D, ..], averaged over the second axis.
            let x = x.value();
            let mut dims = vec![groups, heads / groups, width / heads];
            dims.extend(x.shape().iter().skip(1));
            let mean = x.reshape(dims).mean(1);
            let mut dims = x.shape().to_vec();
            dims[0] = width / heads * groups;
            Param::new(mean.reshape(dims).contiguous())
        };
        let part = |i: usize, groups: usize| Linear {
            weight: pooled(&weights[i], groups),
            bias: biases.as_ref().map(|b| pooled(&b[i], groups)),
        };
        let copy = |p: &Param<T>| Param::new(p.value());
        GroupedQueryAttention {
            q_proj: part(0, heads),
            k_proj: part(1, key_heads),
            v_proj: part(2, key_heads),
            o_proj: Linear {
                weight: copy(&from.out_proj.weight),
                bias: from.out_proj.bias.as_ref().map(copy),
            },
            dropout: Dropout::new(config.dropout),
            heads,
            key_heads,
        }
    }

    #[track_caller]
    fn parts(
        &self,
        x: &Var<T>,
        spec: Spec<T>,
        past: &mut Past<'_, T>,
        pass: &mut Pass,
    ) -> (SplitHeads<T>, Spec<T>) {
        let [q, k, v] =
            [&self.q_proj, &self.k_proj, &self.v_proj].map(|proj| proj.forward(x, pass));
        let heads = SplitHeads::new(&q, &k, &v, self.heads, self.key_heads).after(past);
        (heads, spec.dropout_of_module(self.dropout.p(), pass))
    }

    /// The output under a [`Mask`](crate::attention::Mask), or with a whole [`Spec`].
    ///
    /// # Panics
    /// If the last axis of `x` is not the width, or the mask does not match the sizes.
    #[track_caller]
    pub fn forward(&self, x: &Var<T>, spec: impl Into<Spec<T>>, pass: &mut Pass) -> Var<T> {
        Call::start(self).end(self.run(x, &spec.into(), &mut Past::none(), pass))
    }

    /// The output and the weights `[.., H, L, L]`, before dropout.
    #[track_caller]
    pub fn forward_with_weights(
        &self,
        x: &Var<T>,
        spec: impl Into<Spec<T>>,
        pass: &mut Pass,
    ) -> (Var<T>, Var<T>) {
        let (heads, spec) = self.parts(x, spec.into(), &mut Past::none(), pass);
        let (y, weights) = heads.attend_all(&spec);
        (self.o_proj.forward(&y, pass), weights)
    }
}

impl<T: Real> Incremental<T> for GroupedQueryAttention<T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T> {
        let (heads, spec) = self.parts(x, spec.clone(), past, pass);
        self.o_proj.forward(&heads.attend(&spec), pass)
    }
}

impl<T: Real> Module<T> for GroupedQueryAttention<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        v.module("q_proj", &self.q_proj);
        v.module("k_proj", &self.k_proj);
        v.module("v_proj", &self.v_proj);
        v.module("o_proj", &self.o_proj);
    }
}
