//! Eight `f64` lanes in two AVX registers.

use super::elementary::bits_of;
use super::{F32_LANES, Kernel, Lanes};
use crate::formula::{Algebra, inlined_methods};
use std::arch::x86_64::*;

/// A token that proves that the CPU supports AVX2 and FMA; only [`Avx2F64::detect`] creates one.
#[derive(Clone, Copy, Debug)]
pub struct Avx2F64(());

type V = [__m256d; 2];
type M = [__m256d; 2];

/// Wraps intrinsics that work on registers only: their only requirement is CPU support.
macro_rules! cpu {
    ($e:expr) => {
        // SAFETY: 1. A token exists only on a CPU with AVX2 and FMA (every use is in a method
        // of the token). 2. The intrinsics in `$e` touch no memory.
        unsafe { $e }
    };
}

/// The same intrinsic on both registers.
macro_rules! two {
    ($f:path; $($x:expr),+) => {
        cpu!([$f($($x[0]),+), $f($($x[1]),+)])
    };
}

impl Avx2F64 {
    /// The token, if the CPU supports the instructions.
    #[inline]
    pub fn detect() -> Option<Avx2F64> {
        let has = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        has.then_some(Avx2F64(()))
    }

    /// Runs `k` inside a function compiled for AVX2 and FMA.
    #[inline]
    pub fn run<K: Kernel<f64>>(self, k: K) -> K::Out {
        #[inline(never)]
        #[target_feature(enable = "avx2,fma")]
        fn entry<K: Kernel<f64>>(s: Avx2F64, k: K) -> K::Out {
            k.run(s)
        }
        // SAFETY: 1. `self` proves that the CPU has AVX2 and FMA.
        unsafe { entry(self, k) }
    }

    /// Mask registers with the first `len` of 8 lanes set.
    #[inline(always)]
    fn first(self, len: usize) -> [__m256i; 2] {
        let m = self.mask_from_bits((1 << len) - 1);
        two!(_mm256_castpd_si256; m)
    }

    /// The reduction tree: lane `i` with lane `i + 4`, then `i + 2`, `i + 1`.
    #[inline(always)]
    fn tree(self, v: V, f: impl Fn(V, V) -> V) -> f64 {
        let v = f([v[0]; 2], [v[1]; 2]);
        let upper = two!(_mm256_permute4x64_pd::<0b1110>; v);
        let v = f(v, upper);
        let odd = two!(_mm256_permute_pd::<1>; v);
        cpu!(_mm256_cvtsd_f64(f(v, odd)[0]))
    }

    inlined_methods! {
        /// Eight lanes of `f32` as `f64`.
        pub(super) widen(self, v: __m256) -> V = cpu!([
            _mm256_cvtps_pd(_mm256_castps256_ps128(v)),
            _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(v)),
        ]);

        /// The nearest `f32` in every lane.
        pub(super) narrow(self, v: V) -> __m256 =
            cpu!(_mm256_set_m128(_mm256_cvtpd_ps(v[1]), _mm256_cvtpd_ps(v[0])));
    }

    /// The transpose of four vectors of four lanes.
    #[inline(always)]
    fn transpose4(self, [a, b, c, d]: [__m256d; 4]) -> [__m256d; 4] {
        cpu!({
            let (ab_even, ab_odd) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
            let (cd_even, cd_odd) = (_mm256_unpacklo_pd(c, d), _mm256_unpackhi_pd(c, d));
            [
                _mm256_permute2f128_pd::<0x20>(ab_even, cd_even),
                _mm256_permute2f128_pd::<0x20>(ab_odd, cd_odd),
                _mm256_permute2f128_pd::<0x31>(ab_even, cd_even),
                _mm256_permute2f128_pd::<0x31>(ab_odd, cd_odd),
            ]
        })
    }
}

impl Algebra<f64> for Avx2F64 {
    type V = V;
    type M = M;

    inlined_methods! {
        splat(self, x: f64) -> V = cpu!([_mm256_set1_pd(x); 2]);

        add(self, a: V, b: V) -> V = two!(_mm256_add_pd; a, b);
        sub(self, a: V, b: V) -> V = two!(_mm256_sub_pd; a, b);
        mul(self, a: V, b: V) -> V = two!(_mm256_mul_pd; a, b);
        div(self, a: V, b: V) -> V = two!(_mm256_div_pd; a, b);
        fma(self, a: V, b: V, c: V) -> V = two!(_mm256_fmadd_pd; a, b, c);
        neg(self, a: V) -> V = two!(_mm256_xor_pd; a, self.splat(-0.0));
        abs(self, a: V) -> V = two!(_mm256_andnot_pd; self.splat(-0.0), a);
        sqrt(self, a: V) -> V = two!(_mm256_sqrt_pd; a);
        round(self, a: V) -> V =
            two!(_mm256_round_pd::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>; a);
        // The instruction returns `b` where either is NaN, so only a NaN in `a` has to be handled.
        min(self, a: V, b: V) -> V = self.select(self.is_nan(a), a, two!(_mm256_min_pd; a, b));
        max(self, a: V, b: V) -> V = self.select(self.is_nan(a), a, two!(_mm256_max_pd; a, b));

        lt(self, a: V, b: V) -> M = two!(_mm256_cmp_pd::<_CMP_LT_OQ>; a, b);
        le(self, a: V, b: V) -> M = two!(_mm256_cmp_pd::<_CMP_LE_OQ>; a, b);
        eq(self, a: V, b: V) -> M = two!(_mm256_cmp_pd::<_CMP_EQ_OQ>; a, b);
        is_nan(self, a: V) -> M = two!(_mm256_cmp_pd::<_CMP_UNORD_Q>; a, a);
        and(self, a: M, b: M) -> M = two!(_mm256_and_pd; a, b);
        or(self, a: M, b: M) -> M = two!(_mm256_or_pd; a, b);
        not(self, a: M) -> M = two!(_mm256_andnot_pd; a, self.mask_from_bits(u64::MAX));
        select(self, m: M, a: V, b: V) -> V = two!(_mm256_blendv_pd; b, a, m);
    }

    super::elementary::elementary!(f64);
}

impl Lanes<f64> for Avx2F64 {
    const N: usize = 8;
    const KEEPS_ROWS: bool = false;
    #[inline(always)]
    fn load(self, x: &[f64]) -> V {
        let x = &x[..8];
        // SAFETY: 1. `self` proves AVX2. 2. `x` has 8 elements: both halves are in bounds.
        // 3. The loads require no alignment.
        unsafe { [_mm256_loadu_pd(x.as_ptr()), _mm256_loadu_pd(x.as_ptr().add(4))] }
    }
    #[inline(always)]
    fn store(self, v: V, out: &mut [f64]) {
        let out = &mut out[..8];
        // SAFETY: 1. `self` proves AVX2. 2. `out` has 8 elements: both halves are in bounds.
        // 3. The stores require no alignment.
        unsafe {
            _mm256_storeu_pd(out.as_mut_ptr(), v[0]);
            _mm256_storeu_pd(out.as_mut_ptr().add(4), v[1]);
        }
    }
    #[inline(always)]
    fn load_or(self, x: &[f64], fill: f64) -> V {
        assert!(x.len() <= 8, "load_or: {} elements for 8 lanes", x.len());
        let (m, p) = (self.first(x.len()), x.as_ptr());
        // SAFETY: 1. `self` proves AVX2. 2. The masks name the first `x.len()` lanes only, and
        // lanes outside the mask are not accessed. 3. `wrapping_add` may leave the slice,
        // because then its mask is empty.
        let v =
            unsafe { [_mm256_maskload_pd(p, m[0]), _mm256_maskload_pd(p.wrapping_add(4), m[1])] };
        let m = two!(_mm256_castsi256_pd; m);
        self.select(m, v, self.splat(fill))
    }
    #[inline(always)]
    fn store_part(self, v: V, out: &mut [f64]) {
        assert!(out.len() <= 8, "store_part: {} elements for 8 lanes", out.len());
        let (m, p) = (self.first(out.len()), out.as_mut_ptr());
        // SAFETY: 1. `self` proves AVX2. 2. The masks name the first `out.len()` lanes only, and
        // lanes outside the mask are not accessed. 3. `wrapping_add` may leave the slice,
        // because then its mask is empty.
        unsafe {
            _mm256_maskstore_pd(p, m[0], v[0]);
            _mm256_maskstore_pd(p.wrapping_add(4), m[1], v[1]);
        }
    }

    inlined_methods! {
        copysign(self, a: V, sign: V) -> V =
            self.or(self.abs(a), self.and(sign, self.splat(-0.0)));
        clamp(self, x: V, lo: V, hi: V) -> V = {
            let x = two!(_mm256_min_pd; hi, x);
            two!(_mm256_max_pd; lo, x)
        };
        any(self, m: M) -> bool = cpu!(_mm256_movemask_pd(_mm256_or_pd(m[0], m[1])) != 0);
    }

    #[inline(always)]
    fn mask_from_bits(self, bits: u64) -> M {
        let bits = cpu!([_mm256_set1_epi64x(bits.cast_signed()); 2]);
        let places = cpu!([_mm256_setr_epi64x(1, 2, 4, 8), _mm256_setr_epi64x(16, 32, 64, 128)]);
        let set = two!(_mm256_and_si256; bits, places);
        let set = two!(_mm256_cmpeq_epi64; set, places);
        two!(_mm256_castsi256_pd; set)
    }
    #[inline(always)]
    fn load_mask(self, m: &[bool]) -> M {
        self.mask_from_bits(bits_of(m, 8))
    }

    #[inline(always)]
    fn exp2i(self, n: V) -> V {
        // 1.5 * 2^52 + 1023: the sum carries the biased exponent in its low bits.
        let n = self.add(n, self.splat(6_755_399_441_056_767.0));
        let n = two!(_mm256_castpd_si256; n);
        let n = two!(_mm256_slli_epi64::<52>; n);
        two!(_mm256_castsi256_pd; n)
    }
    #[inline(always)]
    fn ldexp(self, a: V, n: V) -> V {
        let half = self.round(self.mul(n, self.splat(0.5)));
        let rest = self.sub(n, half);
        self.mul(self.mul(a, self.exp2i(half)), self.exp2i(rest))
    }
    #[inline(always)]
    fn frexp(self, a: V) -> (V, V) {
        let mantissa = self.splat(f64::from_bits(0x800f_ffff_ffff_ffff));
        let m = self.or(self.and(a, mantissa), self.splat(0.5));
        // The biased exponent, in the low bits of 2^52.
        let e = two!(_mm256_castpd_si256; a);
        let e = two!(_mm256_srli_epi64::<52>; e);
        let e = two!(_mm256_castsi256_pd; e);
        let e = self.or(e, self.splat(4_503_599_627_370_496.0));
        (m, self.sub(e, self.splat(4_503_599_627_371_518.0)))
    }

    inlined_methods! {
        sum(self, v: V) -> f64 = self.tree(v, inlined!(|a, b| self.add(a, b)));
        product(self, v: V) -> f64 = self.tree(v, inlined!(|a, b| self.mul(a, b)));
        min_lane(self, v: V) -> f64 = self.tree(v, inlined!(|a, b| self.min(a, b)));
        max_lane(self, v: V) -> f64 = self.tree(v, inlined!(|a, b| self.max(a, b)));
        pow(self, a: V, b: V) -> V = super::math::pow(self, a, b);
    }
    #[inline(always)]
    fn transpose(self, rows: [V; F32_LANES]) -> [V; F32_LANES] {
        let mut out = rows;
        for (i, j) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let [a, b, c, d] = [rows[4 * i], rows[4 * i + 1], rows[4 * i + 2], rows[4 * i + 3]];
            let square = self.transpose4([a[j], b[j], c[j], d[j]]);
            for k in 0..4 {
                out[4 * j + k][i] = square[k];
            }
        }
        out
    }

    #[inline(always)]
    fn call<X, Y>(self, x: X, f: impl Fn(X) -> Y) -> Y {
        self.run(super::elementary::Call(x, f))
    }

    super::elementary::fused_lanes!(f64);
}
