//! Linear attention on a state that decays: by a fixed factor of each head, or by factors of each channel that depend on the
//! input.

use crate::attention::parts::heads::split_heads;
use crate::attention::parts::rope::Rope;
use crate::attention::parts::state::{
    LowRank, StateCx, StateRule, StateSizes, Terms, gated, scaled,
};
use crate::linear::Linear;
use crate::module::{Layer, visits};
use crate::norm::RmsNorm;
use crate::pass::Pass;
use retrograd_autograd::{Recurrence, Var};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

/// The projections of linear attention with a gate: to queries, keys, values and gates, and of the output.
#[derive(Clone, Debug)]
pub struct GatedProjections<T: Real = f32> {
    /// The projection to queries.
    pub q_proj: Linear<T>,
    /// The projection to keys.
    pub k_proj: Linear<T>,
    /// The projection to values.
    pub v_proj: Linear<T>,
    /// The projection to gates.
    pub g_proj: Linear<T>,
    /// The norm of what a head has read.
    pub g_norm_swish_gate: RmsNorm<T>,
    /// The output projection.
    pub o_proj: Linear<T>,
    heads: usize,
}

visits!(GatedProjections: module q_proj, module k_proj, module v_proj, module g_proj, module g_norm_swish_gate, module o_proj);

impl<T: Real> GatedProjections<T> {
    #[track_caller]
    fn new(sizes: StateSizes, rng: &mut Rng) -> Self {
        let (keys, values) = (sizes.keys(), sizes.values());
        GatedProjections {
            q_proj: Linear::without_bias(sizes.width, keys, rng),
            k_proj: Linear::without_bias(sizes.width, keys, rng),
            v_proj: Linear::without_bias(sizes.width, values, rng),
            g_proj: Linear::without_bias(sizes.width, values, rng),
            g_norm_swish_gate: RmsNorm { eps: 1e-5, ..RmsNorm::new(sizes.value_width) },
            o_proj: Linear::without_bias(values, sizes.width, rng),
            heads: sizes.heads,
        }
    }

    /// The recurrence with these decays, after `positions` of queries and keys, and the gate.
    #[track_caller]
    fn terms(
        &self,
        x: &Var<T>,
        decay: Var<T>,
        positions: impl Fn(&Var<T>) -> Var<T>,
        pass: &mut Pass,
    ) -> Terms<T> {
        let mut of = |proj: &Linear<T>| split_heads(&proj.forward(x, pass), self.heads);
        let [q, k, v] = [&self.q_proj, &self.k_proj, &self.v_proj].map(&mut of);
        let [q, k] = [&scaled(&q), &k].map(positions);
        let recurrence = Recurrence { decay: Some(decay), ..Recurrence::new(&q, &k, &v) };
        Terms { recurrence, gate: Some(self.g_proj.forward(x, pass)) }
    }

    #[track_caller]
    fn output(&self, read: &Var<T>, terms: &Terms<T>, pass: &mut Pass) -> Var<T> {
        let y = gated(read, &self.g_norm_swish_gate, terms, Var::silu, pass);
        self.o_proj.forward(&y, pass)
    }
}

/// Multi-scale retention, the attention of RetNet:
///
/// ```text
/// S_t = γ_h S_{t-1} + k_t v_tᵀ      γ_h = 1 - 2^(-5-h)
/// y_t = W_o (norm(S_tᵀ q_t / √Dk) · silu(W_g x_t))
/// ```
///
/// with queries and keys rotated by their positions. `[B, L, width]` to the same, in `O(L Dk Dv)` for each head.
///
/// Parameters, named as in flash-linear-attention: `q_proj`, `k_proj` `[H·Dk, width]`, `v_proj`, `g_proj` `[H·Dv, width]`,
/// `g_norm_swish_gate` `[Dv]`, `o_proj` `[width, H·Dv]`. Sun et al. 2023 (arXiv 2307.08621).
///
/// ```
/// use retrograd::nn::attention::{Retention, StateRule, StateSizes};
/// use retrograd::prelude::*;
/// let mut rng = Rng::new(1);
/// let rule = Retention::<f32>::new(StateSizes::new(8, 2), &mut rng);
/// let x = Var::constant(Tensor::randn([2, 5, 8], &mut rng));
/// assert_eq!(*rule.forward(&x, &mut Pass::eval()).shape(), [2, 5, 8]);
/// ```
#[derive(Clone, Debug)]
pub struct Retention<T: Real = f32> {
    /// The projections.
    pub projections: GatedProjections<T>,
    rope: Rope,
}

impl<T: Real> Retention<T> {
    /// A layer of these sizes.
    ///
    /// # Panics
    /// If the width of keys is odd.
    #[track_caller]
    pub fn new(sizes: StateSizes, rng: &mut Rng) -> Self {
        let rope = Rope::new(sizes.key_width);
        Retention { projections: GatedProjections::new(sizes, rng), rope }
    }
}

visits!(Retention: all projections);

impl<T: Real> StateRule<T> for Retention<T> {
    #[track_caller]
    fn terms(&self, x: &Var<T>, cx: &mut StateCx<'_, T>) -> Terms<T> {
        let decay = |i: &[usize]| T::from_f64(1.0 - (-5.0 - i[0] as f64).exp2());
        let decay = Var::constant(Tensor::from_fn([self.projections.heads, 1, 1], decay));
        let start = cx.state.position();
        self.projections.terms(x, decay, |x| self.rope.rotate(x, start), cx.pass)
    }

    #[track_caller]
    fn output(&self, read: &Var<T>, terms: &Terms<T>, pass: &mut Pass) -> Var<T> {
        self.projections.output(read, terms, pass)
    }
}

/// Gated linear attention (GLA):
///
/// ```text
/// S_t = diag(α_t) S_{t-1} + k_t v_tᵀ      α_t = sigmoid(W₂ W₁ x_t + b)^(1/16)
/// y_t = W_o (norm(S_tᵀ q_t / √Dk) · silu(W_g x_t))
/// ```
///
/// `[B, L, width]` to the same, in `O(L Dk Dv)` for each head.
///
/// Parameters, named as in flash-linear-attention: those of [`Retention`], `gk_proj.0` `[16, width]`, and `gk_proj.1` `[H·Dk, 16]`
/// with a bias. Yang et al. 2023 (arXiv 2312.06635).
///
/// ```
/// use retrograd::nn::attention::{GatedLinearAttention, StateSizes};
/// use retrograd::prelude::*;
/// let rule = GatedLinearAttention::<f32>::new(StateSizes::new(8, 2), &mut Rng::new(1));
/// assert_eq!(*rule.state_dict()["gk_proj.1.weight"].shape(), [8, 16]);
/// ```
#[derive(Clone, Debug)]
pub struct GatedLinearAttention<T: Real = f32> {
    /// The projections.
    pub projections: GatedProjections<T>,
    /// The projections to the logits of decays.
    pub gk_proj: LowRank<T>,
}

/// The width between the two projections to decays.
const LOW_RANK: usize = 16;
/// The root of a decay.
const ROOT: f64 = 16.0;

impl<T: Real> GatedLinearAttention<T> {
    /// A layer of these sizes.
    #[track_caller]
    pub fn new(sizes: StateSizes, rng: &mut Rng) -> Self {
        GatedLinearAttention {
            projections: GatedProjections::new(sizes, rng),
            gk_proj: LowRank {
                down: Linear::without_bias(sizes.width, LOW_RANK, rng),
                up: Linear::new(LOW_RANK, sizes.keys(), rng),
            },
        }
    }
}

visits!(GatedLinearAttention: all projections, module gk_proj);

impl<T: Real> StateRule<T> for GatedLinearAttention<T> {
    #[track_caller]
    fn terms(&self, x: &Var<T>, cx: &mut StateCx<'_, T>) -> Terms<T> {
        let logits = split_heads(&self.gk_proj.forward(x, cx.pass), self.projections.heads);
        // sigmoid(x) = exp(-softplus(-x))
        let decay = (logits.neg().softplus() / T::from_f64(-ROOT)).exp();
        self.projections.terms(x, decay, Var::clone, cx.pass)
    }

    #[track_caller]
    fn output(&self, read: &Var<T>, terms: &Terms<T>, pass: &mut Pass) -> Var<T> {
        self.projections.output(read, terms, pass)
    }
}
