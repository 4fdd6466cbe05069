//! How a product is cut into tasks for several threads: in the way that, by an estimate, is done
//! first.

use crate::gemm::{COLUMNS_AT_ONCE, ROWS_OF_A_TILE, columns_in_registers, rows_in_place};
use crate::matrix::MatRef;
use crate::precision::MatmulPrecision;
use crate::simd::F32_LANES;

/// What a task makes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cut {
    /// A block of the product.
    Blocks { rows: usize, cols: usize },
    /// So many terms of every sum.
    Sums { depth: usize },
}

/// What there is to do. The unit of time is a multiply-add: what else is done takes as long as so
/// many of them.
pub(super) struct Work {
    m: usize,
    k: usize,
    n: usize,
    /// Terms of a sum that can be made by themselves, if there are more.
    depth: Option<usize>,
    /// Rows and columns of a tile, or of a few.
    unit: (usize, usize),
    /// Time to bring in an element of `a`, for every pass over columns.
    of_a: usize,
    /// Time to bring in an element of `b`.
    of_b: usize,
}

/// Time to read an element where it lies, and to copy it; beside multiply-adds of `f32`.
const READ: usize = 20;
const COPY: usize = 28;
/// Time to read and to transpose one in registers.
const TURN: usize = 8;
/// Time to begin with a task: a microsecond.
const BEGIN: usize = 1 << 16;
/// Elements that parts of sums may have in all, until they are added up.
const PARTS: usize = 1 << 20;

impl Work {
    pub(super) fn new<T>(
        a: &MatRef<'_, T>,
        b: &MatRef<'_, T>,
        depth: Option<usize>,
        precision: MatmulPrecision,
    ) -> Work {
        let (m, k, n) = (a.rows, a.cols, b.cols);
        let ours = depth.is_some(); // matrixmultiply copies everything
        let depth = depth.filter(|&depth| depth < k);
        if precision != MatmulPrecision::F32 {
            // A multiply-add takes a fraction of the time, and all is copied.
            let copy = 4 * COPY;
            return Work { m, k, n, depth, unit: (32, 64), of_a: copy, of_b: copy };
        }
        let of_a = if ours && rows_in_place(a, n) { READ } else { READ + COPY };
        let of_b = if ours && columns_in_registers(a, b) { TURN } else { COPY };
        Work { m, k, n, depth, unit: (ROWS_OF_A_TILE, 64), of_a, of_b }
    }

    /// The cut that is done first. Sums are cut only if that is clearly faster, and if their parts
    /// do not take much memory.
    pub(super) fn cut(&self, threads: usize) -> Cut {
        let most = (self.m.div_ceil(self.unit.0), self.n.div_ceil(self.unit.1));
        let (time, blocks) = [threads, 2 * threads, 4 * threads]
            .into_iter()
            .flat_map(|tasks| (1..=tasks.min(most.0)).map(move |down| (down, tasks.div_ceil(down))))
            .map(|(down, across)| self.blocks(down, across.min(most.1)))
            .map(|cut| (self.time(cut, threads), cut))
            .min_by_key(|(time, _)| *time)
            .expect("there is at least one block");
        let small = |depth: &usize| self.k.div_ceil(*depth) * self.m * self.n <= PARTS;
        match self.depth.filter(small).map(|depth| Cut::Sums { depth }) {
            Some(sums) if self.time(sums, threads) < time - time / 8 => sums,
            _ => blocks,
        }
    }

    /// About so many blocks, of whole units.
    fn blocks(&self, down: usize, across: usize) -> Cut {
        let block = |n: usize, parts, unit| n.div_ceil(parts).next_multiple_of(unit).min(n);
        let rows = block(self.m, down, self.unit.0);
        Cut::Blocks { rows, cols: block(self.n, across, self.unit.1) }
    }

    /// Until all tasks are done: by as many rounds as the busiest thread needs, and some waiting
    /// for one that comes late.
    fn time(&self, cut: Cut, threads: usize) -> usize {
        let (tasks, task, after) = match cut {
            Cut::Blocks { rows, cols } => {
                let tasks = self.m.div_ceil(rows) * self.n.div_ceil(cols);
                (tasks, self.task(rows, self.k, cols), 0)
            }
            Cut::Sums { depth } => {
                let tasks = self.k.div_ceil(depth);
                let parts = tasks * self.m * self.n;
                (tasks, self.task(self.m, depth, self.n), parts * READ / threads)
            }
        };
        tasks.div_ceil(threads) * task + task / 16 + after
    }

    /// Of one task.
    fn task(&self, rows: usize, k: usize, cols: usize) -> usize {
        let passes = cols.div_ceil(COLUMNS_AT_ONCE);
        let terms = rows.next_multiple_of(self.unit.0) * cols.next_multiple_of(F32_LANES);
        BEGIN + k * (terms + passes * rows * self.of_a + cols * self.of_b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `f32`, with both operands in rows.
    fn work([m, k, n]: [usize; 3]) -> Work {
        let unit = (ROWS_OF_A_TILE, 64);
        Work { m, k, n, depth: Some(512).filter(|&d| d < k), unit, of_a: READ, of_b: COPY }
    }

    #[test]
    fn threads_are_kept_busy_alike() {
        // A few blocks each, of the same size.
        let shapes = [[4096, 384, 1152], [1024, 1024, 1024], [768, 128, 512], [768, 512, 128]];
        for shape in shapes {
            for threads in [2, 4, 8] {
                let Cut::Blocks { rows, cols } = work(shape).cut(threads) else {
                    panic!("{shape:?} by sums")
                };
                let blocks = shape[0].div_ceil(rows) * shape[2].div_ceil(cols);
                assert_eq!(blocks % threads, 0, "{shape:?} by {rows} x {cols}");
                let share = shape[0] * shape[2] / threads;
                let most = blocks / threads * rows * cols;
                assert!(most * 10 < share * 11, "{shape:?} by {rows} x {cols}, {threads} threads");
            }
        }
    }

    #[test]
    fn a_small_product_of_long_sums_is_cut_into_parts_of_sums() {
        assert_eq!(work([65, 16384, 64]).cut(2), Cut::Sums { depth: 512 });
        assert_eq!(work([16, 16384, 16]).cut(4), Cut::Sums { depth: 512 });
        assert!(matches!(work([16, 512, 16]).cut(4), Cut::Blocks { .. }));
    }

    #[test]
    fn parts_of_sums_never_take_much_memory() {
        for (m, n) in [(1024, 1024), (384, 1152), (2048, 2048), (4096, 4096)] {
            for k in [4096, 65536] {
                for threads in [2, 3, 8, 64] {
                    let cut = work([m, k, n]).cut(threads);
                    assert!(matches!(cut, Cut::Blocks { .. }), "{m} x {k} x {n}: {cut:?}");
                }
            }
        }
    }

    #[test]
    fn the_smallest_products_have_a_block() {
        for shape in [[1, 0, 1], [1, 5000, 1], [1, 64, 4096], [4096, 64, 1], [5, 700, 3]] {
            for threads in [1, 2, 3, 64] {
                if let Cut::Blocks { rows, cols } = work(shape).cut(threads) {
                    assert!((1..=shape[0]).contains(&rows) && (1..=shape[2]).contains(&cols));
                }
            }
        }
    }
}
