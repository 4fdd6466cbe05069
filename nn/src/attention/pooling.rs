//! Attention with learned queries: a sequence of any length to a fixed number of vectors.

use super::engine::{Spec, attend};
use super::head_projections::{HeadProjections, HeadSizes};
use super::heads::split_heads;
use crate::init::Init;
use crate::module::{Layer, Module, Walk};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::random::Rng;

/// `o = softmax(W_q latents · (W_k x)ᵀ / √D) · W_v x` in several heads, projected.
///
/// `[.., L, width]` to `[.., n, width]`, with work of `O(n · L)`. The order of the sequence does
/// not matter. Parameters: `latents` `[n, width]`, normal with deviation 0.02 at first, and those
/// of [`HeadProjections`]. It is cross-attention from the latents; the core of Perceiver (Jaegle et
/// al. 2021, arXiv 2103.03206) and of pooling by multi-head attention in Set Transformer (Lee et
/// al. 2018, 1810.00825), both of which put a residual, norm and feed-forward layer around it.
#[derive(Clone, Debug)]
pub struct AttentionPool<T: Real = f32> {
    /// What asks, `[n, width]`.
    pub latents: Param<T>,
    /// The projections.
    pub proj: HeadProjections<T>,
}

impl<T: Real> AttentionPool<T> {
    /// To `n` vectors. Latents have no positions, so that keys must have none.
    ///
    /// # Panics
    /// If the projections have rotary positions.
    #[track_caller]
    pub fn new(proj: HeadProjections<T>, n: usize, rng: &mut Rng) -> Self {
        assert!(proj.rope().is_none(), "attention pool: latents have no positions to rotate");
        let latents = Init::Normal { std: 0.02 }.sample([n, proj.sizes().width], rng);
        AttentionPool { latents: Param::new(latents), proj }
    }

    /// The vectors for `x` `[.., L, width]`; padding is masked by the spec.
    ///
    /// # Panics
    /// If the last axis of `x` is not the width, or the spec does not fit.
    #[track_caller]
    pub fn forward(&self, x: &Var<T>, spec: &Spec<T>, pass: &mut Pass) -> Var<T> {
        let HeadSizes { heads, key_heads, .. } = self.proj.sizes();
        let k = split_heads(&self.proj.k_proj.forward(x, pass), key_heads);
        let v = split_heads(&self.proj.v_proj.forward(x, pass), key_heads);
        let q = split_heads(&self.proj.q_proj.forward(&self.latents.var(), pass), heads);
        let mut dims = x.shape()[..x.rank() - 2].to_vec();
        dims.extend(q.shape().iter());
        self.proj.out(&attend(&q.broadcast_to(&dims[..]), &k, &v, spec), pass)
    }
}

impl<T: Real> Module<T> for AttentionPool<T> {
    fn walk(&self, w: &mut Walk<'_, T>) {
        w.param("latents", &self.latents);
        self.proj.walk(w);
    }
}
