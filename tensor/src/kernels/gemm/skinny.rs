//! Skinny GEMM: a few rows times a matrix with contiguous columns, as when a model decodes the next
//! tokens of a few sequences. Every element of the matrix is used once, so it is transposed in
//! registers, 16 by 16, instead of being packed.

use super::params::{SKINNY_PREFETCH, SKINNY_ROWS, blocks, kc};
use crate::matrix::{MatMut, MatRef};
use crate::simd::{F32_LANES as N, Kernel, Lanes, prefetch_l2};

/// `out = a · b`, or `out += a · b`, for at most [`SKINNY_ROWS`] rows `a`.
pub(super) struct SkinnyGemm<'a> {
    pub a: MatRef<'a, f32>,
    pub b: MatRef<'a, f32>,
    pub accumulate: bool,
    pub out: MatMut<'a, f32>,
}

impl SkinnyGemm<'_> {
    /// Whether this kernel is faster than the blocked one.
    pub(super) fn is_suitable<T>(a: &MatRef<'_, T>, b: &MatRef<'_, T>) -> bool {
        a.rows <= SKINNY_ROWS && a.col_stride == 1 && b.row_stride == 1 && b.rows >= N
    }

    /// The product for at most `R` rows.
    #[inline(always)]
    fn multiply<const R: usize, S: Lanes<f32>>(self, s: S) {
        let SkinnyGemm { a, b, accumulate, mut out } = self;
        for group in blocks(b.cols, N) {
            let columns = b.t().part(group.clone(), 0..b.rows);
            for pc in blocks(a.cols, kc(a.cols)) {
                let rows = RowSlices::<R>::new(a.part(0..a.rows, pc.clone()));
                let columns = RowSlices::<N>::new(columns.part(0..columns.rows, pc.clone()));
                let sums = dot_products(s, rows, columns);
                // A constant number of iterations: registers cannot be indexed.
                for i in 0..R {
                    if i < a.rows {
                        let out = &mut out.row(i)[group.clone()];
                        let sum = match accumulate || pc.start > 0 {
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

impl Kernel<f32> for SkinnyGemm<'_> {
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

/// `M` contiguous rows of equal length; a matrix with fewer rows repeats the last one.
#[derive(Clone, Copy)]
struct RowSlices<'a, const M: usize> {
    rows: [&'a [f32]; M],
    len: usize,
}

impl<'a, const M: usize> RowSlices<'a, M> {
    #[inline(always)]
    fn new(m: MatRef<'a, f32>) -> RowSlices<'a, M> {
        let mut rows = [m.row(m.rows - 1); M];
        for i in 0..M.min(m.rows) {
            rows[i] = m.row(i);
        }
        RowSlices { rows, len: m.cols }
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

    /// A vector of row `i`, from element `p` on; prefetches a later one.
    ///
    /// # Safety
    /// `p + N <= len`.
    #[inline(always)]
    unsafe fn vector<S: Lanes<f32>>(&self, s: S, i: usize, p: usize) -> S::V {
        prefetch_l2(self.rows[i].as_ptr().wrapping_add(p + SKINNY_PREFETCH));
        // SAFETY: every row has `len` elements, by `new`.
        s.load(unsafe { self.rows[i].get_unchecked(p..p + N) })
    }
}

/// The dot products of `R` rows with 16 columns: chains of fused multiply-adds.
#[inline(always)]
fn dot_products<const R: usize, S: Lanes<f32>>(
    s: S,
    a: RowSlices<'_, R>,
    columns: RowSlices<'_, N>,
) -> [S::V; R] {
    let k = a.len;
    assert_eq!(k, columns.len);
    let mut sums = [s.splat(0.0); R];
    let whole = k / N * N;
    for p in (0..whole).step_by(N) {
        let mut block = [s.splat(0.0); N];
        for t in 0..N {
            // SAFETY: `p + N <= whole <= k`, the length of both.
            block[t] = unsafe { columns.vector(s, t, p) };
        }
        let block = s.transpose(block);
        for t in 0..N {
            for i in 0..R {
                // SAFETY: `p + t < p + N <= k`, the length of both.
                let x = unsafe { a.at(i, p + t) };
                sums[i] = s.fma(s.splat(x), block[t], sums[i]);
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
