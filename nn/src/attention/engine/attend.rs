//! The engine: [`attend`], and its composed path.

use super::mask::Sizes;
use super::product::{mix, scores};
use super::spec::{Normalizer, Path, Sink, Spec};
use super::tiled;
use crate::attention::linear::{features, share};
use retrograd_autograd::Var;
use retrograd_tensor::{Real, Tensor};

/// What attention can give besides its output.
#[derive(Clone, Debug)]
pub struct Attended<T: Real = f32> {
    /// `[.., Hq, Lq, Dv]`
    pub output: Var<T>,
    /// `[.., Hq, Lq, Lk]`: before dropout, and before heads are mixed. A row sums to 1, or
    /// less with a sink, or is 0 if the query sees nothing.
    pub weights: Var<T>,
    /// `ln Σ e^s` of each query over what it sees and the sink, `[.., Hq, Lq]`; -inf if it
    /// sees nothing.
    pub lse: Var<T>,
}

/// Attention from queries `[.., Hq, Lq, Dk]` to keys `[.., Hk, Lk, Dk]` and values
/// `[.., Hk, Lk, Dv]`, giving `[.., Hq, Lq, Dv]`. See [`Spec`] for what is computed.
///
/// Operands have 2 to 4 axes; missing ones are a single head, or a single sequence. `Hq` is a
/// multiple of `Hk`, and query head `h` reads key head `⌊h · Hk / Hq⌋`. All of `Lq`, `Lk`,
/// `Dk`, `Dv`, batch and heads are free, 0 included.
///
/// A query that sees no key gives 0 and gets and sends a gradient of exactly 0. Whatever
/// stands at keys that are not seen, NaN and infinities included, has no influence, forward
/// or backward.
///
/// That is said of `q`, `k`, `v` and the parts of the spec. A module that makes them of hidden
/// tokens by a projection hides these tokens as well, but not from the weights of the projection:
/// their gradient is a plain product, in which a token that is NaN gives `0 · NaN`. Padding should
/// be numbers.
///
/// # Panics
/// If shapes do not fit one another or the parts of the spec.
#[track_caller]
#[inline(never)]
pub fn attend<T: Real>(q: &Var<T>, k: &Var<T>, v: &Var<T>, spec: &Spec<T>) -> Var<T> {
    let call = Call::new(q, k, v, spec);
    let output = match goes_by_tiles(spec) {
        true => {
            let [output, _] = tiled::attend(&call);
            output
        }
        false => call.composed(),
    };
    call.finish(&output)
}

/// [`attend`] with its log-sum-exp, `ln Σ e^s` of each query over what it sees and the sink,
/// `[.., Hq, Lq]`; -inf if it sees nothing. By tiles where [`attend`] goes by tiles: there are
/// never all weights at once. Outputs over parts of the keys are put together by it:
///
/// ```
/// use retrograd_autograd::Var;
/// use retrograd_nn::attention::{Spec, attend, attend_with_lse};
/// use retrograd_tensor::{Tensor, random::Rng};
///
/// let mut rng = Rng::new(1);
/// let mut x = |l| Var::constant(Tensor::<f64>::randn([l, 4], &mut rng));
/// let (q, k, v, spec) = (x(3), x(8), x(8), Spec::new());
/// let part = |first| attend_with_lse(&q, &k.narrow(0, first, 4), &v.narrow(0, first, 4), &spec);
/// let ((o1, lse1), (o2, lse2)) = (part(0), part(4));
/// let share = (lse1 - lse2).sigmoid().unsqueeze(-1);
/// let whole = &o2 + share * (o1 - &o2);
/// let difference = whole.value() - attend(&q, &k, &v, &spec).value();
/// assert!(difference.abs().max(..).item() < 1e-15);
/// ```
///
/// # Panics
/// As [`attend`].
#[track_caller]
#[inline(never)]
pub fn attend_with_lse<T: Real>(
    q: &Var<T>,
    k: &Var<T>,
    v: &Var<T>,
    spec: &Spec<T>,
) -> (Var<T>, Var<T>) {
    let call = Call::new(q, k, v, spec);
    let (output, lse) = if goes_by_tiles(spec) {
        let [output, lse] = tiled::attend(&call);
        (output, lse.unsqueeze(-1))
    } else {
        let all = call.composed_all();
        (all.output, all.lse.unsqueeze(-1))
    };
    (call.finish(&output), call.finish(&lse).squeeze(-1))
}

/// [`attend`] to queries, keys and values that lie side by side, as one projection makes them:
/// from `[B, L, (H + 2 Hk) D]` to `[B, H, L, D]`. They are read where they lie.
///
/// # Panics
/// If the heads do not divide the last axis, or shapes do not fit the parts of the spec.
#[track_caller]
#[inline(never)]
pub fn attend_packed<T: Real>(
    qkv: &Var<T>,
    heads: usize,
    key_heads: usize,
    spec: &Spec<T>,
) -> Var<T> {
    assert!(
        qkv.rank() == 3 && heads > 0 && qkv.size(2).is_multiple_of(heads + 2 * key_heads),
        "attend: {heads} query heads and twice {key_heads} key heads in {:?}, \
         which should be [batch, length, heads · width]",
        qkv.shape()
    );
    if !goes_by_tiles(spec) {
        let [q, k, v] = tiled::unpack(qkv, heads, key_heads);
        return attend(&q, &k, &v, spec);
    }
    // The node has the packed variable for its input, and views of it besides.
    let [q, k, v] = tiled::unpack(&qkv.detach(), heads, key_heads);
    let [output, _] = tiled::attend_packed(&Call::new(&q, &k, &v, spec), qkv);
    output
}

#[track_caller]
fn goes_by_tiles<T: Real>(spec: &Spec<T>) -> bool {
    let why = spec.needs_composed();
    let forced = spec.path == Path::Tiled;
    assert!(!forced || why.is_none(), "attend: the tiled path cannot: {}", why.unwrap_or(""));
    spec.path != Path::Composed && why.is_none()
}

/// [`attend`] with weights and log-sum-exp, by the composed path; [`attend_with_lse`] if the
/// weights are not wanted.
///
/// # Panics
/// As [`attend`], or if the spec asks for the tiled path, which has no weights to give.
#[track_caller]
#[inline(never)]
pub fn attend_all<T: Real>(q: &Var<T>, k: &Var<T>, v: &Var<T>, spec: &Spec<T>) -> Attended<T> {
    assert!(spec.path != Path::Tiled, "attend: the tiled path cannot: weights are asked for");
    let call = Call::new(q, k, v, spec);
    let Attended { output, weights, lse } = call.composed_all();
    Attended {
        output: call.finish(&output),
        weights: call.finish(&weights),
        lse: call.finish(&lse.unsqueeze(-1)).squeeze(-1),
    }
}

/// Operands of four axes, checked, and the spec fitted to them.
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
        let (mask, biases, offset) = spec.fitted(sizes);
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

    /// The call on constants, without sinks.
    pub fn detached(&self) -> Call<T> {
        self.with(&self.q.detach(), &self.k.detach(), &self.v.detach(), Sink::None)
    }

    /// The same call on other operands, tracked or not.
    pub fn with(&self, q: &Var<T>, k: &Var<T>, v: &Var<T>, sink: Sink<T>) -> Call<T> {
        let spec = Spec { sink, ..self.spec.clone() };
        Call { q: q.clone(), k: k.clone(), v: v.clone(), spec, ..*self }
    }

    /// A result of four axes with as many as the operands had.
    fn finish(&self, x: &Var<T>) -> Var<T> {
        x.reshape(&x.shape()[4 - self.rank..])
    }

    /// `1/√Dk` unless given.
    pub fn scale(&self) -> T {
        let width = self.q.size(-1).max(1) as f64;
        T::from_f64(self.spec.scale.unwrap_or(1.0 / width.sqrt()))
    }

    /// `[B, Hq, L, X]` with the heads that share a key head on an axis of their own.
    fn grouped(&self, x: &Var<T>) -> Var<T> {
        let s = x.shape();
        let groups = self.sizes.heads / self.key_heads.max(1);
        x.reshape([s[0], self.key_heads, groups, s[2], s[3]])
    }

    fn ungrouped(&self, x: &Var<T>) -> Var<T> {
        x.reshape([x.size(0), self.sizes.heads, x.size(-2), x.size(-1)])
    }

    /// The output, by whole matrices.
    pub fn composed(&self) -> Var<T> {
        let (s, keep) = self.scores();
        self.values(&self.normalize(&s, &keep))
    }

    /// Everything, by whole matrices.
    pub fn composed_all(&self) -> Attended<T> {
        let (s, keep) = self.scores();
        let weights = self.normalize(&s, &keep);
        let output = self.values(&weights);
        let low = s.masked_fill(&!&keep, T::NEG_INFINITY);
        let lse = self.with_sink(&low).logsumexp(-1);
        Attended { output, weights, lse }
    }

    /// Scores `[B, Hq, Lq, Lk]`, and the pairs to be kept, of a shape that broadcasts to it.
    fn scores(&self) -> (Var<T>, Tensor<bool>) {
        let spec = &self.spec;
        let keep = spec.mask.dense(self.sizes, self.offset);
        let (q, k) = match spec.normalizer {
            Normalizer::Linear => (features(&self.q), features(&self.k)),
            _ => (self.q.mul_scalar(self.scale()), self.k.clone()),
        };
        let mut s = self.ungrouped(&scores(&self.grouped(&q), &k.unsqueeze(2)));
        if let Some(products) = &spec.products {
            s = &s + products.reshape(s.shape()) * self.scale();
        }
        let mut keep = keep.unwrap_or_else(|| Tensor::ones([1, 1, 1, 1]));
        // The softmax does not touch what is not seen. All else might let a NaN through: the
        // slope of a softcap, other normalizers, a mixture of heads. Where one of them comes
        // next, what is not seen is taken out.
        if let Some(c) = spec.softcap {
            let c = T::from_f64(c);
            s = (s.masked_fill(&!&keep, T::ZERO) / c).tanh() * c;
        }
        for bias in &spec.biases {
            s = s.add(&bias.as_var(self.sizes, self.offset));
        }
        if let Some(mix) = &spec.score_mix {
            // A score of -inf is not seen either, and would be in every mixture.
            let low = s.value().eq(&Tensor::scalar(T::NEG_INFINITY));
            keep = keep.and(&!&low);
            s = mix_heads(mix, &s.masked_fill(&!&keep, T::ZERO));
        } else if !matches!(spec.normalizer, Normalizer::Softmax | Normalizer::TopK(_)) {
            s = s.masked_fill(&!&keep, T::ZERO);
        }
        (s, keep)
    }

    /// Weighted sums of the values, `[B, Hq, Lq, Dv]`.
    fn values(&self, weights: &Var<T>) -> Var<T> {
        let w = self.spec.passed(weights);
        self.ungrouped(&mix(&self.grouped(&w), &self.v.unsqueeze(2)))
    }

    /// Scores with the sink, if there is one, as one more column, which everyone sees.
    fn with_sink(&self, s: &Var<T>) -> Var<T> {
        let heads = self.sizes.heads;
        let sink = match &self.spec.sink {
            Sink::None => return s.clone(),
            Sink::Zero => Var::constant(Tensor::zeros([heads])),
            Sink::Learned(sink) => sink.clone(),
        };
        let mut dims = s.shape().to_vec();
        dims[3] = 1;
        Var::cat(&[s, &sink.reshape([1, heads, 1, 1]).broadcast_to(dims)], -1)
    }

    /// Weights of scores, over the pairs to be kept.
    fn normalize(&self, s: &Var<T>, keep: &Tensor<bool>) -> Var<T> {
        match self.spec.normalizer {
            Normalizer::Softmax => match self.spec.sink {
                Sink::None => s.masked_softmax(keep, -1),
                _ => {
                    let keep = keep.broadcast_to(s.shape()).pad(-1, 0, 1, true);
                    self.with_sink(s).masked_softmax(&keep, -1).narrow(-1, 0, self.sizes.lk)
                }
            },
            Normalizer::Sigmoid { bias } => {
                let bias = bias.unwrap_or(-(self.sizes.lk.max(1) as f64).ln());
                s.add_scalar(T::from_f64(bias)).sigmoid().masked_fill(&!keep, T::ZERO)
            }
            Normalizer::Linear => share(s),
            Normalizer::Sparsemax | Normalizer::Entmax15 => {
                let (s, keep) = (with_thresholds(s, keep), keep.broadcast_to(s.shape()));
                match self.spec.normalizer {
                    Normalizer::Sparsemax => sparsemax(&s, &keep),
                    _ => entmax15(&s, &keep),
                }
            }
            Normalizer::TopK(k) => {
                let low = s.value().masked_fill(&!keep, T::NEG_INFINITY);
                s.masked_softmax(&among_largest(&low, k).and(keep), -1)
            }
        }
    }
}

impl<T: Real> Spec<T> {
    /// What comes of weights `[.., H, Lq, Lk]` before they meet the values: dropout, and mixture.
    pub(crate) fn passed(&self, weights: &Var<T>) -> Var<T> {
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

/// The `k` largest of every row; of equal ones, the first.
fn among_largest<T: Real>(x: &Tensor<T>, k: usize) -> Tensor<bool> {
    let index = x.topk(k.min(x.size(-1)), -1, true).1;
    let ones = Tensor::<T>::ones(index.shape());
    Tensor::zeros(x.shape()).scatter_add(-1, &index, &ones).gt(&Tensor::scalar(T::ZERO))
}

/// Scores whose rows are all NaN where one that is seen is NaN or infinitely large: a threshold
/// would be, too.
fn with_thresholds<T: Real>(s: &Var<T>, keep: &Tensor<bool>) -> Var<T> {
    let seen = s.value().masked_fill(&!keep, T::NEG_INFINITY);
    let numbers = seen.lt(&Tensor::scalar(T::INFINITY)).all([-1]).unsqueeze(-1);
    if numbers.all(..).item() {
        return s.clone();
    }
    s.masked_fill(&!&numbers, T::from_f64(f64::NAN))
}

/// Which elements of each row get weight under sparsemax or entmax, given for every rank the
/// threshold that the elements up to it would have: those not below the last threshold that
/// its own element reaches. In a row of NaN, all that are kept.
fn support<T: Real>(
    s: &Tensor<T>,
    keep: &Tensor<bool>,
    threshold: impl Fn(&[f64]) -> f64,
) -> Tensor<bool> {
    let width = s.size(-1);
    let (s, keep) = (s.contiguous(), keep.contiguous());
    let mut out = Vec::with_capacity(s.numel());
    for (row, keep) in s.as_slice().chunks(width.max(1)).zip(keep.as_slice().chunks(width.max(1))) {
        let mut kept: Vec<f64> =
            row.iter().zip(keep).filter(|(_, k)| **k).map(|(x, _)| x.to_f64()).collect();
        if kept.iter().any(|x| x.is_nan()) {
            out.extend(keep);
            continue;
        }
        kept.sort_by(|a, b| b.total_cmp(a));
        let reaches = |&n: &usize| kept[n - 1] > threshold(&kept[..n]);
        let last = (1..=kept.len()).take_while(reaches).last();
        let lowest = last.map_or(f64::INFINITY, |n| kept[n - 1]);
        out.extend(row.iter().zip(keep).map(|(x, k)| *k && x.to_f64() >= lowest));
    }
    Tensor::from_vec(out, s.shape())
}

/// `max(s - τ, 0)` with `τ = (Σ s - 1) / n` over the support. The support is constant, so the
/// gradient is exact where it does not change.
fn sparsemax<T: Real>(s: &Var<T>, keep: &Tensor<bool>) -> Var<T> {
    let inside = support(s.value(), keep, |x| (x.iter().sum::<f64>() - 1.0) / x.len() as f64);
    let n = column_counts(&inside);
    let s = s.masked_fill(&!&inside, T::ZERO);
    let tau = (s.sum_keepdim(-1) - T::ONE) / n;
    (s - tau).masked_fill(&!&inside, T::ZERO)
}

/// `max(s/2 - τ, 0)²` with `Σ = 1`: over the support, `τ = mean - √((1 - Σ(s/2 - mean)²) / n)`.
fn entmax15<T: Real>(s: &Var<T>, keep: &Tensor<bool>) -> Var<T> {
    let inside = support(s.value(), keep, |x| {
        let n = x.len() as f64;
        let mean = x.iter().sum::<f64>() / n / 2.0;
        let spread: f64 = x.iter().map(|x| (x / 2.0 - mean).powi(2)).sum();
        2.0 * (mean - ((1.0 - spread) / n).max(0.0).sqrt())
    });
    let n = column_counts(&inside);
    let outside = !&inside;
    let half = (s * T::from_f64(0.5)).masked_fill(&outside, T::ZERO);
    let mean = half.sum_keepdim(-1) / &n;
    let spread = (&half - &mean).masked_fill(&outside, T::ZERO).square().sum_keepdim(-1);
    // The root's derivative is infinite at 0, where the support is about to lose an element.
    let root = ((-spread + T::ONE) / n).clamp(T::ZERO, T::INFINITY).sqrt();
    (half - (mean - root)).masked_fill(&outside, T::ZERO).square()
}

/// Number of true elements of each row, at least 1, as a column.
fn column_counts<T: Real>(inside: &Tensor<bool>) -> Var<T> {
    let ones = inside.where_(&Tensor::scalar(T::ONE), &Tensor::scalar(T::ZERO));
    Var::constant(ones.sum_keepdim(-1).maximum(&Tensor::scalar(T::ONE)))
}
