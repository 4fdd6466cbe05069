//! Multi-head latent attention: keys and values from one latent vector per token, and a cache of
//! latent vectors only.

use crate::attention::engine::{Spec, attend};
use crate::attention::parts::heads::{join_heads, split_heads};
use crate::attention::parts::incremental::{Incremental, Past};
use crate::attention::parts::rope::{Pairing, Rope};
use crate::linear::Linear;
use crate::module::{Layer, Module, Visitor};
use crate::norm::RmsNorm;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::random::Rng;

/// Sizes of an [`MlaAttention`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MlaSizes {
    /// Width of input and output.
    pub width: usize,
    /// Number of heads.
    pub heads: usize,
    /// Width of the latent vector of queries; `None` for a direct projection.
    pub query_latent: Option<usize>,
    /// Width `r` of the latent vector of keys and values.
    pub latent: usize,
    /// Width of the part of a head's query and key that is not rotated.
    pub nope: usize,
    /// Width of the rotated part, whose key all heads share.
    pub rope: usize,
    /// Width of a head's value.
    pub value: usize,
}

/// The form of the computation. Both forms have the same result, up to rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MlaForm {
    /// Keys and values of every head are computed from the latent vectors: faster for training and
    /// long prompts.
    #[default]
    Naive,
    /// `W_uk` is applied to the query and `W_uv` to the weighted sum, so that it is multi-query
    /// attention to the latent vectors: faster for steps with a cache.
    Absorbed,
}

/// Multi-head latent attention: with `c = RmsNorm(W_a x)` of width `r`, a key `k_rope` shared by
/// all heads, and per head `k = [W_uk c; R k_rope]`, `v = W_uv c`, `q = [q_nope; R q_rope]`:
/// `o = softmax(q · kᵀ / √(nope + rope)) · v`.
///
/// With YaRN, all of `q · k` is multiplied by the square of its attention factor, not only the
/// rotated part: as in DeepSeek, the factor is part of the scale and not of the rotation. A scale
/// in the spec replaces `1 / √(nope + rope)`.
///
/// Since `q_nope · W_uk c = (W_ukᵀ q_nope) · c`, and weights times `W_uv c` are `W_uv` times
/// weighted `c`, keys and values of the heads need not be computed ([`MlaForm::Absorbed`]).
///
/// `[.., L, width]` to `[.., L, width]`. Caches `r + rope` numbers per token, where multi-head
/// attention caches `2 · H · D`. The work is `O(L² · H (nope + rope + value))` in the naive form
/// and `O(L² · H (2r + rope))` in the absorbed one, which is faster with a cache: it does not
/// compute keys and values of earlier tokens, `O(L · r · H (nope + value))` in each step.
///
/// With `r` large enough for `W_uk`, `W_uv` to be any keys and values (and no norm) it is
/// multi-head attention with partial rotary positions, whose rotated keys all heads share; with
/// one head the naive form is plain attention.
///
/// Parameters, named as in DeepSeek-V3: `wq_a` `[q_latent, width]`, `q_norm`, `wq_b`
/// `[H · (nope + rope), q_latent]`, or in their place `wq` `[H · (nope + rope), width]`; `wkv_a`
/// `[r + rope, width]`, `kv_norm` `[r]`, `wkv_b` `[H · (nope + value), r]`, `wo`
/// `[width, H · value]`. DeepSeek 2024 (arXiv 2405.04434).
#[derive(Clone, Debug)]
pub struct MlaAttention<T: Real = f32> {
    queries: Queries<T>,
    /// The projection to the latent vector and the shared key.
    pub wkv_a: Linear<T>,
    /// The norm of the latent vector.
    pub kv_norm: RmsNorm<T>,
    /// The projection from the latent vector to keys and values.
    pub wkv_b: Linear<T>,
    /// The output projection.
    pub wo: Linear<T>,
    /// The form of the computation.
    pub form: MlaForm,
    /// With an attention factor of 1.
    rope: Rope,
    attention_factor: f64,
    sizes: MlaSizes,
}

#[derive(Clone, Debug)]
enum Queries<T: Real> {
    Direct(Linear<T>),
    Latent { wq_a: Linear<T>, q_norm: RmsNorm<T>, wq_b: Linear<T> },
}

impl<T: Real> MlaAttention<T> {
    /// A layer with interleaved rotary positions.
    ///
    /// # Panics
    /// If the number of heads is 0, or the rotary width is odd.
    ///
    /// ```
    /// use retrograd::nn::attention::{Incremental, MlaAttention, MlaSizes, Spec};
    /// use retrograd::prelude::*;
    /// let mut rng = Rng::new(1);
    /// let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let sizes = MlaSizes { width: 8, heads: 2, query_latent: None, latent: 6, nope: 4, rope: 2, value: 4 };
    /// let attention = MlaAttention::<f64>::new(sizes, &mut rng);
    /// let y = attention.forward(&x, &Spec::new().causal(), &mut Pass::eval());
    /// assert_eq!(*y.shape(), [1, 4, 8]);
    /// ```
    #[track_caller]
    pub fn new(sizes: MlaSizes, rng: &mut Rng) -> Self {
        let MlaSizes { width, heads, query_latent, latent, nope, rope, value } = sizes;
        assert(heads > 0, "mla", ErrorKind::Value, || "at least 1 head, got 0".into());
        let query_width = heads * (nope + rope);
        MlaAttention {
            queries: match query_latent {
                None => Queries::Direct(Linear::without_bias(width, query_width, rng)),
                Some(n) => Queries::Latent {
                    wq_a: Linear::without_bias(width, n, rng),
                    q_norm: RmsNorm::new(n),
                    wq_b: Linear::without_bias(n, query_width, rng),
                },
            },
            wkv_a: Linear::without_bias(width, latent + rope, rng),
            kv_norm: RmsNorm::new(latent),
            wkv_b: Linear::without_bias(latent, heads * (nope + value), rng),
            wo: Linear::without_bias(heads * value, width, rng),
            form: MlaForm::default(),
            rope: Rope::new(rope).pairing(Pairing::Interleaved),
            attention_factor: 1.0,
            sizes,
        }
    }

    /// Sets the rotary positions.
    ///
    /// # Panics
    /// If their width differs from the sizes.
    #[track_caller]
    pub fn with_rope(self, rope: Rope) -> Self {
        let (have, want) = (rope.width(), self.sizes.rope);
        assert(have == want, "mla", ErrorKind::Mismatch, || {
            format!("a rotary width of {have} where the sizes say {want}")
        });
        MlaAttention {
            rope: rope.without_attention_factor(),
            attention_factor: rope.attention_factor(),
            ..self
        }
    }

    /// Sets the epsilon of the norms of latent vectors; 1e-6 by default.
    ///
    /// # Panics
    /// If it is negative or not finite.
    #[track_caller]
    pub fn with_eps(mut self, eps: f64) -> Self {
        assert(eps >= 0.0 && eps.is_finite(), "mla", ErrorKind::Value, || {
            format!("eps must be finite and at least 0, got {eps}")
        });
        self.kv_norm.eps = eps;
        if let Queries::Latent { q_norm, .. } = &mut self.queries {
            q_norm.eps = eps;
        }
        self
    }

    /// Queries: the part without positions `[.., H, L, nope]` and the rotated part
    /// `[.., H, L, rope]`.
    fn queries(&self, x: &Var<T>, start: usize, pass: &mut Pass) -> (Var<T>, Var<T>) {
        let q = match &self.queries {
            Queries::Direct(wq) => wq.forward(x, pass),
            Queries::Latent { wq_a, q_norm, wq_b } => {
                wq_b.forward(&q_norm.forward(&wq_a.forward(x, pass), pass), pass)
            }
        };
        let q = split_heads(&q, self.sizes.heads);
        let nope = q.narrow(-1, 0, self.sizes.nope);
        let rope = q.narrow(-1, self.sizes.nope, self.sizes.rope);
        (nope, self.rope.rotate(&rope, start))
    }

    /// `W_uk` `[H, nope, r]` and `W_uv` `[H, value, r]`.
    fn up(&self) -> (Var<T>, Var<T>) {
        let MlaSizes { heads, latent, nope, value, .. } = self.sizes;
        let w = self.wkv_b.weight.to_var().reshape([heads, nope + value, latent]);
        (w.narrow(1, 0, nope), w.narrow(1, nope, value))
    }
}

impl<T: Real> Module<T> for MlaAttention<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        match &self.queries {
            Queries::Direct(wq) => v.module("wq", wq),
            Queries::Latent { wq_a, q_norm, wq_b } => {
                v.module("wq_a", wq_a);
                v.module("q_norm", q_norm);
                v.module("wq_b", wq_b);
            }
        }
        v.module("wkv_a", &self.wkv_a);
        v.module("kv_norm", &self.kv_norm);
        v.module("wkv_b", &self.wkv_b);
        v.module("wo", &self.wo);
    }
}

impl<T: Real> Incremental<T> for MlaAttention<T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T> {
        let MlaSizes { heads, latent, nope, rope, .. } = self.sizes;
        let start = past.start();
        let (q_nope, q_rope) = self.queries(x, start, pass);

        // Cached as the keys of one head, [.., 1, L, r + rope], with values of width 0.
        let down = self.wkv_a.forward(x, pass).unsqueeze(-3);
        let c = self.kv_norm.forward(&down.narrow(-1, 0, latent), pass);
        let k_rope = self.rope.rotate(&down.narrow(-1, latent, rope), start);
        let key = Var::cat(&[&c, &k_rope], -1);
        let (key, _) = past.extend(&key, &key.narrow(-1, 0, 0));
        let (c, k_rope) = (key.narrow(-1, 0, latent), key.narrow(-1, latent, rope));

        let (w_uk, w_uv) = self.up();
        let spec = spec.clone().scale_unless_given(1.0 / ((nope + rope) as f64).sqrt());
        let spec = spec.scale_by(self.attention_factor.powi(2));
        let o = match self.form {
            MlaForm::Naive => {
                let mut dims = k_rope.shape().to_vec();
                let axis = k_rope.rank() - 3;
                dims[axis] = heads;
                let k = Var::cat(&[&c.matmul(&w_uk.t()), &k_rope.broadcast_to(&dims[..])], -1);
                let q = Var::cat(&[&q_nope, &q_rope], -1);
                attend(&q, &k, &c.matmul(&w_uv.t()), &spec)
            }
            MlaForm::Absorbed => {
                let q = Var::cat(&[&q_nope.matmul(&w_uk), &q_rope], -1);
                attend(&q, &key, &c, &spec).matmul(&w_uv.t())
            }
        };
        self.wo.forward(&join_heads(&o), pass)
    }
}
