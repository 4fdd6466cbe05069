//! Attention that need not attend: sinks, which take weight and give nothing.
//!
//! Weights that must sum to 1 have to go somewhere when nothing fits; models learn to send
//! them to the first token. A sink takes them instead.

use crate::attention::engine::{Mask, Part, Sink, Spec};
use crate::attention::parts::incremental::{Incremental, Past};
use crate::attention::parts::projections::Projections;
use crate::module::{Module, Visitor};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::{Real, Tensor};

/// `w_ij = e^(s_ij) / (e^(sink_h) + Σ_j e^(s_ij))`: a learned logit per head in the sum.
///
/// `[.., L, width]` to `[.., L, width]`, in `O(L² · H D)` and the work of the projections.
/// Parameters: those of [`Projections`], and `sinks` `[heads]`, 0 at first. With sinks of -∞ it is
/// attention without one, with 0 it is [`QuietAttention`]. OpenAI 2025, gpt-oss (arXiv 2508.10925).
#[derive(Clone, Debug)]
pub struct SinkAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
    /// The logits, `[heads]`.
    pub sinks: Param<T>,
}

impl<T: Real> SinkAttention<T> {
    /// With logits of 0.
    #[track_caller]
    pub fn new(projections: Projections<T>) -> Self {
        let sinks = Param::new(Tensor::zeros([projections.sizes().heads]));
        SinkAttention { projections, sinks }
    }
}

impl<T: Real> Module<T> for SinkAttention<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        self.projections.visit(v);
        v.param("sinks", &self.sinks);
    }
}

impl<T: Real> Incremental<T> for SinkAttention<T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T> {
        spec.reject("SinkAttention", Part::Sink);
        let spec = spec.clone().sink(Sink::Learned(self.sinks.to_var()));
        self.projections.attend(x, spec, past, pass)
    }
}

/// `w_ij = e^(s_ij) / (1 + Σ_j e^(s_ij))`: "softmax plus one", or "off by one".
///
/// `[.., L, width]` to `[.., L, width]`, in `O(L² · H D)` and the work of the projections.
/// Parameters: those of [`Projections`]. The same as one more key and value of zeros that everyone
/// sees ([`attend_with_memory`](crate::attention::attend_with_memory)). Miller 2023, "Attention is off by
/// one".
#[derive(Clone, Debug)]
pub struct QuietAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
}

impl<T: Real> QuietAttention<T> {
    /// Over these projections.
    pub fn new(projections: Projections<T>) -> Self {
        QuietAttention { projections }
    }
}

impl<T: Real> Module<T> for QuietAttention<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        self.projections.visit(v);
    }
}

impl<T: Real> Incremental<T> for QuietAttention<T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T> {
        spec.reject("QuietAttention", Part::Sink);
        self.projections.attend(x, spec.clone().sink(Sink::Zero), past, pass)
    }
}

/// Attention to the first tokens, which serve as sinks, and to a causal window.
///
/// Query `p` sees keys `j < first` and `p - left <= j <= p`, whatever else the spec masks.
/// `[.., L, width]` to `[.., L, width]`; the work is linear in `L`, and a
/// [`KvCache::streaming`](crate::attention::KvCache::streaming) cache of `(first, left)` has constant
/// size for a stream without end. Parameters: those of [`Projections`]. With `left >= L` it is
/// causal attention, with `first` 0 a sliding window. Positions are those in the text (the
/// paper counts rotary positions in the cache). Xiao et al. 2023 (arXiv 2309.17453).
#[derive(Clone, Debug)]
pub struct StreamingAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
    /// How many first tokens stay visible.
    pub first: usize,
    /// How many tokens before its own a query sees.
    pub left: usize,
}

impl<T: Real> StreamingAttention<T> {
    /// With so many first tokens and so many before each.
    pub fn new(projections: Projections<T>, first: usize, left: usize) -> Self {
        StreamingAttention { projections, first, left }
    }

    /// Which keys a query sees.
    pub fn mask(&self) -> Mask {
        Mask::causal() & (Mask::first(self.first) | Mask::window(self.left, 0))
    }
}

impl<T: Real> Module<T> for StreamingAttention<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        self.projections.visit(v);
    }
}

impl<T: Real> Incremental<T> for StreamingAttention<T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T> {
        self.projections.attend(x, spec.clone().mask(self.mask()), past, pass)
    }
}
