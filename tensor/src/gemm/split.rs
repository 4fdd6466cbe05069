//! A product by tiles of `bf16`, into which every number is split.
//!
//! What is added to what, for every element: the sum is cut into blocks as without splitting, and
//! a block into steps of 32. A step adds, for each pair of terms in the order of the loops in
//! `amx.rs`, one number: the sum of two chains of 16 fused multiply-adds, over the first and the
//! second half of the step. Nothing else counts, so bits do not depend on how a product is cut.
//!
//! Whole rows and columns with factors that are not finite (or not when rounded to `bf16`) are made
//! without splitting: their terms would be infinite and cancel to NaN.

use super::Product;
use super::blocks::{depth, ranges};
use super::finish::Then;
use crate::matrix::{MatMut, MatRef};
use crate::simd::amx::{Amx, DEEP, Line, SIDE, Tiled, Tiles};
use crate::simd::avx512::Avx512;
use crate::simd::{Algebra, Lanes};
use std::arch::x86_64::__m512;

/// Rows and columns of what [`Tiles::product`] makes at once.
pub(super) const PANEL: usize = 2 * SIDE;
/// Room for panels of rows, and of columns, that stay in the second cache.
const ROWS_ROOM: usize = (512 << 10) / size_of::<Line>();
const COLUMNS_ROOM: usize = (1 << 20) / size_of::<Line>();
/// Lines that [`Split`] needs.
pub(super) const ROOM: usize = ROWS_ROOM + COLUMNS_ROOM;

/// `out = a · b`, or `out += a · b`, each number split into `T` terms.
pub(super) struct Split<'a, const T: usize> {
    pub a: MatRef<'a, f32>,
    pub b: MatRef<'a, f32>,
    pub add: bool,
    pub out: MatMut<'a, f32>,
    pub then: Option<Then<'a, f32>>,
    /// [`ROOM`] of them.
    pub room: &'a mut [Line],
}

impl<const T: usize> Tiled for Split<'_, T> {
    #[inline(always)]
    fn run(self, amx: Amx) {
        let Split { a, b, add, mut out, mut then, room } = self;
        let (k, depth) = (a.cols, depth(a.cols));
        let (columns, rows) = room.split_at_mut(COLUMNS_ROOM);
        let lines = panel_lines::<T>(depth);
        let (height, width) = (ROWS_ROOM / lines * PANEL, COLUMNS_ROOM / lines * PANEL);
        for right in ranges(b.cols, width) {
            for sum in ranges(k, depth) {
                let b = b.part(sum.clone(), right.clone());
                let b_finite = pack::<T, false>(amx, b, columns);
                for down in ranges(a.rows, height) {
                    let a = a.part(down.clone(), sum.clone());
                    let a_finite = pack::<T, true>(amx, a, rows);
                    let add = add || sum.start > 0;
                    let mut out = out.part(down.clone(), right.clone());
                    block::<T>(amx, (a, b), (rows, columns), a_finite && b_finite, add, &mut out);
                    if sum.end == k
                        && let Some(then) = &mut then
                    {
                        then.part(down, right.clone()).run(out);
                    }
                }
            }
        }
    }
}

/// All tiles of a block, whose rows and columns are packed.
#[inline(always)]
fn block<const T: usize>(
    amx: Amx,
    (a, b): (MatRef<'_, f32>, MatRef<'_, f32>),
    (rows, columns): (&[Line], &[Line]),
    finite: bool,
    add: bool,
    out: &mut MatMut<'_, f32>,
) {
    let tiles = amx.tiles();
    let lines = panel_lines::<T>(a.cols);
    for (right, columns) in ranges(b.cols, PANEL).zip(columns.chunks(lines)) {
        for (down, rows) in ranges(a.rows, PANEL).zip(rows.chunks(lines)) {
            let parts = (a.part(down.clone(), 0..a.cols), b.part(0..b.rows, right.clone()));
            let parts = (!finite).then_some(parts);
            let out = out.part(down, right.clone());
            tile::<T>(amx.lanes(), &tiles, (rows, columns), parts, add, out);
        }
    }
}

/// Lines of a panel of `depth` terms of the sum.
const fn panel_lines<const T: usize>(depth: usize) -> usize {
    depth.div_ceil(DEEP) * 2 * T * SIDE
}

/// A tile of the product from a panel of rows and one of columns. `parts` are the numbers they
/// were made from, if some of their block are not finite, or not as `bf16`.
#[inline(always)]
fn tile<const T: usize>(
    s: Avx512,
    tiles: &Tiles,
    (rows, columns): (&[Line], &[Line]),
    parts: Option<(MatRef<'_, f32>, MatRef<'_, f32>)>,
    add: bool,
    mut out: MatMut<'_, f32>,
) {
    let width = if out.cols() <= SIDE { SIDE } else { PANEL };
    if !add && parts.is_none() && out.rows() == PANEL && out.cols() == width {
        return tiles.product::<T>(rows, columns, &mut out);
    }
    #[repr(align(64))]
    struct Square([f32; PANEL * PANEL]);
    let mut square = Square([0.0; PANEL * PANEL]);
    let square = &mut square.0[..PANEL * width];
    tiles.product::<T>(rows, columns, &mut MatMut::new(square, PANEL, width));
    if let Some((a, b)) = parts {
        repair(a, b, square, width);
    }
    for (i, sums) in square.chunks_exact(width).take(out.rows()).enumerate() {
        for (out, sums) in out.row(i).chunks_mut(SIDE).zip(sums.chunks_exact(SIDE)) {
            let sum = s.load(sums);
            s.store_part(if add { s.add(s.load_or(out, 0.0), sum) } else { sum }, out);
        }
    }
}

/// Makes sums with factors that are not finite, or not as `bf16`, as without splitting.
#[cold]
fn repair(a: MatRef<'_, f32>, b: MatRef<'_, f32>, square: &mut [f32], width: usize) {
    let rounds_to_finite = |x: f32| x.abs() < f32::from_bits(0x7f7f_8000);
    let spoiled = |m: MatRef<'_, f32>| -> Vec<bool> {
        let row = |i| (0..m.cols).any(|p| !rounds_to_finite(m.at(i, p)));
        (0..m.rows).map(row).collect()
    };
    let (rows, cols) = (spoiled(a), spoiled(b.t()));
    if !rows.contains(&true) && !cols.contains(&true) {
        return;
    }
    let mut plain = vec![0.0; a.rows * b.cols];
    f32::gemm(a, b, false, MatMut::new(&mut plain, a.rows, b.cols));
    for (i, plain) in plain.chunks_exact(b.cols).enumerate() {
        for (j, &plain) in plain.iter().enumerate().filter(|&(j, _)| rows[i] || cols[j]) {
            square[i * width + j] = plain;
        }
    }
}

/// Panels of 32 rows of a matrix, one after the other, or of columns; in the order in which
/// [`Tiles::product`] reads them. Returns whether all numbers are finite.
#[inline(always)]
fn pack<const T: usize, const ROWS: bool>(amx: Amx, m: MatRef<'_, f32>, out: &mut [Line]) -> bool {
    let s = amx.lanes();
    let (n, k) = if ROWS { (m.rows, m.cols) } else { (m.cols, m.rows) };
    let mut seen = amx.none_seen();
    for (panel, out) in ranges(n, PANEL).zip(out.chunks_mut(panel_lines::<T>(k))) {
        for (p, out) in (0..k).step_by(DEEP).zip(out.chunks_mut(2 * T * SIDE)) {
            for (i, half) in panel.clone().step_by(SIDE).zip([0, SIDE]) {
                let at = |p: usize| if ROWS { (i, p) } else { (p, i) };
                let (x, y) = (square(s, m, at(p)), square(s, m, at(p + SIDE)));
                for j in 0..SIDE {
                    seen = amx.split::<T>((x[j], y[j]), seen, 2 * SIDE, &mut out[half + j..]);
                }
            }
        }
    }
    amx.all_finite(seen)
}

/// 16 rows of 16 columns from `(i, j)` on, 0 where the matrix has ended.
#[inline(always)]
fn square(s: Avx512, m: MatRef<'_, f32>, (i, j): (usize, usize)) -> [__m512; SIDE] {
    let (rows, cols) = (SIDE.min(m.rows.saturating_sub(i)), SIDE.min(m.cols.saturating_sub(j)));
    let mut square = [s.splat(0.0); SIDE];
    if rows == 0 || cols == 0 {
        return square;
    }
    let m = m.part(i..i + rows, j..j + cols);
    if m.col_stride == 1 {
        return in_order(s, m);
    }
    if m.row_stride == 1 {
        return s.transpose(in_order(s, m.t()));
    }
    for i in 0..rows {
        let mut row = [0.0; SIDE];
        (0..cols).for_each(|j| row[j] = m.at(i, j));
        square[i] = s.load(&row);
    }
    square
}

/// At most 16 rows of as many columns, each row in order.
#[inline(always)]
fn in_order(s: Avx512, m: MatRef<'_, f32>) -> [__m512; SIDE] {
    let mut square = [s.splat(0.0); SIDE];
    if m.rows == SIDE && m.cols == SIDE {
        for i in 0..SIDE {
            square[i] = s.load(m.row(i));
        }
    } else {
        for i in 0..m.rows {
            square[i] = s.load_or(m.row(i), 0.0);
        }
    }
    square
}
