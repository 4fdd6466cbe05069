//! The operands of a call, checked against one another and against the spec.

use super::mask::Sizes;
use super::spec::{Normalizer, Sink, Spec};
use retrograd_autograd::Var;
use retrograd_tensor::Real;

/// Operands of four axes, checked, and the spec resolved to them.
pub(crate) struct Call<T: Real> {
    pub q: Var<T>,
    pub k: Var<T>,
    pub v: Var<T>,
    pub spec: Spec<T>,
    pub sizes: Sizes,
    pub key_heads: usize,
    pub offset: isize,
    rank: usize,
}

impl<T: Real> Call<T> {
    #[track_caller]
    pub fn new(q: &Var<T>, k: &Var<T>, v: &Var<T>, spec: &Spec<T>) -> Call<T> {
        let shapes = || format!("q {:?}, k {:?}, v {:?}", q.shape(), k.shape(), v.shape());
        let rank = q.rank();
        assert!(
            (2..=4).contains(&rank) && k.rank() == rank && v.rank() == rank,
            "attend: operands need 2 to 4 axes, all the same number: {}",
            shapes()
        );
        let four = |x: &Var<T>| {
            let mut dims = vec![1; 4 - rank];
            dims.extend(x.shape().iter());
            x.reshape(dims)
        };
        let (q4, k4, v4) = (four(q), four(k), four(v));
        let (qs, ks, vs) = (*q4.shape(), *k4.shape(), *v4.shape());
        assert!(qs[0] == ks[0] && ks[0] == vs[0], "attend: batches differ: {}", shapes());
        assert!(qs[3] == ks[3], "attend: q and k have different widths: {}", shapes());
        assert!(ks[2] == vs[2], "attend: k and v have different lengths: {}", shapes());
        assert!(ks[1] == vs[1], "attend: k and v have different heads: {}", shapes());
        assert!(
            ks[1] > 0 && qs[1].is_multiple_of(ks[1]) || qs[1] == 0 && ks[1] == 0,
            "attend: {} query heads are no multiple of {} key heads: {}",
            qs[1],
            ks[1],
            shapes()
        );
        let sizes = Sizes { batch: qs[0], heads: qs[1], lq: qs[2], lk: ks[2] };
        let (mask, biases, offset) = spec.resolved(sizes);
        let spec = Spec { mask, biases, ..spec.clone() };
        if let Sink::Learned(sink) = &spec.sink {
            assert!(
                *sink.shape() == [sizes.heads],
                "attend: sinks {:?} for {} heads",
                sink.shape(),
                sizes.heads
            );
        }
        assert!(
            matches!(spec.sink, Sink::None) || spec.normalizer == Normalizer::Softmax,
            "attend: a sink is a logit of the softmax, and the normalizer is {:?}",
            spec.normalizer
        );
        let of_scores = spec.scale.is_some()
            || spec.softcap.is_some()
            || spec.score_mix.is_some()
            || spec.products.is_some()
            || !spec.biases.is_empty();
        assert!(
            spec.normalizer != Normalizer::Linear || !of_scores,
            "attend: linear features make no scores to scale, cap, add to or mix"
        );
        for mix in [&spec.score_mix, &spec.weight_mix].into_iter().flatten() {
            let heads = sizes.heads;
            assert!(
                *mix.shape() == [heads, heads],
                "attend: heads are mixed by [{heads}, {heads}], got {:?}",
                mix.shape()
            );
        }
        Call { q: q4, k: k4, v: v4, spec, sizes, key_heads: ks[1], offset, rank }
    }

    /// The same call on other operands, tracked or not.
    pub fn with(&self, q: &Var<T>, k: &Var<T>, v: &Var<T>, sink: Sink<T>) -> Call<T> {
        let spec = Spec { sink, ..self.spec.clone() };
        Call { q: q.clone(), k: k.clone(), v: v.clone(), spec, ..*self }
    }

    /// A result of four axes with as many as the operands had.
    pub fn restore_rank(&self, x: &Var<T>) -> Var<T> {
        x.reshape(&x.shape()[4 - self.rank..])
    }

    /// `1/√Dk` unless given.
    pub fn scale(&self) -> T {
        let width = self.q.size(-1).max(1) as f64;
        T::from_f64(self.spec.scale.unwrap_or(1.0 / width.sqrt()))
    }

    /// `[B, Hq, L, X]` with the heads that share a key head on an axis of their own.
    pub fn grouped(&self, x: &Var<T>) -> Var<T> {
        let s = x.shape();
        let groups = self.sizes.heads / self.key_heads.max(1);
        x.reshape([s[0], self.key_heads, groups, s[2], s[3]])
    }

    pub fn ungrouped(&self, x: &Var<T>) -> Var<T> {
        x.reshape([x.size(0), self.sizes.heads, x.size(-2), x.size(-1)])
    }
}
