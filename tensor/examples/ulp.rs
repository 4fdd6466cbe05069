//! Measures the largest error, in units in the last place, of every `f32` function on lanes and
//! on every level this CPU has, over all bit patterns or every k-th:
//!
//!     cargo run --release -p retrograd-tensor --example ulp -- 257
//!
//! The reference is the same function in `f64`.

use rayon::prelude::*;
use retrograd_tensor::simd::{Kernel, Lanes, Level, Real};

/// The functions under test, in the order of [`NAMES`].
const NAMES: [&str; 8] = ["exp", "expm1", "ln", "log1p", "tanh", "erf", "sin", "cos"];
const EXACT: [fn(f64) -> f64; 8] =
    [f64::exp, f64::exp_m1, f64::ln, f64::ln_1p, f64::tanh, libm::erf, f64::sin, f64::cos];

/// Applies function number `which` in place to a slice of whole vectors.
struct Apply<'a> {
    which: usize,
    data: &'a mut [f32],
}

impl Kernel<f32> for Apply<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Lanes<f32>>(self, s: S) {
        for chunk in self.data.chunks_exact_mut(S::N) {
            let x = s.load(chunk);
            let y = match self.which {
                0 => <f32 as Real>::exp(s, x),
                1 => <f32 as Real>::expm1(s, x),
                2 => <f32 as Real>::ln(s, x),
                3 => <f32 as Real>::log1p(s, x),
                4 => <f32 as Real>::tanh(s, x),
                5 => <f32 as Real>::erf(s, x),
                6 => <f32 as Real>::sin(s, x),
                _ => <f32 as Real>::cos(s, x),
            };
            s.store(y, chunk);
        }
    }
}

/// Distance of `got` from `exact`, in units of the `f32` spacing at `exact`.
fn ulps(got: f32, exact: f64) -> f64 {
    let rounded = exact as f32;
    if got == rounded || got.is_nan() && rounded.is_nan() {
        // Also equal infinities; otherwise at most half a unit, measured below.
        if !rounded.is_finite() {
            return 0.0;
        }
    } else if !got.is_finite() || !rounded.is_finite() {
        return f64::INFINITY;
    }
    let exponent = (exact.abs().to_bits() >> 52) as i32 - 1023;
    let spacing = 2f64.powi(exponent.clamp(-126, 127) - 23);
    (f64::from(got) - exact).abs() / spacing
}

fn worst(level: Level, which: usize, stride: u64) -> (f64, f32) {
    const BLOCK: u64 = 1 << 12;
    let samples = (1u64 << 32).div_ceil(stride);
    (0..samples.div_ceil(BLOCK))
        .into_par_iter()
        .map(|block| {
            let input = |i: u64| f32::from_bits(((block * BLOCK + i) * stride) as u32);
            let mut data: Vec<f32> = (0..BLOCK).map(input).collect();
            f32::dispatch(level, Apply { which, data: &mut data });
            let mut worst = (0.0, 0.0);
            for (i, &got) in data.iter().enumerate() {
                let x = input(i as u64);
                let error = ulps(got, EXACT[which](x.into()));
                if error > worst.0 {
                    worst = (error, x);
                }
            }
            worst
        })
        .reduce(|| (0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a })
}

fn main() {
    let stride = std::env::args().nth(1).map_or(1, |k| k.parse().expect("a stride: 1, 2, ..."));
    println!("largest error in ULP over every {stride}-th of all f32 values");
    println!("{:8} {:8} {:>8}  at", "function", "level", "ULP");
    for (which, name) in NAMES.into_iter().enumerate() {
        for level in Level::available() {
            let (error, x) = worst(level, which, stride);
            println!("{name:8} {level:8} {error:8.3}  {x:e} ({:#010x})", x.to_bits());
        }
    }
}
