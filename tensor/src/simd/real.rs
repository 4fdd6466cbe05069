//! The differentiable element types, `f32` and `f64`, and the way into kernels over them.

use super::one::One;
use super::portable::Portable;
use super::{Kernel, Lanes, Level, math};
use crate::element::Steps;
use crate::gemm::Product;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

/// A floating-point element type: `f32`, in vectors, or `f64`, one lane at a time.
///
/// The functions on lanes have documented bounds on their error for `f32`, in units in the last
/// place (ULP), over all arguments from subnormal to infinite; for `f64` they are those of the
/// standard library. NaN gives NaN (but see [`Real::pow`]), and odd functions keep the sign of
/// zero. The result of a lane depends on nothing but its own argument.
pub trait Real:
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
    + Product
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

    /// Runs `k` with the vectors of `level`; `f64` has one lane on every level.
    ///
    /// # Panics
    /// If this CPU does not have the level.
    ///
    /// # Example
    /// ```
    /// use retrograd_tensor::simd::{Kernel, Lanes, Real, level};
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

    /// `e^x`; `f32`: at most 1.5 ULP.
    fn exp<S: Lanes<Self>>(s: S, x: S::V) -> S::V;
    /// `e^x - 1`, accurate near 0; `f32`: at most 2 ULP.
    fn expm1<S: Lanes<Self>>(s: S, x: S::V) -> S::V;
    /// Natural logarithm; `-inf` at 0 and NaN below; `f32`: at most 1 ULP.
    fn ln<S: Lanes<Self>>(s: S, x: S::V) -> S::V;
    /// `ln(1 + x)`, accurate near 0; `-inf` at -1 and NaN below; `f32`: at most 2 ULP.
    fn log1p<S: Lanes<Self>>(s: S, x: S::V) -> S::V;
    /// Hyperbolic tangent; `f32`: at most 3 ULP.
    fn tanh<S: Lanes<Self>>(s: S, x: S::V) -> S::V;
    /// Error function; `f32`: at most 1.5 ULP.
    fn erf<S: Lanes<Self>>(s: S, x: S::V) -> S::V;
    /// The normal distribution function and its density, `Φ(x) = (1 + erf(x/√2)) / 2` and
    /// `φ(x) = e^(-x²/2) / √(2π)`.
    fn normal<S: Lanes<Self>>(s: S, x: S::V) -> (S::V, S::V);
    /// Sine of radians; NaN at infinity; `f32`: at most 3 ULP.
    fn sin<S: Lanes<Self>>(s: S, x: S::V) -> S::V;
    /// Cosine of radians; NaN at infinity; `f32`: at most 3 ULP.
    fn cos<S: Lanes<Self>>(s: S, x: S::V) -> S::V;
    /// `a^b`, with the conventions of `f64::powf` (`x^0` and `1^y` are 1, even for NaN).
    /// For `f32` it is that function, rounded: slow, and right.
    fn pow<S: Lanes<Self>>(s: S, a: S::V, b: S::V) -> S::V;
}

#[cold]
fn absent(level: Level) -> ! {
    panic!("SIMD level {level} is not supported by this CPU")
}

macro_rules! constants {
    ($t:ty) => {
        const EPSILON: $t = <$t>::EPSILON;
        const INFINITY: $t = <$t>::INFINITY;
        const NEG_INFINITY: $t = <$t>::NEG_INFINITY;
        const NAN: $t = <$t>::NAN;
        const MAX: $t = <$t>::MAX;
        const MIN_POSITIVE: $t = <$t>::MIN_POSITIVE;

        #[inline(always)]
        fn is_nan(self) -> bool {
            <$t>::is_nan(self)
        }
    };
}

/// One line per function on lanes: `name(x) = body`, with `s` the token.
macro_rules! on_lanes {
    ($t:ty; $($name:ident($s:ident, $($x:ident),+) = $body:expr;)+) => {
        $(#[inline(always)]
        fn $name<S: Lanes<$t>>($s: S, $($x: S::V),+) -> S::V {
            $body
        })+
    };
}

impl Real for f32 {
    constants!(f32);

    #[inline(always)]
    fn from_f64(x: f64) -> f32 {
        x as f32
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self.into()
    }

    #[inline]
    fn dispatch<K: Kernel<f32>>(level: Level, k: K) -> K::Out {
        match level {
            Level::Scalar => Portable.run(k),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => match super::neon::Neon::detect() {
                Some(s) => s.run(k),
                None => absent(level),
            },
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => match super::avx2::Avx2::detect() {
                Some(s) => s.run(k),
                None => absent(level),
            },
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => match super::avx512::Avx512::detect() {
                Some(s) => s.run(k),
                None => absent(level),
            },
            _ => absent(level),
        }
    }

    on_lanes! { f32;
        exp(s, x) = s.call(x, #[inline(always)] |x| math::exp(s, x));
        expm1(s, x) = s.call(x, #[inline(always)] |x| math::expm1(s, x));
        ln(s, x) = s.call(x, #[inline(always)] |x| math::ln(s, x));
        log1p(s, x) = s.call(x, #[inline(always)] |x| math::log1p(s, x));
        tanh(s, x) = s.call(x, #[inline(always)] |x| math::tanh(s, x));
        erf(s, x) = s.call(x, #[inline(always)] |x| math::erf(s, x));
        sin(s, x) = s.call(x, #[inline(always)] |x| math::sin(s, x));
        cos(s, x) = s.call(x, #[inline(always)] |x| math::cos(s, x));
        pow(s, a, b) = math::pow(s, a, b);
    }

    #[inline(always)]
    fn normal<S: Lanes<f32>>(s: S, x: S::V) -> (S::V, S::V) {
        s.call(
            x,
            #[inline(always)]
            |x| math::normal(s, x),
        )
    }
}

impl Real for f64 {
    constants!(f64);

    #[inline(always)]
    fn from_f64(x: f64) -> f64 {
        x
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }

    #[inline]
    fn dispatch<K: Kernel<f64>>(level: Level, k: K) -> K::Out {
        if !level.is_available() {
            absent(level);
        }
        One.run(k)
    }

    on_lanes! { f64;
        exp(s, x) = s.map(x, f64::exp);
        expm1(s, x) = s.map(x, f64::exp_m1);
        ln(s, x) = s.map(x, f64::ln);
        log1p(s, x) = s.map(x, f64::ln_1p);
        tanh(s, x) = s.map(x, f64::tanh);
        erf(s, x) = s.map(x, libm::erf);
        sin(s, x) = s.map(x, f64::sin);
        cos(s, x) = s.map(x, f64::cos);
        pow(s, a, b) = s.map2(a, b, f64::powf);
    }

    #[inline(always)]
    fn normal<S: Lanes<f64>>(s: S, x: S::V) -> (S::V, S::V) {
        use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
        let cdf = s.map(x, |x| 0.5 * libm::erfc(-x * FRAC_1_SQRT_2));
        let density = s.map(x, |x| 0.5 * FRAC_1_SQRT_2 * FRAC_2_SQRT_PI * (-0.5 * x * x).exp());
        (cdf, density)
    }
}
