//! A few rows times a matrix whose columns lie in order, as when a model writes the next tokens of
//! a few texts: every number of the matrix is read once, so nothing is copied first.

use super::blocks::{depth, ranges};
use crate::matrix::{MatMut, MatRef};
use crate::simd::{F32_LANES as N, Kernel, Lanes, prefetch};

/// Numbers of a matrix that is far away: a megabyte.
const FAR: usize = 1 << 18;
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
    /// Whether this is the faster way: transposing columns in registers beats packing them for one
    /// or two rows, and for up to eight if the matrix (a thread's share of it) is a large part of a
    /// second cache.
    pub(super) fn suits(a: &MatRef<'_, f32>, b: &MatRef<'_, f32>) -> bool {
        let most = if b.rows * b.cols >= FAR { 8 } else { 2 };
        a.rows <= most && b.row_stride == 1 && b.rows >= N
    }

    /// The product for at most `R` rows, with `V` vectors of columns side by side, so that chains
    /// of multiply-adds need not wait.
    #[inline(always)]
    fn multiply<const R: usize, const V: usize, S: Lanes<f32>>(self, s: S) {
        let Few { a, b, add, mut out } = self;
        let (width, columns) = (V * N, b.t());
        for group in ranges(b.cols, width) {
            let columns = columns.part(group.clone(), 0..b.rows);
            for sum in ranges(a.cols, depth(a.cols)) {
                let (a, columns) =
                    (a.part(0..a.rows, sum.clone()), columns.part(0..columns.rows, sum.clone()));
                let sums = chains::<R, V, S>(s, a, columns);
                // A constant number of turns, as below: registers have no index.
                for i in 0..R {
                    for v in 0..V {
                        if i < a.rows && v * N < group.len() {
                            let end = group.end.min(group.start + (v + 1) * N);
                            let out = &mut out.row(i)[group.start + v * N..end];
                            let old = add || sum.start > 0;
                            let new = match old {
                                true => s.add(s.load_or(out, 0.0), sums[i][v]),
                                false => sums[i][v],
                            };
                            s.store_part(new, out);
                        }
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
            1 => self.multiply::<1, 2, S>(s),
            2 => self.multiply::<2, 2, S>(s),
            3 | 4 => self.multiply::<4, 1, S>(s),
            _ => self.multiply::<8, 1, S>(s),
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
        // A constant number of turns, so that the compiler keeps `sums` in registers.
        for v in 0..V {
            if v * N < rows.rows {
                let square = s.transpose(load_square(s, rows, v * N, p));
                for t in 0..N {
                    for i in 0..R {
                        sums[i][v] = s.fma(s.splat(terms[i][t]), square[t], sums[i][v]);
                    }
                }
            }
        }
    }
    for p in whole..a.cols {
        for v in 0..V {
            let mut column = [0.0; N];
            for t in 0..N.min(rows.rows.saturating_sub(v * N)) {
                column[t] = rows.at(v * N + t, p);
            }
            let column = s.load(&column);
            for i in 0..R {
                let term = if i < a.rows { a.at(i, p) } else { 0.0 };
                sums[i][v] = s.fma(s.splat(term), column, sums[i][v]);
            }
        }
    }
    sums
}

/// A vector of each of `N` rows from `first` on, from place `p` on; 0 where there is no such row.
#[inline(always)]
fn load_square<S: Lanes<f32>>(s: S, rows: MatRef<'_, f32>, first: usize, p: usize) -> [S::V; N] {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rows_and_columns_in_order_are_for_it() {
        let (k, n) = (512, FAR / 512);
        let data = vec![0.0; 9 * k + k * n];
        let a = |rows| MatRef::new(&data[..rows * k], rows, k);
        let far = MatRef::new(&data[..n * k], n, k);
        let near = far.part(0..n - 1, 0..k);
        assert!(Few::suits(&a(1), &near.t()) && Few::suits(&a(2), &near.t()));
        assert!(!Few::suits(&a(3), &near.t()) && Few::suits(&a(3), &far.t()));
        assert!(Few::suits(&a(8), &far.t()) && !Few::suits(&a(9), &far.t()));
        assert!(!Few::suits(&a(1), &MatRef::new(&data[..n * k], k, n)), "rows in order");
    }
}
