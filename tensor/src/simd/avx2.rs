//! Sixteen `f32` lanes in two AVX registers.

use super::avx2_f64::Avx2F64;
use super::math::pow_of_f32;
use super::{Kernel, Lanes};
use crate::formula::{Algebra, inlined_methods};
use std::arch::x86_64::*;

/// [`Avx2F64`] for vectors of `f32`.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(Avx2F64);

type V = [__m256; 2];
type M = [__m256; 2];

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

impl Avx2 {
    /// The token, if the CPU supports the instructions.
    #[inline]
    pub fn detect() -> Option<Avx2> {
        Avx2F64::detect().map(Avx2)
    }

    /// Runs `k` inside a function compiled for AVX2 and FMA.
    #[inline]
    pub fn run<K: Kernel<f32>>(self, k: K) -> K::Out {
        #[inline(never)]
        #[target_feature(enable = "avx2,fma")]
        fn entry<K: Kernel<f32>>(s: Avx2, k: K) -> K::Out {
            k.run(s)
        }
        // SAFETY: 1. `self` proves that the CPU has AVX2 and FMA.
        unsafe { entry(self, k) }
    }

    #[inline(always)]
    fn sign_bits(self) -> __m256 {
        cpu!(_mm256_set1_ps(-0.0))
    }

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

    inlined_methods! {
        /// Lanes `0..4` and `4..8`.
        halves(self, v: __m256) -> (__m128, __m128) =
            cpu!((_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v)));

        /// Lanes 2 and 3, moved to lanes 0 and 1.
        by_two(self, v: __m128) -> __m128 = cpu!(_mm_movehl_ps(v, v));

        /// Lane 1, moved to lane 0.
        by_one(self, v: __m128) -> __m128 = cpu!(_mm_shuffle_ps::<1>(v, v));
    }
}

impl Algebra<f32> for Avx2 {
    type V = V;
    type M = M;

    inlined_methods! {
        splat(self, x: f32) -> V = cpu!([_mm256_set1_ps(x); 2]);

        add(self, a: V, b: V) -> V = two!(_mm256_add_ps; a, b);
        sub(self, a: V, b: V) -> V = two!(_mm256_sub_ps; a, b);
        mul(self, a: V, b: V) -> V = two!(_mm256_mul_ps; a, b);
        div(self, a: V, b: V) -> V = two!(_mm256_div_ps; a, b);
        fma(self, a: V, b: V, c: V) -> V = two!(_mm256_fmadd_ps; a, b, c);
        sqrt(self, a: V) -> V = two!(_mm256_sqrt_ps; a);
    }

    #[inline(always)]
    fn neg(self, a: V) -> V {
        let s = self.sign_bits();
        cpu!([_mm256_xor_ps(a[0], s), _mm256_xor_ps(a[1], s)])
    }
    #[inline(always)]
    fn abs(self, a: V) -> V {
        let s = self.sign_bits();
        cpu!([_mm256_andnot_ps(s, a[0]), _mm256_andnot_ps(s, a[1])])
    }
    #[inline(always)]
    fn round(self, a: V) -> V {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        two!(_mm256_round_ps::<NEAREST>; a)
    }
    // The instruction returns `b` where either is NaN, so only a NaN in `a` has to be handled.
    #[inline(always)]
    fn min(self, a: V, b: V) -> V {
        let m = two!(_mm256_min_ps; a, b);
        self.select(self.is_nan(a), a, m)
    }
    #[inline(always)]
    fn max(self, a: V, b: V) -> V {
        let m = two!(_mm256_max_ps; a, b);
        self.select(self.is_nan(a), a, m)
    }

    inlined_methods! {
        lt(self, a: V, b: V) -> M = two!(_mm256_cmp_ps::<_CMP_LT_OQ>; a, b);
        le(self, a: V, b: V) -> M = two!(_mm256_cmp_ps::<_CMP_LE_OQ>; a, b);
        eq(self, a: V, b: V) -> M = two!(_mm256_cmp_ps::<_CMP_EQ_OQ>; a, b);
        is_nan(self, a: V) -> M = two!(_mm256_cmp_ps::<_CMP_UNORD_Q>; a, a);
        and(self, a: M, b: M) -> M = two!(_mm256_and_ps; a, b);
        or(self, a: M, b: M) -> M = two!(_mm256_or_ps; a, b);
        select(self, m: M, a: V, b: V) -> V = two!(_mm256_blendv_ps; b, a, m);
    }

    #[inline(always)]
    fn not(self, a: M) -> M {
        let ones = cpu!(_mm256_castsi256_ps(_mm256_set1_epi32(-1)));
        cpu!([_mm256_xor_ps(a[0], ones), _mm256_xor_ps(a[1], ones)])
    }

    super::elementary::elementary!(f32);
}

impl Lanes<f32> for Avx2 {
    const N: usize = 16;
    const KEEPS_ROWS: bool = true;
    #[inline(always)]
    fn load(self, x: &[f32]) -> V {
        let x = &x[..16];
        // SAFETY: 1. `self` proves AVX2. 2. `x` has 16 elements: both halves are in bounds.
        // 3. The loads require no alignment.
        unsafe { [_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8))] }
    }
    #[inline(always)]
    fn store(self, v: V, out: &mut [f32]) {
        let out = &mut out[..16];
        // SAFETY: 1. `self` proves AVX2. 2. `out` has 16 elements: both halves are in bounds.
        // 3. The stores require no alignment.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr(), v[0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(8), v[1]);
        }
    }
    #[inline(always)]
    fn load_or(self, x: &[f32], fill: f32) -> V {
        assert!(x.len() <= 16, "load_or: {} elements for 16 lanes", x.len());
        let m = self.first(x.len());
        let p = x.as_ptr();
        // SAFETY: 1. `self` proves AVX2. 2. The masks name the first `x.len()` lanes only, and
        // lanes outside the mask are not accessed. 3. `wrapping_add` may leave the slice,
        // because then its mask is empty.
        let v =
            unsafe { [_mm256_maskload_ps(p, m[0]), _mm256_maskload_ps(p.wrapping_add(8), m[1])] };
        let m = two!(_mm256_castsi256_ps; m);
        self.select(m, v, self.splat(fill))
    }
    #[inline(always)]
    fn store_part(self, v: V, out: &mut [f32]) {
        assert!(out.len() <= 16, "store_part: {} elements for 16 lanes", out.len());
        let m = self.first(out.len());
        let p = out.as_mut_ptr();
        // SAFETY: 1. `self` proves AVX2. 2. The masks name the first `out.len()` lanes only, and
        // lanes outside the mask are not accessed. 3. `wrapping_add` may leave the slice,
        // because then its mask is empty.
        unsafe {
            _mm256_maskstore_ps(p, m[0], v[0]);
            _mm256_maskstore_ps(p.wrapping_add(8), m[1], v[1]);
        }
    }
    #[inline(always)]
    fn copysign(self, a: V, sign: V) -> V {
        let s = self.sign_bits();
        let a = self.abs(a);
        cpu!([
            _mm256_or_ps(a[0], _mm256_and_ps(sign[0], s)),
            _mm256_or_ps(a[1], _mm256_and_ps(sign[1], s)),
        ])
    }
    #[inline(always)]
    fn clamp(self, x: V, lo: V, hi: V) -> V {
        cpu!([
            _mm256_max_ps(lo[0], _mm256_min_ps(hi[0], x[0])),
            _mm256_max_ps(lo[1], _mm256_min_ps(hi[1], x[1])),
        ])
    }
    #[inline(always)]
    fn any(self, m: M) -> bool {
        cpu!(_mm256_movemask_ps(_mm256_or_ps(m[0], m[1])) != 0)
    }
    #[inline(always)]
    fn mask_from_bits(self, bits: u64) -> M {
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
    fn load_mask(self, m: &[bool]) -> M {
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
    fn exp2i(self, n: V) -> V {
        // 1.5 * 2^23 + 127: the sum carries the biased exponent in its low bits.
        let n = self.add(n, self.splat(12_583_039.0));
        cpu!([
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_castps_si256(n[0]))),
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_castps_si256(n[1]))),
        ])
    }
    #[inline(always)]
    fn ldexp(self, a: V, n: V) -> V {
        let half = self.round(self.mul(n, self.splat(0.5)));
        let rest = self.sub(n, half);
        self.mul(self.mul(a, self.exp2i(half)), self.exp2i(rest))
    }
    #[inline(always)]
    fn frexp(self, a: V) -> (V, V) {
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

    #[inline(always)]
    fn sum(self, v: V) -> f32 {
        let (a, b) = self.halves(cpu!(_mm256_add_ps(v[0], v[1])));
        let x = cpu!(_mm_add_ps(a, b));
        let x = cpu!(_mm_add_ps(x, self.by_two(x)));
        cpu!(_mm_cvtss_f32(_mm_add_ps(x, self.by_one(x))))
    }
    #[inline(always)]
    fn product(self, v: V) -> f32 {
        let (a, b) = self.halves(cpu!(_mm256_mul_ps(v[0], v[1])));
        let x = cpu!(_mm_mul_ps(a, b));
        let x = cpu!(_mm_mul_ps(x, self.by_two(x)));
        cpu!(_mm_cvtss_f32(_mm_mul_ps(x, self.by_one(x))))
    }
    #[inline(always)]
    fn min_lane(self, v: V) -> f32 {
        let (a, b) = self.halves(self.min([v[0]; 2], [v[1]; 2])[0]);
        let x = self.min4(a, b);
        let x = self.min4(x, self.by_two(x));
        cpu!(_mm_cvtss_f32(self.min4(x, self.by_one(x))))
    }
    #[inline(always)]
    fn max_lane(self, v: V) -> f32 {
        let (a, b) = self.halves(self.max([v[0]; 2], [v[1]; 2])[0]);
        let x = self.max4(a, b);
        let x = self.max4(x, self.by_two(x));
        cpu!(_mm_cvtss_f32(self.max4(x, self.by_one(x))))
    }
    #[inline(always)]
    fn transpose(self, rows: [V; 16]) -> [V; 16] {
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
    fn pow(self, a: V, b: V) -> V {
        let (s, mut out) = (self.0, a);
        for i in 0..2 {
            out[i] = s.narrow(pow_of_f32(s, s.widen(a[i]), s.widen(b[i])));
        }
        out
    }

    super::elementary::fused_lanes!(f32);
}
