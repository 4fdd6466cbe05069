//! Sixteen `f32` or eight `f64` lanes in one AVX-512 register, masks in mask registers.

use super::avx2::{Avx2, Avx2F64};
use super::elementary::bits_of;
use super::math::pow_of_f32;
use super::{F32_LANES, Kernel, Lanes, x86};
use crate::formula::{Algebra, inlined_methods};
use std::arch::x86_64::*;

/// A token that proves that the CPU supports AVX-512 F, BW, DQ and VL, and [`Avx2F64`]; only
/// [`Avx512F64::detect`] creates one.
#[derive(Clone, Copy, Debug)]
pub struct Avx512F64(Avx2F64);

/// [`Avx512F64`] for vectors of `f32`, and [`Avx2`] for their halves.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(Avx2, Avx512F64);

/// Wraps intrinsics that work on registers only: their only requirement is CPU support.
macro_rules! cpu {
    ($e:expr) => {
        // SAFETY: 1. A token exists only on a CPU with AVX-512 F, BW, DQ and VL (every use is
        // in a method of the token). 2. The intrinsics in `$e` touch no memory.
        unsafe { $e }
    };
}

macro_rules! one {
    ($f:path; $($x:expr),+) => { cpu!($f($($x),+)) };
}

/// Loads and stores of `$n` elements, or of the first ones, which are those of a mask.
macro_rules! memory {
    ($t:ident, $n:literal, $load:ident $store:ident $mask_load:ident $mask_store:ident) => {
        const N: usize = $n;
        #[inline(always)]
        fn load(self, x: &[$t]) -> Self::V {
            let x = &x[..$n];
            // SAFETY: 1. `self` proves AVX-512. 2. `x` has `$n` elements. 3. The load asks for no
            // alignment.
            unsafe { $load(x.as_ptr()) }
        }
        #[inline(always)]
        fn store(self, v: Self::V, out: &mut [$t]) {
            let out = &mut out[..$n];
            // SAFETY: 1. `self` proves AVX-512. 2. `out` has `$n` elements. 3. The store asks for
            // no alignment.
            unsafe { $store(out.as_mut_ptr(), v) }
        }
        #[inline(always)]
        fn load_or(self, x: &[$t], fill: $t) -> Self::V {
            assert!(x.len() <= $n, "load_or: {} elements for {} lanes", x.len(), $n);
            // SAFETY: 1. `self` proves AVX-512. 2. The mask names the first `x.len()` lanes only,
            // and lanes outside the mask are not accessed.
            unsafe { $mask_load(self.splat(fill), self.first(x.len()), x.as_ptr()) }
        }
        #[inline(always)]
        fn store_part(self, v: Self::V, out: &mut [$t]) {
            assert!(out.len() <= $n, "store_part: {} elements for {} lanes", out.len(), $n);
            // SAFETY: 1. `self` proves AVX-512. 2. The mask names the first `out.len()` lanes
            // only, and lanes outside the mask are not accessed.
            unsafe { $mask_store(out.as_mut_ptr(), self.first(out.len()), v) }
        }
    };
}

impl Avx512 {
    /// The token, if the CPU supports the instructions.
    #[inline(never)]
    pub fn detect() -> Option<Avx512> {
        Some(Avx512(Avx2::detect()?, Avx512F64::detect()?))
    }

    x86::run!(Avx512, f32, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma");

    inlined_methods! {
        /// Mask of the first `len` lanes; `len` is at most 16.
        first(self, len: usize) -> __mmask16 = ((1u32 << len) - 1) as __mmask16;

        /// The same 16 lanes as two AVX registers.
        halves(self, v: __m512) -> [__m256; 2] =
            cpu!([_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)]);
    }
}

impl Algebra<f32> for Avx512 {
    type V = __m512;
    type M = __mmask16;

    x86::algebra! {
        one: add _mm512_add_ps, sub _mm512_sub_ps, mul _mm512_mul_ps, div _mm512_div_ps, fma _mm512_fmadd_ps,
        sqrt _mm512_sqrt_ps, round _mm512_roundscale_ps, min _mm512_min_ps, max _mm512_max_ps,
        compare _mm512_cmp_ps_mask, xor _mm512_xor_ps, andnot _mm512_andnot_ps
    }
    inlined_methods! {
        splat(self, x: f32) -> __m512 = cpu!(_mm512_set1_ps(x));
        and(self, a: __mmask16, b: __mmask16) -> __mmask16 = a & b;
        or(self, a: __mmask16, b: __mmask16) -> __mmask16 = a | b;
        not(self, a: __mmask16) -> __mmask16 = !a;
        select(self, m: __mmask16, a: __m512, b: __m512) -> __m512 =
            cpu!(_mm512_mask_blend_ps(m, b, a));
    }
    super::elementary::elementary!(f32);
}

impl Lanes<f32> for Avx512 {
    const KEEPS_ROWS: bool = true;
    memory!(f32, 16, _mm512_loadu_ps _mm512_storeu_ps _mm512_mask_loadu_ps _mm512_mask_storeu_ps);
    x86::lanes!(one: min _mm512_min_ps, max _mm512_max_ps, and _mm512_and_ps, or _mm512_or_ps);

    inlined_methods! {
        any(self, m: __mmask16) -> bool = m != 0;
        mask_from_bits(self, bits: u64) -> __mmask16 = bits as __mmask16;
    }

    #[inline(always)]
    fn load_mask(self, m: &[bool]) -> __mmask16 {
        assert!(m.len() <= 16, "load_mask: {} elements for 16 lanes", m.len());
        // SAFETY: 1. `self` proves AVX-512 BW and VL. 2. The mask names the first `m.len()`
        // bytes only, and bytes outside the mask are not accessed.
        let b = unsafe { _mm_maskz_loadu_epi8(self.first(m.len()), m.as_ptr().cast()) };
        cpu!(_mm_test_epi8_mask(b, b))
    }

    #[inline(always)]
    fn exp2i(self, n: __m512) -> __m512 {
        // 1.5 * 2^23 + 127: the sum carries the biased exponent in its low bits.
        let n = self.add(n, self.splat(12_583_039.0));
        cpu!(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_castps_si512(n))))
    }
    #[inline(always)]
    fn ldexp(self, a: __m512, n: __m512) -> __m512 {
        cpu!(_mm512_scalef_ps(a, n))
    }
    #[inline(always)]
    fn frexp(self, a: __m512) -> (__m512, __m512) {
        cpu!({
            let bits = _mm512_castps_si512(a);
            let m = _mm512_and_si512(bits, _mm512_set1_epi32(0x807f_ffff_u32 as i32));
            let m = _mm512_or_si512(m, _mm512_set1_epi32(0x3f00_0000));
            let e = _mm512_sub_epi32(_mm512_srli_epi32::<23>(bits), _mm512_set1_epi32(126));
            (_mm512_castsi512_ps(m), _mm512_cvtepi32_ps(e))
        })
    }

    inlined_methods! {
        // The first step of the reduction tree adds register halves; the rest is that of AVX2.
        sum(self, v: __m512) -> f32 = self.0.sum(self.halves(v));
        product(self, v: __m512) -> f32 = self.0.product(self.halves(v));
        min_lane(self, v: __m512) -> f32 = self.0.min_lane(self.halves(v));
        max_lane(self, v: __m512) -> f32 = self.0.max_lane(self.halves(v));
    }

    #[inline(always)]
    fn transpose(self, rows: [__m512; 16]) -> [__m512; 16] {
        let mut out = rows;
        // Four rows at a time: vector `c` holds columns c, c + 4, c + 8, c + 12 of these rows.
        for i in (0..16).step_by(4) {
            let [a, b, c, d] = [rows[i], rows[i + 1], rows[i + 2], rows[i + 3]];
            cpu!({
                let pairs = |x, y| {
                    let (low, high) = (_mm512_unpacklo_ps(x, y), _mm512_unpackhi_ps(x, y));
                    (_mm512_castps_pd(low), _mm512_castps_pd(high))
                };
                let ((ab_low, ab_high), (cd_low, cd_high)) = (pairs(a, b), pairs(c, d));
                out[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab_low, cd_low));
                out[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab_low, cd_low));
                out[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab_high, cd_high));
                out[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab_high, cd_high));
            });
        }
        // Then the quarters of vectors c, c + 4, c + 8, c + 12 form a 4 x 4 matrix to transpose.
        for c in 0..4 {
            let quarters = self.1.transpose_quarters(cpu!([
                _mm512_castps_pd(out[c]),
                _mm512_castps_pd(out[c + 4]),
                _mm512_castps_pd(out[c + 8]),
                _mm512_castps_pd(out[c + 12]),
            ]));
            for k in 0..4 {
                out[c + 4 * k] = cpu!(_mm512_castpd_ps(quarters[k]));
            }
        }
        out
    }

    #[inline(always)]
    fn pow(self, a: __m512, b: __m512) -> __m512 {
        let (s, mut out) = (self.1, self.halves(a));
        let b = self.halves(b);
        for i in 0..2 {
            out[i] = cpu!(_mm512_cvtpd_ps(pow_of_f32(
                s,
                _mm512_cvtps_pd(out[i]),
                _mm512_cvtps_pd(b[i])
            )));
        }
        cpu!(_mm512_insertf32x8::<1>(_mm512_castps256_ps512(out[0]), out[1]))
    }

    super::elementary::fused_lanes!(f32);
}

impl Avx512F64 {
    /// The token, if the CPU supports the instructions.
    #[inline(never)]
    pub fn detect() -> Option<Avx512F64> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        if has { Avx2F64::detect().map(Avx512F64) } else { None }
    }

    x86::run!(Avx512F64, f64, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma");

    inlined_methods! {
        /// Mask of the first `len` lanes; `len` is at most 8.
        first(self, len: usize) -> __mmask8 = ((1u32 << len) - 1) as __mmask8;

        /// The same 8 lanes as two AVX registers.
        halves(self, v: __m512d) -> [__m256d; 2] =
            cpu!([_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd::<1>(v)]);
    }

    /// The transpose of a 4 x 4 matrix of quarters of registers.
    #[inline(always)]
    pub(super) fn transpose_quarters(self, [x, y, z, w]: [__m512d; 4]) -> [__m512d; 4] {
        cpu!({
            let even = (_mm512_shuffle_f64x2::<0x88>(x, y), _mm512_shuffle_f64x2::<0x88>(z, w));
            let odd = (_mm512_shuffle_f64x2::<0xdd>(x, y), _mm512_shuffle_f64x2::<0xdd>(z, w));
            [
                _mm512_shuffle_f64x2::<0x88>(even.0, even.1),
                _mm512_shuffle_f64x2::<0x88>(odd.0, odd.1),
                _mm512_shuffle_f64x2::<0xdd>(even.0, even.1),
                _mm512_shuffle_f64x2::<0xdd>(odd.0, odd.1),
            ]
        })
    }
}

impl Algebra<f64> for Avx512F64 {
    type V = __m512d;
    type M = __mmask8;

    x86::algebra! {
        one: add _mm512_add_pd, sub _mm512_sub_pd, mul _mm512_mul_pd, div _mm512_div_pd, fma _mm512_fmadd_pd,
        sqrt _mm512_sqrt_pd, round _mm512_roundscale_pd, min _mm512_min_pd, max _mm512_max_pd,
        compare _mm512_cmp_pd_mask, xor _mm512_xor_pd, andnot _mm512_andnot_pd
    }
    inlined_methods! {
        splat(self, x: f64) -> __m512d = cpu!(_mm512_set1_pd(x));
        and(self, a: __mmask8, b: __mmask8) -> __mmask8 = a & b;
        or(self, a: __mmask8, b: __mmask8) -> __mmask8 = a | b;
        not(self, a: __mmask8) -> __mmask8 = !a;
        select(self, m: __mmask8, a: __m512d, b: __m512d) -> __m512d =
            cpu!(_mm512_mask_blend_pd(m, b, a));
    }
    super::elementary::elementary!(f64);
}

impl Lanes<f64> for Avx512F64 {
    const KEEPS_ROWS: bool = false;
    memory!(f64, 8, _mm512_loadu_pd _mm512_storeu_pd _mm512_mask_loadu_pd _mm512_mask_storeu_pd);
    x86::lanes!(one: min _mm512_min_pd, max _mm512_max_pd, and _mm512_and_pd, or _mm512_or_pd);

    inlined_methods! {
        any(self, m: __mmask8) -> bool = m != 0;
        mask_from_bits(self, bits: u64) -> __mmask8 = bits as __mmask8;
        load_mask(self, m: &[bool]) -> __mmask8 = self.mask_from_bits(bits_of(m, 8));

        // 1.5 * 2^52 + 1023: the sum carries the biased exponent in its low bits.
        exp2i(self, n: __m512d) -> __m512d = cpu!({
            let n = _mm512_add_pd(n, _mm512_set1_pd(6_755_399_441_056_767.0));
            _mm512_castsi512_pd(_mm512_slli_epi64::<52>(_mm512_castpd_si512(n)))
        });
        ldexp(self, a: __m512d, n: __m512d) -> __m512d = cpu!(_mm512_scalef_pd(a, n));
    }

    #[inline(always)]
    fn frexp(self, a: __m512d) -> (__m512d, __m512d) {
        cpu!({
            let bits = _mm512_castpd_si512(a);
            let m = _mm512_and_si512(bits, _mm512_set1_epi64(0x800f_ffff_ffff_ffff_u64 as i64));
            let m = _mm512_or_si512(m, _mm512_set1_epi64(0x3fe0_0000_0000_0000));
            let e = _mm512_sub_epi64(_mm512_srli_epi64::<52>(bits), _mm512_set1_epi64(1022));
            (_mm512_castsi512_pd(m), _mm512_cvtepi64_pd(e))
        })
    }

    inlined_methods! {
        // The first step of the reduction tree adds register halves; the rest is that of AVX2.
        sum(self, v: __m512d) -> f64 = self.0.sum(self.halves(v));
        product(self, v: __m512d) -> f64 = self.0.product(self.halves(v));
        min_lane(self, v: __m512d) -> f64 = self.0.min_lane(self.halves(v));
        max_lane(self, v: __m512d) -> f64 = self.0.max_lane(self.halves(v));
        pow(self, a: __m512d, b: __m512d) -> __m512d = super::math::pow(self, a, b);
    }

    #[inline(always)]
    fn transpose(self, rows: [__m512d; F32_LANES]) -> [__m512d; F32_LANES] {
        let mut out = rows;
        // Two rows at a time: quarters of a vector hold pairs of all even or of all odd columns.
        for i in (0..8).step_by(2) {
            let (a, b) = (rows[i], rows[i + 1]);
            out[i] = cpu!(_mm512_unpacklo_pd(a, b));
            out[i + 1] = cpu!(_mm512_unpackhi_pd(a, b));
        }
        for c in 0..2 {
            let quarters = [out[c], out[c + 2], out[c + 4], out[c + 6]];
            let quarters = self.transpose_quarters(quarters);
            for k in 0..4 {
                out[c + 2 * k] = quarters[k];
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
