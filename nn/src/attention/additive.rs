//! Additive attention.

use super::engine::{Spec, attend};
use crate::dropout::Dropout;
use crate::init::Init;
use crate::linear::Linear;
use crate::module::{Layer, Module, Walk};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::{Cx, Fused, InputGrads, Slot, Var};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

/// Scores by a small network instead of a product.
///
/// ```text
/// s_ij = vᵀ tanh(W q_i + U k_j + b)
/// o_i  = Σ_j softmax_j(s_ij, where the mask keeps) · value_j
/// ```
///
/// Queries `[Lq, d_q]` or `[B, Lq, d_q]`, keys `[.., Lk, d_k]`, values `[.., Lk, d_v]`, to
/// `[.., Lq, d_v]`. The work is `O(Lq Lk a)` with `a` hidden units. The `Lq · Lk · a` hidden
/// values are never there at once: they are made for a few queries at a time, and made again
/// by the backward pass (by a backward pass that is itself recorded, all at once).
///
/// [`LuongConcat`](super::LuongConcat) with `[W U]` as one matrix is the same without `b`.
///
/// Parameters: `query.weight` (W) `[a, d_q]`, `key.weight` (U) `[a, d_k]`, `key.bias` (b)
/// `[a]`, `v` `[a]`. Bahdanau, Cho, Bengio 2014 (arXiv 1409.0473).
///
/// ```
/// use retrograd_autograd::Var;
/// use retrograd_nn::{Pass, attention::{AdditiveAttention, Mask}};
/// use retrograd_tensor::{Tensor, random::Rng};
///
/// let mut rng = Rng::new(1);
/// let attention = AdditiveAttention::<f32>::new(3, 4, 8, &mut rng);
/// let decoder = Var::constant(Tensor::randn([2, 5, 3], &mut rng));
/// let encoder = Var::constant(Tensor::randn([2, 7, 4], &mut rng));
/// let seen = Mask::lengths(&[7, 2]);
/// let context = attention.forward(&decoder, &encoder, &encoder, seen, &mut Pass::eval());
/// assert_eq!(*context.shape(), [2, 5, 4]);
/// ```
#[derive(Clone, Debug)]
pub struct AdditiveAttention<T: Real = f32> {
    /// `W`
    pub query: Linear<T>,
    /// `U` and `b`
    pub key: Linear<T>,
    /// `v`
    pub v: Param<T>,
    /// Of the weights.
    pub dropout: Dropout,
}

impl<T: Real> AdditiveAttention<T> {
    /// For queries and keys of these widths, with `hidden` units.
    #[track_caller]
    pub fn new(query_width: usize, key_width: usize, hidden: usize, rng: &mut Rng) -> Self {
        AdditiveAttention {
            query: Linear::without_bias(query_width, hidden, rng),
            key: Linear::new(key_width, hidden, rng),
            v: hidden_weights(hidden, rng),
            dropout: Dropout::new(0.0),
        }
    }

    /// Attends under a [`Mask`](super::Mask), or by a whole [`Spec`].
    ///
    /// # Panics
    /// If shapes do not fit one another or the mask.
    #[track_caller]
    pub fn forward(
        &self,
        queries: &Var<T>,
        keys: &Var<T>,
        values: &Var<T>,
        how: impl Into<Spec<T>>,
        pass: &mut Pass,
    ) -> Var<T> {
        let (q, k) = (self.query.forward(queries, pass), self.key.forward(keys, pass));
        let scores = additive_scores(&q, &k, &self.v.var());
        let spec = how.into().dropout_of_module(self.dropout.p(), pass);
        by_scores(attend, &scores, values, &spec)
    }
}

impl<T: Real> Module<T> for AdditiveAttention<T> {
    fn walk(&self, w: &mut Walk<'_, T>) {
        w.module("query", &self.query);
        w.module("key", &self.key);
        w.param("v", &self.v);
    }
}

/// A vector over hidden units, as a linear layer with one output begins.
#[track_caller]
pub(crate) fn hidden_weights<T: Real>(hidden: usize, rng: &mut Rng) -> Param<T> {
    Param::new(Init::TorchLinear.sample::<T>([1, hidden], rng).reshape([hidden]))
}

/// Attention by scores `[.., Lq, Lk]` made elsewhere, in place of `q·k`, to values
/// `[.., Lk, Dv]`, of a single head: what `attend`, which is one of the engine's ways to do so,
/// gives without its axis of heads.
#[track_caller]
pub(crate) fn by_scores<T: Real>(
    attend: impl Fn(&Var<T>, &Var<T>, &Var<T>, &Spec<T>) -> Var<T>,
    scores: &Var<T>,
    values: &Var<T>,
    spec: &Spec<T>,
) -> Var<T> {
    assert!(
        (2..=3).contains(&scores.rank()) && scores.rank() == values.rank(),
        "attention: operands must be [length, width] or [batch, length, width]; scores {:?}, \
         values {:?}",
        scores.shape(),
        values.shape()
    );
    // Queries and keys of width 0 have products of 0, to which the scores are added.
    let empty = |n: usize| {
        let mut dims = scores.shape().to_vec();
        let last = dims.len() - 1;
        (dims[last - 1], dims[last]) = (n, 0);
        Var::constant(Tensor::zeros(dims)).unsqueeze(-3)
    };
    let (q, k) = (empty(scores.size(-2)), empty(scores.size(-1)));
    let spec = spec.clone().add_products(scores.unsqueeze(-3));
    attend(&q, &k, &values.unsqueeze(-3), &spec).squeeze(-3)
}

/// `s_ij = vᵀ tanh(q_i + k_j)`: `[.., Lq, a]`, `[.., Lk, a]` and `[a]` to `[.., Lq, Lk]`.
#[track_caller]
pub(crate) fn additive_scores<T: Real>(q: &Var<T>, k: &Var<T>, v: &Var<T>) -> Var<T> {
    assert!(
        q.rank() == k.rank() && q.rank() >= 2 && q.size(-1) == k.size(-1),
        "additive attention: queries {:?} do not meet keys {:?}",
        q.shape(),
        k.shape()
    );
    let parts: Vec<Tensor<T>> = query_tiles(q.value(), k.value())
        .map(|(first, n)| {
            let t = hidden(&q.value().narrow(-2, first, n), k.value());
            t.mul(v.value()).sum(-1)
        })
        .collect();
    let scores = Tensor::cat(&parts.iter().collect::<Vec<_>>(), -2);
    let [scores] = Var::from_fused([scores], [q, k, v], |[q, k, v]| Scores {
        q: q.save(),
        k: k.save(),
        v: v.save(),
    });
    scores
}

/// `tanh(q_i + k_j)`, `[.., Lq, Lk, a]`.
fn hidden<T: Real>(q: &Tensor<T>, k: &Tensor<T>) -> Tensor<T> {
    q.unsqueeze(-2).add(&k.unsqueeze(-3)).tanh()
}

/// As many queries at a time as make about a quarter of a million hidden values.
fn query_tiles<T: Real>(q: &Tensor<T>, k: &Tensor<T>) -> impl Iterator<Item = (usize, usize)> {
    let lq = q.size(-2);
    let n = ((1 << 18) / k.numel().max(1)).max(1);
    // One tile at least: of no queries, if there are none.
    (0..lq.max(1)).step_by(n).map(move |first| (first, n.min(lq - first)))
}

struct Scores<T: Real> {
    q: Slot<T>,
    k: Slot<T>,
    v: Slot<T>,
}

impl<T: Real> Fused<T> for Scores<T> {
    const NAME: &'static str = "additive_scores";

    fn vjp(&self, [g]: [&Tensor<T>; 1]) -> InputGrads<T> {
        let [q, k, v] = [&self.q, &self.k, &self.v].map(Slot::value);
        let (mut dq, mut dk, mut dv) =
            (Vec::new(), Tensor::zeros(k.shape()), Tensor::zeros(v.shape()));
        for (first, n) in query_tiles(q, k) {
            let t = hidden(&q.narrow(-2, first, n), k);
            // NaN comes from keys that are not attended to: `g` is 0 there, and so is its product.
            let t = t.masked_fill(&t.ne(&t), T::ZERO);
            let g = g.narrow(-2, first, n).unsqueeze(-1);
            dv = dv.add(&g.mul(&t).sum_to(v.shape()));
            let slope = t.square().neg().add_scalar(T::ONE);
            let d = g.mul(v).mul(&slope);
            dq.push(d.sum(-2));
            dk = dk.add(&d.sum(-3));
        }
        let dq = Tensor::cat(&dq.iter().collect::<Vec<_>>(), -2);
        InputGrads::of(&self.q, || dq).and(&self.k, || dk).and(&self.v, || dv)
    }

    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 1] {
        let [q, k, v] = [&self.q, &self.k, &self.v].map(|input| cx.input(input));
        let sums = q.unsqueeze(-2).add(&k.unsqueeze(-3));
        let nan = sums.value().ne(sums.value());
        [sums.masked_fill(&nan, T::ZERO).tanh().mul(&v).sum(-1)]
    }
}
