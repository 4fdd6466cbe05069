//! Self-attention on a whole sequence, or on its next tokens with a cache.

use super::cache::KvCache;
use super::state::RecurrentState;
use crate::attention::engine::{CachedPositions, Spec};
use crate::module::{Call, Module};
use crate::pass::Pass;
use retrograd_autograd::{Var, no_grad};
use retrograd_tensor::Real;

/// Self-attention on a whole sequence, or step by step with a cache.
///
/// The [`Spec`] of a call contains what depends on the call: mask, dropout, path. The variant adds
/// its own parts.
pub trait Incremental<T: Real = f32>: Module<T> {
    /// The output for `x` `[.., L, width]`, which follows the tokens in `past`.
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T>;

    /// The output for a whole sequence, `[.., L, width]` to `[.., L, width]`, under a
    /// [`Mask`](crate::attention::Mask) or by a whole [`Spec`].
    ///
    /// # Panics
    /// If the last axis of `x` is not the width, or the spec does not match the sizes.
    #[track_caller]
    fn forward(&self, x: &Var<T>, spec: impl Into<Spec<T>>, pass: &mut Pass) -> Var<T>
    where
        Self: Sized,
    {
        self.forward_dyn(x, &spec.into(), pass)
    }

    /// [`Incremental::forward`] of a variant that is chosen when the program runs.
    ///
    /// ```
    /// use retrograd::nn::attention::{HeadSizes, Incremental, Projections, Spec};
    /// use retrograd::prelude::*;
    /// let mut rng = Rng::new(1);
    /// let variant: Box<dyn Incremental> = Box::new(Projections::new(HeadSizes::new(8, 2), &mut rng));
    /// let x = Var::constant(Tensor::randn([3, 8], &mut rng));
    /// let y = variant.forward_dyn(&x, &Spec::new().causal(), &mut Pass::eval());
    /// assert_eq!(*y.shape(), [3, 8]);
    /// ```
    ///
    /// # Panics
    /// As `forward`.
    #[track_caller]
    fn forward_dyn(&self, x: &Var<T>, spec: &Spec<T>, pass: &mut Pass) -> Var<T> {
        Call::start(self).end(self.run(x, spec, &mut Past::none(), pass))
    }

    /// The output for the next tokens `x` of a sequence. The cache contains the keys and values of
    /// earlier tokens, to which it appends the keys and values of `x`. Without gradients, in evaluation: dropout in
    /// the spec has no effect.
    ///
    /// With a causal mask, any division of a sequence into steps gives the outputs of
    /// [`Incremental::forward`] on the whole sequence, up to rounding. Masks and biases are
    /// functions of positions in the whole sequence, even after a cache has dropped keys, which
    /// must then be masked. Dense masks and biases from tensors are indexed by key: their size
    /// must be the number of the keys so far, and they are rejected once keys have been dropped.
    ///
    /// # Panics
    /// As `forward`, or if the cache is too small or contains keys of other sizes, or if the spec
    /// has an alignment: the cache determines the positions of the queries.
    #[track_caller]
    fn forward_cached(&self, x: &Var<T>, spec: &Spec<T>, cache: &mut KvCache<T>) -> Var<T> {
        let spec = spec.with_cache(cache.positions());
        no_grad(|| self.run(x, &spec, &mut Past::cached(cache), &mut Pass::eval()))
    }
}

/// The tokens before a call: none, or the tokens in a cache.
#[derive(Debug)]
pub struct Past<'a, T: Real = f32>(Option<&'a mut KvCache<T>>);

impl<'a, T: Real> Past<'a, T> {
    /// No earlier tokens: the call has the whole sequence.
    pub fn none() -> Self {
        Past(None)
    }

    /// The tokens in a cache, which stores values without gradients.
    pub(crate) fn cached(cache: &'a mut KvCache<T>) -> Self {
        Past(Some(cache))
    }

    /// The position of the first token of the call.
    pub fn start(&self) -> usize {
        self.0.as_ref().map_or(0, |cache| cache.position())
    }

    /// The positions of the keys in the cache, if there is one.
    pub(crate) fn positions(&self) -> Option<CachedPositions> {
        self.0.as_ref().map(|cache| cache.positions())
    }

    /// The state that the cache has of a layer without keys, for `new` more tokens; `None` without a cache.
    #[track_caller]
    pub(crate) fn state(&mut self, new: usize) -> Option<&mut RecurrentState<T>> {
        self.0.as_mut().map(|cache| cache.state(new))
    }

    /// The keys and values of all tokens, given the ones of the call.
    #[track_caller]
    pub fn extend(&mut self, k: &Var<T>, v: &Var<T>) -> (Var<T>, Var<T>) {
        match &mut self.0 {
            None => (k.clone(), v.clone()),
            Some(cache) => {
                let (k, v) = cache.append(k.value(), v.value());
                (Var::constant(k), Var::constant(v))
            }
        }
    }
}
