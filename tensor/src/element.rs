//! What a tensor may hold.

use std::fmt::{Debug, Display};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
    impl Sealed for i64 {}
    impl Sealed for u32 {}
    impl Sealed for bool {}
}

/// Names of the element types, as printed and as stored in checkpoints.
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
/// The trait is sealed, because buffers are recycled without being cleared:
/// every element type must either accept any bit pattern or say that it does
/// not ([`Element::ANY_BITS`]).
pub trait Element:
    sealed::Sealed + Copy + Debug + Display + Default + PartialEq + PartialOrd + Send + Sync + 'static
{
    /// Which type this is.
    const DTYPE: DType;
    /// Additive identity (`false` for `bool`).
    const ZERO: Self;
    /// Multiplicative identity (`true` for `bool`).
    const ONE: Self;
    /// Whether every bit pattern is a value of this type.
    const ANY_BITS: bool;
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

element!(f32, F32, 0.0, 1.0, true);
element!(f64, F64, 0.0, 1.0, true);
element!(i64, I64, 0, 1, true);
element!(u32, U32, 0, 1, true);
element!(bool, Bool, false, true, false);

/// The signed or unsigned integers, used as indices: `i64` and `u32`.
pub trait Integer: Element {
    /// The value as a signed 128-bit integer, which both types fit.
    fn to_i128(self) -> i128;
    /// From an index; panics if it does not fit.
    fn from_usize(i: usize) -> Self;
    /// From a signed integer; panics if it does not fit.
    fn from_i128(i: i128) -> Self;
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
    fn from_i128(i: i128) -> Self {
        i.try_into().expect("integer fits i64")
    }
}

impl Integer for u32 {
    fn to_i128(self) -> i128 {
        self.into()
    }
    fn from_usize(i: usize) -> Self {
        i.try_into().expect("index fits u32")
    }
    fn from_i128(i: i128) -> Self {
        i.try_into().expect("integer fits u32")
    }
}
