//! Rotary and sinusoidal positions.

use super::same;
use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_tensor::Tensor;
use std::f64::consts::TAU;

#[test]
fn rope_equals_complex_rotations() {
    // By complex numbers, without code of the library.
    let (d, base) = (6usize, 100.0f64);
    let x = randn(&[4, d], 3);
    let rope = Rope::new(d).base(base);
    for pairing in [Pairing::Half, Pairing::Interleaved] {
        let y = rope.clone().pairing(pairing).rotate(&Var::constant(x.clone()), 5).into_value();
        let mut want = vec![0.0; 4 * d];
        for p in 0..4 {
            for m in 0..d / 2 {
                let (i, j) = match pairing {
                    Pairing::Half => (m, m + d / 2),
                    Pairing::Interleaved => (2 * m, 2 * m + 1),
                };
                let (a, b) = (x.at(&[p, i]), x.at(&[p, j]));
                let (r, phi) = (a.hypot(b), b.atan2(a));
                let angle = phi + (p + 5) as f64 / base.powf(2.0 * m as f64 / d as f64);
                want[p * d + i] = r * angle.cos();
                want[p * d + j] = r * angle.sin();
            }
        }
        same(&format!("rope, {pairing:?} = complex numbers"), &y, &Tensor::from_vec(want, [4, d]));
    }
}

/// YaRN as in the paper's code, computed from the wavelengths.
fn yarn_by_hand(d: usize, base: f64, factor: f64, context: f64, rounded: bool) -> Vec<f64> {
    let pi = std::f64::consts::PI;
    let dim =
        |rotations: f64| (d as f64 * (context / (rotations * 2.0 * pi)).ln()) / (2.0 * base.ln());
    let (mut low, mut high) = (dim(32.0), dim(1.0));
    if rounded {
        (low, high) = (low.floor().max(0.0), high.ceil().min(d as f64 - 1.0));
    }
    let mut out = Vec::new();
    for i in 0..d / 2 {
        let pos_freq = base.powf((2 * i) as f64 / d as f64);
        let (extrapolation, interpolation) = (1.0 / pos_freq, 1.0 / (factor * pos_freq));
        let ramp = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
        let mask = 1.0 - ramp;
        out.push(interpolation * (1.0 - mask) + extrapolation * mask);
    }
    out
}

#[test]
fn scaled_frequencies_equal_their_formulas() {
    let column = |x: Vec<f64>| Tensor::from_vec(x.clone(), [x.len()]);
    let (d, base) = (64, 10000.0);
    let none = Rope::new(d).frequencies();
    let linear = Rope::new(d).scaling(Scaling::Linear { factor: 8.0 }).frequencies();
    same(
        "linear scaling",
        &column(linear.iter().map(|x| x * 8.0).collect()),
        &column(none.clone()),
    );
    let ntk = Rope::new(d).scaling(Scaling::Ntk { factor: 8.0 }).frequencies();
    assert_eq!(ntk[0], none[0]);
    assert!(
        (ntk[31] * 8.0 / none[31] - 1.0).abs() < 1e-12,
        "the lowest frequency is divided by the factor"
    );
    for rounded in [true, false] {
        let yarn = Yarn { rounded, ..Yarn::new(16.0, 4096) };
        let rope = Rope::new(d).scaling(Scaling::Yarn(yarn));
        let want = yarn_by_hand(d, base, 16.0, 4096.0, rounded);
        same(
            &format!("yarn by hand, rounded {rounded}"),
            &column(rope.frequencies()),
            &column(want),
        );
        assert_eq!(rope.frequencies()[0], none[0]);
        assert!((rope.frequencies()[31] * 16.0 / none[31] - 1.0).abs() < 1e-12);
        assert!((rope.attention_factor() - (0.1 * 16f64.ln() + 1.0)).abs() < 1e-15);
    }
    let same_context = Rope::new(d).scaling(Scaling::Yarn(Yarn::new(1.0, 4096)));
    same("yarn with factor 1 = none", &column(same_context.frequencies()), &column(none.clone()));
    assert_eq!(same_context.attention_factor(), 1.0);
    let llama = Llama3Scaling { factor: 8.0, context: 512, low: 1.0, high: 4.0 };
    let frequencies = Rope::new(d).scaling(Scaling::Llama3(llama)).frequencies();
    let want = none.iter().map(|theta| {
        // As in the code of Llama: by wavelengths.
        let wavelength = TAU / theta;
        let smooth = (512.0 / wavelength - 1.0) / (4.0 - 1.0);
        match wavelength {
            w if w < 512.0 / 4.0 => *theta,
            w if w > 512.0 / 1.0 => theta / 8.0,
            _ => (1.0 - smooth) * theta / 8.0 + smooth * theta,
        }
    });
    same("llama 3 by hand", &column(frequencies.clone()), &column(want.collect()));
    assert!((0..32).any(|m| frequencies[m] < none[m] && frequencies[m] > none[m] / 8.0));
}

#[test]
fn sinusoidal_positions_equal_their_formula() {
    let table: Tensor<f64> = SinusoidalPositions::default().table(3, 2, 5);
    let want = Tensor::from_fn([2, 5], |i| {
        let p = 3.0 + i[0] as f64;
        let w = [1.0, 1.0, 1e4f64.powf(0.4), 1e4f64.powf(0.4), 1e4f64.powf(0.8)][i[1]];
        if i[1] % 2 == 0 { (p / w).sin() } else { (p / w).cos() }
    });
    same("sinusoids by hand", &table, &want);
}

/// The cosines of the last position would take too much memory, so none are kept.
const FAR: i64 = 1 << 40;

#[test]
fn tables_that_are_kept_have_the_bits_of_computed_angles() {
    let x = constant(&[4, 8], 1);
    let rows = |rope: &Rope, positions: &[i64]| {
        let x = x.slice(0, ..positions.len());
        rope.rotate_at(&x, &Tensor::from_vec(positions.to_vec(), [positions.len()])).into_value()
    };
    let compare = |rope: &Rope, positions: &[i64]| {
        let computed = rows(&rope.clone(), &[positions, &[FAR]].concat());
        let n = positions.len();
        assert_eq!(bits(&rows(rope, positions)), bits(&computed.slice(0, ..n)), "{positions:?}");
    };
    let yarn = Rope::new(6).scaling(Scaling::Yarn(Yarn::new(4.0, 64)));
    for rope in [Rope::new(8), yarn.base(500.0)] {
        for positions in [&[0, 1, 2][..], &[5], &[1000, 7, 7], &[2]] {
            compare(&rope, positions);
        }
        // Another rotation shares nothing.
        compare(&rope.clone().base(77.0), &[9]);
        compare(&rope.clone().scaling(Scaling::Linear { factor: 3.0 }), &[9]);
        compare(&rope.without_attention_factor(), &[9]);
    }
}

#[test]
fn tables_are_shared_and_have_a_largest_size() {
    let rope = Rope::new(4);
    let clone = rope.clone();
    let kept = |rope: &Rope, position: i64| {
        rope.rotate_at(&constant(&[1, 4], 1), &Tensor::from([position]));
        rope.kept_positions()
    };
    assert_eq!(rope.kept_positions(), 0);
    assert_eq!([kept(&rope, 100), kept(&clone, 127)], [128, 128]);
    assert_eq!([kept(&rope, 128), clone.kept_positions()], [256, 256]);
    assert_eq!([kept(&rope, 1 << 17), kept(&rope, i64::MAX), kept(&rope, 3)], [256; 3]);
    rope.rotate_at(&constant(&[0, 4], 1), &Tensor::zeros([0]));
    rope.rotate_at(&constant(&[2, 4], 1), &Tensor::from([-1, 3]));
    assert_eq!(rope.kept_positions(), 256);
}
