//! Threads around matrix products: the one door that matmul goes through.

use super::cut::{Cut, Work};
use crate::error::OrPanic;
pub use crate::gemm::{Finish, Then};
pub use crate::matrix::{MatMut, MatRef};
use crate::par::{self, Cost};
use crate::precision::MatmulPrecision;
use crate::simd::Real;
use crate::storage::Storage;

/// `out = a · b`, or `out += a · b` if `add`, for each pair, all of the same sizes; `out` holds
/// the products row-major one after the other.
///
/// Several products are shared out whole. A few are cut into blocks, or, if they are small and
/// their sums long, each sum into parts. Bits of `f32` do not depend on it.
///
/// # Panics
/// If sizes do not agree or an operand leaves its slice.
#[inline(never)]
pub fn gemm<T: Real>(pairs: &[(MatRef<'_, T>, MatRef<'_, T>)], add: bool, out: &mut [T]) {
    let Some((a, b)) = pairs.first() else {
        return;
    };
    let (m, k, n) = (a.rows, a.cols, b.cols);
    assert!(pairs.iter().all(|(a, b)| (a.rows, a.cols, b.rows, b.cols) == (m, k, k, n)));
    assert_eq!(out.len(), pairs.len() * m * n, "gemm: size of the output");
    if out.is_empty() {
        return;
    }
    let precision = T::precision(k, n);
    let cost = cost(m, k, precision);
    if pairs.len() >= 4 {
        let per = par::products_per_chunk(cost, m * n);
        par::fill(out, per * m * n, cost, |first, out| {
            let some = &pairs[first / (m * n)..];
            for ((a, b), out) in some.iter().zip(out.chunks_exact_mut(m * n)) {
                T::gemm_then(*a, *b, add, MatMut::new(out, m, n), None, precision);
            }
        });
    } else {
        for ((a, b), out) in pairs.iter().zip(out.chunks_exact_mut(m * n)) {
            one(*a, *b, add, out, None, precision);
        }
    }
}

/// `out = a · b`, and what `finish` makes of it, and of a second result of the same size if there
/// is one, while it lies in the cache.
///
/// # Panics
/// If sizes do not agree or an operand leaves its slice.
#[inline(never)]
pub fn gemm_then<T: Real>(
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    finish: &dyn Finish<T>,
    out: &mut [T],
    also: Option<&mut [T]>,
) {
    let (m, k, n) = (a.rows, a.cols, b.cols);
    assert_eq!(out.len(), m * n, "gemm: size of the output");
    if out.is_empty() {
        return;
    }
    let also = also.map(|also| MatMut::new(also, m, n));
    let then = Then { finish, at: (0, 0), also };
    one(a, b, false, out, Some(then), T::precision(k, n));
}

/// Picoseconds per element of a product of `m` rows, which share the right matrix between them.
fn cost(m: usize, k: usize, precision: MatmulPrecision) -> Cost {
    let per_term = match precision {
        MatmulPrecision::F32 => 16, // about 120 GFLOP/s
        MatmulPrecision::Bf16x6 => 7,
        MatmulPrecision::Bf16x3 => 4,
        MatmulPrecision::Bf16 => 2,
    };
    const BRING: usize = 130; // a number of the right matrix
    Cost(u32::try_from(k * (per_term + BRING / m)).unwrap_or(u32::MAX).saturating_add(200))
}

fn one<T: Real>(
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    add: bool,
    out: &mut [T],
    then: Option<Then<'_, T>>,
    precision: MatmulPrecision,
) {
    let (m, k, n) = (a.rows, a.cols, b.cols);
    let cost = cost(m, k, precision);
    if !par::worth(cost, m * n) {
        return T::gemm_then(a, b, add, MatMut::new(out, m, n), then, precision);
    }
    let (rows, cols) = match Work::new(&a, &b, T::depth(k), precision).cut(par::threads()) {
        Cut::Blocks { rows, cols } => (rows, cols),
        Cut::Sums { depth } => {
            by_parts_of_the_sum(a, b, depth, add, out, precision);
            return then.into_iter().for_each(|then| then.run(MatMut::new(out, m, n)));
        }
    };
    let blocks = MatMut::new(out, m, n).blocks(rows, cols);
    let (finish, also) = then.map_or((None, None), |then| (Some(then.finish), then.also));
    let mut alsos = also.map(|also| also.blocks(rows, cols).into_iter());
    let mut also = || alsos.as_mut().and_then(Iterator::next).map(|(_, _, also)| also);
    let work = blocks.into_iter().map(|block| (block, also())).collect();
    par::each(work, rows * cols, cost, |((i, j, out), also)| {
        let (a, b) = (a.part(i..i + out.rows(), 0..k), b.part(0..k, j..j + out.cols()));
        let then = finish.map(|finish| Then { finish, at: (i, j), also });
        T::gemm_then(a, b, add, out, then, precision);
    });
}

/// A small product of long rows and columns: parts of the sum are made at the same time, and
/// added in order. They are those parts that are added in order without threads, too.
fn by_parts_of_the_sum<T: Real>(
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    depth: usize,
    add: bool,
    out: &mut [T],
    precision: MatmulPrecision,
) {
    let (m, k, n) = (a.rows, a.cols, b.cols);
    let mut parts = Storage::recycled("matmul", k.div_ceil(depth) * m * n).or_panic();
    par::fill(&mut parts, m * n, cost(m, depth, precision), |first, part| {
        let sum = first / (m * n) * depth..k.min((first / (m * n) + 1) * depth);
        let (a, b) = (a.part(0..m, sum.clone()), b.part(sum, 0..n));
        T::gemm_then(a, b, false, MatMut::new(part, m, n), None, precision);
    });
    let cost = Cost(u32::try_from(parts.len() / (m * n)).unwrap_or(u32::MAX).saturating_mul(100));
    par::fill(out, par::chunk_len(cost), cost, |first, out| {
        for (i, part) in parts.chunks_exact(m * n).enumerate() {
            let part = &part[first..][..out.len()];
            match i == 0 && !add {
                true => out.copy_from_slice(part),
                false => out.iter_mut().zip(part).for_each(|(x, y)| *x += *y),
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;
    use crate::tensor::Tensor;
    use crate::{simd, with_threads};

    #[test]
    fn parts_of_sums_are_added_as_one_thread_adds_them() {
        let (m, k, n) = (150, 4100, 160); // more than one chunk of additions
        let [a, b] = [[m, k], [k, n]].map(|shape| Tensor::<f32>::randn(shape, &mut Rng::new(1)));
        let (a, b) = (MatRef::new(a.as_slice(), m, k), MatRef::new(b.as_slice(), k, n));
        for level in simd::Level::available().into_iter().filter(|&l| l != simd::Level::Scalar) {
            for add in [false, true] {
                let [mut one, mut parts] = [(); 2].map(|()| vec![0.5_f32; m * n]);
                simd::with_level(level, || {
                    let depth = <f32 as crate::gemm::Product>::depth(k).expect("known");
                    <f32 as crate::gemm::Product>::gemm(a, b, add, MatMut::new(&mut one, m, n));
                    with_threads(3, || {
                        by_parts_of_the_sum(a, b, depth, add, &mut parts, MatmulPrecision::F32);
                    });
                });
                assert_eq!(one, parts, "{level}, add {add}");
            }
        }
    }
}
