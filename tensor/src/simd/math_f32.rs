//! Coefficients of `f32`, and its logarithm.

use super::Lanes;
use super::math::{Constants, poly};

/// `(ln(1 + f) - f + f^2 / 2) / f^3` for `1 + f` in `[sqrt(1/2), sqrt(2)]`.
#[rustfmt::skip]
const LN: &[f32] = &[
    3.333333e-1, -2.500082e-1, 2.0001242e-1, -1.6623409e-1, 1.4201581e-1,
    -1.3159613e-1, 1.27622e-1, -7.6363996e-2,
];

impl Constants for f32 {
    const ROUNDER: f32 = 12_582_912.0;
    const EXP_RANGE: (f32, f32) = (-104.0, 89.0);
    const EXPM1_LOW: f32 = -20.0;
    const ERF_END: f32 = 4.0;
    const NORMAL_END: f32 = 12.94;
    /// `2^13 * pi / 2`
    const WIDE: f32 = 12_867.0;
    /// The first has 15 bits, so that its product with an exponent is exact even where `fma` rounds twice.
    const LN2: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];
    /// The first four have at most 11 bits, so that their products with whole numbers up to `2^13` are exact.
    const HALF_PI: &[f32] =
        &[1.5703125, 4.837_513e-4, 7.549_533_6e-8, 2.563_283e-12, 6.123_234e-17];

    const EXP: &[f32] = &[4.9999997e-1, 1.6666545e-1, 4.1667435e-2, 8.366477e-3, 1.3870987e-3];
    const SIN: &[f32] = &[-1.6666654e-1, 8.332106e-3, -1.9507877e-4];
    const COS: &[f32] = &[1.0, -0.5, 4.1666646e-2, -1.3887304e-3, 2.4431201e-5];
    #[rustfmt::skip]
    const ERF: &[f32] = &[
        1.2837917e-1, -3.7612626e-1, 1.1283579e-1, -2.6853347e-2, 5.187162e-3,
        -7.997853e-4, 7.806903e-5,
    ];
    #[rustfmt::skip]
    const LN_ERFC: &[f32] = &[
        -3.004385e-4, -1.1272514, -6.3788325e-1, -1.0332717e-1, 2.1940324e-2,
        -2.9724094e-3, 1.8881947e-4,
    ];
    #[rustfmt::skip]
    const TAIL: &[f32] = &[
        7.4441606e-1, -5.6556183e-1, 3.1542593e-1, -1.1605141e-1, 1.7398901e-2,
        6.48404e-3, -3.1549037e-3, -4.740902e-4, 4.0434298e-4, 9.3583745e-5,
    ];
    const MIDDLE: &[f32] = &[3.9894226e-1, -6.6489495e-2, 9.966689e-3, -1.1684306e-3, 9.371964e-5];

    #[inline(always)]
    fn ln_sum<S: Lanes<f32>>(s: S, f: S::V, e: S::V) -> S::V {
        let y = s.fma(f, poly(s, f, LN), s.splat(-0.5));
        let y = s.mul(s.mul(f, f), y);
        let y = s.fma(e, s.splat(f32::LN2[1]), y);
        s.fma(e, s.splat(f32::LN2[0]), s.add(f, y))
    }
}

// The documented numbers of bits, and the sums of the parts.
const _: () = {
    const fn bits(x: f32) -> u32 {
        24 - (x.to_bits() | 1 << 23).trailing_zeros()
    }
    let [a, b, c, d, e] = *f32::HALF_PI else { panic!() };
    assert!(bits(f32::LN2[0]) <= 15);
    assert!(bits(a) <= 11 && bits(b) <= 11 && bits(c) <= 11 && bits(d) <= 11);
    let ln2 = f32::LN2[1] as f64 + f32::LN2[0] as f64;
    assert!((ln2 - std::f64::consts::LN_2).abs() < 1e-13);
    let half_pi = e as f64 + d as f64 + c as f64 + b as f64 + a as f64;
    assert!(half_pi == std::f64::consts::FRAC_PI_2);
};
