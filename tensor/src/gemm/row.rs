//! One row times a matrix whose columns lie in order, as when a model writes one token after the
//! other: every number of the matrix is read once, so nothing is copied first.

use super::blocks::{depth, ranges};
use crate::matrix::{MatMut, MatRef};
use crate::simd::{F32_LANES as N, Kernel, Lanes, prefetch};

/// Columns that go side by side, so that chains of multiply-adds need not wait.
const WIDTH: usize = 2 * N;
/// How far ahead memory is asked for.
const AHEAD: usize = 8 * N;

/// `out = a · b`, or `out += a · b`, for one row `a`.
pub(super) struct Row<'a> {
    pub a: MatRef<'a, f32>,
    pub b: MatRef<'a, f32>,
    pub add: bool,
    pub out: MatMut<'a, f32>,
}

impl Row<'_> {
    /// Whether it is for such a product.
    pub(super) fn suits(a: &MatRef<'_, f32>, b: &MatRef<'_, f32>) -> bool {
        a.rows == 1 && b.row_stride == 1 && b.rows >= N
    }
}

impl Kernel<f32> for Row<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<f32>>(self, s: S) {
        let Row { a, b, add, mut out } = self;
        let columns = b.t();
        for (j, out) in (0..b.cols).step_by(WIDTH).zip(out.row(0).chunks_mut(WIDTH)) {
            let columns = columns.part(j..j + out.len(), 0..b.rows);
            for sum in ranges(a.cols, depth(a.cols)) {
                let sums =
                    chains(s, a.part(0..1, sum.clone()), columns.part(0..out.len(), sum.clone()));
                for (out, sums) in out.chunks_mut(N).zip(sums) {
                    let before = || s.load_or(out, 0.0);
                    s.store_part(
                        if add || sum.start > 0 { s.add(before(), sums) } else { sums },
                        out,
                    );
                }
            }
        }
    }
}

/// The product of `a` with each of at most 32 rows that lie in order: a chain of fused
/// multiply-adds.
#[inline(always)]
fn chains<S: Lanes<f32>>(s: S, a: MatRef<'_, f32>, rows: MatRef<'_, f32>) -> [S::V; 2] {
    let mut sums = [s.splat(0.0); 2];
    let whole = a.cols / N * N;
    for p in (0..whole).step_by(N) {
        for half in 0..rows.rows.div_ceil(N) {
            let mut square = [s.splat(0.0); N];
            if rows.rows >= (half + 1) * N {
                for i in 0..N {
                    let x = &rows.row(half * N + i)[p..];
                    square[i] = s.load(x);
                    prefetch(x.as_ptr().wrapping_add(AHEAD));
                }
            } else {
                for i in 0..rows.rows - half * N {
                    square[i] = s.load(&rows.row(half * N + i)[p..]);
                }
            }
            let square = s.transpose(square);
            let mut sum = sums[half];
            for i in 0..N {
                sum = s.fma(s.splat(a.at(0, p + i)), square[i], sum);
            }
            sums[half] = sum;
        }
    }
    for p in whole..a.cols {
        for (half, sum) in sums.iter_mut().enumerate() {
            let mut column = [0.0; N];
            for i in 0..N.min(rows.rows.saturating_sub(half * N)) {
                column[i] = rows.at(half * N + i, p);
            }
            *sum = s.fma(s.splat(a.at(0, p)), s.load(&column), *sum);
        }
    }
    sums
}
