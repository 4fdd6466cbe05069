//! Sixteen `f32` lanes in one AVX-512 register, masks in mask registers.

use super::avx2::Avx2;
use super::avx512_f64::Avx512F64;
use super::math::pow_of_f32;
use super::{Kernel, Lanes};
use crate::formula::{Algebra, inlined_methods};
use std::arch::x86_64::*;

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

impl Avx512 {
    /// The token, if the CPU supports the instructions.
    #[inline]
    pub fn detect() -> Option<Avx512> {
        Some(Avx512(Avx2::detect()?, Avx512F64::detect()?))
    }

    /// Runs `k` inside a function compiled for AVX-512.
    #[inline]
    pub fn run<K: Kernel<f32>>(self, k: K) -> K::Out {
        #[inline(never)]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        fn entry<K: Kernel<f32>>(s: Avx512, k: K) -> K::Out {
            k.run(s)
        }
        // SAFETY: 1. `self` proves that the CPU has all of these instructions.
        unsafe { entry(self, k) }
    }

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

    inlined_methods! {
        splat(self, x: f32) -> __m512 = cpu!(_mm512_set1_ps(x));

        add(self, a: __m512, b: __m512) -> __m512 = cpu!(_mm512_add_ps(a, b));
        sub(self, a: __m512, b: __m512) -> __m512 = cpu!(_mm512_sub_ps(a, b));
        mul(self, a: __m512, b: __m512) -> __m512 = cpu!(_mm512_mul_ps(a, b));
        div(self, a: __m512, b: __m512) -> __m512 = cpu!(_mm512_div_ps(a, b));
        fma(self, a: __m512, b: __m512, c: __m512) -> __m512 = cpu!(_mm512_fmadd_ps(a, b, c));
        neg(self, a: __m512) -> __m512 = cpu!(_mm512_xor_ps(a, _mm512_set1_ps(-0.0)));
        abs(self, a: __m512) -> __m512 = cpu!(_mm512_andnot_ps(_mm512_set1_ps(-0.0), a));
        sqrt(self, a: __m512) -> __m512 = cpu!(_mm512_sqrt_ps(a));
    }

    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        cpu!(_mm512_roundscale_ps::<NEAREST>(a))
    }

    inlined_methods! {
        // The instruction returns `b` where either is NaN, so only a NaN in `a` has to be handled.
        min(self, a: __m512, b: __m512) -> __m512 =
            self.select(self.is_nan(a), a, cpu!(_mm512_min_ps(a, b)));
        max(self, a: __m512, b: __m512) -> __m512 =
            self.select(self.is_nan(a), a, cpu!(_mm512_max_ps(a, b)));

        lt(self, a: __m512, b: __m512) -> __mmask16 = cpu!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b));
        le(self, a: __m512, b: __m512) -> __mmask16 = cpu!(_mm512_cmp_ps_mask::<_CMP_LE_OQ>(a, b));
        eq(self, a: __m512, b: __m512) -> __mmask16 = cpu!(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b));
        is_nan(self, a: __m512) -> __mmask16 = cpu!(_mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a));
        and(self, a: __mmask16, b: __mmask16) -> __mmask16 = a & b;
        or(self, a: __mmask16, b: __mmask16) -> __mmask16 = a | b;
        not(self, a: __mmask16) -> __mmask16 = !a;
        select(self, m: __mmask16, a: __m512, b: __m512) -> __m512 =
            cpu!(_mm512_mask_blend_ps(m, b, a));
    }

    super::elementary::elementary!(f32);
}

impl Lanes<f32> for Avx512 {
    const N: usize = 16;
    const KEEPS_ROWS: bool = true;
    #[inline(always)]
    fn load(self, x: &[f32]) -> __m512 {
        let x = &x[..16];
        // SAFETY: 1. `self` proves AVX-512. 2. `x` has 16 elements. 3. The load asks for no
        // alignment.
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    }
    #[inline(always)]
    fn store(self, v: __m512, out: &mut [f32]) {
        let out = &mut out[..16];
        // SAFETY: 1. `self` proves AVX-512. 2. `out` has 16 elements. 3. The store asks for no
        // alignment.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), v) }
    }
    #[inline(always)]
    fn load_or(self, x: &[f32], fill: f32) -> __m512 {
        assert!(x.len() <= 16, "load_or: {} elements for 16 lanes", x.len());
        // SAFETY: 1. `self` proves AVX-512. 2. The mask names the first `x.len()` lanes only,
        // and lanes outside the mask are not accessed.
        unsafe { _mm512_mask_loadu_ps(self.splat(fill), self.first(x.len()), x.as_ptr()) }
    }
    #[inline(always)]
    fn store_part(self, v: __m512, out: &mut [f32]) {
        assert!(out.len() <= 16, "store_part: {} elements for 16 lanes", out.len());
        // SAFETY: 1. `self` proves AVX-512. 2. The mask names the first `out.len()` lanes only,
        // and lanes outside the mask are not accessed.
        unsafe { _mm512_mask_storeu_ps(out.as_mut_ptr(), self.first(out.len()), v) }
    }

    inlined_methods! {
        copysign(self, a: __m512, sign: __m512) -> __m512 =
            cpu!(_mm512_or_ps(self.abs(a), _mm512_and_ps(sign, _mm512_set1_ps(-0.0))));
        clamp(self, x: __m512, lo: __m512, hi: __m512) -> __m512 =
            cpu!(_mm512_max_ps(lo, _mm512_min_ps(hi, x)));
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
