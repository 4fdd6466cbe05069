//! A formula on vectors without values, which counts the operations on them: its arithmetic, for reports.

use super::{F32_LANES, Kernel, Lanes};
use crate::formula::Algebra;
use std::cell::Cell;

/// Token of counted operations. Every number that leaves the vectors is 1, and every truth value is false, so
/// a formula takes the way of ordinary numbers. Without values, the code of a formula is small.
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

/// Methods that count as a number of operations, with the value of their results.
macro_rules! counted {
    ($out:ty = $value:expr; $($n:literal $f:ident($($t:ty),*);)+) => {$(
        fn $f(self $(, _: $t)*) -> $out {
            count($n);
            $value
        }
    )+};
}

impl Algebra<f32> for Counting {
    type V = ();
    type M = ();

    counted! { () = ();
        0 splat(f32);
        1 add((), ());
        1 sub((), ());
        1 mul((), ());
        1 div((), ());
        2 fma((), (), ());
        0 neg(());
        0 abs(());
        1 sqrt(());
        1 round(());
        1 min((), ());
        1 max((), ());
        0 lt((), ());
        0 le((), ());
        0 eq((), ());
        0 is_nan(());
        0 and((), ());
        0 or((), ());
        0 not(());
        0 select((), (), ());
    }

    super::elementary::elementary_f32!();
}

impl Lanes<f32> for Counting {
    const N: usize = F32_LANES;

    counted! { () = ();
        0 load(&[f32]);
        0 store((), &mut [f32]);
        0 load_or(&[f32], f32);
        0 store_part((), &mut [f32]);
        2 product_residual((), (), ());
        0 copysign((), ());
        0 mask_from_bits(u64);
        0 load_mask(&[bool]);
        1 exp2i(());
        1 ldexp((), ());
        1 map((), impl Fn(f32) -> f32);
        1 map2((), (), impl Fn(f32, f32) -> f32);
    }
    counted! { bool = false; 0 any(()); }
    counted! { f32 = 1.0; 1 sum(()); 1 product(()); 1 min_lane(()); 1 max_lane(()); }
    counted! { ((), ()) = ((), ()); 0 frexp(()); }
    counted! { [(); F32_LANES] = [(); F32_LANES]; 0 transpose([(); F32_LANES]); }

    #[inline(never)]
    fn call<X, Y>(self, x: X, f: impl Fn(X) -> Y) -> Y {
        f(x)
    }
    fn enter<K: Kernel<f32>>(self, k: K) -> K::Out {
        k.run(self)
    }
    fn pow(self, a: (), b: ()) {
        super::math::pow(self, a, b)
    }
}
