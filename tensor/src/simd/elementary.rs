//! Elementary functions of [`Algebra`] that several instruction sets share.

use super::{Kernel, Lanes};
use crate::element::Element;
use crate::formula::Algebra;

/// `1 / (1 + e^-x)` from `e^-|x|`, which cannot overflow and is accurate where the result is tiny.
#[inline(always)]
pub(super) fn sigmoid<T: Element, A: Algebra<T>>(a: A, x: A::V) -> A::V {
    let one = a.splat(T::ONE);
    let e = a.exp(a.neg(a.abs(x)));
    let numerator = a.select(a.lt(x, a.splat(T::ZERO)), e, one);
    a.div(numerator, a.add(one, e))
}

/// `ln(1 + e^x)` as `max(x, 0) + ln(1 + e^-|x|)`.
#[inline(always)]
pub(super) fn softplus<T: Element, A: Algebra<T>>(a: A, x: A::V) -> A::V {
    let small = a.log1p(a.exp(a.neg(a.abs(x))));
    a.add(a.max(x, a.splat(T::ZERO)), small)
}

/// The functions of [`Algebra`] that vectors of `f32` and single `f64` lanes define alike.
macro_rules! derived_functions {
    () => {
        #[inline(always)]
        fn sign(self, a: Self::V) -> Self::V {
            let zero = self.or(self.eq(a, self.splat(0.0)), self.is_nan(a));
            self.select(zero, a, $crate::simd::Lanes::copysign(self, self.splat(1.0), a))
        }
        #[inline(always)]
        fn sigmoid(self, x: Self::V) -> Self::V {
            $crate::simd::elementary::sigmoid(self, x)
        }
        #[inline(always)]
        fn softplus(self, x: Self::V) -> Self::V {
            $crate::simd::elementary::softplus(self, x)
        }
    };
}
pub(super) use derived_functions;

/// The elementary functions on vectors of `$t`, by the functions of [`math`](super::math).
macro_rules! elementary {
    ($t:ty) => {
        $crate::simd::elementary::derived_functions!();
        $crate::simd::elementary::elementary!(@ exp expm1 ln log1p tanh erf sin cos);

        #[inline(always)]
        fn powf(self, x: Self::V, p: $t) -> Self::V {
            // What derivatives of squares and cubes need.
            if p == 1.0 {
                x
            } else if p == 2.0 {
                self.mul(x, x)
            } else {
                $crate::simd::Lanes::pow(self, x, self.splat(p))
            }
        }
        #[inline(always)]
        fn normal(self, x: Self::V) -> (Self::V, Self::V) {
            $crate::simd::Lanes::call(
                self,
                x,
                $crate::simd::inlined!(|x| $crate::simd::math::normal(self, x)),
            )
        }
    };
    (@ $($f:ident)+) => {
        $(#[inline(always)]
        fn $f(self, x: Self::V) -> Self::V {
            $crate::simd::Lanes::call(
                self,
                x,
                $crate::simd::inlined!(|x| $crate::simd::math::$f(self, x)),
            )
        })+
    };
}
pub(super) use elementary;

/// The methods of [`Lanes`](super::Lanes) that instruction sets with fused multiply-add define alike.
macro_rules! fused_lanes {
    ($t:ty) => {
        $crate::simd::elementary::lane_by_lane!($t);

        #[inline(always)]
        fn fmod(self, a: Self::V, b: Self::V) -> Self::V {
            $crate::simd::math::fmod(self, a, b)
        }
    };
}
pub(super) use fused_lanes;

/// Loads, stores and transposition by arrays of sixteen `f32`, where a vector is several registers.
#[allow(unused_macros)] // x86-64 has masks
macro_rules! by_arrays {
    () => {
        #[inline(always)]
        fn load_or(self, x: &[f32], fill: f32) -> Self::V {
            let mut whole = [fill; 16];
            whole[..x.len()].copy_from_slice(x);
            self.load(&whole)
        }
        #[inline(always)]
        fn store_part(self, v: Self::V, out: &mut [f32]) {
            let mut whole = [0.0; 16];
            self.store(v, &mut whole);
            out.copy_from_slice(&whole[..out.len()]);
        }
        #[inline(always)]
        fn transpose(self, rows: [Self::V; 16]) -> [Self::V; 16] {
            let mut square = [[0.0; 16]; 16];
            for (v, row) in rows.into_iter().zip(&mut square) {
                self.store(v, row);
            }
            std::array::from_fn(|j| self.load(&std::array::from_fn::<_, 16, _>(|i| square[i][j])))
        }
    };
}
#[allow(unused_imports)]
pub(super) use by_arrays;

/// The methods of [`Lanes`](super::Lanes) by scalar functions and calls.
macro_rules! lane_by_lane {
    ($t:ty) => {
        #[inline(always)]
        fn enter<K: Kernel<$t>>(self, k: K) -> K::Out {
            self.run(k)
        }
        #[inline(always)]
        fn map(self, v: Self::V, f: impl Fn($t) -> $t) -> Self::V {
            let mut x = [0.0; <Self as Lanes<$t>>::N];
            self.store(v, &mut x);
            for x in &mut x {
                *x = f(*x);
            }
            self.load(&x)
        }
        #[inline(always)]
        fn map2(self, a: Self::V, b: Self::V, f: impl Fn($t, $t) -> $t) -> Self::V {
            let (mut x, mut y) = ([0.0; <Self as Lanes<$t>>::N], [0.0; <Self as Lanes<$t>>::N]);
            self.store(a, &mut x);
            self.store(b, &mut y);
            for i in 0..x.len() {
                x[i] = f(x[i], y[i]);
            }
            self.load(&x)
        }
    };
}
pub(super) use lane_by_lane;

/// A function of vectors as a kernel.
pub(super) struct Call<X, F>(pub X, pub F);

impl<T: Copy, X, Y, F: Fn(X) -> Y> Kernel<T> for Call<X, F> {
    type Out = Y;
    #[inline(always)]
    fn run<S: Lanes<T>>(self, _: S) -> Y {
        (self.1)(self.0)
    }
}

/// At most `lanes` booleans as bits.
#[inline(always)]
pub(super) fn bits_of(m: &[bool], lanes: usize) -> u64 {
    assert!(m.len() <= lanes, "load_mask: {} elements for {lanes} lanes", m.len());
    let mut bits = 0;
    for (i, &m) in m.iter().enumerate() {
        bits |= u64::from(m) << i;
    }
    bits
}
