//! The partition of a product into tasks for several threads: the one with the least estimated
//! time.

use super::operands::a_in_place;
use super::params::{NC, SPLIT_K_ELEMENTS, TASK_UNIT, TASK_UNIT_SPLIT};
use super::products::Products;
use super::rows::RowGemm;
use super::serial::Gemm;
use super::skinny::SkinnyGemm;
use crate::cost::{Cost, FMA, LOAD, PACK, TASK, TRANSPOSE};
use crate::element::Float;
use crate::matrix::MatRef;
use crate::par;
use crate::precision::MatmulPrecision;
use crate::simd::F32_LANES;

/// Batches of at least so many products are divided between threads product by product.
pub(super) const BATCH: usize = 4;

/// A partition of a product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Partition {
    /// Each task computes a block of the product.
    Blocks {
        /// Rows of a block.
        rows: usize,
        /// Columns of a block.
        cols: usize,
    },
    /// Split-K: each task computes `depth` terms of every sum.
    SplitK {
        /// Terms of every sum in a task.
        depth: usize,
    },
}

/// The size of a product, and the times of its parts in multiply-adds.
pub struct Problem {
    m: usize,
    k: usize,
    n: usize,
    /// Terms of a partial sum in split-K, if sums can be split.
    depth: Option<usize>,
    /// Rows and columns that task sizes are multiples of.
    unit: (usize, usize),
    /// Time to load an element of `a`, for every pass over columns.
    load_a: usize,
    /// Time to load an element of `b`.
    load_b: usize,
}

impl Problem {
    /// The product of `a` and `b`, whose sums are split every `kc` terms, if they are.
    pub fn new<T: Float>(
        a: &MatRef<'_, T>,
        b: &MatRef<'_, T>,
        kc: Option<usize>,
        precision: MatmulPrecision,
    ) -> Problem {
        let (m, k, n) = (a.rows, a.cols, b.cols);
        let own_kernel = kc.is_some(); // matrixmultiply packs everything
        let depth = kc.filter(|&depth| depth < k);
        if precision != MatmulPrecision::F32 {
            // A multiply-add takes a fraction of the time, and everything is packed.
            let pack = 4 * PACK / FMA;
            return Problem { m, k, n, depth, unit: TASK_UNIT_SPLIT, load_a: pack, load_b: pack };
        }
        let load_a = if own_kernel && a_in_place(a, n) { LOAD } else { LOAD + PACK };
        let in_place = SkinnyGemm::is_suitable(a, b) || RowGemm::is_suitable(a, b);
        let load_b = if own_kernel && in_place { TRANSPOSE } else { PACK };
        Problem { m, k, n, depth, unit: TASK_UNIT, load_a: load_a / FMA, load_b: load_b / FMA }
    }

    /// The fastest partition. Split-K is used only if it is clearly faster, and if the partial
    /// products take little memory.
    pub fn partition(&self, threads: usize) -> Partition {
        let most = (self.m.div_ceil(self.unit.0), self.n.div_ceil(self.unit.1));
        let (time, blocks) = [threads, 2 * threads, 4 * threads]
            .into_iter()
            .flat_map(|tasks| (1..=tasks.min(most.0)).map(move |down| (down, tasks.div_ceil(down))))
            .map(|(down, across)| self.blocks(down, across.min(most.1)))
            .map(|partition| (self.time(partition, threads), partition))
            .min_by_key(|(time, _)| *time)
            .expect("there is at least one block");
        let small = |&depth: &usize| self.partial(depth) <= SPLIT_K_ELEMENTS as u64;
        match self.depth.filter(small).map(|depth| Partition::SplitK { depth }) {
            Some(split_k) if self.time(split_k, threads) < time - time / 8 => split_k,
            _ => blocks,
        }
    }

    /// About `down` by `across` blocks, of whole units.
    fn blocks(&self, down: usize, across: usize) -> Partition {
        let block = |n: usize, parts, unit| n.div_ceil(parts).next_multiple_of(unit).min(n);
        let rows = block(self.m, down, self.unit.0);
        Partition::Blocks { rows, cols: block(self.n, across, self.unit.1) }
    }

    /// The time of all tasks: as many rounds as the busiest thread has tasks, a margin for a late
    /// task, and the sum of partial products.
    fn time(&self, partition: Partition, threads: usize) -> u64 {
        let (tasks, task, sum) = match partition {
            Partition::Blocks { rows, cols } => {
                let tasks = self.m.div_ceil(rows) * self.n.div_ceil(cols);
                (tasks, self.task(rows, self.k, cols), 0)
            }
            Partition::SplitK { depth } => {
                let tasks = self.k.div_ceil(depth);
                let sum = self.partial(depth) * (LOAD / FMA) as u64 / threads as u64;
                (tasks, self.task(self.m, depth, self.n), sum)
            }
        };
        tasks.div_ceil(threads) as u64 * task + task / 16 + sum
    }

    /// The estimated times of all tasks on a number of threads, relative to the time of the whole product
    /// as one task, in stages: the blocks, or partial products and their sum.
    pub fn shares(&self, threads: usize) -> Vec<Vec<f64>> {
        let whole = self.task(self.m, self.k, self.n) as f64;
        // The sizes of the parts of a length.
        let parts = |n: usize, size: usize| (0..n).step_by(size).map(move |i| size.min(n - i));
        match self.partition(threads) {
            Partition::Blocks { rows, cols } => {
                let blocks = parts(self.m, rows)
                    .flat_map(|rows| parts(self.n, cols).map(move |cols| (rows, cols)));
                vec![blocks.map(|(r, c)| self.task(r, self.k, c) as f64 / whole).collect()]
            }
            Partition::SplitK { depth } => {
                let products: Vec<f64> = parts(self.k, depth)
                    .map(|k| self.task(self.m, k, self.n) as f64 / whole)
                    .collect();
                let sum = Cost::sum_of(products.len());
                let load = (products.len() * (LOAD / FMA)) as f64 / whole;
                let sums = parts(self.m * self.n, sum.chunk_len()).map(|n| n as f64 * load);
                vec![products, sums.collect()]
            }
        }
    }

    /// Elements of all partial products, which may exceed addresses of 32 bits, as times do.
    fn partial(&self, depth: usize) -> u64 {
        self.k.div_ceil(depth) as u64 * (self.m * self.n) as u64
    }

    /// The time of one task.
    fn task(&self, rows: usize, k: usize, cols: usize) -> u64 {
        let tiles = [rows.next_multiple_of(self.unit.0), cols.next_multiple_of(F32_LANES)];
        let passes = [cols.div_ceil(NC), rows, self.load_a];
        let product = |numbers: &[usize]| numbers.iter().map(|&n| n as u64).product::<u64>();
        let terms = product(&tiles) + product(&passes) + product(&[cols, self.load_b]);
        (TASK / FMA) as u64 + k as u64 * terms
    }
}

/// How a product, or a batch of products, was divided.
#[derive(Clone, Copy)]
pub(super) enum Division {
    /// One task, or one for each product.
    Whole,
    /// Tasks of `per_chunk` products.
    Batch {
        per_chunk: usize,
    },
    Partition(Partition),
}

/// How this thread divides products.
pub(super) fn division<T: Gemm>(
    products: &Products<'_, T>,
    precision: MatmulPrecision,
) -> Division {
    let (a, b) = products.like();
    if products.len() >= BATCH {
        let cost = Cost::matmul(a.rows, a.cols, precision);
        return Division::Batch { per_chunk: cost.products_per_chunk(a.rows * b.cols) };
    }
    partition(&a, &b, precision).map_or(Division::Whole, Division::Partition)
}

/// How this thread divides a product, if it is large enough.
pub(super) fn partition<T: Gemm>(
    a: &MatRef<'_, T>,
    b: &MatRef<'_, T>,
    precision: MatmulPrecision,
) -> Option<Partition> {
    let cost = Cost::matmul(a.rows, a.cols, precision);
    let is_divided = par::should_parallelize(cost, a.rows * b.cols);
    is_divided.then(|| Problem::new(a, b, T::kc(a.cols), precision).partition(par::threads()))
}
