//! How a product is cut into tasks for several threads: in the way that, by an estimate, is done
//! first.

use crate::gemm::{COLUMNS_AT_ONCE, rows_in_place};
use crate::matrix::MatRef;
use crate::precision::MatmulPrecision;

/// What a task makes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cut {
    /// A block of the product.
    Blocks { rows: usize, cols: usize },
    /// So many terms of every sum.
    Sums { depth: usize },
}

/// What there is to do. Time is told in multiply-adds: what else is done takes as long as so many.
pub(super) struct Work {
    m: usize,
    k: usize,
    n: usize,
    /// Terms of a sum that can be made by themselves.
    depth: Option<usize>,
    /// Rows and columns of a tile, or of a few.
    unit: (usize, usize),
    /// To bring in an element of `a`, for every pass over columns.
    of_a: usize,
    /// To bring in an element of `b`.
    of_b: usize,
}

/// To read an element where it lies, and to copy it, as measured beside f32.
const READ: usize = 20;
const COPY: usize = 28;
/// To begin with a task: a microsecond.
const BEGIN: usize = 1 << 16;

impl Work {
    pub(super) fn new<T>(
        a: &MatRef<'_, T>,
        b: &MatRef<'_, T>,
        depth: Option<usize>,
        precision: MatmulPrecision,
    ) -> Work {
        let (m, k, n) = (a.rows, a.cols, b.cols);
        let depth = depth.filter(|&depth| depth < k);
        if precision != MatmulPrecision::F32 {
            // A multiply-add takes a fraction of the time, and all is copied.
            let copy = 4 * COPY;
            return Work { m, k, n, depth, unit: (32, 64), of_a: copy, of_b: copy };
        }
        let of_a = if rows_in_place(a, n) { READ } else { READ + COPY };
        Work { m, k, n, depth, unit: (6, 64), of_a, of_b: COPY }
    }

    /// The cut that is done first.
    pub(super) fn cut(&self, threads: usize) -> Cut {
        let blocks = [threads, 2 * threads, 4 * threads].into_iter().flat_map(|tasks| {
            (1..=tasks).map(move |down| {
                let across = tasks.div_ceil(down);
                let block =
                    |n: usize, parts: usize, unit| n.div_ceil(parts).next_multiple_of(unit).min(n);
                let rows = block(self.m, down, self.unit.0);
                Cut::Blocks { rows, cols: block(self.n, across, self.unit.1) }
            })
        });
        let sums = self.depth.map(|depth| Cut::Sums { depth });
        let best = blocks.chain(sums).min_by_key(|&cut| self.time(cut, threads));
        best.unwrap_or(Cut::Blocks { rows: self.m, cols: self.n })
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
                let sums = tasks * self.m * self.n * READ;
                (tasks, self.task(self.m, depth, self.n), sums / threads)
            }
        };
        tasks.div_ceil(threads) * task + task / 16 + after
    }

    /// Of one task.
    fn task(&self, rows: usize, k: usize, cols: usize) -> usize {
        let passes = cols.div_ceil(COLUMNS_AT_ONCE);
        let terms = rows.next_multiple_of(6) * cols.next_multiple_of(16);
        BEGIN + k * (terms + passes * rows * self.of_a + cols * self.of_b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut([m, k, n]: [usize; 3], threads: usize) -> Cut {
        let (a, b) = (vec![0.0_f32; m * k], vec![0.0_f32; k * n]);
        let (a, b) = (MatRef::new(&a, m, k), MatRef::new(&b, k, n));
        Work::new(&a, &b, Some(512), MatmulPrecision::F32).cut(threads)
    }

    #[test]
    fn threads_are_kept_busy_alike() {
        // A few blocks each, of the same size.
        for shape in [[4096, 384, 1152], [1024, 1024, 1024], [768, 128, 512], [768, 512, 128]] {
            for threads in [2, 4, 8] {
                let Cut::Blocks { rows, cols } = cut(shape, threads) else { panic!("{shape:?}") };
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
        assert_eq!(cut([65, 16384, 128], 2), Cut::Sums { depth: 512 });
        assert_eq!(cut([16, 16384, 16], 4), Cut::Sums { depth: 512 });
        assert!(matches!(cut([16, 512, 16], 4), Cut::Blocks { .. }));
    }
}
