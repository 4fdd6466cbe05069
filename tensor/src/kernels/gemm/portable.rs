//! GEMM in portable code, for every element type: rows of `B`, multiplied by elements of `A`, are added to a
//! row of the product, in loops that the compiler vectorises for the instructions that all CPUs have.

use super::params::{PORTABLE_COLUMNS, blocks, kc};
use super::products::Products;
use crate::element::Float;
use crate::loop_nest::gather;
use crate::matrix::{MatMut, MatRef};

/// Rows of the product that read a part of `B` from the L1 cache.
const ROWS: usize = 4;

/// Rows of `B` that are added in one pass over a row of the product.
const STEPS: usize = 4;

/// `out = a · b`, or `out += a · b`, of each product, one below the other.
pub(super) fn multiply<T: Float>(
    products: &Products<'_, T>,
    accumulate: bool,
    out: &mut MatMut<'_, T>,
    buffer: &mut [T],
) {
    let (m, k, n) = products.sizes();
    let (sums, packed) = buffer.split_at_mut(ROWS * PORTABLE_COLUMNS);
    let sums = sums.as_chunks_mut::<PORTABLE_COLUMNS>().0;
    for (i, a, b) in products.iter() {
        let mut out = out.part(i * m..(i + 1) * m, 0..n);
        for jc in blocks(n, PORTABLE_COLUMNS) {
            for pc in blocks(k, kc(k)) {
                let b = with_contiguous_rows(b.part(pc.clone(), jc.clone()), packed);
                let accumulate = accumulate || pc.start > 0;
                for rows in blocks(m, ROWS) {
                    let a = a.part(rows.clone(), pc.clone());
                    let out = out.part(rows, jc.clone());
                    add_rows(a, b, accumulate, sums, out);
                }
            }
        }
    }
}

/// A block, copied if its rows are not contiguous.
fn with_contiguous_rows<'a, T: Float>(b: MatRef<'a, T>, packed: &'a mut [T]) -> MatRef<'a, T> {
    if b.col_stride == 1 {
        return b;
    }
    let packed = &mut packed[..b.rows * b.cols];
    for (p, row) in packed.chunks_exact_mut(b.cols).enumerate() {
        let start = b.part(p..p + 1, 0..b.cols).offset;
        gather(b.data, start, b.col_stride, row);
    }
    MatRef::new(packed, b.rows, b.cols)
}

/// `out = a · b`, or `out += a · b`, for at most [`ROWS`] rows, each the sum of all rows of `b` multiplied by elements of `a`, in
/// their order.
fn add_rows<T: Float>(
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    accumulate: bool,
    sums: &mut [[T; PORTABLE_COLUMNS]],
    mut out: MatMut<'_, T>,
) {
    let (n, whole) = (b.cols, b.rows / STEPS * STEPS);
    for sums in &mut sums[..a.rows] {
        sums[..n].fill(T::ZERO);
    }
    for p in (0..whole).step_by(STEPS) {
        let (y0, y1) = (&b.row(p)[..n], &b.row(p + 1)[..n]);
        let (y2, y3) = (&b.row(p + 2)[..n], &b.row(p + 3)[..n]);
        for i in 0..a.rows {
            let sums = &mut sums[i][..n];
            let (x0, x1, x2, x3) = (a.at(i, p), a.at(i, p + 1), a.at(i, p + 2), a.at(i, p + 3));
            for j in 0..n {
                let sum = x1 * y1[j] + (x0 * y0[j] + sums[j]);
                sums[j] = x3 * y3[j] + (x2 * y2[j] + sum);
            }
        }
    }
    for p in whole..b.rows {
        let y = &b.row(p)[..n];
        for i in 0..a.rows {
            let (x, sums) = (a.at(i, p), &mut sums[i][..n]);
            for j in 0..n {
                sums[j] += x * y[j];
            }
        }
    }
    for i in 0..a.rows {
        let (out, sums) = (out.row(i), &sums[i][..n]);
        match accumulate {
            true => out.iter_mut().zip(sums).for_each(|(x, y)| *x += *y),
            false => out.copy_from_slice(sums),
        }
    }
}
