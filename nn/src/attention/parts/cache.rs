//! The cache of keys and values, or of a state, for generation.
//!
//! To continue a causal sequence, only the new tokens need queries; the keys and values of earlier
//! tokens do not change. With a cache, one step costs `O(L)` instead of `O(L²)`, for
//! `Hk · (D + Dv)` elements of memory per token and layer. A state rule has a state of constant size instead.

use super::state::RecurrentState;
use crate::attention::engine::CachedPositions;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::{Real, Tensor};
use std::ops::Range;

/// A cache of the keys `[.., Hk, L, D]` and values `[.., Hk, L, Dv]` of the tokens so far.
///
/// Rows are written in place into reserved capacity, so that adding a token copies only that token.
///
/// ```
/// use retrograd::nn::attention::{HeadSizes, Incremental, KvCache, Projections, Rope, Spec};
/// use retrograd::prelude::*;
///
/// let mut rng = Rng::new(1);
/// let projections = Projections::<f32>::new(HeadSizes::new(16, 2), &mut rng);
/// let attention = projections.with_rope(Rope::new(8));
/// let x = Var::constant(Tensor::randn([1, 6, 16], &mut rng));
/// let (mut cache, spec) = (KvCache::new(6), Spec::new().causal());
/// let prompt = attention.forward_cached(&x.narrow(1, 0, 5), &spec, &mut cache);
/// let next = attention.forward_cached(&x.narrow(1, 5, 1), &spec, &mut cache);
/// assert_eq!((prompt.size(1), next.size(1), cache.position()), (5, 1, 6));
/// ```
#[derive(Clone, Debug)]
pub struct KvCache<T: Real = f32> {
    keys: Buffer<T>,
    values: Buffer<T>,
    /// Of a layer without keys.
    state: RecurrentState<T>,
    seen: usize,
    limit: Limit,
}

#[derive(Clone, Copy, Debug)]
enum Limit {
    /// At most so many tokens.
    Capacity(usize),
    /// Any number of tokens; the first `first` and the last `last` are kept.
    Keep { first: usize, last: usize },
}

impl<T: Real> KvCache<T> {
    /// A cache for at most `capacity` tokens.
    pub fn new(capacity: usize) -> Self {
        KvCache::with(Limit::Capacity(capacity))
    }

    /// A cache for any number of tokens that keeps only the last `n`. Outputs are equal to the outputs of
    /// the whole sequence under a causal window of up to `n` tokens before the query
    /// (`Mask::causal() & Mask::window(n, 0)`), or any narrower mask. Keys keep their positions,
    /// for masks and biases.
    ///
    /// ```
    /// use retrograd::nn::attention::KvCache;
    /// use retrograd::prelude::*;
    /// let x = Tensor::<f32>::ones([1, 2, 3, 4]); // [batch, heads, length, width]
    /// let mut cache = KvCache::sliding(2);
    /// cache.append(&x, &x);
    /// cache.append(&x, &x);
    /// assert!(cache.len() <= 4 && cache.position() == 6);
    /// ```
    pub fn sliding(n: usize) -> Self {
        KvCache::streaming(0, n)
    }

    /// A cache for any number of tokens that keeps the first `first` and the last `last`, the keys
    /// of [`StreamingAttention`](crate::attention::StreamingAttention).
    pub fn streaming(first: usize, last: usize) -> Self {
        KvCache::with(Limit::Keep { first, last })
    }

    fn with(limit: Limit) -> Self {
        let (keys, values, state) =
            (Buffer::default(), Buffer::default(), RecurrentState::default());
        KvCache { keys, values, state, seen: 0, limit }
    }

    /// The number of tokens so far, which is the position of the next token.
    pub fn position(&self) -> usize {
        self.seen
    }

    /// The number of tokens in the cache that the next tokens can attend to.
    pub fn len(&self) -> usize {
        match self.limit {
            Limit::Capacity(_) => self.keys.len,
            Limit::Keep { first, last } => self.keys.len.min(first.saturating_add(last)),
        }
    }

    /// The positions of the keys in the cache.
    pub(crate) fn positions(&self) -> CachedPositions {
        let first = match self.limit {
            Limit::Capacity(_) => 0,
            Limit::Keep { first, .. } => first,
        };
        CachedPositions { first, dropped: self.seen - self.len() }
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of tokens that may follow; `None` if there is no limit.
    pub fn remaining(&self) -> Option<usize> {
        match self.limit {
            Limit::Capacity(n) => Some(n - self.seen),
            Limit::Keep { .. } => None,
        }
    }

    /// The size in bytes of the keys and values of the tokens in the cache, or of the state.
    pub fn bytes(&self) -> usize {
        let elements = |buffer: &Buffer<T>| match &buffer.data {
            Some(data) if data.size(-2) > 0 => data.numel() / data.size(-2) * self.len(),
            _ => 0,
        };
        (elements(&self.keys) + elements(&self.values)) * size_of::<T>() + self.state.bytes()
    }

    /// Removes all tokens.
    pub fn clear(&mut self) {
        *self = KvCache::with(self.limit);
    }

    /// Removes all tokens from position `n` on, as after rejected tokens in speculative decoding.
    ///
    /// # Panics
    /// If there are fewer than `n` tokens, or some before them have been dropped, as by a state.
    #[track_caller]
    pub fn truncate(&mut self, n: usize) {
        assert(n <= self.seen, "cache", ErrorKind::Index, || {
            format!("cannot truncate to {n} of {} tokens", self.seen)
        });
        assert(self.keys.len == self.seen, "cache", ErrorKind::Index, || {
            format!(
                "cannot go back to {n} of {} tokens: only {} are held",
                self.seen, self.keys.len
            )
        });
        (self.keys.len, self.values.len, self.seen) = (n, n, n);
    }

    #[track_caller]
    fn check_capacity(&self, new: usize) {
        let Limit::Capacity(n) = self.limit else { return };
        assert(self.seen + new <= n, "cache", ErrorKind::Index, || {
            format!("{new} more tokens after {} exceed the capacity of {n}", self.seen)
        });
    }

    /// The state of a layer without keys, for `new` more tokens.
    ///
    /// # Panics
    /// If they exceed the capacity.
    #[track_caller]
    pub(crate) fn state(&mut self, new: usize) -> &mut RecurrentState<T> {
        self.check_capacity(new);
        self.seen += new;
        &mut self.state
    }

    /// Appends keys `[.., Hk, L, D]` and values `[.., Hv, L, Dv]`, and returns the keys and values of all tokens
    /// in the cache, the new ones last.
    ///
    /// # Panics
    /// If they exceed the capacity, or their other axes differ from earlier tokens.
    #[track_caller]
    pub fn append(&mut self, k: &Tensor<T>, v: &Tensor<T>) -> (Tensor<T>, Tensor<T>) {
        let new = k.size(-2);
        assert(v.size(-2) == new, "cache", ErrorKind::Mismatch, || {
            format!("{new} keys and {} values: k {:?}, v {:?}", v.size(-2), k.shape(), v.shape())
        });
        self.check_capacity(new);
        // Old rows are dropped here and not after they were read: now no tensor shares the
        // buffer, so that rows are moved in place.
        if let Limit::Keep { first, last } = self.limit {
            self.keys.keep(first, last);
            self.values.keep(first, last);
        }
        self.keys.check(k, "keys");
        self.values.check(v, "values");
        self.seen += new;
        (self.keys.push(k), self.values.push(v))
    }
}

/// A tensor `[.., L, D]` that grows along `L`, with reserved capacity.
#[derive(Clone, Debug)]
struct Buffer<T: Real> {
    /// `[.., capacity, D]`, of which rows `start..start + len` are used.
    data: Option<Tensor<T>>,
    start: usize,
    len: usize,
}

impl<T: Real> Default for Buffer<T> {
    fn default() -> Self {
        Buffer { data: None, start: 0, len: 0 }
    }
}

impl<T: Real> Buffer<T> {
    #[track_caller]
    fn check(&self, new: &Tensor<T>, what: &str) {
        let Some(data) = &self.data else { return };
        let mut want = data.shape().to_vec();
        let rank = want.len();
        let same = new.rank() == rank && {
            want[rank - 2] = new.size(-2);
            new.shape()[..] == want[..]
        };
        assert(same, "cache", ErrorKind::Mismatch, || {
            format!("{what} {:?} do not continue {want:?}", new.shape())
        });
    }

    /// Appends rows, and returns all rows.
    fn push(&mut self, new: &Tensor<T>) -> Tensor<T> {
        let (count, width) = (new.size(-2), new.size(-1));
        let old = self.data.take();
        let capacity = old.as_ref().map_or(0, |x| x.size(-2));
        let mut data = match old {
            Some(x) if self.start + self.len + count <= capacity => x,
            // At most half of the capacity is used, so that moving rows takes constant time per row.
            Some(mut x) if 2 * (self.len + count) <= capacity => {
                move_rows(&mut x, self.start..self.start + self.len, 0);
                self.start = 0;
                x
            }
            old => {
                let mut shape = new.shape().to_vec();
                let axis = shape.len() - 2;
                shape[axis] = (self.len + count).max(2 * capacity);
                let mut grown = Tensor::zeros(shape);
                if let Some(old) = old {
                    write(&mut grown, &old.narrow(-2, self.start, self.len), 0);
                }
                self.start = 0;
                grown
            }
        };
        if count * width > 0 {
            write(&mut data, new, self.start + self.len);
        }
        self.len += count;
        self.data.insert(data).narrow(-2, self.start, self.len)
    }

    /// Drops all rows but the first `first` and the last `last`.
    fn keep(&mut self, first: usize, last: usize) {
        let Some(data) = &mut self.data else { return };
        if self.len <= first.saturating_add(last) {
            return;
        }
        let from = self.start + self.len - last;
        if first > 0 {
            move_rows(data, from..from + last, self.start + first);
        } else {
            self.start = from;
        }
        self.len = first + last;
    }
}

/// Moves rows of `data` `[.., capacity, D]` to rows `to..`.
fn move_rows<T: Real>(data: &mut Tensor<T>, rows: Range<usize>, to: usize) {
    let (capacity, width) = (data.size(-2), data.size(-1));
    if capacity * width > 0 {
        for block in data.make_mut().chunks_mut(capacity * width) {
            block.copy_within(rows.start * width..rows.end * width, to * width);
        }
    }
}

/// Copies `new` `[.., n, D]` to rows `at..` of `data` `[.., capacity, D]`.
fn write<T: Real>(data: &mut Tensor<T>, new: &Tensor<T>, at: usize) {
    let (capacity, width, n) = (data.size(-2), data.size(-1), new.size(-2));
    if n * width == 0 {
        return;
    }
    let new = new.contiguous();
    let blocks = data.make_mut().chunks_mut(capacity * width);
    for (block, rows) in blocks.zip(new.as_slice().chunks(n * width)) {
        block[at * width..(at + n) * width].copy_from_slice(rows);
    }
}
