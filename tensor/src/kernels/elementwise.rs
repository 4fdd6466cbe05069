//! Elementwise operations on any number of operands, broadcast together.

use super::lane_arrays;
use crate::cost::Cost;
use crate::element::Element;
use crate::error::OrPanic;
use crate::formula::Expr;
use crate::kernels::{Real, level_of};
use crate::layout::Layout;
use crate::loop_nest::{Cursor, LoopNest, gather, gather_runs};
use crate::observe::{self, KernelCall};
use crate::par;
use crate::settings;
use crate::shape::Shape;
use crate::simd::{
    Kernel, Lanes, Level, PREFETCH_DISTANCE, needs_software_prefetch, prefetch_l1, prefetch_l2,
};
use crate::tensor::Tensor;
use crate::transpose::{TILE, Tile, Tiles, transpose};

/// A formula from `K` numbers to one.
pub trait Elementwise<T: Real, const K: usize>: Copy + Send + Sync {
    /// Estimated time per element.
    const COST: Cost;
    /// The formula. Mark it `#[inline(always)]`.
    fn f<S: Lanes<T>>(self, x: [Expr<T, S>; K]) -> Expr<T, S>;
}

/// Structs with a formula each: their names, costs and formulas.
macro_rules! formulas {
    ($($(#[$doc:meta])* $name:ident, $cost:ident, |$($x:ident),+| $f:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name;

        impl<T: Real> Elementwise<T, { [$(stringify!($x)),+].len() }> for $name {
            const COST: Cost = Cost::$cost;
            #[inline(always)]
            fn f<S: Lanes<T>>(
                self,
                [$($x),+]: [Expr<T, S>; { [$(stringify!($x)),+].len() }],
            ) -> Expr<T, S> {
                $f
            }
        }
    )+};
}
pub(crate) use formulas;

/// Elements of the buffers that operands with other strides than 1 are copied to. They are large, since each
/// block of work has an overhead.
const BUFFER: usize = 1024;
/// The same for small chunks: buffers are initialised, so a large one would cost more than it saves.
const SMALL_BUFFER: usize = 256;
/// A buffer, aligned because loads that cross cache lines take twice as long.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Block<T, const N: usize>([T; N]);
/// Runs shorter than this are copied to a buffer, several at a time.
const SHORT_RUN: usize = 32;

/// The shape that all operands broadcast to.
#[track_caller]
pub fn common_shape<const K: usize>(op: &'static str, shapes: [&Shape; K]) -> Shape {
    let mut all = *shapes[0];
    for shape in &shapes[1..] {
        all = Shape::broadcast(op, &all, shape).or_panic();
    }
    all
}

/// The shape that all operands broadcast to, and the loop nest over it.
#[track_caller]
#[inline(never)]
pub(super) fn common_nest<const K: usize>(
    op: &'static str,
    layouts: [&Layout; K],
) -> (Shape, LoopNest<K>) {
    let shape = common_shape(op, layouts.map(|l| l.shape()));
    if layouts.iter().all(|l| *l.shape() == shape) {
        return (shape, LoopNest::new(&shape, layouts));
    }
    let layouts = layouts.map(|l| l.broadcast_to(op, &shape).or_panic());
    (shape, LoopNest::new(&shape, layouts.each_ref()))
}

/// `out[i] = op.f(x₀[i], x₁[i], ..)` over the common shape.
#[inline(never)]
#[track_caller]
pub fn elementwise<T: Real, E: Elementwise<T, K>, const K: usize>(
    name: &'static str,
    op: E,
    x: [&Tensor<T>; K],
) -> Tensor<T> {
    let level = settings::level();
    let apply = |runs: &mut Runs<'_, T, K>| T::dispatch(level, Apply { op, runs });
    if observe::may_be_observed() {
        return observed(name, E::COST, level, x, &apply, &|| T::operations(OnOnes { op }));
    }
    with_runs(name, E::COST, level, x, &apply)
}

/// [`with_runs`], and the report of it. (The way without an observer has nothing of this.)
#[cold]
#[inline(never)]
#[track_caller]
fn observed<T: Real, const K: usize>(
    name: &'static str,
    cost: Cost,
    level: Level,
    x: [&Tensor<T>; K],
    f: &(dyn Fn(&mut Runs<'_, T, K>) + Send + Sync),
    operations: &dyn Fn() -> Option<u64>,
) -> Tensor<T> {
    let call = observe::begin();
    let result = with_runs(name, cost, level, x, f);
    observe::end(call, || {
        let (shape, nest) = common_nest(name, x.map(|t| t.layout()));
        let kernel = match Access::of(&nest, &shape) {
            Access::Contiguous => "contiguous",
            Access::Repeated => "repeated numbers",
            Access::ShortRuns => "short runs copied",
            Access::Strided => "strided runs copied",
            Access::Transposed => "transposed tiles",
        };
        let read = x.iter().map(|x| x.distinct_bytes()).sum();
        let each = operations().unwrap_or(1);
        describe::<T>(name, kernel, shape, level_of::<T>(level), each, read)
    });
    result
}

/// The formula on one vector of ones for each operand, to count its operations.
struct OnOnes<E, const K: usize> {
    op: E,
}

impl<T: Real, E: Elementwise<T, K>, const K: usize> Kernel<T> for OnOnes<E, K> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        self.op.f([lane_arrays::splat(s, T::ONE); K]);
    }
}

/// Runs of equal length, in which the elements of every operand are contiguous.
struct Runs<'a, T, const K: usize> {
    x: [&'a [T]; K],
    /// The start of the first run in each operand, and the distance from each run to the next.
    start: [usize; K],
    step: [isize; K],
    len: usize,
    /// The output from the first element to the last, and the distance from each run to the next.
    out: &'a mut [T],
    out_step: usize,
    /// Which operands have one number in a run, and a buffer of each operand for these.
    repeats: [bool; K],
    buffers: &'a mut [T],
    /// Whether to prefetch.
    prefetches: bool,
}

impl<'a, T, const K: usize> Runs<'a, T, K> {
    /// Runs that are read in place, without an output yet.
    #[inline(always)]
    fn of(x: [&'a [T]; K], start: [usize; K], step: [isize; K], len: usize) -> Self {
        let (out, repeats, buffers) = (&mut [][..], [false; K], &mut [][..]);
        Runs { x, start, step, len, out, out_step: len, repeats, buffers, prefetches: false }
    }
}

/// The formula over some runs.
struct Apply<'r, 'a, T, E, const K: usize> {
    op: E,
    /// By reference: copying a structure right after it was written stalls on store forwarding.
    runs: &'r mut Runs<'a, T, K>,
}

impl<T: Real, E: Elementwise<T, K>, const K: usize> Kernel<T> for Apply<'_, '_, T, E, K> {
    type Out = ();
    const EIGHT_F64: bool = E::COST.0 > Cost::CHEAP.0;

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let Runs { x, start, step, len, out, out_step, repeats, buffers, prefetches } = self.runs;
        let (mut done, len) = (0, *len);
        // Repeated numbers fill a buffer once for each run.
        let size = buffers.len() / K;
        let most = if size > 0 { len.min(size) } else { len };
        while done < out.len() {
            for k in 0..K {
                if repeats[k] {
                    let vectors = &mut buffers[k * size..][..most.next_multiple_of(S::N)];
                    fill(s, vectors, x[k][start[k]]);
                }
            }
            let mut at = 0;
            while at < len {
                let n = most.min(len - at);
                let mut part: [&[T]; K] = [&[]; K];
                for k in 0..K {
                    part[k] = match repeats[k] {
                        true => &buffers[k * size..][..n],
                        false => &x[k][start[k] + at..][..n],
                    };
                }
                slices(s, self.op, part, &mut out[done + at..done + at + n], *prefetches);
                at += n;
            }
            for k in 0..K {
                start[k] = start[k].wrapping_add_signed(step[k]);
            }
            done += *out_step;
        }
    }
}

/// [`elementwise`] without the formula, so that it is compiled once for all formulas.
#[inline(never)]
#[track_caller]
fn with_runs<T: Real, const K: usize>(
    name: &'static str,
    cost: Cost,
    level: Level,
    x: [&Tensor<T>; K],
    f: &(dyn Fn(&mut Runs<'_, T, K>) + Send + Sync),
) -> Tensor<T> {
    let (shape, nest) = common_nest(name, x.map(|t| t.layout()));
    let data = x.map(|t| t.data());
    // Costly formulas leave the hardware prefetchers enough time.
    let prefetches = needs_software_prefetch::<T>(K + 1, shape.numel()) && cost.0 <= Cost::CHEAP.0;
    let access = Access::of(&nest, &shape);
    let short = access == Access::ShortRuns;
    let tiles = if access == Access::Transposed { Tiles::new(&nest) } else { None };
    Tensor::build(name, shape, |out| {
        if let Some(tiles) = tiles {
            return par::fill(out, tiles.chunk_len(cost), cost, |first, out| {
                let mut buffers = [Block([T::ZERO; TILE]); K];
                tiles.each(first, out, &mut |tile, out| {
                    f(&mut copy_tile(&tiles, tile, data, out, &mut buffers));
                });
            });
        }
        par::fill(out, cost.chunk_len(), cost, |first, out| {
            let small = out.len() <= SMALL_BUFFER;
            let chunk = Chunk { nest: &nest, cursor: nest.cursor(first), data, short, out };
            match access {
                Access::Contiguous => chunk.in_place(&mut [], prefetches, f),
                Access::Repeated if small => chunk.repeated::<SMALL_BUFFER>(f),
                Access::Repeated => chunk.repeated::<BUFFER>(f),
                _ if small => chunk.copied::<SMALL_BUFFER>(level, f),
                _ => chunk.copied::<BUFFER>(level, f),
            }
        });
    })
}

/// How the operands are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// In place.
    Contiguous,
    /// In place, or as one number for a run.
    Repeated,
    /// Several short runs at a time are copied to a buffer.
    ShortRuns,
    /// A run with strides is copied to a buffer.
    Strided,
    /// A tile of several runs is transposed in a buffer.
    Transposed,
}

impl Access {
    #[inline]
    fn of<const K: usize>(nest: &LoopNest<K>, shape: &Shape) -> Access {
        // A tensor that is one run is never short.
        if nest.run_len() < SHORT_RUN.min(shape.numel()) {
            Access::ShortRuns
        } else if (0..K).all(|k| nest.stride(k) == 1) {
            Access::Contiguous
        } else if (0..K).all(|k| matches!(nest.stride(k), 0 | 1)) {
            Access::Repeated
        } else if Tiles::new(nest).is_some() {
            Access::Transposed
        } else {
            Access::Strided
        }
    }
}

/// A tile of the output, and operands of it: those that are not contiguous along rows are copied to buffers.
fn copy_tile<'r, T: Real, const K: usize>(
    tiles: &Tiles<'_, K>,
    (mut start, [rows, len]): Tile<K>,
    mut data: [&'r [T]; K],
    out: &'r mut [T],
    buffers: &'r mut [Block<T, TILE>; K],
) -> Runs<'r, T, K> {
    let mut step = [0; K];
    for (k, Block(buffer)) in buffers.iter_mut().enumerate() {
        step[k] = tiles.step(k);
        let stride = tiles.stride(k);
        if stride == 1 {
            continue;
        }
        if step[k] == 1 {
            transpose(data[k], start[k], stride, [rows, len], buffer, len);
        } else {
            gather_runs(data[k], start[k], stride, step[k], len, &mut buffer[..rows * len]);
        }
        (data[k], start[k], step[k]) = (buffer, 0, len as isize);
    }
    Runs { out, out_step: tiles.slab(), ..Runs::of(data, start, step, len) }
}

/// The report of an elementwise operation: of the operations on each element, and the bytes read.
#[cold]
fn describe<R: Element>(
    name: &'static str,
    kernel: &'static str,
    shape: Shape,
    level: Option<&'static str>,
    each: u64,
    read: u64,
) -> KernelCall {
    KernelCall {
        level,
        flops: each * shape.numel() as u64,
        read,
        written: (shape.numel() * size_of::<R>()) as u64,
        ..KernelCall::new(name, kernel, R::DTYPE, shape)
    }
}

/// The work of one task.
struct Chunk<'a, T, const K: usize> {
    nest: &'a LoopNest<K>,
    cursor: Cursor<'a, K>,
    data: [&'a [T]; K],
    /// Whether runs are so short that several are copied to a buffer and become one.
    short: bool,
    /// The remaining output.
    out: &'a mut [T],
}

impl<T: Real, const K: usize> Chunk<'_, T, K> {
    /// Reads operands in place, or as one number for a run, for which there are buffers.
    fn in_place(
        mut self,
        buffers: &mut [T],
        prefetches: bool,
        f: &(dyn Fn(&mut Runs<'_, T, K>) + Send + Sync),
    ) {
        let (mut step, mut repeats) = ([0; K], [false; K]);
        for k in 0..K {
            (step[k], repeats[k]) = (self.nest.step(k), self.nest.stride(k) == 0);
        }
        while !self.out.is_empty() {
            let (count, len, start) = self.cursor.next_runs(self.out.len());
            let (out, rest) = std::mem::take(&mut self.out).split_at_mut(count * len);
            let runs = Runs::of(self.data, start, step, len);
            f(&mut Runs { repeats, buffers, out, prefetches, ..runs });
            self.out = rest;
        }
    }

    /// Reads operands in place, with buffers for those that have one number in a run.
    #[inline(never)]
    fn repeated<const N: usize>(self, f: &(dyn Fn(&mut Runs<'_, T, K>) + Send + Sync)) {
        let mut buffers = Block([[T::ZERO; N]; K]);
        // Fewer operands are read from memory than prefetching pays for.
        self.in_place(buffers.0.as_flattened_mut(), false, f);
    }

    /// Copies operands with other runs to buffers, `N` elements at a time.
    #[inline(never)]
    fn copied<const N: usize>(
        mut self,
        level: Level,
        f: &(dyn Fn(&mut Runs<'_, T, K>) + Send + Sync),
    ) {
        let mut buffers = [Block([T::ZERO; N]); K];
        while !self.out.is_empty() {
            f(&mut T::dispatch(level, Gather { chunk: &mut self, buffers: &mut buffers }));
        }
    }
}

/// Takes the next runs of a chunk, as many as fit into the buffers. It is a kernel so that copies
/// are vectorised for the instruction set.
struct Gather<'r, 'a, T, const K: usize, const N: usize> {
    chunk: &'r mut Chunk<'a, T, K>,
    buffers: &'r mut [Block<T, N>; K],
}

impl<'r, T: Real, const K: usize, const N: usize> Kernel<T> for Gather<'r, '_, T, K, N> {
    type Out = Runs<'r, T, K>;

    #[inline(always)]
    fn run<S: Lanes<T>>(self, _: S) -> Runs<'r, T, K> {
        let Chunk { nest, cursor, data, short, out } = self.chunk;
        let most = out.len().min(N);
        let (mut x, mut first, mut steps, mut run_len) = (*data, [0; K], [0; K], 0);
        let mut copy = [true; K];
        for k in 0..K {
            copy[k] = *short || nest.stride(k) != 1;
        }
        let mut taken = 0;
        while taken < most && (taken == 0 || *short) {
            let (count, len, start) = cursor.next_runs(most - taken);
            for k in 0..K {
                let (stride, step) = (nest.stride(k), nest.step(k));
                if !copy[k] {
                    (first[k], steps[k]) = (start[k], step);
                    continue;
                }
                let to = &mut self.buffers[k].0[taken..taken + count * len];
                gather_runs(data[k], start[k], stride, step, len, to);
            }
            taken += count * len;
            run_len = if *short { taken } else { len };
        }
        for (k, Block(copies)) in self.buffers.iter().enumerate() {
            if copy[k] {
                (x[k], steps[k]) = (copies, run_len as isize);
            }
        }
        let (done, rest) = std::mem::take(out).split_at_mut(taken);
        *out = rest;
        Runs { out: done, ..Runs::of(x, first, steps, run_len) }
    }
}

/// Fills vectors with a number.
#[inline(always)]
fn fill<T: Real, S: Lanes<T>>(s: S, vectors: &mut [T], x: T) {
    for vector in vectors.chunks_exact_mut(S::N) {
        s.store(s.splat(x), vector);
    }
}

/// The formula over slices of equal length.
#[inline(always)]
fn slices<T: Real, S: Lanes<T>, E: Elementwise<T, K>, const K: usize>(
    s: S,
    op: E,
    x: [&[T]; K],
    out: &mut [T],
    prefetches: bool,
) {
    let full = out.len() / S::N * S::N;
    let mut i = 0;
    while i < full {
        if prefetches {
            for k in 0..K {
                prefetch_l2(x[k].as_ptr().wrapping_add(i + PREFETCH_DISTANCE));
            }
            prefetch_l1(out.as_ptr().wrapping_add(i + PREFETCH_DISTANCE));
        }
        s.store(op.f(lane_arrays::load(s, &x, i)).value(), &mut out[i..]);
        i += S::N;
    }
    if full < out.len() {
        let v = lane_arrays::load_rest(s, &x, full, [T::ONE; K]);
        s.store_part(op.f(v).value(), &mut out[full..]);
    }
}

/// A scalar function of each element, for element types and functions without a vector form.
#[track_caller]
pub fn map_with<A: Element, R: Element>(
    name: &'static str,
    a: &Tensor<A>,
    f: impl Fn(A) -> R + Send + Sync,
) -> Tensor<R> {
    map_slices(name, a, &|x, out| {
        for (y, &x) in out.iter_mut().zip(x) {
            *y = f(x);
        }
    })
}

/// A function of slices, at most [`BUFFER`] elements at a time, whatever the strides.
#[inline(never)]
#[track_caller]
pub fn map_slices<A: Element, R: Element>(
    name: &'static str,
    a: &Tensor<A>,
    f: &(dyn Fn(&[A], &mut [R]) + Send + Sync),
) -> Tensor<R> {
    let nest = LoopNest::new(a.shape(), [a.layout()]);
    let (data, stride) = (a.data(), nest.stride(0));
    let call = observe::begin();
    Tensor::build(name, *a.shape(), |out| {
        par::fill(out, Cost::SCALAR.chunk_len(), Cost::SCALAR, |first, out| {
            let mut cursor = nest.cursor(first);
            let mut buffer = [A::ZERO; SMALL_BUFFER];
            let most = if stride == 1 { BUFFER } else { SMALL_BUFFER };
            let mut done = 0;
            while done < out.len() {
                let (n, [start]) = cursor.next(most.min(out.len() - done));
                let x = match stride {
                    1 => &data[start..start + n],
                    _ => run(data, start, stride, &mut buffer[..n]),
                };
                f(x, &mut out[done..done + n]);
                done += n;
            }
        });
        observe::end(call, || {
            let kernel = if stride == 1 { "contiguous" } else { "strided runs copied" };
            describe::<R>(name, kernel, *a.shape(), None, 1, a.distinct_bytes())
        });
    })
}

/// [`map_with`] for two operands, broadcast together.
#[track_caller]
pub fn zip_with<A: Element, B: Element, R: Element>(
    name: &'static str,
    a: &Tensor<A>,
    b: &Tensor<B>,
    f: impl Fn(A, B) -> R + Send + Sync,
) -> Tensor<R> {
    zip3_with(name, (Cost::SCALAR, 1), a, b, &Tensor::scalar(false), |a, b, _| f(a, b))
}

/// [`map_with`] for three operands, broadcast together, with a cost and operations for each element. The compiler
/// can vectorise simple functions, since they are applied to slices, whatever the strides.
#[inline(never)]
#[track_caller]
pub fn zip3_with<A: Element, B: Element, C: Element, R: Element>(
    name: &'static str,
    (cost, each): (Cost, u64),
    a: &Tensor<A>,
    b: &Tensor<B>,
    c: &Tensor<C>,
    f: impl Fn(A, B, C) -> R + Send + Sync,
) -> Tensor<R> {
    let (shape, nest) = common_nest(name, [a.layout(), b.layout(), c.layout()]);
    let (da, db, dc) = (a.data(), b.data(), c.data());
    let strides: [isize; 3] = std::array::from_fn(|k| nest.stride(k));
    let call = observe::begin();
    Tensor::build(name, shape, |out| {
        par::fill(out, cost.chunk_len(), cost, |first, out| {
            let mut cursor = nest.cursor(first);
            let mut buffers =
                ([A::ZERO; SMALL_BUFFER], [B::ZERO; SMALL_BUFFER], [C::ZERO; SMALL_BUFFER]);
            let mut done = 0;
            while done < out.len() {
                let (n, start) = cursor.next(SMALL_BUFFER.min(out.len() - done));
                let a = run(da, start[0], strides[0], &mut buffers.0[..n]);
                let b = run(db, start[1], strides[1], &mut buffers.1[..n]);
                let c = run(dc, start[2], strides[2], &mut buffers.2[..n]);
                let out = &mut out[done..done + n];
                for i in 0..n {
                    out[i] = f(a[i], b[i], c[i]);
                }
                done += n;
            }
        });
        observe::end(call, || {
            let kernel = if strides == [1; 3] { "contiguous" } else { "strided runs copied" };
            let read = a.distinct_bytes() + b.distinct_bytes() + c.distinct_bytes();
            describe::<R>(name, kernel, shape, None, each, read)
        });
    })
}

/// A run of elements as a slice: in place if they are contiguous, else copied to the buffer.
fn run<'a, T: Copy>(data: &'a [T], start: usize, stride: isize, buffer: &'a mut [T]) -> &'a [T] {
    if stride == 1 {
        return &data[start..start + buffer.len()];
    }
    gather(data, start, stride, buffer);
    buffer
}
