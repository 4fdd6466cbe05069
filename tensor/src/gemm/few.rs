//! A few rows times a matrix whose columns lie in order, as when a model writes the next tokens of
//! a few texts: every number of the matrix is read once, so nothing is copied first.

use super::blocks::{depth, ranges};
use crate::matrix::{MatMut, MatRef};
use crate::simd::{F32_LANES as N, Kernel, Lanes, prefetch};

/// How far ahead memory is asked for.
const AHEAD: usize = 8 * N;

/// `out = a · b`, or `out += a · b`, for a few rows `a`.
pub(super) struct Few<'a> {
    pub a: MatRef<'a, f32>,
    pub b: MatRef<'a, f32>,
    pub add: bool,
    pub out: MatMut<'a, f32>,
}

impl Few<'_> {
    /// Whether it is for such a product: columns are read and turned for one or two rows in less
    /// time than it takes to copy them, and for eight if they come from far away.
    pub(super) fn suits(a: &MatRef<'_, f32>, b: &MatRef<'_, f32>) -> bool {
        const FAR: usize = 1 << 18;
        let most = if b.rows * b.cols >= FAR { 8 } else { 2 };
        a.rows <= most && b.row_stride == 1 && b.rows >= N
    }

    /// The product for at most `R` rows, with `V` vectors of columns side by side, so that chains
    /// of multiply-adds need not wait.
    #[inline(always)]
    fn make<const R: usize, const V: usize, S: Lanes<f32>>(self, s: S) {
        let Few { a, b, add, mut out } = self;
        let (width, columns) = (V * N, b.t());
        for group in ranges(b.cols, width) {
            let columns = columns.part(group.clone(), 0..b.rows);
            for sum in ranges(a.cols, depth(a.cols)) {
                let (a, columns) =
                    (a.part(0..a.rows, sum.clone()), columns.part(0..columns.rows, sum.clone()));
                let sums = chains::<R, V, S>(s, a, columns);
                for (i, sums) in sums.into_iter().enumerate().take(a.rows) {
                    let out = &mut out.row(i)[group.clone()];
                    for (out, sums) in out.chunks_mut(N).zip(sums) {
                        let old = || s.load_or(out, 0.0);
                        let new = if add || sum.start > 0 { s.add(old(), sums) } else { sums };
                        s.store_part(new, out);
                    }
                }
            }
        }
    }
}

impl Kernel<f32> for Few<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<f32>>(self, s: S) {
        match self.a.rows {
            1 => self.make::<1, 2, S>(s),
            2 => self.make::<2, 2, S>(s),
            3 | 4 => self.make::<4, 1, S>(s),
            _ => self.make::<8, 1, S>(s),
        }
    }
}

/// The products of at most `R` rows of `a` with each of at most `V` vectors of rows that lie in
/// order: chains of fused multiply-adds.
#[inline(always)]
fn chains<const R: usize, const V: usize, S: Lanes<f32>>(
    s: S,
    a: MatRef<'_, f32>,
    rows: MatRef<'_, f32>,
) -> [[S::V; V]; R] {
    let mut sums = [[s.splat(0.0); V]; R];
    let mut terms = [[0.0; N]; R];
    let whole = a.cols / N * N;
    for p in (0..whole).step_by(N) {
        for (i, terms) in terms.iter_mut().enumerate().take(a.rows) {
            match a.col_stride {
                1 => terms.copy_from_slice(&a.row(i)[p..p + N]),
                _ => (0..N).for_each(|t| terms[t] = a.at(i, p + t)),
            }
        }
        // Not as many as there are, so that sums have places known beforehand: registers.
        for v in 0..V {
            if v * N < rows.rows {
                let square = s.transpose(square(s, rows, v * N, p));
                for t in 0..N {
                    for i in 0..R {
                        sums[i][v] = s.fma(s.splat(terms[i][t]), square[t], sums[i][v]);
                    }
                }
            }
        }
    }
    for p in whole..a.cols {
        for v in 0..rows.rows.div_ceil(N) {
            let mut column = [0.0; N];
            for (t, x) in column.iter_mut().enumerate().take(rows.rows - v * N) {
                *x = rows.at(v * N + t, p);
            }
            let column = s.load(&column);
            for i in 0..a.rows {
                sums[i][v] = s.fma(s.splat(a.at(i, p)), column, sums[i][v]);
            }
        }
    }
    sums
}

/// A vector of each of 16 rows from `first` on, from place `p` on; 0 where there is no such row.
#[inline(always)]
fn square<S: Lanes<f32>>(s: S, rows: MatRef<'_, f32>, first: usize, p: usize) -> [S::V; N] {
    let mut square = [s.splat(0.0); N];
    if rows.rows >= first + N {
        for t in 0..N {
            let x = &rows.row(first + t)[p..];
            square[t] = s.load(x);
            prefetch(x.as_ptr().wrapping_add(AHEAD));
        }
    } else {
        for t in 0..rows.rows - first {
            square[t] = s.load(&rows.row(first + t)[p..]);
        }
    }
    square
}
