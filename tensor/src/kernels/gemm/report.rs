//! What is reported of a product: the kernel that computed it, and how it was divided among threads.

use super::epilogue::Epilogue;
use super::kernel::GemmKernel;
use super::native::has_kernels;
use super::params::blocks;
use super::partition::{Division, Partition, division};
use super::products::Products;
use super::serial::Gemm;
use crate::element::{DType, Float};
use crate::matrix::MatRef;
use crate::observe::{KernelCall, Size};
use crate::precision::MatmulPrecision;
use crate::settings::{level, matmul_precision};
use std::collections::HashSet;

/// The report, by the thread that called it, of a product: the kernel of most tasks, and in the detail the division and the others.
pub(super) fn describe<T: Gemm>(
    products: &Products<'_, T>,
    accumulate: bool,
    precision: MatmulPrecision,
    epilogue: Option<(&dyn Epilogue<T>, bool)>,
) -> KernelCall {
    let division = division(products, precision);
    let (m, k, n) = products.sizes();
    let mut kernels: Vec<(GemmKernel, usize)> = Vec::new();
    let mut task = |a: MatRef<'_, T>, b: MatRef<'_, T>| {
        let kernel = T::kernel(&a, &b, precision);
        match kernels.iter_mut().find(|(known, _)| *known == kernel) {
            Some((_, tasks)) => *tasks += 1,
            None => kernels.push((kernel, 1)),
        }
    };
    let (mut lefts, mut rights) = (HashSet::new(), HashSet::new());
    for (_, a, b) in products.iter() {
        lefts.insert(a.offset);
        rights.insert(b.offset);
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
    let (lefts, rights) = (lefts.len(), rights.len());
    let results = products.len() * m * n;
    let (extra, each) = epilogue.map_or((0, 0), |(epilogue, _)| epilogue.traffic());
    let read = lefts * m * k + rights * k * n + extra + if accumulate { results } else { 0 };
    let written = results * (1 + usize::from(epilogue.is_some_and(|(_, aux)| aux)));
    let name = epilogue.map_or("matmul", |(epilogue, _)| epilogue.name());
    let size = Size::Product { batch: products.len(), m, k, n };
    KernelCall {
        detail,
        level: (kernel != GemmKernel::Matrixmultiply).then(|| level().name()),
        flops: (2 * results * k + each * results) as u64,
        read: (read * size_of::<T>()) as u64,
        written: (written * size_of::<T>()) as u64,
        ..KernelCall::new(name, kernel.to_string(), T::DTYPE, size)
    }
}

/// What results in `T` on this thread depend on, beside their inputs and the version of this library, in words:
/// whether multiply-adds are fused, and how matrices are multiplied. Threads and machines with the same words
/// compute the same bits.
///
/// ```
/// use retrograd::tensor::{kernels::gemm::arithmetic, settings::with_level, simd::Level};
/// let portable = with_level(Level::Scalar, arithmetic::<f32>);
/// assert!(portable.starts_with("separate multiplications and additions"));
/// ```
pub fn arithmetic<T: Float>() -> String {
    let level = level();
    if !level.is_fused() {
        return "separate multiplications and additions".into();
    }
    let asked = matmul_precision();
    let precision = if asked.is_supported() { asked } else { MatmulPrecision::F32 };
    match T::DTYPE {
        DType::F32 => format!("fused multiply-adds, matrix products in {precision}"),
        _ if has_kernels::<T>(level) => "fused multiply-adds, also in matrix products".into(),
        _ => "fused multiply-adds, matrix products by matrixmultiply".into(),
    }
}
