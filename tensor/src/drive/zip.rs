//! Elementwise work over any number of operands, broadcast together.

use super::abreast;
use crate::element::Element;
use crate::error::OrPanic;
use crate::layout::Layout;
use crate::par::{self, Cost};
use crate::shape::Shape;
use crate::simd::{self, FAR_AHEAD, Kernel, Lanes, Real, pays_to_ask, prefetch, prefetch_near};
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
    let level = simd::level();
    over_runs(name, E::COST, x, &|runs| T::dispatch(level, Chunk { op, runs }))
}

/// The work of one task.
struct Chunk<'r, 'a, T, E, const K: usize> {
    op: E,
    runs: &'r mut Runs<'a, T, K>,
}

impl<T: Real, E: Elementwise<T, K>, const K: usize> Kernel<T> for Chunk<'_, '_, T, E, K> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        while let Some(run) = self.runs.next() {
            slices(s, self.op, run);
        }
    }
}

/// All of [`zip`] but the formula, and so compiled once for all of them: `f` does a part of the work.
#[inline(never)]
#[track_caller]
fn over_runs<T: Real, const K: usize>(
    name: &'static str,
    cost: Cost,
    x: [&Tensor<T>; K],
    f: &(dyn Fn(&mut Runs<'_, T, K>) + Send + Sync),
) -> Tensor<T> {
    let (shape, walk) = common_walk(name, x.map(|t| t.layout()));
    let data = x.map(|t| t.data());
    // What is calculated on for long is fetched meanwhile without being asked for.
    let fetch = pays_to_ask::<T>(K + 1, shape.numel()) && cost.0 <= Cost::CHEAP.0;
    Tensor::build(name, shape, |out| {
        par::fill(out, par::chunk_len(cost), cost, |first, out| {
            f(&mut Runs::new(&walk, data, first, out, fetch));
        });
    })
}

/// A part of the common shape in runs, in which the elements of every operand lie in order.
struct Runs<'a, T, const K: usize> {
    walk: &'a Walk<K>,
    cursor: Cursor<'a, K>,
    data: [&'a [T]; K],
    /// Which operands lie in order, and are not copied.
    in_order: [bool; K],
    /// What is still to be written.
    out: &'a mut [T],
    fetch: bool,
    /// Elements of the operands that do not lie in order.
    buffers: [[T; BLOCK]; K],
}

/// Slices of equal length.
struct Run<'a, T, const K: usize> {
    x: [&'a [T]; K],
    out: &'a mut [T],
    /// Whether to prefetch.
    fetch: bool,
}

impl<'a, T: Real, const K: usize> Runs<'a, T, K> {
    fn new(
        walk: &'a Walk<K>,
        data: [&'a [T]; K],
        first: usize,
        out: &'a mut [T],
        fetch: bool,
    ) -> Self {
        let in_order = std::array::from_fn(|k| walk.stride(k) == 1);
        let buffers = [[T::ZERO; BLOCK]; K];
        Runs { walk, cursor: walk.cursor(first), data, in_order, out, fetch, buffers }
    }

    /// The next run: where it lies if it is long, else several in one from the buffers.
    #[inline(never)]
    fn next(&mut self) -> Option<Run<'_, T, K>> {
        let left = self.out.len();
        if left == 0 {
            return None;
        }
        let len = self.walk.run_len();
        let all_in_order = self.in_order == [true; K];
        let direct = len >= SHORT || (all_in_order && len >= left);
        let most = if direct && all_in_order { left } else { left.min(BLOCK) };
        let (n, start) = if direct { self.cursor.next(most) } else { (most, [0; K]) };
        if !direct {
            self.gather_runs(n);
        }
        let mut x: [&[T]; K] = [&[]; K];
        for (k, buffer) in self.buffers.iter_mut().enumerate() {
            let (data, start) = (self.data[k], start[k]);
            x[k] = match (direct, self.in_order[k]) {
                (true, true) => &data[start..start + n],
                (true, false) => {
                    gather(data, start, self.walk.stride(k), &mut buffer[..n]);
                    &buffer[..n]
                }
                (false, _) => &buffer[..n],
            };
        }
        let (out, rest) = std::mem::take(&mut self.out).split_at_mut(n);
        self.out = rest;
        Some(Run { x, out, fetch: self.fetch && direct && all_in_order })
    }

    /// Fills the first `n` elements of each buffer from several short runs.
    fn gather_runs(&mut self, n: usize) {
        let mut have = 0;
        while have < n {
            let (m, start) = self.cursor.next(n - have);
            for k in 0..K {
                let out = &mut self.buffers[k][have..have + m];
                gather(self.data[k], start[k], self.walk.stride(k), out);
            }
            have += m;
        }
    }
}

/// The formula over one run.
#[inline(always)]
fn slices<T: Real, S: Lanes<T>, E: Elementwise<T, K>, const K: usize>(
    s: S,
    op: E,
    run: Run<'_, T, K>,
) {
    let Run { x, out, fetch } = run;
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
