//! Errors of operations on rows, forward and backward: f32 on every level against f64, in units in the last place of
//! the largest element of a row.

use retrograd_autograd::Var;
use retrograd_tensor::ops::loss::{CrossEntropy, Reduction};
use retrograd_tensor::random::Rng;
use retrograd_tensor::settings::with_level;
use retrograd_tensor::simd::Level;
use retrograd_tensor::{Real, Tensor};

/// An operation on the last axis, and the bounds of its value and its gradient. Errors of gradients below `floor` in
/// magnitude are in ULP of the floor: those of probabilities near 1 cancel.
struct RowOperation {
    name: &'static str,
    f32: fn(&Var<f32>) -> Var<f32>,
    f64: fn(&Var<f64>) -> Var<f64>,
    bounds: [f64; 2],
    floor: f64,
}

macro_rules! operations {
    ($($name:literal |$x:ident| $f:expr, $bounds:expr, $floor:expr;)+) => {
        &[$(RowOperation { name: $name, f32: |$x| $f, f64: |$x| $f, bounds: $bounds, floor: $floor }),+]
    };
}

const OPERATIONS: &[RowOperation] = operations![
    "softmax" |x| x.softmax(-1), [3.0, 5.0], 0.25;
    // The gradients have e^(x - l), with a rounded logarithm l of up to 130.
    "log_softmax" |x| x.log_softmax(-1), [1.5, 64.0], TINY;
    "logsumexp" |x| x.logsumexp(-1), [1.5, 64.0], TINY;
    "cross_entropy" |x| x.cross_entropy(&targets(x.value()), each()), [1.5, 1.5], 1.0;
    "layer_norm" |x| x.layer_norm(None, None, 1e-5), [3.0, 3.0], TINY;
    "rms_norm" |x| x.rms_norm(None, 1e-5), [2.0, 3.0], TINY;
    "normalize" |x| x.normalize(-1, 2.0, 1e-12), [2.0, 3.0], TINY;
    "var" |x| x.var(-1, 0), [3.0, 2.0], TINY;
];

const TINY: f64 = f32::MIN_POSITIVE as f64;

fn each() -> CrossEntropy {
    CrossEntropy { reduction: Reduction::None, ..CrossEntropy::default() }
}

fn targets<T: Real>(x: &Tensor<T>) -> Tensor<i64> {
    Tensor::from_fn([x.size(0)], |i| (7 * i[0] % x.size(-1)) as i64)
}

/// The value, and the gradient of its product with a wave.
fn outcome<T: Real>(f: fn(&Var<T>) -> Var<T>, x: &Tensor<f32>) -> [Vec<f64>; 2] {
    let of = |x: &[f32]| x.iter().map(|&x| T::from_f64(x.into())).collect::<Vec<T>>();
    let list = |y: &Tensor<T>| y.to_vec().into_iter().map(T::to_f64).collect();
    let x = Var::leaf(Tensor::from_vec(of(x.as_slice()), *x.shape()));
    let y = f(&x);
    let wave: Vec<f32> = (0..y.value().numel()).map(|i| (i as f32 * 0.7).sin()).collect();
    let grads = y.backward_with(&Tensor::from_vec(of(&wave), y.shape()));
    [list(y.value()), list(grads.get(&x).unwrap())]
}

/// The largest error in a row, in ULP of f32 at the largest element of that row.
fn ulps(got: &[f64], want: &[f64], rows: usize, floor: f64) -> f64 {
    let width = want.len() / rows;
    let of_row = |(got, want): (&[f64], &[f64])| {
        let largest = want.iter().fold(floor, |m, x| m.max(x.abs()));
        let error = got.iter().zip(want).fold(0.0, |m: f64, (a, b)| m.max((a - b).abs()));
        error / (largest.log2().floor() - 23.0).exp2()
    };
    got.chunks(width).zip(want.chunks(width)).map(of_row).fold(0.0, f64::max)
}

#[test]
fn errors_of_rows_are_within_their_documented_bounds() {
    const ROWS: usize = 3;
    let scales = [1e-3f32, 1.0, 30.0];
    let widths = (8..=130).chain([255, 256, 257, 768, 1000, 4096]);
    let inputs: Vec<Tensor<f32>> = widths
        .flat_map(|n| {
            scales.map(|s| Tensor::randn([ROWS, n], &mut Rng::new(n as u64)).mul_scalar(s))
        })
        .collect();
    for op in OPERATIONS {
        let mut worst = [0.0f64; 2];
        for x in &inputs {
            let want = outcome(op.f64, x);
            for level in Level::available() {
                let got = with_level(level, || outcome(op.f32, x));
                for i in 0..2 {
                    worst[i] = worst[i].max(ulps(&got[i], &want[i], ROWS, op.floor));
                }
            }
        }
        println!("{:14} value {:6.2} ULP, gradient {:6.2} ULP", op.name, worst[0], worst[1]);
        let [value, gradient] = op.bounds;
        assert!(worst[0] <= value && worst[1] <= gradient, "{}: {worst:?} ULP", op.name);
    }
}
