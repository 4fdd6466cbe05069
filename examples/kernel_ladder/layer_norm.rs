//! `y = (x - mean x) / √(var x + ε) · w` for every row. It takes two sums and a few operations per
//! element, so the vectorised kernel is bound by memory bandwidth.

use crate::ladder::{Bound, Ladder, Rung};
use crate::softmax::COLS;
use retrograd::prelude::{Rng, Tensor};
use retrograd::tensor::Real;
use retrograd::tensor::cost::Cost;
use retrograd::tensor::par;
use retrograd::tensor::settings::level;
use retrograd::tensor::simd::{Kernel, Lanes};

const EPS: f32 = 1e-5;

pub fn ladder(rows: usize) -> Ladder {
    let mut rng = Rng::new(1);
    let x = Tensor::<f32>::randn([rows, COLS], &mut rng);
    let w = Tensor::<f32>::rand([COLS], &mut rng);
    let rung = |name, what, f: fn(&[f32], &[f32], &mut [f32])| {
        let (x, w) = (x.to_vec(), w.to_vec());
        Rung::new(name, what, move |y| f(&x, &w, y))
    };
    let given = (x.clone(), w.clone());
    let ours = move || given.0.layer_norm(Some(&given.1), None, EPS.into());
    Ladder {
        title: format!("layer_norm, {rows} rows of {COLS}"),
        bound: Bound::Bytes((2 * 4 * rows * COLS) as f64),
        outputs: rows * COLS,
        rungs: vec![
            rung("naive", "each formula for the whole matrix, one after the other", naive),
            rung("row by row", "a row stays in the L1 cache until it is done", row_by_row),
            rung("one pass", "both sums in one pass, of values shifted to near 0", one_pass),
            rung(
                "many sums",
                "16 independent sums of each, which hides the latency of additions",
                many_sums,
            ),
            rung("vectorised", "the widest registers, fused multiply-adds", vectorised),
            rung("threaded", "rows are distributed over all threads", threaded).threaded(),
            Rung::ours("ours", "this library, which allocates the result", ours),
        ],
    }
}

/// The formula as written. The matrix is read from memory four times and written twice.
fn naive(x: &[f32], w: &[f32], y: &mut [f32]) {
    let rows = || x.chunks_exact(COLS);
    let mean: Vec<f32> = rows().map(|x| x.iter().sum::<f32>() / COLS as f32).collect();
    for ((x, y), mean) in rows().zip(y.chunks_exact_mut(COLS)).zip(&mean) {
        x.iter().zip(y).for_each(|(x, y)| *y = x - mean);
    }
    let squares = |y: &[f32]| y.iter().map(|y| y * y).sum::<f32>();
    let var: Vec<f32> = y.chunks_exact(COLS).map(|y| squares(y) / COLS as f32).collect();
    for (y, var) in y.chunks_exact_mut(COLS).zip(var) {
        y.iter_mut().zip(w).for_each(|(y, w)| *y = *y / (var + EPS).sqrt() * w);
    }
}

fn row_by_row(x: &[f32], w: &[f32], y: &mut [f32]) {
    for (x, y) in x.chunks_exact(COLS).zip(y.chunks_exact_mut(COLS)) {
        naive(x, w, y);
    }
}

/// `var x = mean (x - a)² - (mean x - a)²` for any `a`. The difference cancels if `|mean x - a|` is
/// much larger than the standard deviation, so `a` is the first element of the row.
fn one_pass(x: &[f32], w: &[f32], y: &mut [f32]) {
    for (x, y) in x.chunks_exact(COLS).zip(y.chunks_exact_mut(COLS)) {
        let (near, mut sum, mut squares) = (x[0], 0.0, 0.0);
        for x in x {
            sum += x - near;
            squares += (x - near) * (x - near);
        }
        write(x, w, y, near, sum, squares);
    }
}

/// Writes the output, from the sums of `x - near` and of their squares.
fn write(x: &[f32], w: &[f32], y: &mut [f32], near: f32, sum: f32, squares: f32) {
    let off = sum / COLS as f32;
    let scale = 1.0 / (squares / COLS as f32 - off * off + EPS).sqrt();
    for ((x, w), y) in x.iter().zip(w).zip(y) {
        *y = (x - near - off) * scale * w;
    }
}

/// An addition has a latency of four cycles, and two can start in every cycle: a single sum is bound by
/// the latency. The compiler may not reorder additions, because rounding would differ.
fn many_sums(x: &[f32], w: &[f32], y: &mut [f32]) {
    const MANY: usize = 16;
    for (x, y) in x.chunks_exact(COLS).zip(y.chunks_exact_mut(COLS)) {
        let (near, mut sums, mut squares) = (x[0], [0.0; MANY], [0.0; MANY]);
        for x in x.chunks_exact(MANY) {
            for i in 0..MANY {
                sums[i] += x[i] - near;
                squares[i] += (x[i] - near) * (x[i] - near);
            }
        }
        write(x, w, y, near, sums.iter().sum(), squares.iter().sum());
    }
}

fn vectorised(x: &[f32], w: &[f32], y: &mut [f32]) {
    f32::dispatch(level(), Vectorised(x, w, y));
}

struct Vectorised<'a>(&'a [f32], &'a [f32], &'a mut [f32]);

impl Kernel<f32> for Vectorised<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Lanes<f32>>(self, s: S) {
        let Vectorised(x, w, y) = self;
        for (x, y) in x.chunks_exact(COLS).zip(y.chunks_exact_mut(COLS)) {
            let near = s.splat(x[0]);
            let (mut sums, mut squares) = ([s.splat(0.0); 4], [s.splat(0.0); 4]);
            for x in x.chunks_exact(4 * S::N) {
                for i in 0..4 {
                    let x = s.sub(s.load(&x[i * S::N..]), near);
                    sums[i] = s.add(sums[i], x);
                    squares[i] = s.fma(x, x, squares[i]);
                }
            }
            let all = |v: [S::V; 4]| s.sum(s.add(s.add(v[0], v[1]), s.add(v[2], v[3])));
            let off = all(sums) / COLS as f32;
            let scale = 1.0 / (all(squares) / COLS as f32 - off * off + EPS).sqrt();
            let (mean, scale) = (s.add(near, s.splat(off)), s.splat(scale));
            let parts = x.chunks_exact(S::N).zip(w.chunks_exact(S::N));
            for ((x, w), y) in parts.zip(y.chunks_exact_mut(S::N)) {
                let x = s.sub(s.load(x), mean);
                s.store(s.mul(s.mul(x, scale), s.load(w)), y);
            }
        }
    }
}

/// One core cannot use the full memory bandwidth.
fn threaded(x: &[f32], w: &[f32], y: &mut [f32]) {
    const ROWS: usize = 32;
    let parallel = Cost(u32::MAX); // at any size
    par::fill(y, ROWS * COLS, parallel, |first, y| vectorised(&x[first..][..y.len()], w, y));
}
