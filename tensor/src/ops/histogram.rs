//! Counts and order statistics.

use crate::element::Integer;
use crate::error::{ErrorKind, OrPanic, require};
use crate::kernels::Real;
use crate::shape::Axes;
use crate::tensor::Tensor;

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
        let negative = self.contiguous().as_slice().iter().position(|x| x.to_i128() < 0);
        require(negative.is_none(), "bincount", ErrorKind::Value, || {
            let at = negative.unwrap_or(0);
            format!("the element {} at position {at} is negative", self.to_vec()[at])
        })
        .or_panic();
        let numbers = self.resolve_indices("bincount", isize::MAX as usize);
        let len = numbers.iter().max().map_or(0, |&n| n + 1).max(minlength);
        Tensor::build("bincount", [len].into(), |out| {
            out.fill(0);
            numbers.iter().for_each(|&n| out[n] += 1);
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
        require(bins > 0, "histc", ErrorKind::Value, || "needs at least 1 bin, got 0".into())
            .or_panic();
        let (mut lo, mut hi) = (min.to_f64(), max.to_f64());
        let x = self.contiguous();
        if lo == hi && x.numel() > 0 {
            (lo, hi) = (self.min(..).item().to_f64(), self.max(..).item().to_f64());
        }
        require(lo <= hi && (hi - lo).is_finite(), "histc", ErrorKind::Value, || {
            format!("the range from {lo} to {hi} must be finite and in order")
        })
        .or_panic();
        if lo == hi {
            (lo, hi) = (lo - 1.0, hi + 1.0);
        }
        let mut counts = vec![0u64; bins];
        for x in x.as_slice() {
            let x = x.to_f64();
            if lo <= x && x <= hi {
                let at = ((x - lo) / (hi - lo) * bins as f64) as usize;
                counts[at.min(bins - 1)] += 1;
            }
        }
        Tensor::from_vec(counts.into_iter().map(|n| T::from_f64(n as f64)).collect(), [bins])
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
        let lines = self.sorted_lines("quantile", axes);
        let Between { below, above, part } = Between::of(q, lines.size(-1)).or_panic();
        let (a, b) = (lines.select(-1, below), lines.select(-1, above));
        let y = match part < 0.5 {
            true => a.add(&b.sub(&a).mul_scalar(T::from_f64(part))),
            false => b.sub(&b.sub(&a).mul_scalar(T::from_f64(1.0 - part))),
        };
        nan_where_last_is(&lines, &y)
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
        let lines = self.sorted_lines("median", axes);
        nan_where_last_is(&lines, &lines.select(-1, (lines.size(-1) - 1) / 2))
    }

    /// The elements over axes in ascending order, along the last axis.
    #[track_caller]
    fn sorted_lines(&self, op: &'static str, axes: impl Axes) -> Tensor<T> {
        let axes = axes.resolve(op, self.shape()).or_panic();
        require(self.count(axes) > 0, op, ErrorKind::Empty, || {
            format!("an axis of {:?} is empty, so it has no such element", self.shape())
        })
        .or_panic();
        let mut dims = self.shape().reduced(axes, false).to_vec();
        dims.push(self.count(axes));
        self.permute(axes.moved_last(self.rank())).reshape(dims).sort(-1, false).0
    }
}

/// `y`, and NaN where the last element in order is, which is the largest.
fn nan_where_last_is<T: Real>(lines: &Tensor<T>, y: &Tensor<T>) -> Tensor<T> {
    let last = lines.select(-1, lines.size(-1) - 1);
    last.isnan().where_(&last, y)
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
