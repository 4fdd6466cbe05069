//! A formula on vectors without values, which counts the operations on them: its arithmetic, for reports.

use super::{F32_LANES, Kernel, Lanes};
use crate::formula::Algebra;
use std::cell::Cell;

/// Token of counted operations. Every number that leaves the vectors is 1, and every truth value is false, so
/// a formula takes the way of ordinary numbers. Without values, the code of a formula is small.
#[derive(Clone, Copy, Debug)]
pub struct Counting;

/// A vector of numbers or truth values, which are not computed.
#[derive(Clone, Copy, Debug)]
pub struct Vector;

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
    type V = Vector;
    type M = Vector;

    counted! { Vector = Vector;
        0 splat(f32);
        1 add(Vector, Vector);
        1 sub(Vector, Vector);
        1 mul(Vector, Vector);
        1 div(Vector, Vector);
        2 fma(Vector, Vector, Vector);
        0 neg(Vector);
        0 abs(Vector);
        1 sqrt(Vector);
        1 round(Vector);
        1 min(Vector, Vector);
        1 max(Vector, Vector);
        0 lt(Vector, Vector);
        0 le(Vector, Vector);
        0 eq(Vector, Vector);
        0 is_nan(Vector);
        0 and(Vector, Vector);
        0 or(Vector, Vector);
        0 not(Vector);
        0 select(Vector, Vector, Vector);
    }

    super::elementary::elementary!(f32);
}

impl Lanes<f32> for Counting {
    const N: usize = F32_LANES;
    const KEEPS_ROWS: bool = true;

    counted! { Vector = Vector;
        0 load(&[f32]);
        0 load_or(&[f32], f32);
        2 product_residual(Vector, Vector, Vector);
        0 copysign(Vector, Vector);
        0 mask_from_bits(u64);
        0 load_mask(&[bool]);
        1 exp2i(Vector);
        1 ldexp(Vector, Vector);
        1 map(Vector, impl Fn(f32) -> f32);
        1 map2(Vector, Vector, impl Fn(f32, f32) -> f32);
    }
    counted! { () = (); 0 store(Vector, &mut [f32]); 0 store_part(Vector, &mut [f32]); }
    counted! { bool = false; 0 any(Vector); }
    counted! { f32 = 1.0; 1 sum(Vector); 1 product(Vector); 1 min_lane(Vector); 1 max_lane(Vector); }
    counted! { (Vector, Vector) = (Vector, Vector); 0 frexp(Vector); }
    counted! { [Vector; F32_LANES] = [Vector; F32_LANES]; 0 transpose([Vector; F32_LANES]); }

    #[inline(never)]
    fn call<X, Y>(self, x: X, f: impl Fn(X) -> Y) -> Y {
        f(x)
    }
    fn enter<K: Kernel<f32>>(self, k: K) -> K::Out {
        k.run(self)
    }
    fn pow(self, a: Vector, b: Vector) -> Vector {
        super::math::pow(self, a, b)
    }
    fn fmod(self, a: Vector, b: Vector) -> Vector {
        super::math::fmod(self, a, b)
    }
}
