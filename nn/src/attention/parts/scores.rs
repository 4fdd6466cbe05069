//! Attention with scores that are computed outside the engine, and the additive score.

use crate::attention::engine::Spec;
use crate::init::Init;
use crate::param::Param;
use retrograd_autograd::{Cx, Fused, InputGrads, Op, Product, Slot, Var};
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

static ADDITIVE_SCORES: Op = Op::new("additive_scores", &["q", "k", "w"])
    .computes(|shapes| vec![Product::new(["t", "w"], shapes.output, shapes.last("q"))])
    .formula(
        "y = Σ w · tanh(q + k), over the last axis",
        "dq = Σ_k h, h = g · w · (1 − t²), t = tanh(q + k)\ndk = Σ_q h\ndw = Σ g · t",
    );

/// A vector over hidden units, initialised as the weight of a linear layer with one output.
#[track_caller]
pub(crate) fn hidden_weights<T: Real>(hidden: usize, rng: &mut Rng) -> Param<T> {
    Param::new(Init::TorchLinear.sample::<T>([1, hidden], rng).reshape([hidden]))
}

/// Single-head attention with given scores `[.., Lq, Lk]` in place of `q·k`, to values
/// `[.., Lk, Dv]`. `attend` is one of the entry points of the engine; its result is returned
/// without the axis of heads.
#[track_caller]
pub(crate) fn attend_by_scores<T: Real>(
    attend: impl Fn(&Var<T>, &Var<T>, &Var<T>, &Spec<T>) -> Var<T>,
    scores: &Var<T>,
    values: &Var<T>,
    spec: &Spec<T>,
) -> Var<T> {
    let valid = (2..=3).contains(&scores.rank()) && scores.rank() == values.rank();
    assert(valid, "attention", ErrorKind::Rank, || {
        format!(
            "operands must be [length, width] or [batch, length, width]; scores {:?}, \
         values {:?}",
            scores.shape(),
            values.shape()
        )
    });
    // The products of queries and keys of width 0 are 0; the scores are added to them.
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

/// `s_ij = wᵀ tanh(q_i + k_j)`: `[.., Lq, a]`, `[.., Lk, a]` and `[a]` to `[.., Lq, Lk]`.
#[track_caller]
pub fn additive_scores<T: Real>(q: &Var<T>, k: &Var<T>, w: &Var<T>) -> Var<T> {
    let valid = q.rank() == k.rank() && q.rank() >= 2 && q.size(-1) == k.size(-1);
    assert(valid, "additive attention", ErrorKind::Mismatch, || {
        format!("queries {:?} and keys {:?} have different ranks or widths", q.shape(), k.shape())
    });
    let parts: Vec<Tensor<T>> = query_tiles(q.value(), k.value())
        .map(|(first, n)| {
            let t = hidden(&q.value().narrow(-2, first, n), k.value());
            t.mul(w.value()).sum(-1)
        })
        .collect();
    let scores = Tensor::cat(&parts.iter().collect::<Vec<_>>(), -2);
    let [scores] = Var::from_fused(&ADDITIVE_SCORES, [scores], [q, k, w], |[q, k, w]| Scores {
        q: q.save(),
        k: k.save(),
        w: w.save(),
    });
    scores
}

/// `tanh(q_i + k_j)`, `[.., Lq, Lk, a]`.
fn hidden<T: Real>(q: &Tensor<T>, k: &Tensor<T>) -> Tensor<T> {
    q.unsqueeze(-2).add(&k.unsqueeze(-3)).tanh()
}

/// Tiles of queries with about 2¹⁸ hidden values each.
fn query_tiles<T: Real>(q: &Tensor<T>, k: &Tensor<T>) -> impl Iterator<Item = (usize, usize)> {
    let lq = q.size(-2);
    let n = ((1 << 18) / k.numel().max(1)).max(1);
    // At least one tile, even without queries.
    (0..lq.max(1)).step_by(n).map(move |first| (first, n.min(lq - first)))
}

struct Scores<T: Real> {
    q: Slot<T>,
    k: Slot<T>,
    w: Slot<T>,
}

impl<T: Real> Fused<T> for Scores<T> {
    fn vjp(&self, [g]: [&Tensor<T>; 1]) -> InputGrads<T> {
        let [q, k, w] = [&self.q, &self.k, &self.w].map(Slot::value);
        let (mut dq, mut dk, mut dw) =
            (Vec::new(), Tensor::zeros(k.shape()), Tensor::zeros(w.shape()));
        for (first, n) in query_tiles(q, k) {
            let t = hidden(&q.narrow(-2, first, n), k);
            // A NaN of a masked key must not spread: `g` is 0 there, and so must be the gradients.
            let t = t.masked_fill(&t.ne(&t), T::ZERO);
            let g = g.narrow(-2, first, n).unsqueeze(-1);
            dw = dw.add(&g.mul(&t).sum_to(w.shape()));
            let slope = t.square().neg().add_scalar(T::ONE);
            let d = g.mul(w).mul(&slope);
            dq.push(d.sum(-2));
            dk = dk.add(&d.sum(-3));
        }
        let dq = Tensor::cat(&dq.iter().collect::<Vec<_>>(), -2);
        InputGrads::of(&self.q, || dq).and(&self.k, || dk).and(&self.w, || dw)
    }

    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 1] {
        let [q, k, w] = [&self.q, &self.k, &self.w].map(|input| cx.input(input));
        let sums = q.unsqueeze(-2).add(&k.unsqueeze(-3));
        let nan = sums.value().ne(sums.value());
        [sums.masked_fill(&nan, T::ZERO).tanh().mul(&w).sum(-1)]
    }
}
