//! Helpers of the tests: random shapes and values, unusual layouts, and comparison by bits.
#![allow(dead_code)] // no test uses all of it

#[cfg(unix)]
pub mod guard;

use proptest::prelude::*;
use proptest::sample::select;
use retrograd_tensor::settings::with_level;
use retrograd_tensor::simd::Level;
use retrograd_tensor::{Real, Tensor, with_threads};

/// Sizes around the widths of vectors and blocks, and the special cases 0 and 1.
const SIZES: [usize; 17] = [0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65];
const MAX_NUMEL: usize = 4096;

/// Shapes of at most `rank` axes and 4096 elements.
pub fn shapes(rank: usize) -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![1 => Just(0), 3 => Just(1), 20 => select(&SIZES[2..])];
    prop::collection::vec(size, 0..=rank).prop_map(|mut dims| {
        for i in 0..dims.len() {
            let product = |d: &[usize]| d.iter().map(|&d| d.max(1)).product::<usize>();
            while product(&dims) > MAX_NUMEL {
                dims[i] = dims[i].div_ceil(2);
                if dims[i] <= 2 {
                    break;
                }
            }
        }
        dims
    })
}

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    pub fn normals<T: Real>(&mut self, dims: &[usize]) -> Tensor<T> {
        Tensor::from_fn(dims, |_| T::from_f64(self.normal()))
    }

    /// Mostly normal; some large, some tiny, some special, all exact in f32.
    pub fn adversarial(&mut self) -> f64 {
        let x = match self.below(20) {
            0..12 => self.normal(),
            12..15 => (self.unit() - 0.5) * 2000.0,
            15..17 => {
                let magnitude = 10f64.powf(self.unit() * 76.0 - 38.0);
                if self.below(2) == 0 { magnitude } else { -magnitude }
            }
            _ => SPECIAL[self.below(SPECIAL.len())].into(),
        };
        (x as f32).into()
    }

    pub fn adversarial_values<T: Real>(&mut self, dims: &[usize]) -> Tensor<T> {
        Tensor::from_fn(dims, |_| T::from_f64(self.adversarial()))
    }
}

/// Special values.
pub const SPECIAL: [f32; 28] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::MAX,
    f32::MIN,
    f32::MIN_POSITIVE,
    -f32::MIN_POSITIVE,
    1e-45,
    -1e-45,
    1e-40,
    -3e-39,
    16_777_216.0,
    16_777_215.0,
    88.722_8,
    88.722_84,
    -87.3365,
    -103.97,
    -104.1,
    1e4,
    -1e4,
    1e30,
    -1e30,
];

/// The bits of a value, the same for every NaN.
pub fn bits<T: Real>(x: &Tensor<T>) -> Vec<u64> {
    let of = |x: &T| if x.is_nan() { u64::MAX } else { x.to_f64().to_bits() };
    x.to_vec().iter().map(of).collect()
}

/// Equal shapes and equal bits.
#[track_caller]
pub fn same<T: Real>(what: &str, got: &Tensor<T>, want: &Tensor<T>) {
    assert_eq!(got.shape(), want.shape(), "shape of {what}");
    let (g, w) = (bits(got), bits(want));
    if let Some(i) = (0..g.len()).find(|&i| g[i] != w[i]) {
        let (g, w) = (got.to_vec()[i], want.to_vec()[i]);
        panic!("{what}, {:?}: element {i} is {g:?}, not {w:?}", got.shape());
    }
}

/// The spacing of floats of type `T` at `y`.
pub fn ulp<T: Real>(y: f64) -> f64 {
    let (digits, lowest) = if T::EPSILON.to_f64() > 1e-10 { (23, -126) } else { (52, -1022) };
    let exponent = (y.abs().to_bits() >> 52) as i32 - 1023;
    // `powi` would be 0 where it is subnormal.
    f64::from(exponent.max(lowest) - digits).exp2()
}

/// Whether the error of a result is within `bound`; infinities and NaN must be equal after rounding
/// to `T`.
pub fn near<T: Real>(got: T, exact: f64, bound: f64) -> bool {
    let (got, rounded) = (got.to_f64(), T::from_f64(exact).to_f64());
    if got.is_nan() || rounded.is_nan() {
        return got.is_nan() && rounded.is_nan();
    }
    if got.is_infinite() || rounded.is_infinite() {
        // A value near the largest number may round either way.
        return got == rounded || T::from_f64(exact * (1.0 + 1e-6)).to_f64() == got;
    }
    (got - exact).abs() <= bound
}

/// The same logical tensor in unusual layouts; gaps between its elements are NaN.
pub fn layouts<T: Real>(x: &Tensor<T>) -> Vec<(&'static str, Tensor<T>)> {
    let dims = x.shape().to_vec();
    let nan = Tensor::scalar(T::NAN);
    let mut out = vec![("contiguous", x.contiguous())];
    let n = x.numel();
    let flat = x.flatten();
    let buffer = Tensor::from_fn([n + 5], |i| match i[0] {
        i if i >= 3 && i < n + 3 => flat.at(&[i - 3]),
        _ => nan.item(),
    });
    out.push(("offset", buffer.slice(0, 3..n + 3).reshape(&dims)));
    if x.rank() == 0 {
        return out;
    }
    let order: Vec<isize> = (0..x.rank() as isize).rev().collect();
    let turned = x.permute(&order);
    let turned = Tensor::from_vec(turned.to_vec(), *turned.shape());
    out.push(("transposed", turned.permute(&order)));
    let last = x.size(-1);
    let wider = |width: usize, place: &dyn Fn(usize) -> Option<usize>| {
        let mut wide = dims.clone();
        *wide.last_mut().unwrap() = width;
        Tensor::from_fn(wide, |i| {
            let mut i = i.to_vec();
            match place(*i.last().unwrap()) {
                Some(j) => {
                    *i.last_mut().unwrap() = j;
                    x.at(&i)
                }
                None => nan.item(),
            }
        })
    };
    let step = wider(2 * last + 1, &|j| (j % 2 == 1).then_some(j / 2));
    out.push(("step 2", step.slice_step(-1, 1.., 2)));
    let padded = wider(last + 3, &|j| j.checked_sub(1).filter(|&j| j < last));
    out.push(("padded rows", padded.narrow(-1, 1, last)));
    let flipped = x.flip(0).flip(-1);
    let flipped = Tensor::from_vec(flipped.to_vec(), dims.as_slice());
    out.push(("flipped", flipped.flip(-1).flip(0)));
    for (name, view) in &out {
        same(&format!("the test's own layout {name}"), view, x);
    }
    out
}

/// The levels whose bits must be equal.
pub fn fused() -> Vec<Level> {
    Level::available().into_iter().filter(|l| l.is_fused()).collect()
}

/// Runs `f` with 1, 2 and 4 threads on every level that fuses, and once on the scalar level;
/// all results but the last must have the same bits. Returns it and the scalar one.
#[track_caller]
pub fn everywhere<T: Real>(what: &str, f: impl Fn() -> Tensor<T> + Sync) -> (Tensor<T>, Tensor<T>) {
    let run = |level, threads| with_level(level, || with_threads(threads, &f));
    let scalar = run(Level::Scalar, 1);
    same(&format!("{what}, scalar, 2 threads"), &run(Level::Scalar, 2), &scalar);
    let levels = fused();
    let Some(&first) = levels.first() else {
        return (scalar.clone(), scalar);
    };
    let want = run(first, 1);
    for &level in &levels {
        for threads in [1, 2, 4] {
            same(&format!("{what}, {level}, {threads} threads"), &run(level, threads), &want);
        }
    }
    (want, scalar)
}

/// All indices of a shape in row-major order.
pub fn indices(dims: &[usize]) -> Vec<Vec<usize>> {
    dims.iter().fold(vec![vec![]], |all, &d| {
        all.iter().flat_map(|i| (0..d).map(move |j| [&i[..], &[j]].concat())).collect()
    })
}
