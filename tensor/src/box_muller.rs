//! Normal numbers by the transform of Box and Muller (1958), many at once.
//!
//! `ln` and `sin_cos` are `log` and `sincos` of the crate `libm` (from FreeBSD), for the arguments that
//! occur here and without branches, so that the compiler vectorises them. It never contracts a product and
//! a sum, so the bits are those of `libm` on every instruction set.

use crate::random::unit;
use crate::simd::{Level, inlined, vectorized};
use std::f64::consts::TAU;

/// Pairs that are transformed together.
const LANES: usize = 16;

/// Pairs of normal numbers from pairs of random bits: `√(-2 ln(1 - u)) · (cos 2πv, sin 2πv)`.
pub fn box_muller(level: Level, bits: &[u64], out: &mut [f64]) {
    vectorized(
        level,
        inlined!(move || {
            for start in (0..bits.len()).step_by(2 * LANES) {
                let end = bits.len().min(start + 2 * LANES);
                let (bits, out) = (&bits[start..end], &mut out[start..end]);
                let mut pairs = [[0; 2]; LANES];
                pairs.as_flattened_mut()[..bits.len()].copy_from_slice(bits);
                // The compiler vectorises these loops, with one iteration per lane.
                let (mut radii, mut angles) = ([0.0; LANES], [0.0; LANES]);
                for i in 0..LANES {
                    (radii[i], angles[i]) = (1.0 - unit(pairs[i][0]), TAU * unit(pairs[i][1]));
                }
                for i in 0..LANES {
                    radii[i] = (-2.0 * ln(radii[i])).sqrt();
                }
                let mut inaccurate = false;
                for i in 0..LANES {
                    inaccurate |= cancels(angles[i]);
                }
                let (mut cosines, mut sines) = ([0.0; LANES], [0.0; LANES]);
                for i in 0..LANES {
                    (sines[i], cosines[i]) = sin_cos(angles[i]);
                }
                if inaccurate {
                    by_libm(&angles, &mut sines, &mut cosines);
                }
                let mut normal = [[0.0; 2]; LANES];
                for i in 0..LANES {
                    normal[i] = [radii[i] * cosines[i], radii[i] * sines[i]];
                }
                out.copy_from_slice(&normal.as_flattened()[..out.len()]);
            }
        }),
    );
}

/// The rare angles that [`sin_cos`] does not take.
#[cold]
#[inline(never)]
fn by_libm(angles: &[f64; LANES], sines: &mut [f64; LANES], cosines: &mut [f64; LANES]) {
    for i in 0..LANES {
        if cancels(angles[i]) {
            (sines[i], cosines[i]) = libm::sincos(angles[i]);
        }
    }
}

/// The natural logarithm of a positive normal number.
#[inline(always)]
fn ln(x: f64) -> f64 {
    const LN2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];
    const L: [f64; 7] = [
        6.666_666_666_666_735e-1,
        3.999_999_999_940_942e-1,
        2.857_142_874_366_239e-1,
        2.222_219_843_214_978_4e-1,
        1.818_357_216_161_805e-1,
        1.531_383_769_920_937_3e-1,
        1.479_819_860_511_658_6e-1,
    ];
    // x = 2ᵏ · (1 + f), with 1 + f between √½ and √2.
    const ROOT: u32 = 0x3fe6_a09e;
    let bits = x.to_bits();
    let high = (bits >> 32) as u32 + (0x3ff0_0000 - ROOT);
    let k = f64::from((high >> 20) as i32 - 0x3ff);
    let high = (high & 0xf_ffff) + ROOT;
    let f = f64::from_bits(u64::from(high) << 32 | bits & 0xffff_ffff) - 1.0;
    let half_square = 0.5 * f * f;
    let s = f / (2.0 + f);
    let z = s * s;
    let w = z * z;
    let even = w * (L[1] + w * (L[3] + w * L[5]));
    let odd = z * (L[0] + w * (L[2] + w * (L[4] + w * L[6])));
    s * (half_square + (odd + even)) + k * LN2[1] - half_square + f + k * LN2[0]
}

/// The upper half of the bits of a number.
#[inline(always)]
fn high(x: f64) -> u32 {
    (x.to_bits() >> 32) as u32
}

/// Whether an angle is so close to a multiple of `π/2` that the reduction by [`sin_cos`] cancels too many bits.
#[inline(always)]
fn cancels(x: f64) -> bool {
    let near = |quarter| high(x) == quarter;
    near(0x3ff9_21fb) | near(0x4009_21fb) | near(0x4012_d97c) | near(0x4019_21fb)
}

/// Sine and cosine of an angle in `[0, 9π/4]`.
#[inline(always)]
fn sin_cos(x: f64) -> (f64, f64) {
    /// `π/2` in two parts, the first of 33 bits.
    const HALF_PI: [f64; 2] = [1.570_796_326_734_125_6, 6.077_100_506_506_192e-11];
    const S: [f64; 6] = [
        -1.666_666_666_666_663_2e-1,
        8.333_333_333_322_49e-3,
        -1.984_126_982_985_795e-4,
        2.755_731_370_707_007e-6,
        -2.505_076_025_340_686_3e-8,
        1.589_690_995_211_55e-10,
    ];
    const C: [f64; 6] = [
        4.166_666_666_666_66e-2,
        -1.388_888_888_887_411e-3,
        2.480_158_728_947_673e-5,
        -2.755_731_435_139_066_3e-7,
        2.087_572_321_298_175e-9,
        -1.135_964_755_778_819_5e-11,
    ];
    // The nearest multiple of π/2.
    let mut n = 0;
    for end in [0x3fe9_21fb, 0x4002_d97c, 0x400f_6a7a, 0x4015_fdbc] {
        n += i32::from(high(x) > end);
    }
    // x = n π/2 + r + rest
    let whole = f64::from(n);
    let z = x - whole * HALF_PI[0];
    let r = z - whole * HALF_PI[1];
    let rest = (z - r) - whole * HALF_PI[1];

    let z = r * r;
    let w = z * z;
    let p = S[1] + z * (S[2] + z * S[3]) + z * w * (S[4] + z * S[5]);
    let cube = z * r;
    let exact = r + cube * (S[0] + z * p);
    let reduced = r - ((z * (0.5 * rest - cube * p) - rest) - cube * S[0]);
    let sin = if n == 0 { exact } else { reduced };

    let p = z * (C[0] + z * (C[1] + z * C[2])) + w * w * (C[3] + z * (C[4] + z * C[5]));
    let half = 0.5 * z;
    let most = 1.0 - half;
    let cos = most + (((1.0 - most) - half) + (z * p - r * rest));

    let (a, b) = if n & 1 == 1 { (cos, sin) } else { (sin, cos) };
    let a = if n & 2 == 2 { -a } else { a };
    let b = if n == 1 || n == 2 { -b } else { b };
    (a, b)
}
