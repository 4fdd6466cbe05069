//! The innermost loop: a tile of the product that stays in registers.

use super::blocks::TILE;
use crate::simd::{F32_LANES as N, Lanes, prefetch_near};

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

impl Place {
    /// The same from term `p` of the sum on.
    #[inline(always)]
    fn from(self, p: usize) -> Place {
        Place {
            k: self.k - p,
            a: self.a.wrapping_offset(p as isize * self.col),
            b: self.b.wrapping_add(p * self.step),
            ..self
        }
    }
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
    let mut acc = [[s.splat(0.0); NV]; MR];
    if at.fetch {
        for i in 0..MR {
            for j in 0..NV {
                prefetch_near(at.c.wrapping_add(i * at.c_row + j * N));
            }
        }
    }
    let rounds = if MR == TILE { at.k / AT_ONCE * AT_ONCE } else { 0 };
    let most = Place { k: rounds, ..at };
    // SAFETY: 1. and 2. hold for the first terms and for the rest.
    unsafe {
        // A distance that is known when this is compiled need not be added up in the loop.
        let done = match (at.row, at.col) {
            (_, 1) => {
                add_up::<S, MR, NV, AT_ONCE>(s, &mut acc, Place { col: 1, ..most });
                rounds
            }
            (1, _) => {
                add_up::<S, MR, NV, AT_ONCE>(s, &mut acc, Place { row: 1, ..most });
                rounds
            }
            _ => 0,
        };
        add_up::<S, MR, NV, 1>(s, &mut acc, at.from(done));
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
        let sum = if at.add { s.add(s.load_or(last, 0.0), sum) } else { sum };
        // On AMD CPUs a masked store of AVX2 takes many times as long as a whole one.
        if last.len() == N {
            s.store(sum, last);
        } else {
            s.store_part(sum, last);
        }
    }
}

/// Terms that are added in a round of the loop, where counting would take a tenth of the time.
const AT_ONCE: usize = 4;

/// Adds `at.k` products, a multiple of `STEPS`, to every sum.
///
/// # Safety
/// 1. and 2. of [`tile`].
#[inline(always)]
unsafe fn add_up<S: Lanes<f32>, const MR: usize, const NV: usize, const STEPS: usize>(
    s: S,
    acc: &mut [[S::V; NV]; MR],
    at: Place,
) {
    let Place { mut a, mut b, row: down, col: right, .. } = at;
    for _ in 0..at.k / STEPS {
        for p in 0..STEPS {
            let mut row = [s.splat(0.0); NV];
            for j in 0..NV {
                // SAFETY: 16 of the elements at row p of the panel, by 2.
                let b = unsafe { std::slice::from_raw_parts(b.add(p * at.step + j * N), N) };
                row[j] = s.load(b);
            }
            for i in 0..MR {
                // SAFETY: element (i, p) of `a`, by 1.
                let x = unsafe { *a.offset(i as isize * down + p as isize * right) };
                let x = s.splat(x);
                for j in 0..NV {
                    acc[i][j] = s.fma(x, row[j], acc[i][j]);
                }
            }
        }
        a = a.wrapping_offset(STEPS as isize * right);
        b = b.wrapping_add(STEPS * at.step);
    }
}
