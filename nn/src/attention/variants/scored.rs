//! Attention whose scores follow a rule with learned operands: slopes, temperatures, forget gates, windows and
//! contextual positions.

use crate::attention::engine::{Rule, Spec, alibi_slopes, attend};
use crate::attention::parts::incremental::{Incremental, Past};
use crate::attention::parts::projections::{HeadSizes, Projections};
use crate::init::Init;
use crate::linear::Linear;
use crate::module::{Layer, Module, Visitor, visits};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

/// Self-attention whose scores follow a learned [`Rule`].
///
/// `[.., L, width]` to the same, in `O(L² · H D)` with memory that is linear in `L`. The parameters are those of the
/// [`Projections`] and of the rule, side by side.
///
/// ```
/// use retrograd::nn::attention::*;
/// use retrograd::prelude::*;
/// let mut rng = Rng::new(1);
/// let projections = Projections::<f32>::new(HeadSizes::new(8, 2), &mut rng);
/// let attention = ScoredAttention::new(projections, ForgetGates::new(8, 2, &mut rng));
/// let x = Var::constant(Tensor::randn([3, 10, 8], &mut rng));
/// assert_eq!(*attention.forward(&x, Mask::causal(), &mut Pass::eval()).shape(), [3, 10, 8]);
/// assert_eq!(*attention.state_dict()["fgate_proj.weight"].shape(), [2, 8]);
/// ```
#[derive(Clone, Debug)]
pub struct ScoredAttention<T: Real, R> {
    /// The projections.
    pub projections: Projections<T>,
    /// The learned rule.
    pub rule: R,
}

/// A module that gives the rule of the scores of a call.
///
/// ```
/// use retrograd::nn::attention::*;
/// use retrograd::nn::{Param, Visitor};
/// use retrograd::prelude::*;
///
/// /// Scores times a number for each head, which is never negative.
/// struct Positive(Param);
/// impl Module for Positive {
///     fn visit(&self, v: &mut Visitor<'_, f32>) {
///         v.param("root", &self.0);
///     }
/// }
/// impl LearnedRule<f32> for Positive {
///     fn rule(&self, _: &RuleCx<'_, f32>, _: &mut Pass) -> Rule {
///         Rule::temperature(self.0.to_var().square())
///     }
/// }
///
/// let mut rng = Rng::new(1);
/// let projections = Projections::new(HeadSizes::new(8, 2), &mut rng);
/// let attention = ScoredAttention::new(projections, Positive(Param::new(Tensor::ones([2]))));
/// let x = Var::constant(Tensor::randn([3, 8], &mut rng));
/// let plain = attention.projections.forward(&x, Mask::causal(), &mut Pass::eval());
/// let y = attention.forward(&x, Mask::causal(), &mut Pass::eval());
/// assert!((y - plain).value().abs().max(..).item() < 1e-5);
/// ```
pub trait LearnedRule<T: Real>: Module<T> {
    /// A value for each head and token, `[.., H, L]`, of `x` `[.., L, width]`: it is kept with the keys of a cache.
    fn of_tokens(&self, _x: &Var<T>, _pass: &mut Pass) -> Option<Var<T>> {
        None
    }

    /// The rule of a call.
    fn rule(&self, cx: &RuleCx<'_, T>, pass: &mut Pass) -> Rule<T>;
}

/// What the rule of a call is computed from.
pub struct RuleCx<'a, T: Real> {
    /// The queries, `[.., H, L, D]`.
    pub q: &'a Var<T>,
    /// The position of the first query.
    pub start: usize,
    /// [`LearnedRule::of_tokens`] of all tokens that there are keys of, `[.., H, Lk]`.
    pub of_tokens: Option<Var<T>>,
}

impl<T: Real, R> ScoredAttention<T, R> {
    /// A layer of these projections and this rule.
    pub fn new(projections: Projections<T>, rule: R) -> Self {
        ScoredAttention { projections, rule }
    }
}

impl<T: Real, R: Module<T>> Module<T> for ScoredAttention<T, R> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        self.projections.visit(v);
        self.rule.visit(v);
    }
}

impl<T: Real, R: LearnedRule<T>> Incremental<T> for ScoredAttention<T, R> {
    #[track_caller]
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T> {
        let (p, start) = (&self.projections, past.start());
        let (q, k, v) = (p.queries(x, pass), p.keys(x, pass), p.values(x, pass));
        let (q, k) = (p.rotate(&q, start), p.rotate(&k, start));
        let (k, v, of_tokens) = match self.rule.of_tokens(x, pass) {
            Some(values) if past.positions().is_some() => {
                let (k, v, values) = extend_with(past, &k, &v, &values);
                (k, v, Some(values))
            }
            values => {
                let (k, v) = past.extend(&k, &v);
                (k, v, values)
            }
        };
        let rule = self.rule.rule(&RuleCx { q: &q, start, of_tokens }, pass);
        p.project_out(&attend(&q, &k, &v, &p.with_dropout(spec, pass).rule(rule)), pass)
    }
}

/// The keys and values of all tokens so far, and a value of each head for each of them. The cache keeps these as
/// further columns of the keys, one for each query head that shares a key head.
#[track_caller]
fn extend_with<T: Real>(
    past: &mut Past<'_, T>,
    k: &Var<T>,
    v: &Var<T>,
    values: &Var<T>,
) -> (Var<T>, Var<T>, Var<T>) {
    let has_gap = past.positions().is_some_and(|cached| cached.first * cached.dropped > 0);
    assert(!has_gap, "attention", ErrorKind::Mismatch, || {
        "values of all tokens are needed, and the cache has dropped some in the middle".into()
    });
    let (rank, length, width) = (k.rank(), k.size(-2), k.size(-1));
    let (key_heads, heads) = (k.size(-3), values.size(-2));
    let batch = &k.shape()[..rank - 3];
    let grouped = values.reshape([batch, &[key_heads, heads / key_heads, length]].concat());
    let (k, v) = past.extend(&Var::cat(&[k, &grouped.transpose(-1, -2)], -1), v);
    let values = k.narrow(-1, width, heads / key_heads).transpose(-1, -2);
    let values = values.reshape([batch, &[heads, k.size(-2)]].concat());
    (k.narrow(-1, 0, width), v, values)
}

/// [`Rule::slopes`] with the slopes of ALiBi at first: parameter `slopes` `[H]`. Press, Smith, Lewis 2021 (arXiv
/// 2108.12409), who tried learned slopes, too.
#[derive(Clone, Debug)]
pub struct LearnedSlopes<T: Real = f32> {
    /// A slope for each head.
    pub slopes: Param<T>,
}

impl<T: Real> LearnedSlopes<T> {
    /// The slopes of the paper for this number of heads.
    pub fn new(heads: usize) -> Self {
        let slopes = alibi_slopes(heads).into_iter().map(T::from_f64).collect();
        LearnedSlopes { slopes: Param::new(Tensor::from_vec(slopes, [heads])) }
    }
}

visits!(LearnedSlopes: param slopes);

impl<T: Real> LearnedRule<T> for LearnedSlopes<T> {
    fn rule(&self, _: &RuleCx<'_, T>, _: &mut Pass) -> Rule<T> {
        Rule::slopes(self.slopes.to_var())
    }
}

/// [`Rule::temperature`]: parameter `temperature` `[H]`, 1 at first.
#[derive(Clone, Debug)]
pub struct LearnedTemperature<T: Real = f32> {
    /// A factor of the scores for each head.
    pub temperature: Param<T>,
}

impl<T: Real> LearnedTemperature<T> {
    /// Factors of 1.
    pub fn new(heads: usize) -> Self {
        LearnedTemperature { temperature: Param::new(Tensor::ones([heads])) }
    }
}

visits!(LearnedTemperature: param temperature);

impl<T: Real> LearnedRule<T> for LearnedTemperature<T> {
    fn rule(&self, _: &RuleCx<'_, T>, _: &mut Pass) -> Rule<T> {
        Rule::temperature(self.temperature.to_var())
    }
}

/// The forget gates of a forgetting transformer, `f = σ(W x + b)` for each head and token ([`Rule::forget`]), for causal
/// masks: parameters `fgate_proj.weight` `[H, width]` and `fgate_proj.bias` `[H]`. Lin et al. 2025 (arXiv 2503.02130).
#[derive(Clone, Debug)]
pub struct ForgetGates<T: Real = f32> {
    /// The projection to the logits of the gates.
    pub fgate_proj: Linear<T>,
}

impl<T: Real> ForgetGates<T> {
    /// Gates for tokens of this width.
    pub fn new(width: usize, heads: usize, rng: &mut Rng) -> Self {
        ForgetGates { fgate_proj: Linear::new(width, heads, rng) }
    }
}

visits!(ForgetGates: module fgate_proj);

impl<T: Real> LearnedRule<T> for ForgetGates<T> {
    fn of_tokens(&self, x: &Var<T>, pass: &mut Pass) -> Option<Var<T>> {
        Some(self.fgate_proj.forward(x, pass).log_sigmoid().transpose(-1, -2))
    }

    fn rule(&self, cx: &RuleCx<'_, T>, _: &mut Pass) -> Rule<T> {
        let sums = cx.of_tokens.as_ref().expect("the gates").cumsum(-1);
        let length = cx.q.size(-2);
        Rule::forget_between(sums.narrow(-1, sums.size(-1) - length, length), sums)
    }
}

/// Gaussian windows ([`Rule::gaussian`]) whose centres and widths follow from the queries. With `n` the number of
/// tokens up to the query, and `h = tanh(W q)`:
///
/// ```text
/// c = n · σ(u_c · h) - 1/2      σ = n · σ(u_d · h) / 2
/// ```
///
/// The paper has the length of the sequence in place of `n`, which a causal model does not know. Parameters: `w_p`
/// `[D, D]`, `u_c` and `u_d` `[D]`, for all heads. Yang et al. 2018 (arXiv 1810.10182).
#[derive(Clone, Debug)]
pub struct GaussianWindows<T: Real = f32> {
    /// `W`
    pub w_p: Linear<T>,
    /// `u_c`
    pub u_c: Param<T>,
    /// `u_d`
    pub u_d: Param<T>,
}

impl<T: Real> GaussianWindows<T> {
    /// Windows for heads of these sizes.
    pub fn new(sizes: HeadSizes, rng: &mut Rng) -> Self {
        let width = sizes.head_width;
        let w_p = Linear::without_bias(width, width, rng);
        let mut vector = || Param::new(Init::Normal { std: 0.02 }.sample([width], rng));
        let (u_c, u_d) = (vector(), vector());
        GaussianWindows { w_p, u_c, u_d }
    }
}

visits!(GaussianWindows: module w_p, param u_c, param u_d);

impl<T: Real> LearnedRule<T> for GaussianWindows<T> {
    fn rule(&self, cx: &RuleCx<'_, T>, pass: &mut Pass) -> Rule<T> {
        let n = Tensor::from_fn([cx.q.size(-2)], |i| T::from_f64((cx.start + i[0] + 1) as f64));
        let h = self.w_p.forward(cx.q, pass).tanh();
        let n = Var::constant(n);
        let share = |u: &Param<T>| h.mul(&u.to_var()).sum(-1).sigmoid().mul(&n);
        let half = T::from_f64(0.5);
        Rule::gaussian(share(&self.u_c) - half, share(&self.u_d) * half)
    }
}

/// The position embeddings of CoPE ([`Rule::contextual`]): parameter `pos_emb` `[1, D, n]`, 0 at first, for positions
/// up to `n - 1`. Golovneva et al. 2024 (arXiv 2405.18719).
#[derive(Clone, Debug)]
pub struct ContextualPositions<T: Real = f32> {
    /// A vector for each position, shared by the heads.
    pub pos_emb: Param<T>,
}

impl<T: Real> ContextualPositions<T> {
    /// Embeddings of `n` positions.
    ///
    /// # Panics
    /// If `n` is 0.
    #[track_caller]
    pub fn new(sizes: HeadSizes, n: usize) -> Self {
        assert(n > 0, "ContextualPositions", ErrorKind::Value, || "no positions".into());
        ContextualPositions { pos_emb: Param::new(Tensor::zeros([1, sizes.head_width, n])) }
    }
}

visits!(ContextualPositions: param pos_emb);

impl<T: Real> LearnedRule<T> for ContextualPositions<T> {
    fn rule(&self, cx: &RuleCx<'_, T>, _: &mut Pass) -> Rule<T> {
        Rule::contextual(cx.q.matmul(&self.pos_emb.to_var().squeeze(0)))
    }
}
