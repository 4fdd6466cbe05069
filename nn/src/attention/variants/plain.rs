//! Dot-product self-attention without parameters.

use crate::module::{Call, Layer, Module, Visitor};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;

use crate::attention::engine::{Spec, attend};

/// `softmax(x · xᵀ) · x` over the tokens of `x` `[.., L, D]`, giving `[.., L, D]`: every token
/// becomes a mean of all tokens, weighted by similarity. There are no parameters and no scale, so
/// the weights of a token with a large norm are nearly one-hot.
///
/// The work is `O(L² D)`. It is [`SelfAttention`](crate::attention::SelfAttention) whose three
/// projections are the identity, times `√D` in the scale.
///
/// Without tokens the result is empty.
///
/// # Panics
/// If `x` has less than 2 axes or more than 4.
///
/// ```
/// use retrograd::nn::attention::plain_self_attention;
/// use retrograd::prelude::*;
///
/// let x = Var::constant(Tensor::from([[1.0f64, 0.0], [0.0, 1.0]]));
/// let y = plain_self_attention(&x).value().to_vec();
/// let e = 1f64.exp();
/// assert!((y[0] - e / (e + 1.0)).abs() < 1e-15 && (y[0] + y[1] - 1.0).abs() < 1e-15);
/// ```
#[track_caller]
pub fn plain_self_attention<T: Real>(x: &Var<T>) -> Var<T> {
    attend(x, x, x, &Spec::new().scale(1.0))
}

/// [`plain_self_attention`] as a layer without parameters. For its weights, call
/// [`attend_all(x, x, x, &Spec::new().scale(1.0))`](crate::attention::attend_all).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlainSelfAttention;

impl<T: Real> Module<T> for PlainSelfAttention {
    fn visit(&self, _: &mut Visitor<'_, T>) {}
}

impl<T: Real> Layer<T> for PlainSelfAttention {
    #[track_caller]
    fn forward(&self, x: &Var<T>, _: &mut Pass) -> Var<T> {
        Call::start(self).end(plain_self_attention(x))
    }
}
