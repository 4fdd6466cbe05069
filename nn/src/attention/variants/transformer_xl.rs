//! Transformer-XL: relative positions, and a memory of the previous segment.

use crate::attention::engine::{Part, Rule, Spec, attend};
use crate::attention::parts::heads::split_heads;
use crate::attention::parts::projections::{HeadSizes, Projections};
use crate::init::Init;
use crate::linear::Linear;
use crate::module::{Call, Layer, visits};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

/// Causal self-attention of a segment to itself and to a memory of earlier tokens, with relative
/// positions.
///
/// ```text
/// s_ij = ((q_i + u) · k_j + (q_i + v) · r_(i-j)) / √D      j <= i
/// r_d  = W_r · [sin(d ω), cos(d ω)],  ω_m = 10000^(-2m / width)
/// ```
///
/// Keys and values are projections of `[memory; x]`, without gradients by the memory: `x`
/// `[L, width]` or `[B, L, width]`, memory `[.., M, width]`, to the shape of `x`, in
/// `O(L (L + M) width)`, with memory that is linear in the length. The output for a segment with the previous segment as
/// memory equals that for both as one sequence, up to rounding; in a stack of layers, the memory of
/// each layer is the previous segment of its own input.
///
/// With `u`, `v` and `r_net` all 0 it is causal self-attention.
///
/// Parameters: as [`Projections`]; named as in the authors' code, `r_net.weight` (`W_r`)
/// `[H·D, width]`, `r_w_bias` (`u`) and `r_r_bias` (`v`) `[H, D]`. Dai et al. 2019 (arXiv
/// 1901.02860).
///
/// ```
/// use retrograd::nn::attention::{HeadSizes, Mask, Projections, TransformerXlAttention};
/// use retrograd::prelude::*;
///
/// let mut rng = Rng::new(1);
/// let projections = Projections::<f32>::new(HeadSizes::new(8, 2), &mut rng);
/// let attention = TransformerXlAttention::new(projections, &mut rng);
/// let before = Var::constant(Tensor::randn([3, 6, 8], &mut rng));
/// let x = Var::constant(Tensor::randn([3, 4, 8], &mut rng));
/// let y = attention.forward(&x, Some(&before), Mask::full(), &mut Pass::eval());
/// assert_eq!(*y.shape(), [3, 4, 8]);
/// ```
#[derive(Clone, Debug)]
pub struct TransformerXlAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
    /// `W_r`
    pub r_net: Linear<T>,
    /// `u`
    pub r_w_bias: Param<T>,
    /// `v`
    pub r_r_bias: Param<T>,
}

const NAME: &str = "TransformerXlAttention";
const REASON: &str = "distances have scores of their own";

impl<T: Real> TransformerXlAttention<T> {
    /// A layer with these projections.
    ///
    /// # Panics
    /// If they have rotary positions.
    #[track_caller]
    pub fn new(projections: Projections<T>, rng: &mut Rng) -> Self {
        projections.reject_rope(NAME, REASON);
        let HeadSizes { width, heads, head_width, .. } = projections.sizes();
        let shape = [heads, head_width];
        let r_net = Linear::without_bias(width, heads * head_width, rng);
        let mut bias = || Param::new(Init::Normal { std: 0.02 }.sample(shape, rng));
        let (r_w_bias, r_r_bias) = (bias(), bias());
        TransformerXlAttention { projections, r_net, r_w_bias, r_r_bias }
    }

    /// The output for `x`; `spec` may restrict the attention further. Position 0 is the
    /// first token of the memory.
    ///
    /// # Panics
    /// If the shapes do not match, the projections have rotary positions, or the spec has an
    /// alignment.
    #[track_caller]
    pub fn forward(
        &self,
        x: &Var<T>,
        memory: Option<&Var<T>>,
        spec: impl Into<Spec<T>>,
        pass: &mut Pass,
    ) -> Var<T> {
        let call = Call::start(self);
        let p = &self.projections;
        p.reject_rope(NAME, REASON);
        let all = match memory {
            Some(memory) => Var::cat(&[&memory.detach(), x], -2),
            None => x.clone(),
        };
        let (q, k, v) = (p.queries(x, pass), p.keys(&all, pass), p.values(&all, pass));
        // From the largest distance to 0.
        let distances = Var::constant(sinusoids(k.size(-2), x.size(-1)).flip(0));
        let r = split_heads(&self.r_net.forward(&distances, pass), p.sizes().heads);

        let a = &q + self.r_r_bias.to_var().unsqueeze(-2);
        let q = q + self.r_w_bias.to_var().unsqueeze(-2);
        // Keys after the query are masked.
        let last = k.size(-2).saturating_sub(1);
        let index = move |away: isize| last.saturating_add_signed(away).min(last);
        let spec = spec.into();
        spec.reject(NAME, Part::Align);
        let spec = spec.causal_bottom_right().rule(Rule::relative_products(a, r, index));
        let spec = p.with_dropout(spec, pass);
        call.end(p.project_out(&attend(&q, &k, &v, &spec), pass))
    }
}

/// `[sin(d ω), cos(d ω)]` for the distances from 0, `[n, width]`.
fn sinusoids<T: Real>(n: usize, width: usize) -> Tensor<T> {
    let half = width.div_ceil(2);
    Tensor::from_fn([n, width], |i| {
        let (d, m) = (i[0] as f64, i[1] % half);
        let angle = d * 10000f64.powf(-2.0 * m as f64 / width as f64);
        T::from_f64(if i[1] < half { angle.sin() } else { angle.cos() })
    })
}

visits!(TransformerXlAttention: all projections, module r_net, param r_w_bias, param r_r_bias);
