//! Gated linear attention: a decay of each channel of the keys, which depends on the input.

use crate::attention::parts::heads::split_heads;
use crate::attention::parts::state::{
    LowRank, StateCx, StateRule, StateSizes, Terms, gated, scaled,
};
use crate::linear::Linear;
use crate::module::{Layer, visits};
use crate::norm::RmsNorm;
use crate::pass::Pass;
use retrograd_autograd::{Recurrence, Var};
use retrograd_tensor::Real;
use retrograd_tensor::random::Rng;

/// Gated linear attention (GLA):
///
/// ```text
/// S_t = diag(α_t) S_{t-1} + k_t v_tᵀ      α_t = sigmoid(W₂ W₁ x_t + b)^(1/16)
/// y_t = W_o (norm(S_tᵀ q_t / √Dk) · silu(W_g x_t))
/// ```
///
/// `[B, L, width]` to the same, in `O(L Dk Dv)` for each head.
///
/// Parameters, named as in flash-linear-attention: `q_proj`, `k_proj` `[H·Dk, width]`, `v_proj`, `g_proj` `[H·Dv, width]`,
/// `gk_proj.0` `[16, width]`, `gk_proj.1` `[H·Dk, 16]` with a bias, `g_norm_swish_gate` `[Dv]`, `o_proj` `[width, H·Dv]`. Yang et al.
/// 2023 (arXiv 2312.06635).
///
/// ```
/// use retrograd::nn::attention::{GatedLinearAttention, StateRule, StateSizes};
/// use retrograd::prelude::*;
/// let mut rng = Rng::new(1);
/// let rule = GatedLinearAttention::<f32>::new(StateSizes::new(8, 2), &mut rng);
/// let x = Var::constant(Tensor::randn([2, 5, 8], &mut rng));
/// assert_eq!(*rule.forward(&x, &mut Pass::eval()).shape(), [2, 5, 8]);
/// assert!(rule.state_dict().contains_key("gk_proj.1.bias"));
/// ```
#[derive(Clone, Debug)]
pub struct GatedLinearAttention<T: Real = f32> {
    /// The projection to queries.
    pub q_proj: Linear<T>,
    /// The projection to keys.
    pub k_proj: Linear<T>,
    /// The projection to values.
    pub v_proj: Linear<T>,
    /// The projection to gates.
    pub g_proj: Linear<T>,
    /// The projections to the logits of decays.
    pub gk_proj: LowRank<T>,
    /// The norm of what a head has read.
    pub g_norm_swish_gate: RmsNorm<T>,
    /// The output projection.
    pub o_proj: Linear<T>,
    heads: usize,
}

/// The width between the two projections to decays.
const LOW_RANK: usize = 16;
/// The root of a decay.
const ROOT: f64 = 16.0;

impl<T: Real> GatedLinearAttention<T> {
    /// A layer of these sizes.
    #[track_caller]
    pub fn new(sizes: StateSizes, rng: &mut Rng) -> Self {
        let (keys, values) = (sizes.keys(), sizes.values());
        GatedLinearAttention {
            q_proj: Linear::without_bias(sizes.width, keys, rng),
            k_proj: Linear::without_bias(sizes.width, keys, rng),
            v_proj: Linear::without_bias(sizes.width, values, rng),
            g_proj: Linear::without_bias(sizes.width, values, rng),
            gk_proj: LowRank {
                down: Linear::without_bias(sizes.width, LOW_RANK, rng),
                up: Linear::new(LOW_RANK, keys, rng),
            },
            g_norm_swish_gate: RmsNorm { eps: 1e-5, ..RmsNorm::new(sizes.value_width) },
            o_proj: Linear::without_bias(values, sizes.width, rng),
            heads: sizes.heads,
        }
    }
}

visits!(GatedLinearAttention: module q_proj, module k_proj, module v_proj, module g_proj, module gk_proj, module g_norm_swish_gate, module o_proj);

impl<T: Real> StateRule<T> for GatedLinearAttention<T> {
    #[track_caller]
    fn terms(&self, x: &Var<T>, cx: &mut StateCx<'_, T>) -> Terms<T> {
        let mut of = |proj: &Linear<T>| split_heads(&proj.forward(x, cx.pass), self.heads);
        let [q, k, v] = [&self.q_proj, &self.k_proj, &self.v_proj].map(&mut of);
        let logits = split_heads(&self.gk_proj.forward(x, cx.pass), self.heads);
        // sigmoid(x) = exp(-softplus(-x))
        let decay = Some((logits.neg().softplus() / T::from_f64(-ROOT)).exp());
        let recurrence = Recurrence { decay, ..Recurrence::new(&scaled(&q), &k, &v) };
        Terms { recurrence, gate: Some(self.g_proj.forward(x, cx.pass)) }
    }

    #[track_caller]
    fn output(&self, read: &Var<T>, terms: &Terms<T>, pass: &mut Pass) -> Var<T> {
        let gate = terms.gate.as_ref().expect("by `terms`");
        let y = gated(read, &self.g_norm_swish_gate, gate, Var::silu, pass);
        self.o_proj.forward(&y, pass)
    }
}
