//! GEMM in split precision: every factor is split into terms of `bf16`, which AMX tiles multiply.
//!
//! The order of additions for every element: the sum is divided into the same blocks of KC terms as
//! in `F32`, and a block into steps of 32 terms. A step adds one number for each pair of `bf16`
//! terms, in the order of the loops in `amx.rs`: the sum of two chains of 16 fused multiply-adds,
//! over the first and the second half of the step. So bits do not depend on the partition of a
//! product.
//!
//! Rows and columns with factors that are non-finite, or round to a non-finite `bf16`, are computed
//! in `F32`: their terms would be infinite and cancel to NaN.

use super::amx::{Amx, AmxKernel, K_STEP, Line, SIDE, Tiles};
use super::epilogue::EpilogueArgs;
use super::native::multiply;
use super::params::{SPLIT_COLUMN_BYTES, SPLIT_ROW_BYTES, blocks, kc};
use super::products::Products;
use crate::formula::Algebra;
use crate::matrix::{MatMut, MatRef};
use crate::precision::MatmulPrecision;
use crate::settings::level;
use crate::simd::Lanes;
use crate::simd::avx512::Avx512;
use std::arch::x86_64::__m512;
use std::cell::Cell;

/// Rows and columns of a block that [`Tiles::product`] computes.
const PANEL: usize = 2 * SIDE;
/// Lines of packed rows, and of packed columns.
const PACKED_ROWS: usize = SPLIT_ROW_BYTES / size_of::<Line>();
const PACKED_COLUMNS: usize = SPLIT_COLUMN_BYTES / size_of::<Line>();
/// Lines of the packing buffer.
const PACKING_BUFFER: usize = PACKED_ROWS + PACKED_COLUMNS;

/// `out = a · b`, or `out += a · b` if `accumulate`, in split precision, and the epilogue, for
/// operands that are not trivial.
pub(super) fn split_gemm(
    a: MatRef<'_, f32>,
    b: MatRef<'_, f32>,
    accumulate: bool,
    out: MatMut<'_, f32>,
    epilogue: Option<EpilogueArgs<'_, f32>>,
    precision: MatmulPrecision,
) {
    thread_local! {
        static BUFFER: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    }
    let mut lines = BUFFER.take();
    lines.resize(PACKING_BUFFER, Line::ZERO);
    let amx = Amx::detect().expect("precisions are checked when they are chosen");
    let buffer = &mut lines[..];
    match precision {
        MatmulPrecision::F32 | MatmulPrecision::Bf16x6 => {
            amx.run(SplitGemm::<3> { a, b, accumulate, out, epilogue, buffer });
        }
        MatmulPrecision::Bf16x3 => {
            amx.run(SplitGemm::<2> { a, b, accumulate, out, epilogue, buffer });
        }
        MatmulPrecision::Bf16 => {
            amx.run(SplitGemm::<1> { a, b, accumulate, out, epilogue, buffer });
        }
    }
    BUFFER.set(lines);
}

/// `out = a · b`, or `out += a · b`, each factor split into `T` terms.
struct SplitGemm<'a, const T: usize> {
    a: MatRef<'a, f32>,
    b: MatRef<'a, f32>,
    accumulate: bool,
    out: MatMut<'a, f32>,
    epilogue: Option<EpilogueArgs<'a, f32>>,
    /// [`PACKING_BUFFER`] lines.
    buffer: &'a mut [Line],
}

impl<const T: usize> AmxKernel for SplitGemm<'_, T> {
    #[inline(always)]
    fn run(self, amx: Amx) {
        let SplitGemm { a, b, accumulate, mut out, mut epilogue, buffer } = self;
        let (k, kc) = (a.cols, kc(a.cols));
        let (columns, rows) = buffer.split_at_mut(PACKED_COLUMNS);
        let lines = panel_lines::<T>(kc);
        let (mc, nc) = (PACKED_ROWS / lines * PANEL, PACKED_COLUMNS / lines * PANEL);
        for jc in blocks(b.cols, nc) {
            for pc in blocks(k, kc) {
                let b = b.part(pc.clone(), jc.clone());
                let b_finite = pack::<T, false>(amx, b, columns);
                for ic in blocks(a.rows, mc) {
                    let a = a.part(ic.clone(), pc.clone());
                    let a_finite = pack::<T, true>(amx, a, rows);
                    let accumulate = accumulate || pc.start > 0;
                    let mut out = out.part(ic.clone(), jc.clone());
                    let finite = a_finite && b_finite;
                    block::<T>(amx, (a, b), (rows, columns), finite, accumulate, &mut out);
                    if pc.end == k
                        && let Some(epilogue) = &mut epilogue
                    {
                        epilogue.part(ic, jc.clone()).apply(out);
                    }
                }
            }
        }
    }
}

/// All tiles of a block with packed rows and columns.
#[inline(always)]
fn block<const T: usize>(
    amx: Amx,
    (a, b): (MatRef<'_, f32>, MatRef<'_, f32>),
    (rows, columns): (&[Line], &[Line]),
    finite: bool,
    accumulate: bool,
    out: &mut MatMut<'_, f32>,
) {
    let tiles = amx.tiles();
    let lines = panel_lines::<T>(a.cols);
    for (jr, columns) in blocks(b.cols, PANEL).zip(columns.chunks(lines)) {
        for (ir, rows) in blocks(a.rows, PANEL).zip(rows.chunks(lines)) {
            let parts = (a.part(ir.clone(), 0..a.cols), b.part(0..b.rows, jr.clone()));
            let parts = (!finite).then_some(parts);
            let out = out.part(ir, jr.clone());
            tile::<T>(amx.lanes(), &tiles, (rows, columns), parts, accumulate, out);
        }
    }
}

/// Lines of a packed panel of `k` terms of the sum.
const fn panel_lines<const T: usize>(k: usize) -> usize {
    k.div_ceil(K_STEP) * 2 * T * SIDE
}

/// A tile of the product from packed panels of rows and columns. `parts` are the panels before
/// splitting, if their block has elements that are non-finite, or round to a non-finite `bf16`.
#[inline(always)]
fn tile<const T: usize>(
    s: Avx512,
    tiles: &Tiles,
    (rows, columns): (&[Line], &[Line]),
    parts: Option<(MatRef<'_, f32>, MatRef<'_, f32>)>,
    accumulate: bool,
    mut out: MatMut<'_, f32>,
) {
    let width = if out.cols() <= SIDE { SIDE } else { PANEL };
    if !accumulate && parts.is_none() && out.rows() == PANEL && out.cols() == width {
        return tiles.product::<T>(rows, columns, &mut out);
    }
    #[repr(align(64))]
    struct Square([f32; PANEL * PANEL]);
    let mut square = Square([0.0; PANEL * PANEL]);
    let square = &mut square.0[..PANEL * width];
    tiles.product::<T>(rows, columns, &mut MatMut::new(square, PANEL, width));
    if let Some((a, b)) = parts {
        recompute_non_finite(a, b, square, width);
    }
    for (i, sums) in square.chunks_exact(width).take(out.rows()).enumerate() {
        for (out, sums) in out.row(i).chunks_mut(SIDE).zip(sums.chunks_exact(SIDE)) {
            let sum = s.load(sums);
            s.store_part(if accumulate { s.add(s.load_or(out, 0.0), sum) } else { sum }, out);
        }
    }
}

/// Computes in `F32` the elements that have factors that are non-finite, or round to a non-finite
/// `bf16`.
#[cold]
fn recompute_non_finite(a: MatRef<'_, f32>, b: MatRef<'_, f32>, square: &mut [f32], width: usize) {
    let rounds_to_finite = |x: f32| x.abs() < f32::from_bits(0x7f7f_8000);
    let non_finite_rows = |m: MatRef<'_, f32>| -> Vec<bool> {
        let row = |i| (0..m.cols).any(|p| !rounds_to_finite(m.at(i, p)));
        (0..m.rows).map(row).collect()
    };
    let (rows, cols) = (non_finite_rows(a), non_finite_rows(b.t()));
    if !rows.contains(&true) && !cols.contains(&true) {
        return;
    }
    let mut exact = vec![0.0; a.rows * b.cols];
    let out = MatMut::new(&mut exact, a.rows, b.cols);
    multiply(level(), &Products::one(a, b), false, out, None);
    for (i, exact) in exact.chunks_exact(b.cols).enumerate() {
        for (j, &exact) in exact.iter().enumerate().filter(|&(j, _)| rows[i] || cols[j]) {
            square[i * width + j] = exact;
        }
    }
}

/// Splits and packs panels of 32 rows of a matrix, or of columns, in the order in which
/// [`Tiles::product`] reads them. Returns whether all terms are finite.
#[inline(always)]
fn pack<const T: usize, const ROWS: bool>(amx: Amx, m: MatRef<'_, f32>, out: &mut [Line]) -> bool {
    let s = amx.lanes();
    let (n, k) = if ROWS { (m.rows, m.cols) } else { (m.cols, m.rows) };
    let mut largest = amx.zero_magnitudes();
    for (panel, out) in blocks(n, PANEL).zip(out.chunks_mut(panel_lines::<T>(k))) {
        for (p, out) in (0..k).step_by(K_STEP).zip(out.chunks_mut(2 * T * SIDE)) {
            for (i, half) in panel.clone().step_by(SIDE).zip([0, SIDE]) {
                let at = |p: usize| if ROWS { (i, p) } else { (p, i) };
                let (x, y) = (square(s, m, at(p)), square(s, m, at(p + SIDE)));
                for j in 0..SIDE {
                    largest = amx.split::<T>((x[j], y[j]), largest, 2 * SIDE, &mut out[half + j..]);
                }
            }
        }
    }
    amx.all_finite(largest)
}

/// 16 rows of 16 columns from `(i, j)` on, padded with zeros beyond the matrix.
#[inline(always)]
fn square(s: Avx512, m: MatRef<'_, f32>, (i, j): (usize, usize)) -> [__m512; SIDE] {
    let (rows, cols) = (SIDE.min(m.rows.saturating_sub(i)), SIDE.min(m.cols.saturating_sub(j)));
    let mut square = [s.splat(0.0); SIDE];
    if rows == 0 || cols == 0 {
        return square;
    }
    let m = m.part(i..i + rows, j..j + cols);
    if m.col_stride == 1 {
        return load_rows(s, m);
    }
    if m.row_stride == 1 {
        return s.transpose(load_rows(s, m.t()));
    }
    for i in 0..rows {
        let mut row = [0.0; SIDE];
        (0..cols).for_each(|j| row[j] = m.at(i, j));
        square[i] = s.load(&row);
    }
    square
}

/// At most 16 contiguous rows of at most 16 columns, padded with zeros.
#[inline(always)]
fn load_rows(s: Avx512, m: MatRef<'_, f32>) -> [__m512; SIDE] {
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
