//! Attention with learned queries: a sequence of any length to a fixed number of vectors.

use crate::attention::engine::{Spec, attend};
use crate::attention::parts::projections::Projections;
use crate::init::Init;
use crate::module::{Call, visits};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::random::Rng;

/// Attention pooling: `o = softmax(W_q latents · (W_k x)ᵀ / √D) · W_v x` in several heads,
/// projected.
///
/// `[.., L, width]` to `[.., n, width]`, with work of `O(n · L)`. The result does not depend on the
/// order of the sequence. Parameters: `latents` `[n, width]`, normal with deviation 0.02 initially,
/// and the parameters of [`Projections`]. It is cross-attention from the latents, and the core of Perceiver
/// (Jaegle et al. 2021, arXiv 2103.03206) and of pooling by multi-head attention in Set Transformer
/// (Lee et al. 2018, 1810.00825), both of which add a residual connection, a norm and a
/// feed-forward layer.
#[derive(Clone, Debug)]
pub struct AttentionPool<T: Real = f32> {
    /// The learned queries before their projection, `[n, width]`.
    pub latents: Param<T>,
    /// The projections.
    pub projections: Projections<T>,
}

const NAME: &str = "attention pool";
const REASON: &str = "latents have no positions";

impl<T: Real> AttentionPool<T> {
    /// A layer with `n` latents. They have no positions, so keys must have none, either.
    ///
    /// # Panics
    /// If the projections have rotary positions.
    #[track_caller]
    pub fn new(projections: Projections<T>, n: usize, rng: &mut Rng) -> Self {
        projections.reject_rope(NAME, REASON);
        let latents = Init::Normal { std: 0.02 }.sample([n, projections.sizes().width], rng);
        AttentionPool { latents: Param::new(latents), projections }
    }

    /// The `n` vectors for `x` `[.., L, width]`; the spec masks padding.
    ///
    /// # Panics
    /// If the last axis of `x` is not the width, the spec does not match, or the projections have
    /// rotary positions.
    ///
    /// ```
    /// use retrograd::nn::attention::{AttentionPool, HeadSizes, Incremental, Mask, Projections, Spec};
    /// use retrograd::prelude::*;
    /// let mut rng = Rng::new(1);
    /// let projections = Projections::<f64>::new(HeadSizes::new(8, 2), &mut rng);
    /// let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let pool = AttentionPool::new(projections, 1, &mut rng);
    /// let spec = Spec::from(Mask::lengths(&[3])); // the last token is padding
    /// assert_eq!(*pool.forward(&x, &spec, &mut Pass::eval()).shape(), [1, 1, 8]);
    /// ```
    #[track_caller]
    pub fn forward(&self, x: &Var<T>, spec: &Spec<T>, pass: &mut Pass) -> Var<T> {
        let call = Call::start(self);
        let p = &self.projections;
        p.reject_rope(NAME, REASON);
        let spec = p.with_dropout(spec, pass);
        let q = p.queries(&self.latents.to_var(), pass);
        let (k, v) = (p.keys(x, pass), p.values(x, pass));
        let mut dims = x.shape()[..x.rank() - 2].to_vec();
        dims.extend(q.shape().iter());
        call.end(p.project_out(&attend(&q.broadcast_to(&dims[..]), &k, &v, &spec), pass))
    }
}

visits!(AttentionPool: param latents, all projections);
