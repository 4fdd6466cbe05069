//! The types of tensor elements.

use std::fmt::{Debug, Display};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
    impl Sealed for i64 {}
    impl Sealed for u32 {}
    impl Sealed for bool {}
}

/// The name of an element type, as printed and as stored in checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
    /// 64-bit signed integer.
    I64,
    /// 32-bit unsigned integer.
    U32,
    /// Boolean.
    Bool,
}

impl Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::I64 => "i64",
            DType::U32 => "u32",
            DType::Bool => "bool",
        })
    }
}

/// A type that a tensor can hold: `f32`, `f64`, `i64`, `u32` or `bool`.
///
/// The trait is sealed: buffers are recycled without being cleared, which is sound only for types
/// that accept any bit pattern ([`Element::ANY_BITS`]) or whose buffers are cleared.
#[diagnostic::on_unimplemented(
    message = "a tensor cannot hold elements of type `{Self}`",
    label = "not `f32`, `f64`, `i64`, `u32` or `bool`",
    note = "literals without a type are `i32`: write `1.0` or `1.0f32` for floats, `1i64` for integers",
    note = "of a `Vec` and a shape, `Tensor::from_vec(data, [2, 3])` is a tensor"
)]
pub trait Element:
    sealed::Sealed + Copy + Debug + Display + Default + PartialEq + PartialOrd + Send + Sync + 'static
{
    /// The name of this type.
    const DTYPE: DType;
    /// Additive identity (`false` for `bool`).
    const ZERO: Self;
    /// Multiplicative identity (`true` for `bool`).
    const ONE: Self;
    /// Whether every bit pattern is a value of this type.
    const ANY_BITS: bool;

    /// The same slices, if this type is `f32`: for code that has vectors of it.
    #[doc(hidden)]
    #[inline(always)]
    fn as_f32<'a>(_from: &'a [Self], _to: &'a mut [Self]) -> Option<(&'a [f32], &'a mut [f32])> {
        None
    }
}

macro_rules! element {
    ($t:ty, $dtype:ident, $zero:expr, $one:expr, $any:expr) => {
        impl Element for $t {
            const DTYPE: DType = DType::$dtype;
            const ZERO: Self = $zero;
            const ONE: Self = $one;
            const ANY_BITS: bool = $any;
        }
    };
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    const ANY_BITS: bool = true;

    #[inline(always)]
    fn as_f32<'a>(from: &'a [f32], to: &'a mut [f32]) -> Option<(&'a [f32], &'a mut [f32])> {
        Some((from, to))
    }
}

element!(f64, F64, 0.0, 1.0, true);
element!(i64, I64, 0, 1, true);
element!(u32, U32, 0, 1, true);
element!(bool, Bool, false, true, false);

/// The signed or unsigned integers, used as indices: `i64` and `u32`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no type of integers",
    label = "neither `i64` nor `u32`",
    note = "classes, tokens and indices are integers: `Tensor::from([0i64, 2])`; `x.cast::<i64>()` converts a \
            tensor"
)]
pub trait Integer: Element {
    /// The value as a signed 128-bit integer, which both types fit.
    fn to_i128(self) -> i128;
    /// From an index; panics if it does not fit.
    fn from_usize(i: usize) -> Self;
    /// From a signed integer, if it fits.
    fn checked_from(i: i128) -> Option<Self>;
    /// From a signed integer; panics if it does not fit.
    fn from_i128(i: i128) -> Self {
        Self::checked_from(i).expect("integer fits the element type")
    }
    /// The index this value denotes, if it lies in `0..len`.
    fn index_in(self, len: usize) -> Option<usize> {
        usize::try_from(self.to_i128()).ok().filter(|&i| i < len)
    }
}

impl Integer for i64 {
    fn to_i128(self) -> i128 {
        self.into()
    }
    fn from_usize(i: usize) -> Self {
        i.try_into().expect("index fits i64")
    }
    fn checked_from(i: i128) -> Option<Self> {
        i.try_into().ok()
    }
}

impl Integer for u32 {
    fn to_i128(self) -> i128 {
        self.into()
    }
    fn from_usize(i: usize) -> Self {
        i.try_into().expect("index fits u32")
    }
    fn checked_from(i: i128) -> Option<Self> {
        i.try_into().ok()
    }
}

/// Number types with arithmetic progressions, for [`Tensor::arange`](crate::Tensor::arange).
pub trait Steps: Element {
    /// The type of the bounds and the step: `f64` for floats, `i64` for integers.
    type Bound: Copy + Display + Send + Sync;
    /// The number of elements in `start, start + step, ..` before `stop`; `None` if it is not
    /// finite.
    fn count(start: Self::Bound, stop: Self::Bound, step: Self::Bound) -> Option<usize>;
    /// Element `i` of the progression, counted from 0; panics if it does not fit the type.
    fn nth(start: Self::Bound, step: Self::Bound, i: usize) -> Self;
}

macro_rules! steps_of_floats {
    ($t:ty) => {
        impl Steps for $t {
            type Bound = f64;
            fn count(start: f64, stop: f64, step: f64) -> Option<usize> {
                let n = ((stop - start) / step).ceil();
                (step != 0.0 && n.is_finite()).then(|| n.max(0.0) as usize)
            }
            #[inline(always)]
            fn nth(start: f64, step: f64, i: usize) -> $t {
                (start + i as f64 * step) as $t
            }
        }
    };
}

macro_rules! steps_of_integers {
    ($t:ty) => {
        impl Steps for $t {
            type Bound = i64;
            fn count(start: i64, stop: i64, step: i64) -> Option<usize> {
                let (distance, step) = (i128::from(stop) - i128::from(start), i128::from(step));
                if step == 0 {
                    return None;
                }
                let whole = distance / step + i128::from(distance % step != 0);
                usize::try_from(if distance.signum() == step.signum() { whole } else { 0 }).ok()
            }
            #[inline(always)]
            fn nth(start: i64, step: i64, i: usize) -> $t {
                <$t>::from_i128(i128::from(start) + i as i128 * i128::from(step))
            }
        }
    };
}

steps_of_floats!(f32);
steps_of_floats!(f64);
steps_of_integers!(i64);
steps_of_integers!(u32);

/// The floating-point element types, `f32` and `f64`: arithmetic, constants and conversions.
pub trait Float:
    Steps<Bound = f64>
    + Neg<Output = Self>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
    + Sum
{
    /// Distance from 1 to the next larger number.
    const EPSILON: Self;
    /// Positive infinity.
    const INFINITY: Self;
    /// Negative infinity.
    const NEG_INFINITY: Self;
    /// A quiet NaN.
    const NAN: Self;
    /// Largest finite number.
    const MAX: Self;
    /// Smallest positive normal number.
    const MIN_POSITIVE: Self;

    /// The nearest value of this type.
    fn from_f64(x: f64) -> Self;
    /// The same value as `f64`.
    fn to_f64(self) -> f64;
    /// Whether this is NaN.
    fn is_nan(self) -> bool;
    /// The position among all numbers of this type in ascending order: zeros are at 0, and neighbours 1
    /// apart.
    fn ordinal(self) -> i64;
}

macro_rules! float {
    ($t:ty) => {
        impl Float for $t {
            const EPSILON: $t = <$t>::EPSILON;
            const INFINITY: $t = <$t>::INFINITY;
            const NEG_INFINITY: $t = <$t>::NEG_INFINITY;
            const NAN: $t = <$t>::NAN;
            const MAX: $t = <$t>::MAX;
            const MIN_POSITIVE: $t = <$t>::MIN_POSITIVE;

            #[inline(always)]
            fn from_f64(x: f64) -> $t {
                x as $t
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self.into()
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                <$t>::is_nan(self)
            }
            fn ordinal(self) -> i64 {
                let magnitude = i64::from(self.abs().to_bits().cast_signed());
                if self.is_sign_negative() { -magnitude } else { magnitude }
            }
        }
    };
}

float!(f32);
float!(f64);
