//! Arrays of slices and of vectors, one per operand; the vectors as numbers of formulas.
//!
//! The arrays are filled by loops: `array::from_fn` may remain a call inside a function with target
//! features, even if its closure is inlined. `K` is a constant, so the loops are unrolled.

use crate::formula::Expr;
use crate::kernels::Real;
use crate::simd::Lanes;
use std::ops::Deref;

/// The `n` elements of each slice from its `start` on.
#[inline(always)]
pub fn parts<'a, T, const K: usize>(x: &[&'a [T]; K], start: [usize; K], n: usize) -> [&'a [T]; K] {
    let mut parts: [&[T]; K] = [&[]; K];
    for k in 0..K {
        parts[k] = &x[k][start[k]..start[k] + n];
    }
    parts
}

/// A vector of each slice, from index `at` on.
#[inline(always)]
pub fn load<T: Real, S: Lanes<T>, X: Deref<Target = [T]>, const K: usize>(
    s: S,
    x: &[X; K],
    at: usize,
) -> [Expr<T, S>; K] {
    let mut v = [splat(s, T::ZERO); K];
    for k in 0..K {
        v[k] = Expr::new(s, s.load(&x[k][at..]));
    }
    v
}

/// The remaining elements of each slice from index `at` on, fewer than a vector, padded with
/// `fill`.
#[inline(always)]
pub fn load_rest<T: Real, S: Lanes<T>, X: Deref<Target = [T]>, const K: usize>(
    s: S,
    x: &[X; K],
    at: usize,
    fill: [T; K],
) -> [Expr<T, S>; K] {
    let mut v = [splat(s, T::ZERO); K];
    for k in 0..K {
        v[k] = Expr::new(s, s.load_or(&x[k][at..], fill[k]));
    }
    v
}

/// The number `x` in every lane.
#[inline(always)]
pub fn splat<T: Real, S: Lanes<T>>(s: S, x: T) -> Expr<T, S> {
    Expr::new(s, s.splat(x))
}
