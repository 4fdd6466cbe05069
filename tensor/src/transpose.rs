//! Transposed operands, tile by tile.
//!
//! Reading a transposed operand element by element uses one element of a cache line and returns to
//! the line a whole row later, when it has been evicted. A tile of 16 × 16 is read along the
//! contiguous axis, transposed in a buffer that stays in the L1 cache, and written along the other
//! axis.

use crate::cost::Cost;
use crate::element::Element;
use crate::loop_nest::{LoopNest, gather_runs};
use crate::par;
use crate::settings;
use crate::simd::{F32_LANES, Kernel, Lanes, dispatch_f32, prefetch_l1};

/// Rows and columns that are transposed together: a cache line of `f32`.
const LINE: usize = F32_LANES;
/// Rows and columns of a tile. Each page of memory is visited once a tile, so it should have several lines of it:
/// finding a page takes longer than reading a line.
pub const SIDE: usize = 64;
/// Elements of a tile.
pub const TILE: usize = SIDE * SIDE;

/// `out[i * width + j] = data[start + i + j * stride]` for `rows × columns` elements: columns are contiguous
/// in `data`, rows in `out`.
pub fn transpose<T: Element>(
    data: &[T],
    start: usize,
    stride: isize,
    size: [usize; 2],
    out: &mut [T],
    width: usize,
) {
    dispatch_f32(settings::level(), InSquares { data, start, stride, size, out, width });
}

/// [`transpose`], of `f32` in registers.
struct InSquares<'a, T> {
    data: &'a [T],
    start: usize,
    stride: isize,
    size: [usize; 2],
    out: &'a mut [T],
    width: usize,
}

impl<T: Element> Kernel<f32> for InSquares<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<f32>>(self, s: S) {
        let InSquares { data, start, stride, size: [rows, columns], out, width } = self;
        let mut left = 0;
        while left < columns {
            let m = LINE.min(columns - left);
            let start = start.wrapping_add_signed(left as isize * stride);
            prefetch(data, start, stride, [rows, m], &out[left..], width);
            let mut top = 0;
            while top < rows {
                let (n, start) = (LINE.min(rows - top), start + top);
                let out = &mut out[top * width + left..];
                if n == LINE
                    && m == LINE
                    && let Some((data, out)) = T::as_f32(data, &mut *out)
                {
                    let mut v = [s.splat(0.0); LINE];
                    for j in 0..LINE {
                        v[j] = s.load(&data[start.wrapping_add_signed(j as isize * stride)..]);
                    }
                    let v = s.transpose(v);
                    for i in 0..LINE {
                        s.store(v[i], &mut out[i * width..]);
                    }
                } else {
                    square(data, start, stride, [n, m], out, width);
                }
                top += LINE;
            }
            left += LINE;
        }
    }
}

/// Prefetches the next columns, whose lines follow no pattern that the hardware recognises, and where they go.
#[inline(always)]
fn prefetch<T>(
    data: &[T],
    start: usize,
    stride: isize,
    [rows, columns]: [usize; 2],
    out: &[T],
    width: usize,
) {
    for j in 0..columns as isize {
        let offset = start as isize + (j + LINE as isize) * stride;
        let next = data.as_ptr().wrapping_offset(offset);
        for i in (0..rows).step_by(LINE) {
            prefetch_l1(next.wrapping_add(i));
        }
    }
    let next = out.as_ptr().wrapping_add(LINE);
    for i in 0..rows {
        prefetch_l1(next.wrapping_add(i * width));
    }
}

/// [`transpose`] of at most `LINE × LINE` elements.
#[inline(never)]
fn square<T: Element>(
    data: &[T],
    start: usize,
    stride: isize,
    [rows, columns]: [usize; 2],
    out: &mut [T],
    width: usize,
) {
    let mut lines = [[T::ZERO; LINE]; LINE];
    for (j, line) in lines[..columns].iter_mut().enumerate() {
        let source = &data[start.wrapping_add_signed(j as isize * stride)..][..rows];
        match <&[T; LINE]>::try_from(source) {
            Ok(whole) => *line = *whole,
            Err(_) => line[..rows].copy_from_slice(source),
        }
    }
    for i in 0..rows {
        let to = &mut out[i * width..][..columns];
        // A plain loop of known length: a closure may stay a call.
        match <&mut [T; LINE]>::try_from(&mut *to) {
            Ok(whole) => {
                for j in 0..LINE {
                    whole[j] = lines[j][i];
                }
            }
            Err(_) => to.iter_mut().zip(&lines).for_each(|(y, line)| *y = line[i]),
        }
    }
}

/// The division of an output into tiles, if an operand is contiguous along another axis than the last. The
/// output is a sequence of slabs, one for each index of that axis (and of the axes before it). A tile has
/// rows of adjacent slabs.
pub struct Tiles<'a, const K: usize> {
    nest: &'a LoopNest<K>,
    axis: usize,
    /// The number of elements of a slab.
    slab: usize,
}

/// The first element of a tile in each operand, and its rows and columns.
pub type Tile<const K: usize> = ([usize; K], [usize; 2]);

impl<'a, const K: usize> Tiles<'a, K> {
    pub fn new(nest: &'a LoopNest<K>) -> Option<Self> {
        let dims = nest.dims();
        let last = dims.len() - 1;
        if dims[last] < LINE / 2 {
            return None;
        }
        let transposed = (0..K).map(|k| nest.strides(k)).filter(|s| !matches!(s[last], 0 | 1));
        let axis = transposed
            .filter_map(|s| (0..last).find(|&i| s[i] == 1 && dims[i] >= LINE / 2))
            .next()?;
        let slab = dims[axis + 1..].iter().product();
        Some(Tiles { nest, axis, slab })
    }

    /// The distance from a row of a tile to the next, in the output.
    pub fn slab(&self) -> usize {
        self.slab
    }

    /// The distance from an element of a row to the next, in an operand.
    pub fn stride(&self, k: usize) -> isize {
        self.nest.stride(k)
    }

    /// The distance from a row of a tile to the next, in an operand.
    pub fn step(&self, k: usize) -> isize {
        self.nest.strides(k)[self.axis]
    }

    /// The number of elements in a chunk: whole slabs.
    pub fn chunk_len(&self, cost: Cost) -> usize {
        cost.units_per_chunk(self.slab).next_multiple_of(SIDE) * self.slab
    }

    /// Calls `f` with each tile of a chunk and the output from its first element to its last one.
    pub fn each<T>(&self, first: usize, mut out: &mut [T], f: &mut dyn FnMut(Tile<K>, &mut [T])) {
        let size = self.nest.dims()[self.axis];
        let mut at = first / self.slab;
        while !out.is_empty() {
            // Slabs must be adjacent in memory.
            let n = SIDE.min(out.len() / self.slab).min(size - at % size);
            let (slabs, rest) = out.split_at_mut(n * self.slab);
            let mut cursor = self.nest.cursor(at * self.slab);
            let mut done = 0;
            while done < self.slab {
                let (m, start) = cursor.next(SIDE);
                let end = (n - 1) * self.slab + done + m;
                f((start, [n, m]), &mut slabs[done..end]);
                done += m;
            }
            (at, out) = (at + n, rest);
        }
    }
}

/// `out[i * M + j] = data[start + i + j * stride]`, as [`transpose`] for few columns.
fn interleave<T: Copy, const M: usize>(data: &[T], start: usize, stride: isize, out: &mut [T]) {
    let (rows, _) = out.as_chunks_mut::<M>();
    let n = rows.len();
    let column = |j| &data[start.wrapping_add_signed(j as isize * stride)..][..n];
    let columns: [&[T]; M] = std::array::from_fn(column);
    for (i, row) in rows.iter_mut().enumerate() {
        for j in 0..M {
            row[j] = columns[j][i];
        }
    }
}

/// [`copy`] where the last axis is short and the one before is contiguous in memory.
fn copy_interleaved<T: Element>(nest: &LoopNest<1>, data: &[T], out: &mut [T]) {
    let stride = nest.stride(0);
    par::fill(out, Cost::MOVE.chunk_len(), Cost::MOVE, |first, part| {
        let mut cursor = nest.cursor(first);
        let mut done = 0;
        while done < part.len() {
            let (rows, m, [start]) = cursor.next_runs(part.len() - done);
            let to = &mut part[done..done + rows * m];
            match m {
                2 => interleave::<T, 2>(data, start, stride, to),
                3 => interleave::<T, 3>(data, start, stride, to),
                4 => interleave::<T, 4>(data, start, stride, to),
                _ => gather_runs(data, start, stride, 1, m, to),
            }
            done += rows * m;
        }
    });
}

/// Writes the elements of an operand in row-major order, for any strides. Returns how.
#[inline(never)]
pub fn copy<T: Element>(nest: &LoopNest<1>, data: &[T], out: &mut [T]) -> &'static str {
    if let Some(tiles) = Tiles::new(nest) {
        par::fill(out, tiles.chunk_len(Cost::MOVE), Cost::MOVE, |first, out| {
            tiles.each(first, out, &mut |([start], size), out| {
                transpose(data, start, nest.stride(0), size, out, tiles.slab());
            });
        });
        return "transposed tiles";
    }
    if nest.run_len() < LINE / 2 && nest.stride(0) != 1 && nest.step(0) == 1 {
        copy_interleaved(nest, data, out);
        return "interleaved runs";
    }
    par::fill(out, Cost::MOVE.chunk_len(), Cost::MOVE, |first, part| {
        nest.cursor(first).read(data, part);
    });
    if nest.stride(0) == 1 { "contiguous runs" } else { "strided runs" }
}
