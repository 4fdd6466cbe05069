//! Reductions over any set of axes, blocked to bound the rounding error.
//!
//! There are two orders of operations, selected by the logical shape:
//!
//! * **Inner reduction**: the last axis is reduced. Each output reduces one logical sequence:
//!   blocks of 4096 elements into four vectors of accumulators, blocks combined pairwise, and
//!   pieces of 65,536 elements combined likewise (which may be reduced by different threads).
//! * **Outer reduction**: the last axis is kept. Rows are reduced to rows, 256 at a time, and the
//!   resulting rows again; short rows are concatenated.

use crate::cost::Cost;
use crate::element::Element;
use crate::error::{ErrorKind, OrPanic, assert};
use crate::formula::Expr;
use crate::kernels::elementwise::{Elementwise, formulas};
use crate::kernels::{Real, lane_arrays, level_of};
use crate::loop_nest::{LoopNest, gather};
use crate::observe::{self, KernelCall};
use crate::par;
use crate::settings;
use crate::shape::{Axes, AxisSet, Shape};
use crate::simd::{F32_LANES, Kernel, Lanes, Level, inlined, prefetch_l1};
use crate::tensor::Tensor;
use crate::transpose::{SIDE, Tiles, transpose};

/// A reduction on lanes: `init`, then `step` for each element, and `combine` for partial results.
pub trait Reducer<T: Real>: Copy + Send + Sync {
    /// The value of a reduction over no elements: the neutral element.
    fn init() -> T;
    /// Adds an element to an accumulator.
    fn step<S: Lanes<T>>(self, s: S, acc: S::V, x: S::V) -> S::V;
    /// Combines two accumulators.
    fn combine<S: Lanes<T>>(self, s: S, a: S::V, b: S::V) -> S::V;
    /// Combines the lanes of one accumulator.
    fn lanes<S: Lanes<T>>(self, s: S, acc: S::V) -> T;
}

const BLOCK: usize = 4096;
pub(super) const PIECE: usize = 16 * BLOCK;
/// At least the number of binary digits of the number of blocks in a piece.
const CARRIES: usize = 5;
pub(super) const ROWS: usize = 256;
/// Rows shorter than this are reduced several at a time.
pub(super) const NARROW: usize = 64;

/// Reduces `x` over `axes`, which are removed.
#[inline(never)]
#[track_caller]
pub fn reduce<T: Real, F: Reducer<T>>(
    name: &'static str,
    op: F,
    x: &Tensor<T>,
    axes: AxisSet,
) -> Tensor<T> {
    let out_shape = x.shape().reduced(axes, false);
    let (kept, gone) = split(x, axes);
    let (outer, count) = (kept.iter().product::<usize>(), gone.iter().product::<usize>());
    if out_shape.numel() == 0 || count == 0 {
        return Tensor::full(out_shape, F::init());
    }
    // Axes of size 1 do not matter: the last other axis decides.
    let last = (0..x.rank()).rev().find(|&i| x.shape()[i] != 1);
    let level = settings::level();
    let call = observe::begin();
    let is_inner = last.is_none_or(|i| axes.contains(i));
    let out = if is_inner {
        inner_reduction(name, op, level, &arrange(x, axes, None), outer, count, out_shape)
    } else {
        let last = last.expect("an axis of more than one element");
        let width = x.shape()[last];
        let x = arrange(x, axes, Some(last)).reshape([outer / width, count, width]);
        outer_reduction(name, op, level, &x).reshape(out_shape)
    };
    observe::end(call, || {
        let kernel = if is_inner { "inner reduction" } else { "outer reduction" };
        describe::<T, T>(name, kernel, level_of::<T>(level), x, outer)
    });
    out
}

/// The report of a reduction to so many elements.
#[cold]
pub(super) fn describe<A: Element, R: Element>(
    name: &'static str,
    kernel: &'static str,
    level: Option<&'static str>,
    x: &Tensor<A>,
    results: usize,
) -> KernelCall {
    KernelCall {
        level,
        flops: x.numel() as u64,
        read: x.distinct_bytes(),
        written: (results * size_of::<R>()) as u64,
        ..KernelCall::new(name, kernel, R::DTYPE, *x.shape())
    }
}

/// The sizes of the axes that are kept, and of those that are reduced.
fn split<T: Real>(x: &Tensor<T>, axes: AxisSet) -> (Vec<usize>, Vec<usize>) {
    let of = |gone| (0..x.rank()).filter(move |&i| axes.contains(i) == gone).map(|i| x.shape()[i]);
    (of(false).collect(), of(true).collect())
}

/// Kept axes first, then reduced axes, then `inner` (a kept axis), each in their order.
fn arrange<T: Real>(x: &Tensor<T>, axes: AxisSet, inner: Option<usize>) -> Tensor<T> {
    let rank = x.rank();
    let kept = (0..rank).filter(|&i| !axes.contains(i) && Some(i) != inner);
    let order = kept.chain(axes.iter().filter(|&i| i < rank)).chain(inner);
    x.permute(order.map(|i| i as isize).collect::<Vec<_>>())
}

fn inner_reduction<T: Real, F: Reducer<T>>(
    name: &'static str,
    op: F,
    level: Level,
    x: &Tensor<T>,
    outer: usize,
    count: usize,
    out_shape: Shape,
) -> Tensor<T> {
    let nest = &LoopNest::new(x.shape(), [x.layout()]);
    let data = x.data();
    let contiguous = x.is_contiguous().then(|| x.as_slice());
    let run = |first, len, out: &mut [T]| match contiguous {
        Some(x) => {
            let x = [&x[first..first + len * out.len()]];
            T::dispatch(level, Terms { op, formula: Identity, x, out });
        }
        None => T::dispatch(level, InnerReduction { op, nest, data, first, len, out }),
    };
    if count <= PIECE {
        let chunk = Cost::MOVE.units_per_chunk(count);
        // Sequences that are adjacent in memory, element by element, are copied, some at a time.
        let tiles = Tiles::new(nest).filter(|tiles| tiles.slab() == count);
        return Tensor::build(name, out_shape, |out| {
            let each = Cost::MOVE.times(count);
            let chunk = if tiles.is_some() { chunk.next_multiple_of(SIDE) } else { chunk };
            par::fill(out, chunk, each, |first, out| match &tiles {
                None => run(first * count, count, out),
                Some(tiles) => {
                    let mut copy = vec![T::ZERO; SIDE * count];
                    for (i, out) in out.chunks_mut(SIDE).enumerate() {
                        let copy = &mut copy[..out.len() * count];
                        let stride = nest.stride(0);
                        tiles.each(
                            (first + i * SIDE) * count,
                            copy,
                            &mut |([start], size), copy| {
                                transpose(data, start, stride, size, copy, count);
                            },
                        );
                        let x = [&*copy];
                        T::dispatch(level, Terms { op, formula: Identity, x, out });
                    }
                }
            });
        });
    }
    let pieces = count.div_ceil(PIECE);
    let parts = par::map(outer * pieces, PIECE, Cost::MOVE, |i| {
        let (o, p) = (i / pieces, i % pieces);
        let mut part = [F::init()];
        run(o * count + p * PIECE, PIECE.min(count - p * PIECE), &mut part);
        part[0]
    });
    let parts = Tensor::from_vec(parts, [outer, pieces]);
    inner_reduction(name, op, level, &parts, outer, pieces, out_shape)
}

/// Reduces consecutive pieces of `len` elements of the logical sequence, each to one element.
struct InnerReduction<'a, T: Real, F> {
    op: F,
    nest: &'a LoopNest<1>,
    data: &'a [T],
    first: usize,
    len: usize,
    out: &'a mut [T],
}

impl<T: Real, F: Reducer<T>> Kernel<T> for InnerReduction<'_, T, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let InnerReduction { op, nest, data, first, len, out } = self;
        let stride = nest.stride(0);
        let mut cursor = nest.cursor(first);
        // Allocated when a block is not contiguous: initialising it would take longer than many sums.
        let mut buffer = Vec::new();
        for y in out {
            *y = in_blocks(
                s,
                op,
                len,
                inlined!(|_, n| {
                    let (mut acc, mut left) = ([s.splat(F::init()); 4], n);
                    while left > 0 {
                        let (m, [start]) = cursor.next(left);
                        // In place, if the four accumulators take turns as in a contiguous block.
                        let part = if stride == 1 && (m % (4 * S::N) == 0 || m == left) {
                            &data[start..start + m]
                        } else {
                            buffer.resize(BLOCK, T::ZERO);
                            gather(data, start, stride, &mut buffer[..m]);
                            cursor.read(data, &mut buffer[m..left]);
                            &buffer[..left]
                        };
                        acc = fold(s, op, Identity, [part], acc);
                        left -= part.len();
                    }
                    acc
                }),
            );
        }
    }
}

/// Reduces terms of contiguous operands: pieces of equal length, each to one element.
pub(super) struct Terms<'a, T, F, E, const K: usize> {
    pub op: F,
    pub formula: E,
    pub x: [&'a [T]; K],
    pub out: &'a mut [T],
}

impl<T: Real, F: Reducer<T>, E: Elementwise<T, K>, const K: usize> Kernel<T>
    for Terms<'_, T, F, E, K>
{
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let Terms { op, formula, x, out } = self;
        let len = x[0].len() / out.len();
        for (i, y) in out.iter_mut().enumerate() {
            *y = in_blocks(
                s,
                op,
                len,
                inlined!(|done, n| {
                    let x = lane_arrays::parts(&x, [i * len + done; K], n);
                    fold(s, op, formula, x, [s.splat(F::init()); 4])
                }),
            );
        }
    }
}

formulas! {
    Identity, MOVE, |x| x;
}

/// Reduces a sequence of `len` elements. `block` is given the position and the length of each block, in order, and
/// reduces it to four vectors of accumulators.
#[inline(always)]
fn in_blocks<T: Real, S: Lanes<T>, F: Reducer<T>>(
    s: S,
    op: F,
    len: usize,
    mut block: impl FnMut(usize, usize) -> [S::V; 4],
) -> T {
    // Partial results of 1, 2, 4, .. blocks, combined like the carries of a binary counter.
    let mut carried = [s.splat(F::init()); CARRIES];
    let (mut depth, mut blocks, mut done) = (0, 0usize, 0);
    while done < len {
        let n = BLOCK.min(len - done);
        let acc = block(done, n);
        let mut acc = op.combine(s, op.combine(s, acc[0], acc[1]), op.combine(s, acc[2], acc[3]));
        let mut carry = blocks;
        while carry & 1 == 1 {
            depth -= 1;
            acc = op.combine(s, carried[depth], acc);
            carry >>= 1;
        }
        carried[depth] = acc;
        depth += 1;
        blocks += 1;
        done += n;
    }
    let mut acc = carried[depth - 1];
    for i in (0..depth - 1).rev() {
        acc = op.combine(s, carried[i], acc);
    }
    op.lanes(s, acc)
}

/// Adds terms to four vectors of accumulators, which are independent of each other.
#[inline(always)]
fn fold<T: Real, S: Lanes<T>, F: Reducer<T>, E: Elementwise<T, K>, const K: usize>(
    s: S,
    op: F,
    formula: E,
    x: [&[T]; K],
    [mut a, mut b, mut c, mut d]: [S::V; 4],
) -> [S::V; 4] {
    let (n, mut i) = (x[0].len(), 0);
    let whole = n / (4 * S::N) * (4 * S::N);
    while i < whole {
        let four = lane_arrays::parts(&x, [i; K], 4 * S::N);
        a = op.step(s, a, formula.f(lane_arrays::load(s, &four, 0)).value());
        b = op.step(s, b, formula.f(lane_arrays::load(s, &four, S::N)).value());
        c = op.step(s, c, formula.f(lane_arrays::load(s, &four, 2 * S::N)).value());
        d = op.step(s, d, formula.f(lane_arrays::load(s, &four, 3 * S::N)).value());
        i += 4 * S::N;
    }
    // References to the accumulators would keep them in memory.
    macro_rules! rest {
        ($($acc:ident)+) => {$(if i + S::N <= n {
            $acc = op.step(s, $acc, formula.f(lane_arrays::load(s, &x, i)).value());
            i += S::N;
        })+};
    }
    rest!(a b c);
    if i < n {
        let term = formula.f(lane_arrays::load_rest(s, &x, i, [T::ONE; K])).value();
        let inside = s.mask_from_bits((1 << (n - i)) - 1);
        d = op.step(s, d, s.select(inside, term, s.splat(F::init())));
    }
    [a, b, c, d]
}

/// Reduces axis 1 of `[outer, count, width]`, rows to rows.
///
/// Rows of a few elements would use only a part of every vector. So they are concatenated to rows
/// of 64 elements or more; the results are then reduced again, together with the remaining rows.
fn outer_reduction<T: Real, F: Reducer<T>>(
    name: &'static str,
    op: F,
    level: Level,
    x: &Tensor<T>,
) -> Tensor<T> {
    let (outer, count, width) = (x.shape()[0], x.shape()[1], x.shape()[2]);
    let many = NARROW.div_ceil(width);
    let groups = count / many;
    if groups < 2 {
        return reduce_rows(name, op, level, x);
    }
    let whole = groups * many;
    let wide = x.narrow(1, 0, whole).reshape([outer, groups, many * width]);
    let wide = reduce_rows(name, op, level, &wide);
    let rest = x.narrow(1, whole, count - whole).contiguous();
    let all = [outer, many + count - whole, width].into();
    let all = Tensor::build(name, all, |out| {
        for (o, out) in out.chunks_exact_mut((many + count - whole) * width).enumerate() {
            let (of_wide, of_rest) = out.split_at_mut(many * width);
            of_wide.copy_from_slice(&wide.as_slice()[o * of_wide.len()..][..of_wide.len()]);
            of_rest.copy_from_slice(&rest.as_slice()[o * of_rest.len()..][..of_rest.len()]);
        }
    });
    reduce_rows(name, op, level, &all)
}

/// [`outer_reduction`] for rows of any length.
fn reduce_rows<T: Real, F: Reducer<T>>(
    name: &'static str,
    op: F,
    level: Level,
    x: &Tensor<T>,
) -> Tensor<T> {
    let (outer, count, width) = (x.shape()[0], x.shape()[1], x.shape()[2]);
    let pieces = count.div_ceil(ROWS);
    let nest = &LoopNest::new(x.shape(), [x.layout()]);
    let data = x.data();
    let out = Tensor::build(name, [outer, pieces, width].into(), |out| {
        let each = Cost::MOVE.times(count.min(ROWS));
        let chunk = each.units_per_chunk(width) * width;
        par::fill(out, chunk, each, |at, out| {
            for (i, row) in out.chunks_exact_mut(width).enumerate() {
                let at = at / width + i;
                let (o, p) = (at / pieces, at % pieces);
                let first = o * count + p * ROWS;
                let rows = ROWS.min(count - p * ROWS);
                T::dispatch(level, OuterReduction { op, nest, data, first, rows, out: row });
            }
        });
    });
    if pieces == 1 { out } else { reduce_rows(name, op, level, &out) }
}

/// Reduces consecutive rows to one.
struct OuterReduction<'a, T: Real, F> {
    op: F,
    nest: &'a LoopNest<1>,
    data: &'a [T],
    first: usize,
    rows: usize,
    out: &'a mut [T],
}

impl<T: Real, F: Reducer<T>> Kernel<T> for OuterReduction<'_, T, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let OuterReduction { op, nest, data, first, rows, out } = self;
        let (width, stride) = (out.len(), nest.stride(0));
        out.fill(F::init());
        let mut cursor = nest.cursor(first * width);
        // Rows that are adjacent in memory, column by column, are transposed in registers.
        if stride != 1 && nest.step(0) == 1 && nest.run_len() == width {
            let mut left = rows;
            while left > 0 {
                let (count, _, [start]) = cursor.next_runs(left * width);
                step_columns(s, op, (data, start, stride), count, out);
                left -= count;
            }
            return;
        }
        let mut buffer = [T::ZERO; SIDE];
        for _ in 0..rows {
            let mut done = 0;
            while done < width {
                let most = if stride == 1 { width } else { SIDE };
                let (n, [start]) = cursor.next(most.min(width - done));
                let row = if stride == 1 {
                    &data[start..start + n]
                } else {
                    gather(data, start, stride, &mut buffer[..n]);
                    &buffer[..n]
                };
                step_row(s, op, row, &mut out[done..done + n]);
                done += n;
            }
        }
    }
}

/// Adds rows to accumulators. Their columns, of `rows` elements, are contiguous and `stride` apart from `start`.
#[inline(always)]
fn step_columns<T: Real, S: Lanes<T>, F: Reducer<T>>(
    s: S,
    op: F,
    (data, start, stride): (&[T], usize, isize),
    rows: usize,
    out: &mut [T],
) {
    for left in (0..out.len()).step_by(S::N) {
        let columns = S::N.min(out.len() - left);
        let mut acc = s.load_or(&out[left..left + columns], F::init());
        for top in (0..rows).step_by(S::N) {
            let n = S::N.min(rows - top);
            let first = (start + top) as isize + left as isize * stride;
            let mut square = [s.splat(F::init()); F32_LANES];
            // Loops of known length keep the square in registers.
            if n == S::N && columns == S::N {
                for j in 0..S::N {
                    let at = first + j as isize * stride;
                    square[j] = s.load(&data[at as usize..]);
                    // The next columns: their lines follow no pattern that the hardware recognises.
                    prefetch_l1(data.as_ptr().wrapping_offset(at + S::N as isize * stride));
                }
                let square = s.transpose(square);
                for i in 0..S::N {
                    acc = op.step(s, acc, square[i]);
                }
            } else {
                for j in 0..columns {
                    let at = (first + j as isize * stride) as usize;
                    square[j] = s.load_or(&data[at..at + n], F::init());
                }
                for row in &s.transpose(square)[..n] {
                    acc = op.step(s, acc, *row);
                }
            }
        }
        s.store_part(acc, &mut out[left..left + columns]);
    }
}

/// Adds a row to accumulators.
#[inline(always)]
fn step_row<T: Real, S: Lanes<T>, F: Reducer<T>>(s: S, op: F, x: &[T], out: &mut [T]) {
    let full = x.len() / S::N * S::N;
    let mut i = 0;
    while i < full {
        s.store(op.step(s, s.load(&out[i..]), s.load(&x[i..])), &mut out[i..]);
        i += S::N;
    }
    if full < x.len() {
        let acc = s.load_or(&out[full..], F::init());
        let v = op.step(s, acc, s.load_or(&x[full..], F::init()));
        s.store_part(v, &mut out[full..]);
    }
}

/// A reduction in scalar code: `f` is given the elements of one output, in their order.
///
/// # Panics
/// If an axis does not exist; or if `rejects_empty` and a reduced axis is empty while the result is
/// not.
#[inline(never)]
#[track_caller]
pub fn reduce_with<A: Element, R: Element>(
    name: &'static str,
    x: &Tensor<A>,
    axes: impl Axes,
    rejects_empty: bool,
    f: impl Fn(&mut dyn Iterator<Item = A>) -> R + Send + Sync,
) -> Tensor<R> {
    reduce_dyn(name, x, axes.resolve(name, x.shape()).or_panic(), rejects_empty, &f)
}

/// [`reduce_with`], compiled once per types of elements.
#[inline(never)]
#[track_caller]
fn reduce_dyn<A: Element, R: Element>(
    name: &'static str,
    x: &Tensor<A>,
    axes: AxisSet,
    rejects_empty: bool,
    f: &(dyn Fn(&mut dyn Iterator<Item = A>) -> R + Send + Sync),
) -> Tensor<R> {
    let shape = x.shape().reduced(axes, false);
    if rejects_empty && shape.numel() > 0 {
        check_not_empty(name, x.shape(), axes);
    }
    let len: usize = axes.iter().map(|i| x.shape()[i]).product();
    let call = observe::begin();
    let mut lines = x.permute(axes.moved_last(x.rank()));
    if axes.len() != 1 {
        lines = lines.reshape([shape.numel(), len]);
    }
    let nest = LoopNest::new(lines.shape(), [lines.layout()]);
    let data = lines.data();
    let stride = lines.layout().strides()[lines.rank() - 1];
    Tensor::build(name, shape, |out| {
        let each = Cost::CHEAP.times(len.max(1));
        par::fill(out, Cost::CHEAP.units_per_chunk(len), each, |first, out| {
            for (i, y) in out.iter_mut().enumerate() {
                let (_, [start]) = nest.cursor((first + i) * len).next(1);
                *y =
                    f(&mut (0..len).map(|j| data[(start as isize + j as isize * stride) as usize]));
            }
        });
        observe::end(call, || describe::<A, R>(name, "element by element", None, x, shape.numel()));
    })
}

/// [`reduce_with`] where `f` reads all elements, some more than once: lines that are not contiguous are copied.
#[inline(never)]
#[track_caller]
pub fn reduce_lines<A: Element, R: Element>(
    name: &'static str,
    x: &Tensor<A>,
    axes: AxisSet,
    f: impl Fn(&[A]) -> R + Send + Sync,
) -> Tensor<R> {
    reduce_all_lines(name, x, axes, &|lines, len, out| {
        for (i, y) in out.iter_mut().enumerate() {
            *y = f(&lines[i * len..][..len]);
        }
    })
}

/// Reduces lines of a length to outputs.
type Lines<'a, A, R> = dyn Fn(&[A], usize, &mut [R]) + Sync + 'a;

/// [`reduce_lines`], compiled once per types of elements.
#[inline(never)]
#[track_caller]
fn reduce_all_lines<A: Element, R: Element>(
    name: &'static str,
    x: &Tensor<A>,
    axes: AxisSet,
    f: &Lines<'_, A, R>,
) -> Tensor<R> {
    let shape = x.shape().reduced(axes, false);
    if shape.numel() > 0 {
        check_not_empty(name, x.shape(), axes);
    }
    let call = observe::begin();
    let lines = x.permute(axes.moved_last(x.rank())).contiguous();
    let data = lines.as_slice();
    let len = data.len() / shape.numel().max(1);
    Tensor::build(name, shape, |out| {
        let each = Cost::CHEAP.times(len.max(1));
        par::fill(out, Cost::CHEAP.units_per_chunk(len), each, |first, out| {
            f(&data[first * len..], len, out);
        });
        observe::end(call, || describe::<A, R>(name, "lines", None, x, shape.numel()));
    })
}

/// Panics if one of the reduced axes has no elements.
#[track_caller]
pub fn check_not_empty(name: &'static str, shape: &Shape, axes: AxisSet) {
    let empty = axes.iter().find(|&i| shape[i] == 0);
    assert(empty.is_none(), name, ErrorKind::Empty, || {
        let axis = empty.unwrap_or(0);
        format!("axis {axis} of {shape:?} is empty, so it has no such element")
    });
}
