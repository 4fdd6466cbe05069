//! Elementwise work over any number of operands, broadcast together.

use super::abreast;
use crate::element::Element;
use crate::error::OrPanic;
use crate::layout::Layout;
use crate::par::{self, Cost};
use crate::shape::Shape;
use crate::simd::{
    self, FAR_AHEAD, Kernel, Lanes, Level, Real, pays_to_ask, prefetch, prefetch_near,
};
use crate::tensor::Tensor;
use crate::walk::{Cursor, Walk, gather};

/// A formula from `K` numbers to one, on lanes.
pub trait Elementwise<T: Real, const K: usize>: Copy + Send + Sync {
    /// Estimated time per element.
    const COST: Cost;
    /// The formula. Mark it `#[inline(always)]`.
    fn f<S: Lanes<T>>(self, s: S, x: [S::V; K]) -> S::V;
}

/// Elements gathered at once when an operand does not lie in order.
const BLOCK: usize = 256;
/// Runs shorter than this are gathered several at a time.
const SHORT: usize = 32;

/// The shape that all operands broadcast to.
#[track_caller]
pub fn common_shape<const K: usize>(op: &'static str, shapes: [&Shape; K]) -> Shape {
    let mut all = *shapes[0];
    for shape in &shapes[1..] {
        all = Shape::broadcast(op, &all, shape).or_panic();
    }
    all
}

/// The shape that all operands broadcast to, and a walk over them.
#[track_caller]
#[inline(never)]
fn common_walk<const K: usize>(op: &'static str, layouts: [&Layout; K]) -> (Shape, Walk<K>) {
    let shape = common_shape(op, layouts.map(|l| l.shape()));
    let layouts = layouts.map(|l| l.broadcast_to(op, &shape).or_panic());
    (shape, Walk::new(&shape, layouts.each_ref()))
}

/// `out[i] = op.f(x₀[i], x₁[i], ..)` over the common shape.
#[inline(never)]
#[track_caller]
pub fn zip<T: Real, E: Elementwise<T, K>, const K: usize>(
    name: &'static str,
    op: E,
    x: [&Tensor<T>; K],
) -> Tensor<T> {
    let Operands { shape, walk, data, level, fetch } = Operands::new(name, x, E::COST);
    Tensor::build(name, shape, |out| {
        par::fill(out, par::chunk_len(E::COST), E::COST, |first, out| {
            T::dispatch(level, Chunk { op, walk: &walk, data, first, out, fetch });
        });
    })
}

/// What [`zip`] prepares, the same for all formulas.
struct Operands<'a, T, const K: usize> {
    shape: Shape,
    walk: Walk<K>,
    data: [&'a [T]; K],
    level: Level,
    /// Whether to prefetch.
    fetch: bool,
}

impl<'a, T: Real, const K: usize> Operands<'a, T, K> {
    #[track_caller]
    #[inline(never)]
    fn new(name: &'static str, x: [&'a Tensor<T>; K], cost: Cost) -> Self {
        let (shape, walk) = common_walk(name, x.map(|t| t.layout()));
        let data = x.map(|t| t.data());
        // What is calculated on for long is fetched meanwhile without being asked for.
        let fetch = pays_to_ask::<T>(K + 1, shape.numel()) && cost.0 <= Cost::CHEAP.0;
        Operands { shape, walk, data, level: simd::level(), fetch }
    }
}

/// The work of one task.
struct Chunk<'a, T: Real, E, const K: usize> {
    op: E,
    walk: &'a Walk<K>,
    data: [&'a [T]; K],
    first: usize,
    out: &'a mut [T],
    /// Whether to ask for memory ahead.
    fetch: bool,
}

impl<T: Real, E: Elementwise<T, K>, const K: usize> Kernel<T> for Chunk<'_, T, E, K> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let Chunk { op, walk, data, first, out, fetch } = self;
        let mut cursor = walk.cursor(first);
        let mut in_order = [true; K];
        for k in 0..K {
            in_order[k] = walk.stride(k) == 1;
        }
        let all_in_order = in_order == [true; K];
        let mut buffers = [[T::ZERO; BLOCK]; K];
        let mut done = 0;
        while done < out.len() {
            let left = out.len() - done;
            let short = walk.run_len() < SHORT && !(all_in_order && walk.run_len() >= left);
            let (n, start, direct) = if short {
                let n = left.min(BLOCK);
                gather_runs(&mut cursor, walk, data, &mut buffers, n);
                (n, [0; K], [false; K])
            } else {
                let (n, start) = cursor.next(if all_in_order { left } else { left.min(BLOCK) });
                for k in 0..K {
                    if !in_order[k] {
                        gather(data[k], start[k], walk.stride(k), &mut buffers[k][..n]);
                    }
                }
                (n, start, in_order)
            };
            let mut x: [&[T]; K] = [&[]; K];
            for k in 0..K {
                x[k] = if direct[k] { &data[k][start[k]..start[k] + n] } else { &buffers[k][..n] };
            }
            slices(s, op, x, &mut out[done..done + n], fetch && all_in_order && !short);
            done += n;
        }
    }
}

/// Fills the first `n` elements of each buffer from several short runs.
fn gather_runs<T: Copy, const K: usize>(
    cursor: &mut Cursor<'_, K>,
    walk: &Walk<K>,
    data: [&[T]; K],
    buffers: &mut [[T; BLOCK]; K],
    n: usize,
) {
    let mut have = 0;
    while have < n {
        let (m, start) = cursor.next(n - have);
        for k in 0..K {
            gather(data[k], start[k], walk.stride(k), &mut buffers[k][have..have + m]);
        }
        have += m;
    }
}

/// The formula over slices of equal length.
#[inline(always)]
fn slices<T: Real, S: Lanes<T>, E: Elementwise<T, K>, const K: usize>(
    s: S,
    op: E,
    x: [&[T]; K],
    out: &mut [T],
    fetch: bool,
) {
    let full = out.len() / S::N * S::N;
    let mut i = 0;
    while i < full {
        if fetch {
            for k in 0..K {
                prefetch(x[k].as_ptr().wrapping_add(i + FAR_AHEAD));
            }
            prefetch_near(out.as_ptr().wrapping_add(i + FAR_AHEAD));
        }
        s.store(op.f(s, abreast::load(s, &x, i)), &mut out[i..]);
        i += S::N;
    }
    if full < out.len() {
        let v = abreast::load_rest(s, &x, full, [T::ONE; K]);
        s.store_part(op.f(s, v), &mut out[full..]);
    }
}

/// Elementwise work in plain code, for element types and functions without lanes.
#[track_caller]
pub fn map_with<A: Element, R: Element>(
    name: &'static str,
    a: &Tensor<A>,
    f: impl Fn(A) -> R + Send + Sync,
) -> Tensor<R> {
    zip_with(name, a, &Tensor::scalar(false), |a, _| f(a))
}

/// [`map_with`] for two operands, broadcast together.
#[track_caller]
pub fn zip_with<A: Element, B: Element, R: Element>(
    name: &'static str,
    a: &Tensor<A>,
    b: &Tensor<B>,
    f: impl Fn(A, B) -> R + Send + Sync,
) -> Tensor<R> {
    zip3_with(name, a, b, &Tensor::scalar(false), |a, b, _| f(a, b))
}

/// [`map_with`] for three operands, broadcast together. Functions that are simple enough become
/// vector code: they are run over slices, whatever the strides.
#[inline(never)]
#[track_caller]
pub fn zip3_with<A: Element, B: Element, C: Element, R: Element>(
    name: &'static str,
    a: &Tensor<A>,
    b: &Tensor<B>,
    c: &Tensor<C>,
    f: impl Fn(A, B, C) -> R + Send + Sync,
) -> Tensor<R> {
    let (shape, walk) = common_walk(name, [a.layout(), b.layout(), c.layout()]);
    let (da, db, dc) = (a.data(), b.data(), c.data());
    let strides: [isize; 3] = std::array::from_fn(|k| walk.stride(k));
    Tensor::build(name, shape, |out| {
        par::fill(out, par::chunk_len(Cost::SCALAR), Cost::SCALAR, |first, out| {
            let mut cursor = walk.cursor(first);
            let mut buffers = ([A::ZERO; BLOCK], [B::ZERO; BLOCK], [C::ZERO; BLOCK]);
            let mut done = 0;
            while done < out.len() {
                let (n, start) = cursor.next(BLOCK.min(out.len() - done));
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
    })
}

/// A run of elements as a slice: where they are if in order, else copied to the buffer.
pub fn run<'a, T: Copy>(
    data: &'a [T],
    start: usize,
    stride: isize,
    buffer: &'a mut [T],
) -> &'a [T] {
    if stride == 1 {
        return &data[start..start + buffer.len()];
    }
    gather(data, start, stride, buffer);
    buffer
}
