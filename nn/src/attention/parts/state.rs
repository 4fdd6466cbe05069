//! State rules: layers whose memory of earlier tokens is a matrix of constant size for each head.

use super::heads::{join_heads, split_heads};
use crate::attention::engine::Capture;
use crate::attention::engine::observe::stated;
use crate::linear::Linear;
use crate::module::{Call, Layer, Module, visits};
use crate::norm::RmsNorm;
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::{Recurrence, Var};
use retrograd_tensor::error::{ErrorKind, OrPanic, assert};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

/// What a [`StateRule`] keeps of the tokens so far; its size does not depend on their number.
#[derive(Clone, Debug)]
pub struct RecurrentState<T: Real = f32> {
    /// The state `[B, H, Dk, Dv]` of the recurrence.
    matrix: Option<Var<T>>,
    /// The last rows of what each convolution or shift of the layer was given.
    rows: Vec<Var<T>>,
    position: usize,
}

impl<T: Real> Default for RecurrentState<T> {
    fn default() -> Self {
        RecurrentState { matrix: None, rows: Vec::new(), position: 0 }
    }
}

impl<T: Real> RecurrentState<T> {
    /// The state `[B, H, Dk, Dv]` of the recurrence after the last token, unless there was none.
    pub fn matrix(&self) -> Option<&Var<T>> {
        self.matrix.as_ref()
    }

    /// The number of tokens so far.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The state without its graph, for truncated backpropagation between pieces of a sequence.
    pub fn detach(&self) -> Self {
        let matrix = self.matrix.as_ref().map(Var::detach);
        RecurrentState { matrix, rows: self.rows.iter().map(Var::detach).collect(), ..*self }
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        let all = self.rows.iter().chain(&self.matrix);
        all.map(|x| x.value().numel() * size_of::<T>()).sum()
    }
}

/// A call of a [`StateRule`].
#[derive(Debug)]
pub struct StateCx<'a, T: Real = f32> {
    /// The mode, and the randomness of dropout.
    pub pass: &'a mut Pass,
    /// The tokens before the call, and after it those of the call as well.
    pub state: &'a mut RecurrentState<T>,
    /// The values of the first layer of a model, which [`Rwkv7`](crate::attention::Rwkv7) mixes into those of others.
    pub first_values: &'a mut Option<Var<T>>,
    /// Which tokens are not padding, `[B, L]`. Padding leaves the state as it is.
    pub keep: Option<&'a Tensor<bool>>,
    /// Collects the [weights](Recurrence::weights) of values in outputs, which are those of whole sequences.
    pub capture: Option<&'a Capture<T>>,
    /// The number of convolutions and shifts of this call so far.
    shifts: usize,
}

impl<'a, T: Real> StateCx<'a, T> {
    /// A call without padding.
    pub fn new(
        pass: &'a mut Pass,
        state: &'a mut RecurrentState<T>,
        first_values: &'a mut Option<Var<T>>,
    ) -> Self {
        StateCx { pass, state, first_values, keep: None, capture: None, shifts: 0 }
    }

    /// `x` `[B, L, C]` after the `n` rows before it: of the call before, or 0 at the beginning of a sequence.
    #[track_caller]
    pub fn with_previous(&mut self, x: &Var<T>, n: usize) -> Var<T> {
        let x = self.filled(x, T::ZERO, |keep| keep.unsqueeze(-1));
        let zeros = || Var::constant(Tensor::zeros([x.size(0), n, x.size(2)]));
        let previous = self.state.rows.get(self.shifts).cloned().unwrap_or_else(zeros);
        let all = Var::cat(&[&previous, &x], 1);
        let last = all.narrow(1, x.size(1), n);
        match self.state.rows.get_mut(self.shifts) {
            Some(rows) => *rows = last,
            None => self.state.rows.push(last),
        }
        self.shifts += 1;
        all
    }

    /// What the queries read, token by token.
    #[track_caller]
    fn read(&mut self, terms: &mut Terms<T>) -> Var<T> {
        terms.recurrence = self.without_padding(terms.recurrence.clone());
        if let Some(capture) = self.capture {
            capture.push(&terms.recurrence.weights());
        }
        stated(&terms.recurrence, self.state.matrix.as_ref());
        let [read, last] = terms.recurrence.run(self.state.matrix.as_ref());
        self.state.matrix = Some(last);
        self.state.position += read.size(2);
        read
    }

    /// `x` with `fill` in place of padding, whose tokens `shape` brings to the axes of `x`.
    fn filled(&self, x: &Var<T>, fill: T, shape: impl Fn(&Tensor<bool>) -> Tensor<bool>) -> Var<T> {
        match self.keep {
            Some(keep) => x.masked_fill(&shape(&!keep), fill),
            None => x.clone(),
        }
    }

    /// A recurrence in which padding adds nothing, removes nothing and does not decay.
    fn without_padding(&self, all: Recurrence<T>) -> Recurrence<T> {
        if self.keep.is_none() {
            return all;
        }
        let filled =
            |x: &Var<T>, fill: T| self.filled(x, fill, |keep| keep.unsqueeze(1).unsqueeze(-1));
        Recurrence {
            decay: all.decay.map(|x| filled(&x.broadcast_to(all.k.shape()), T::ONE)),
            k: filled(&all.k, T::ZERO),
            low_rank: all.low_rank.map(|x| x.each_ref().map(|x| filled(x, T::ZERO))),
            ..all
        }
    }
}

/// What a [`StateRule`] computes from its input.
#[derive(Clone, Debug)]
pub struct Terms<T: Real = f32> {
    /// The vectors of the recurrence.
    pub recurrence: Recurrence<T>,
    /// What the output is multiplied by, or the logits of that.
    pub gate: Option<Var<T>>,
}

/// Causal self-attention by a recurrence: a token changes the state, a matrix for each head, and its output is
/// read from the state. A sequence of any length needs constant memory, and each token constant time.
///
/// A variant says how the vectors of the recurrence follow from its input ([`StateRule::terms`]), and the output from what
/// was read ([`StateRule::output`]). The [`Recurrence`] is computed by one kernel with its derivative; its
/// definition is a loop of ordinary operations ([`Recurrence::steps`]).
///
/// ```
/// use retrograd::nn::attention::{GatedDeltaNet, RecurrentState, StateCx, StateRule, StateSizes};
/// use retrograd::prelude::*;
///
/// let mut rng = Rng::new(1);
/// let rule = GatedDeltaNet::<f64>::new(StateSizes::new(8, 2), &mut rng);
/// let x = Var::constant(Tensor::randn([1, 10, 8], &mut rng));
/// let whole = rule.forward(&x, &mut Pass::eval());
/// // In pieces:
/// let (mut state, mut first) = (RecurrentState::default(), None);
/// for (at, n) in [(0, 7), (7, 1), (8, 2)] {
///     let mut pass = Pass::eval();
///     let y = rule.run(&x.narrow(1, at, n), &mut StateCx::new(&mut pass, &mut state, &mut first));
///     let error = (y - whole.narrow(1, at, n)).abs().sum(..).item();
///     assert!(error < 1e-12);
/// }
/// assert_eq!(state.position(), 10);
/// ```
pub trait StateRule<T: Real = f32>: Module<T> {
    /// The vectors of the recurrence for `x` `[B, L, width]`.
    fn terms(&self, x: &Var<T>, cx: &mut StateCx<'_, T>) -> Terms<T>;

    /// The output `[B, L, width]` for what the queries have read, `[B, H, L, Dv]`.
    fn output(&self, read: &Var<T>, terms: &Terms<T>, pass: &mut Pass) -> Var<T>;

    /// The output for the next tokens `[B, L, width]`.
    ///
    /// # Panics
    /// If the shapes do not match.
    #[track_caller]
    fn run(&self, x: &Var<T>, cx: &mut StateCx<'_, T>) -> Var<T> {
        let x = cx.filled(x, T::ZERO, |keep| keep.unsqueeze(-1));
        cx.shifts = 0;
        let mut terms = self.terms(&x, cx);
        let read = cx.read(&mut terms);
        self.output(&read, &terms, cx.pass)
    }

    /// The output for whole sequences `[B, L, width]`.
    ///
    /// # Panics
    /// If the shapes do not match.
    #[track_caller]
    fn forward(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        assert(x.rank() == 3, "state rule", ErrorKind::Rank, || {
            format!("the input must be [batch, length, width], got {:?}", x.shape())
        });
        let call = Call::start(self);
        let (mut state, mut first) = (RecurrentState::default(), None);
        call.end(self.run(x, &mut StateCx::new(pass, &mut state, &mut first)))
    }
}

/// The sizes of a [`StateRule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSizes {
    /// Width of input and output.
    pub width: usize,
    /// Number of heads.
    pub heads: usize,
    /// Width of queries and keys of a head, the number of rows of its state.
    pub key_width: usize,
    /// Width of values of a head, the number of columns of its state.
    pub value_width: usize,
}

impl StateSizes {
    /// Keys and values of width `width / heads`.
    ///
    /// # Panics
    /// If `heads` does not divide `width`.
    #[track_caller]
    pub fn new(width: usize, heads: usize) -> Self {
        super::heads::check_heads_divide("state rule", width, heads).or_panic();
        StateSizes { width, heads, key_width: width / heads, value_width: width / heads }
    }

    /// The width of the keys of all heads.
    pub(crate) fn keys(self) -> usize {
        self.heads * self.key_width
    }

    /// The width of the values of all heads.
    pub(crate) fn values(self) -> usize {
        self.heads * self.value_width
    }
}

/// A short causal convolution of each channel, and SiLU.
///
/// Parameters, as `nn.Conv1d`: `weight` `[C, 1, K]`, and `bias` `[C]` unless it has none.
#[derive(Clone, Debug)]
pub struct ShortConv<T: Real = f32> {
    /// `[C, 1, K]`
    pub weight: Param<T>,
    /// `[C]`
    pub bias: Option<Param<T>>,
}

impl<T: Real> ShortConv<T> {
    /// Taps for the token and the `taps - 1` before it, without a bias.
    #[track_caller]
    pub fn new(channels: usize, taps: usize, rng: &mut Rng) -> Self {
        let bound = 1.0 / (taps.max(1) as f64).sqrt();
        let weight = Tensor::uniform([channels, 1, taps], -bound, bound, rng);
        ShortConv { weight: Param::new(weight), bias: None }
    }

    /// The output for the next tokens `[B, L, C]`.
    #[track_caller]
    pub fn forward(&self, x: &Var<T>, cx: &mut StateCx<'_, T>) -> Var<T> {
        let call = Call::start(self);
        let taps = self.weight.to_var().squeeze(1).t();
        let y = cx.with_previous(x, taps.size(0) - 1).depthwise_conv1d(&taps);
        call.end(match &self.bias {
            Some(bias) => (y + bias.to_var()).silu(),
            None => y.silu(),
        })
    }
}

visits!(ShortConv: param weight, optional bias);

/// Two linear layers, one after the other.
#[derive(Clone, Debug)]
pub struct LowRank<T: Real = f32> {
    /// To few elements.
    pub down: Linear<T>,
    /// From these.
    pub up: Linear<T>,
}

visits!(LowRank: module down as "0", module up as "1");

impl<T: Real> LowRank<T> {
    #[track_caller]
    pub(crate) fn forward(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        let call = Call::start(self);
        call.end(self.up.forward(&self.down.forward(x, pass), pass))
    }
}

/// `x / √(Σ x² + 1e-6)` over the last axis.
#[track_caller]
pub(crate) fn unit<T: Real>(x: &Var<T>) -> Var<T> {
    let n = x.size(-1).max(1) as f64;
    x.rms_norm(None, 1e-6 / n) / T::from_f64(n.sqrt())
}

/// Queries of heads, times `1 / √Dk`.
#[track_caller]
pub(crate) fn scaled<T: Real>(q: &Var<T>) -> Var<T> {
    q / T::from_f64((q.size(-1).max(1) as f64).sqrt())
}

/// Numbers of heads `[B, L, H]` as `[B, H, L, 1]`.
#[track_caller]
pub(crate) fn per_head<T: Real>(x: &Var<T>) -> Var<T> {
    x.t().unsqueeze(-1)
}

/// The RMS norm of what each head has read, times the activation of the gate `[B, L, H·Dv]`, with the heads joined.
#[track_caller]
pub(crate) fn gated<T: Real>(
    read: &Var<T>,
    norm: &RmsNorm<T>,
    terms: &Terms<T>,
    activation: fn(&Var<T>) -> Var<T>,
    pass: &mut Pass,
) -> Var<T> {
    let gate = terms.gate.as_ref().expect("by `terms`");
    let gate = activation(&split_heads(gate, read.size(1)));
    join_heads(&norm.forward(read, pass).mul(&gate))
}
