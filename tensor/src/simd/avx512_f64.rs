//! Eight `f64` lanes in one AVX-512 register, masks in mask registers.

use super::avx2_f64::Avx2F64;
use super::elementary::bits_of;
use super::{F32_LANES, Kernel, Lanes};
use crate::formula::{Algebra, inlined_methods};
use std::arch::x86_64::*;

/// A token that proves that the CPU supports AVX-512 F, BW, DQ and VL, and [`Avx2F64`]; only
/// [`Avx512F64::detect`] creates one.
#[derive(Clone, Copy, Debug)]
pub struct Avx512F64(Avx2F64);

/// Wraps intrinsics that work on registers only: their only requirement is CPU support.
macro_rules! cpu {
    ($e:expr) => {
        // SAFETY: 1. A token exists only on a CPU with AVX-512 F, BW, DQ and VL (every use is
        // in a method of the token). 2. The intrinsics in `$e` touch no memory.
        unsafe { $e }
    };
}

impl Avx512F64 {
    /// The token, if the CPU supports the instructions.
    #[inline]
    pub fn detect() -> Option<Avx512F64> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        if has { Avx2F64::detect().map(Avx512F64) } else { None }
    }

    /// Runs `k` inside a function compiled for AVX-512.
    #[inline]
    pub fn run<K: Kernel<f64>>(self, k: K) -> K::Out {
        #[inline(never)]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        fn entry<K: Kernel<f64>>(s: Avx512F64, k: K) -> K::Out {
            k.run(s)
        }
        // SAFETY: 1. `self` proves that the CPU has all of these instructions.
        unsafe { entry(self, k) }
    }

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

    inlined_methods! {
        splat(self, x: f64) -> __m512d = cpu!(_mm512_set1_pd(x));

        add(self, a: __m512d, b: __m512d) -> __m512d = cpu!(_mm512_add_pd(a, b));
        sub(self, a: __m512d, b: __m512d) -> __m512d = cpu!(_mm512_sub_pd(a, b));
        mul(self, a: __m512d, b: __m512d) -> __m512d = cpu!(_mm512_mul_pd(a, b));
        div(self, a: __m512d, b: __m512d) -> __m512d = cpu!(_mm512_div_pd(a, b));
        fma(self, a: __m512d, b: __m512d, c: __m512d) -> __m512d = cpu!(_mm512_fmadd_pd(a, b, c));
        neg(self, a: __m512d) -> __m512d = cpu!(_mm512_xor_pd(a, _mm512_set1_pd(-0.0)));
        abs(self, a: __m512d) -> __m512d = cpu!(_mm512_andnot_pd(_mm512_set1_pd(-0.0), a));
        sqrt(self, a: __m512d) -> __m512d = cpu!(_mm512_sqrt_pd(a));
        round(self, a: __m512d) -> __m512d =
            cpu!(_mm512_roundscale_pd::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a));
        // The instruction returns `b` where either is NaN, so only a NaN in `a` has to be handled.
        min(self, a: __m512d, b: __m512d) -> __m512d =
            self.select(self.is_nan(a), a, cpu!(_mm512_min_pd(a, b)));
        max(self, a: __m512d, b: __m512d) -> __m512d =
            self.select(self.is_nan(a), a, cpu!(_mm512_max_pd(a, b)));

        lt(self, a: __m512d, b: __m512d) -> __mmask8 = cpu!(_mm512_cmp_pd_mask::<_CMP_LT_OQ>(a, b));
        le(self, a: __m512d, b: __m512d) -> __mmask8 = cpu!(_mm512_cmp_pd_mask::<_CMP_LE_OQ>(a, b));
        eq(self, a: __m512d, b: __m512d) -> __mmask8 = cpu!(_mm512_cmp_pd_mask::<_CMP_EQ_OQ>(a, b));
        is_nan(self, a: __m512d) -> __mmask8 = cpu!(_mm512_cmp_pd_mask::<_CMP_UNORD_Q>(a, a));
        and(self, a: __mmask8, b: __mmask8) -> __mmask8 = a & b;
        or(self, a: __mmask8, b: __mmask8) -> __mmask8 = a | b;
        not(self, a: __mmask8) -> __mmask8 = !a;
        select(self, m: __mmask8, a: __m512d, b: __m512d) -> __m512d =
            cpu!(_mm512_mask_blend_pd(m, b, a));
    }

    super::elementary::elementary!(f64);
}

impl Lanes<f64> for Avx512F64 {
    const N: usize = 8;
    const KEEPS_ROWS: bool = false;
    #[inline(always)]
    fn load(self, x: &[f64]) -> __m512d {
        let x = &x[..8];
        // SAFETY: 1. `self` proves AVX-512. 2. `x` has 8 elements. 3. The load asks for no
        // alignment.
        unsafe { _mm512_loadu_pd(x.as_ptr()) }
    }
    #[inline(always)]
    fn store(self, v: __m512d, out: &mut [f64]) {
        let out = &mut out[..8];
        // SAFETY: 1. `self` proves AVX-512. 2. `out` has 8 elements. 3. The store asks for no
        // alignment.
        unsafe { _mm512_storeu_pd(out.as_mut_ptr(), v) }
    }
    #[inline(always)]
    fn load_or(self, x: &[f64], fill: f64) -> __m512d {
        assert!(x.len() <= 8, "load_or: {} elements for 8 lanes", x.len());
        // SAFETY: 1. `self` proves AVX-512. 2. The mask names the first `x.len()` lanes only,
        // and lanes outside the mask are not accessed.
        unsafe { _mm512_mask_loadu_pd(self.splat(fill), self.first(x.len()), x.as_ptr()) }
    }
    #[inline(always)]
    fn store_part(self, v: __m512d, out: &mut [f64]) {
        assert!(out.len() <= 8, "store_part: {} elements for 8 lanes", out.len());
        // SAFETY: 1. `self` proves AVX-512. 2. The mask names the first `out.len()` lanes only,
        // and lanes outside the mask are not accessed.
        unsafe { _mm512_mask_storeu_pd(out.as_mut_ptr(), self.first(out.len()), v) }
    }

    inlined_methods! {
        copysign(self, a: __m512d, sign: __m512d) -> __m512d =
            cpu!(_mm512_or_pd(self.abs(a), _mm512_and_pd(sign, _mm512_set1_pd(-0.0))));
        clamp(self, x: __m512d, lo: __m512d, hi: __m512d) -> __m512d =
            cpu!(_mm512_max_pd(lo, _mm512_min_pd(hi, x)));
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
