//! Skinny GEMM: a few rows times a matrix with contiguous columns, as when a model decodes the next
//! tokens of a few sequences. Every element of the matrix is used once, so it is transposed in
//! registers, square by square, instead of being packed.

use super::params::{SKINNY_PREFETCH, SKINNY_ROWS, SKINNY_SHORT, blocks, kc, lanes};
use super::products::Products;
use crate::element::Float;
use crate::matrix::{MatMut, MatRef};
use crate::simd::{F32_LANES, Kernel, Lanes, prefetch_l2};

/// `out = a · b`, or `out += a · b`, of each product, for at most [`SKINNY_ROWS`] rows `a`.
pub(super) struct SkinnyGemm<'a, T> {
    pub products: &'a Products<'a, T>,
    pub accumulate: bool,
    /// The products one below the other.
    pub out: MatMut<'a, T>,
}

impl<T: Float> SkinnyGemm<'_, T> {
    /// Whether this kernel is faster than the blocked one.
    #[inline]
    pub(super) fn is_suitable(a: &MatRef<'_, T>, b: &MatRef<'_, T>) -> bool {
        a.rows <= SKINNY_ROWS && a.col_stride == 1 && b.row_stride == 1 && b.rows >= lanes::<T>()
    }

    /// The products for at most `R` rows.
    #[inline(always)]
    fn multiply<const R: usize, S: Lanes<T>>(self, s: S) {
        let SkinnyGemm { products, accumulate, mut out } = self;
        let (m, k, n) = products.sizes();
        let kc = kc(k);
        let next_group = products.like().1.col_stride.wrapping_mul(S::N as isize);
        let ahead = if k > SKINNY_SHORT { SKINNY_PREFETCH as isize } else { next_group };
        for (i, a, b) in products.iter() {
            let mut out = out.part(i * m..(i + 1) * m, 0..n);
            for group in blocks(n, S::N) {
                let columns = b.t().part(group.clone(), 0..k);
                for pc in blocks(k, kc) {
                    let rows = RowSlices::<T, R>::new(a.part(0..m, pc.clone()));
                    let columns =
                        RowSlices::<T, F32_LANES>::new(columns.part(0..group.len(), pc.clone()));
                    let sums = dot_products(s, rows, columns, ahead);
                    // A constant number of iterations: registers cannot be indexed.
                    for i in 0..R {
                        if i < m {
                            let out = &mut out.row(i)[group.clone()];
                            let sum = match accumulate || pc.start > 0 {
                                true => s.add(s.load_or(out, T::ZERO), sums[i]),
                                false => sums[i],
                            };
                            s.store_part(sum, out);
                        }
                    }
                }
            }
        }
    }
}

impl<T: Float> Kernel<T> for SkinnyGemm<'_, T> {
    type Out = ();
    const EIGHT_F64: bool = true;

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        match self.products.sizes().0 {
            1 => self.multiply::<1, S>(s),
            2 => self.multiply::<2, S>(s),
            3 | 4 => self.multiply::<4, S>(s),
            _ => self.multiply::<8, S>(s),
        }
    }
}

/// `M` contiguous rows of equal length; a matrix with fewer rows repeats the last one.
#[derive(Clone, Copy)]
pub(super) struct RowSlices<'a, T, const M: usize> {
    rows: [&'a [T]; M],
    len: usize,
}

impl<'a, T: Float, const M: usize> RowSlices<'a, T, M> {
    #[inline(always)]
    pub(super) fn new(m: MatRef<'a, T>) -> RowSlices<'a, T, M> {
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
    unsafe fn at(&self, i: usize, p: usize) -> T {
        // SAFETY: every row has `len` elements, by `new`.
        unsafe { *self.rows[i].get_unchecked(p) }
    }

    /// `n` elements of row `i`, from element `p` on.
    ///
    /// # Safety
    /// `p + n <= len`.
    #[inline(always)]
    pub(super) unsafe fn slice(&self, i: usize, p: usize, n: usize) -> &'a [T] {
        // SAFETY: every row has `len` elements, by `new`.
        unsafe { self.rows[i].get_unchecked(p..p + n) }
    }
}

/// The dot products of `R` rows with a vector of columns: chains of fused multiply-adds. Elements `ahead` of
/// those that are read are prefetched.
#[inline(always)]
fn dot_products<T: Float, const R: usize, S: Lanes<T>>(
    s: S,
    a: RowSlices<'_, T, R>,
    columns: RowSlices<'_, T, F32_LANES>,
    ahead: isize,
) -> [S::V; R] {
    let k = a.len;
    assert_eq!(k, columns.len);
    let mut sums = [s.splat(T::ZERO); R];
    let whole = k / S::N * S::N;
    for p in (0..whole).step_by(S::N) {
        let mut block = [s.splat(T::ZERO); F32_LANES];
        for t in 0..S::N {
            prefetch_l2(columns.rows[t].as_ptr().wrapping_add(p).wrapping_offset(ahead));
            // SAFETY: `p + N <= whole <= k`, the length of both.
            block[t] = s.load(unsafe { columns.slice(t, p, S::N) });
        }
        let block = s.transpose(block);
        for t in 0..S::N {
            for i in 0..R {
                // SAFETY: `p + t < p + N <= k`, the length of both.
                let x = unsafe { a.at(i, p + t) };
                sums[i] = s.fma(s.splat(x), block[t], sums[i]);
            }
        }
    }
    for p in whole..k {
        let mut column = [T::ZERO; F32_LANES];
        for t in 0..S::N {
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
