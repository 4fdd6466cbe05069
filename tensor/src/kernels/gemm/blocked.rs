//! The loops over cache blocks around the micro-kernel.

use super::epilogue::EpilogueArgs;
use super::kernel::GemmKernel;
use super::micro_kernel::{TileArgs, micro_kernel};
use super::operands::{OperandA, OperandB, Panel, a_in_place, b_in_place, panels};
use super::pack;
use super::params::{
    KC, LARGE_C, MC, MC_PACKED, MR, MR_PACKED, NC, PREFETCH_A_ONCE_COLUMNS, PREFETCH_A_ONCE_FROM,
    PREFETCH_C_TERMS, PREFETCH_FROM, SHORT_SUM, SHORT_SUM_COLUMNS, SHORT_SUM_WIDTH, blocks, kc,
    lanes, scaled,
};
use super::products::Products;
use crate::element::Float;
use crate::matrix::{MatMut, MatRef};
use crate::simd::{Kernel, Lanes};
use std::ops::Range;

/// Elements of the packing buffer of [`BlockedGemm`], in `f32`; half as many in `f64` suffice.
pub(super) const PACKING_BUFFER: usize = PACKED_B + pack::packed_a_len(KC, MC_PACKED);
const PACKED_B: usize = pack::packed_b_len(KC, NC);

/// `out = a · b`, or `out += a · b`, of each product, and the epilogue.
pub(super) struct BlockedGemm<'a, T> {
    pub products: &'a Products<'a, T>,
    pub accumulate: bool,
    /// The products one below the other.
    pub out: MatMut<'a, T>,
    pub epilogue: Option<EpilogueArgs<'a, T>>,
    /// As many bytes as [`PACKING_BUFFER`] `f32` have.
    pub buffer: &'a mut [T],
}

/// A [`BlockedGemm`] with tiles of [`MR`] rows and at most `NV` vectors.
pub(super) struct Tiled<'a, T, const NV: usize>(pub BlockedGemm<'a, T>);

/// What is done with operands of these sizes and strides.
#[derive(Clone, Copy)]
struct Plan {
    kc: usize,
    mc: usize,
    nc: usize,
    a_in_place: bool,
    b_in_place: bool,
    prefetches: Prefetches,
}

impl Plan {
    #[inline]
    fn new<T, const NV: usize>(a: &MatRef<'_, T>, b: &MatRef<'_, T>) -> Plan {
        let (kc, a_in_place) = (kc(a.cols), a_in_place(a, b.cols));
        let is_short =
            a.cols <= SHORT_SUM && b.cols >= SHORT_SUM_WIDTH && a.rows * b.cols >= LARGE_C;
        Plan {
            kc,
            mc: match is_short {
                true if a_in_place => MR,
                true => MR_PACKED,
                false => scaled::<T>(if a_in_place { MC } else { MC_PACKED }),
            },
            nc: scaled::<T>(if is_short { SHORT_SUM_COLUMNS } else { NC }),
            a_in_place,
            b_in_place: b_in_place::<T, NV>(a, b),
            prefetches: Prefetches::new(a, b.cols, kc),
        }
    }
}

impl<T, const NV: usize> Tiled<'_, T, NV> {
    /// What it does with these operands.
    pub(super) fn kernel(a: &MatRef<'_, T>, b: &MatRef<'_, T>) -> GemmKernel {
        let Plan { a_in_place, b_in_place, .. } = Plan::new::<T, NV>(a, b);
        GemmKernel::Blocked { tile: (MR, NV * lanes::<T>()), a_in_place, b_in_place }
    }
}

impl<T: Float, const NV: usize> Kernel<T> for Tiled<'_, T, NV> {
    type Out = ();
    const EIGHT_F64: bool = true;

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        const { assert!(S::N == lanes::<T>()) };
        let BlockedGemm { products, accumulate, mut out, mut epilogue, buffer } = self.0;
        let (m, k, n) = products.sizes();
        let (a, b) = products.like();
        let plan = Plan::new::<T, NV>(&a, &b);
        let (packed_b, packed_a) = buffer.split_at_mut(scaled::<T>(PACKED_B));
        for (i, a, b) in products.iter() {
            let first = i * m;
            for jc in blocks(n, plan.nc) {
                for pc in blocks(k, plan.kc) {
                    let b = b.part(pc.clone(), jc.clone());
                    let b_block = OperandB::new::<S, NV>(s, b, plan.b_in_place, packed_b);
                    for ic in blocks(m, plan.mc) {
                        let a = a.part(ic.clone(), pc.clone());
                        let a_block = OperandA::new(s, a, plan.a_in_place, packed_a);
                        let mut out = out.part(first + ic.start..first + ic.end, jc.clone());
                        let accumulate = accumulate || pc.start > 0;
                        for cols in panels::<T, NV>(jc.len()) {
                            let panel = b_block.panel(cols.clone());
                            let prefetches = plan.prefetches.of(&cols);
                            let out = out.part(0..ic.len(), cols);
                            tiles::<T, S, NV>(s, &a_block, panel, accumulate, prefetches, out);
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
    #[inline]
    fn new<T>(a: &MatRef<'_, T>, cols: usize, kc: usize) -> Prefetches {
        let read_once = cols <= PREFETCH_A_ONCE_COLUMNS;
        let from = if read_once { PREFETCH_A_ONCE_FROM } else { PREFETCH_FROM };
        Prefetches {
            a: a.col_stride == 1 && a.rows * a.cols >= from,
            out: a.rows * cols >= PREFETCH_FROM && kc >= PREFETCH_C_TERMS,
        }
    }

    /// Rows of `a` are prefetched in the first of the panels that read them.
    #[inline(always)]
    fn of(self, cols: &Range<usize>) -> Prefetches {
        Prefetches { a: self.a && cols.start == 0, ..self }
    }
}

/// All tiles of a block of rows and a panel of columns.
#[inline(always)]
fn tiles<T: Float, S: Lanes<T>, const NV: usize>(
    s: S,
    a_block: &OperandA<'_, T>,
    panel: Panel<'_, T>,
    accumulate: bool,
    prefetches: Prefetches,
    mut out: MatMut<'_, T>,
) {
    let (rows, k) = a_block.size();
    let cols = out.cols();
    let vectors = cols.div_ceil(S::N);
    assert!(panel.data.len() >= (k - 1) * panel.step + vectors * S::N && vectors <= NV);
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
                    1 => micro_kernel::<T, S, 1, $vectors>(s, args),
                    2 => micro_kernel::<T, S, 2, $vectors>(s, args),
                    3 if MR > 3 => micro_kernel::<T, S, 3, $vectors>(s, args),
                    4 if MR > 4 => micro_kernel::<T, S, 4, $vectors>(s, args),
                    5 if MR > 5 => micro_kernel::<T, S, 5, $vectors>(s, args),
                    _ => micro_kernel::<T, S, MR, $vectors>(s, args),
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
