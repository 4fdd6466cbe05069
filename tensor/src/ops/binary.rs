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

/// # Arithmetic
impl<T: Real> Tensor<T> {
    /// `a + b`, broadcast.
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// let (row, column) = (Tensor::from([1.0f32, 2.0]), Tensor::from([[10.0], [20.0]]));
    /// assert_eq!(row.add(&column).to_vec(), [11.0, 12.0, 21.0, 22.0]);
    /// ```
    #[track_caller]
    pub fn add(&self, other: &Tensor<T>) -> Tensor<T> {
        elementwise("add", Add, [self, other])
    }

    /// `a - b`, broadcast.
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// let (a, b) = (Tensor::from([5.0f32, 7.0]), Tensor::from([1.0, 2.0]));
    /// assert_eq!((&a - &b).to_vec(), [4.0, 5.0]); // the same as a.sub(&b)
    /// ```
    #[track_caller]
    pub fn sub(&self, other: &Tensor<T>) -> Tensor<T> {
        elementwise("sub", Sub, [self, other])
    }

    /// `a · b` elementwise, broadcast.
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// let (a, b) = (Tensor::from([2.0f32, 3.0]), Tensor::from([5.0, 7.0]));
    /// assert_eq!(a.mul(&b).to_vec(), [10.0, 21.0]);
    /// ```
    #[track_caller]
    pub fn mul(&self, other: &Tensor<T>) -> Tensor<T> {
        elementwise("mul", Mul, [self, other])
    }

    /// `a / b`, broadcast. Division by zero gives infinities and NaN, as IEEE 754 says.
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// let (a, b) = (Tensor::from([1.0f32, -1.0]), Tensor::scalar(0.0));
    /// assert_eq!(a.div(&b).to_vec(), [f32::INFINITY, f32::NEG_INFINITY]);
    /// ```
    #[track_caller]
    pub fn div(&self, other: &Tensor<T>) -> Tensor<T> {
        elementwise("div", Div, [self, other])
    }

    /// `a^b`, broadcast. NaN for negative `a` unless `b` is whole; `0⁰ = 1`.
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// let (a, b) = (Tensor::from([2.0f32, -2.0, 0.0]), Tensor::from([3.0, 3.0, 0.0]));
    /// assert_eq!(a.pow(&b).to_vec(), [8.0, -8.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn pow(&self, other: &Tensor<T>) -> Tensor<T> {
        elementwise("pow", Pow, [self, other])
    }

    /// The larger of the two, broadcast; NaN if either is NaN.
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// let (a, b) = (Tensor::from([1.0f32, f32::NAN]), Tensor::from([3.0, 3.0]));
    /// let y = a.maximum(&b).to_vec();
    /// assert!(y[0] == 3.0 && y[1].is_nan());
    /// ```
    #[track_caller]
    pub fn maximum(&self, other: &Tensor<T>) -> Tensor<T> {
        elementwise("maximum", Maximum, [self, other])
    }

    /// The smaller of the two, broadcast; NaN if either is NaN.
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// let (a, b) = (Tensor::from([1.0f32, 5.0]), Tensor::scalar(3.0));
    /// assert_eq!(a.minimum(&b).to_vec(), [1.0, 3.0]);
    /// ```
    #[track_caller]
    pub fn minimum(&self, other: &Tensor<T>) -> Tensor<T> {
        elementwise("minimum", Minimum, [self, other])
    }

    /// `self += other`, in place where no other tensor shares the storage; `other` is
    /// broadcast to the shape of `self`.
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// let mut x = Tensor::from([1.0f32, 2.0]);
    /// let before = x.clone();
    /// x.add_assign(&Tensor::from([10.0, 10.0]));
    /// assert_eq!(x.to_vec(), [11.0, 12.0]);
    /// assert_eq!(before.to_vec(), [1.0, 2.0]); // copied on write
    /// ```
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
