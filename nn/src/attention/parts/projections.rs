//! The projections of multi-head self-attention.

use super::heads::{check_heads_divide, join_heads, split_heads};
use super::incremental::{Incremental, Past};
use super::rope::{Pairing, Rope};
use crate::attention::engine::{Spec, attend, attend_all};
use crate::dropout::Dropout;
use crate::linear::Linear;
use crate::module::{Call, Layer, Module, Visitor};
use crate::norm::RmsNorm;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::error::{ErrorKind, OrPanic, assert};
use retrograd_tensor::random::Rng;

/// The numbers of heads of a self-attention, and their widths.
///
/// ```
/// use retrograd::nn::attention::HeadSizes;
/// let sizes = HeadSizes::new(64, 8).key_heads(2);
/// assert_eq!((sizes.head_width, sizes.key_heads), (8, 2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadSizes {
    /// Width of input and output.
    pub width: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads; divides `heads`.
    pub key_heads: usize,
    /// Width of each head.
    pub head_width: usize,
}

impl HeadSizes {
    /// As many key heads as query heads, of width `width / heads`.
    ///
    /// # Panics
    /// If `heads` does not divide `width`.
    #[track_caller]
    pub fn new(width: usize, heads: usize) -> Self {
        check_heads_divide("attention", width, heads).or_panic();
        HeadSizes { width, heads, key_heads: heads, head_width: width / heads }
    }

    /// Sets the number of key heads, which query heads share: grouped-query attention, or with 1
    /// multi-query attention.
    ///
    /// # Panics
    /// If it does not divide the number of query heads.
    #[track_caller]
    pub fn key_heads(self, key_heads: usize) -> Self {
        let valid = key_heads > 0 && self.heads.is_multiple_of(key_heads);
        assert(valid, "attention", ErrorKind::Mismatch, || {
            format!("{} query heads are not a multiple of {key_heads} key heads", self.heads)
        });
        HeadSizes { key_heads, ..self }
    }

    /// Sets the width of each head.
    pub fn head_width(self, head_width: usize) -> Self {
        HeadSizes { head_width, ..self }
    }
}

/// The projections to queries, keys, values and outputs, which most variants share; alone, they
/// are multi-head, grouped-query or multi-query self-attention, with rotary positions as in Llama.
///
/// ```text
/// q = x · W_qᵀ   [.., L, H·D]      k = x · W_kᵀ, v = x · W_vᵀ   [.., L, Hk·D]
/// o_h = dropout(softmax(R q_h · (R k_g)ᵀ / √D, masked)) · v_g     g = ⌊h · Hk / H⌋
/// y = [o_0 .. o_H-1] · W_oᵀ
/// ```
///
/// with `R` the rotation of each position, if there are rotary positions ([`Rope`]). Input and
/// output are `[L, width]` or `[B, L, width]`; the work of attention is `O(L² · H D)`. Each `H / Hk`
/// adjacent query heads share a key and value head, so keys, values and a cache of them are `H / Hk`
/// times smaller. Masked tokens must be finite if these parameters are trained (see [`attend`]).
///
/// With `Hk = H` it is multi-head self-attention
/// ([`MultiHeadAttention::grouped`](crate::attention::MultiHeadAttention::grouped) converts one);
/// with `Hk = 1` multi-query attention (Shazeer 2019, arXiv 1911.02150); with `Hk` in between
/// grouped-query attention (Ainslie et al. 2023, arXiv 2305.13245). Rotary positions: Su et al. 2021
/// (arXiv 2104.09864); Touvron et al. 2023 (2302.13971).
///
/// In x-transformers, query head `h` uses key head `h mod Hk`. To convert such weights, move query
/// head `h`, which is `D` rows of `q_proj` and `D` columns of `o_proj`, to index
/// `(h mod Hk) · H / Hk + ⌊h / Hk⌋`.
///
/// Parameters, named as in Llama: `q_proj` `[H·D, width]`, `k_proj` and `v_proj` `[Hk·D, width]`,
/// `o_proj` `[width, H·D]`, without biases unless the fields are set.
///
/// ```
/// use retrograd::nn::attention::{HeadSizes, Incremental, Mask, Projections, Rope};
/// use retrograd::prelude::*;
///
/// let mut rng = Rng::new(1);
/// let sizes = HeadSizes::new(16, 4).key_heads(2);
/// let mut projections = Projections::<f32>::new(sizes, &mut rng).with_rope(Rope::new(4));
/// projections.dropout = Dropout::new(0.1);
/// let x = Var::constant(Tensor::randn([6, 16], &mut rng));
/// let y = projections.forward(&x, Mask::causal(), &mut Pass::train(1));
/// assert_eq!(*y.shape(), [6, 16]);
/// ```
#[derive(Clone, Debug)]
pub struct Projections<T: Real = f32> {
    /// The projection to queries.
    pub q_proj: Linear<T>,
    /// The projection to keys.
    pub k_proj: Linear<T>,
    /// The projection to values.
    pub v_proj: Linear<T>,
    /// The output projection.
    pub o_proj: Linear<T>,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
    sizes: HeadSizes,
    qk_norm: Option<QkNorm<T>>,
    rope: Option<Rope>,
}

/// Norms of queries and keys, over the width of a head.
#[derive(Clone, Debug)]
struct QkNorm<T: Real> {
    q_norm: RmsNorm<T>,
    k_norm: RmsNorm<T>,
}

impl<T: Real> Projections<T> {
    /// Projections without biases, rotary positions and dropout.
    #[track_caller]
    pub fn new(sizes: HeadSizes, rng: &mut Rng) -> Self {
        let HeadSizes { width, heads, key_heads, head_width } = sizes;
        let shared = key_heads * head_width;
        let q_proj = Linear::without_bias(width, heads * head_width, rng);
        let [k_proj, v_proj] = [(); 2].map(|()| Linear::without_bias(width, shared, rng));
        let o_proj = Linear::without_bias(heads * head_width, width, rng);
        Projections::of([q_proj, k_proj, v_proj, o_proj], sizes)
    }

    /// These projections to queries, keys, values and outputs.
    pub(crate) fn of([q_proj, k_proj, v_proj, o_proj]: [Linear<T>; 4], sizes: HeadSizes) -> Self {
        let (dropout, qk_norm, rope) = (Dropout::new(0.0), None, None);
        Projections { q_proj, k_proj, v_proj, o_proj, dropout, sizes, qk_norm, rope }
    }

    /// Sets rotary positions.
    ///
    /// # Panics
    /// If the rotary width exceeds the width of a head.
    #[track_caller]
    pub fn with_rope(mut self, rope: Rope) -> Self {
        assert(rope.width() <= self.sizes.head_width, "rope", ErrorKind::Mismatch, || {
            format!(
                "a rotary width of {} in heads of width {}",
                rope.width(),
                self.sizes.head_width
            )
        });
        self.rope = Some(rope);
        self
    }

    /// Adds RMS norms of queries and keys per head, before rotary positions, so that scores do not grow
    /// with the weights: `softmax(norm(q) · norm(k)ᵀ / √D) · v`, as in Qwen 3 and Gemma 3. All heads
    /// share the weights `q_norm.weight` and `k_norm.weight`, `[D]`, 1 initially. Henry et al. 2020
    /// (arXiv 2010.04245); Dehghani et al. 2023 (arXiv 2302.05442; with layer norm).
    #[track_caller]
    pub fn with_qk_norm(mut self, eps: f64) -> Self {
        let norm = || RmsNorm { eps, ..RmsNorm::new(self.sizes.head_width) };
        self.qk_norm = Some(QkNorm { q_norm: norm(), k_norm: norm() });
        self
    }

    /// The sizes.
    pub fn sizes(&self) -> HeadSizes {
        self.sizes
    }

    /// The rotary positions, if there are any.
    pub fn rope(&self) -> Option<&Rope> {
        self.rope.as_ref()
    }

    /// Changes the pairing of rotated elements, and permutes the rows of `q_proj` and `k_proj` so
    /// that outputs do not change.
    ///
    /// # Panics
    /// If there are no rotary positions.
    #[track_caller]
    pub fn convert_pairing(&mut self, to: Pairing) {
        let from = self.rope.clone().expect("rope: a pairing to convert");
        let HeadSizes { heads, key_heads, .. } = self.sizes;
        for (layer, heads) in [(&self.q_proj, heads), (&self.k_proj, key_heads)] {
            for param in [Some(&layer.weight), layer.bias.as_ref()].into_iter().flatten() {
                param.set(from.converted(&param.value(), heads, to));
            }
        }
        if let Some(QkNorm { q_norm, k_norm }) = &self.qk_norm {
            for param in [&q_norm.weight, &k_norm.weight] {
                param.set(from.converted(&param.value(), 1, to));
            }
        }
        self.rope = Some(from.pairing(to));
    }

    /// Checks that there are no rotary positions, which the variant `module` does not support.
    ///
    /// # Panics
    /// If there are any, with the reason.
    #[track_caller]
    pub(crate) fn reject_rope(&self, module: &'static str, reason: &str) {
        assert(self.rope.is_none(), module, ErrorKind::Mismatch, || {
            format!("no rotary positions here: {reason}")
        });
    }

    /// Checks that there is no QK-norm, which the variant `module` does not support.
    ///
    /// # Panics
    /// If there is one, with the reason.
    #[track_caller]
    pub(crate) fn reject_qk_norm(&self, module: &'static str, reason: &str) {
        assert(self.qk_norm.is_none(), module, ErrorKind::Mismatch, || {
            format!("no QK-norm of the projections here: {reason}")
        });
    }

    /// Applies a projection and splits the result into heads: `[.., L, width]` to
    /// `[.., heads, L, D]`.
    ///
    /// # Panics
    /// If `x` does not have 2 or 3 axes, or has another width.
    #[track_caller]
    pub fn project(&self, by: &Linear<T>, heads: usize, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        assert((2..=3).contains(&x.rank()), "attention", ErrorKind::Rank, || {
            format!(
                "the input must be [length, width] or [batch, length, width], got {:?}",
                x.shape()
            )
        });
        split_heads(&by.forward(x, pass), heads)
    }

    /// Queries `[.., H, L, D]`, normalised if there is QK-norm, before positions.
    #[track_caller]
    pub fn queries(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        let q = self.project(&self.q_proj, self.sizes.heads, x, pass);
        self.qk_norm.as_ref().map_or(q.clone(), |norm| norm.q_norm.forward(&q, pass))
    }

    /// Keys `[.., Hk, L, D]`, normalised if there is QK-norm, before positions.
    #[track_caller]
    pub fn keys(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        let k = self.project(&self.k_proj, self.sizes.key_heads, x, pass);
        self.qk_norm.as_ref().map_or(k.clone(), |norm| norm.k_norm.forward(&k, pass))
    }

    /// Values `[.., Hk, L, D]`.
    #[track_caller]
    pub fn values(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        self.project(&self.v_proj, self.sizes.key_heads, x, pass)
    }

    /// Queries or keys at positions `start..`, rotated if there are rotary positions.
    #[track_caller]
    pub fn rotate(&self, x: &Var<T>, start: usize) -> Var<T> {
        self.rope.as_ref().map_or_else(|| x.clone(), |rope| rope.rotate(x, start))
    }

    /// Queries of `x`, and keys and values of all tokens so far, with rotary positions applied.
    #[track_caller]
    pub fn qkv(&self, x: &Var<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> [Var<T>; 3] {
        let (q, k, v) = (self.queries(x, pass), self.keys(x, pass), self.values(x, pass));
        let (q, k) = (self.rotate(&q, past.start()), self.rotate(&k, past.start()));
        let (k, v) = past.extend(&k, &v);
        [q, k, v]
    }

    /// The spec with the dropout of these projections.
    ///
    /// # Panics
    /// If the spec has a dropout, too.
    #[track_caller]
    pub fn with_dropout(&self, spec: impl Into<Spec<T>>, pass: &mut Pass) -> Spec<T> {
        spec.into().dropout_of_module(self.dropout.p(), pass)
    }

    /// The output projection of the joined heads: `[.., H, L, D]` to `[.., L, width]`.
    #[track_caller]
    pub fn project_out(&self, heads: &Var<T>, pass: &mut Pass) -> Var<T> {
        self.o_proj.forward(&join_heads(heads), pass)
    }

    /// Self-attention of `x` to all tokens so far: projections, [`attend`] of the engine, and the
    /// output projection.
    ///
    /// # Panics
    /// If the shapes do not match, or both the spec and the projections have dropout.
    #[track_caller]
    pub fn attend(
        &self,
        x: &Var<T>,
        spec: impl Into<Spec<T>>,
        past: &mut Past<'_, T>,
        pass: &mut Pass,
    ) -> Var<T> {
        let [q, k, v] = self.qkv(x, past, pass);
        self.project_out(&attend(&q, &k, &v, &self.with_dropout(spec, pass)), pass)
    }

    /// As [`Incremental::forward`], with the weights `[.., H, L, L]` before dropout, by the composed
    /// path.
    ///
    /// # Panics
    /// As `forward`, or if the spec requests the tiled path.
    #[track_caller]
    pub fn forward_with_weights(
        &self,
        x: &Var<T>,
        spec: impl Into<Spec<T>>,
        pass: &mut Pass,
    ) -> (Var<T>, Var<T>) {
        let call = Call::start(self);
        let [q, k, v] = self.qkv(x, &mut Past::none(), pass);
        let all = attend_all(&q, &k, &v, &self.with_dropout(spec, pass));
        (call.end(self.project_out(&all.output, pass)), all.weights)
    }
}

impl<T: Real> Incremental<T> for Projections<T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T> {
        self.attend(x, spec, past, pass)
    }
}

impl<T: Real> Module<T> for Projections<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        v.module("q_proj", &self.q_proj);
        v.module("k_proj", &self.k_proj);
        v.module("v_proj", &self.v_proj);
        v.module("o_proj", &self.o_proj);
        if let Some(QkNorm { q_norm, k_norm }) = &self.qk_norm {
            v.module("q_norm", q_norm);
            v.module("k_norm", k_norm);
        }
    }
}
