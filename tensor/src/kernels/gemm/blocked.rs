//! The loops over cache blocks around the micro-kernel.

use super::epilogue::EpilogueArgs;
use super::kernel::GemmKernel;
use super::micro_kernel::{TileArgs, micro_kernel};
use super::operands::{OperandA, OperandB, Panel, a_in_place, b_in_place, panels};
use super::pack;
use super::params::{
    KC, MC, MC_PACKED, MR, NC, PREFETCH_A_ONCE_COLUMNS, PREFETCH_A_ONCE_FROM, PREFETCH_C_TERMS,
    PREFETCH_FROM, blocks, kc,
};
use crate::matrix::{MatMut, MatRef};
use crate::simd::{F32_LANES, Kernel, Lanes};

/// Elements of the packing buffer of [`BlockedGemm`].
pub(super) const PACKING_BUFFER: usize = PACKED_B + pack::packed_a_len(KC, MC_PACKED);
const PACKED_B: usize = pack::packed_b_len(KC, NC);

/// `out = a · b`, or `out += a · b`, with tiles of [`MR`] rows and at most `NV` vectors.
pub(super) struct BlockedGemm<'a, const NV: usize> {
    pub a: MatRef<'a, f32>,
    pub b: MatRef<'a, f32>,
    pub accumulate: bool,
    pub out: MatMut<'a, f32>,
    pub epilogue: Option<EpilogueArgs<'a, f32>>,
    /// [`PACKING_BUFFER`] elements.
    pub buffer: &'a mut [f32],
}

impl<const NV: usize> BlockedGemm<'_, NV> {
    /// What it does with these operands.
    pub(super) fn kernel(a: &MatRef<'_, f32>, b: &MatRef<'_, f32>) -> GemmKernel {
        GemmKernel::Blocked {
            tile: (MR, NV * F32_LANES),
            a_in_place: a_in_place(a, b.cols),
            b_in_place: b_in_place::<NV>(a, b),
        }
    }
}

impl<const NV: usize> Kernel<f32> for BlockedGemm<'_, NV> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<f32>>(self, s: S) {
        let BlockedGemm { a, b, accumulate, mut out, mut epilogue, buffer } = self;
        let (k, kc) = (a.cols, kc(a.cols));
        let (packed_b, packed_a) = buffer.split_at_mut(PACKED_B);
        let b_in_place = b_in_place::<NV>(&a, &b);
        let a_in_place = a_in_place(&a, b.cols);
        let mc = if a_in_place { MC } else { MC_PACKED };
        let prefetches = Prefetches::new(&a, b.cols, kc);
        for jc in blocks(b.cols, NC) {
            for pc in blocks(k, kc) {
                let b = b.part(pc.clone(), jc.clone());
                let b_block = OperandB::new::<S, NV>(s, b, b_in_place, packed_b);
                for ic in blocks(a.rows, mc) {
                    let a = a.part(ic.clone(), pc.clone());
                    let a_block = OperandA::new(s, a, a_in_place, packed_a);
                    let mut out = out.part(ic.clone(), jc.clone());
                    for cols in panels::<NV>(b.cols) {
                        let panel = b_block.panel(cols.clone());
                        let prefetches =
                            Prefetches { a: prefetches.a && cols.start == 0, ..prefetches };
                        let out = out.part(0..ic.len(), cols);
                        let accumulate = accumulate || pc.start > 0;
                        tiles::<S, NV>(s, &a_block, panel, accumulate, prefetches, out);
                    }
                    // For whole blocks rather than panels: the other operands of an epilogue come
                    // from memory, and hardware prefetchers follow long rows.
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

/// What the micro-kernel prefetches: matrices that exceed the L2 cache, unless there is so little
/// work per element that the prefetch instructions take longer than they save.
#[derive(Clone, Copy)]
struct Prefetches {
    /// Rows of `a` that are read in place.
    a: bool,
    out: bool,
}

impl Prefetches {
    fn new(a: &MatRef<'_, f32>, cols: usize, kc: usize) -> Prefetches {
        let read_once = cols <= PREFETCH_A_ONCE_COLUMNS;
        let from = if read_once { PREFETCH_A_ONCE_FROM } else { PREFETCH_FROM };
        Prefetches {
            a: a.col_stride == 1 && a.rows * a.cols >= from,
            out: a.rows * cols >= PREFETCH_FROM && kc >= PREFETCH_C_TERMS,
        }
    }
}

/// All tiles of a block of rows and a panel of columns.
#[inline(always)]
fn tiles<S: Lanes<f32>, const NV: usize>(
    s: S,
    a_block: &OperandA<'_>,
    panel: Panel<'_>,
    accumulate: bool,
    prefetches: Prefetches,
    mut out: MatMut<'_, f32>,
) {
    let (rows, k) = a_block.size();
    let cols = out.cols();
    let vectors = cols.div_ceil(F32_LANES);
    assert!(panel.data.len() >= (k - 1) * panel.step + vectors * F32_LANES && vectors <= NV);
    for i in (0..rows).step_by(MR) {
        let height = MR.min(rows - i);
        let (a, a_row, a_col) = a_block.tile(i, height);
        if prefetches.a && i + MR < rows {
            a_block.prefetch(i + MR, MR.min(rows - i - MR));
        }
        let mut c = out.part(i..i + height, 0..cols);
        let args = TileArgs {
            k,
            a: a.as_ptr(),
            a_row,
            a_col,
            b: panel.data.as_ptr(),
            b_row: panel.step,
            c_row: c.row_stride(),
            c: c.as_mut_ptr(),
            cols,
            accumulate,
            prefetches_c: prefetches.out,
        };
        macro_rules! by_height {
            ($vectors:literal) => {
                match height {
                    1 => micro_kernel::<S, 1, $vectors>(s, args),
                    2 => micro_kernel::<S, 2, $vectors>(s, args),
                    3 => micro_kernel::<S, 3, $vectors>(s, args),
                    4 => micro_kernel::<S, 4, $vectors>(s, args),
                    5 => micro_kernel::<S, 5, $vectors>(s, args),
                    _ => micro_kernel::<S, MR, $vectors>(s, args),
                }
            };
        }
        // SAFETY: 1. `a_block` has these rows: `tile` checked that they are inside, or they are
        // packed, `height <= MR_PACKED` of them in a panel, as tiles divide panels; 2. the
        // assertion above; 3. `c` is this part of the product, borrowed exclusively; 4. `vectors`
        // is the least number that covers `cols`. Height and vectors are those of the function
        // called.
        unsafe {
            match vectors {
                1 => by_height!(1),
                2 if NV > 1 => by_height!(2),
                3 if NV > 1 => by_height!(3),
                4 if NV > 1 => by_height!(4),
                _ => unreachable!("a panel has 1 to {NV} vectors"),
            }
        }
    }
}
