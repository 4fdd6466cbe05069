//! Multi-head attention as a list of single-head layers.

use super::self_attention::SelfAttention;
use crate::attention::engine::Spec;
use crate::linear::Linear;
use crate::module::{Call, Layer, Module, Visitor};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::random::Rng;

/// The axis along which the outputs of heads are concatenated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Concat {
    /// The last axis: `[.., L, H·d_v]`, as in multi-head attention.
    #[default]
    Features,
    /// The first axis: `[H·L, d_v]`, or `[H·B, L, d_v]`, as `torch.cat(heads)` without an axis. The
    /// outputs of the heads for one token are then in different rows, and no projection combines
    /// them.
    First,
}

/// `H` separate [`SelfAttention`] heads, whose outputs are concatenated and optionally projected.
///
/// ```text
/// o = concat(head_0(x), .., head_H-1(x)) [· W_outᵀ + b]
/// ```
///
/// `[L, d_in]` or `[B, L, d_in]` to `[.., L, H·d_v]` ([`Concat::Features`]) or with the first
/// axis `H` times as long ([`Concat::First`]); with a projection, the last axis is its width.
/// It equals [`MultiHeadAttention`](crate::attention::MultiHeadAttention) with the weights of the
/// heads stacked into one matrix, with the same work `O(L² H (d_k + d_v))`, but is slower, since
/// each head has small matrix multiplications of its own. With one head it is [`SelfAttention`].
///
/// Parameters: the heads as `heads.0`, `heads.1` and so on, and `out_proj`. Vaswani et
/// al. 2017 (arXiv 1706.03762), by its formula.
///
/// ```
/// use retrograd::nn::attention::{Concat, Mask, MultiHeadWrapper};
/// use retrograd::prelude::*;
///
/// let mut rng = Rng::new(1);
/// let x = Var::constant(Tensor::<f32>::randn([6, 3], &mut rng));
/// let heads = MultiHeadWrapper::new(4, 3, 2, 1, &mut rng);
/// assert_eq!(*heads.forward(&x, Mask::full(), &mut Pass::eval()).shape(), [6, 4]);
/// let below = heads.concat(Concat::First);
/// assert_eq!(*below.forward(&x, Mask::full(), &mut Pass::eval()).shape(), [24, 1]);
/// ```
#[derive(Clone, Debug)]
pub struct MultiHeadWrapper<T: Real = f32> {
    /// The heads.
    pub heads: Vec<SelfAttention<T>>,
    /// The axis of concatenation.
    pub concat: Concat,
    /// The output projection.
    pub out_proj: Option<Linear<T>>,
}

impl<T: Real> MultiHeadWrapper<T> {
    /// A layer of `heads` heads, without biases and without an output projection.
    ///
    /// # Panics
    /// If `heads` is 0.
    #[track_caller]
    pub fn new(heads: usize, d_in: usize, d_k: usize, d_v: usize, rng: &mut Rng) -> Self {
        Self::from_heads((0..heads).map(|_| SelfAttention::new(d_in, d_k, d_v, rng)).collect())
    }

    /// A layer of these heads.
    ///
    /// # Panics
    /// If there are none.
    #[track_caller]
    pub fn from_heads(heads: Vec<SelfAttention<T>>) -> Self {
        assert(!heads.is_empty(), "attention", ErrorKind::Value, || {
            "needs at least 1 head, got 0".into()
        });
        MultiHeadWrapper { heads, concat: Concat::Features, out_proj: None }
    }

    /// Sets the axis of concatenation.
    pub fn concat(mut self, concat: Concat) -> Self {
        self.concat = concat;
        self
    }

    /// Sets the output projection.
    pub fn project(mut self, out_proj: Linear<T>) -> Self {
        self.out_proj = Some(out_proj);
        self
    }

    /// Attends under a [`Mask`](crate::attention::Mask), or by a whole [`Spec`], the same for each
    /// head.
    ///
    /// # Panics
    /// If the last axis of `x` is not `d_in`, or the mask does not match the sizes.
    #[track_caller]
    pub fn forward(&self, x: &Var<T>, spec: impl Into<Spec<T>>, pass: &mut Pass) -> Var<T> {
        let call = Call::start(self);
        let spec = spec.into();
        let parts: Vec<Var<T>> = self.heads.iter().map(|h| h.forward(x, &spec, pass)).collect();
        call.end(self.join(&parts, pass))
    }

    /// The output and the weights `[.., H, L, L]`, before dropout.
    #[track_caller]
    pub fn forward_with_weights(
        &self,
        x: &Var<T>,
        spec: impl Into<Spec<T>>,
        pass: &mut Pass,
    ) -> (Var<T>, Var<T>) {
        let spec = spec.into();
        let run = |h: &SelfAttention<T>| h.forward_with_weights(x, &spec, pass);
        let (parts, weights): (Vec<_>, Vec<_>) = self.heads.iter().map(run).unzip();
        let weights: Vec<&Var<T>> = weights.iter().collect();
        (self.join(&parts, pass), Var::stack(&weights, -3))
    }

    #[track_caller]
    fn join(&self, parts: &[Var<T>], pass: &mut Pass) -> Var<T> {
        let axis = match self.concat {
            Concat::Features => -1,
            Concat::First => 0,
        };
        let joined = Var::cat(&parts.iter().collect::<Vec<_>>(), axis);
        match &self.out_proj {
            Some(out_proj) => out_proj.forward(&joined, pass),
            None => joined,
        }
    }
}

impl<T: Real> Module<T> for MultiHeadWrapper<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        v.list("heads", &self.heads);
        if let Some(out_proj) = &self.out_proj {
            v.module("out_proj", out_proj);
        }
    }
}
