//! Vectors of lanes: the one place where formulas meet registers.
//!
//! A formula is written once, generic over its [`Algebra`], and run by [`Real::dispatch`] with the
//! best instruction set the CPU has. The contract that makes results comparable:
//!
//! * **An `f32` vector is always 16 lanes**, whatever the instruction set: one register on
//!   AVX-512, two on AVX2, four on NEON, an array in portable code. Reductions therefore use
//!   the same accumulators and the same tree everywhere.
//! * `fma` is fused on every instruction set except the portable one, so AVX2, AVX-512 and
//!   NEON give equal bits; the portable level differs by rounding only.
//! * A token (`Avx2`, `Avx512`, ...) is a proof that the CPU has the instructions. Only
//!   detection makes one, hence the methods on it are safe.
//!
//! `f64` exists to check `f32`, and runs the same formulas on one lane.

mod algebra;
#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
mod dual;
mod level;
mod math;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
mod one;
mod portable;
mod prefetch;
mod real;

pub use algebra::Algebra;
pub use dual::Dual;
pub use level::{Level, LevelError, level, with_level};
pub(crate) use prefetch::{FAR_AHEAD, LINE, is_far, pays_to_ask, prefetch, prefetch_near};
pub use real::Real;

/// Number of lanes of an `f32` vector on every instruction set.
pub const F32_LANES: usize = 16;

/// Vector operations on `T`, on a token proving that the CPU has them: the [`Algebra`] of formulas on
/// vectors of [`Lanes::N`] values, and what kernels need besides.
///
/// All methods are elementwise unless they say otherwise, and never allocate.
pub trait Lanes<T: Copy>: Algebra<T> + Send + Sync + 'static {
    /// Lanes in a vector.
    const N: usize;

    /// The first `N` elements of `x`; panics if `x` is shorter.
    fn load(self, x: &[T]) -> Self::V;
    /// Writes `N` elements to the front of `out`; panics if `out` is shorter.
    fn store(self, v: Self::V, out: &mut [T]);
    /// All of `x`, at most `N` elements; the other lanes are `fill`.
    fn load_or(self, x: &[T], fill: T) -> Self::V;
    /// Fills `out`, at most `N` elements, from the first lanes.
    fn store_part(self, v: Self::V, out: &mut [T]);

    /// What rounding took from a product: `a * b - c`, where `c` is next to `a * b`, exact (unless
    /// it is subnormal) on every instruction set. This is `fma` where that is fused.
    #[inline(always)]
    fn lost(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        self.fma(a, b, self.neg(c))
    }
    /// Magnitude of `a`, sign bit of `sign`.
    fn copysign(self, a: Self::V, sign: Self::V) -> Self::V;
    /// `x` kept within `lo..=hi`, neither of them NaN; a NaN in `x` is kept.
    #[inline(always)]
    fn clamp(self, x: Self::V, lo: Self::V, hi: Self::V) -> Self::V {
        let x = self.select(self.lt(hi, x), hi, x);
        self.select(self.lt(x, lo), lo, x)
    }
    /// Nearest integer, ties to even.
    fn round(self, a: Self::V) -> Self::V;

    /// Whether any lane is true.
    fn any(self, m: Self::M) -> bool;
    /// The mask whose lane `i` is bit `i`; bits beyond the lanes do not count.
    fn lanes_of(self, bits: u64) -> Self::M;
    /// The mask of at most `N` booleans; the other lanes are false.
    fn load_mask(self, m: &[bool]) -> Self::M;

    /// `2^n` for integral `n` in the normal exponent range (for `f32`: -126..=127).
    fn exp2i(self, n: Self::V) -> Self::V;
    /// `a * 2^n`, rounded once, so that it underflows gradually and overflows to infinity; for
    /// integral `n` of magnitude below 250 (`f32`) and `a` of magnitude near 1.
    fn ldexp(self, a: Self::V, n: Self::V) -> Self::V;
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
    /// sixteen lanes in an array take long to compile, so there each function is compiled once and
    /// not in every kernel.
    #[inline(always)]
    fn call<X, Y>(self, x: X, f: impl Fn(X) -> Y) -> Y {
        f(x)
    }
    /// Runs `k` as a function of its own on every instruction set, compiled once for all kernels that
    /// contain it. For whole rows: a call takes about as long as a few operations on vectors. (What
    /// takes and returns vectors is for [`Lanes::call`].)
    fn enter<K: Kernel<T>>(self, k: K) -> K::Out;
    /// Lane by lane through a scalar function, for what has no vector form.
    fn map(self, v: Self::V, f: impl Fn(T) -> T) -> Self::V;
    /// Lane by lane through a scalar function of two values.
    fn map2(self, a: Self::V, b: Self::V, f: impl Fn(T, T) -> T) -> Self::V;
}

/// A piece of work that is generic over the instruction set.
///
/// Mark [`Kernel::run`] `#[inline(always)]`: it must be inlined into the function that
/// carries the target features, or every vector operation becomes a call.
pub trait Kernel<T: Copy> {
    /// What the work returns.
    type Out;
    /// Does the work with the vectors of `s`.
    fn run<S: Lanes<T>>(self, s: S) -> Self::Out;
}
