//! Sixteen `f32` lanes in an array: portable code that the compiler may vectorise.
//!
//! It is the reference for every instruction set, with one difference: [`Lanes::fma`] is
//! `a * b + c` with two roundings, because a fused one would be a library call.

use super::{Kernel, Lanes};
use crate::formula::{Algebra, inlined_methods};

/// Token of the portable level, which every CPU supports.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

impl Portable {
    /// Runs `k` with portable vectors.
    #[inline(never)]
    pub fn run<K: Kernel<f32>>(self, k: K) -> K::Out {
        k.run(self)
    }
}

type V = [f32; 16];
type M = [bool; 16];

const SIGN: u32 = 1 << 31;
/// `1.5 * 2^23`: adding it moves an integer of at most 22 bits into the low mantissa bits.
const MAGIC: f32 = 12_582_912.0;

#[inline(always)]
fn each(a: V, f: impl Fn(f32) -> f32) -> V {
    let mut out = a;
    for x in &mut out {
        *x = f(*x);
    }
    out
}

#[inline(always)]
fn both(a: V, b: V, f: impl Fn(f32, f32) -> f32) -> V {
    let mut out = a;
    for i in 0..16 {
        out[i] = f(a[i], b[i]);
    }
    out
}

#[inline(always)]
fn test(a: V, b: V, f: impl Fn(f32, f32) -> bool) -> M {
    let mut out = [false; 16];
    for i in 0..16 {
        out[i] = f(a[i], b[i]);
    }
    out
}

#[inline(always)]
fn logic(a: M, b: M, f: impl Fn(bool, bool) -> bool) -> M {
    let mut out = a;
    for i in 0..16 {
        out[i] = f(a[i], b[i]);
    }
    out
}

/// The reduction tree: lane `i` with lane `i + 8`, then `i + 4`, `i + 2`, `i + 1`.
#[inline(always)]
fn tree(mut v: V, f: impl Fn(f32, f32) -> f32) -> f32 {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            v[i] = f(v[i], v[i + half]);
        }
    }
    v[0]
}

#[inline(always)]
fn smaller(a: f32, b: f32) -> f32 {
    if a < b || a.is_nan() { a } else { b }
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b || a.is_nan() { a } else { b }
}

/// Rounding by addition: above `2^23` every float is an integer.
#[inline(always)]
fn nearest(x: f32) -> f32 {
    const LIMIT: f32 = 8_388_608.0;
    let a = x.abs();
    let r = ((a + LIMIT) - LIMIT).copysign(x);
    if a < LIMIT { r } else { x }
}

#[inline(always)]
fn power_of_two(n: f32) -> f32 {
    f32::from_bits((n + (MAGIC + 127.0)).to_bits() << 23)
}

impl Algebra<f32> for Portable {
    type V = V;
    type M = M;

    inlined_methods! {
        splat(self, x: f32) -> V = [x; 16];

        add(self, a: V, b: V) -> V = both(a, b, |a, b| a + b);
        sub(self, a: V, b: V) -> V = both(a, b, |a, b| a - b);
        mul(self, a: V, b: V) -> V = both(a, b, |a, b| a * b);
        div(self, a: V, b: V) -> V = both(a, b, |a, b| a / b);
        fma(self, a: V, b: V, c: V) -> V = self.add(self.mul(a, b), c);
        neg(self, a: V) -> V = each(a, |a| f32::from_bits(a.to_bits() ^ SIGN));
        abs(self, a: V) -> V = each(a, |a| f32::from_bits(a.to_bits() & !SIGN));
        sqrt(self, a: V) -> V = each(a, f32::sqrt);
        round(self, a: V) -> V = each(a, nearest);
        min(self, a: V, b: V) -> V = both(a, b, smaller);
        max(self, a: V, b: V) -> V = both(a, b, larger);

        lt(self, a: V, b: V) -> M = test(a, b, |a, b| a < b);
        le(self, a: V, b: V) -> M = test(a, b, |a, b| a <= b);
        eq(self, a: V, b: V) -> M = test(a, b, |a, b| a == b);
        is_nan(self, a: V) -> M = test(a, a, |a, _| a.is_nan());
        and(self, a: M, b: M) -> M = logic(a, b, |a, b| a & b);
        or(self, a: M, b: M) -> M = logic(a, b, |a, b| a | b);
        not(self, a: M) -> M = logic(a, a, |a, _| !a);
    }

    #[inline(always)]
    fn select(self, m: M, a: V, b: V) -> V {
        let mut out = a;
        for i in 0..16 {
            out[i] = if m[i] { a[i] } else { b[i] };
        }
        out
    }

    super::elementary::elementary!(f32);
}

impl Lanes<f32> for Portable {
    const N: usize = 16;
    const KEEPS_ROWS: bool = true;
    #[inline(always)]
    fn load(self, x: &[f32]) -> V {
        let mut v = [0.0; 16];
        v.copy_from_slice(&x[..16]);
        v
    }
    #[inline(always)]
    fn store(self, v: V, out: &mut [f32]) {
        out[..16].copy_from_slice(&v);
    }
    #[inline(always)]
    fn load_or(self, x: &[f32], fill: f32) -> V {
        let mut v = [fill; 16];
        v[..x.len()].copy_from_slice(x);
        v
    }
    #[inline(always)]
    fn store_part(self, v: V, out: &mut [f32]) {
        out.copy_from_slice(&v[..out.len()]);
    }
    /// Products of two `f32` are exact in `f64`.
    #[inline(always)]
    fn product_residual(self, a: V, b: V, c: V) -> V {
        let mut out = c;
        for i in 0..16 {
            out[i] = (f64::from(a[i]) * f64::from(b[i]) - f64::from(c[i])) as f32;
        }
        out
    }

    inlined_methods! {
        copysign(self, a: V, sign: V) -> V =
            both(a, sign, |a, s| f32::from_bits(a.to_bits() & !SIGN | s.to_bits() & SIGN));
        any(self, m: M) -> bool = m.iter().fold(false, |any, &m| any | m);
        mask_from_bits(self, bits: u64) -> M = std::array::from_fn(|i| bits >> i & 1 == 1);
    }

    #[inline(always)]
    fn load_mask(self, m: &[bool]) -> M {
        let mut out = [false; 16];
        out[..m.len()].copy_from_slice(m);
        out
    }

    #[inline(always)]
    fn exp2i(self, n: V) -> V {
        each(n, power_of_two)
    }
    #[inline(always)]
    fn frexp(self, a: V) -> (V, V) {
        let m = each(a, |a| f32::from_bits(a.to_bits() & 0x807f_ffff | 0x3f00_0000));
        let e = each(a, |a| ((a.to_bits() >> 23) as i32 - 126) as f32);
        (m, e)
    }

    inlined_methods! {
        sum(self, v: V) -> f32 = tree(v, |a, b| a + b);
        product(self, v: V) -> f32 = tree(v, |a, b| a * b);
        min_lane(self, v: V) -> f32 = tree(v, smaller);
        max_lane(self, v: V) -> f32 = tree(v, larger);
        transpose(self, rows: [V; 16]) -> [V; 16] =
            std::array::from_fn(|j| std::array::from_fn(|i| rows[i][j]));
    }

    #[inline(never)]
    fn call<X, Y>(self, x: X, f: impl Fn(X) -> Y) -> Y {
        f(x)
    }
    #[inline(always)]
    fn enter<K: Kernel<f32>>(self, k: K) -> K::Out {
        self.run(k)
    }

    inlined_methods! {
        map(self, v: V, f: impl Fn(f32) -> f32) -> V = each(v, f);
        map2(self, a: V, b: V, f: impl Fn(f32, f32) -> f32) -> V = both(a, b, f);
        pow(self, a: V, b: V) -> V = super::math::pow(self, a, b);
        fmod(self, a: V, b: V) -> V = both(a, b, |a, b| a % b);
    }
}
