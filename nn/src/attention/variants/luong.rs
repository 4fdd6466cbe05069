//! Luong attention: four scores, global and local.

use crate::attention::engine::product::{mix, scores};
use crate::attention::engine::{Align, Mask, Part, Spec, attend, attend_all};
use crate::attention::parts::scores::{additive_scores, attend_by_scores, hidden_weights};
use crate::init::Init;
use crate::linear::Linear;
use crate::module::{Call, Layer, Module, Visitor, visits};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

/// The score of a source position for a target state: [`LuongDot`], [`LuongGeneral`],
/// [`LuongConcat`] or [`LuongLocation`].
pub trait LuongScore<T: Real>: Module<T> {
    /// Scores `[.., Lt, Ls]` of targets `[.., Lt, d_t]` and sources `[.., Ls, d_s]`.
    fn score(&self, targets: &Var<T>, sources: &Var<T>) -> Var<T>;
}

/// `h_tᵀ h_s`; no parameters. Scaled dot-product attention with scale 1 has this score.
#[derive(Clone, Copy, Debug, Default)]
pub struct LuongDot;

impl<T: Real> Module<T> for LuongDot {
    fn visit(&self, _: &mut Visitor<'_, T>) {}
}

impl<T: Real> LuongScore<T> for LuongDot {
    #[track_caller]
    fn score(&self, targets: &Var<T>, sources: &Var<T>) -> Var<T> {
        scores(targets, sources)
    }
}

/// `h_tᵀ W h_s`; with `W = 1` it is [`LuongDot`]. Parameter: `weight` `[d_t, d_s]`.
#[derive(Clone, Debug)]
pub struct LuongGeneral<T: Real = f32> {
    /// `W`
    pub weight: Param<T>,
}

impl<T: Real> LuongGeneral<T> {
    /// A score for targets and sources of these widths.
    #[track_caller]
    pub fn new(target_width: usize, source_width: usize, rng: &mut Rng) -> Self {
        LuongGeneral {
            weight: Param::new(Init::TorchLinear.sample([target_width, source_width], rng)),
        }
    }
}

visits!(LuongGeneral: param weight);

impl<T: Real> LuongScore<T> for LuongGeneral<T> {
    #[track_caller]
    fn score(&self, targets: &Var<T>, sources: &Var<T>) -> Var<T> {
        scores(&targets.matmul(&self.weight.to_var()), sources)
    }
}

/// `vᵀ tanh(W [h_t; h_s])`: the score of [`AdditiveAttention`](crate::attention::AdditiveAttention)
/// without `b`, where `W` is the concatenation of its `W` and `U`. Parameters: `weight`
/// `[a, d_t + d_s]`, `v` `[a]`.
#[derive(Clone, Debug)]
pub struct LuongConcat<T: Real = f32> {
    /// `W`
    pub weight: Param<T>,
    /// `v`
    pub v: Param<T>,
}

impl<T: Real> LuongConcat<T> {
    /// A score for targets and sources of these widths, with `hidden` units.
    #[track_caller]
    pub fn new(target_width: usize, source_width: usize, hidden: usize, rng: &mut Rng) -> Self {
        LuongConcat {
            weight: Param::new(
                Init::TorchLinear.sample([hidden, target_width + source_width], rng),
            ),
            v: hidden_weights(hidden, rng),
        }
    }
}

visits!(LuongConcat: param weight, param v);

impl<T: Real> LuongScore<T> for LuongConcat<T> {
    #[track_caller]
    fn score(&self, targets: &Var<T>, sources: &Var<T>) -> Var<T> {
        // W [h_t; h_s] = W_t h_t + W_s h_s: the concatenations, of size Lt · Ls, are never built.
        let by = self.weight.to_var().split(-1, &[targets.size(-1), sources.size(-1)]);
        let of = |x: &Var<T>, w: &Var<T>| x.matmul(&w.t());
        additive_scores(&of(targets, &by[0]), &of(sources, &by[1]), &self.v.to_var())
    }
}

/// `W h_t`, a score for each source position that does not depend on the source. Parameter:
/// `weight` `[longest source, d_t]`; shorter sources use its first rows.
#[derive(Clone, Debug)]
pub struct LuongLocation<T: Real = f32> {
    /// `W`
    pub weight: Param<T>,
}

impl<T: Real> LuongLocation<T> {
    /// A score for targets of this width and sources of up to `longest` positions.
    #[track_caller]
    pub fn new(target_width: usize, longest: usize, rng: &mut Rng) -> Self {
        LuongLocation { weight: Param::new(Init::TorchLinear.sample([longest, target_width], rng)) }
    }
}

visits!(LuongLocation: param weight);

impl<T: Real> LuongScore<T> for LuongLocation<T> {
    /// # Panics
    /// If the source has more than `longest` positions.
    #[track_caller]
    fn score(&self, targets: &Var<T>, sources: &Var<T>) -> Var<T> {
        let (longest, ls) = (self.weight.shape()[0], sources.size(-2));
        assert(ls <= longest, "LuongLocation", ErrorKind::Mismatch, || {
            format!("a source of {ls} positions, made for {longest}")
        });
        targets.matmul(&self.weight.to_var().narrow(0, 0, ls).t())
    }
}

/// Luong attention: global attention and the attentional output.
///
/// ```text
/// w_t = softmax_s(score(h_t, h_s), masked)
/// c_t = Σ_s w_ts h_s
/// h̃_t = tanh(W_c [c_t; h_t])
/// ```
///
/// Targets `[Lt, d_t]` or `[B, Lt, d_t]` and sources `[.., Ls, d_s]` to `[.., Lt, d_t]`; the work
/// is `O(Lt Ls d)`. Parameters: as `score`, and `combine` (`W_c`) `[d_t, d_s + d_t]`. Luong,
/// Pham, Manning 2015 (arXiv 1508.04025).
#[derive(Clone, Debug)]
pub struct LuongAttention<T: Real, S> {
    /// The score.
    pub score: S,
    /// `W_c`
    pub combine: Linear<T>,
}

impl<T: Real, S: LuongScore<T>> LuongAttention<T, S> {
    /// A layer with a score for targets and sources of these widths.
    #[track_caller]
    pub fn new(score: S, target_width: usize, source_width: usize, rng: &mut Rng) -> Self {
        let combine = Linear::without_bias(source_width + target_width, target_width, rng);
        LuongAttention { score, combine }
    }

    /// The contexts `c`, `[.., Lt, d_s]`.
    ///
    /// # Panics
    /// If the shapes do not match each other or the mask.
    ///
    /// ```
    /// use retrograd::nn::attention::{LuongAttention, LuongDot, Spec};
    /// use retrograd::prelude::*;
    /// let mut rng = Rng::new(1);
    /// let targets = Var::constant(Tensor::<f64>::randn([4, 8], &mut rng));
    /// let sources = Var::constant(Tensor::<f64>::randn([6, 8], &mut rng));
    /// let attention = LuongAttention::<f64, _>::new(LuongDot, 8, 8, &mut rng);
    /// let one = sources.narrow(0, 0, 1); // a single source
    /// let context = attention.context(&targets, &one, Spec::new());
    /// assert!((context - &one).value().abs().max(..).item() < 1e-12);
    /// ```
    #[track_caller]
    pub fn context(&self, targets: &Var<T>, sources: &Var<T>, spec: impl Into<Spec<T>>) -> Var<T> {
        let spec = spec.into();
        attend_by_scores(
            attend,
            &Call::start(&self.score).end(self.score.score(targets, sources)),
            sources,
            &spec,
        )
    }

    /// The attentional outputs `h̃`, `[.., Lt, d_t]`.
    #[track_caller]
    pub fn forward(
        &self,
        targets: &Var<T>,
        sources: &Var<T>,
        spec: impl Into<Spec<T>>,
        pass: &mut Pass,
    ) -> Var<T> {
        Call::start(self).end(self.output(&self.context(targets, sources, spec), targets, pass))
    }

    fn output(&self, context: &Var<T>, targets: &Var<T>, pass: &mut Pass) -> Var<T> {
        self.combine.forward(&Var::cat(&[context, targets], -1), pass).tanh()
    }
}

impl<T: Real, S: LuongScore<T>> Module<T> for LuongAttention<T, S> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        v.module("score", &self.score);
        v.module("combine", &self.combine);
    }
}

/// Local attention with monotonic windows (local-m): target `t` attends to the sources from `t - D`
/// to `t + D`. It equals [`LuongAttention`] for `D >= max(Lt, Ls)`.
#[derive(Clone, Debug)]
pub struct LuongLocalM<T: Real, S> {
    /// Score and output.
    pub attention: LuongAttention<T, S>,
    /// `D`
    pub reach: usize,
}

impl<T: Real, S: LuongScore<T>> LuongLocalM<T, S> {
    /// A layer with windows of `2 · reach + 1` sources.
    pub fn new(attention: LuongAttention<T, S>, reach: usize) -> Self {
        LuongLocalM { attention, reach }
    }

    /// The attentional outputs, `[.., Lt, d_t]`.
    ///
    /// # Panics
    /// If shapes do not fit one another or the mask, or the spec has an alignment.
    #[track_caller]
    pub fn forward(
        &self,
        targets: &Var<T>,
        sources: &Var<T>,
        spec: impl Into<Spec<T>>,
        pass: &mut Pass,
    ) -> Var<T> {
        let call = Call::start(self);
        let (window, spec) = (Mask::window(self.reach, self.reach), spec.into());
        spec.reject("LuongLocalM", Part::Align);
        call.end(self.attention.forward(
            targets,
            sources,
            spec.mask(window).align(Align::TopLeft),
            pass,
        ))
    }
}

impl<T: Real, S: LuongScore<T>> Module<T> for LuongLocalM<T, S> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        self.attention.visit(v);
    }
}

/// Local attention with predicted windows (local-p).
///
/// ```text
/// p_t = S · σ(v_pᵀ tanh(W_p h_t))                       S the length of the source
/// w_ts = softmax_s(score, |s - p_t| <= D) · exp(-(s - p_t)² / (2σ²))     σ = D / 2
/// ```
///
/// The Gaussian is applied after the softmax, and weights are not normalised again, so they sum to
/// less than 1. The gradient of `p` comes from the Gaussian alone. Sources are counted from 0; a
/// window without a source gives a context of 0.
///
/// Shapes and cost as for [`LuongAttention`], and its parameters, with `position.weight`
/// (`W_p`) `[d_t, d_t]` and `v_p` `[d_t]`.
#[derive(Clone, Debug)]
pub struct LuongLocalP<T: Real, S> {
    /// Score and output.
    pub attention: LuongAttention<T, S>,
    /// `W_p`
    pub position: Linear<T>,
    /// `v_p`
    pub v_p: Param<T>,
    /// `D`
    pub reach: usize,
}

impl<T: Real, S: LuongScore<T>> LuongLocalP<T, S> {
    /// A layer with windows of `reach` sources on both sides.
    ///
    /// # Panics
    /// If the reach is 0, for which σ would be 0.
    #[track_caller]
    pub fn new(
        attention: LuongAttention<T, S>,
        target_width: usize,
        reach: usize,
        rng: &mut Rng,
    ) -> Self {
        assert(reach > 0, "LuongLocalP", ErrorKind::Value, || {
            "a reach of 0 leaves no width to its Gaussian".into()
        });
        LuongLocalP {
            attention,
            position: Linear::without_bias(target_width, target_width, rng),
            v_p: hidden_weights(target_width, rng),
            reach,
        }
    }

    /// The predicted position of each target: `p` `[.., Lt, 1]`, for sources of these lengths, one
    /// for each sequence or one for all.
    ///
    /// # Panics
    /// If the number of lengths is neither 1 nor the batch size.
    #[track_caller]
    pub fn positions(&self, targets: &Var<T>, lengths: &[usize], pass: &mut Pass) -> Var<T> {
        let batch = if targets.rank() == 3 { targets.size(0) } else { 1 };
        let valid = lengths.len() == 1 || lengths.len() == batch;
        assert(valid, "LuongLocalP", ErrorKind::Mismatch, || {
            format!("{} lengths for {batch} sequences", lengths.len())
        });
        let column = self.v_p.to_var().unsqueeze(-1);
        let share = self.position.forward(targets, pass).tanh().matmul(&column).sigmoid();
        let mut dims = vec![1; targets.rank()];
        dims[0] = lengths.len();
        let lengths = lengths.iter().map(|&n| T::from_f64(n as f64)).collect();
        share.mul(&Var::constant(Tensor::from_vec(lengths, dims)))
    }

    /// The attentional outputs, `[.., Lt, d_t]`; sources from their length on are masked.
    ///
    /// # Panics
    /// If shapes do not fit one another, or a length is above `Ls`.
    #[track_caller]
    pub fn forward(
        &self,
        targets: &Var<T>,
        sources: &Var<T>,
        lengths: &[usize],
        pass: &mut Pass,
    ) -> Var<T> {
        let call = Call::start(self);
        let p = self.positions(targets, lengths, pass);
        let at = Tensor::from_fn([sources.size(-2)], |i| T::from_f64(i[0] as f64));
        let away = Var::constant(at).sub(&p);
        let reach = T::from_f64(self.reach as f64);
        let near = away.value().abs().le(reach).unsqueeze(-3);
        let near = if near.rank() == 3 { near.unsqueeze(0) } else { near };
        let spec = Spec::new().mask(Mask::keep(&near) & Mask::lengths(lengths));
        let scores =
            Call::start(&self.attention.score).end(self.attention.score.score(targets, sources));
        let weights = |q: &_, k: &_, v: &_, spec: &_| attend_all(q, k, v, spec).weights;
        let weights = attend_by_scores(weights, &scores, &sources.narrow(-1, 0, 0), &spec);
        let sigma = self.reach as f64 / 2.0;
        let bell = (away.square() * T::from_f64(-0.5 / (sigma * sigma))).exp();
        call.end(self.attention.output(&mix(&weights.mul(&bell), sources), targets, pass))
    }
}

impl<T: Real, S: LuongScore<T>> Module<T> for LuongLocalP<T, S> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        self.attention.visit(v);
        v.module("position", &self.position);
        v.param("v_p", &self.v_p);
    }
}
