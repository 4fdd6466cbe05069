//! A few rows times a matrix whose columns lie in order, as when a model writes the next tokens of
//! a few texts: every number of the matrix is read once, so it is not copied first but transposed
//! in registers, 16 by 16.

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
    /// Whether this is the faster way.
    pub(super) fn suits<T>(a: &MatRef<'_, T>, b: &MatRef<'_, T>) -> bool {
        a.rows <= 8 && a.col_stride == 1 && b.row_stride == 1 && b.rows >= N
    }

    /// The product for at most `R` rows.
    #[inline(always)]
    fn multiply<const R: usize, S: Lanes<f32>>(self, s: S) {
        let Few { a, b, add, mut out } = self;
        for group in ranges(b.cols, N) {
            let columns = b.t().part(group.clone(), 0..b.rows);
            for sum in ranges(a.cols, depth(a.cols)) {
                let rows = Rows::<R>::new(a.part(0..a.rows, sum.clone()));
                let columns = Rows::<N>::new(columns.part(0..columns.rows, sum.clone()));
                let sums = chains(s, rows, columns);
                // A constant number of turns: registers have no index.
                for i in 0..R {
                    if i < a.rows {
                        let out = &mut out.row(i)[group.clone()];
                        let sum = match add || sum.start > 0 {
                            true => s.add(s.load_or(out, 0.0), sums[i]),
                            false => sums[i],
                        };
                        s.store_part(sum, out);
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
            1 => self.multiply::<1, S>(s),
            2 => self.multiply::<2, S>(s),
            3 | 4 => self.multiply::<4, S>(s),
            _ => self.multiply::<8, S>(s),
        }
    }
}

/// `M` rows of equal length; the last one again where there are fewer.
#[derive(Clone, Copy)]
struct Rows<'a, const M: usize> {
    rows: [&'a [f32]; M],
    len: usize,
}

impl<'a, const M: usize> Rows<'a, M> {
    #[inline(always)]
    fn new(m: MatRef<'a, f32>) -> Rows<'a, M> {
        let mut rows = [m.row(m.rows - 1); M];
        for i in 0..M.min(m.rows) {
            rows[i] = m.row(i);
        }
        Rows { rows, len: m.cols }
    }

    /// Element `p` of row `i`.
    ///
    /// # Safety
    /// `p < len`.
    #[inline(always)]
    unsafe fn at(&self, i: usize, p: usize) -> f32 {
        // SAFETY: every row has `len` elements, by `new`.
        unsafe { *self.rows[i].get_unchecked(p) }
    }

    /// A vector of row `i`, from element `p` on; asks for one that comes later.
    ///
    /// # Safety
    /// `p + N <= len`.
    #[inline(always)]
    unsafe fn vector<S: Lanes<f32>>(&self, s: S, i: usize, p: usize) -> S::V {
        prefetch(self.rows[i].as_ptr().wrapping_add(p + AHEAD));
        // SAFETY: every row has `len` elements, by `new`.
        s.load(unsafe { self.rows[i].get_unchecked(p..p + N) })
    }
}

/// The products of `R` rows with 16 columns: chains of fused multiply-adds.
#[inline(always)]
fn chains<const R: usize, S: Lanes<f32>>(s: S, a: Rows<'_, R>, columns: Rows<'_, N>) -> [S::V; R] {
    let k = a.len;
    assert_eq!(k, columns.len);
    let mut sums = [s.splat(0.0); R];
    let whole = k / N * N;
    for p in (0..whole).step_by(N) {
        let mut square = [s.splat(0.0); N];
        for t in 0..N {
            // SAFETY: `p + N <= whole <= k`, the length of both.
            square[t] = unsafe { columns.vector(s, t, p) };
        }
        let square = s.transpose(square);
        for t in 0..N {
            for i in 0..R {
                // SAFETY: `p + t < p + N <= k`, the length of both.
                let x = unsafe { a.at(i, p + t) };
                sums[i] = s.fma(s.splat(x), square[t], sums[i]);
            }
        }
    }
    for p in whole..k {
        let mut column = [0.0; N];
        for t in 0..N {
            // SAFETY: `p < k`, the length of both.
            column[t] = unsafe { columns.at(t, p) };
        }
        let column = s.load(&column);
        for i in 0..R {
            // SAFETY: as above.
            let x = unsafe { a.at(i, p) };
            sums[i] = s.fma(s.splat(x), column, sums[i]);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rows_and_columns_in_order_are_for_it() {
        let (k, n) = (64, 32);
        let data = vec![0.0; 16 * k + k * n];
        let a = |rows| MatRef::new(&data[..rows * k], rows, k);
        let b = MatRef::new(&data[..n * k], n, k).t();
        assert!(Few::suits(&a(1), &b) && Few::suits(&a(8), &b) && !Few::suits(&a(9), &b));
        assert!(!Few::suits(&a(1), &MatRef::new(&data[..n * k], k, n)), "rows in order");
        assert!(!Few::suits(&MatRef::new(&data[..8 * k], k, 8).t(), &b), "columns of a in order");
        let short = MatRef::new(&data[..n * 15], n, 15).t();
        assert!(!Few::suits(&MatRef::new(&data[..15], 1, 15), &short), "nothing to transpose");
    }
}
