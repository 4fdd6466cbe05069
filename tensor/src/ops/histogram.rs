//! Counts and order statistics.

use crate::cost::Cost;
use crate::element::Integer;
use crate::error::{ErrorKind, OrPanic, assert, require};
use crate::kernels::Real;
use crate::kernels::reduce::reduce_lines;
use crate::par;
use crate::shape::{Axes, AxisSet};
use crate::storage::reserved;
use crate::tensor::Tensor;
use std::cmp::Ordering;

/// # Counts
impl<I: Integer> Tensor<I> {
    /// How often each of the numbers 0, 1, .. occurs: as many as the largest element needs, and at least
    /// `minlength`.
    ///
    /// # Panics
    /// If an element is negative, or there is not enough memory.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([3i64, 0, 3, 1]);
    /// assert_eq!(x.bincount(0).to_vec(), [1, 1, 0, 2]);
    /// assert_eq!(x.bincount(6).to_vec(), [1, 1, 0, 2, 0, 0]);
    /// ```
    #[track_caller]
    pub fn bincount(&self, minlength: usize) -> Tensor<i64> {
        let numbers = self.contiguous_i64("bincount");
        let numbers = numbers.as_slice();
        let chunk = Cost::CHEAP.chunk_len();
        let parts: Vec<&[i64]> = numbers.chunks(chunk).collect();
        let bounds = par::map(parts.len(), chunk, Cost::MOVE, |i| {
            parts[i].iter().fold((0, -1), |(lo, hi), &n| (n.min(lo), n.max(hi)))
        });
        assert(bounds.iter().all(|b| b.0 >= 0), "bincount", ErrorKind::Value, || {
            let at = numbers.iter().position(|&n| n < 0).unwrap_or(0);
            format!("the element {} at position {at} is negative", numbers[at])
        });
        let needed = bounds
            .iter()
            .map(|b| usize::try_from(b.1).unwrap_or(usize::MAX - 1) + 1)
            .max()
            .unwrap_or(0);
        let len = needed.max(minlength);
        let count = |part: &[i64], counts: &mut [i64]| {
            counts.fill(0);
            part.iter().for_each(|&n| counts[n as usize] += 1);
        };
        Tensor::build("bincount", [len].into(), |out| {
            if len > chunk {
                return count(numbers, out);
            }
            // Counts of parts, added up.
            let counts = par::map(parts.len(), chunk, Cost::CHEAP, |i| {
                let mut counts = vec![0; needed];
                count(parts[i], &mut counts);
                counts
            });
            out.fill(0);
            for counts in counts {
                out.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
            }
        })
    }
}

/// # Counts and order statistics
impl<T: Real> Tensor<T> {
    /// How many elements lie in each of `bins` intervals of equal width from `min` to `max`; the last one
    /// includes `max`. Elements outside, and NaN, are not counted. If `min` and `max` are equal, the range is
    /// from the smallest element to the largest.
    ///
    /// # Panics
    /// If `bins` is 0, or the range is not finite or not in order.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([0.1f32, 0.2, 0.6, 1.0, 7.0]);
    /// assert_eq!(x.histc(2, 0.0, 1.0).to_vec(), [2.0, 2.0]);
    /// ```
    #[doc(alias = "histogram")]
    #[track_caller]
    pub fn histc(&self, bins: usize, min: T, max: T) -> Tensor<T> {
        assert(bins > 0, "histc", ErrorKind::Value, || "needs at least 1 bin, got 0".into());
        let (mut lo, mut hi) = (min.to_f64(), max.to_f64());
        let x = self.contiguous();
        if lo == hi && x.numel() > 0 {
            (lo, hi) = (self.min(..).item().to_f64(), self.max(..).item().to_f64());
        }
        assert(lo <= hi && (hi - lo).is_finite(), "histc", ErrorKind::Value, || {
            format!("the range from {lo} to {hi} must be finite and in order")
        });
        if lo == hi {
            (lo, hi) = (lo - 1.0, hi + 1.0);
        }
        let chunk = Cost::SCALAR.chunk_len().max(bins);
        let parts: Vec<&[T]> = x.as_slice().chunks(chunk).collect();
        let count = |i: usize| {
            let mut counts = reserved("histc", bins).or_panic();
            counts.resize(bins, 0u64);
            for x in parts[i] {
                let x = x.to_f64();
                if lo <= x && x <= hi {
                    let at = ((x - lo) / (hi - lo) * bins as f64) as usize;
                    counts[at.min(bins - 1)] += 1;
                }
            }
            counts
        };
        Tensor::build("histc", [bins].into(), |out| {
            let counts = par::map(parts.len(), chunk, Cost::SCALAR, count);
            let sum = |bin| counts.iter().map(|counts| counts[bin]).sum::<u64>() as f64;
            out.iter_mut().enumerate().for_each(|(bin, out)| *out = T::from_f64(sum(bin)));
        })
    }

    /// The `q`-quantile over axes, which are removed: that part of the elements is smaller. Between two
    /// elements in order it is interpolated linearly. NaN if an element is NaN.
    ///
    /// # Panics
    /// If `q` is outside `[0, 1]`, or a reduced axis is empty.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[4.0f32, 1.0, 2.0], [3.0, 9.0, 6.0]]);
    /// assert_eq!(x.quantile(-1, 0.25).to_vec(), [1.5, 4.5]);
    /// assert_eq!(x.quantile(.., 1.0).item(), 9.0);
    /// ```
    #[doc(alias = "percentile")]
    #[track_caller]
    pub fn quantile(&self, axes: impl Axes, q: f64) -> Tensor<T> {
        let axes = axes.resolve("quantile", self.shape()).or_panic();
        let Between { below, above, part } = Between::of(q, self.count(axes).max(1)).or_panic();
        let (near, far) = (T::from_f64(part), T::from_f64(1.0 - part));
        self.select_in_order("quantile", axes, move |line| {
            let b = nth(line, above);
            let a = if below < above { greatest(&line[..above]) } else { b };
            if part < 0.5 { a + (b - a) * near } else { b - (b - a) * far }
        })
    }

    /// The median over axes, which are removed: the lower of the two elements in the middle if their number
    /// is even, as in PyTorch; [`Tensor::quantile`] with 0.5 is their mean. NaN if an element is NaN.
    ///
    /// # Panics
    /// If a reduced axis is empty.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([4.0f32, 1.0, 2.0, 3.0]);
    /// assert_eq!((x.median(..).item(), x.quantile(.., 0.5).item()), (2.0, 2.5));
    /// ```
    #[track_caller]
    pub fn median(&self, axes: impl Axes) -> Tensor<T> {
        let axes = axes.resolve("median", self.shape()).or_panic();
        self.select_in_order("median", axes, |line| nth(line, (line.len() - 1) / 2))
    }

    /// A function of the elements over axes, in any order; NaN if one of them is NaN.
    #[track_caller]
    fn select_in_order(
        &self,
        op: &'static str,
        axes: AxisSet,
        f: impl Fn(&mut [T]) -> T + Send + Sync,
    ) -> Tensor<T> {
        assert(self.count(axes) > 0, op, ErrorKind::Empty, || {
            format!("an axis of {:?} is empty, so it has no such element", self.shape())
        });
        reduce_lines(op, self, axes, |line| {
            let mut line = line.to_vec();
            match line.iter().find(|x| x.is_nan()) {
                Some(&nan) => nan,
                None => f(&mut line),
            }
        })
    }
}

/// The element that would be at position `n` in ascending order, which it is moved to.
fn nth<T: Real>(line: &mut [T], n: usize) -> T {
    let order = |a: &T, b: &T| a.partial_cmp(b).unwrap_or(Ordering::Equal);
    *line.select_nth_unstable_by(n, order).1
}

/// The greatest of some elements, none of which is NaN.
fn greatest<T: Real>(line: &[T]) -> T {
    line.iter().fold(T::NEG_INFINITY, |a, &b| if b > a { b } else { a })
}

/// The place of a quantile between two elements in order.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Between {
    /// The position of the element below.
    pub below: usize,
    /// The position of the element above.
    pub above: usize,
    /// The part of the way from one to the other.
    pub part: f64,
}

impl Between {
    /// That of the `q`-quantile of `n` elements, at least one.
    #[doc(hidden)]
    pub fn of(q: f64, n: usize) -> crate::error::Result<Between> {
        require((0.0..=1.0).contains(&q), "quantile", ErrorKind::Value, || {
            format!("q must be in [0, 1], got {q}")
        })?;
        let at = q * (n - 1) as f64;
        let below = (at.floor() as usize).min(n - 1);
        Ok(Between { below, above: (at.ceil() as usize).min(n - 1), part: at - at.floor() })
    }
}
