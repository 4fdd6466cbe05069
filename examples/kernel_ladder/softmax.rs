//! `y = e^(x - max x) / Σ e^(x - max x)` for every row. Each element is read and written once, so the
//! kernel is bound by memory bandwidth if the exponentials are fast enough.

use crate::ladder::{Bound, Ladder, Rung};
use retrograd::prelude::{Rng, Tensor};
use retrograd::tensor::Real;
use retrograd::tensor::cost::Cost;
use retrograd::tensor::par;
use retrograd::tensor::settings::level;
use retrograd::tensor::simd::{Kernel, Lanes};

/// The number of elements of a row: 4 KiB.
pub const COLS: usize = 1024;

pub fn ladder(rows: usize) -> Ladder {
    let x = Tensor::<f32>::randn([rows, COLS], &mut Rng::new(1));
    let rung = |name, what, f: fn(&[f32], &mut [f32])| {
        let x = x.to_vec();
        Rung::new(name, what, move |y| f(&x, y))
    };
    let given = x.clone();
    let ours = move || given.softmax(-1);
    Ladder {
        title: format!("softmax, {rows} rows of {COLS}"),
        bound: Bound::Bytes((2 * 4 * rows * COLS) as f64),
        outputs: rows * COLS,
        rungs: vec![
            rung("naive", "each formula for the whole matrix, one after the other", naive),
            rung("row by row", "a row stays in the L1 cache until it is done", row_by_row),
            rung(
                "multiplied",
                "one division per row, multiplications by the reciprocal",
                multiplied,
            ),
            rung(
                "many sums",
                "16 independent maxima and sums, which hides their latency",
                many_sums,
            ),
            rung("vectorised", "16 exponentials at a time, by a polynomial", vectorised),
            rung("threaded", "rows are distributed over all threads", threaded).threaded(),
            Rung::ours("ours", "this library, which allocates the result", ours),
        ],
    }
}

/// The formula as written. The matrix is read from memory four times and written twice.
fn naive(x: &[f32], y: &mut [f32]) {
    let rows = || x.chunks_exact(COLS);
    let max: Vec<f32> = rows().map(|x| x.iter().copied().fold(f32::MIN, f32::max)).collect();
    for ((x, y), max) in rows().zip(y.chunks_exact_mut(COLS)).zip(&max) {
        for (x, y) in x.iter().zip(y) {
            *y = (x - max).exp();
        }
    }
    let sums: Vec<f32> = y.chunks_exact(COLS).map(|y| y.iter().sum()).collect();
    for (y, sum) in y.chunks_exact_mut(COLS).zip(sums) {
        for y in y {
            *y /= sum;
        }
    }
}

fn row_by_row(x: &[f32], y: &mut [f32]) {
    for (x, y) in x.chunks_exact(COLS).zip(y.chunks_exact_mut(COLS)) {
        naive(x, y);
    }
}

fn multiplied(x: &[f32], y: &mut [f32]) {
    for (x, y) in x.chunks_exact(COLS).zip(y.chunks_exact_mut(COLS)) {
        let max = x.iter().copied().fold(f32::MIN, f32::max);
        let mut sum = 0.0;
        for (x, y) in x.iter().zip(&mut *y) {
            *y = (x - max).exp();
            sum += *y;
        }
        let scale = 1.0 / sum;
        y.iter_mut().for_each(|y| *y *= scale);
    }
}

/// An addition has a latency of four cycles, and two can start in every cycle: a single sum is bound by
/// the latency. The compiler may not reorder additions, because rounding would differ.
fn many_sums(x: &[f32], y: &mut [f32]) {
    const MANY: usize = 16;
    for (x, y) in x.chunks_exact(COLS).zip(y.chunks_exact_mut(COLS)) {
        let mut max = [f32::MIN; MANY];
        for x in x.chunks_exact(MANY) {
            for (max, &x) in max.iter_mut().zip(x) {
                *max = if x > *max { x } else { *max };
            }
        }
        let max = max.into_iter().fold(f32::MIN, f32::max);
        let mut sums = [0.0; MANY];
        for (x, y) in x.chunks_exact(MANY).zip(y.chunks_exact_mut(MANY)) {
            for i in 0..MANY {
                y[i] = (x[i] - max).exp();
                sums[i] += y[i];
            }
        }
        let scale = 1.0 / sums.iter().sum::<f32>();
        y.iter_mut().for_each(|y| *y *= scale);
    }
}

/// Most of the time was spent in `exp` of the standard library, one call per element. On vectors it
/// takes about twelve instructions for 16 elements: see `tensor/src/simd/math.rs`.
fn vectorised(x: &[f32], y: &mut [f32]) {
    f32::dispatch(level(), Vectorised(x, y));
}

struct Vectorised<'a>(&'a [f32], &'a mut [f32]);

impl Kernel<f32> for Vectorised<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Lanes<f32>>(self, s: S) {
        for (x, y) in self.0.chunks_exact(COLS).zip(self.1.chunks_exact_mut(COLS)) {
            let mut max = [s.splat(f32::MIN); 4];
            for x in x.chunks_exact(4 * S::N) {
                for i in 0..4 {
                    max[i] = s.max(max[i], s.load(&x[i * S::N..]));
                }
            }
            let max = s.max(s.max(max[0], max[1]), s.max(max[2], max[3]));
            let max = s.splat(s.max_lane(max));
            let mut sums = [s.splat(0.0); 2];
            for (x, y) in x.chunks_exact(2 * S::N).zip(y.chunks_exact_mut(2 * S::N)) {
                for i in 0..2 {
                    let e = s.exp(s.sub(s.load(&x[i * S::N..]), max));
                    sums[i] = s.add(sums[i], e);
                    s.store(e, &mut y[i * S::N..]);
                }
            }
            let scale = s.splat(1.0 / s.sum(s.add(sums[0], sums[1])));
            for y in y.chunks_exact_mut(S::N) {
                s.store(s.mul(s.load(y), scale), y);
            }
        }
    }
}

/// One core cannot use the full memory bandwidth.
fn threaded(x: &[f32], y: &mut [f32]) {
    const ROWS: usize = 32;
    let parallel = Cost(u32::MAX); // at any size
    par::fill(y, ROWS * COLS, parallel, |first, y| vectorised(&x[first..][..y.len()], y));
}
