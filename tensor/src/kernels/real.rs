//! The element types that kernels are compiled for, and those with arithmetic.

use super::gemm::Gemm;
use crate::element::{DType, Element, Float, Integer};
use crate::simd::{Counting, Kernel, Level, dispatch_f32, dispatch_f64};

/// An element type with arithmetic: `f32`, `f64`, `i64` or `u32`.
///
/// Operations on floats are kernels on vectors ([`Real`]), those on integers loops that check whether
/// every result fits the type. An operation on both is a [`Case`].
#[diagnostic::on_unimplemented(
    message = "there is no arithmetic on tensors of `{Self}`",
    label = "not `f32`, `f64`, `i64` or `u32`",
    note = "`x.cast::<f32>()` converts a tensor"
)]
pub trait Number: Element {
    /// Calls the method of `case` for this type.
    #[track_caller]
    fn case<C: Case<Self>>(case: C) -> C::Out;
}

/// A computation that is defined in one way for floats and in another for integers.
pub trait Case<T: Number> {
    /// The result type.
    type Out;
    /// The computation on floats.
    #[track_caller]
    fn real(self) -> Self::Out
    where
        T: Real;
    /// The computation on integers.
    #[track_caller]
    fn integer(self) -> Self::Out
    where
        T: Integer;
}

/// The [`Case`] of a struct by two expressions, of floats and of integers.
macro_rules! case {
    (<T $(, $F:ident: $Bound:ident)?> $Case:ty => $Out:ty,
        |$this:ident| real $real:expr, integer $integer:expr) => {
        impl<T: Number $(, $F: $Bound)?> Case<T> for $Case {
            type Out = $Out;
            #[track_caller]
            fn real(self) -> $Out
            where
                T: Real,
            {
                let $this = self;
                $real
            }
            #[track_caller]
            fn integer(self) -> $Out
            where
                T: Integer,
            {
                let $this = self;
                $integer
            }
        }
    };
}
pub(crate) use case;

macro_rules! number {
    ($($t:ty: $kind:ident)+) => {$(
        impl Number for $t {
            #[inline]
            #[track_caller]
            fn case<C: Case<Self>>(case: C) -> C::Out {
                case.$kind()
            }
        }
    )+};
}

number!(f32: real f64: real i64: integer u32: integer);

/// A differentiable element type: `f32`, in vectors of 16 lanes, or `f64`, in vectors of 8 with AVX and one
/// lane at a time without.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a differentiable element type",
    label = "neither `f32` nor `f64`",
    note = "`x.cast::<f32>()` converts a tensor; indices stay tensors of integers, and are not variables"
)]
pub trait Real: Float + Gemm + Number {
    /// Runs `k` with the vectors of `level`.
    ///
    /// # Panics
    /// If this CPU does not support the level.
    ///
    /// # Example
    /// ```
    /// use retrograd::tensor::{Real, settings::level, simd::{Kernel, Lanes}};
    ///
    /// struct Total<'a>(&'a [f32]);
    /// impl Kernel<f32> for Total<'_> {
    ///     type Out = f32;
    ///     #[inline(always)]
    ///     fn run<S: Lanes<f32>>(self, s: S) -> f32 {
    ///         let mut total = s.splat(0.0);
    ///         let chunks = self.0.chunks_exact(S::N);
    ///         let rest = s.load_or(chunks.remainder(), 0.0);
    ///         for x in chunks {
    ///             total = s.add(total, s.load(x));
    ///         }
    ///         s.sum(s.add(total, rest))
    ///     }
    /// }
    /// assert_eq!(f32::dispatch(level(), Total(&[1.0; 20])), 20.0);
    /// ```
    fn dispatch<K: Kernel<Self>>(level: Level, k: K) -> K::Out;

    /// The arithmetic operations of `k` per lane, which is run to count them; `None` for `f64`. For reports.
    #[doc(hidden)]
    fn operations<K: Kernel<Self>>(k: K) -> Option<u64>;
}

/// The level that kernels on `T` are selected by, for reports; `None` for kernels of one lane.
pub(crate) fn level_of<T: Element>(level: Level) -> Option<&'static str> {
    match (T::DTYPE, level) {
        (DType::F32, _) | (DType::F64, Level::Avx2 | Level::Avx512) => Some(level.name()),
        _ => None,
    }
}

impl Real for f32 {
    #[inline]
    fn dispatch<K: Kernel<f32>>(level: Level, k: K) -> K::Out {
        dispatch_f32(level, k)
    }

    fn operations<K: Kernel<f32>>(k: K) -> Option<u64> {
        Some(Counting::operations(k))
    }
}

impl Real for f64 {
    #[inline]
    fn dispatch<K: Kernel<f64>>(level: Level, k: K) -> K::Out {
        dispatch_f64(level, k)
    }

    fn operations<K: Kernel<f64>>(_: K) -> Option<u64> {
        None
    }
}
