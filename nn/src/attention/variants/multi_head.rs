//! Multi-head attention, as PyTorch's `nn.MultiheadAttention`.

use crate::attention::engine::{Sizes, Spec};
use crate::attention::parts::heads::{SplitHeads, check_heads_divide};
use crate::attention::parts::projections::{HeadSizes, Projections};
use crate::dropout::Dropout;
use crate::init::Init;
use crate::linear::Linear;
use crate::module::{Call, Layer, Module, Visitor};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::error::{ErrorKind, OrPanic, assert};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

/// The configuration of a [`MultiHeadAttention`].
#[derive(Clone, Debug, PartialEq)]
pub struct MultiHeadConfig {
    /// Width of queries and results (`embed_dim`).
    pub width: usize,
    /// Number of heads; divides the width.
    pub heads: usize,
    /// Width of the input of keys (`kdim`); `width` by default.
    pub key_width: usize,
    /// Width of the input of values (`vdim`); `width` by default.
    pub value_width: usize,
    /// Whether the projections have biases; true by default.
    pub bias: bool,
    /// Whether to append a learned key and value to every sequence (`add_bias_kv`).
    pub bias_kv: bool,
    /// Whether to append a key and value of 0 to every sequence (`add_zero_attn`): as
    /// [`Sink::Zero`](crate::attention::Sink::Zero), with a column of weights for it.
    pub zero_attn: bool,
    /// Dropout of the weights, in training passes.
    pub dropout: f64,
}

impl MultiHeadConfig {
    /// A configuration with biases and without dropout, for keys and values of the same width.
    pub fn new(width: usize, heads: usize) -> Self {
        MultiHeadConfig {
            width,
            heads,
            key_width: width,
            value_width: width,
            bias: true,
            bias_kv: false,
            zero_attn: false,
            dropout: 0.0,
        }
    }
}

/// The projections to queries, keys and values.
#[derive(Clone, Debug)]
pub enum InProjection<T: Real = f32> {
    /// One fused weight, `[3·width, width]`.
    Fused(Param<T>),
    /// Separate weights, where keys or values have another width.
    Separate {
        /// `[width, width]`
        query: Param<T>,
        /// `[width, key_width]`
        key: Param<T>,
        /// `[width, value_width]`
        value: Param<T>,
    },
}

/// Multi-head attention: each head attends with a part of the width; the outputs of all heads are
/// concatenated and projected.
///
/// ```text
/// Q = query · W_qᵀ + b_q     K = key · W_kᵀ + b_k     V = value · W_vᵀ + b_v
/// o_h = dropout(softmax(Q_h · K_hᵀ / √(width / H), masked)) · V_h
/// o = [o_0 .. o_H-1] · W_outᵀ + b_out
/// ```
///
/// `query` is `[Lq, width]` or `[B, Lq, width]`, `key` `[.., Lk, key_width]`, `value`
/// `[.., Lk, value_width]`; the result is `[.., Lq, width]`. The work is `O(Lq Lk width)` and that
/// of the projections. The output of a query that attends to no key is `b_out`.
///
/// Parameters, named as in PyTorch: `in_proj_weight` `[3·width, width]`, or `q_proj_weight`,
/// `k_proj_weight` and `v_proj_weight` if keys or values have another width; `in_proj_bias`
/// `[3·width]`, `out_proj`, and `bias_k` and `bias_v` `[1, 1, width]`. Unlike in PyTorch,
/// returned weights are those before dropout, and a fully masked row does not give NaN.
///
/// With one head, no biases and `W_out` the identity it is
/// [`SelfAttention`](crate::attention::SelfAttention); as a list of separate heads it is
/// [`MultiHeadWrapper`](crate::attention::MultiHeadWrapper); with heads that share keys and values,
/// [`Projections`]. With `key` and `value` of another sequence (and `key_width` and `value_width` its
/// width) it is cross-attention. Vaswani et al. 2017 (arXiv 1706.03762).
///
/// ```
/// use retrograd::nn::attention::{Mask, MultiHeadAttention, MultiHeadConfig};
/// use retrograd::prelude::*;
///
/// let mut rng = Rng::new(1);
/// let attention = MultiHeadAttention::<f32>::new(&MultiHeadConfig::new(8, 2), &mut rng);
/// let x = Var::constant(Tensor::randn([2, 5, 8], &mut rng));
/// // True in PyTorch's key_padding_mask and attn_mask means "do not attend":
/// let padding = Mask::drop_keys(&Tensor::from_fn([2, 5], |i| i[0] == 1 && i[1] >= 3));
/// let y = attention.forward(&x, &x, &x, Mask::causal() & padding, &mut Pass::eval());
/// assert_eq!(*y.shape(), [2, 5, 8]);
/// ```
#[derive(Clone, Debug)]
pub struct MultiHeadAttention<T: Real = f32> {
    /// The projections to queries, keys and values.
    pub in_proj: InProjection<T>,
    /// Biases of the three, `[3·width]`.
    pub in_proj_bias: Option<Param<T>>,
    /// The key and value that are appended to every sequence, `[1, 1, width]` each.
    pub bias_kv: Option<(Param<T>, Param<T>)>,
    /// The output projection.
    pub out_proj: Linear<T>,
    config: MultiHeadConfig,
}

impl<T: Real> MultiHeadAttention<T> {
    /// A layer initialised as in PyTorch: projections Xavier-uniform, `out_proj` as a linear layer,
    /// biases 0, `bias_k` and `bias_v` Xavier-normal.
    ///
    /// # Panics
    /// If the heads do not divide the width, or the dropout is not in `[0, 1]`.
    #[track_caller]
    pub fn new(config: &MultiHeadConfig, rng: &mut Rng) -> Self {
        let &MultiHeadConfig { width, heads, key_width, value_width, .. } = config;
        check_heads_divide("MultiHeadAttention", width, heads).or_panic();
        Dropout::new(config.dropout);
        let xavier = Init::XavierUniform { gain: 1.0 };
        let in_proj = if key_width == width && value_width == width {
            InProjection::Fused(Param::new(xavier.sample([3 * width, width], rng)))
        } else {
            InProjection::Separate {
                query: Param::new(xavier.sample([width, width], rng)),
                key: Param::new(xavier.sample([width, key_width], rng)),
                value: Param::new(xavier.sample([width, value_width], rng)),
            }
        };
        let out_proj = match config.bias {
            true => Linear::new(width, width, rng),
            false => Linear::without_bias(width, width, rng),
        };
        if let Some(bias) = &out_proj.bias {
            bias.set(Tensor::zeros([width]));
        }
        let mut extra = || Param::new(Init::XavierNormal { gain: 1.0 }.sample([1, 1, width], rng));
        MultiHeadAttention {
            in_proj,
            in_proj_bias: config.bias.then(|| Param::new(Tensor::zeros([3 * width]))),
            bias_kv: config.bias_kv.then(|| (extra(), extra())),
            out_proj,
            config: config.clone(),
        }
    }

    /// The configuration.
    pub fn config(&self) -> &MultiHeadConfig {
        &self.config
    }

    /// Converts it to grouped-query attention, with new parameters: the projections to keys and to
    /// values of each group are the means over its heads. With as many key heads as heads the
    /// outputs are the same; with fewer, some more training recovers most of the quality
    /// ("uptraining" in the paper of Ainslie et al. 2023, arXiv 2305.13245).
    ///
    /// # Panics
    /// If `key_heads` does not divide the heads, if keys or values have another width than
    /// queries, or if there is a `bias_kv` or `zero_attn`.
    #[track_caller]
    pub fn grouped(&self, key_heads: usize) -> Projections<T> {
        let MultiHeadConfig { width, heads, key_width, value_width, .. } = self.config;
        let sizes = HeadSizes::new(width, heads).key_heads(key_heads);
        let of = "MultiHeadAttention::grouped";
        let valid = key_width == width && value_width == width;
        assert(valid, of, ErrorKind::Mismatch, || {
            format!(
                "keys of width {key_width} and values of width {value_width} for queries of {width}"
            )
        });
        assert(!self.config.bias_kv && !self.config.zero_attn, of, ErrorKind::Mismatch, || {
            "a multi-head with bias_kv or zero_attn cannot be converted".into()
        });
        let (weights, biases) = (self.in_weights(), self.in_biases());
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
        let weight = copy(&self.out_proj.weight);
        let o_proj = Linear { weight, bias: self.out_proj.bias.as_ref().map(copy) };
        let parts = [part(0, heads), part(1, key_heads), part(2, key_heads), o_proj];
        let mut grouped = Projections::of(parts, sizes);
        grouped.dropout = Dropout::new(self.config.dropout);
        grouped
    }

    /// Weights of the projections to queries, keys and values.
    fn in_weights(&self) -> Vec<Var<T>> {
        match &self.in_proj {
            InProjection::Fused(all) => all.to_var().split(0, &[self.config.width; 3]),
            InProjection::Separate { query, key, value } => {
                vec![query.to_var(), key.to_var(), value.to_var()]
            }
        }
    }

    /// Biases of the projections to queries, keys and values.
    fn in_biases(&self) -> Option<Vec<Var<T>>> {
        self.in_proj_bias.as_ref().map(|b| b.to_var().split(0, &[self.config.width; 3]))
    }

    /// Attends from `query` to `key`, under a [`Mask`](crate::attention::Mask) or by a whole
    /// [`Spec`].
    ///
    /// # Panics
    /// If widths, lengths, batches or the mask do not match.
    #[track_caller]
    pub fn forward(
        &self,
        query: &Var<T>,
        key: &Var<T>,
        value: &Var<T>,
        spec: impl Into<Spec<T>>,
        pass: &mut Pass,
    ) -> Var<T> {
        let call = Call::start(self);
        let (heads, spec) = self.parts([query, key, value], spec.into(), pass);
        call.end(self.out_proj.forward(&heads.attend(&spec), pass))
    }

    /// The output and the weights of each head, `[.., H, Lq, Lk]`, before dropout; with
    /// `bias_kv` and `zero_attn`, with one more column for each. (`average_attn_weights` is
    /// `.mean(-3)` of them.)
    ///
    /// # Panics
    /// As [`MultiHeadAttention::forward`].
    #[track_caller]
    pub fn forward_with_weights(
        &self,
        query: &Var<T>,
        key: &Var<T>,
        value: &Var<T>,
        spec: impl Into<Spec<T>>,
        pass: &mut Pass,
    ) -> (Var<T>, Var<T>) {
        let (heads, spec) = self.parts([query, key, value], spec.into(), pass);
        let (y, weights) = heads.attend_all(&spec);
        (self.out_proj.forward(&y, pass), weights)
    }

    /// The projected operands split into heads, and the spec for them.
    #[track_caller]
    fn parts(&self, x: [&Var<T>; 3], spec: Spec<T>, pass: &mut Pass) -> (SplitHeads<T>, Spec<T>) {
        let config = &self.config;
        let widths = [config.width, config.key_width, config.value_width];
        for ((name, x), width) in ["query", "key", "value"].iter().zip(x).zip(widths) {
            let valid = (2..=3).contains(&x.rank()) && x.size(-1) == width;
            assert(valid, "MultiHeadAttention", ErrorKind::Rank, || {
                format!(
                    "{name} must be [length, {width}] or [batch, length, {width}], \
                 got {:?}",
                    x.shape()
                )
            });
        }
        let (weights, biases) = (self.in_weights(), self.in_biases());
        let mut projected = (0..3).map(|i| {
            let y = x[i].matmul(&weights[i].t());
            match &biases {
                Some(biases) => y + &biases[i],
                None => y,
            }
        });
        let mut next = || projected.next().expect("three operands");
        let (q, mut k, mut v) = (next(), next(), next());

        // Appends a key or value that is the same for every sequence.
        let lk = k.size(-2);
        let append = |x: &Var<T>, one: &Var<T>| {
            let mut dims = x.shape().to_vec();
            dims[x.rank() - 2] = 1;
            Var::cat(&[x, &one.reshape([1, config.width]).broadcast_to(dims)], -2)
        };
        if let Some((bias_k, bias_v)) = &self.bias_kv {
            (k, v) = (append(&k, &bias_k.to_var()), append(&v, &bias_v.to_var()));
        }
        if config.zero_attn {
            let zero = Var::constant(Tensor::zeros([1, config.width]));
            (k, v) = (append(&k, &zero), append(&v, &zero));
        }
        let batch = if q.rank() == 3 { q.size(0) } else { 1 };
        let sizes = Sizes { batch, heads: config.heads, lq: q.size(-2), lk };
        let spec = match k.size(-2) - lk {
            0 => spec,
            more => spec.with_memory(sizes, more),
        };
        let spec = spec.dropout_of_module(config.dropout, pass);
        (SplitHeads::new(&q, &k, &v, config.heads, config.heads), spec)
    }
}

impl<T: Real> Module<T> for MultiHeadAttention<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        match &self.in_proj {
            InProjection::Fused(all) => v.param("in_proj_weight", all),
            InProjection::Separate { query, key, value } => {
                v.param("q_proj_weight", query);
                v.param("k_proj_weight", key);
                v.param("v_proj_weight", value);
            }
        }
        v.optional("in_proj_bias", &self.in_proj_bias);
        if let Some((bias_k, bias_v)) = &self.bias_kv {
            v.param("bias_k", bias_k);
            v.param("bias_v", bias_v);
        }
        v.module("out_proj", &self.out_proj);
    }
}
