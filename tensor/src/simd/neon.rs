//! Sixteen `f32` lanes in four NEON registers.

use super::math::pow_of_f32;
use super::one::One;
use super::{Kernel, Lanes};
use crate::formula::{Algebra, inlined_methods};
use std::arch::aarch64::*;

/// A token that proves that the CPU supports NEON; only [`Neon::detect`] creates one.
#[derive(Clone, Copy, Debug)]
pub struct Neon(());

type V = [float32x4_t; 4];
type M = [uint32x4_t; 4];

/// Wraps intrinsics that work on registers only: their only requirement is CPU support.
macro_rules! cpu {
    ($e:expr) => {
        // SAFETY: 1. A token exists only on a CPU with NEON (every use is in a method of the
        // token). 2. The intrinsics in `$e` touch no memory.
        unsafe { $e }
    };
}

/// The same intrinsic on each of the four registers.
macro_rules! four {
    ($f:path; $a:expr) => {
        cpu!([$f($a[0]), $f($a[1]), $f($a[2]), $f($a[3])])
    };
    ($f:path; $a:expr, $b:expr) => {
        cpu!([$f($a[0], $b[0]), $f($a[1], $b[1]), $f($a[2], $b[2]), $f($a[3], $b[3])])
    };
    ($f:path; $a:expr, $b:expr, $c:expr) => {
        cpu!([
            $f($a[0], $b[0], $c[0]),
            $f($a[1], $b[1], $c[1]),
            $f($a[2], $b[2], $c[2]),
            $f($a[3], $b[3], $c[3]),
        ])
    };
}

impl Neon {
    /// The token, if the CPU supports the instructions.
    #[inline]
    pub fn detect() -> Option<Neon> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Neon(()))
    }

    /// Runs `k` inside a function compiled for NEON.
    #[inline]
    pub fn run<K: Kernel<f32>>(self, k: K) -> K::Out {
        #[inline(never)]
        #[target_feature(enable = "neon")]
        fn entry<K: Kernel<f32>>(s: Neon, k: K) -> K::Out {
            k.run(s)
        }
        // SAFETY: 1. `self` proves that the CPU has NEON.
        unsafe { entry(self, k) }
    }

    inlined_methods! {
        // Comparisons instead of the instructions for minimum and maximum, so that the result for
        // zeros of both signs is `b`, as on x86.
        min4(self, a: float32x4_t, b: float32x4_t) -> float32x4_t =
            cpu!(vbslq_f32(vorrq_u32(vcltq_f32(a, b), vmvnq_u32(vceqq_f32(a, a))), a, b));

        max4(self, a: float32x4_t, b: float32x4_t) -> float32x4_t =
            cpu!(vbslq_f32(vorrq_u32(vcltq_f32(b, a), vmvnq_u32(vceqq_f32(a, a))), a, b));

        /// Lanes 2, 3, 0, 1.
        by_two(self, v: float32x4_t) -> float32x4_t = cpu!(vextq_f32::<2>(v, v));

        /// Lanes 1, 2, 3, 0.
        by_one(self, v: float32x4_t) -> float32x4_t = cpu!(vextq_f32::<1>(v, v));

        lane_zero(self, v: float32x4_t) -> f32 = cpu!(vgetq_lane_f32::<0>(v));
    }
}

impl Algebra<f32> for Neon {
    type V = V;
    type M = M;

    inlined_methods! {
        splat(self, x: f32) -> V = cpu!([vdupq_n_f32(x); 4]);

        add(self, a: V, b: V) -> V = four!(vaddq_f32; a, b);
        sub(self, a: V, b: V) -> V = four!(vsubq_f32; a, b);
        mul(self, a: V, b: V) -> V = four!(vmulq_f32; a, b);
        div(self, a: V, b: V) -> V = four!(vdivq_f32; a, b);
    }

    #[inline(always)]
    fn fma(self, a: V, b: V, c: V) -> V {
        // The addend comes first in this instruction.
        four!(vfmaq_f32; c, a, b)
    }

    inlined_methods! {
        neg(self, a: V) -> V = four!(vnegq_f32; a);
        abs(self, a: V) -> V = four!(vabsq_f32; a);
        sqrt(self, a: V) -> V = four!(vsqrtq_f32; a);
        round(self, a: V) -> V = four!(vrndnq_f32; a);

        lt(self, a: V, b: V) -> M = four!(vcltq_f32; a, b);
        le(self, a: V, b: V) -> M = four!(vcleq_f32; a, b);
        eq(self, a: V, b: V) -> M = four!(vceqq_f32; a, b);
        is_nan(self, a: V) -> M = self.not(self.eq(a, a));
        and(self, a: M, b: M) -> M = four!(vandq_u32; a, b);
        or(self, a: M, b: M) -> M = four!(vorrq_u32; a, b);
        not(self, a: M) -> M = four!(vmvnq_u32; a);
        /// Bit by bit, which [`Lanes::copysign`] relies on.
        select(self, m: M, a: V, b: V) -> V = four!(vbslq_f32; m, a, b);
    }

    #[inline(always)]
    fn min(self, a: V, b: V) -> V {
        [self.min4(a[0], b[0]), self.min4(a[1], b[1]), self.min4(a[2], b[2]), self.min4(a[3], b[3])]
    }
    #[inline(always)]
    fn max(self, a: V, b: V) -> V {
        [self.max4(a[0], b[0]), self.max4(a[1], b[1]), self.max4(a[2], b[2]), self.max4(a[3], b[3])]
    }

    super::elementary::elementary!(f32);
}

impl Lanes<f32> for Neon {
    const N: usize = 16;
    const KEEPS_ROWS: bool = true;
    #[inline(always)]
    fn load(self, x: &[f32]) -> V {
        let p = x[..16].as_ptr();
        // SAFETY: 1. `self` proves NEON. 2. `p` starts 16 elements: four loads of 4 are in
        // bounds.
        unsafe { [vld1q_f32(p), vld1q_f32(p.add(4)), vld1q_f32(p.add(8)), vld1q_f32(p.add(12))] }
    }
    #[inline(always)]
    fn store(self, v: V, out: &mut [f32]) {
        let p = out[..16].as_mut_ptr();
        // SAFETY: 1. `self` proves NEON. 2. `p` starts 16 elements: four stores of 4 are in
        // bounds.
        unsafe {
            vst1q_f32(p, v[0]);
            vst1q_f32(p.add(4), v[1]);
            vst1q_f32(p.add(8), v[2]);
            vst1q_f32(p.add(12), v[3]);
        }
    }
    super::elementary::by_arrays!();
    #[inline(always)]
    fn copysign(self, a: V, sign: V) -> V {
        let bit = cpu!([vdupq_n_u32(1 << 31); 4]);
        self.select(bit, sign, a)
    }
    #[inline(always)]
    fn any(self, m: M) -> bool {
        cpu!(vmaxvq_u32(vorrq_u32(vorrq_u32(m[0], m[1]), vorrq_u32(m[2], m[3]))) != 0)
    }
    #[inline(always)]
    fn mask_from_bits(self, bits: u64) -> M {
        let mut whole = [0u32; 16];
        for i in 0..16 {
            whole[i] = if bits >> i & 1 == 1 { u32::MAX } else { 0 };
        }
        let p = whole.as_ptr();
        // SAFETY: 1. `self` proves NEON. 2. `p` starts 16 elements: four loads of 4 are in
        // bounds.
        unsafe { [vld1q_u32(p), vld1q_u32(p.add(4)), vld1q_u32(p.add(8)), vld1q_u32(p.add(12))] }
    }
    #[inline(always)]
    fn load_mask(self, m: &[bool]) -> M {
        // No bits or all bits.
        let mut whole = [0u32; 16];
        for (w, &m) in whole[..m.len()].iter_mut().zip(m) {
            *w = if m { u32::MAX } else { 0 };
        }
        let p = whole.as_ptr();
        // SAFETY: 1. `self` proves NEON. 2. `p` starts 16 elements: four loads of 4 are in
        // bounds.
        unsafe { [vld1q_u32(p), vld1q_u32(p.add(4)), vld1q_u32(p.add(8)), vld1q_u32(p.add(12))] }
    }

    #[inline(always)]
    fn exp2i(self, n: V) -> V {
        // 1.5 * 2^23 + 127: the sum carries the biased exponent in its low bits.
        let n = self.add(n, self.splat(12_583_039.0));
        let n = four!(vreinterpretq_u32_f32; n);
        let n = four!(vshlq_n_u32::<23>; n);
        four!(vreinterpretq_f32_u32; n)
    }
    #[inline(always)]
    fn frexp(self, a: V) -> (V, V) {
        let bits = four!(vreinterpretq_u32_f32; a);
        let keep = cpu!([vdupq_n_u32(0x807f_ffff); 4]);
        let half = cpu!([vdupq_n_u32(0x3f00_0000); 4]);
        let m = four!(vandq_u32; bits, keep);
        let m = four!(vorrq_u32; m, half);
        let e = four!(vshrq_n_u32::<23>; bits);
        let e = four!(vreinterpretq_s32_u32; e);
        let bias = cpu!([vdupq_n_s32(126); 4]);
        let e = four!(vsubq_s32; e, bias);
        (four!(vreinterpretq_f32_u32; m), four!(vcvtq_f32_s32; e))
    }

    #[inline(always)]
    fn sum(self, v: V) -> f32 {
        let (a, b) = cpu!((vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3])));
        let x = cpu!(vaddq_f32(a, b));
        let x = cpu!(vaddq_f32(x, self.by_two(x)));
        self.lane_zero(cpu!(vaddq_f32(x, self.by_one(x))))
    }
    #[inline(always)]
    fn product(self, v: V) -> f32 {
        let (a, b) = cpu!((vmulq_f32(v[0], v[2]), vmulq_f32(v[1], v[3])));
        let x = cpu!(vmulq_f32(a, b));
        let x = cpu!(vmulq_f32(x, self.by_two(x)));
        self.lane_zero(cpu!(vmulq_f32(x, self.by_one(x))))
    }
    #[inline(always)]
    fn min_lane(self, v: V) -> f32 {
        let x = self.min4(self.min4(v[0], v[2]), self.min4(v[1], v[3]));
        let x = self.min4(x, self.by_two(x));
        self.lane_zero(self.min4(x, self.by_one(x)))
    }
    #[inline(always)]
    fn max_lane(self, v: V) -> f32 {
        let x = self.max4(self.max4(v[0], v[2]), self.max4(v[1], v[3]));
        let x = self.max4(x, self.by_two(x));
        self.lane_zero(self.max4(x, self.by_one(x)))
    }
    /// Lane by lane, with the bits of vectors of `f64`.
    #[inline(always)]
    fn pow(self, a: V, b: V) -> V {
        self.map2(a, b, inlined!(|a, b| pow_of_f32(One, a.into(), b.into()) as f32))
    }

    super::elementary::fused_lanes!(f32);
}
