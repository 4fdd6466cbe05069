//! Shaw: learned vectors of relative positions, added to keys and values.

use crate::attention::engine::{Rule, Spec, attend};
use crate::attention::parts::incremental::Past;
use crate::attention::parts::projections::Projections;
use crate::init::Init;
use crate::module::{Call, Layer, visits};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::random::Rng;

/// Self-attention with a learned key and value for each relative position.
///
/// ```text
/// s_ij = q_i · (k_j + a_c) / √D      c = clip(j - i, -n, n)
/// o_i  = Σ_j w_ij (v_j + b_c)
/// ```
///
/// `a` and `b` are shared by the heads. `[L, width]` or `[B, L, width]` to the same, in `O(L² width)`, with
/// memory that is linear in the length. With both tables 0 it is plain self-attention.
///
/// Parameters: as [`Projections`], and `relative_keys` (`a`) and `relative_values` (`b`)
/// `[2n + 1, D]`, from distance `-n` to `n`. Shaw, Uszkoreit, Vaswani 2018 (arXiv 1803.02155).
#[derive(Clone, Debug)]
pub struct ShawAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
    /// `a`
    pub relative_keys: Param<T>,
    /// `b`
    pub relative_values: Param<T>,
}

const NAME: &str = "ShawAttention";
const REASON: &str = "distances have vectors of their own";

impl<T: Real> ShawAttention<T> {
    /// A layer with vectors for distances up to `farthest`.
    ///
    /// # Panics
    /// If the projections have rotary positions: their combination is not defined.
    #[track_caller]
    pub fn new(projections: Projections<T>, farthest: usize, rng: &mut Rng) -> Self {
        projections.reject_rope(NAME, REASON);
        let shape = [2 * farthest + 1, projections.sizes().head_width];
        let mut table = || Param::new(Init::XavierUniform { gain: 1.0 }.sample(shape, rng));
        let (relative_keys, relative_values) = (table(), table());
        ShawAttention { projections, relative_keys, relative_values }
    }

    /// The output for `x`; `spec` may restrict the attention, by
    /// [`Mask::causal`](crate::attention::Mask::causal) for a decoder.
    ///
    /// # Panics
    /// If the shapes do not match, or the projections have rotary positions.
    ///
    /// ```
    /// use retrograd::nn::attention::{HeadSizes, Mask, Projections, ShawAttention};
    /// use retrograd::prelude::*;
    /// let mut rng = Rng::new(1);
    /// let projections = Projections::<f64>::new(HeadSizes::new(8, 2), &mut rng);
    /// let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let attention = ShawAttention::new(projections, 2, &mut rng);
    /// let y = attention.attend(&x, Mask::causal(), &mut Pass::eval());
    /// assert_eq!(*y.shape(), [1, 4, 8]);
    /// ```
    #[track_caller]
    pub fn attend(&self, x: &Var<T>, spec: impl Into<Spec<T>>, pass: &mut Pass) -> Var<T> {
        let p = &self.projections;
        p.reject_rope(NAME, REASON);
        let [q, k, v] = p.qkv(x, &mut Past::none(), pass);
        let farthest = (self.relative_keys.shape()[0] / 2) as isize;
        let index = move |away: isize| (away.clamp(-farthest, farthest) + farthest) as usize;
        let spec = p
            .with_dropout(spec, pass)
            .rule(Rule::relative_products(q.clone(), self.relative_keys.to_var(), index))
            .rule(Rule::relative_values(self.relative_values.to_var(), index));
        p.project_out(&attend(&q, &k, &v, &spec), pass)
    }
}

visits!(ShawAttention: all projections, param relative_keys, param relative_values);

impl<T: Real> Layer<T> for ShawAttention<T> {
    #[track_caller]
    fn forward(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        Call::start(self).end(self.attend(x, Spec::new(), pass))
    }
}
