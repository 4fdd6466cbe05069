//! Cumulative sums and products, and the products of all other elements for the derivative of a product.

use crate::cost::Cost;
use crate::element::{Element, Integer};
use crate::error::{ErrorKind, OrPanic, require};
use crate::kernels::rows::{RowKernel, apply_row_kernel, apply_row_kernel_along};
use crate::kernels::{Case, Number, Real, case};
use crate::shape::{Axes, inverse_order};
use crate::simd::Lanes;
use crate::tensor::Tensor;

/// Running products if `PRODUCT`, else running sums.
#[derive(Clone, Copy)]
struct Cumulative<const PRODUCT: bool>;
type RunningSum = Cumulative<false>;
type RunningProduct = Cumulative<true>;

impl<T: Real, const PRODUCT: bool> RowKernel<T, 1> for Cumulative<PRODUCT> {
    const COST: Cost = Cost::SCALAR;
    #[inline(always)]
    fn row<S: Lanes<T>>(self, _: S, _: usize, [x]: [&[T]; 1], out: &mut [T]) {
        // In f64: the rounding errors of a running result accumulate.
        let mut result = if PRODUCT { 1.0 } else { 0.0 };
        for i in 0..out.len() {
            let x = x[i].to_f64();
            result = if PRODUCT { result * x } else { result + x };
            out[i] = T::from_f64(result);
        }
    }
}

/// `dxₖ = Σ_{i ≥ k} gᵢ · Π_{j ≤ i, j ≠ k} xⱼ`: the product of the elements before `k` times
/// `sₖ = gₖ + xₖ₊₁ · sₖ₊₁`.
#[derive(Clone, Copy)]
struct CumprodVjp;

impl<T: Real> RowKernel<T, 2> for CumprodVjp {
    const COST: Cost = Cost::SCALAR;
    #[inline(always)]
    fn row<S: Lanes<T>>(self, _: S, _: usize, [x, g]: [&[T]; 2], out: &mut [T]) {
        let mut after = 0.0;
        for k in (0..out.len()).rev() {
            let next = x.get(k + 1).map_or(0.0, |x| x.to_f64() * after);
            after = g[k].to_f64() + next;
            out[k] = T::from_f64(after);
        }
        let mut before = 1.0;
        for i in 0..out.len() {
            out[i] = T::from_f64(before * out[i].to_f64());
            before *= x[i].to_f64();
        }
    }
}

/// For each element, the product of all others in its row.
#[derive(Clone, Copy)]
struct ProductOfOthers;

impl<T: Real> RowKernel<T, 1> for ProductOfOthers {
    const COST: Cost = Cost::SCALAR;
    #[inline(always)]
    fn row<S: Lanes<T>>(self, _: S, _: usize, [x]: [&[T]; 1], out: &mut [T]) {
        let mut before = T::ONE;
        for i in 0..out.len() {
            out[i] = before;
            before *= x[i];
        }
        let mut after = T::ONE;
        for i in (0..out.len()).rev() {
            out[i] *= after;
            after *= x[i];
        }
    }
}

/// [`Tensor::cumsum`] along an axis.
struct CumsumCase<'a, T: Element>(&'a Tensor<T>, usize);

case! {
    <T> CumsumCase<'_, T> => Tensor<T>, |this|
    real apply_row_kernel_along("cumsum", RunningSum {}, [this.0], this.1),
    integer {
        let CumsumCase(x, axis) = this;
        let mut out = x.view_moved_last(axis).contiguous();
        let len = x.shape()[axis].max(1);
        let mut all_fit = true;
        for line in out.make_mut().chunks_exact_mut(len) {
            let mut sum = 0;
            for y in line {
                sum += y.to_i128();
                *y = T::checked_from(sum).unwrap_or_else(|| {
                    all_fit = false;
                    T::ZERO
                });
            }
        }
        require(all_fit, "cumsum", ErrorKind::Value, || {
            format!("a sum along axis {axis} of {:?} is no {}", x.shape(), T::DTYPE)
        })
        .map_err(|error| error.hint("cast::<f64>() has a larger range"))
        .or_panic();
        out.view_moved_back(axis)
    }
}

/// # Cumulative operations
impl<T: Number> Tensor<T> {
    /// Running sum along an axis: `yᵢ = Σ_{j ≤ i} xⱼ`, added in order. That of floats is added in `f64` (as
    /// PyTorch does on the CPU), and each sum rounded once.
    ///
    /// # Panics
    /// If a sum of integers does not fit their type.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.cumsum(0).to_vec(), [1.0, 2.0, 4.0, 6.0]);
    /// ```
    #[track_caller]
    pub fn cumsum(&self, axis: isize) -> Tensor<T> {
        let axis = self.shape().axis("cumsum", axis).or_panic();
        T::case(CumsumCase(self, axis))
    }
}

/// # Cumulative operations
impl<T: Real> Tensor<T> {
    /// As [`Tensor::cumsum`] for products of floats: `yᵢ = Π_{j ≤ i} xⱼ`.
    #[track_caller]
    pub fn cumprod(&self, axis: isize) -> Tensor<T> {
        let axis = self.shape().axis("cumprod", axis).or_panic();
        apply_row_kernel_along("cumprod", RunningProduct {}, [self], axis)
    }

    /// VJP of [`Tensor::cumprod`] for the cotangent `g`, correct also where elements are 0:
    /// `dxₖ = Σ_{i ≥ k} gᵢ · Π_{j ≤ i, j ≠ k} xⱼ`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (x, g) = (Tensor::from([2.0f32, 0.0, 5.0]), Tensor::ones([3]));
    /// assert_eq!(x.cumprod_vjp(0, &g).to_vec(), [1.0, 12.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn cumprod_vjp(&self, axis: isize, g: &Tensor<T>) -> Tensor<T> {
        let axis = self.shape().axis("cumprod", axis).or_panic();
        apply_row_kernel_along("cumprod_vjp", CumprodVjp, [self, g], axis)
    }

    /// For each element the product of all other elements over `axes`: the derivative of
    /// [`Tensor::prod`], correct also where elements are 0.
    #[track_caller]
    pub fn prod_of_others(&self, axes: impl Axes) -> Tensor<T> {
        let axes = axes.resolve("prod", self.shape()).or_panic();
        let order = axes.moved_last(self.rank());
        let moved = self.permute(&order);
        let count = self.count(axes);
        if self.numel() == 0 {
            return self.clone();
        }
        let flat = moved.reshape([self.numel() / count, count]);
        let out = apply_row_kernel("prod", ProductOfOthers, [&flat]).reshape(moved.shape());
        out.permute(inverse_order(&order))
    }
}
