//! GEMM on all threads, and batches of products.

use super::epilogue::{Epilogue, EpilogueArgs};
use super::partition::{BATCH, Partition, Problem, partition};
use super::products::Products;
use super::report::describe;
use super::serial::Gemm;
use crate::cost::Cost;
use crate::error::OrPanic;
use crate::matrix::{MatMut, MatRef};
use crate::observe;
use crate::par;
use crate::precision::MatmulPrecision;
use crate::storage::Storage;

/// `out = a · b`, or `out += a · b` if `accumulate`, of each product; `out` is the row-major products
/// one after the other.
///
/// A batch of at least four is divided between threads product by product. Other products are
/// divided into blocks or, if they are small and have long sums, by split-K. The bits of `f32` do
/// not depend on the partition.
///
/// # Panics
/// If sizes do not agree or an operand exceeds its slice.
#[inline(never)]
pub fn gemm<T: Gemm>(products: &Products<'_, T>, accumulate: bool, out: &mut [T]) {
    let (m, k, n) = products.sizes();
    assert_eq!(out.len(), products.len() * m * n, "gemm: size of the output");
    if out.is_empty() {
        return;
    }
    if n == 1 && m > 1 && T::kc(k).is_some() {
        // A row times the transposed matrix has the same sums, and uses all lanes of a vector.
        return gemm(&products.turned(), accumulate, out);
    }
    let call = observe::begin();
    let precision = T::precision(k, n);
    if products.len() >= BATCH {
        let cost = Cost::matmul(m, k, precision);
        par::fill(out, cost.products_per_chunk(m * n) * m * n, cost, |first, out| {
            let (first, len) = (first / (m * n), out.len() / (m * n));
            let out = MatMut::new(out, len * m, n);
            T::multiply(&products.part(first..first + len), accumulate, out, None, precision);
        });
    } else {
        for (i, a, b) in products.iter() {
            let out = &mut out[i * m * n..][..m * n];
            parallel_gemm(a, b, accumulate, out, None, precision);
        }
    }
    observe::end(call, || describe(products, accumulate, precision, None));
}

/// `out = a · b`, followed by an epilogue on every block of the product, and of an auxiliary output
/// of the same size, while it is in the cache.
///
/// # Panics
/// If sizes do not agree or an operand exceeds its slice.
#[inline(never)]
pub fn gemm_with_epilogue<T: Gemm>(
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    epilogue: &dyn Epilogue<T>,
    out: &mut [T],
    aux: Option<&mut [T]>,
) {
    let (m, k, n) = (a.rows, a.cols, b.cols);
    assert_eq!(out.len(), m * n, "gemm: size of the output");
    if out.is_empty() {
        return;
    }
    let call = observe::begin();
    let aux = aux.map(|aux| MatMut::new(aux, m, n));
    let writes_aux = aux.is_some();
    let args = EpilogueArgs { epilogue, origin: (0, 0), aux };
    let precision = T::precision(k, n);
    parallel_gemm(a, b, false, out, Some(args), precision);
    observe::end(call, || {
        describe(&Products::one(a, b), false, precision, Some((epilogue, writes_aux)))
    });
}

/// One product, by several threads if it is large enough.
fn parallel_gemm<T: Gemm>(
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    accumulate: bool,
    out: &mut [T],
    epilogue: Option<EpilogueArgs<'_, T>>,
    precision: MatmulPrecision,
) {
    let (m, k, n) = (a.rows, a.cols, b.cols);
    let cost = Cost::matmul(m, k, precision);
    let Some(partition) = partition(&a, &b, precision) else {
        let out = MatMut::new(out, m, n);
        let shares = || {
            let problem = Problem::new(&a, &b, T::kc(k), precision);
            move |threads| problem.shares(threads)
        };
        return par::undivided(cost, m * n, shares, || {
            T::gemm_with_epilogue(a, b, accumulate, out, epilogue, precision);
        });
    };
    let (rows, cols) = match partition {
        Partition::Blocks { rows, cols } => (rows, cols),
        Partition::SplitK { depth } => {
            split_k(a, b, depth, accumulate, out, precision);
            return epilogue.map_or((), |epilogue| epilogue.apply(MatMut::new(out, m, n)));
        }
    };
    let blocks = MatMut::new(out, m, n).blocks(rows, cols);
    let (epilogue, aux) = epilogue.map_or((None, None), |args| (Some(args.epilogue), args.aux));
    let mut aux_blocks = aux.map(|aux| aux.blocks(rows, cols).into_iter());
    let mut next_aux = || aux_blocks.as_mut().and_then(Iterator::next).map(|(_, _, aux)| aux);
    let tasks = blocks.into_iter().map(|block| (block, next_aux())).collect();
    par::each(tasks, rows * cols, cost, |((i, j, out), aux)| {
        let (a, b) = (a.part(i..i + out.rows(), 0..k), b.part(0..k, j..j + out.cols()));
        let epilogue = epilogue.map(|epilogue| EpilogueArgs { epilogue, origin: (i, j), aux });
        T::gemm_with_epilogue(a, b, accumulate, out, epilogue, precision);
    });
}

/// A small product of long rows and columns: partial products of `depth` terms each are computed in
/// parallel and added in order, as one thread adds the blocks of a sum.
fn split_k<T: Gemm>(
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    depth: usize,
    accumulate: bool,
    out: &mut [T],
    precision: MatmulPrecision,
) {
    let (m, k, n) = (a.rows, a.cols, b.cols);
    let mut parts = Storage::recycled("matmul", k.div_ceil(depth) * m * n).or_panic();
    par::fill(&mut parts, m * n, Cost::matmul(m, depth, precision), |first, part| {
        let pc = first / (m * n) * depth..k.min((first / (m * n) + 1) * depth);
        let (a, b) = (a.part(0..m, pc.clone()), b.part(pc, 0..n));
        T::gemm_with_epilogue(a, b, false, MatMut::new(part, m, n), None, precision);
    });
    let cost = Cost::sum_of(parts.len() / (m * n));
    par::fill(out, cost.chunk_len(), cost, |first, out| {
        for (i, part) in parts.chunks_exact(m * n).enumerate() {
            let part = &part[first..][..out.len()];
            match i == 0 && !accumulate {
                true => out.copy_from_slice(part),
                false => out.iter_mut().zip(part).for_each(|(x, y)| *x += *y),
            }
        }
    });
}
