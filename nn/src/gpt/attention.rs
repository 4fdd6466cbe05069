//! Attention in a model: the trait, and variants as its implementations.

use crate::attention::{Bias, Buckets, Capture, Incremental, Mask, Past, Rule, Spec};
use crate::dropout::Dropout;
use crate::module::{Layer, Module, Visitor};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use std::sync::Arc;

/// Causal self-attention as a part of a model: the output at a position depends on the inputs up to it.
///
/// An [`Incremental`] variant is one by [`attention_layer`]. A type of your own implements
/// [`CausalAttention::run`] and is given to [`Gpt::with_attention`](crate::Gpt::with_attention).
///
/// ```
/// use retrograd::nn::{CausalAttention, LayerCx};
/// use retrograd::prelude::*;
/// use std::sync::Arc;
///
/// /// The mean of all inputs so far, projected.
/// struct RunningMean(Linear);
///
/// impl Module for RunningMean {
///     fn visit(&self, v: &mut Visitor<'_, f32>) {
///         v.module("proj", &self.0);
///     }
/// }
///
/// impl CausalAttention for RunningMean {
///     fn run(&self, x: &Var, cx: &mut LayerCx<'_>) -> Var {
///         let counts = Tensor::from_fn([x.size(-2), 1], |i| (i[0] + 1) as f32);
///         let mean = x.cumsum(-2) / &Var::constant(counts);
///         retrograd::nn::Layer::forward(&self.0, &mean, cx.pass)
///     }
/// }
///
/// let config = GptConfig { vocab: 10, context: 8, layers: 2, heads: 2, width: 16, ..Default::default() };
/// let model = Gpt::with_attention(config, &mut Rng::new(1), |_, rng| {
///     Arc::new(RunningMean(Linear::new(16, 16, rng)))
/// });
/// let logits = model.unwrap().forward(&Tensor::from([[1i64, 2, 3]]), &mut Pass::eval());
/// assert_eq!(*logits.shape(), [1, 3, 10]);
/// ```
pub trait CausalAttention<T: Real = f32>: Module<T> {
    /// The output for `x` `[B, L, width]`, which follows the tokens in `cx.past`.
    fn run(&self, x: &Var<T>, cx: &mut LayerCx<'_, T>) -> Var<T>;

    /// `residual + self.run(x, cx)`.
    fn run_add(&self, x: &Var<T>, residual: &Var<T>, cx: &mut LayerCx<'_, T>) -> Var<T> {
        residual + &self.run(x, cx)
    }

    /// Whether [`CausalAttention::run`] uses `cx.past`. A model with a layer that does not recomputes
    /// the whole sequence for each new token.
    fn is_cached(&self) -> bool {
        false
    }

    /// Whether a cache that drops old keys may be used: every key may be dropped once it is `context`
    /// tokens old. See [`BeyondContext::Rolling`](crate::BeyondContext::Rolling).
    fn can_roll(&self) -> bool {
        self.is_cached()
    }
}

/// The context of a layer in a forward pass of a model.
#[derive(Debug)]
pub struct LayerCx<'a, T: Real = f32> {
    /// The mode, and the randomness of dropout.
    pub pass: &'a mut Pass,
    /// The tokens before the call.
    pub past: Past<'a, T>,
    /// The values of the first layer, which [`AttentionKind::ValueResidual`] mixes into the
    /// values of other layers.
    ///
    /// [`AttentionKind::ValueResidual`]: crate::AttentionKind::ValueResidual
    pub first_values: &'a mut Option<Var<T>>,
    /// Collects attention weights, if they are requested.
    pub capture: Option<&'a Capture<T>>,
}

impl<T: Real> LayerCx<'_, T> {
    /// A causal [`Spec`] for this call.
    #[track_caller]
    pub fn spec(&self) -> Spec<T> {
        let spec = match self.past.positions() {
            Some(positions) => Spec::new().with_cache(positions),
            None => Spec::new(),
        };
        let spec = match self.capture {
            Some(capture) => spec.capture(capture),
            None => spec,
        };
        spec.causal()
    }
}

/// An [`Incremental`] variant as a layer of a model, with the causal mask, for
/// [`Gpt::with_attention`](crate::Gpt::with_attention).
pub fn attention_layer<T: Real, A: Incremental<T> + 'static>(
    attention: A,
) -> Arc<dyn CausalAttention<T>> {
    Arc::new(Variant {
        inner: attention,
        run: run_incremental,
        caching: Caching::Rolling,
        scores: Scores::default(),
        dropout: Dropout::new(0.0),
        type_name: None,
    })
}

/// What a configuration adds to the scores of a layer.
#[derive(Clone, Debug)]
pub(super) struct Scores<T: Real> {
    pub window: Option<usize>,
    pub bias: ScoreBias<T>,
}

impl<T: Real> Default for Scores<T> {
    fn default() -> Self {
        Scores { window: None, bias: ScoreBias::None }
    }
}

/// A bias of positions.
#[derive(Clone, Debug)]
pub(super) enum ScoreBias<T: Real> {
    None,
    /// With this number of heads.
    Alibi(usize),
    /// A table `[H, buckets]`.
    T5(Param<T>, Buckets),
}

impl<T: Real> Scores<T> {
    fn apply(&self, spec: Spec<T>) -> Spec<T> {
        let spec = match self.window {
            Some(n) => spec.mask(Mask::window(n, 0)),
            None => spec,
        };
        match &self.bias {
            ScoreBias::None => spec,
            ScoreBias::Alibi(heads) => spec.bias(Bias::alibi(*heads)),
            ScoreBias::T5(table, buckets) => spec.rule(Rule::buckets(table.to_var(), *buckets)),
        }
    }
}

/// [`Incremental::run`] and similar functions.
pub(super) type Run<M, T> = fn(&M, &Var<T>, &Spec<T>, &mut LayerCx<'_, T>) -> Var<T>;

#[track_caller]
pub(super) fn run_incremental<T: Real, A: Incremental<T>>(
    m: &A,
    x: &Var<T>,
    spec: &Spec<T>,
    cx: &mut LayerCx<'_, T>,
) -> Var<T> {
    m.run(x, spec, &mut cx.past, cx.pass)
}

/// The caches that a variant supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caching {
    /// None: the variant computes whole sequences only.
    None,
    /// A cache of the whole sequence: the mask depends on positions in the context.
    Whole,
    /// A cache that drops old keys, too.
    Rolling,
}

/// A variant as a layer.
pub(super) struct Variant<M, T: Real> {
    pub inner: M,
    pub run: Run<M, T>,
    pub caching: Caching,
    pub scores: Scores<T>,
    /// Dropout of the output.
    pub dropout: Dropout,
    /// The name of the variant, if `inner` is only a part of it.
    pub type_name: Option<&'static str>,
}

impl<T: Real, M: Module<T>> Module<T> for Variant<M, T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        self.inner.visit(v);
        if let ScoreBias::T5(table, _) = &self.scores.bias {
            v.param("relative_attention_bias", table);
        }
    }
    fn type_name(&self) -> &'static str {
        self.type_name.unwrap_or_else(|| self.inner.type_name())
    }
}

impl<T: Real, M: Module<T>> CausalAttention<T> for Variant<M, T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, cx: &mut LayerCx<'_, T>) -> Var<T> {
        let spec = self.scores.apply(cx.spec());
        let y = (self.run)(&self.inner, x, &spec, cx);
        self.dropout.forward(&y, cx.pass)
    }

    fn is_cached(&self) -> bool {
        self.caching != Caching::None
    }

    fn can_roll(&self) -> bool {
        self.caching == Caching::Rolling
    }
}
