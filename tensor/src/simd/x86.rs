//! What vectors of x86 registers define alike, with the intrinsics of a register and an element type.

/// Runs a kernel inside a function compiled for the instruction set that `$token` proves.
macro_rules! run {
    ($token:ident, $t:ty, $features:literal) => {
        /// Runs `k` inside a function compiled for these instructions.
        #[inline]
        pub fn run<K: $crate::simd::Kernel<$t>>(self, k: K) -> K::Out {
            #[inline(never)]
            #[target_feature(enable = $features)]
            fn entry<K: $crate::simd::Kernel<$t>>(s: $token, k: K) -> K::Out {
                k.run(s)
            }
            // SAFETY: 1. `self` proves that the CPU has all of these instructions.
            unsafe { entry(self, k) }
        }
    };
}
pub(super) use run;

/// The operations of [`Algebra`](crate::formula::Algebra) that intrinsics compute; `$each` applies one to every
/// register of its operands.
macro_rules! algebra {
    (
        $each:ident: add $add:ident, sub $sub:ident, mul $mul:ident, div $div:ident, fma $fma:ident,
        sqrt $sqrt:ident, round $round:ident, min $min:ident, max $max:ident, compare $compare:ident,
        xor $xor:ident, andnot $andnot:ident
    ) => {
        $crate::formula::inlined_methods! {
            add(self, a: Self::V, b: Self::V) -> Self::V = $each!($add; a, b);
            sub(self, a: Self::V, b: Self::V) -> Self::V = $each!($sub; a, b);
            mul(self, a: Self::V, b: Self::V) -> Self::V = $each!($mul; a, b);
            div(self, a: Self::V, b: Self::V) -> Self::V = $each!($div; a, b);
            fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V = $each!($fma; a, b, c);
            neg(self, a: Self::V) -> Self::V = $each!($xor; a, self.splat(-0.0));
            abs(self, a: Self::V) -> Self::V = $each!($andnot; self.splat(-0.0), a);
            sqrt(self, a: Self::V) -> Self::V = $each!($sqrt; a);
            round(self, a: Self::V) -> Self::V =
                $each!($round::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>; a);
            // The instruction returns `b` where either is NaN, so only a NaN in `a` has to be handled.
            min(self, a: Self::V, b: Self::V) -> Self::V =
                self.select(self.is_nan(a), a, $each!($min; a, b));
            max(self, a: Self::V, b: Self::V) -> Self::V =
                self.select(self.is_nan(a), a, $each!($max; a, b));
            lt(self, a: Self::V, b: Self::V) -> Self::M = $each!($compare::<_CMP_LT_OQ>; a, b);
            le(self, a: Self::V, b: Self::V) -> Self::M = $each!($compare::<_CMP_LE_OQ>; a, b);
            eq(self, a: Self::V, b: Self::V) -> Self::M = $each!($compare::<_CMP_EQ_OQ>; a, b);
            is_nan(self, a: Self::V) -> Self::M = $each!($compare::<_CMP_UNORD_Q>; a, a);
        }
    };
}
pub(super) use algebra;

/// The same of [`Lanes`](super::Lanes).
macro_rules! lanes {
    ($each:ident: min $min:ident, max $max:ident, and $and:ident, or $or:ident) => {
        $crate::formula::inlined_methods! {
            copysign(self, a: Self::V, sign: Self::V) -> Self::V = {
                let sign = $each!($and; sign, self.splat(-0.0));
                $each!($or; self.abs(a), sign)
            };
            clamp(self, x: Self::V, lo: Self::V, hi: Self::V) -> Self::V = {
                let x = $each!($min; hi, x);
                $each!($max; lo, x)
            };
        }
    };
}
pub(super) use lanes;
