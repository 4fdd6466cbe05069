//! Delta rules: a token replaces what the state has for its key, in part.

use crate::attention::parts::heads::{join_heads, split_heads};
use crate::attention::parts::state::{
    LowRank, ShortConv, StateCx, StateRule, StateSizes, Terms, gated, per_head, scaled, unit,
};
use crate::linear::Linear;
use crate::module::{Layer, visits};
use crate::norm::RmsNorm;
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::{Recurrence, Var};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

/// The tokens that a short convolution reads.
const TAPS: usize = 4;

/// The projections of a delta rule: queries and keys of norm 1, and values, each after a short convolution.
#[derive(Clone, Debug)]
pub struct DeltaProjections<T: Real = f32> {
    /// The projection to queries.
    pub q_proj: Linear<T>,
    /// The projection to keys.
    pub k_proj: Linear<T>,
    /// The projection to values.
    pub v_proj: Linear<T>,
    /// The projection to the logits of β.
    pub b_proj: Linear<T>,
    /// The convolution of queries.
    pub q_conv1d: ShortConv<T>,
    /// The convolution of keys.
    pub k_conv1d: ShortConv<T>,
    /// The convolution of values.
    pub v_conv1d: ShortConv<T>,
    /// The norm of what a head has read.
    pub o_norm: RmsNorm<T>,
    /// The output projection.
    pub o_proj: Linear<T>,
    sizes: StateSizes,
}

impl<T: Real> DeltaProjections<T> {
    #[track_caller]
    fn new(sizes: StateSizes, rng: &mut Rng) -> Self {
        let (keys, values) = (sizes.keys(), sizes.values());
        DeltaProjections {
            q_proj: Linear::without_bias(sizes.width, keys, rng),
            k_proj: Linear::without_bias(sizes.width, keys, rng),
            v_proj: Linear::without_bias(sizes.width, values, rng),
            b_proj: Linear::without_bias(sizes.width, sizes.heads, rng),
            q_conv1d: ShortConv::new(keys, TAPS, rng),
            k_conv1d: ShortConv::new(keys, TAPS, rng),
            v_conv1d: ShortConv::new(values, TAPS, rng),
            o_norm: RmsNorm { eps: 1e-5, ..RmsNorm::new(sizes.value_width) },
            o_proj: Linear::without_bias(values, sizes.width, rng),
            sizes,
        }
    }

    /// `S_t = (I - β k kᵀ) diag(α) S_{t-1} + β k vᵀ`, with `α` `[B, H, L, Dk or 1]`.
    #[track_caller]
    fn recurrence(
        &self,
        x: &Var<T>,
        decay: Option<Var<T>>,
        cx: &mut StateCx<'_, T>,
    ) -> Recurrence<T> {
        let mut of = |proj: &Linear<T>, conv: &ShortConv<T>| {
            let y = proj.forward(x, cx.pass);
            split_heads(&conv.forward(&y, cx), self.sizes.heads)
        };
        let q = scaled(&unit(&of(&self.q_proj, &self.q_conv1d)));
        let k = unit(&of(&self.k_proj, &self.k_conv1d));
        let v = of(&self.v_proj, &self.v_conv1d);
        let beta = per_head(&self.b_proj.forward(x, cx.pass).sigmoid());
        let written = k.mul(&beta);
        let erased = decay.as_ref().map_or(k.clone(), |decay| k.mul(decay));
        Recurrence {
            decay,
            low_rank: Some([erased, written.neg()]),
            ..Recurrence::new(&q, &written, &v)
        }
    }
}

visits!(DeltaProjections: module q_proj, module k_proj, module v_proj, module b_proj, module q_conv1d, module k_conv1d,
    module v_conv1d, module o_norm, module o_proj);

/// DeltaNet: the delta rule.
///
/// ```text
/// S_t = S_{t-1} + β_t k_t (v_t - S_{t-1}ᵀ k_t)ᵀ      β_t = sigmoid(W_b x_t)
/// y_t = W_o norm(S_tᵀ q_t / √Dk)
/// ```
///
/// Queries and keys have norm 1, and short convolutions with SiLU before, as values. `[B, L, width]` to the same, in
/// `O(L Dk Dv)` for each head.
///
/// Parameters, named as in flash-linear-attention: those of [`DeltaProjections`]. Schlag et al. 2021 (arXiv 2102.11174);
/// Yang et al. 2024 (2406.06484).
#[derive(Clone, Debug)]
pub struct DeltaNet<T: Real = f32> {
    /// The projections.
    pub projections: DeltaProjections<T>,
}

impl<T: Real> DeltaNet<T> {
    /// A layer of these sizes.
    #[track_caller]
    pub fn new(sizes: StateSizes, rng: &mut Rng) -> Self {
        DeltaNet { projections: DeltaProjections::new(sizes, rng) }
    }
}

visits!(DeltaNet: all projections);

impl<T: Real> StateRule<T> for DeltaNet<T> {
    #[track_caller]
    fn terms(&self, x: &Var<T>, cx: &mut StateCx<'_, T>) -> Terms<T> {
        Terms { recurrence: self.projections.recurrence(x, None, cx), gate: None }
    }

    #[track_caller]
    fn output(&self, read: &Var<T>, _: &Terms<T>, pass: &mut Pass) -> Var<T> {
        let y = join_heads(&self.projections.o_norm.forward(read, pass));
        self.projections.o_proj.forward(&y, pass)
    }
}

/// The decay of a step of length `softplus(x + dt_bias)`: `exp(-exp(A_log) · softplus(x + dt_bias))`.
#[track_caller]
pub(super) fn decay<T: Real>(x: &Var<T>, a_log: &Var<T>, dt_bias: &Var<T>) -> Var<T> {
    (a_log.exp().neg() * (x + dt_bias).softplus()).exp()
}

/// `A_log` and `dt_bias` of each head as in Mamba-2: decays from `exp(-1.6)` to nearly 1 for an input of 0.
pub(super) fn initial_steps<T: Real>(heads: usize, rng: &mut Rng) -> [Tensor<T>; 2] {
    let a = Tensor::uniform([heads], 1.0, 16.0, rng).ln();
    let dt = Tensor::uniform([heads], 0.001_f64.ln(), 0.1_f64.ln(), rng).exp();
    // The inverse of softplus.
    let bias = &dt + dt.neg().exp().neg().add_scalar(T::ONE).ln();
    [a, bias]
}

/// Gated DeltaNet: the delta rule on a state that decays.
///
/// ```text
/// S_t = α_t (I - β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ      α_t = exp(-exp(A_log) · softplus(W_a x_t + dt_bias))
/// y_t = W_o (norm(S_tᵀ q_t / √Dk) · silu(W_g x_t))
/// ```
///
/// The other parts are those of [`DeltaNet`]. `[B, L, width]` to the same, in `O(L Dk Dv)` for each head.
///
/// Parameters, named as in flash-linear-attention: those of [`DeltaProjections`], `a_proj` `[H, width]`, `A_log` and `dt_bias`
/// `[H]`, `g_proj` `[H·Dv, width]`. Yang, Kautz, Hatamizadeh 2024 (arXiv 2412.06464).
///
/// ```
/// use retrograd::nn::attention::{GatedDeltaNet, StateRule, StateSizes};
/// use retrograd::prelude::*;
/// let mut rng = Rng::new(1);
/// let rule = GatedDeltaNet::<f32>::new(StateSizes::new(8, 2), &mut rng);
/// let x = Var::constant(Tensor::randn([2, 5, 8], &mut rng));
/// assert_eq!(*rule.forward(&x, &mut Pass::eval()).shape(), [2, 5, 8]);
/// assert!(rule.state_dict().contains_key("A_log"));
/// ```
#[derive(Clone, Debug)]
pub struct GatedDeltaNet<T: Real = f32> {
    /// The projections.
    pub projections: DeltaProjections<T>,
    /// The projection to the lengths of steps.
    pub a_proj: Linear<T>,
    /// `[H]`
    pub a_log: Param<T>,
    /// `[H]`
    pub dt_bias: Param<T>,
    /// The projection to gates.
    pub g_proj: Linear<T>,
}

impl<T: Real> GatedDeltaNet<T> {
    /// A layer of these sizes.
    #[track_caller]
    pub fn new(sizes: StateSizes, rng: &mut Rng) -> Self {
        let [a_log, dt_bias] = initial_steps(sizes.heads, rng).map(Param::new);
        GatedDeltaNet {
            projections: DeltaProjections::new(sizes, rng),
            a_proj: Linear::without_bias(sizes.width, sizes.heads, rng),
            a_log,
            dt_bias,
            g_proj: Linear::without_bias(sizes.width, sizes.values(), rng),
        }
    }
}

visits!(GatedDeltaNet: all projections, module a_proj, param a_log as "A_log", param dt_bias, module g_proj);

impl<T: Real> StateRule<T> for GatedDeltaNet<T> {
    #[track_caller]
    fn terms(&self, x: &Var<T>, cx: &mut StateCx<'_, T>) -> Terms<T> {
        let (a_log, dt_bias) = (self.a_log.to_var(), self.dt_bias.to_var());
        let decay = per_head(&decay(&self.a_proj.forward(x, cx.pass), &a_log, &dt_bias));
        let recurrence = self.projections.recurrence(x, Some(decay), cx);
        Terms { recurrence, gate: Some(self.g_proj.forward(x, cx.pass)) }
    }

    #[track_caller]
    fn output(&self, read: &Var<T>, terms: &Terms<T>, pass: &mut Pass) -> Var<T> {
        let y = gated(read, &self.projections.o_norm, terms, Var::silu, pass);
        self.projections.o_proj.forward(&y, pass)
    }
}

/// Kimi delta attention (KDA): Gated DeltaNet with a decay of each channel of the keys.
///
/// ```text
/// S_t = (I - β_t k_t k_tᵀ) diag(α_t) S_{t-1} + β_t k_t v_tᵀ
/// α_t = exp(-exp(A_log) · softplus(W_f₂ W_f₁ x_t + dt_bias))
/// y_t = W_o (norm(S_tᵀ q_t / √Dk) · sigmoid(W_g₂ W_g₁ x_t))
/// ```
///
/// The other parts are those of [`DeltaNet`]. `[B, L, width]` to the same, in `O(L Dk Dv)` for each head.
///
/// Parameters, named as in flash-linear-attention: those of [`DeltaProjections`], `f_proj.0` `[Dv, width]`, `f_proj.1` `[H·Dk, Dv]`,
/// `A_log` `[H]`, `dt_bias` `[H·Dk]`, `g_proj.0` `[Dv, width]`, `g_proj.1` `[H·Dv, Dv]` with a bias. Kimi Team 2025
/// (arXiv 2510.26692).
#[derive(Clone, Debug)]
pub struct KimiDeltaAttention<T: Real = f32> {
    /// The projections.
    pub projections: DeltaProjections<T>,
    /// The projections to the lengths of steps.
    pub f_proj: LowRank<T>,
    /// `[H]`
    pub a_log: Param<T>,
    /// `[H·Dk]`
    pub dt_bias: Param<T>,
    /// The projections to the logits of gates.
    pub g_proj: LowRank<T>,
}

impl<T: Real> KimiDeltaAttention<T> {
    /// A layer of these sizes.
    #[track_caller]
    pub fn new(sizes: StateSizes, rng: &mut Rng) -> Self {
        let StateSizes { width, value_width, .. } = sizes;
        let [a_log, _] = initial_steps(sizes.heads, rng);
        KimiDeltaAttention {
            projections: DeltaProjections::new(sizes, rng),
            f_proj: LowRank {
                down: Linear::without_bias(width, value_width, rng),
                up: Linear::without_bias(value_width, sizes.keys(), rng),
            },
            a_log: Param::new(a_log),
            dt_bias: Param::new(Tensor::zeros([sizes.keys()])),
            g_proj: LowRank {
                down: Linear::without_bias(width, value_width, rng),
                up: Linear::new(value_width, sizes.values(), rng),
            },
        }
    }
}

visits!(KimiDeltaAttention: all projections, module f_proj, param a_log as "A_log", param dt_bias, module g_proj);

impl<T: Real> StateRule<T> for KimiDeltaAttention<T> {
    #[track_caller]
    fn terms(&self, x: &Var<T>, cx: &mut StateCx<'_, T>) -> Terms<T> {
        let StateSizes { heads, key_width, .. } = self.projections.sizes;
        let steps = split_heads(&self.f_proj.forward(x, cx.pass), heads);
        let a_log = self.a_log.to_var().reshape([heads, 1, 1]);
        let dt_bias = self.dt_bias.to_var().reshape([heads, 1, key_width]);
        let decay = decay(&steps, &a_log, &dt_bias);
        let recurrence = self.projections.recurrence(x, Some(decay), cx);
        Terms { recurrence, gate: Some(self.g_proj.forward(x, cx.pass)) }
    }

    #[track_caller]
    fn output(&self, read: &Var<T>, terms: &Terms<T>, pass: &mut Pass) -> Var<T> {
        let y = gated(read, &self.projections.o_norm, terms, Var::sigmoid, pass);
        self.projections.o_proj.forward(&y, pass)
    }
}
