//! Depthwise convolution, with its VJPs.

use crate::cost::Cost;
use crate::error::{ErrorKind, OrPanic, Result, require};
use crate::kernels::Real;
use crate::kernels::rows::{RowKernel, apply_row_kernel, map_row};
use crate::shape::AxisSet;
use crate::simd::{Lanes, inlined};
use crate::tensor::Tensor;

/// `Σ w_j · x_j`, elementwise.
#[derive(Clone, Copy)]
struct Taps<'a, T>([&'a [T]; 4]);

impl<T: Real> RowKernel<T, 4> for Taps<'_, T> {
    const COST: Cost = Cost::CHEAP;
    #[inline(always)]
    fn row<S: Lanes<T>>(self, s: S, _: usize, [a, b, c, d]: [&[T]; 4], out: &mut [T]) {
        let [p, q, r, t] = self.0;
        let x = [a, p, b, q, c, r, d, t];
        map_row(
            s,
            x,
            out,
            inlined!(|[a, p, b, q, c, r, d, t]| {
                d.mul_add(t, c.mul_add(r, b.mul_add(q, a * p)))
            }),
        );
    }
}

/// `Σ w_j · x_j`, for four taps at a time, and for one.
fn weighted_sum<T: Real>(x: &[Tensor<T>], w: &[Tensor<T>]) -> Tensor<T> {
    if let ([a, b, c, d], [p, q, r, t]) = (x, w) {
        let taps = Taps([p, q, r, t].map(Tensor::as_slice));
        return apply_row_kernel("depthwise_conv1d", taps, [a, b, c, d]);
    }
    let sums = x.iter().zip(w).map(|(x, w)| x.mul(w));
    sums.reduce(|a, b| a.add(&b)).expect("there is a tap")
}

/// The rows of `x` that tap `j` of `taps` is multiplied by.
fn rows_of<T: Real>(x: &Tensor<T>, j: usize, taps: usize) -> Tensor<T> {
    x.narrow(-2, j, x.size(-2) + 1 - taps)
}

fn check<T: Real>(x: &Tensor<T>, taps: &Tensor<T>) -> Result<()> {
    let valid = x.rank() >= 2 && taps.rank() == 2 && x.size(-1) == taps.size(-1);
    let fits = valid && (1..=x.size(-2) + 1).contains(&taps.size(0));
    require(fits, "depthwise_conv1d", ErrorKind::Mismatch, || {
        format!("{:?} do not fit taps {:?}, which are [taps, channels]", x.shape(), taps.shape())
    })
}

/// # Convolution
impl<T: Real> Tensor<T> {
    /// Depthwise convolution along the axis before the last one, each channel by itself and without
    /// padding: `y[t, c] = Σ_j w[j, c] · x[t + j, c]`, from `[.., L + K - 1, C]` and taps `w` `[K, C]` to
    /// `[.., L, C]`. With `K - 1` rows before a sequence it is causal.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1.0f32, 5.0], [2.0, 6.0], [4.0, 7.0]]);
    /// let taps = Tensor::from([[1.0f32, 0.0], [10.0, 1.0]]);
    /// assert_eq!(x.depthwise_conv1d(&taps).to_vec(), [21.0, 6.0, 42.0, 7.0]);
    /// ```
    ///
    /// # Panics
    /// If the channels differ, or there are fewer than `K - 1` rows.
    #[doc(alias = "conv1d")]
    #[track_caller]
    pub fn depthwise_conv1d(&self, taps: &Tensor<T>) -> Tensor<T> {
        check(self, taps).or_panic();
        let (n, taps) = (taps.size(0), taps.contiguous());
        let taps: Vec<_> = (0..n).map(|j| taps.select(0, j)).collect();
        let rows: Vec<_> = (0..n).map(|j| rows_of(self, j, n)).collect();
        let sums = rows.chunks(4).zip(taps.chunks(4)).map(|(x, w)| weighted_sum(x, w));
        sums.reduce(|a, b| a.add(&b)).expect("there is a tap")
    }

    /// The gradients of [`Tensor::depthwise_conv1d`] with respect to `self` and the taps: a convolution of `g` with the
    /// taps in reverse, and `dw[j, c] = Σ_t g[t, c] · x[t + j, c]`.
    #[track_caller]
    pub fn depthwise_conv1d_vjps(&self, taps: &Tensor<T>, g: &Tensor<T>) -> (Tensor<T>, Tensor<T>) {
        let n = taps.size(0);
        let mut zeros = g.shape().to_vec();
        let axis = zeros.len() - 2;
        zeros[axis] = n - 1;
        let zeros = Tensor::zeros(zeros);
        let dx = Tensor::cat(&[&zeros, g, &zeros], -2).depthwise_conv1d(&taps.flip(0));
        let rows = (0..g.rank() - 1).fold(AxisSet::EMPTY, AxisSet::insert);
        let of_tap = |j| g.mul(&rows_of(self, j, n)).sum(rows);
        let dtaps: Vec<_> = (0..n).map(of_tap).collect();
        (dx, Tensor::stack(&dtaps.iter().collect::<Vec<_>>(), 0))
    }
}
