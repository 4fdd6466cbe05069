//! Mamba-2: a state space model with one decay for each head and token.

use super::delta_net::{decay, initial_steps};
use crate::attention::parts::heads::{join_heads, split_heads};
use crate::attention::parts::state::{ShortConv, StateCx, StateRule, StateSizes, Terms, per_head};
use crate::linear::Linear;
use crate::module::{Layer, visits};
use crate::norm::RmsNorm;
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::{Recurrence, Var};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

/// The tokens that the convolution reads.
const TAPS: usize = 4;

/// The mixer of Mamba-2 (SSD), a linear attention with a decay that depends on the input:
///
/// ```text
/// z, (x, B, C), Δ = W_in u_t     x, B, C = silu(conv(x, B, C))     Δ = softplus(Δ + dt_bias)
/// S_t = exp(-exp(A_log) Δ_t) S_{t-1} + Δ_t B_t x_tᵀ
/// y_t = W_out norm((S_tᵀ C_t + D x_t) · silu(z_t))
/// ```
///
/// `B` and `C`, of the width of keys, are those of all heads; `x` are the values. `[B, L, width]` to the same, in `O(L Dk Dv)`
/// for each head.
///
/// Parameters, named as in mamba-ssm: `in_proj` `[2·H·Dv + 2·Dk + H, width]`, `conv1d` `[H·Dv + 2·Dk, 1, 4]` with a bias,
/// `dt_bias`, `A_log` and `D` `[H]`, `norm` `[H·Dv]`, `out_proj` `[width, H·Dv]`. Dao, Gu 2024 (arXiv 2405.21060).
///
/// ```
/// use retrograd::nn::attention::{Mamba2, StateRule, StateSizes};
/// use retrograd::prelude::*;
/// let mut rng = Rng::new(1);
/// let rule = Mamba2::<f32>::new(StateSizes { key_width: 16, ..StateSizes::new(8, 2) }, &mut rng);
/// let x = Var::constant(Tensor::randn([2, 5, 8], &mut rng));
/// assert_eq!(*rule.forward(&x, &mut Pass::eval()).shape(), [2, 5, 8]);
/// assert!(rule.state_dict().contains_key("conv1d.bias"));
/// ```
#[derive(Clone, Debug)]
pub struct Mamba2<T: Real = f32> {
    /// The projection of the input.
    pub in_proj: Linear<T>,
    /// The convolution of `x`, `B` and `C`.
    pub conv1d: ShortConv<T>,
    /// `[H]`
    pub dt_bias: Param<T>,
    /// `[H]`
    pub a_log: Param<T>,
    /// `[H]`
    pub d: Param<T>,
    /// The norm before the output projection.
    pub norm: RmsNorm<T>,
    /// The output projection.
    pub out_proj: Linear<T>,
    sizes: StateSizes,
}

impl<T: Real> Mamba2<T> {
    /// A layer of these sizes.
    #[track_caller]
    pub fn new(sizes: StateSizes, rng: &mut Rng) -> Self {
        let StateSizes { width, heads, key_width, .. } = sizes;
        let [a_log, dt_bias] = initial_steps(heads, rng).map(Param::new);
        let inner = sizes.values();
        let channels = inner + 2 * key_width;
        let bias = Some(Param::new(Tensor::zeros([channels])));
        Mamba2 {
            in_proj: Linear::without_bias(width, inner + channels + heads, rng),
            conv1d: ShortConv { bias, ..ShortConv::new(channels, TAPS, rng) },
            dt_bias,
            a_log,
            d: Param::new(Tensor::ones([heads])),
            norm: RmsNorm { eps: 1e-5, ..RmsNorm::new(inner) },
            out_proj: Linear::without_bias(inner, width, rng),
            sizes,
        }
    }
}

visits!(Mamba2: module in_proj, module conv1d, param dt_bias, param a_log as "A_log", param d as "D", module norm,
    module out_proj);

impl<T: Real> StateRule<T> for Mamba2<T> {
    #[track_caller]
    fn terms(&self, x: &Var<T>, cx: &mut StateCx<'_, T>) -> Terms<T> {
        let StateSizes { heads, key_width, .. } = self.sizes;
        let (inner, batch, l) = (self.sizes.values(), x.size(0), x.size(1));
        let all = self.in_proj.forward(x, cx.pass);
        let gate = all.narrow(-1, 0, inner);
        let convolved = self.conv1d.forward(&all.narrow(-1, inner, inner + 2 * key_width), cx);
        let steps = all.narrow(-1, 2 * (inner + key_width), heads);
        let of_all_heads = |start: usize| {
            let one = convolved.narrow(-1, start, key_width).unsqueeze(1);
            one.broadcast_to([batch, heads, l, key_width])
        };
        let (b, c) = (of_all_heads(inner), of_all_heads(inner + key_width));
        let (a_log, dt_bias) = (self.a_log.to_var(), self.dt_bias.to_var());
        let step = per_head(&(&steps + &dt_bias).softplus());
        let recurrence = Recurrence {
            decay: Some(per_head(&decay(&steps, &a_log, &dt_bias))),
            ..Recurrence::new(
                &c,
                &b.mul(&step),
                &split_heads(&convolved.narrow(-1, 0, inner), heads),
            )
        };
        Terms { recurrence, gate: Some(gate) }
    }

    #[track_caller]
    fn output(&self, read: &Var<T>, terms: &Terms<T>, pass: &mut Pass) -> Var<T> {
        let d = self.d.to_var().reshape([self.sizes.heads, 1, 1]);
        let y = join_heads(&(read + terms.recurrence.v.mul(&d)));
        let gate = terms.gate.as_ref().expect("by `terms`").silu();
        self.out_proj.forward(&self.norm.forward(&y.mul(&gate), pass), pass)
    }
}
