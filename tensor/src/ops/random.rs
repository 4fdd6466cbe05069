//! Random tensors, and dropout.

use crate::box_muller::box_muller;
use crate::cost::Cost;
use crate::element::{DType, Element, Integer};
use crate::error::{ErrorKind, OrPanic, Result, assert, require};
use crate::kernels::Real;
use crate::observe::{self, KernelCall};
use crate::par;
use crate::random::{Key, Rng, below, draws, threshold, unit, unit_f32};
use crate::settings;
use crate::shape::{IntoShape, Shape};
use crate::simd::{inlined, prefetch_l1};
use crate::tensor::Tensor;

/// Elements that are computed together.
const BLOCK: usize = 256;

/// A tensor whose elements are computed from the bits of a key: `f` is given a block of elements, and the bits of
/// as many, rounded up to pairs.
#[track_caller]
fn from_bits<T: Element>(
    op: &'static str,
    shape: Shape,
    key: Key,
    cost: Cost,
    f: impl Fn(&[u64], &mut [T]) + Send + Sync,
) -> Tensor<T> {
    let (call, level) = (observe::begin(), settings::level());
    let out = Tensor::build(op, shape, |out| {
        par::fill(out, cost.chunk_len(), cost, |first, out| {
            let mut bits = [0; BLOCK];
            for (i, out) in out.chunks_mut(BLOCK).enumerate() {
                let bits = &mut bits[..out.len().next_multiple_of(2)];
                key.fill_bits(level, (first + i * BLOCK) as u64, bits);
                f(bits, out);
            }
        });
    });
    observe::end(call, || KernelCall { level: Some(level.name()), ..out.moved(op, "Philox", 0) });
    out
}

/// [`from_bits`], one by one.
#[track_caller]
fn from_each<T: Element>(
    op: &'static str,
    shape: Shape,
    key: Key,
    f: impl Fn(u64) -> T + Send + Sync,
) -> Tensor<T> {
    from_bits(op, shape, key, Cost::COSTLY, |bits, out| {
        for (y, &bits) in out.iter_mut().zip(bits) {
            *y = f(bits);
        }
    })
}

fn probability(op: &'static str, p: f64) -> Result<f64> {
    let valid = (0.0..=1.0).contains(&p);
    require(valid, op, ErrorKind::Value, || format!("p must be in [0, 1], got {p}"))?;
    Ok(p)
}

/// # Random tensors
///
/// Random numbers. Element `i` in row-major order is a function of the key and `i` alone.
impl<T: Real> Tensor<T> {
    /// Uniform in `[0, 1)`; the `f32` numbers are the `f64` numbers rounded down.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::<f32>::rand([1000], &mut Rng::new(1));
    /// assert!(x.to_vec().iter().all(|x| (0.0..1.0).contains(x)));
    /// assert_eq!(x, Tensor::rand([1000], &mut Rng::new(1))); // a function of the seed
    /// ```
    #[track_caller]
    pub fn rand(shape: impl IntoShape, rng: &mut Rng) -> Tensor<T> {
        let number = |bits| match T::DTYPE {
            DType::F32 => T::from_f64(unit_f32(bits).into()),
            _ => T::from_f64(unit(bits)),
        };
        from_each("rand", shape.into(), rng.key(), number)
    }

    /// Uniform in `[lo, hi)`, or all `lo` if the bounds are equal.
    ///
    /// # Panics
    /// If a bound or their distance is not finite, or they are out of order.
    #[track_caller]
    pub fn uniform(shape: impl IntoShape, lo: f64, hi: f64, rng: &mut Rng) -> Tensor<T> {
        let width = hi - lo;
        assert(width >= 0.0 && width.is_finite(), "uniform", ErrorKind::Value, || {
            format!("[{lo}, {hi}) must be in order and of finite width")
        });
        let (first, end) = (T::from_f64(lo), T::from_f64(hi));
        let number = |bits| {
            // Rounding may give the upper bound, which is excluded.
            let x = T::from_f64(lo + width * unit(bits));
            if x < end { x } else { first }
        };
        from_each("uniform", shape.into(), rng.key(), number)
    }

    /// Standard normal, by the transform of Box and Muller (1958) in `f64`:
    /// `√(-2 ln u) · (cos 2πv, sin 2πv)`. The same numbers on every platform.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::<f64>::randn([10_000], &mut Rng::new(1));
    /// assert!(x.mean(..).item().abs() < 0.05 && (x.std(.., 1).item() - 1.0).abs() < 0.05);
    /// ```
    #[track_caller]
    pub fn randn(shape: impl IntoShape, rng: &mut Rng) -> Tensor<T> {
        let level = settings::level();
        from_bits("randn", shape.into(), rng.key(), Cost::SCALAR, |bits, out| {
            let mut normal = [0.0; BLOCK];
            box_muller(level, bits, &mut normal[..bits.len()]);
            for (y, &x) in out.iter_mut().zip(&normal) {
                *y = T::from_f64(x);
            }
        })
    }

    /// [`Tensor::rand`] of the same shape.
    #[track_caller]
    pub fn rand_like(&self, rng: &mut Rng) -> Tensor<T> {
        Tensor::rand(*self.shape(), rng)
    }

    /// [`Tensor::randn`] of the same shape.
    #[track_caller]
    pub fn randn_like(&self, rng: &mut Rng) -> Tensor<T> {
        Tensor::randn(*self.shape(), rng)
    }

    /// Inverted dropout (Srivastava et al. 2014): 0 with probability `p`, else
    /// `x · 1/(1 - p)`. The vector-Jacobian product is the same dropout of the gradient,
    /// under the same key.
    ///
    /// Element `i` in row-major order, whatever the layout, is dropped if [`key.happens(i,
    /// p)`](Key::happens). Dropped elements become 0, even NaN. With `p = 0` the result is `self`,
    /// with `p = 1` all 0.
    ///
    /// # Panics
    /// If `p` is outside `[0, 1]` or NaN.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// use retrograd::tensor::random::Key;
    /// let y = Tensor::<f32>::ones([1000]).dropout(0.5, Key::new(1, 0)).to_vec();
    /// assert!(y.iter().all(|&y| y == 0.0 || y == 2.0));
    /// assert!((400..600).contains(&y.iter().filter(|&&y| y == 0.0).count()));
    /// ```
    #[track_caller]
    pub fn dropout(&self, p: f64, key: Key) -> Tensor<T> {
        let p = probability("dropout", p).or_panic();
        let dropped = match u32::try_from(threshold(p)) {
            Ok(0) => return self.clone(),
            Ok(below) => below,
            Err(_) => return Tensor::zeros(*self.shape()),
        };
        let scale = T::from_f64(1.0 / (1.0 - p));
        let x = self.contiguous();
        let data = x.as_slice();
        let (call, level) = (observe::begin(), settings::level());
        let out = Tensor::build("dropout", *self.shape(), |out| {
            par::fill(out, Cost::CHEAP.chunk_len(), Cost::CHEAP, |first, out| {
                let data = &data[first..first + out.len()];
                key.fill(
                    level,
                    first as u64,
                    out,
                    // By value: a captured reference might alias the output, which prevents
                    // vectorisation.
                    inlined!(move |words, at, out| {
                        let words = &words[..out.len()];
                        let x = &data[at..at + out.len()];
                        for i in 0..out.len() {
                            out[i] = if words[i] >= dropped { x[i] * scale } else { T::ZERO };
                        }
                    }),
                );
            });
        });
        observe::end(call, || KernelCall {
            level: Some(level.name()),
            flops: out.numel() as u64,
            ..out.moved("dropout", "Philox", x.distinct_bytes())
        });
        out
    }
}

/// # Random tensors
impl Tensor<bool> {
    /// `true` with probability `p`, to within 2⁻³².
    ///
    /// # Panics
    /// If `p` is outside `[0, 1]` or NaN.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::bernoulli([10_000], 0.25, &mut Rng::new(1));
    /// assert!((2300..2700).contains(&x.count_true()));
    /// ```
    #[track_caller]
    pub fn bernoulli(shape: impl IntoShape, p: f64, rng: &mut Rng) -> Tensor<bool> {
        let below = threshold(probability("bernoulli", p).or_panic());
        let (key, level, call) = (rng.key(), settings::level(), observe::begin());
        let out = Tensor::build("bernoulli", shape.into(), |out| {
            par::fill(out, Cost::CHEAP.chunk_len(), Cost::CHEAP, |first, out| {
                key.fill(
                    level,
                    first as u64,
                    out,
                    inlined!(move |words, _, out| {
                        let words = &words[..out.len()];
                        for i in 0..out.len() {
                            out[i] = u64::from(words[i]) < below;
                        }
                    }),
                );
            });
        });
        observe::end(call, || KernelCall {
            level: Some(level.name()),
            ..out.moved("bernoulli", "Philox", 0)
        });
        out
    }
}

/// # Random tensors
impl<I: Integer> Tensor<I> {
    /// The numbers `0..n` in random order, all orders being equally likely (Fisher and
    /// Yates).
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let mut order = Tensor::<i64>::randperm(5, &mut Rng::new(3)).to_vec();
    /// order.sort();
    /// assert_eq!(order, [0, 1, 2, 3, 4]);
    /// ```
    #[track_caller]
    pub fn randperm(n: usize, rng: &mut Rng) -> Tensor<I> {
        let mut draw = draws(rng.key());
        let mut out = Tensor::indices(n);
        let order = out.make_mut();
        // Some positions ahead, so that they can be prefetched.
        let (mut left, mut others) = (n, [0; 64]);
        while left > 1 {
            let others = &mut others[..64.min(left - 1)];
            for (i, other) in others.iter_mut().enumerate() {
                *other = below((left - i) as u64, &mut draw) as usize;
                prefetch_l1(&order[*other]);
            }
            for &other in &*others {
                left -= 1;
                order.swap(left, other);
            }
        }
        out
    }

    /// Integers in `lo..hi`; the probability of each is off by less than 2⁻⁶⁴.
    ///
    /// # Panics
    /// If `lo..hi` is empty and the shape is not.
    #[track_caller]
    pub fn randint(lo: I, hi: I, shape: impl IntoShape, rng: &mut Rng) -> Tensor<I> {
        let shape = shape.into();
        let count = hi.to_i128() - lo.to_i128();
        assert(count > 0 || shape.numel() == 0, "randint", ErrorKind::Value, || {
            format!("the range {lo}..{hi} is empty")
        });
        let number = |bits: u64| {
            let offset = (u128::from(bits) * count.unsigned_abs()) >> 64;
            I::from_i128(lo.to_i128() + offset as i128)
        };
        from_each("randint", shape, rng.key(), number)
    }
}
