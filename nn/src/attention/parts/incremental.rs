//! Self-attention that runs on a whole sequence, or on its next tokens with a cache.

use super::cache::KvCache;
use crate::attention::engine::Spec;
use crate::module::Module;
use crate::pass::Pass;
use retrograd_autograd::{Var, no_grad};
use retrograd_tensor::Real;

/// Attention of a sequence to itself, as a whole or continued step by step.
///
/// The [`Spec`] of a call says what belongs to the call: mask, dropout, path. The variant adds
/// its own parts.
pub trait Incremental<T: Real = f32>: Module<T> {
    /// The output for `x` `[.., L, width]` that follows what `past` holds.
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T>;

    /// The output for a whole sequence, `[.., L, width]` to `[.., L, width]`.
    ///
    /// # Panics
    /// If the last axis of `x` is not the width, or the spec does not fit.
    #[track_caller]
    fn forward(&self, x: &Var<T>, spec: &Spec<T>, pass: &mut Pass) -> Var<T> {
        self.run(x, spec, &mut Past::none(), pass)
    }

    /// The output for the next tokens of a sequence, whose earlier keys and values the cache
    /// holds, and then those of `x`, too. Without gradients, in evaluation: a dropout in the
    /// spec has no effect.
    ///
    /// With a causal mask, any division of a sequence into steps gives what
    /// [`Incremental::forward`] gives for the whole, up to rounding. Masks and biases are those
    /// of the whole sequence, by position, also where a cache has dropped keys, as long as they
    /// let none of these be seen. What goes by number of key (dense masks, biases by a tensor)
    /// must fit the keys so far, and is refused once some have been dropped.
    ///
    /// # Panics
    /// As `forward`, or if the cache is too small or was filled by something of other sizes, or
    /// the spec has an alignment: the cache says where queries stand.
    #[track_caller]
    fn forward_cached(&self, x: &Var<T>, spec: &Spec<T>, cache: &mut KvCache<T>) -> Var<T> {
        let spec = spec.with_cache(cache.positions());
        no_grad(|| self.run(x, &spec, &mut Past::cached(cache), &mut Pass::eval()))
    }
}

/// What came before the tokens of a call: nothing, or what a cache holds.
#[derive(Debug)]
pub struct Past<'a, T: Real = f32>(Option<&'a mut KvCache<T>>);

impl<'a, T: Real> Past<'a, T> {
    /// The call has the whole sequence.
    pub fn none() -> Self {
        Past(None)
    }

    /// The call continues this cache. A cache remembers values, not gradients.
    pub(crate) fn cached(cache: &'a mut KvCache<T>) -> Self {
        Past(Some(cache))
    }

    /// The position of the first token of the call.
    pub fn start(&self) -> usize {
        self.0.as_ref().map_or(0, |cache| cache.position())
    }

    /// Keys and values of all tokens, for those of the call.
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
