//! Elementary functions of [`Algebra`] that several instruction sets share.

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

/// The elementary functions on vectors of `$t`, by the functions of the module `$math`.
macro_rules! elementary {
    ($t:ty, $math:ident) => {
        $crate::simd::elementary::derived_functions!();
        $crate::simd::elementary::elementary!(@ $math exp);
        $crate::simd::elementary::elementary!(@ $math expm1);
        $crate::simd::elementary::elementary!(@ $math ln);
        $crate::simd::elementary::elementary!(@ $math log1p);
        $crate::simd::elementary::elementary!(@ $math tanh);
        $crate::simd::elementary::elementary!(@ $math erf);
        $crate::simd::elementary::elementary!(@ $math sin);
        $crate::simd::elementary::elementary!(@ $math cos);

        #[inline(always)]
        fn powf(self, x: Self::V, p: $t) -> Self::V {
            $crate::simd::Lanes::pow(self, x, self.splat(p))
        }
        #[inline(always)]
        fn normal(self, x: Self::V) -> (Self::V, Self::V) {
            $crate::simd::Lanes::call(
                self,
                x,
                $crate::simd::inlined!(|x| $crate::simd::$math::normal(self, x)),
            )
        }
    };
    (@ $math:ident $f:ident) => {
        #[inline(always)]
        fn $f(self, x: Self::V) -> Self::V {
            $crate::simd::Lanes::call(
                self,
                x,
                $crate::simd::inlined!(|x| $crate::simd::$math::$f(self, x)),
            )
        }
    };
}
pub(super) use elementary;

/// The methods of [`Lanes`](super::Lanes) that several instruction sets define alike.
macro_rules! lanes_in_memory {
    ($t:ty, $math:ident) => {
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
        #[inline(always)]
        fn pow(self, a: Self::V, b: Self::V) -> Self::V {
            $crate::simd::$math::pow(self, a, b)
        }
    };
}
pub(super) use lanes_in_memory;
