//! Vectors that count the operations on them: the arithmetic of a formula, for reports.

use super::portable::Portable;
use super::{F32_LANES, Kernel, Lanes};
use crate::formula::Algebra;
use std::cell::Cell;

/// Token of counted operations on sixteen lanes.
#[derive(Clone, Copy, Debug)]
pub struct Counting;

thread_local! {
    static OPERATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count(operations: u64) {
    OPERATIONS.set(OPERATIONS.get() + operations);
}

impl Counting {
    /// Runs `k`, and counts the arithmetic operations per lane: additions, multiplications, divisions, roots,
    /// minima, maxima, roundings and scalings by powers of two; two for a multiply-add, none for comparisons,
    /// selections and signs. An elementary function counts as what it consists of.
    #[inline(never)]
    pub fn operations<K: Kernel<f32>>(k: K) -> u64 {
        let outer = OPERATIONS.replace(0);
        k.run(Counting);
        OPERATIONS.replace(outer)
    }
}

type V = <Portable as Algebra<f32>>::V;
type M = <Portable as Algebra<f32>>::M;

/// Methods of [`Portable`], each of which counts as a number of operations.
macro_rules! counted {
    ($($n:literal $f:ident($($x:ident: $t:ty),*) -> $out:ty;)+) => {$(
        fn $f(self, $($x: $t),*) -> $out {
            count($n);
            Portable.$f($($x),*)
        }
    )+};
}

impl Algebra<f32> for Counting {
    type V = V;
    type M = M;

    counted! {
        0 splat(x: f32) -> V;
        1 add(a: V, b: V) -> V;
        1 sub(a: V, b: V) -> V;
        1 mul(a: V, b: V) -> V;
        1 div(a: V, b: V) -> V;
        2 fma(a: V, b: V, c: V) -> V;
        0 neg(a: V) -> V;
        0 abs(a: V) -> V;
        1 sqrt(a: V) -> V;
        1 round(a: V) -> V;
        1 min(a: V, b: V) -> V;
        1 max(a: V, b: V) -> V;
        0 lt(a: V, b: V) -> M;
        0 le(a: V, b: V) -> M;
        0 eq(a: V, b: V) -> M;
        0 is_nan(a: V) -> M;
        0 and(a: M, b: M) -> M;
        0 or(a: M, b: M) -> M;
        0 not(a: M) -> M;
        0 select(m: M, a: V, b: V) -> V;
    }

    super::elementary::elementary_f32!();
}

impl Lanes<f32> for Counting {
    const N: usize = F32_LANES;

    counted! {
        0 load(x: &[f32]) -> V;
        0 store(v: V, out: &mut [f32]) -> ();
        0 load_or(x: &[f32], fill: f32) -> V;
        0 store_part(v: V, out: &mut [f32]) -> ();
        2 product_residual(a: V, b: V, c: V) -> V;
        0 copysign(a: V, sign: V) -> V;
        0 any(m: M) -> bool;
        0 mask_from_bits(bits: u64) -> M;
        0 load_mask(m: &[bool]) -> M;
        1 exp2i(n: V) -> V;
        1 ldexp(a: V, n: V) -> V;
        0 frexp(a: V) -> (V, V);
        1 sum(v: V) -> f32;
        1 product(v: V) -> f32;
        1 min_lane(v: V) -> f32;
        1 max_lane(v: V) -> f32;
        0 transpose(rows: [V; F32_LANES]) -> [V; F32_LANES];
    }

    #[inline(never)]
    fn call<X, Y>(self, x: X, f: impl Fn(X) -> Y) -> Y {
        f(x)
    }
    fn enter<K: Kernel<f32>>(self, k: K) -> K::Out {
        k.run(self)
    }
    fn map(self, v: V, f: impl Fn(f32) -> f32) -> V {
        count(1);
        Portable.map(v, f)
    }
    fn map2(self, a: V, b: V, f: impl Fn(f32, f32) -> f32) -> V {
        count(1);
        Portable.map2(a, b, f)
    }
    fn pow(self, a: V, b: V) -> V {
        super::math::pow(self, a, b)
    }
}
