//! Binary arithmetic with broadcasting, and the operators of Rust.

use crate::cost::Cost;
use crate::kernels::Real;
use crate::kernels::elementwise::{Elementwise, elementwise};
use crate::kernels::update::{Update, update};
use crate::simd::Lanes;
use crate::tensor::Tensor;
use std::ops;

macro_rules! binary {
    ($name:ident, $cost:ident, |$s:ident, $a:ident, $b:ident| $f:expr) => {
        #[derive(Clone, Copy)]
        struct $name;

        impl<T: Real> Elementwise<T, 2> for $name {
            const COST: Cost = Cost::$cost;
            #[inline(always)]
            fn f<S: Lanes<T>>(self, $s: S, [$a, $b]: [S::V; 2]) -> S::V {
                $f
            }
        }
    };
}

binary!(Add, MOVE, |s, a, b| s.add(a, b));
binary!(Sub, MOVE, |s, a, b| s.sub(a, b));
binary!(Mul, MOVE, |s, a, b| s.mul(a, b));
binary!(Div, CHEAP, |s, a, b| s.div(a, b));
binary!(Pow, SCALAR, |s, a, b| s.pow(a, b));
binary!(Maximum, MOVE, |s, a, b| s.max(a, b));
binary!(Minimum, MOVE, |s, a, b| s.min(a, b));

impl<T: Real> Tensor<T> {
    /// `a + b`, broadcast.
    #[track_caller]
    pub fn add(&self, other: &Tensor<T>) -> Tensor<T> {
        elementwise("add", Add, [self, other])
    }

    /// `a - b`, broadcast.
    #[track_caller]
    pub fn sub(&self, other: &Tensor<T>) -> Tensor<T> {
        elementwise("sub", Sub, [self, other])
    }

    /// `a · b` elementwise, broadcast.
    #[track_caller]
    pub fn mul(&self, other: &Tensor<T>) -> Tensor<T> {
        elementwise("mul", Mul, [self, other])
    }

    /// `a / b`, broadcast. Division by zero gives infinities and NaN, as IEEE 754 says.
    #[track_caller]
    pub fn div(&self, other: &Tensor<T>) -> Tensor<T> {
        elementwise("div", Div, [self, other])
    }

    /// `a^b`, broadcast. NaN for negative `a` unless `b` is whole; `0⁰ = 1`.
    #[track_caller]
    pub fn pow(&self, other: &Tensor<T>) -> Tensor<T> {
        elementwise("pow", Pow, [self, other])
    }

    /// The larger of the two, broadcast; NaN if either is NaN.
    #[track_caller]
    pub fn maximum(&self, other: &Tensor<T>) -> Tensor<T> {
        elementwise("maximum", Maximum, [self, other])
    }

    /// The smaller of the two, broadcast; NaN if either is NaN.
    #[track_caller]
    pub fn minimum(&self, other: &Tensor<T>) -> Tensor<T> {
        elementwise("minimum", Minimum, [self, other])
    }

    /// `self += other`, in place where no other tensor shares the storage; `other` is
    /// broadcast to the shape of `self`.
    #[track_caller]
    pub fn add_assign(&mut self, other: &Tensor<T>) {
        let other = other.broadcast_to(self.shape());
        update("add_assign", Accumulate, [self], [&other]);
    }
}

#[derive(Clone, Copy)]
struct Accumulate;

impl<T: Real> Update<T, 1, 1> for Accumulate {
    const COST: Cost = Cost::MOVE;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, [w]: [S::V; 1], [x]: [S::V; 1]) -> [S::V; 1] {
        [s.add(w, x)]
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, |$a:ident, $c:ident| $scalar:expr) => {
        impl<T: Real> ops::$trait<&Tensor<T>> for &Tensor<T> {
            type Output = Tensor<T>;
            #[track_caller]
            fn $method(self, other: &Tensor<T>) -> Tensor<T> {
                Tensor::$method(self, other)
            }
        }

        impl<T: Real> ops::$trait<Tensor<T>> for Tensor<T> {
            type Output = Tensor<T>;
            #[track_caller]
            fn $method(self, other: Tensor<T>) -> Tensor<T> {
                Tensor::$method(&self, &other)
            }
        }

        impl<T: Real> ops::$trait<&Tensor<T>> for Tensor<T> {
            type Output = Tensor<T>;
            #[track_caller]
            fn $method(self, other: &Tensor<T>) -> Tensor<T> {
                Tensor::$method(&self, other)
            }
        }

        impl<T: Real> ops::$trait<Tensor<T>> for &Tensor<T> {
            type Output = Tensor<T>;
            #[track_caller]
            fn $method(self, other: Tensor<T>) -> Tensor<T> {
                Tensor::$method(self, &other)
            }
        }

        impl<T: Real> ops::$trait<T> for &Tensor<T> {
            type Output = Tensor<T>;
            #[track_caller]
            fn $method(self, $c: T) -> Tensor<T> {
                let $a = self;
                $scalar
            }
        }

        impl<T: Real> ops::$trait<T> for Tensor<T> {
            type Output = Tensor<T>;
            #[track_caller]
            fn $method(self, other: T) -> Tensor<T> {
                ops::$trait::$method(&self, other)
            }
        }
    };
}

operator!(Add, add, |a, c| a.add_scalar(c));
operator!(Sub, sub, |a, c| a.add_scalar(-c));
operator!(Mul, mul, |a, c| a.mul_scalar(c));
operator!(Div, div, |a, c| Tensor::div(a, &Tensor::scalar(c)));

impl<T: Real> ops::Neg for &Tensor<T> {
    type Output = Tensor<T>;
    #[track_caller]
    fn neg(self) -> Tensor<T> {
        Tensor::neg(self)
    }
}

impl<T: Real> ops::Neg for Tensor<T> {
    type Output = Tensor<T>;
    #[track_caller]
    fn neg(self) -> Tensor<T> {
        Tensor::neg(&self)
    }
}
