//! Vector operations, and kernels that are generic over them.

use crate::element::Float;
use crate::formula::Algebra;

/// Number of lanes of an `f32` vector on every instruction set.
pub const F32_LANES: usize = 16;

/// Vector operations on `T`, methods of a token that proves CPU support: the [`Algebra`] of
/// formulas on vectors of [`Lanes::N`] values, with loads, stores, bit operations and reductions.
///
/// All methods are elementwise unless documented otherwise, and never allocate.
pub trait Lanes<T: Copy>: Algebra<T> + Send + Sync + 'static {
    /// Lanes in a vector.
    const N: usize;
    /// Whether rows of a few vectors are kept in registers, which takes long to compile.
    const KEEPS_ROWS: bool;

    /// The first `N` elements of `x`; panics if `x` is shorter.
    fn load(self, x: &[T]) -> Self::V;
    /// Writes `N` elements to the front of `out`; panics if `out` is shorter.
    fn store(self, v: Self::V, out: &mut [T]);
    /// All of `x`, at most `N` elements; the other lanes are `fill`.
    fn load_or(self, x: &[T], fill: T) -> Self::V;
    /// Fills `out`, at most `N` elements, from the first lanes.
    fn store_part(self, v: Self::V, out: &mut [T]);

    /// The rounding error `a * b - c` of a product (TwoProduct), where `c` is `a * b` rounded:
    /// exact on every instruction set unless it is subnormal. This is `fma` where that is fused.
    #[inline(always)]
    fn product_residual(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        self.fma(a, b, self.neg(c))
    }
    /// Magnitude of `a`, sign bit of `sign`.
    fn copysign(self, a: Self::V, sign: Self::V) -> Self::V;
    /// `x` clamped to `lo..=hi`, neither of them NaN; NaN in `x` stays NaN.
    #[inline(always)]
    fn clamp(self, x: Self::V, lo: Self::V, hi: Self::V) -> Self::V {
        let x = self.select(self.lt(hi, x), hi, x);
        self.select(self.lt(x, lo), lo, x)
    }

    /// Whether any lane is true.
    fn any(self, m: Self::M) -> bool;
    /// The mask whose lane `i` is bit `i`; bits beyond the lanes are ignored.
    fn mask_from_bits(self, bits: u64) -> Self::M;
    /// The mask of at most `N` booleans; the other lanes are false.
    fn load_mask(self, m: &[bool]) -> Self::M;

    /// `2^n` for integral `n` in the normal exponent range (for `f32`: -126..=127).
    fn exp2i(self, n: Self::V) -> Self::V;
    /// `a * 2^n`, rounded once, so that it underflows gradually and overflows to infinity; for
    /// integral `n` of magnitude below 250 (`f32`) and `a` of magnitude near 1.
    #[inline(always)]
    fn ldexp(self, a: Self::V, n: Self::V) -> Self::V
    where
        T: Float,
    {
        let half = self.round(self.mul(n, self.splat(T::from_f64(0.5))));
        let rest = self.sub(n, half);
        self.mul(self.mul(a, self.exp2i(half)), self.exp2i(rest))
    }
    /// For positive normal `a = m * 2^e` with `m` in `[0.5, 1)`: `(m, e)`.
    fn frexp(self, a: Self::V) -> (Self::V, Self::V);

    /// Sum of all lanes, by halves: lane `i` is added to lane `i + n/2`, and so on down.
    fn sum(self, v: Self::V) -> T;
    /// Product of all lanes, by halves.
    fn product(self, v: Self::V) -> T;
    /// Smallest lane; NaN if any is NaN.
    fn min_lane(self, v: Self::V) -> T;
    /// Largest lane; NaN if any is NaN.
    fn max_lane(self, v: Self::V) -> T;
    /// The square of the first `N` vectors, transposed: lane `j` of vector `i` becomes lane `i`
    /// of vector `j`.
    fn transpose(self, rows: [Self::V; F32_LANES]) -> [Self::V; F32_LANES];
    /// `f(x)`, where `f` is a function of many operations. It is inlined, except in portable code:
    /// arrays of sixteen lanes take long to compile, so there each function is compiled once
    /// instead of once per kernel.
    #[inline(always)]
    fn call<X, Y>(self, x: X, f: impl Fn(X) -> Y) -> Y {
        f(x)
    }
    /// Runs `k` as a separate function on every instruction set, compiled once for all kernels that
    /// contain it. For work on whole rows: a call costs about as much as a few vector operations.
    /// (Functions that take and return vectors use [`Lanes::call`].)
    fn enter<K: Kernel<T>>(self, k: K) -> K::Out;
    /// A scalar function of each lane, for functions without a vector form.
    fn map(self, v: Self::V, f: impl Fn(T) -> T) -> Self::V;
    /// A scalar function of each pair of lanes.
    fn map2(self, a: Self::V, b: Self::V, f: impl Fn(T, T) -> T) -> Self::V;
    /// `a^b`, with the conventions of `f64::powf` (`x^0` and `1^y` are 1, even for NaN); `f32`: at most
    /// 0.51 ULP.
    fn pow(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - n b` for the whole number `n` towards 0, with the sign of `a`, as the operator `%`: exact.
    fn fmod(self, a: Self::V, b: Self::V) -> Self::V;
}

/// A computation that is generic over the instruction set.
///
/// Mark [`Kernel::run`] `#[inline(always)]`: it must be inlined into the function with the target
/// features, or every vector operation becomes a call.
pub trait Kernel<T: Copy> {
    /// The result type.
    type Out;
    /// Whether `f64` gains from vectors of eight lanes over two of four, which compute the same bits: where
    /// arithmetic takes the time, and not memory. Others are compiled once less.
    const EIGHT_F64: bool = false;
    /// Runs the computation with the vectors of `s`.
    fn run<S: Lanes<T>>(self, s: S) -> Self::Out;
}
