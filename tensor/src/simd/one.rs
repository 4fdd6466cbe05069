//! Vectors of one `f64` lane, where there is no AVX: the reference for vectors of more.

use super::{Kernel, Lanes};
use crate::formula::{Algebra, inlined_methods};

/// Token of single `f64` lanes, which every CPU supports.
#[derive(Clone, Copy, Debug)]
pub struct One;

impl One {
    /// Runs `k` one lane at a time.
    #[inline(never)]
    pub fn run<K: Kernel<f64>>(self, k: K) -> K::Out {
        k.run(self)
    }
}

const MANTISSA: u64 = (1 << 52) - 1;

impl Algebra<f64> for One {
    type V = f64;
    type M = bool;

    inlined_methods! {
        splat(self, x: f64) -> f64 = x;

        add(self, a: f64, b: f64) -> f64 = a + b;
        sub(self, a: f64, b: f64) -> f64 = a - b;
        mul(self, a: f64, b: f64) -> f64 = a * b;
        div(self, a: f64, b: f64) -> f64 = a / b;
        /// Two roundings on x86-64, where `f64::mul_add` would be a library call.
        fma(self, a: f64, b: f64, c: f64) -> f64 = match cfg!(target_arch = "aarch64") {
            true => a.mul_add(b, c),
            false => a * b + c,
        };
        neg(self, a: f64) -> f64 = -a;
        abs(self, a: f64) -> f64 = a.abs();
        sqrt(self, a: f64) -> f64 = a.sqrt();
        round(self, a: f64) -> f64 = a.round_ties_even();
        min(self, a: f64, b: f64) -> f64 = if a < b || a.is_nan() { a } else { b };
        max(self, a: f64, b: f64) -> f64 = if a > b || a.is_nan() { a } else { b };

        lt(self, a: f64, b: f64) -> bool = a < b;
        le(self, a: f64, b: f64) -> bool = a <= b;
        eq(self, a: f64, b: f64) -> bool = a == b;
        is_nan(self, a: f64) -> bool = a.is_nan();
        and(self, a: bool, b: bool) -> bool = a & b;
        or(self, a: bool, b: bool) -> bool = a | b;
        not(self, a: bool) -> bool = !a;
        select(self, m: bool, a: f64, b: f64) -> f64 = if m { a } else { b };
    }

    super::elementary::derived_functions!();

    inlined_methods! {
        exp(self, x: f64) -> f64 = x.exp();
        expm1(self, x: f64) -> f64 = x.exp_m1();
        ln(self, x: f64) -> f64 = x.ln();
        log1p(self, x: f64) -> f64 = x.ln_1p();
        tanh(self, x: f64) -> f64 = x.tanh();
        erf(self, x: f64) -> f64 = libm::erf(x);
        sin(self, x: f64) -> f64 = x.sin();
        cos(self, x: f64) -> f64 = x.cos();
        powf(self, x: f64, p: f64) -> f64 = x.powf(p);
    }

    #[inline(always)]
    fn normal(self, x: f64) -> (f64, f64) {
        use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
        // The rounding errors of the argument, and of 1/√2 itself, matter in the tail: to first order, they are
        // added by the derivative of erfc.
        const REST: f64 = -4.833646656726457e-17;
        let finite = |error: f64| if error.is_finite() { error } else { 0.0 };
        let (a, square) = (-x * FRAC_1_SQRT_2, x * x);
        let error = finite((-x).mul_add(FRAC_1_SQRT_2, -a) - x * REST);
        let exp = (-0.5 * square).exp() * (1.0 - 0.5 * finite(x.mul_add(x, -square)));
        let cdf = 0.5 * (libm::erfc(a) - FRAC_2_SQRT_PI * exp * error);
        (cdf, 0.5 * FRAC_1_SQRT_2 * FRAC_2_SQRT_PI * exp)
    }
}

impl Lanes<f64> for One {
    const N: usize = 1;
    const KEEPS_ROWS: bool = false;
    #[inline(always)]
    fn load(self, x: &[f64]) -> f64 {
        x[0]
    }
    #[inline(always)]
    fn store(self, v: f64, out: &mut [f64]) {
        out[0] = v;
    }
    #[inline(always)]
    fn load_or(self, x: &[f64], fill: f64) -> f64 {
        assert!(x.len() <= 1, "load_or: {} elements for 1 lane", x.len());
        x.first().copied().unwrap_or(fill)
    }
    #[inline(always)]
    fn store_part(self, v: f64, out: &mut [f64]) {
        assert!(out.len() <= 1, "store_part: {} elements for 1 lane", out.len());
        if let Some(x) = out.first_mut() {
            *x = v;
        }
    }

    inlined_methods! {
        product_residual(self, a: f64, b: f64, c: f64) -> f64 = a.mul_add(b, -c);
        copysign(self, a: f64, sign: f64) -> f64 = a.copysign(sign);
        any(self, m: bool) -> bool = m;
        mask_from_bits(self, bits: u64) -> bool = bits & 1 == 1;
    }

    #[inline(always)]
    fn load_mask(self, m: &[bool]) -> bool {
        assert!(m.len() <= 1, "load_mask: {} elements for 1 lane", m.len());
        m.first().copied().unwrap_or(false)
    }

    #[inline(always)]
    fn exp2i(self, n: f64) -> f64 {
        f64::from_bits(((n as i64 + 1023) as u64) << 52)
    }
    #[inline(always)]
    fn frexp(self, a: f64) -> (f64, f64) {
        let bits = a.to_bits();
        let m = f64::from_bits(bits & (MANTISSA | 1 << 63) | 1022 << 52);
        (m, ((bits >> 52) as i64 - 1022) as f64)
    }

    inlined_methods! {
        sum(self, v: f64) -> f64 = v;
        product(self, v: f64) -> f64 = v;
        min_lane(self, v: f64) -> f64 = v;
        max_lane(self, v: f64) -> f64 = v;
        transpose(self, rows: [f64; 16]) -> [f64; 16] = rows;
    }

    #[inline(always)]
    fn enter<K: Kernel<f64>>(self, k: K) -> K::Out {
        self.run(k)
    }

    inlined_methods! {
        map(self, v: f64, f: impl Fn(f64) -> f64) -> f64 = f(v);
        map2(self, a: f64, b: f64, f: impl Fn(f64, f64) -> f64) -> f64 = f(a, b);
        pow(self, a: f64, b: f64) -> f64 = a.powf(b);
        fmod(self, a: f64, b: f64) -> f64 = a % b;
    }
}
