//! Biases of attention scores: a function of positions, or a tensor.

use super::mask::{CachedPositions, Sizes};
use retrograd_autograd::Var;
use retrograd_tensor::error::{ErrorKind, Result, require};
use retrograd_tensor::kernels::attention::At;
use retrograd_tensor::{Real, Tensor};
use std::fmt;
use std::sync::Arc;

/// A bias that is added to the scores `[B, H, Lq, Lk]`, after scale and softcap, before the mask.
#[derive(Clone)]
pub enum Bias<T: Real = f32> {
    /// `-slope_h · |p - j|` with a slope per head, for the query at position `p` and the key at
    /// position `j`. Press, Smith, Lewis 2021 (arXiv 2108.12409).
    Alibi(Arc<[f64]>),
    /// A tensor broadcast to `[B, H, Lq, Lk]`, with a gradient if it is tracked.
    Additive(Var<T>),
    /// A function of sequence, head, query position and key position, with a name for printing.
    Function(&'static str, Arc<dyn Fn(At) -> f64 + Send + Sync>),
}

impl<T: Real> Bias<T> {
    /// ALiBi with the slopes of the paper, for any number of heads.
    pub fn alibi(heads: usize) -> Self {
        Bias::Alibi(alibi_slopes(heads).into())
    }

    /// A bias that is a function of sequence, head, query position and key position.
    ///
    /// ```
    /// use retrograd::nn::attention::{Bias, Spec, attend};
    /// use retrograd::prelude::*;
    /// let mut rng = Rng::new(1);
    /// let mut x = || Var::constant(Tensor::<f64>::randn([5, 4], &mut rng));
    /// let (q, k, v) = (x(), x(), x());
    /// let near = Bias::from_fn("near", |at| -(at.query as f64 - at.key as f64).abs());
    /// assert_eq!(*attend(&q, &k, &v, &Spec::new().bias(near)).shape(), [5, 4]);
    /// ```
    pub fn from_fn(name: &'static str, f: impl Fn(At) -> f64 + Send + Sync + 'static) -> Self {
        Bias::Function(name, Arc::new(f))
    }

    /// The bias for the sizes of a call, or an error if it does not fit them. If the cache has
    /// dropped keys, the last axis of the result has only the keys that are still in the cache.
    pub(crate) fn resolved(
        &self,
        sizes: Sizes,
        cached: Option<CachedPositions>,
    ) -> Result<Bias<T>> {
        let cached = cached.filter(|cached| cached.dropped > 0);
        let per_key = matches!(self, Bias::Additive(x) if x.shape().last().is_some_and(|&n| n > 1));
        require(cached.is_none() || !per_key, "bias", ErrorKind::Mismatch, || {
            "an additive bias per key does not fit a cache that has dropped keys".into()
        })?;
        self.check(sizes)?;
        let Some(cached) = cached else { return Ok(self.clone()) };
        match self {
            Bias::Additive(_) => Ok(self.clone()),
            _ => {
                let bias = self.clone();
                let f = move |at: At| bias.as_fn().map_or(0.0, |f| f(cached.to_position(at)));
                Ok(Bias::from_fn("by position", f))
            }
        }
    }

    /// The bias where the queries of each sequence are moved by its shift, or all by one.
    pub(crate) fn shifted(&self, shifts: &Arc<[isize]>) -> Bias<T> {
        let shifts = shifts.clone();
        let shift = move |batch: usize| if shifts.len() == 1 { shifts[0] } else { shifts[batch] };
        match self {
            Bias::Additive(_) => self.clone(),
            _ => {
                let bias = self.clone();
                let moved = move |at: At| At { query: at.query + shift(at.batch), ..at };
                let f = move |at: At| bias.as_fn().map_or(0.0, |f| f(moved(at)));
                Bias::from_fn("by sequence", f)
            }
        }
    }

    fn check(&self, sizes: Sizes) -> Result<()> {
        let Sizes { batch, heads, lq, lk } = sizes;
        let sizes = [batch, heads, lq, lk];
        match self {
            Bias::Alibi(slopes) => {
                require(slopes.len() == heads, "bias", ErrorKind::Mismatch, || {
                    format!(
                        "ALiBi needs one slope per head: {} slopes, {heads} heads",
                        slopes.len()
                    )
                })
            }
            Bias::Additive(x) => {
                let mut axes = x.shape().iter().rev().zip(sizes.iter().rev());
                let fits = x.rank() <= 4 && axes.all(|(&have, &want)| have == want || have == 1);
                require(fits, "bias", ErrorKind::Broadcast, || {
                    format!("a bias {:?} does not broadcast to {sizes:?}", x.shape())
                })
            }
            Bias::Function(..) => Ok(()),
        }
    }

    /// The bias as a function of a query and a key; `None` for tensors, which may be differentiated.
    pub(crate) fn as_fn(&self) -> Option<impl Fn(At) -> f64 + Sync + '_> {
        match self {
            Bias::Alibi(_) | Bias::Function(..) => Some(move |at: At| match self {
                Bias::Alibi(slopes) => -slopes[at.head] * (at.query - at.key as isize).abs() as f64,
                Bias::Function(_, f) => f(at),
                _ => 0.0,
            }),
            _ => None,
        }
    }

    /// The bias as a variable that broadcasts to `[B, H, Lq, Lk]`.
    pub(crate) fn as_var(&self, sizes: Sizes, offset: isize) -> Var<T> {
        let Sizes { batch, heads, lq, lk } = sizes;
        match self {
            Bias::Additive(x) => x.clone(),
            _ => {
                let f = self.as_fn().expect("the other biases are functions");
                // ALiBi is the same for every sequence.
                let batch = if matches!(self, Bias::Alibi(_)) { 1 } else { batch };
                Var::constant(Tensor::from_fn([batch, heads, lq, lk], |i| {
                    let query = i[2] as isize + offset;
                    T::from_f64(f(At { batch: i[0], head: i[1], query, key: i[3] }))
                }))
            }
        }
    }
}

/// The slopes of ALiBi: `2^(-8h/H)` for `h = 1..=H` if `H` is a power of two; else the slopes of the
/// power of two below, followed by every other slope of the power of two above.
///
/// ```
/// use retrograd::nn::attention::alibi_slopes;
/// assert_eq!(alibi_slopes(2), [0.0625, 0.00390625]);
/// assert_eq!(alibi_slopes(3), [0.0625, 0.00390625, 0.25]);
/// ```
pub fn alibi_slopes(heads: usize) -> Vec<f64> {
    let power = |n: usize| (1..=n).map(move |h| (-8.0 * h as f64 / n as f64).exp2());
    if heads == 0 {
        return Vec::new();
    }
    let below = if heads.is_power_of_two() { heads } else { heads.next_power_of_two() / 2 };
    power(below).chain(power(2 * below).step_by(2).take(heads - below)).collect()
}

/// The distance buckets of T5. Half of the buckets hold one distance each. The widths of the others
/// grow by a constant factor up to `max_distance`. The last one also holds all larger distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// The number of buckets.
    pub count: usize,
    /// All distances of at least this value are in the last bucket.
    pub max_distance: usize,
    /// Whether half of the buckets are for keys after the query. If not, these keys are in bucket 0,
    /// as the key at the position of the query.
    pub bidirectional: bool,
}

impl Buckets {
    /// Checks that every direction has a bucket, and that `max_distance` exceeds the distances that
    /// have a bucket of their own.
    pub(crate) fn check(&self, op: &'static str) -> Result<()> {
        let Buckets { count, max_distance, bidirectional } = *self;
        let exact = if bidirectional { count / 4 } else { count / 2 };
        let enough = count >= if bidirectional { 2 } else { 1 };
        require(enough, op, ErrorKind::Value, || format!("{count} buckets are too few"))?;
        let exact = exact.max(1);
        require(max_distance > exact, op, ErrorKind::Value, || {
            format!("{count} buckets require a max_distance above {exact}, got {max_distance}")
        })
    }

    /// The bucket of `key - query`.
    pub fn of(&self, relative: isize) -> usize {
        let (mut count, mut base) = (self.count, 0);
        let distance = if self.bidirectional {
            count /= 2;
            base = if relative > 0 { count } else { 0 };
            relative.unsigned_abs()
        } else {
            (-relative).max(0) as usize
        };
        let exact = count / 2;
        if distance < exact {
            return base + distance;
        }
        let far = (distance as f64 / exact.max(1) as f64).ln();
        let range = (self.max_distance as f64 / exact.max(1) as f64).ln();
        let step = (far / range * (count - exact) as f64) as usize;
        base + (exact + step).min(count.saturating_sub(1))
    }
}

impl<T: Real> fmt::Debug for Bias<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bias::Alibi(slopes) => write!(f, "ALiBi with {} slopes", slopes.len()),
            Bias::Additive(x) => write!(f, "a tensor {:?}", x.shape()),
            Bias::Function(name, _) => write!(f, "function \"{name}\""),
        }
    }
}
