//! What is reported of a product: the kernel that computed it, and how it was divided among threads.

use super::epilogue::Epilogue;
use super::parallel::division;
use super::params::blocks;
use super::partition::Partition;
use super::serial::Gemm;
use crate::matrix::MatRef;
use crate::observe::{KernelCall, Size};
use crate::precision::MatmulPrecision;
use crate::settings::level;
use std::collections::HashSet;
use std::fmt::{self, Display, Formatter};

/// The kernel that computes a product on one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GemmKernel {
    /// None: M, N or K is 0.
    Nothing,
    /// A function of the crate matrixmultiply: `f64`, and `f32` in portable code.
    Matrixmultiply,
    /// A few rows times contiguous columns, without packing.
    Skinny,
    /// The loops over cache blocks around a micro-kernel.
    Blocked {
        /// Rows and columns of a tile.
        tile: (usize, usize),
        /// Whether the left operand is read in place, else packed.
        a_in_place: bool,
        /// Whether the right operand is read in place, else packed. (The last columns, if they do not fill
        /// a vector, are always packed.)
        b_in_place: bool,
    },
    /// AMX tiles of `bf16`, in split precision.
    Amx(MatmulPrecision),
}

impl Display for GemmKernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let where_read = |in_place| if in_place { "in place" } else { "packed" };
        f.pad(&match self {
            GemmKernel::Nothing => "nothing".into(),
            GemmKernel::Matrixmultiply => "matrixmultiply".into(),
            GemmKernel::Skinny => "skinny".into(),
            GemmKernel::Blocked { tile: (rows, cols), a_in_place, b_in_place } => {
                let (a, b) = (where_read(*a_in_place), where_read(*b_in_place));
                format!("{rows}x{cols}, A {a}, B {b}")
            }
            GemmKernel::Amx(precision) => format!("AMX {precision}"),
        })
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

/// The report, by the thread that called it, of a product: the kernel of most tasks, and in the detail the division and the others.
pub(super) fn describe<T: Gemm>(
    pairs: &[(MatRef<'_, T>, MatRef<'_, T>)],
    accumulate: bool,
    precision: MatmulPrecision,
    epilogue: Option<(&dyn Epilogue<T>, bool)>,
) -> KernelCall {
    let division = division(pairs, precision);
    let (m, k, n) = (pairs[0].0.rows, pairs[0].0.cols, pairs[0].1.cols);
    let mut kernels: Vec<(GemmKernel, usize)> = Vec::new();
    let mut task = |a: MatRef<'_, T>, b: MatRef<'_, T>| {
        let kernel = T::kernel(&a, &b, precision);
        match kernels.iter_mut().find(|(known, _)| *known == kernel) {
            Some((_, tasks)) => *tasks += 1,
            None => kernels.push((kernel, 1)),
        }
    };
    for &(a, b) in pairs {
        match division {
            Division::Whole | Division::Batch { .. } => task(a, b),
            Division::Partition(Partition::Blocks { rows, cols }) => {
                for i in blocks(m, rows) {
                    for j in blocks(n, cols) {
                        task(a.part(i.clone(), 0..k), b.part(0..k, j));
                    }
                }
            }
            Division::Partition(Partition::SplitK { depth }) => {
                for p in blocks(k, depth) {
                    task(a.part(0..m, p.clone()), b.part(p, 0..n));
                }
            }
        }
    }
    kernels.sort_by_key(|&(_, tasks)| std::cmp::Reverse(tasks));
    let (kernel, _) = kernels[0];
    let mut detail = match division {
        Division::Whole => String::new(),
        Division::Batch { per_chunk } => format!("{per_chunk} per task"),
        Division::Partition(Partition::Blocks { rows, cols }) => {
            format!("{} blocks of {rows}x{cols}", m.div_ceil(rows) * n.div_ceil(cols))
        }
        Division::Partition(Partition::SplitK { depth }) => {
            format!("split-K, {} parts of {depth}", k.div_ceil(depth))
        }
    };
    for (other, tasks) in &kernels[1..] {
        let separator = if detail.is_empty() { "" } else { "; " };
        detail += &format!("{separator}{tasks} by {other}");
    }
    // Matrices that are broadcast over a batch are read once.
    let place = |m: &MatRef<'_, T>| (m.data.as_ptr() as usize, m.offset);
    let lefts = pairs.iter().map(|(a, _)| place(a)).collect::<HashSet<_>>().len();
    let rights = pairs.iter().map(|(_, b)| place(b)).collect::<HashSet<_>>().len();
    let results = pairs.len() * m * n;
    let (extra, each) = epilogue.map_or((0, 0), |(epilogue, _)| epilogue.traffic());
    let read = lefts * m * k + rights * k * n + extra + if accumulate { results } else { 0 };
    let written = results * (1 + usize::from(epilogue.is_some_and(|(_, aux)| aux)));
    let name = epilogue.map_or("matmul", |(epilogue, _)| epilogue.name());
    let size = Size::Product { batch: pairs.len(), m, k, n };
    KernelCall {
        detail,
        level: (kernel != GemmKernel::Matrixmultiply).then(|| level().name()),
        flops: (2 * results * k + each * results) as u64,
        read: (read * size_of::<T>()) as u64,
        written: (written * size_of::<T>()) as u64,
        ..KernelCall::new(name, kernel.to_string(), T::DTYPE, size)
    }
}
