//! Strided loop nests: iteration over several operands of one shape, in row-major order.
//!
//! A [`LoopNest`] coalesces axes that are adjacent in memory in every operand, so that the common
//! cases (contiguous operands, a row broadcast over a matrix) have one or two loops. A [`Cursor`]
//! then yields runs along the innermost axis.

use crate::layout::Layout;
use crate::shape::{MAX_RANK, Shape};

/// A loop nest over `K` operands, with coalesced axes.
#[derive(Clone, Debug)]
pub struct LoopNest<const K: usize> {
    rank: usize,
    dims: [usize; MAX_RANK],
    strides: [[isize; MAX_RANK]; K],
    start: [isize; K],
}

impl<const K: usize> LoopNest<K> {
    /// The loop nest over operands that are already broadcast to `shape`.
    pub fn new(shape: &Shape, layouts: [&Layout; K]) -> LoopNest<K> {
        let mut nest =
            LoopNest { rank: 0, dims: [1; MAX_RANK], strides: [[0; MAX_RANK]; K], start: [0; K] };
        for k in 0..K {
            nest.start[k] = layouts[k].offset() as isize;
        }
        for axis in 0..shape.rank() {
            let size = shape[axis];
            if size == 1 {
                continue;
            }
            let mut here = [0; K];
            for k in 0..K {
                here[k] = layouts[k].strides()[axis];
            }
            let last = nest.rank.wrapping_sub(1);
            let merges =
                nest.rank > 0 && (0..K).all(|k| nest.strides[k][last] == here[k] * size as isize);
            let at = if merges { last } else { nest.rank };
            nest.dims[at] = if merges { nest.dims[at] * size } else { size };
            for k in 0..K {
                nest.strides[k][at] = here[k];
            }
            nest.rank = at + 1;
        }
        if nest.rank == 0 {
            nest.rank = 1; // a single element: one run of length 1
        }
        nest
    }

    /// The length of a full run: the size of the innermost axis.
    pub fn run_len(&self) -> usize {
        self.dims[self.rank - 1]
    }

    /// The stride of operand `k` along a run.
    pub fn stride(&self, k: usize) -> isize {
        if self.run_len() == 1 { 1 } else { self.strides[k][self.rank - 1] }
    }

    /// The stride of operand `k` from one run to the next: along the second innermost axis, or 0.
    pub fn step(&self, k: usize) -> isize {
        if self.rank == 1 { 0 } else { self.strides[k][self.rank - 2] }
    }

    /// The sizes of the coalesced axes.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// The strides of operand `k` along the coalesced axes.
    pub fn strides(&self, k: usize) -> &[isize] {
        &self.strides[k][..self.rank]
    }

    /// A cursor at element `index` in row-major order.
    #[inline(never)]
    pub fn cursor(&self, mut index: usize) -> Cursor<'_, K> {
        let mut at = [0; MAX_RANK];
        let mut position = self.start;
        for axis in (0..self.rank).rev() {
            let size = self.dims[axis].max(1);
            at[axis] = index % size;
            index /= size;
            for k in 0..K {
                position[k] += at[axis] as isize * self.strides[k][axis];
            }
        }
        Cursor { nest: self, at, position }
    }
}

/// A position in a [`LoopNest`].
#[derive(Clone, Debug)]
pub struct Cursor<'a, const K: usize> {
    nest: &'a LoopNest<K>,
    at: [usize; MAX_RANK],
    position: [isize; K],
}

impl<const K: usize> Cursor<'_, K> {
    /// The next run of at most `most` elements: its length, and its start in each operand. The
    /// caller must stop at the end of the iteration space.
    #[inline]
    pub fn next(&mut self, most: usize) -> (usize, [usize; K]) {
        let inner = self.nest.rank - 1;
        let len = most.min(self.nest.dims[inner] - self.at[inner]);
        (len, self.advance(inner, len))
    }

    /// The next runs of at most `most` elements in total, [`LoopNest::step`] apart: their number,
    /// their length, and the start of the first in each operand. Several runs are always full runs.
    #[inline(never)]
    pub fn next_runs(&mut self, most: usize) -> (usize, usize, [usize; K]) {
        let inner = self.nest.rank - 1;
        let len = self.nest.dims[inner];
        if inner == 0 || self.at[inner] > 0 || most < 2 * len {
            let (len, start) = self.next(most);
            return (1, len, start);
        }
        let outer = inner - 1;
        let count = (most / len).min(self.nest.dims[outer] - self.at[outer]);
        (count, len, self.advance(outer, count))
    }

    /// Advances by `places` along an axis without exceeding it; returns the positions before.
    #[inline(always)]
    fn advance(&mut self, mut axis: usize, places: usize) -> [usize; K] {
        let nest = self.nest;
        let mut starts = [0; K];
        self.at[axis] += places;
        for k in 0..K {
            starts[k] = self.position[k] as usize;
            self.position[k] += places as isize * nest.strides[k][axis];
        }
        while self.at[axis] == nest.dims[axis] && axis > 0 {
            self.at[axis] = 0;
            self.at[axis - 1] += 1;
            for k in 0..K {
                let back = nest.dims[axis] as isize * nest.strides[k][axis];
                self.position[k] += nest.strides[k][axis - 1] - back;
            }
            axis -= 1;
        }
        starts
    }
}

impl Cursor<'_, 1> {
    /// Copies the next elements of the operand to `out`.
    #[inline(always)]
    pub fn read<T: Copy>(&mut self, data: &[T], out: &mut [T]) {
        let mut done = 0;
        while done < out.len() {
            let (n, [start]) = self.next(out.len() - done);
            gather(data, start, self.nest.stride(0), &mut out[done..done + n]);
            done += n;
        }
    }
}

/// Copies a run of elements `stride` apart to `out`. It is inlined into kernels, where it is
/// vectorised for their instruction set.
#[inline(always)]
pub fn gather<T: Copy>(data: &[T], start: usize, stride: isize, out: &mut [T]) {
    match stride {
        1 => out.copy_from_slice(&data[start..start + out.len()]),
        0 => {
            let x = data[start];
            for y in out {
                *y = x; // `fill` may stay a call
            }
        }
        -1 => {
            let n = out.len();
            let source = &data[start + 1 - n..start + 1];
            for i in 0..n {
                out[i] = source[n - 1 - i];
            }
        }
        _ => {
            let mut at = start as isize;
            for x in out {
                *x = data[at as usize];
                at += stride;
            }
        }
    }
}

/// Runs shorter than this are copied element by element.
const TINY_RUN: usize = 8;

/// Copies runs of `len` elements, `step` apart, to `out`.
#[inline(always)]
pub fn gather_runs<T: Copy>(
    data: &[T],
    start: usize,
    stride: isize,
    step: isize,
    len: usize,
    out: &mut [T],
) {
    if step == len as isize * stride {
        return gather(data, start, stride, out); // one run
    }
    if step == 0 {
        // Twice as many copies each time.
        gather(data, start, stride, &mut out[..len]);
        let mut done = len;
        while done < out.len() {
            let more = done.min(out.len() - done);
            out.copy_within(..more, done);
            done += more;
        }
        return;
    }
    let mut from = start;
    for run in out.chunks_exact_mut(len) {
        if len >= TINY_RUN {
            gather(data, from, stride, run);
        } else {
            // Without a call for a few elements.
            let mut at = from;
            for x in run {
                *x = data[at];
                at = at.wrapping_add_signed(stride);
            }
        }
        from = from.wrapping_add_signed(step);
    }
}
