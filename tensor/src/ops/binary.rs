//! Binary arithmetic with broadcasting, and the operators of Rust.

use crate::cost::Cost;
use crate::element::{Element, Integer};
use crate::formula::{Algebra, Expr};
use crate::kernels::elementwise::{Elementwise, elementwise};
use crate::kernels::update::{Update, update};
use crate::kernels::{Case, Number, Real, case, integers};
use crate::simd::{Lanes, inlined};
use crate::tensor::Tensor;
use std::ops;

/// An operation on two numbers: on lanes of floats, and on integers.
trait Arithmetic: Copy + Send + Sync {
    const COST: Cost;
    fn real<T: Real, S: Lanes<T>>(self, a: Expr<T, S>, b: Expr<T, S>) -> Expr<T, S>;
    /// `None` if there is no result.
    fn integers(self, a: i128, b: i128) -> Option<i128>;
}

macro_rules! binary {
    ($name:ident, $cost:ident, |$a:ident, $b:ident| $f:expr, $integers:expr) => {
        #[derive(Clone, Copy)]
        struct $name;

        impl Arithmetic for $name {
            const COST: Cost = Cost::$cost;
            #[inline(always)]
            fn real<T: Real, S: Lanes<T>>(self, $a: Expr<T, S>, $b: Expr<T, S>) -> Expr<T, S> {
                $f
            }
            #[inline(always)]
            fn integers(self, a: i128, b: i128) -> Option<i128> {
                $integers(a, b)
            }
        }
    };
}

binary!(Add, MOVE, |a, b| a + b, |a, b| Some(a + b));
binary!(Sub, MOVE, |a, b| a - b, |a, b| Some(a - b));
binary!(Mul, MOVE, |a, b| a * b, |a, b| Some(a * b));
binary!(Div, CHEAP, |a, b| a / b, floor_div);
binary!(Pow, COSTLY, |a, b| a.zip(b, inlined!(|s: S, a, b| s.pow(a, b))), pow);
binary!(Maximum, MOVE, |a, b| a.max(b), |a: i128, b| Some(a.max(b)));
binary!(Minimum, MOVE, |a, b| a.min(b), |a: i128, b| Some(a.min(b)));
binary!(Remainder, CHEAP, |a, b| remainder(fmod(a, b), b), |a, b| {
    floor_div(a, b).map(|quotient| a - quotient * b)
});
binary!(Fmod, CHEAP, |a, b| fmod(a, b), i128::checked_rem);

/// `⌊a / b⌋`; `None` if `b` is 0.
fn floor_div(a: i128, b: i128) -> Option<i128> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

/// `a^b`; `None` if `b` is negative, or the result has more than 127 bits.
fn pow(a: i128, b: i128) -> Option<i128> {
    match (a, b) {
        _ if b < 0 => None,
        (0 | 1, 1..) => Some(a),
        (-1, _) => Some(if b % 2 == 0 { 1 } else { -1 }),
        _ => a.checked_pow(b.try_into().ok()?),
    }
}

/// The rest of a division rounded towards 0.
#[inline(always)]
fn fmod<T: Real, S: Lanes<T>>(a: Expr<T, S>, b: Expr<T, S>) -> Expr<T, S> {
    a.zip(b, inlined!(|s: S, a, b| s.fmod(a, b)))
}

/// The rest of a division by `b` rounded towards 0, plus `b` where the signs differ.
#[inline(always)]
fn remainder<T: Real, S: Lanes<T>>(rest: Expr<T, S>, b: Expr<T, S>) -> Expr<T, S> {
    let differ = (rest.lt(0.0) & b.gt(0.0)) | (rest.gt(0.0) & b.lt(0.0));
    differ.select(rest + b, rest)
}

/// An operation as a formula on two tensors.
#[derive(Clone, Copy)]
struct OfTensors<F>(F);

impl<T: Real, F: Arithmetic> Elementwise<T, 2> for OfTensors<F> {
    const COST: Cost = F::COST;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, [a, b]: [Expr<T, S>; 2]) -> Expr<T, S> {
        self.0.real(a, b)
    }
}

/// An operation with a number on the right.
#[derive(Clone, Copy)]
struct OnTheRight<F, T>(F, T);

impl<T: Real, F: Arithmetic> Elementwise<T, 1> for OnTheRight<F, T> {
    const COST: Cost = F::COST;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, [a]: [Expr<T, S>; 1]) -> Expr<T, S> {
        self.0.real(a, a.constant(self.1.to_f64()))
    }
}

/// An operation with a number on the left.
#[derive(Clone, Copy)]
struct OnTheLeft<F, T>(F, T);

impl<T: Real, F: Arithmetic> Elementwise<T, 1> for OnTheLeft<F, T> {
    const COST: Cost = F::COST;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, [b]: [Expr<T, S>; 1]) -> Expr<T, S> {
        self.0.real(b.constant(self.1.to_f64()), b)
    }
}

/// The operation on two tensors.
struct Tensors<'a, T: Element, F>(&'static str, F, [&'a Tensor<T>; 2]);

case! {
    <T, F: Arithmetic> Tensors<'_, T, F> => Tensor<T>, |this|
    real elementwise(this.0, OfTensors(this.1), this.2),
    integer integers::elementwise(this.0, this.2, move |[a, b]| this.1.integers(a, b))
}

/// The operation on a tensor and a number.
struct TensorAndNumber<'a, T: Element, F>(&'static str, F, &'a Tensor<T>, T);

case! {
    <T, F: Arithmetic> TensorAndNumber<'_, T, F> => Tensor<T>, |this|
    real elementwise(this.0, OnTheRight(this.1, this.3), [this.2]),
    integer T::case(Tensors(this.0, this.1, [this.2, &Tensor::scalar(this.3)]))
}

/// The operation on a number and a tensor.
struct NumberAndTensor<'a, T: Element, F>(&'static str, F, T, &'a Tensor<T>);

case! {
    <T, F: Arithmetic> NumberAndTensor<'_, T, F> => Tensor<T>, |this|
    real elementwise(this.0, OnTheLeft(this.1, this.2), [this.3]),
    integer T::case(Tensors(this.0, this.1, [&Tensor::scalar(this.2), this.3]))
}

/// # Arithmetic
///
/// Operations on tensors of integers panic if a result does not fit the element type.
impl<T: Number> Tensor<T> {
    /// `a + b`, broadcast.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (row, column) = (Tensor::from([1.0f32, 2.0]), Tensor::from([[10.0], [20.0]]));
    /// assert_eq!(row.add(&column).to_vec(), [11.0, 12.0, 21.0, 22.0]);
    /// ```
    #[track_caller]
    pub fn add(&self, other: &Tensor<T>) -> Tensor<T> {
        T::case(Tensors("add", Add, [self, other]))
    }

    /// `a - b`, broadcast.
    #[track_caller]
    pub fn sub(&self, other: &Tensor<T>) -> Tensor<T> {
        T::case(Tensors("sub", Sub, [self, other]))
    }

    /// `a · b` elementwise, broadcast.
    #[track_caller]
    pub fn mul(&self, other: &Tensor<T>) -> Tensor<T> {
        T::case(Tensors("mul", Mul, [self, other]))
    }

    /// `a / b`, broadcast. Division of floats by zero gives infinities and NaN, as IEEE 754 says. The
    /// quotient of integers is rounded down, as by Python's `//`.
    ///
    /// # Panics
    /// If integers are divided by zero.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (a, b) = (Tensor::from([1.0f32, -1.0]), Tensor::scalar(0.0));
    /// assert_eq!(a.div(&b).to_vec(), [f32::INFINITY, f32::NEG_INFINITY]);
    /// assert_eq!((Tensor::from([7i64, -7]) / 2).to_vec(), [3, -4]);
    /// ```
    #[doc(alias = "floor_divide")]
    #[track_caller]
    pub fn div(&self, other: &Tensor<T>) -> Tensor<T> {
        T::case(Tensors("div", Div, [self, other]))
    }

    /// The remainder of a division rounded down, `a - ⌊a / b⌋ · b`, broadcast: it has the sign of `b`, as
    /// Python's `%`. NaN if `b` is 0 or `a` infinite.
    ///
    /// There is no operator `%`, whose result has the sign of `a` in Rust: that is [`Tensor::fmod`].
    ///
    /// # Panics
    /// If integers are divided by zero.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (a, b) = (Tensor::from([-3.0f32, 3.0]), Tensor::scalar(2.0));
    /// assert_eq!(a.remainder(&b).to_vec(), [1.0, 1.0]);
    /// let position = Tensor::from([-1i64, 0, 7]);
    /// assert_eq!(position.remainder(&Tensor::scalar(5)).to_vec(), [4, 0, 2]);
    /// ```
    #[doc(alias = "rem")]
    #[doc(alias = "mod")]
    #[track_caller]
    pub fn remainder(&self, other: &Tensor<T>) -> Tensor<T> {
        T::case(Tensors("remainder", Remainder, [self, other]))
    }

    /// As [`Tensor::remainder`] for a division rounded towards 0: the result has the sign of `a`, as `%` in
    /// Rust and C.
    #[track_caller]
    pub fn fmod(&self, other: &Tensor<T>) -> Tensor<T> {
        T::case(Tensors("fmod", Fmod, [self, other]))
    }

    /// `a^b`, broadcast. NaN for negative `a` unless `b` is whole; `0⁰ = 1`.
    ///
    /// # Panics
    /// If an exponent of integers is negative.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (a, b) = (Tensor::from([2.0f32, -2.0, 0.0]), Tensor::from([3.0, 3.0, 0.0]));
    /// assert_eq!(a.pow(&b).to_vec(), [8.0, -8.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn pow(&self, other: &Tensor<T>) -> Tensor<T> {
        T::case(Tensors("pow", Pow, [self, other]))
    }

    /// The larger of the two, broadcast; NaN if either is NaN.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (a, b) = (Tensor::from([1.0f32, f32::NAN]), Tensor::from([3.0, 3.0]));
    /// let y = a.maximum(&b).to_vec();
    /// assert!(y[0] == 3.0 && y[1].is_nan());
    /// ```
    #[track_caller]
    pub fn maximum(&self, other: &Tensor<T>) -> Tensor<T> {
        T::case(Tensors("maximum", Maximum, [self, other]))
    }

    /// As [`Tensor::maximum`] for the smaller of the two.
    #[track_caller]
    pub fn minimum(&self, other: &Tensor<T>) -> Tensor<T> {
        T::case(Tensors("minimum", Minimum, [self, other]))
    }

    /// `self += other`, in place where no other tensor shares the storage; `other` is
    /// broadcast to the shape of `self`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let mut x = Tensor::from([1.0f32, 2.0]);
    /// let before = x.clone();
    /// x.add_assign(&Tensor::from([10.0, 10.0]));
    /// assert_eq!(x.to_vec(), [11.0, 12.0]);
    /// assert_eq!(before.to_vec(), [1.0, 2.0]); // copied on write
    /// ```
    #[track_caller]
    pub fn add_assign(&mut self, other: &Tensor<T>) {
        T::case(AddAssign(self, other));
    }

    /// `x + c`, as a method: the `+` operator does the same.
    #[track_caller]
    pub fn add_scalar(&self, c: T) -> Tensor<T> {
        T::case(TensorAndNumber("add_scalar", Add, self, c))
    }

    /// `x · c`, as a method: the `*` operator does the same.
    #[track_caller]
    pub fn mul_scalar(&self, c: T) -> Tensor<T> {
        T::case(TensorAndNumber("mul_scalar", Mul, self, c))
    }
}

struct AddAssign<'a, T: Element>(&'a mut Tensor<T>, &'a Tensor<T>);

case! {
    <T> AddAssign<'_, T> => (), |this|
    real {
        let other = this.1.broadcast_to(this.0.shape());
        update("add_assign", Accumulate, [this.0], [&other]);
    },
    integer {
        let other = this.1.broadcast_to(this.0.shape());
        *this.0 = T::case(Tensors("add_assign", Add, [&*this.0, &other]));
    }
}

#[derive(Clone, Copy)]
struct Accumulate;

impl<T: Real> Update<T, 1, 1> for Accumulate {
    const COST: Cost = Cost::MOVE;
    #[inline(always)]
    fn f<A: Algebra<T>>(self, [w]: [Expr<T, A>; 1], [x]: [Expr<T, A>; 1]) -> [Expr<T, A>; 1] {
        [w + x]
    }
}

/// An operand of a tensor of `T`: another tensor, by reference or not, or a number.
///
/// It is the right side of the operators `+`, `-`, `*` and `/`, and the argument of comparisons. On the
/// left of an operator can be a tensor, a reference to one, or a number: `1.0 - &x`.
///
/// ```
/// use retrograd::prelude::*;
/// let (x, y) = (Tensor::from([1.0f32, 2.0]), Tensor::from([3.0, 5.0]));
/// assert_eq!((&x + &y).to_vec(), [4.0, 7.0]);
/// assert_eq!((1.0 - &x * 2.0).to_vec(), [-1.0, -3.0]);
/// assert_eq!(y.gt(&x * 2.0).to_vec(), [true, true]);
/// assert_eq!(y.gt(4.0).to_vec(), [false, true]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no operand of a tensor of `{T}`",
    label = "neither a tensor of `{T}` nor a number of type `{T}`",
    note = "of a tensor with another element type, `y.cast::<{T}>()` is one with this type",
    note = "the literal `2` is an integer, `2.0` a float",
    note = "of a `Var`, `y.value()` is the tensor; to differentiate, make this side a `Var`, too: \
            `Var::constant(x)`"
)]
pub trait TensorOrNumber<T: Element> {
    /// The operand as a tensor: a number has rank 0.
    fn into_tensor(self) -> Tensor<T>;

    /// `left` and this operand, in this order, combined by an operator.
    #[doc(hidden)]
    #[track_caller]
    fn after(self, left: &Tensor<T>, operator: Operator) -> Tensor<T>
    where
        T: Number;
}

/// An arithmetic operator.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum Operator {
    Add,
    Sub,
    Mul,
    Div,
}

impl<T: Element> TensorOrNumber<T> for T {
    fn into_tensor(self) -> Tensor<T> {
        Tensor::scalar(self)
    }
    #[track_caller]
    fn after(self, left: &Tensor<T>, operator: Operator) -> Tensor<T>
    where
        T: Number,
    {
        match operator {
            Operator::Add => left.add_scalar(self),
            Operator::Sub => T::case(TensorAndNumber("sub", Sub, left, self)),
            Operator::Mul => left.mul_scalar(self),
            Operator::Div => T::case(TensorAndNumber("div", Div, left, self)),
        }
    }
}

impl<T: Element> TensorOrNumber<T> for &Tensor<T> {
    fn into_tensor(self) -> Tensor<T> {
        self.clone()
    }
    #[track_caller]
    fn after(self, left: &Tensor<T>, operator: Operator) -> Tensor<T>
    where
        T: Number,
    {
        match operator {
            Operator::Add => left.add(self),
            Operator::Sub => left.sub(self),
            Operator::Mul => left.mul(self),
            Operator::Div => left.div(self),
        }
    }
}

impl<T: Element> TensorOrNumber<T> for Tensor<T> {
    fn into_tensor(self) -> Tensor<T> {
        self
    }
    #[track_caller]
    fn after(self, left: &Tensor<T>, operator: Operator) -> Tensor<T>
    where
        T: Number,
    {
        (&self).after(left, operator)
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, |$x:ident, $c:ident| $reversed:expr) => {
        impl<T: Number, R: TensorOrNumber<T>> ops::$trait<R> for &Tensor<T> {
            type Output = Tensor<T>;
            #[track_caller]
            fn $method(self, other: R) -> Tensor<T> {
                other.after(self, Operator::$trait)
            }
        }

        impl<T: Number, R: TensorOrNumber<T>> ops::$trait<R> for Tensor<T> {
            type Output = Tensor<T>;
            #[track_caller]
            fn $method(self, other: R) -> Tensor<T> {
                other.after(&self, Operator::$trait)
            }
        }

        operator!(@ $trait, $method, |$x, $c| $reversed, f32 f64 i64 u32);
    };
    (@ $trait:ident, $method:ident, |$x:ident, $c:ident| $reversed:expr, $($t:ty)+) => {$(
        impl ops::$trait<&Tensor<$t>> for $t {
            type Output = Tensor<$t>;
            #[track_caller]
            fn $method(self, $x: &Tensor<$t>) -> Tensor<$t> {
                let $c = self;
                $reversed
            }
        }

        impl ops::$trait<Tensor<$t>> for $t {
            type Output = Tensor<$t>;
            #[track_caller]
            fn $method(self, x: Tensor<$t>) -> Tensor<$t> {
                ops::$trait::$method(self, &x)
            }
        }
    )+};
}

operator!(Add, add, |x, c| x.add_scalar(c));
operator!(Sub, sub, |x, c| Number::case(NumberAndTensor("sub", Sub, c, x)));
operator!(Mul, mul, |x, c| x.mul_scalar(c));
operator!(Div, div, |x, c| Number::case(NumberAndTensor("div", Div, c, x)));

impl<T: Number> ops::Neg for &Tensor<T> {
    type Output = Tensor<T>;
    #[track_caller]
    fn neg(self) -> Tensor<T> {
        Tensor::neg(self)
    }
}

impl<T: Number> ops::Neg for Tensor<T> {
    type Output = Tensor<T>;
    #[track_caller]
    fn neg(self) -> Tensor<T> {
        Tensor::neg(&self)
    }
}
