//! Threads around matrix products: the one door that matmul goes through.

pub use crate::matrix::MatRef;
use crate::par::{self, Cost};
use crate::simd::Real;

/// `out = a · b + beta · out` for each pair, all of the same sizes; `out` holds the products
/// row-major one after the other, and is not read if `beta` is 0.
///
/// Several products are shared out whole. A few are cut into blocks of rows; where, depends
/// on their sizes only.
///
/// # Panics
/// If sizes do not agree or an operand leaves its slice.
pub fn gemm<T: Real>(pairs: &[(MatRef<'_, T>, MatRef<'_, T>)], beta: T, out: &mut [T]) {
    let Some((a, b)) = pairs.first() else {
        return;
    };
    let (m, k, n) = (a.rows, a.cols, b.cols);
    assert!(pairs.iter().all(|(a, b)| (a.rows, a.cols, b.rows, b.cols) == (m, k, k, n)));
    assert_eq!(out.len(), pairs.len() * m * n, "gemm: size of the output");
    if out.is_empty() {
        return;
    }
    // Picoseconds per element of the product, at about 60 GFLOP/s.
    let cost = Cost(u32::try_from(k * 33).unwrap_or(u32::MAX).saturating_add(200));
    if pairs.len() >= 4 {
        let per = par::units_per_chunk(cost, m * n);
        par::fill(out, per * m * n, cost, |first, out| {
            let some = &pairs[first / (m * n)..];
            for ((a, b), out) in some.iter().zip(out.chunks_exact_mut(m * n)) {
                T::gemm(*a, *b, beta, out);
            }
        });
    } else {
        // Every block packs `b` again, so there should be few.
        let rows = m.div_ceil(4).next_multiple_of(16).max(64).min(m);
        for ((a, b), out) in pairs.iter().zip(out.chunks_exact_mut(m * n)) {
            par::fill(out, rows * n, cost, |first, out| {
                T::gemm(a.row_block(first / n, out.len() / n), *b, beta, out);
            });
        }
    }
}
