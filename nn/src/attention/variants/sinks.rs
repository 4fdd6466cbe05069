//! Attention sinks: logits in the denominator of the softmax, without a value.
//!
//! Weights of a softmax sum to 1 even where no key is relevant; models then learn to attend to the
//! first token. A sink absorbs this weight.

use crate::attention::engine::{Mask, Part, Sink, Spec};
use crate::attention::parts::incremental::{Incremental, Past};
use crate::attention::parts::projections::Projections;
use crate::module::{Module, Visitor};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::{Real, Tensor};

/// `w_ij = e^(s_ij) / (e^(sink_h) + Σ_j e^(s_ij))`: a learned logit per head in the denominator.
///
/// `[.., L, width]` to `[.., L, width]`, in `O(L² · H D)` and the work of the projections.
/// Parameters: those of [`Projections`], and `sinks` `[heads]`, 0 initially. With sinks of -∞ it is
/// attention without sinks, with 0 it is [`QuietAttention`]. OpenAI 2025, gpt-oss (arXiv
/// 2508.10925).
#[derive(Clone, Debug)]
pub struct SinkAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
    /// The logits, `[heads]`.
    pub sinks: Param<T>,
}

impl<T: Real> SinkAttention<T> {
    /// A layer with logits of 0.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_nn::Pass;
    /// # use retrograd_nn::attention::{HeadSizes, Projections, SinkAttention, Spec, Incremental};
    /// # use retrograd_tensor::Tensor;
    /// # use retrograd_tensor::random::Rng;
    /// # let mut rng = Rng::new(1);
    /// # let projections = Projections::<f64>::new(HeadSizes::new(8, 2), &mut rng);
    /// # let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let attention = SinkAttention::new(projections);
    /// let y = attention.forward(&x, &Spec::new().causal(), &mut Pass::eval());
    /// assert_eq!(*y.shape(), [1, 4, 8]);
    /// ```
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
/// Parameters: those of [`Projections`]. Equal to one more key and value of zeros
/// ([`attend_with_memory`](crate::attention::attend_with_memory)). Miller 2023, "Attention is off
/// by one".
#[derive(Clone, Debug)]
pub struct QuietAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
}

impl<T: Real> QuietAttention<T> {
    /// A layer with these projections.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_nn::Pass;
    /// # use retrograd_nn::attention::{HeadSizes, Projections, QuietAttention, Spec, Incremental};
    /// # use retrograd_tensor::Tensor;
    /// # use retrograd_tensor::random::Rng;
    /// # let mut rng = Rng::new(1);
    /// # let projections = Projections::<f64>::new(HeadSizes::new(8, 2), &mut rng);
    /// # let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let attention = QuietAttention::new(projections);
    /// let y = attention.forward(&x, &Spec::new().causal(), &mut Pass::eval());
    /// assert_eq!(*y.shape(), [1, 4, 8]);
    /// ```
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

/// StreamingLLM attention: to the first tokens, which serve as sinks, and to a causal window.
///
/// Query `p` attends to keys `j < first` and `p - left <= j <= p`, as far as the spec does not mask
/// them. `[.., L, width]` to `[.., L, width]`; the work is linear in `L`, and a
/// [`KvCache::streaming`](crate::attention::KvCache::streaming) cache of `(first, left)` has
/// constant size for a stream of any length. Parameters: those of [`Projections`]. With `left >= L`
/// it is causal attention, with `first` 0 a sliding window. Positions are those in the sequence
/// (the paper counts rotary positions in the cache). Xiao et al. 2023 (arXiv 2309.17453).
#[derive(Clone, Debug)]
pub struct StreamingAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
    /// The number of first tokens that are never masked.
    pub first: usize,
    /// The number of tokens before its own position that a query attends to.
    pub left: usize,
}

impl<T: Real> StreamingAttention<T> {
    /// A layer with `first` first tokens and a window of `left` tokens.
    pub fn new(projections: Projections<T>, first: usize, left: usize) -> Self {
        StreamingAttention { projections, first, left }
    }

    /// The mask of the first tokens and the window.
    ///
    /// ```
    /// # use retrograd_nn::attention::{Align, HeadSizes, Projections, StreamingAttention};
    /// # use retrograd_tensor::random::Rng;
    /// # let mut rng = Rng::new(1);
    /// # let projections = Projections::<f64>::new(HeadSizes::new(8, 2), &mut rng);
    /// let attention = StreamingAttention::new(projections, 1, 1);
    /// let keep = attention.mask().tensor([1, 1, 4, 4], Align::TopLeft);
    /// assert_eq!(keep.select(2, 3).to_vec(), [true, false, true, true]); // the sink and a window
    /// ```
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
