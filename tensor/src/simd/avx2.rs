//! Sixteen `f32` or eight `f64` lanes in two AVX registers.

use super::elementary::bits_of;
use super::math::pow_of_f32;
use super::{F32_LANES, Kernel, Lanes, x86};
use crate::formula::{Algebra, inlined_methods};
use std::arch::x86_64::*;

/// A token that proves that the CPU supports AVX2 and FMA; only [`Avx2F64::detect`] creates one.
#[derive(Clone, Copy, Debug)]
pub struct Avx2F64(());

/// [`Avx2F64`] for vectors of `f32`.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(Avx2F64);

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

/// Loads and stores of `$n` elements, or of the first ones, which are those of mask registers.
macro_rules! memory {
    ($t:ident, $n:literal, $load:ident $store:ident $mask_load:ident $mask_store:ident $mask:ident) => {
        const N: usize = $n;
        #[inline(always)]
        fn load(self, x: &[$t]) -> Self::V {
            let x = &x[..$n];
            // SAFETY: 1. `self` proves AVX2. 2. `x` has `$n` elements: both halves are in bounds.
            // 3. The loads require no alignment.
            unsafe { [$load(x.as_ptr()), $load(x.as_ptr().add($n / 2))] }
        }
        #[inline(always)]
        fn store(self, v: Self::V, out: &mut [$t]) {
            let out = &mut out[..$n];
            // SAFETY: 1. `self` proves AVX2. 2. `out` has `$n` elements: both halves are in
            // bounds. 3. The stores require no alignment.
            unsafe {
                $store(out.as_mut_ptr(), v[0]);
                $store(out.as_mut_ptr().add($n / 2), v[1]);
            }
        }
        #[inline(always)]
        fn load_or(self, x: &[$t], fill: $t) -> Self::V {
            assert!(x.len() <= $n, "load_or: {} elements for {} lanes", x.len(), $n);
            let (m, p) = (self.first(x.len()), x.as_ptr());
            // SAFETY: 1. `self` proves AVX2. 2. The masks name the first `x.len()` lanes only,
            // and lanes outside the mask are not accessed. 3. `wrapping_add` may leave the slice,
            // because then its mask is empty.
            let v = unsafe { [$mask_load(p, m[0]), $mask_load(p.wrapping_add($n / 2), m[1])] };
            self.select(two!($mask; m), v, self.splat(fill))
        }
        #[inline(always)]
        fn store_part(self, v: Self::V, out: &mut [$t]) {
            assert!(out.len() <= $n, "store_part: {} elements for {} lanes", out.len(), $n);
            let (m, p) = (self.first(out.len()), out.as_mut_ptr());
            // SAFETY: as in `load_or`.
            unsafe {
                $mask_store(p, m[0], v[0]);
                $mask_store(p.wrapping_add($n / 2), m[1], v[1]);
            }
        }
    };
}

impl Avx2 {
    /// The token, if the CPU supports the instructions.
    #[inline(never)]
    pub fn detect() -> Option<Avx2> {
        Avx2F64::detect().map(Avx2)
    }

    x86::run!(Avx2, f32, "avx2,fma");

    /// Mask registers with the first `len` of 16 lanes set.
    #[inline(always)]
    fn first(self, len: usize) -> [__m256i; 2] {
        static WINDOW: [i32; 32] = {
            let mut w = [0; 32];
            let mut i = 0;
            while i < 16 {
                w[i] = -1;
                i += 1;
            }
            w
        };
        let w: &[i32] = &WINDOW[16 - len..][..16];
        // SAFETY: 1. `self` proves AVX2. 2. `w` has 16 elements: both halves are in bounds.
        // 3. The loads require no alignment.
        unsafe {
            [_mm256_loadu_si256(w.as_ptr().cast()), _mm256_loadu_si256(w.as_ptr().add(8).cast())]
        }
    }

    inlined_methods! {
        min4(self, a: __m128, b: __m128) -> __m128 =
            cpu!(_mm_blendv_ps(_mm_min_ps(a, b), a, _mm_cmpunord_ps(a, a)));

        max4(self, a: __m128, b: __m128) -> __m128 =
            cpu!(_mm_blendv_ps(_mm_max_ps(a, b), a, _mm_cmpunord_ps(a, a)));
    }

    /// The transpose of eight vectors of eight lanes.
    #[inline(always)]
    fn transpose8(self, rows: [__m256; 8]) -> [__m256; 8] {
        // Four rows at a time: vector `c` holds columns c and c + 4 of these rows.
        let mut fours = rows;
        for i in [0, 4] {
            let [a, b, c, d] = [rows[i], rows[i + 1], rows[i + 2], rows[i + 3]];
            cpu!({
                let (ab_low, ab_high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
                let (cd_low, cd_high) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
                fours[i] = _mm256_shuffle_ps::<0x44>(ab_low, cd_low);
                fours[i + 1] = _mm256_shuffle_ps::<0xee>(ab_low, cd_low);
                fours[i + 2] = _mm256_shuffle_ps::<0x44>(ab_high, cd_high);
                fours[i + 3] = _mm256_shuffle_ps::<0xee>(ab_high, cd_high);
            });
        }
        let mut out = fours;
        for c in 0..4 {
            let (top, bottom) = (fours[c], fours[c + 4]);
            out[c] = cpu!(_mm256_permute2f128_ps::<0x20>(top, bottom));
            out[c + 4] = cpu!(_mm256_permute2f128_ps::<0x31>(top, bottom));
        }
        out
    }

    /// The rest of the reduction tree: lane `i` with lane `i + 4`, then `i + 2`, `i + 1`.
    #[inline(always)]
    fn tree(self, v: __m256, f: impl Fn(__m128, __m128) -> __m128) -> f32 {
        let v = cpu!(f(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v)));
        let v = f(v, cpu!(_mm_movehl_ps(v, v)));
        cpu!(_mm_cvtss_f32(f(v, _mm_shuffle_ps::<1>(v, v))))
    }
}

impl Algebra<f32> for Avx2 {
    type V = [__m256; 2];
    type M = [__m256; 2];

    x86::algebra! {
        two: add _mm256_add_ps, sub _mm256_sub_ps, mul _mm256_mul_ps, div _mm256_div_ps, fma _mm256_fmadd_ps,
        sqrt _mm256_sqrt_ps, round _mm256_round_ps, min _mm256_min_ps, max _mm256_max_ps,
        compare _mm256_cmp_ps, xor _mm256_xor_ps, andnot _mm256_andnot_ps
    }
    inlined_methods! {
        splat(self, x: f32) -> Self::V = cpu!([_mm256_set1_ps(x); 2]);
        and(self, a: Self::M, b: Self::M) -> Self::M = two!(_mm256_and_ps; a, b);
        or(self, a: Self::M, b: Self::M) -> Self::M = two!(_mm256_or_ps; a, b);
        not(self, a: Self::M) -> Self::M = two!(_mm256_andnot_ps; a, self.mask_from_bits(u64::MAX));
        select(self, m: Self::M, a: Self::V, b: Self::V) -> Self::V = two!(_mm256_blendv_ps; b, a, m);
    }
    super::elementary::elementary!(f32);
}

impl Lanes<f32> for Avx2 {
    const KEEPS_ROWS: bool = true;
    memory!(
        f32, 16, _mm256_loadu_ps _mm256_storeu_ps _mm256_maskload_ps _mm256_maskstore_ps _mm256_castsi256_ps
    );
    x86::lanes!(two: min _mm256_min_ps, max _mm256_max_ps, and _mm256_and_ps, or _mm256_or_ps);

    #[inline(always)]
    fn any(self, m: Self::M) -> bool {
        cpu!(_mm256_movemask_ps(_mm256_or_ps(m[0], m[1])) != 0)
    }
    #[inline(always)]
    fn mask_from_bits(self, bits: u64) -> Self::M {
        cpu!({
            let bits = _mm256_set1_epi32(bits as i32);
            let lane = |places| {
                _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(bits, places), places))
            };
            let low = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            [lane(low), lane(_mm256_slli_epi32::<8>(low))]
        })
    }
    #[inline(always)]
    fn load_mask(self, m: &[bool]) -> Self::M {
        let mut bytes = [false; 16];
        bytes[..m.len()].copy_from_slice(m);
        // SAFETY: 1. `self` proves AVX2. 2. `bytes` has 16 initialised bytes. 3. The load require
        // no alignment.
        let b = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
        cpu!({
            // 0 or 1 per lane, negated: no bits or all bits.
            let zero = _mm256_setzero_si256();
            let lo = _mm256_sub_epi32(zero, _mm256_cvtepu8_epi32(b));
            let hi = _mm256_sub_epi32(zero, _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(b)));
            [_mm256_castsi256_ps(lo), _mm256_castsi256_ps(hi)]
        })
    }

    #[inline(always)]
    fn exp2i(self, n: Self::V) -> Self::V {
        // 1.5 * 2^23 + 127: the sum carries the biased exponent in its low bits.
        let n = self.add(n, self.splat(12_583_039.0));
        cpu!([
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_castps_si256(n[0]))),
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_castps_si256(n[1]))),
        ])
    }
    #[inline(always)]
    fn frexp(self, a: Self::V) -> (Self::V, Self::V) {
        cpu!({
            let keep = _mm256_castsi256_ps(_mm256_set1_epi32(0x807f_ffff_u32 as i32));
            let half = _mm256_set1_ps(0.5);
            let bias = _mm256_set1_epi32(126);
            let m0 = _mm256_or_ps(_mm256_and_ps(a[0], keep), half);
            let m1 = _mm256_or_ps(_mm256_and_ps(a[1], keep), half);
            let e0 = _mm256_srli_epi32::<23>(_mm256_castps_si256(a[0]));
            let e1 = _mm256_srli_epi32::<23>(_mm256_castps_si256(a[1]));
            let e0 = _mm256_cvtepi32_ps(_mm256_sub_epi32(e0, bias));
            let e1 = _mm256_cvtepi32_ps(_mm256_sub_epi32(e1, bias));
            ([m0, m1], [e0, e1])
        })
    }

    inlined_methods! {
        sum(self, v: Self::V) -> f32 =
            self.tree(cpu!(_mm256_add_ps(v[0], v[1])), inlined!(|a, b| cpu!(_mm_add_ps(a, b))));
        product(self, v: Self::V) -> f32 =
            self.tree(cpu!(_mm256_mul_ps(v[0], v[1])), inlined!(|a, b| cpu!(_mm_mul_ps(a, b))));
        min_lane(self, v: Self::V) -> f32 =
            self.tree(self.min([v[0]; 2], [v[1]; 2])[0], inlined!(|a, b| self.min4(a, b)));
        max_lane(self, v: Self::V) -> f32 =
            self.tree(self.max([v[0]; 2], [v[1]; 2])[0], inlined!(|a, b| self.max4(a, b)));
    }
    #[inline(always)]
    fn transpose(self, rows: [Self::V; 16]) -> [Self::V; 16] {
        let mut out = rows;
        for (i, j) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let mut square = [rows[0][0]; 8];
            for k in 0..8 {
                square[k] = rows[8 * i + k][j];
            }
            let square = self.transpose8(square);
            for k in 0..8 {
                out[8 * j + k][i] = square[k];
            }
        }
        out
    }

    #[inline(always)]
    fn pow(self, a: Self::V, b: Self::V) -> Self::V {
        let (s, mut out) = (self.0, a);
        for i in 0..2 {
            out[i] = s.narrow(pow_of_f32(s, s.widen(a[i]), s.widen(b[i])));
        }
        out
    }

    super::elementary::fused_lanes!(f32);
}

impl Avx2F64 {
    /// The token, if the CPU supports the instructions.
    #[inline(never)]
    pub fn detect() -> Option<Avx2F64> {
        let has = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        has.then_some(Avx2F64(()))
    }

    x86::run!(Avx2F64, f64, "avx2,fma");

    /// Mask registers with the first `len` of 8 lanes set.
    #[inline(always)]
    fn first(self, len: usize) -> [__m256i; 2] {
        let m = self.mask_from_bits((1 << len) - 1);
        two!(_mm256_castpd_si256; m)
    }

    /// The reduction tree: lane `i` with lane `i + 4`, then `i + 2`, `i + 1`.
    #[inline(always)]
    fn tree(self, v: [__m256d; 2], f: impl Fn([__m256d; 2], [__m256d; 2]) -> [__m256d; 2]) -> f64 {
        let v = f([v[0]; 2], [v[1]; 2]);
        let upper = two!(_mm256_permute4x64_pd::<0b1110>; v);
        let v = f(v, upper);
        let odd = two!(_mm256_permute_pd::<1>; v);
        cpu!(_mm256_cvtsd_f64(f(v, odd)[0]))
    }

    inlined_methods! {
        /// Eight lanes of `f32` as `f64`.
        pub(super) widen(self, v: __m256) -> [__m256d; 2] = cpu!([
            _mm256_cvtps_pd(_mm256_castps256_ps128(v)),
            _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(v)),
        ]);

        /// The nearest `f32` in every lane.
        pub(super) narrow(self, v: [__m256d; 2]) -> __m256 =
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
    type V = [__m256d; 2];
    type M = [__m256d; 2];

    x86::algebra! {
        two: add _mm256_add_pd, sub _mm256_sub_pd, mul _mm256_mul_pd, div _mm256_div_pd, fma _mm256_fmadd_pd,
        sqrt _mm256_sqrt_pd, round _mm256_round_pd, min _mm256_min_pd, max _mm256_max_pd,
        compare _mm256_cmp_pd, xor _mm256_xor_pd, andnot _mm256_andnot_pd
    }
    inlined_methods! {
        splat(self, x: f64) -> Self::V = cpu!([_mm256_set1_pd(x); 2]);
        and(self, a: Self::M, b: Self::M) -> Self::M = two!(_mm256_and_pd; a, b);
        or(self, a: Self::M, b: Self::M) -> Self::M = two!(_mm256_or_pd; a, b);
        not(self, a: Self::M) -> Self::M = two!(_mm256_andnot_pd; a, self.mask_from_bits(u64::MAX));
        select(self, m: Self::M, a: Self::V, b: Self::V) -> Self::V = two!(_mm256_blendv_pd; b, a, m);
    }
    super::elementary::elementary!(f64);
}

impl Lanes<f64> for Avx2F64 {
    const KEEPS_ROWS: bool = false;
    memory!(
        f64, 8, _mm256_loadu_pd _mm256_storeu_pd _mm256_maskload_pd _mm256_maskstore_pd _mm256_castsi256_pd
    );
    x86::lanes!(two: min _mm256_min_pd, max _mm256_max_pd, and _mm256_and_pd, or _mm256_or_pd);

    inlined_methods! {
        any(self, m: Self::M) -> bool = cpu!(_mm256_movemask_pd(_mm256_or_pd(m[0], m[1])) != 0);
    }

    #[inline(always)]
    fn mask_from_bits(self, bits: u64) -> Self::M {
        let bits = cpu!([_mm256_set1_epi64x(bits.cast_signed()); 2]);
        let places = cpu!([_mm256_setr_epi64x(1, 2, 4, 8), _mm256_setr_epi64x(16, 32, 64, 128)]);
        let set = two!(_mm256_and_si256; bits, places);
        let set = two!(_mm256_cmpeq_epi64; set, places);
        two!(_mm256_castsi256_pd; set)
    }
    #[inline(always)]
    fn load_mask(self, m: &[bool]) -> Self::M {
        self.mask_from_bits(bits_of(m, 8))
    }

    #[inline(always)]
    fn exp2i(self, n: Self::V) -> Self::V {
        // 1.5 * 2^52 + 1023: the sum carries the biased exponent in its low bits.
        let n = self.add(n, self.splat(6_755_399_441_056_767.0));
        let n = two!(_mm256_castpd_si256; n);
        let n = two!(_mm256_slli_epi64::<52>; n);
        two!(_mm256_castsi256_pd; n)
    }
    #[inline(always)]
    fn frexp(self, a: Self::V) -> (Self::V, Self::V) {
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
        sum(self, v: Self::V) -> f64 = self.tree(v, inlined!(|a, b| self.add(a, b)));
        product(self, v: Self::V) -> f64 = self.tree(v, inlined!(|a, b| self.mul(a, b)));
        min_lane(self, v: Self::V) -> f64 = self.tree(v, inlined!(|a, b| self.min(a, b)));
        max_lane(self, v: Self::V) -> f64 = self.tree(v, inlined!(|a, b| self.max(a, b)));
        pow(self, a: Self::V, b: Self::V) -> Self::V = super::math::pow(self, a, b);
    }
    #[inline(always)]
    fn transpose(self, rows: [Self::V; F32_LANES]) -> [Self::V; F32_LANES] {
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
