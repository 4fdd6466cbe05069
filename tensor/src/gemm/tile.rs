//! The innermost loop: a tile of the product that stays in registers.

use crate::simd::{Lanes, prefetch_near};

/// Where a tile reads and writes: rows of `a`, one panel of `b`, the corner of `c`.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Numbers in the sum.
    pub k: usize,
    /// Element `(i, p)` of the left matrix is at `a + i * row + p * col`.
    pub a: *const f32,
    pub row: isize,
    pub col: isize,
    /// Row `p` of the panel is at `b + p * step`.
    pub b: *const f32,
    pub step: usize,
    /// Element `(i, j)` of the product is at `c + i * c_row + j`.
    pub c: *mut f32,
    pub c_row: usize,
    /// Columns of the tile that exist; the panel has more, full of zeros.
    pub cols: usize,
    /// Whether to add to what is there, or to replace it.
    pub add: bool,
    /// Whether `c` is to be fetched while the sums are made.
    pub fetch: bool,
}

/// `c (+)= a · b` for `MR` rows and up to `16 NV` columns. Every element is one chain of fused
/// multiply-adds over `p = 0, 1, ..`, whatever the tile is.
///
/// # Safety
/// 1. For `i < MR` and `p < k`, element `(i, p)` of `a` can be read.
/// 2. For `p < k`, `16 NV` elements at row `p` of the panel can be read.
/// 3. For `i < MR` and `j < cols <= 16 NV`, element `(i, j)` of `c` can be read and written, and
///    nobody else does so now.
/// 4. `16 (NV - 1) < cols`.
#[inline(always)]
pub(super) unsafe fn tile<S: Lanes<f32>, const MR: usize, const NV: usize>(s: S, at: Place) {
    const N: usize = crate::simd::F32_LANES;
    let mut acc = [[s.splat(0.0); NV]; MR];
    let (mut a, mut b) = (at.a, at.b);
    if at.fetch {
        for i in 0..MR {
            for j in 0..NV {
                prefetch_near(at.c.wrapping_add(i * at.c_row + j * N));
            }
        }
    }
    for _ in 0..at.k {
        let mut row = [s.splat(0.0); NV];
        for j in 0..NV {
            // SAFETY: 16 of the elements at row p of the panel, by 2.
            row[j] = s.load(unsafe { std::slice::from_raw_parts(b.add(j * N), N) });
        }
        for i in 0..MR {
            // SAFETY: element (i, p) of `a`, by 1.
            let x = s.splat(unsafe { *a.offset(i as isize * at.row) });
            for j in 0..NV {
                acc[i][j] = s.fma(x, row[j], acc[i][j]);
            }
        }
        a = a.wrapping_offset(at.col);
        b = b.wrapping_add(at.step);
    }
    // Plain loops of constant length, so that the sums stay in registers above.
    for i in 0..MR {
        // SAFETY: 1. columns up to `cols` of row i, by 3; 2. there is no other borrow.
        let c = unsafe { std::slice::from_raw_parts_mut(at.c.add(i * at.c_row), at.cols) };
        let (whole, last) = c.split_at_mut((NV - 1) * N);
        for j in 0..NV - 1 {
            let c = &mut whole[j * N..];
            s.store(if at.add { s.add(s.load(c), acc[i][j]) } else { acc[i][j] }, c);
        }
        let sum = acc[i][NV - 1];
        s.store_part(if at.add { s.add(s.load_or(last, 0.0), sum) } else { sum }, last);
    }
}
