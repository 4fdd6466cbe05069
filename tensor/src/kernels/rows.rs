//! Row kernels: operations that need the whole last axis at once.

use super::lane_arrays;
pub(crate) use super::lane_arrays::splat;
use crate::cost::Cost;
use crate::error::{ErrorKind, OrPanic, assert};
use crate::formula::Expr;
use crate::kernels::{Real, level_of};
use crate::loop_nest::LoopNest;
use crate::observe::{self, KernelCall};
use crate::par;
use crate::settings;
use crate::shape::Shape;
use crate::simd::{
    F32_LANES, Kernel, LINE, Lanes, PREFETCH_DISTANCE, inlined, needs_software_prefetch,
    prefetch_l1, prefetch_l2,
};
use crate::tensor::Tensor;

/// A formula from `K` rows of equal length to one, on lanes.
pub trait RowKernel<T: Real, const K: usize>: Copy + Send + Sync {
    /// Estimated time per element.
    const COST: Cost;
    /// Writes all of `out`; `index` counts rows. Mark it `#[inline(always)]`.
    fn row<S: Lanes<T>>(self, s: S, index: usize, x: [&[T]; K], out: &mut [T]);
}

/// Applies a row kernel along the last axis of `K` tensors of equal shape.
///
/// Contiguous rows are read in place, wherever they start; so an operand that is broadcast over
/// leading axes is not copied.
#[inline(never)]
#[track_caller]
pub fn apply_row_kernel<T: Real, R: RowKernel<T, K>, const K: usize>(
    name: &'static str,
    op: R,
    x: [&Tensor<T>; K],
) -> Tensor<T> {
    let level = settings::level();
    with_row_blocks(name, R::COST, x, &|rows| T::dispatch(level, Chunk { op, rows }), &|rows| {
        T::operations(Chunk { op, rows })
    })
}

/// [`apply_row_kernel`] without the formula, so that it is compiled once for all formulas: `f`
/// processes a block of rows.
#[inline(never)]
#[track_caller]
fn with_row_blocks<T: Real, const K: usize>(
    name: &'static str,
    cost: Cost,
    x: [&Tensor<T>; K],
    f: &(dyn Fn(RowBlock<'_, T, K>) + Send + Sync),
    operations: &dyn Fn(RowBlock<'_, T, K>) -> Option<u64>,
) -> Tensor<T> {
    let shape = same_shape(name, &x);
    if shape.numel() == 0 {
        return Tensor::zeros(shape);
    }
    let last = shape.rank() - 1;
    let width = shape[last];
    let call = observe::begin();
    let mut x = x.map(Tensor::clone);
    for t in &mut x {
        if width != 1 && t.layout().strides()[last] != 1 {
            *t = t.contiguous();
        }
    }
    let data = x.each_ref().map(|t| t.data());
    let heads = x.each_ref().map(|t| t.layout().select(name, -1, 0).or_panic());
    let nest = LoopNest::new(&shape.without(last), heads.each_ref());
    let prefetches = needs_software_prefetch::<T>(K + 1, shape.numel());
    Tensor::build(name, shape, |out| {
        let chunk = cost.units_per_chunk(width) * width;
        par::fill(out, chunk, cost, |first, out| {
            let first = first / width;
            f(RowBlock { nest: &nest, first, data, width, out, prefetches });
        });
        observe::end(call, || {
            let out = &mut vec![T::ZERO; width];
            let row = RowBlock { nest: &nest, first: 0, data, width, out, prefetches: false };
            describe(name, "rows", shape, &x, operations(row), shape.numel())
        });
    })
}

/// The report of a row kernel with so many operations per lane in a row, which writes so many elements.
#[cold]
fn describe<T: Real>(
    name: &'static str,
    kernel: &'static str,
    shape: Shape,
    x: &[Tensor<T>],
    operations: Option<u64>,
    written: usize,
) -> KernelCall {
    // Of the lanes of the vectors of a row, those within its width.
    let (rows, width) = (shape.numel() / shape[shape.rank() - 1], shape[shape.rank() - 1]);
    let vectors = width.div_ceil(F32_LANES);
    let flops = operations.map(|n| rows as u64 * (n * width as u64).div_ceil(vectors as u64));
    KernelCall {
        level: level_of::<T>(settings::level()),
        flops: flops.unwrap_or(shape.numel() as u64),
        read: x.iter().map(Tensor::distinct_bytes).sum(),
        written: (written * size_of::<T>()) as u64,
        ..KernelCall::new(name, kernel, T::DTYPE, shape)
    }
}

/// A block of rows of the operands and of the result.
struct RowBlock<'a, T, const K: usize> {
    /// The loop nest over the first elements of rows.
    nest: &'a LoopNest<K>,
    /// The index of the first row.
    first: usize,
    data: [&'a [T]; K],
    width: usize,
    out: &'a mut [T],
    /// Whether to prefetch.
    prefetches: bool,
}

/// The common shape of all operands.
#[track_caller]
fn same_shape<T: Real>(name: &'static str, x: &[&Tensor<T>]) -> Shape {
    let shape = *x[0].shape();
    for other in &x[1..] {
        assert(*other.shape() == shape, name, ErrorKind::Mismatch, || {
            format!("{shape:?} and {:?} differ", other.shape())
        });
    }
    shape
}

/// The work of one task.
struct Chunk<'a, T, R, const K: usize> {
    op: R,
    rows: RowBlock<'a, T, K>,
}

impl<T: Real, R: RowKernel<T, K>, const K: usize> Kernel<T> for Chunk<'_, T, R, K> {
    type Out = ();
    const EIGHT_F64: bool = true;

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let RowBlock { nest, first, data, width, out, prefetches } = self.rows;
        let mut cursor = nest.cursor(first);
        let (mut left, mut start, mut step) = (0, [0; K], [0; K]);
        for k in 0..K {
            step[k] = nest.stride(k);
        }
        for (i, out) in out.chunks_exact_mut(width).enumerate() {
            if left == 0 {
                (left, start) = cursor.next(usize::MAX);
            }
            let x = lane_arrays::parts(&data, start, width);
            if prefetches {
                prefetch_rows(x, out);
            }
            self.op.row(s, first + i, x, out);
            left -= 1;
            for k in 0..K {
                start[k] = start[k].wrapping_add_signed(step[k]);
            }
        }
    }
}

/// Prefetches later rows.
#[inline(always)]
fn prefetch_rows<T: Real, const K: usize>(x: [&[T]; K], out: &[T]) {
    let ahead = out.len().max(PREFETCH_DISTANCE);
    for j in (0..out.len()).step_by(LINE) {
        for k in 0..K {
            prefetch_l2(x[k].as_ptr().wrapping_add(j + ahead));
        }
        prefetch_l1(out.as_ptr().wrapping_add(j + ahead));
    }
}

/// Applies a row kernel along any axis, by moving the axis to the end and back.
#[track_caller]
pub fn apply_row_kernel_along<T: Real, R: RowKernel<T, K>, const K: usize>(
    name: &'static str,
    op: R,
    x: [&Tensor<T>; K],
    axis: usize,
) -> Tensor<T> {
    let rank = x[0].rank();
    if axis + 1 == rank {
        return apply_row_kernel(name, op, x);
    }
    let moved = x.map(|t| t.view_moved_last(axis));
    let out = apply_row_kernel(name, op, std::array::from_fn(|k| &moved[k]));
    let mut back: Vec<isize> = (0..rank as isize - 1).collect();
    back.insert(axis, rank as isize - 1);
    out.permute(back)
}

/// A formula from `K` rows to one that also accumulates `C` sums over all rows: gradients with
/// respect to operands that were broadcast over the rows.
pub trait ColumnKernel<T: Real, const K: usize, const C: usize>: Copy + Send + Sync {
    /// Estimated time per element.
    const COST: Cost;
    /// Writes all of `out` and adds to `columns`. Mark it `#[inline(always)]`.
    fn row<S: Lanes<T>>(self, s: S, x: [&[T]; K], out: &mut [T], columns: &mut [&mut [T]; C]);
}

/// Applies a column kernel along the last axis of `K` tensors of equal shape. Column sums
/// are accumulated in chunks of rows whose size depends on the width alone, and the chunks added in
/// order.
#[inline(never)]
#[track_caller]
pub fn apply_column_kernel<T: Real, R, const K: usize, const C: usize>(
    name: &'static str,
    op: R,
    x: [&Tensor<T>; K],
) -> (Tensor<T>, [Tensor<T>; C])
where
    R: ColumnKernel<T, K, C>,
{
    let shape = same_shape(name, &x);
    let width = shape[shape.rank() - 1];
    if shape.numel() == 0 {
        return (Tensor::zeros(shape), std::array::from_fn(|_| Tensor::zeros([width])));
    }
    let call = observe::begin();
    let operands = x.map(Tensor::contiguous);
    let x: [&[T]; K] = std::array::from_fn(|k| operands[k].as_slice());
    let chunk = R::COST.units_per_chunk(width) * width;
    let sums = [shape.numel().div_ceil(chunk), C, width];
    let level = settings::level();
    let prefetches = needs_software_prefetch::<T>(K + 1, shape.numel());
    let (out, sums) = Tensor::build2(name, shape, sums.into(), |out, sums| {
        par::fill2((out, chunk), (sums, C * width), R::COST, |i, out, sums| {
            let x = x.map(|x| &x[i * chunk..i * chunk + out.len()]);
            T::dispatch(level, ColumnChunk { op, x, width, out, sums, prefetches });
        });
    });
    let columns = std::array::from_fn(|c| sums.select(1, c).sum(0));
    observe::end(call, || {
        let written = shape.numel() + C * width;
        let x = x.map(|x| &x[..width]);
        let (out, sums) = (&mut vec![T::ZERO; width], &mut vec![T::ZERO; C * width]);
        let row = ColumnChunk { op, x, width, out, sums, prefetches: false };
        let operations = T::operations(row);
        describe(name, "rows and column sums", shape, &operands, operations, written)
    });
    (out, columns)
}

struct ColumnChunk<'a, T: Real, R, const K: usize, const C: usize> {
    op: R,
    x: [&'a [T]; K],
    width: usize,
    out: &'a mut [T],
    /// `C` rows.
    sums: &'a mut [T],
    /// Whether to prefetch.
    prefetches: bool,
}

impl<T: Real, R: ColumnKernel<T, K, C>, const K: usize, const C: usize> Kernel<T>
    for ColumnChunk<'_, T, R, K, C>
{
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let ColumnChunk { op, x, width, out, sums, prefetches } = self;
        sums.fill(T::ZERO);
        let mut columns = sums.chunks_exact_mut(width);
        let mut columns: [&mut [T]; C] =
            std::array::from_fn(|_| columns.next().expect("as many as columns"));
        for (i, out) in out.chunks_exact_mut(width).enumerate() {
            let x = lane_arrays::parts(&x, [i * width; K], width);
            if prefetches {
                prefetch_rows(x, out);
            }
            op.row(s, x, out, &mut columns);
        }
    }
}

/// Reduces rows of equal length, vector by vector: `acc = f(acc, v)`. Four independent accumulators
/// hide the latency of `f`; `join` combines them at the end.
///
/// Lanes beyond the end of the rows are `fill`.
#[inline(always)]
pub fn fold_rows<T: Real, S: Lanes<T>, A: Copy, const K: usize>(
    s: S,
    x: [&[T]; K],
    fill: [T; K],
    init: A,
    f: impl Fn(A, [Expr<T, S>; K]) -> A,
    join: impl Fn(A, A) -> A,
) -> A {
    let n = x[0].len();
    let (mut acc, mut i) = ([init; 4], 0);
    while i + 4 * S::N <= n {
        for (k, acc) in acc.iter_mut().enumerate() {
            *acc = f(*acc, lane_arrays::load(s, &x, i + k * S::N));
        }
        i += 4 * S::N;
    }
    for acc in &mut acc[..3] {
        if i + S::N <= n {
            *acc = f(*acc, lane_arrays::load(s, &x, i));
            i += S::N;
        }
    }
    if i < n {
        acc[3] = f(acc[3], lane_arrays::load_rest(s, &x, i, fill));
    }
    join(join(acc[0], acc[1]), join(acc[2], acc[3]))
}

/// `Σ f(x₀[i], ..)`. Lanes beyond the end of the rows are `fill`, of which `f` must be 0.
#[inline(always)]
pub fn sum_rows<T: Real, S: Lanes<T>, const K: usize>(
    s: S,
    x: [&[T]; K],
    fill: [T; K],
    f: impl Fn([Expr<T, S>; K]) -> Expr<T, S>,
) -> T {
    let sum = fold_rows(
        s,
        x,
        fill,
        splat(s, T::ZERO),
        inlined!(|acc, v| acc + f(v)),
        inlined!(|a, b| a + b),
    );
    s.sum(sum.value())
}

/// Loads a whole row into registers: for a row of a few vectors, storing intermediate results and
/// loading them again takes longer than the arithmetic.
///
/// `K` is `x.len().div_ceil(S::N)`, see `in_registers`.
#[inline(always)]
pub fn load_row<T: Real, S: Lanes<T>, const K: usize>(s: S, x: &[T], fill: T) -> [Expr<T, S>; K] {
    let mut v = [splat(s, fill); K];
    for k in 0..K {
        v[k] = match k + 1 < K {
            true => Expr::new(s, s.load(&x[k * S::N..])),
            false => Expr::new(s, s.load_or(&x[k * S::N..], fill)),
        };
    }
    v
}

/// Stores a row that [`load_row`] loaded.
#[inline(always)]
pub fn store_row<T: Real, S: Lanes<T>, const K: usize>(s: S, v: [Expr<T, S>; K], out: &mut [T]) {
    for k in 0..K {
        let out = &mut out[k * S::N..];
        // A masked store takes longer, as in `gemm/micro_kernel.rs`.
        match k + 1 < K || out.len() == S::N {
            true => s.store(v[k].value(), out),
            false => s.store_part(v[k].value(), out),
        }
    }
}

/// Combines the vectors of a row pairwise into one.
#[inline(always)]
pub fn join_row<V: Copy, const K: usize>(mut v: [V; K], f: impl Fn(V, V) -> V) -> V {
    let mut n = K;
    while n > 1 {
        for k in 0..n / 2 {
            v[k] = f(v[k], v[n - 1 - k]);
        }
        n = n.div_ceil(2);
    }
    v[0]
}

/// `in_registers!(S, width, K => short, long)`: `short` with the constant `K` for rows of up to
/// eight vectors, `long` for the others.
macro_rules! in_registers {
    ($S:ident, $width:expr, $K:ident => $short:expr, $long:expr) => {
        in_registers!(@ $S, $width, $K, $short, $long, 1 2 3 4 5 6 7 8)
    };
    (@ $S:ident, $width:expr, $K:ident, $short:expr, $long:expr, $($n:literal)+) => {
        match $S::KEEPS_ROWS {
            true => match $width.div_ceil($S::N) {
                $($n => {
                    const $K: usize = $n;
                    $short
                })+
                _ => $long,
            },
            false => $long,
        }
    };
}
pub(crate) use in_registers;

/// `out[i] = f(x₀[i], ..)` over rows of equal length.
#[inline(always)]
pub fn map_row<T: Real, S: Lanes<T>, const K: usize>(
    s: S,
    x: [&[T]; K],
    out: &mut [T],
    f: impl Fn([Expr<T, S>; K]) -> Expr<T, S>,
) {
    let full = out.len() / S::N * S::N;
    let mut i = 0;
    while i < full {
        s.store(f(lane_arrays::load(s, &x, i)).value(), &mut out[i..]);
        i += S::N;
    }
    if full < out.len() {
        let v = lane_arrays::load_rest(s, &x, full, [T::ONE; K]);
        s.store_part(f(v).value(), &mut out[full..]);
    }
}

/// `x[i] = f(x[i])` over a row.
#[inline(always)]
pub fn update_row<T: Real, S: Lanes<T>>(s: S, x: &mut [T], f: impl Fn(Expr<T, S>) -> Expr<T, S>) {
    let full = x.len() / S::N * S::N;
    let mut i = 0;
    while i < full {
        s.store(f(Expr::new(s, s.load(&x[i..]))).value(), &mut x[i..]);
        i += S::N;
    }
    if full < x.len() {
        let rest = Expr::new(s, s.load_or(&x[full..], T::ONE));
        s.store_part(f(rest).value(), &mut x[full..]);
    }
}

/// `out₀[i], .. = f(x₀[i], .., out₀[i], ..)` over rows of equal length.
#[inline(always)]
pub fn write_rows<T: Real, S: Lanes<T>, const K: usize, const W: usize>(
    s: S,
    x: [&[T]; K],
    out: [&mut [T]; W],
    f: impl Fn([Expr<T, S>; K], [Expr<T, S>; W]) -> [Expr<T, S>; W],
) {
    let n = out[0].len();
    let full = n / S::N * S::N;
    let mut i = 0;
    while i < full {
        let new = f(lane_arrays::load(s, &x, i), lane_arrays::load(s, &out, i));
        for k in 0..W {
            s.store(new[k].value(), &mut out[k][i..]);
        }
        i += S::N;
    }
    if full < n {
        let v = lane_arrays::load_rest(s, &x, full, [T::ONE; K]);
        let old = lane_arrays::load_rest(s, &out, full, [T::ONE; W]);
        let new = f(v, old);
        for k in 0..W {
            s.store_part(new[k].value(), &mut out[k][full..]);
        }
    }
}
