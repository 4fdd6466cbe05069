//! The variants that only set parts of the [`Spec`]: a table of presets.

use super::sparse_transformer::{SparseMerge, SparsePattern};
use crate::attention::engine::{Bias, Mask, Normalizer, Part, Sink, Spec, alibi_slopes};
use crate::attention::parts::incremental::{Incremental, Past};
use crate::attention::parts::projections::Projections;
use crate::module::{Module, Visitor};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::{Real, Tensor};

/// Declares presets. A row has the documentation, the fields beside the projections, the names of
/// the fields that are parameters, the part of the spec that a caller must not set, and the
/// function from spec to spec.
macro_rules! presets {
    ($(
        $(#[$doc:meta])*
        pub struct $name:ident { $($(#[$field_doc:meta])* $vis:vis $field:ident: $type:ty,)* }
        parameters [$($param:ident),*] rejects [$($part:ident)?] |$m:ident, $spec:ident| $set:expr;
    )+) => {$(
        $(#[$doc])*
        ///
        /// `[L, width]` or `[B, L, width]` to the same, in `O(L² · H D)` and the work of the
        /// projections, if nothing else is said. Parameters: as [`Projections`], and the
        /// fields of type `Param`.
        #[derive(Clone, Debug)]
        pub struct $name<T: Real = f32> {
            /// The projections.
            pub projections: Projections<T>,
            $($(#[$field_doc])* $vis $field: $type,)*
        }

        impl<T: Real> Module<T> for $name<T> {
            fn visit(&self, v: &mut Visitor<'_, T>) {
                self.projections.visit(v);
                $(v.param(stringify!($param), &self.$param);)*
            }
        }

        impl<T: Real> Incremental<T> for $name<T> {
            #[track_caller]
            fn run(
                &self,
                x: &Var<T>,
                spec: &Spec<T>,
                past: &mut Past<'_, T>,
                pass: &mut Pass,
            ) -> Var<T> {
                $(spec.reject(stringify!($name), Part::$part);)?
                let ($m, $spec) = (self, spec.clone());
                self.projections.attend(x, $set, past, pass)
            }
        }
    )+};
}

presets! {
    /// Softcap: `softmax(c · tanh(s / c)) · v` with `s = q · kᵀ / √D`: scores stay within `±c`, so
    /// that no weight saturates at 1.
    ///
    /// For `c → ∞` it is attention without a cap. Gemma 2 (arXiv 2408.00118) has `c` = 50, grouped
    /// queries, rotary positions, and a window in every other layer.
    pub struct SoftcapAttention {
        /// The bound `c`.
        pub cap: f64,
    }
    parameters [] rejects [Softcap] |m, spec| spec.softcap(m.cap);

    /// Another normaliser than softmax: `normalize(q · kᵀ / √D) · v` with a [`Normalizer`].
    ///
    /// - [`Normalizer::Sigmoid`]: each weight by itself, without competition between keys;
    /// - [`Normalizer::Sparsemax`] and [`Normalizer::Entmax15`]: weights of small scores are exactly 0;
    /// - [`Normalizer::TopK`]: softmax over the largest scores, no gradient to the others;
    /// - [`Normalizer::Linear`]: [`LinearAttention`](crate::attention::LinearAttention), under any mask;
    /// - [`Normalizer::Softmax`], and top-k of at least `L`: multi-head attention.
    ///
    /// It computes matrices of all scores; those that sort take `O(L² log L)` per head. With a
    /// cache, sigmoid needs an explicit bias, because the default depends on the number of keys.
    pub struct NormalizedAttention {
        /// The function from scores to weights.
        pub normalizer: Normalizer,
    }
    parameters [] rejects [Normalizer] |m, spec| spec.normalizer(m.normalizer);

    /// A learned sink: `w_ij = e^(s_ij) / (e^(sink_h) + Σ_j e^(s_ij))`, with a logit per head in the
    /// denominator, without a value.
    ///
    /// Weights of a softmax sum to 1 even where no key is relevant; models then learn to attend to
    /// the first token. A sink absorbs this weight. With sinks of -∞ it is attention without sinks,
    /// with 0 it is [`QuietAttention`]. OpenAI 2025, gpt-oss (arXiv 2508.10925).
    pub struct SinkAttention {
        /// The logits, `[heads]`, 0 initially.
        pub sinks: Param<T>,
    }
    parameters [sinks] rejects [Sink] |m, spec| spec.sink(Sink::Learned(m.sinks.to_var()));

    /// "Softmax plus one", or "off by one": `w_ij = e^(s_ij) / (1 + Σ_j e^(s_ij))`.
    ///
    /// It equals one more key and value of zeros
    /// ([`attend_with_memory`](crate::attention::attend_with_memory)). Miller 2023, "Attention is
    /// off by one".
    pub struct QuietAttention {}
    parameters [] rejects [Sink] |_m, spec| spec.sink(Sink::Zero);

    /// StreamingLLM: attention to the first tokens, which serve as sinks, and to a causal window.
    ///
    /// Query `p` attends to keys `j < first` and `p - left <= j <= p`, as far as the spec does not
    /// mask them. The work is linear in `L`, and a
    /// [`KvCache::streaming`](crate::attention::KvCache::streaming) cache of `(first, left)` has
    /// constant size for a stream of any length. With `left >= L` it is causal attention, with
    /// `first` 0 a sliding window. Positions are those in the sequence (the paper counts rotary
    /// positions in the cache). Xiao et al. 2023 (arXiv 2309.17453).
    pub struct StreamingAttention {
        /// The number of first tokens that are never masked.
        pub first: usize,
        /// The number of tokens before its own position that a query attends to.
        pub left: usize,
    }
    parameters [] rejects [] |m, spec| spec.mask(m.mask());

    /// Chunked local attention, causal within chunks: `p` attends to `j` if `j <= p` and
    /// `⌊j / n⌋ = ⌊p / n⌋`.
    ///
    /// The work is `O(L n width)`; tiles between chunks are skipped. With `n >= L` it is causal
    /// self-attention. Chunks are ranges of absolute positions, so a cache has to keep at most the
    /// last `n` keys. Used in most layers of Llama 4, alternating with full attention.
    pub struct ChunkedLocalAttention {
        mask: Mask,
    }
    parameters [] rejects [] |m, spec| spec.mask(m.mask.clone());

    /// ALiBi: a penalty linear in the distance, in place of position embeddings,
    /// `s_pj = q_p · k_j / √D - m_h |p - j|`.
    ///
    /// The slope `m_h` of a head is `2^(-8h/H)` for `h = 1..=H` if `H` is a power of two; see
    /// [`alibi_slopes`]. Slopes are not learned. With slopes of 0 it is plain (causal)
    /// self-attention. Press, Smith, Lewis 2021 (arXiv 2108.12409).
    pub struct AlibiAttention {
        /// The slope of each head.
        pub slopes: Vec<f64>,
        causal: bool,
    }
    parameters [] rejects [] |m, spec| {
        let spec = spec.bias(Bias::Alibi(m.slopes.clone().into()));
        if m.causal { spec.causal() } else { spec }
    };

    /// Talking heads: linear mixtures over heads before and after the softmax,
    /// `s'[g] = Σ_h score_mix[g, h] · s[h]`, `w = softmax(s')`,
    /// `w'[g] = Σ_h weight_mix[g, h] · w[h]`.
    ///
    /// `2 · H² · L²` more multiplications, by matrices of all scores. Masked scores count as 0 in
    /// the mixture, and the mask applies again after it. There is no residual term: for the mixture
    /// `s + W · s` of another implementation, set `score_mix` to `I + W`. Shazeer et al. 2020 (arXiv
    /// 2003.02436).
    pub struct TalkingHeadsAttention {
        /// The mixture of scores, `[heads, heads]`, the identity initially: multi-head attention.
        pub score_mix: Param<T>,
        /// The mixture of weights, `[heads, heads]`, the identity initially.
        pub weight_mix: Param<T>,
    }
    parameters [score_mix, weight_mix] rejects [HeadMix] |m, spec| {
        spec.mix_heads(Some(m.score_mix.to_var()), Some(m.weight_mix.to_var()))
    };

    /// Sparse Transformer: causal self-attention to about `√L` keys for each query instead of `L`,
    /// by a [`SparsePattern`].
    ///
    /// With a stride near `√L` the work is `O(L √L width)` where masked tiles are skipped: always
    /// for the near pattern, and for the far pattern if its columns fill tiles. With a stride of at
    /// least `L`, near is causal attention (and so is the union); with a stride of 1, far is. Child,
    /// Gray, Radford, Sutskever 2019 (arXiv 1904.10509).
    pub struct SparseTransformerAttention {
        /// The mask.
        pub mask: Mask,
    }
    parameters [] rejects [] |m, spec| spec.mask(m.mask.clone());
}

impl<T: Real> SoftcapAttention<T> {
    /// A layer with scores within `±cap`.
    ///
    /// # Panics
    /// If the cap is not above 0.
    ///
    /// ```
    /// use retrograd::nn::attention::{HeadSizes, Incremental, Projections, SoftcapAttention, Spec};
    /// use retrograd::prelude::*;
    /// let mut rng = Rng::new(1);
    /// let projections = Projections::<f64>::new(HeadSizes::new(8, 2), &mut rng);
    /// let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let attention = SoftcapAttention::new(projections, 1e9); // far above all scores
    /// let (spec, pass) = (Spec::new().causal(), &mut Pass::eval());
    /// let y = attention.forward(&x, &spec, pass);
    /// let plain = attention.projections.forward(&x, &spec, pass);
    /// assert!((y - plain).value().abs().max(..).item() < 1e-6);
    /// ```
    #[track_caller]
    pub fn new(projections: Projections<T>, cap: f64) -> Self {
        assert(cap > 0.0, "attention", ErrorKind::Value, || {
            format!("a softcap must be above 0, got {cap}")
        });
        SoftcapAttention { projections, cap }
    }
}

impl<T: Real> NormalizedAttention<T> {
    /// A layer with this normalizer.
    pub fn new(projections: Projections<T>, normalizer: Normalizer) -> Self {
        NormalizedAttention { projections, normalizer }
    }
}

impl<T: Real> SinkAttention<T> {
    /// A layer with logits of 0.
    #[track_caller]
    pub fn new(projections: Projections<T>) -> Self {
        let sinks = Param::new(Tensor::zeros([projections.sizes().heads]));
        SinkAttention { projections, sinks }
    }
}

impl<T: Real> QuietAttention<T> {
    /// A layer with these projections.
    pub fn new(projections: Projections<T>) -> Self {
        QuietAttention { projections }
    }
}

impl<T: Real> StreamingAttention<T> {
    /// A layer with `first` first tokens and a window of `left` tokens.
    pub fn new(projections: Projections<T>, first: usize, left: usize) -> Self {
        StreamingAttention { projections, first, left }
    }

    /// The mask of the first tokens and the window.
    pub fn mask(&self) -> Mask {
        Mask::causal() & (Mask::first(self.first) | Mask::window(self.left, 0))
    }
}

impl<T: Real> ChunkedLocalAttention<T> {
    /// A layer with chunks of `chunk` tokens.
    ///
    /// # Panics
    /// If `chunk` is 0.
    #[track_caller]
    pub fn new(projections: Projections<T>, chunk: usize) -> Self {
        let mask = Mask::causal() & Mask::chunks(chunk);
        ChunkedLocalAttention { projections, mask }
    }
}

impl<T: Real> AlibiAttention<T> {
    /// Causal attention, for decoders.
    pub fn causal(projections: Projections<T>) -> Self {
        let slopes = alibi_slopes(projections.sizes().heads);
        AlibiAttention { projections, slopes, causal: true }
    }

    /// Attention to keys on both sides, for encoders.
    pub fn symmetric(projections: Projections<T>) -> Self {
        AlibiAttention { causal: false, ..AlibiAttention::causal(projections) }
    }
}

impl<T: Real> TalkingHeadsAttention<T> {
    /// A layer whose mixtures are identities.
    #[track_caller]
    pub fn new(projections: Projections<T>) -> Self {
        let heads = projections.sizes().heads;
        let identity = || Param::new(Tensor::eye(heads));
        TalkingHeadsAttention { projections, score_mix: identity(), weight_mix: identity() }
    }
}

impl<T: Real> SparseTransformerAttention<T> {
    /// The layer with this index.
    ///
    /// # Panics
    /// If the pattern has a stride of 0 or a summary above it.
    #[track_caller]
    pub fn new(
        projections: Projections<T>,
        pattern: SparsePattern,
        merge: SparseMerge,
        layer: usize,
    ) -> Self {
        let mask = pattern.mask(merge, projections.sizes().heads, layer);
        SparseTransformerAttention { projections, mask }
    }
}
