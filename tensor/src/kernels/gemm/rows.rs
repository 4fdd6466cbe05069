//! Products by rows: rows of `B`, multiplied by elements of `A`, are added to rows of `C`. It suits a few rows of
//! `C` and a `B` that comes from memory, which is read once, along its rows.

use super::params::{LARGE_B, ROW_ELEMENTS, ROWS, blocks, kc, scaled};
use super::products::Products;
use super::skinny::RowSlices;
use crate::element::Float;
use crate::matrix::{MatMut, MatRef};
use crate::simd::{Kernel, Lanes, prefetch_l2};

/// `out = a · b`, or `out += a · b`, of each product, for at most [`ROWS`] rows.
pub(super) struct RowGemm<'a, T> {
    pub products: &'a Products<'a, T>,
    pub accumulate: bool,
    /// The products one below the other.
    pub out: MatMut<'a, T>,
    /// A packing buffer as that of [`BlockedGemm`](super::blocked::BlockedGemm).
    pub buffer: &'a mut [T],
}

impl<T: Float> RowGemm<'_, T> {
    /// Whether this kernel is faster than the blocked one.
    #[inline]
    pub(super) fn is_suitable(a: &MatRef<'_, T>, b: &MatRef<'_, T>) -> bool {
        b.col_stride == 1 && a.rows <= ROWS && b.rows * b.cols >= LARGE_B
    }
}

impl<T: Float> Kernel<T> for RowGemm<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let RowGemm { products, accumulate, mut out, buffer } = self;
        let (m, k, n) = products.sizes();
        // As many columns as fit the L1 cache.
        let (kc, nc) = (kc(k), scaled::<T>(ROW_ELEMENTS) / m);
        for (i, a, b) in products.iter() {
            let mut out = out.part(i * m..(i + 1) * m, 0..n);
            for jc in blocks(n, nc) {
                for pc in blocks(k, kc) {
                    let (a, b) = (a.part(0..m, pc.clone()), b.part(pc.clone(), jc.clone()));
                    let mut out = out.part(0..m, jc.clone());
                    let accumulate = accumulate || pc.start > 0;
                    if !accumulate && m == 1 {
                        block(s, a, b, &mut out);
                        continue;
                    }
                    // Rows of the product may be in the same sets of the cache.
                    let sums = &mut buffer[..m * jc.len()];
                    block(s, a, b, &mut MatMut::new(sums, m, jc.len()));
                    for i in 0..m {
                        let sums = &sums[i * jc.len()..][..jc.len()];
                        write(s, out.row(i), sums, accumulate);
                    }
                }
            }
        }
    }
}

/// `out = x`, or `out += x`.
#[inline(always)]
fn write<T: Float, S: Lanes<T>>(s: S, out: &mut [T], x: &[T], accumulate: bool) {
    let mut j = 0;
    while j < out.len() {
        let place = j..out.len().min(j + S::N);
        let (out, x) = (&mut out[place.clone()], s.load_or(&x[place], T::ZERO));
        s.store_part(if accumulate { s.add(s.load_or(out, T::ZERO), x) } else { x }, out);
        j += S::N;
    }
}

/// Rows of `b` that all rows of `a` read from the L1 cache. As many are prefetched: hardware prefetchers begin
/// anew in each row.
const TOGETHER: usize = 8;

/// `out = a · b` for at most [`ROWS`] rows.
#[inline(always)]
fn block<T: Float, S: Lanes<T>>(s: S, a: MatRef<'_, T>, b: MatRef<'_, T>, out: &mut MatMut<'_, T>) {
    for rows in blocks(b.rows, TOGETHER) {
        let mut i = 0;
        while i < a.rows {
            let height = if a.rows - i >= 4 { 4 } else { (a.rows - i).min(2) };
            let mut p = rows.start;
            while p < rows.end {
                let (a, b) = (a.part(i..i + height, p..rows.end), b.part(p..rows.end, 0..b.cols));
                let out = out.part(i..i + height, 0..b.cols);
                p += match (height, rows.end - p) {
                    (1, TOGETHER) => add_rows::<T, S, 1, TOGETHER>(s, a, b, p > 0, out),
                    (1, _) => add_rows::<T, S, 1, 1>(s, a, b, p > 0, out),
                    (2, 4..) => add_rows::<T, S, 2, 4>(s, a, b, p > 0, out),
                    (2, _) => add_rows::<T, S, 2, 1>(s, a, b, p > 0, out),
                    (_, 4..) => add_rows::<T, S, 4, 4>(s, a, b, p > 0, out),
                    _ => add_rows::<T, S, 4, 1>(s, a, b, p > 0, out),
                };
            }
            i += height;
        }
    }
}

/// Adds `STEPS` rows of `b`, multiplied by elements of `a`, to each of `R` rows, one after the other:
/// a part of the chain of each element, which begins with 0 unless it `continues`. Returns `STEPS`.
#[inline(always)]
fn add_rows<T: Float, S: Lanes<T>, const R: usize, const STEPS: usize>(
    s: S,
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    continues: bool,
    mut out: MatMut<'_, T>,
) -> usize {
    let mut x = [[s.splat(T::ZERO); STEPS]; R];
    for i in 0..R {
        for p in 0..STEPS {
            x[i][p] = s.splat(a.at(i, p));
        }
    }
    assert!((out.rows(), out.cols()) == (R, b.cols));
    let rows = RowSlices::<T, STEPS>::new(b.part(0..STEPS, 0..b.cols));
    let (c, c_row) = (out.as_mut_ptr(), out.row_stride());
    let whole = b.cols / S::N * S::N;
    let ahead = b.row_stride.wrapping_mul(TOGETHER as isize);
    for j in (0..whole).step_by(S::N) {
        let mut row = [s.splat(T::ZERO); STEPS];
        for p in 0..STEPS {
            // SAFETY: `j + N <= whole <= cols`, the length of the rows.
            let x = unsafe { rows.slice(p, j, S::N) };
            prefetch_l2(x.as_ptr().wrapping_offset(ahead));
            row[p] = s.load(x);
        }
        for i in 0..R {
            // SAFETY: 1. row `i < R` of `out` has these elements; 2. it is borrowed exclusively.
            let out = unsafe { std::slice::from_raw_parts_mut(c.add(i * c_row + j), S::N) };
            let mut sum = if continues { s.load(out) } else { s.splat(T::ZERO) };
            for p in 0..STEPS {
                sum = s.fma(x[i][p], row[p], sum);
            }
            s.store(sum, out);
        }
    }
    if whole < b.cols {
        for i in 0..R {
            let out = &mut out.row(i)[whole..];
            let mut sum = if continues { s.load_or(out, T::ZERO) } else { s.splat(T::ZERO) };
            for p in 0..STEPS {
                // SAFETY: the rest of the row.
                let row = unsafe { rows.slice(p, whole, b.cols - whole) };
                sum = s.fma(x[i][p], s.load_or(row, T::ZERO), sum);
            }
            s.store_part(sum, out);
        }
    }
    STEPS
}
