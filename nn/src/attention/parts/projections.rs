//! The projections of multi-head self-attention.

use super::heads::{check_heads_divide, join_heads, split_heads};
use super::incremental::Past;
use super::rope::{Pairing, Rope};
use crate::attention::engine::{Spec, attend};
use crate::dropout::Dropout;
use crate::linear::Linear;
use crate::module::{Layer, Module, Visitor};
use crate::norm::RmsNorm;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::error::{ErrorKind, OrPanic, require};
use retrograd_tensor::random::Rng;

/// The numbers of heads of a self-attention, and their widths.
///
/// ```
/// use retrograd_nn::attention::HeadSizes;
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
    ///
    /// ```
    /// # use retrograd_nn::attention::HeadSizes;
    /// let sizes = HeadSizes::new(8, 2);
    /// assert_eq!((sizes.head_width, sizes.key_heads), (4, 2));
    /// ```
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
        require(valid, "attention", ErrorKind::Mismatch, || {
            format!("{} query heads are not a multiple of {key_heads} key heads", self.heads)
        })
        .or_panic();
        HeadSizes { key_heads, ..self }
    }

    /// Sets the width of each head.
    pub fn head_width(self, head_width: usize) -> Self {
        HeadSizes { head_width, ..self }
    }
}

/// The projections to queries, keys, values and outputs, which most variants share.
///
/// ```text
/// q = x · W_qᵀ   [.., L, H·D]      k = x · W_kᵀ, v = x · W_vᵀ   [.., L, Hk·D]
/// q, k rotated by their positions, if there are rotary positions
/// y = [o_0 .. o_H-1] · W_oᵀ
/// ```
///
/// Input and output are `[L, width]` or `[B, L, width]`. Masked tokens must be finite if these
/// parameters are trained (see [`attend`]).
///
/// Parameters, named as in Llama: `q_proj` `[H·D, width]`, `k_proj` and `v_proj` `[Hk·D, width]`,
/// `o_proj` `[width, H·D]`, without biases unless the fields are set.
///
/// ```
/// use retrograd_autograd::Var;
/// use retrograd_nn::attention::{HeadSizes, Mask, PrefixLmAttention, Projections, Rope};
/// use retrograd_nn::{Dropout, Pass};
/// use retrograd_tensor::{Tensor, random::Rng};
///
/// let mut rng = Rng::new(1);
/// let sizes = HeadSizes::new(16, 4).key_heads(2);
/// let mut projections = Projections::<f32>::new(sizes, &mut rng).with_rope(Rope::new(4));
/// projections.dropout = Dropout::new(0.1);
/// let attention = PrefixLmAttention::new(projections);
/// let x = Var::constant(Tensor::randn([6, 16], &mut rng));
/// let y = attention.forward(&x, &[3], Mask::full(), &mut Pass::train(1));
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
        Projections {
            q_proj: Linear::without_bias(width, heads * head_width, rng),
            k_proj: Linear::without_bias(width, key_heads * head_width, rng),
            v_proj: Linear::without_bias(width, key_heads * head_width, rng),
            o_proj: Linear::without_bias(heads * head_width, width, rng),
            dropout: Dropout::new(0.0),
            sizes,
            qk_norm: None,
            rope: None,
        }
    }

    /// Sets rotary positions.
    ///
    /// # Panics
    /// If the rotary width exceeds the width of a head.
    #[track_caller]
    pub fn with_rope(mut self, rope: Rope) -> Self {
        require(rope.width() <= self.sizes.head_width, "rope", ErrorKind::Mismatch, || {
            format!(
                "a rotary width of {} in heads of width {}",
                rope.width(),
                self.sizes.head_width
            )
        })
        .or_panic();
        self.rope = Some(rope);
        self
    }

    /// Adds RMS norms of queries and keys per head, before rotary positions, so that scores do not grow
    /// with the weights. Parameters: `q_norm.weight` and `k_norm.weight`, `[D]`. Henry et al. 2020
    /// (arXiv 2010.04245); in this form Dehghani et al. 2023 (arXiv 2302.05442).
    ///
    /// ```
    /// # use retrograd_nn::Module;
    /// # use retrograd_nn::attention::{Projections, HeadSizes};
    /// # use retrograd_tensor::random::Rng;
    /// let mut rng = Rng::new(1);
    /// let p = Projections::<f32>::new(HeadSizes::new(8, 2), &mut rng).with_qk_norm(1e-6);
    /// assert_eq!(p.num_parameters(), 4 * 64 + 2 * 4);
    /// ```
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
        require(self.rope.is_none(), module, ErrorKind::Mismatch, || {
            format!("no rotary positions here: {reason}")
        })
        .or_panic();
    }

    /// Checks that there is no QK-norm, which the variant `module` does not support.
    ///
    /// # Panics
    /// If there is one, with the reason.
    #[track_caller]
    pub(crate) fn reject_qk_norm(&self, module: &'static str, reason: &str) {
        require(self.qk_norm.is_none(), module, ErrorKind::Mismatch, || {
            format!("no QK-norm of the projections here: {reason}")
        })
        .or_panic();
    }

    /// Applies a projection and splits the result into heads: `[.., L, width]` to
    /// `[.., heads, L, D]`.
    ///
    /// # Panics
    /// If `x` does not have 2 or 3 axes, or has another width.
    #[track_caller]
    pub fn project(&self, by: &Linear<T>, heads: usize, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        require((2..=3).contains(&x.rank()), "attention", ErrorKind::Rank, || {
            format!(
                "the input must be [length, width] or [batch, length, width], got {:?}",
                x.shape()
            )
        })
        .or_panic();
        split_heads(&by.forward(x, pass), heads)
    }

    /// Queries `[.., H, L, D]`, normalised if there is QK-norm, before positions.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_nn::Pass;
    /// # use retrograd_nn::attention::{Projections, HeadSizes};
    /// # use retrograd_tensor::Tensor;
    /// # use retrograd_tensor::random::Rng;
    /// let mut rng = Rng::new(1);
    /// let p = Projections::<f32>::new(HeadSizes::new(8, 2), &mut rng);
    /// let x = Var::constant(Tensor::<f32>::randn([1, 3, 8], &mut rng));
    /// assert_eq!(*p.queries(&x, &mut Pass::eval()).shape(), [1, 2, 3, 4]);
    /// ```
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
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_nn::Pass;
    /// # use retrograd_nn::attention::{Projections, HeadSizes};
    /// # use retrograd_tensor::Tensor;
    /// # use retrograd_tensor::random::Rng;
    /// let mut rng = Rng::new(1);
    /// let p = Projections::<f32>::new(HeadSizes::new(8, 2), &mut rng);
    /// let x = Var::constant(Tensor::<f32>::randn([1, 3, 8], &mut rng));
    /// let q = p.queries(&x, &mut Pass::eval());
    /// assert_eq!(p.rotate(&q, 0).value(), q.value()); // no rotary positions
    /// ```
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
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_nn::Pass;
    /// # use retrograd_nn::attention::{HeadSizes, Mask, Past, Projections};
    /// # use retrograd_tensor::Tensor;
    /// # use retrograd_tensor::random::Rng;
    /// # let mut rng = Rng::new(1);
    /// # let projections = Projections::<f64>::new(HeadSizes::new(8, 2), &mut rng);
    /// # let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let y = projections.attend(&x, Mask::causal(), &mut Past::none(), &mut Pass::eval());
    /// assert_eq!(*y.shape(), [1, 4, 8]);
    /// ```
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
