//! The micro-kernel: a tile of the product, accumulated in registers by rank-1 updates.

use super::params::{MR as FULL_HEIGHT, UNROLL_K};
use crate::element::Float;
use crate::simd::{Lanes, prefetch_l1};

/// The operands of a tile: rows of `a`, a panel of `b`, a block of `c`.
#[derive(Clone, Copy)]
pub(super) struct TileArgs<T> {
    /// Terms of the sum.
    pub k: usize,
    /// Element `(i, p)` of the left matrix is at `a + i * a_row + p * a_col`.
    pub a: *const T,
    pub a_row: isize,
    pub a_col: isize,
    /// Row `p` of the panel is at `b + p * b_row`.
    pub b: *const T,
    pub b_row: usize,
    /// Element `(i, j)` of the product is at `c + i * c_row + j`.
    pub c: *mut T,
    pub c_row: usize,
    /// Columns of the tile in the matrix; the panel is padded with zeros.
    pub cols: usize,
    /// Whether to add to `c`, or to overwrite it.
    pub accumulate: bool,
    /// Whether `c` is prefetched before the loop.
    pub prefetches_c: bool,
}

impl<T: Copy> TileArgs<T> {
    /// The same operands from term `p` of the sum on.
    #[inline(always)]
    fn from(self, p: usize) -> TileArgs<T> {
        TileArgs {
            k: self.k - p,
            a: self.a.wrapping_offset(p as isize * self.a_col),
            b: self.b.wrapping_add(p * self.b_row),
            ..self
        }
    }
}

/// `c (+)= a · b` for `MR` rows and up to `N NV` columns, where `N` is [`Lanes::N`]. Every element is one chain of fused
/// multiply-adds over `p = 0, 1, ..`, whatever the tile is.
///
/// # Safety
/// 1. For `i < MR` and `p < k`, element `(i, p)` of `a` can be read.
/// 2. For `p < k`, `N NV` elements at row `p` of the panel can be read.
/// 3. For `i < MR` and `j < cols <= N NV`, element `(i, j)` of `c` can be read and written, and
///    no other reference to it is in use.
/// 4. `N (NV - 1) < cols`.
#[inline(always)]
pub(super) unsafe fn micro_kernel<T: Float, S: Lanes<T>, const MR: usize, const NV: usize>(
    s: S,
    args: TileArgs<T>,
) {
    let mut acc = [[s.splat(T::ZERO); NV]; MR];
    if args.prefetches_c {
        for i in 0..MR {
            for j in 0..NV {
                prefetch_l1(args.c.wrapping_add(i * args.c_row + j * S::N));
            }
        }
    }
    let unrolled = if MR == FULL_HEIGHT { args.k / UNROLL_K * UNROLL_K } else { 0 };
    let first = TileArgs { k: unrolled, ..args };
    // SAFETY: 1. and 2. hold for the first terms and for the rest.
    unsafe {
        // With a stride that is a compile-time constant the loop has fewer address computations.
        let done = match (args.a_row, args.a_col) {
            (_, 1) => {
                rank_1_updates::<T, S, MR, NV, UNROLL_K>(
                    s,
                    &mut acc,
                    TileArgs { a_col: 1, ..first },
                );
                unrolled
            }
            (1, _) => {
                rank_1_updates::<T, S, MR, NV, UNROLL_K>(
                    s,
                    &mut acc,
                    TileArgs { a_row: 1, ..first },
                );
                unrolled
            }
            _ => 0,
        };
        rank_1_updates::<T, S, MR, NV, 1>(s, &mut acc, args.from(done));
    }
    // Loops of constant length, so that the accumulators above stay in registers.
    for i in 0..MR {
        // SAFETY: 1. columns up to `cols` of row i, by 3; 2. no other reference is in use.
        let c = unsafe { std::slice::from_raw_parts_mut(args.c.add(i * args.c_row), args.cols) };
        let (whole, last) = c.split_at_mut((NV - 1) * S::N);
        for j in 0..NV - 1 {
            let c = &mut whole[j * S::N..];
            s.store(if args.accumulate { s.add(s.load(c), acc[i][j]) } else { acc[i][j] }, c);
        }
        let sum = acc[i][NV - 1];
        let sum = if args.accumulate { s.add(s.load_or(last, T::ZERO), sum) } else { sum };
        // On AMD CPUs a masked store of AVX2 takes many times as long as an unmasked one.
        if last.len() == S::N {
            s.store(sum, last);
        } else {
            s.store_part(sum, last);
        }
    }
}

/// Adds the outer products of `args.k` columns of `a` and rows of `b`, a multiple of `STEPS`, to
/// the accumulators.
///
/// # Safety
/// 1. and 2. of [`micro_kernel`].
#[inline(always)]
unsafe fn rank_1_updates<
    T: Float,
    S: Lanes<T>,
    const MR: usize,
    const NV: usize,
    const STEPS: usize,
>(
    s: S,
    acc: &mut [[S::V; NV]; MR],
    args: TileArgs<T>,
) {
    let TileArgs { mut a, mut b, a_row, a_col, b_row, .. } = args;
    for _ in 0..args.k / STEPS {
        for p in 0..STEPS {
            let mut row = [s.splat(T::ZERO); NV];
            for j in 0..NV {
                // SAFETY: a vector of the elements at row p of the panel, by 2.
                let b = unsafe { std::slice::from_raw_parts(b.add(p * b_row + j * S::N), S::N) };
                row[j] = s.load(b);
            }
            for i in 0..MR {
                // SAFETY: element (i, p) of `a`, by 1.
                let x = unsafe { *a.offset(i as isize * a_row + p as isize * a_col) };
                let x = s.splat(x);
                for j in 0..NV {
                    acc[i][j] = s.fma(x, row[j], acc[i][j]);
                }
            }
        }
        a = a.wrapping_offset(STEPS as isize * a_col);
        b = b.wrapping_add(STEPS * b_row);
    }
}
