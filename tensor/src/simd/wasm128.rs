//! Sixteen `f32` lanes in four vectors of WebAssembly's `simd128`.
//!
//! A module has these instructions or not: there is no detection at run time. A fused multiply-add is only in *relaxed
//! SIMD*, where each engine may round it once or twice. So [`Lanes::fma`] rounds twice, and results have the bits of
//! [`Level::Scalar`](super::Level::Scalar), but for those of NaN, whose sign and payload engines may choose.

use super::{Kernel, Lanes};
use crate::formula::{Algebra, inlined_methods};
use std::arch::wasm32::*;

/// A token of a module that is compiled for `simd128`.
#[derive(Clone, Copy, Debug)]
pub struct Wasm128(());

type V = [v128; 4];

/// The same intrinsic on each of the four vectors.
macro_rules! four {
    ($f:path; $a:expr) => {
        [$f($a[0]), $f($a[1]), $f($a[2]), $f($a[3])]
    };
    ($f:path; $a:expr, $b:expr) => {
        [$f($a[0], $b[0]), $f($a[1], $b[1]), $f($a[2], $b[2]), $f($a[3], $b[3])]
    };
}

/// The reduction tree: lane `i` with lane `i + 8`, then `i + 4`, `i + 2`, `i + 1`.
macro_rules! tree {
    ($f:expr; $v:expr) => {{
        let (f, v) = ($f, $v);
        let x = f(f(v[0], v[2]), f(v[1], v[3]));
        let x = f(x, i32x4_shuffle::<2, 3, 0, 1>(x, x));
        f32x4_extract_lane::<0>(f(x, i32x4_shuffle::<1, 2, 3, 0>(x, x)))
    }};
}

/// `b`, or `a` if it is less, or NaN.
#[inline(always)]
fn min(a: v128, b: v128) -> v128 {
    v128_bitselect(a, f32x4_pmin(b, a), f32x4_ne(a, a))
}

/// `b`, or `a` if it is greater, or NaN.
#[inline(always)]
fn max(a: v128, b: v128) -> v128 {
    v128_bitselect(a, f32x4_pmax(b, a), f32x4_ne(a, a))
}

/// `a * b - c` in `f64`, where the product is exact, of the lower two lanes.
#[inline(always)]
fn residual(a: v128, b: v128, c: v128) -> v128 {
    let [a, b, c] = [a, b, c].map(inlined!(|x| f64x2_promote_low_f32x4(x)));
    f32x4_demote_f64x2_zero(f64x2_sub(f64x2_mul(a, b), c))
}

impl Wasm128 {
    /// The token.
    #[inline]
    pub fn detect() -> Option<Wasm128> {
        Some(Wasm128(()))
    }

    /// Runs `k` with these vectors.
    #[inline(never)]
    pub fn run<K: Kernel<f32>>(self, k: K) -> K::Out {
        k.run(self)
    }
}

impl Algebra<f32> for Wasm128 {
    type V = V;
    type M = V;

    inlined_methods! {
        splat(self, x: f32) -> V = [f32x4_splat(x); 4];

        add(self, a: V, b: V) -> V = four!(f32x4_add; a, b);
        sub(self, a: V, b: V) -> V = four!(f32x4_sub; a, b);
        mul(self, a: V, b: V) -> V = four!(f32x4_mul; a, b);
        div(self, a: V, b: V) -> V = four!(f32x4_div; a, b);
        fma(self, a: V, b: V, c: V) -> V = self.add(self.mul(a, b), c);
        neg(self, a: V) -> V = four!(f32x4_neg; a);
        abs(self, a: V) -> V = four!(f32x4_abs; a);
        sqrt(self, a: V) -> V = four!(f32x4_sqrt; a);
        round(self, a: V) -> V = four!(f32x4_nearest; a);
        min(self, a: V, b: V) -> V = four!(min; a, b);
        max(self, a: V, b: V) -> V = four!(max; a, b);

        lt(self, a: V, b: V) -> V = four!(f32x4_lt; a, b);
        le(self, a: V, b: V) -> V = four!(f32x4_le; a, b);
        eq(self, a: V, b: V) -> V = four!(f32x4_eq; a, b);
        is_nan(self, a: V) -> V = four!(f32x4_ne; a, a);
        and(self, a: V, b: V) -> V = four!(v128_and; a, b);
        or(self, a: V, b: V) -> V = four!(v128_or; a, b);
        not(self, a: V) -> V = four!(v128_not; a);
        /// Bit by bit, which [`Lanes::copysign`] relies on.
        select(self, m: V, a: V, b: V) -> V =
            std::array::from_fn(inlined!(|i| v128_bitselect(a[i], b[i], m[i])));
    }

    super::elementary::elementary!(f32);
}

impl Lanes<f32> for Wasm128 {
    const N: usize = 16;
    const KEEPS_ROWS: bool = true;
    #[inline(always)]
    fn load(self, x: &[f32]) -> V {
        let p = x[..16].as_ptr().cast::<v128>();
        // SAFETY: `p` starts 16 elements: four loads of 4 are in bounds, and need no alignment.
        unsafe { [v128_load(p), v128_load(p.add(1)), v128_load(p.add(2)), v128_load(p.add(3))] }
    }
    #[inline(always)]
    fn store(self, v: V, out: &mut [f32]) {
        let p = out[..16].as_mut_ptr().cast::<v128>();
        // SAFETY: `p` starts 16 elements: four stores of 4 are in bounds, and need no alignment.
        unsafe {
            v128_store(p, v[0]);
            v128_store(p.add(1), v[1]);
            v128_store(p.add(2), v[2]);
            v128_store(p.add(3), v[3]);
        }
    }
    super::elementary::by_arrays!();
    #[inline(always)]
    fn product_residual(self, a: V, b: V, c: V) -> V {
        std::array::from_fn(inlined!(|i| {
            let high = [a, b, c].map(inlined!(|x: V| i32x4_shuffle::<2, 3, 2, 3>(x[i], x[i])));
            let high = residual(high[0], high[1], high[2]);
            i32x4_shuffle::<0, 1, 4, 5>(residual(a[i], b[i], c[i]), high)
        }))
    }
    #[inline(always)]
    fn copysign(self, a: V, sign: V) -> V {
        self.select([u32x4_splat(1 << 31); 4], sign, a)
    }
    #[inline(always)]
    fn any(self, m: V) -> bool {
        v128_any_true(v128_or(v128_or(m[0], m[1]), v128_or(m[2], m[3])))
    }
    #[inline(always)]
    fn mask_from_bits(self, bits: u64) -> V {
        self.load(&std::array::from_fn::<f32, 16, _>(inlined!(|i| {
            f32::from_bits((bits >> i & 1) as u32 * u32::MAX)
        })))
    }
    #[inline(always)]
    fn load_mask(self, m: &[bool]) -> V {
        // No bits or all bits.
        let mut whole = [0.0; 16];
        for (w, &m) in whole[..m.len()].iter_mut().zip(m) {
            *w = f32::from_bits(u32::from(m) * u32::MAX);
        }
        self.load(&whole)
    }

    #[inline(always)]
    fn exp2i(self, n: V) -> V {
        // 1.5 * 2^23 + 127: the sum carries the biased exponent in its low bits.
        let n = self.add(n, self.splat(12_583_039.0));
        n.map(inlined!(|n| i32x4_shl(n, 23)))
    }
    #[inline(always)]
    fn frexp(self, a: V) -> (V, V) {
        let (keep, half, bias) = (u32x4_splat(0x807f_ffff), u32x4_splat(0x3f00_0000), 126);
        let m = a.map(inlined!(|a| v128_or(v128_and(a, keep), half)));
        let e = a.map(inlined!(|a| i32x4_sub(u32x4_shr(a, 23), i32x4_splat(bias))));
        (m, four!(f32x4_convert_i32x4; e))
    }

    inlined_methods! {
        sum(self, v: V) -> f32 = tree!(inlined!(|a, b| f32x4_add(a, b)); v);
        product(self, v: V) -> f32 = tree!(inlined!(|a, b| f32x4_mul(a, b)); v);
        min_lane(self, v: V) -> f32 = tree!(min; v);
        max_lane(self, v: V) -> f32 = tree!(max; v);
    }
    super::elementary::lane_by_lane!(f32);

    inlined_methods! {
        pow(self, a: V, b: V) -> V = super::math::pow(self, a, b);
        fmod(self, a: V, b: V) -> V = self.map2(a, b, inlined!(|a, b| a % b));
    }
}
