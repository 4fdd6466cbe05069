//! Retention: linear attention with a fixed decay of each head.

use crate::attention::parts::heads::split_heads;
use crate::attention::parts::rope::Rope;
use crate::attention::parts::state::{StateCx, StateRule, StateSizes, Terms, gated, scaled};
use crate::linear::Linear;
use crate::module::{Layer, visits};
use crate::norm::RmsNorm;
use crate::pass::Pass;
use retrograd_autograd::{Recurrence, Var};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

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
/// assert!(rule.state_dict().contains_key("g_norm_swish_gate.weight"));
/// ```
#[derive(Clone, Debug)]
pub struct Retention<T: Real = f32> {
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
    rope: Rope,
    sizes: StateSizes,
}

impl<T: Real> Retention<T> {
    /// A layer of these sizes.
    ///
    /// # Panics
    /// If the width of keys is odd.
    #[track_caller]
    pub fn new(sizes: StateSizes, rng: &mut Rng) -> Self {
        let (keys, values) = (sizes.keys(), sizes.values());
        Retention {
            q_proj: Linear::without_bias(sizes.width, keys, rng),
            k_proj: Linear::without_bias(sizes.width, keys, rng),
            v_proj: Linear::without_bias(sizes.width, values, rng),
            g_proj: Linear::without_bias(sizes.width, values, rng),
            g_norm_swish_gate: RmsNorm { eps: 1e-5, ..RmsNorm::new(sizes.value_width) },
            o_proj: Linear::without_bias(values, sizes.width, rng),
            rope: Rope::new(sizes.key_width),
            sizes,
        }
    }
}

visits!(Retention: module q_proj, module k_proj, module v_proj, module g_proj, module g_norm_swish_gate, module o_proj);

impl<T: Real> StateRule<T> for Retention<T> {
    #[track_caller]
    fn terms(&self, x: &Var<T>, cx: &mut StateCx<'_, T>) -> Terms<T> {
        let heads = self.sizes.heads;
        let start = cx.state.position();
        let mut of = |proj: &Linear<T>| split_heads(&proj.forward(x, cx.pass), heads);
        let [q, k, v] = [&self.q_proj, &self.k_proj, &self.v_proj].map(&mut of);
        let [q, k] = [scaled(&q), k].map(|x| self.rope.rotate(&x, start));
        let decay = |i: &[usize]| T::from_f64(1.0 - (-5.0 - i[0] as f64).exp2());
        let decay = Some(Var::constant(Tensor::from_fn([heads, 1, 1], decay)));
        let recurrence = Recurrence { decay, ..Recurrence::new(&q, &k, &v) };
        Terms { recurrence, gate: Some(self.g_proj.forward(x, cx.pass)) }
    }

    #[track_caller]
    fn output(&self, read: &Var<T>, terms: &Terms<T>, pass: &mut Pass) -> Var<T> {
        let gate = terms.gate.as_ref().expect("by `terms`");
        let y = gated(read, &self.g_norm_swish_gate, gate, Var::silu, pass);
        self.o_proj.forward(&y, pass)
    }
}
