//! Derivatives of plain softmax attention in ordinary operations on matrices of all weights: its gradients in a recorded
//! pass, and its tangents in forward mode.

use super::operands::Operands;
use super::product::{mix, scores};
use super::spec::{Sink, Spec};
use retrograd_autograd::{Slot, Var};
use retrograd_tensor::{Real, Tensor};

/// Whether scores are products of queries and keys alone, and weights their softmax.
pub(super) fn is_plain<T: Real>(spec: &Spec<T>) -> bool {
    let plain = spec.softcap.is_none() && spec.biases.is_empty() && spec.dropout.is_none();
    plain && spec.rules.is_empty() && matches!(spec.sink, Sink::None)
}

/// A call with its weights `p = exp(q kᵀ · scale − lse)`, which take no softmax since the log-sum-exp was saved.
pub(super) struct Plain<'a, T: Real> {
    call: &'a Operands<T>,
    /// Queries (multiplied by the scale), `[B, Hk, G, Lq, D]`.
    q: Var<T>,
    /// Keys and values, `[B, Hk, 1, Lk, D]`.
    k: Var<T>,
    v: Var<T>,
    /// Weights, `[B, Hk, G, Lq, Lk]`.
    p: Var<T>,
    /// Where weights are 0: keys and values may be NaN.
    masked: Tensor<bool>,
}

impl<'a, T: Real> Plain<'a, T> {
    /// `None` if the call is not plain.
    pub fn of(
        call: &'a Operands<T>,
        [q, k, v]: [Var<T>; 3],
        sink: &Slot<T>,
        lse: &Var<T>,
    ) -> Option<Self> {
        if !is_plain(&call.spec) || sink.get().is_some() {
            return None;
        }
        let [q, k, v] = [call.grouped(&q) * call.scale(), k.unsqueeze(2), v.unsqueeze(2)];
        let mut s = call.ungrouped(&scores(&q, &k));
        if let Some(keep) = call.spec.mask.dense(call.sizes, call.offset) {
            s = s.masked_fill(&!&keep, T::NEG_INFINITY);
        }
        // A query without keys has weights of 0.
        let empty = lse.value().eq(T::NEG_INFINITY);
        let lse = if empty.any(..).item() { lse.masked_fill(&empty, T::ZERO) } else { lse.clone() };
        let p = call.grouped(&(s - lse.unsqueeze(-1)).exp());
        let masked = p.value().eq(T::ZERO);
        Some(Plain { call, q, k, v, p, masked })
    }

    /// The gradients of queries, keys and values. With the slope `dp = g vᵀ` of the weights, that of the scores is
    /// `p · (dp − Σ g · y + g_lse)`.
    pub fn vjp(&self, out: &Var<T>, [g, g_lse]: [&Var<T>; 2]) -> [Var<T>; 3] {
        let Plain { call, q, k, v, p, masked } = self;
        let mean = (g * out).sum_keepdim(-1) - g_lse.unsqueeze(-1);
        let g = call.grouped(g);
        let dp = scores(&g, v).masked_fill(masked, T::ZERO);
        let ds = p * &(dp - call.grouped(&mean));
        let dq = call.ungrouped(&mix(&ds, k)) * call.scale();
        let over_group = |x: Var<T>| x.sum(2);
        [dq, over_group(mix(&ds.t(), q)), over_group(mix(&p.t(), &g))]
    }

    /// The tangents of the output and of the log-sum-exp.
    pub fn jvp(&self, [tq, tk, tv]: [Option<Var<T>>; 3]) -> [Tensor<T>; 2] {
        let Plain { call, q, k, v, p, masked } = self;
        let sum = |terms: [Option<Var<T>>; 2]| terms.into_iter().flatten().reduce(|a, b| a + &b);
        let by_q = tq.map(|t| scores(&(call.grouped(&t) * call.scale()), k));
        let ds = sum([by_q, tk.map(|t| scores(q, &t.unsqueeze(2)))]);
        let ds = ds.map(|ds| ds.masked_fill(masked, T::ZERO));
        let lse = ds.as_ref().map(|ds| (p * ds).sum_keepdim(-1));
        let dp = ds.zip(lse.as_ref()).map(|(ds, lse)| p * &(ds - lse));
        let out = sum([dp.map(|dp| mix(&dp, v)), tv.map(|t| mix(p, &t.unsqueeze(2)))]);
        let out = call.ungrouped(&out.expect("an input has a tangent"));
        let lse = lse.map(|lse| call.ungrouped(&lse).squeeze(-1).value().clone());
        [out.value().clone(), lse.unwrap_or_else(|| Tensor::zeros([1, 1, 1]))]
    }
}
