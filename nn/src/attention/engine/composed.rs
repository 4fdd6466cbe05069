//! The composed path: attention in ordinary operations on matrices of all scores.

use super::feature_map::feature_map;
use super::mask::Sizes;
use super::operands::Operands;
use super::product::{mix, scores};
use super::rule::Places;
use super::spec::{Normalizer, Spec};
use retrograd_autograd::Var;
use retrograd_tensor::observe::{self, KernelCall, Size};
use retrograd_tensor::{Real, Tensor};

/// The output of attention with its weights and log-sum-exp.
#[derive(Clone, Debug)]
pub struct Attended<T: Real = f32> {
    /// `[.., Hq, Lq, Dv]`
    pub output: Var<T>,
    /// What is normalised, `[.., Hq, Lq, Lk]`: `s` of [`Spec`] after softcap, biases, rules and mixture of
    /// heads; -inf where the pair does not attend.
    pub scores: Var<T>,
    /// `[.., Hq, Lq, Lk]`, before dropout and before heads are mixed. A row sums to 1, to less
    /// with a sink, or to 0 if the query attends to no key.
    pub weights: Var<T>,
    /// `ln Σ e^s` of each query over the keys that it attends to and the sink, `[.., Hq, Lq]`;
    /// -inf if there is neither.
    pub lse: Var<T>,
}

impl<T: Real> Operands<T> {
    /// The output, from matrices of all scores and weights.
    pub fn composed(&self) -> Var<T> {
        let traced = observe::begin();
        let (s, keep) = self.scores();
        let weights = self.with_variables(self.normalize(&s, &keep));
        self.capture(&weights);
        let output = self.without_head(self.values(&weights));
        observe::end(traced, || self.report());
        output
    }

    /// The report of the whole computation, whose operations are calls of their own inside it.
    fn report(&self) -> KernelCall {
        let (q, keys) = (self.q.shape(), self.k.shape()[2]);
        let size = Size::Attention { batch: q[0], heads: q[1], queries: q[2], keys, width: q[3] };
        let why = self.spec.needs_composed().unwrap_or("requested");
        KernelCall {
            detail: why.into(),
            ..KernelCall::new("attention", "composed", T::DTYPE, size)
        }
    }

    /// The output, the weights and the log-sum-exp.
    pub fn composed_all(&self) -> Attended<T> {
        let traced = observe::begin();
        let (s, keep) = self.scores();
        let weights = self.with_variables(self.normalize(&s, &keep));
        self.capture(&weights);
        let output = self.without_head(self.values(&weights));
        let low = s.masked_fill(&!&keep, T::NEG_INFINITY);
        let lse = self.with_sink(&low).logsumexp(-1);
        observe::end(traced, || self.report());
        Attended { output, scores: low, weights: self.without_head(weights), lse }
    }

    /// Scores `[B, Hq, Lq, Lk]`, and the resolved mask, true where a pair attends, which broadcasts
    /// to the shape of the scores.
    fn scores(&self) -> (Var<T>, Tensor<bool>) {
        let spec = &self.spec;
        let keep = spec.mask.dense(self.sizes, self.offset);
        let (q, k) = match spec.normalizer {
            Normalizer::Linear => (feature_map(&self.q), feature_map(&self.k)),
            _ => (self.q.mul_scalar(self.scale()), self.k.clone()),
        };
        let mut s = self.ungrouped(&scores(&self.grouped(&q), &k.unsqueeze(2)));
        if let Some(products) = &spec.products {
            s = &s + products.reshape(s.shape()) * self.scale();
        }
        let places = self.places();
        for rule in &spec.rules {
            if let Some(products) = rule.products(&places) {
                let others = self.sizes.lk - places.sizes.lk;
                s = s + products.pad(-1, 0, others, T::ZERO) * self.scale();
            }
        }
        let mut keep = keep.unwrap_or_else(|| Tensor::ones([1, 1, 1, 1]));
        // The masked softmax does not read masked scores. The other operations would propagate a
        // NaN: the slope of a softcap, other normalizers, a mixture of heads. Before each of
        // them, masked scores are set to 0.
        if let Some(c) = spec.softcap {
            let c = T::from_f64(c);
            s = (s.masked_fill(&!&keep, T::ZERO) / c).tanh() * c;
        }
        for bias in &spec.biases {
            s = s.add(&bias.as_var(self.sizes, self.offset));
        }
        if !spec.rules.is_empty() {
            s = s.masked_fill(&!&keep, T::ZERO);
            let (mine, lk) = (s.narrow(-1, 0, places.sizes.lk), self.sizes.lk);
            let of_mine =
                if keep.size(-1) > 1 { keep.narrow(-1, 0, places.sizes.lk) } else { keep.clone() };
            let ruled = spec.rules.iter().fold(mine, |s, rule| rule.scores(&s, &of_mine, &places));
            let others = s.narrow(-1, places.sizes.lk, lk - places.sizes.lk);
            s = if others.size(-1) > 0 { Var::cat(&[&ruled, &others], -1) } else { ruled };
        }
        if let Some(mix) = &spec.score_mix {
            // A score of -inf counts as masked; it would make every mixture -inf.
            let low = s.value().eq(T::NEG_INFINITY);
            keep = keep.and(&!&low);
            s = mix_heads(mix, &s.masked_fill(&!&keep, T::ZERO));
        } else if !matches!(spec.normalizer, Normalizer::Softmax | Normalizer::TopK(_)) {
            s = s.masked_fill(&!&keep, T::ZERO);
        }
        (s, keep)
    }

    /// Passes the weights to the capture of the spec, if there is one.
    fn capture(&self, weights: &Var<T>) {
        if let Some(capture) = &self.spec.capture {
            capture.push(&self.restore_rank(weights));
        }
    }

    /// Weighted sums of the values, `[B, Hq, Lq, Dv]`.
    fn values(&self, weights: &Var<T>) -> Var<T> {
        let w = self.spec.dropout_and_mix(weights);
        let y = self.ungrouped(&mix(&self.grouped(&w), &self.v.unsqueeze(2)));
        let places = self.places();
        let of_places = w.narrow(-1, 0, places.sizes.lk);
        let added = self.spec.rules.iter().filter_map(|rule| rule.values(&of_places, &places));
        added.fold(y, |y, added| y + added)
    }

    /// The positions of the queries, and of the keys to which rules of scores apply.
    pub fn places(&self) -> Places {
        let sizes = Sizes { lk: self.spec.rule_keys.unwrap_or(self.sizes.lk), ..self.sizes };
        let shifts = self.shifts.clone();
        Places { sizes, offset: self.offset, shifts, cached: self.spec.cached }
    }
}

impl<T: Real> Spec<T> {
    /// Weights `[.., H, Lq, Lk]` after dropout and the mixture of heads.
    pub(crate) fn dropout_and_mix(&self, weights: &Var<T>) -> Var<T> {
        let mut w = weights.clone();
        if let Some((p, key)) = self.dropout {
            w = w.dropout(p, key);
        }
        if let Some(mix) = &self.weight_mix {
            w = mix_heads(mix, &w);
        }
        w
    }
}

/// `out[h'] = Σ_h mix[h', h] · x[h]` over the heads of `[.., H, L, M]`.
fn mix_heads<T: Real>(mix: &Var<T>, x: &Var<T>) -> Var<T> {
    let mut flat = x.shape().to_vec();
    let pairs = flat.pop().into_iter().chain(flat.pop()).product();
    flat.push(pairs);
    mix.matmul(&x.reshape(flat)).reshape(x.shape())
}
