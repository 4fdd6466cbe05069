//! Transposed operands, tile by tile.
//!
//! Reading a transposed operand element by element uses one element of a cache line and returns to
//! the line a whole row later, when it has been evicted. A tile of 16 × 16 is read along the
//! contiguous axis, transposed in a buffer that stays in the L1 cache, and written along the other
//! axis.

use crate::cost::Cost;
use crate::loop_nest::{LoopNest, gather};
use crate::par;
use crate::simd::prefetch_l1;

/// Rows and columns that are transposed together: a cache line of `f32`.
const LINE: usize = 16;
/// Rows and columns of a tile. Each page of memory is visited once a tile, so it should have several lines of it:
/// finding a page takes longer than reading a line.
pub const SIDE: usize = 64;
/// Elements of a tile.
pub const TILE: usize = SIDE * SIDE;

/// `out[i * width + j] = data[start + i + j * stride]` for `rows × columns` elements: columns are contiguous
/// in `data`, rows in `out`.
pub fn transpose<T: Copy + Default>(
    data: &[T],
    start: usize,
    stride: isize,
    [rows, columns]: [usize; 2],
    out: &mut [T],
    width: usize,
) {
    let mut tile = [[T::default(); LINE]; LINE];
    for left in (0..columns).step_by(LINE) {
        let m = LINE.min(columns - left);
        let start = start as isize + left as isize * stride;
        // The next columns are prefetched: their lines follow no pattern that the hardware recognises.
        for j in 0..m as isize {
            let next = data.as_ptr().wrapping_offset(start + (j + LINE as isize) * stride);
            (0..rows).step_by(LINE).for_each(|i| prefetch_l1(next.wrapping_add(i)));
        }
        let next = out.as_ptr().wrapping_add(left + LINE);
        (0..rows).for_each(|i| prefetch_l1(next.wrapping_add(i * width)));
        for top in (0..rows).step_by(LINE) {
            let n = LINE.min(rows - top);
            for (j, line) in tile[..m].iter_mut().enumerate() {
                let source = &data[(start + j as isize * stride) as usize + top..][..n];
                match <&[T; LINE]>::try_from(source) {
                    Ok(whole) => *line = *whole,
                    Err(_) => line[..n].copy_from_slice(source),
                }
            }
            for i in 0..n {
                let to = &mut out[(top + i) * width + left..][..m];
                // A plain loop of known length: a closure may stay a call.
                match <&mut [T; LINE]>::try_from(&mut *to) {
                    Ok(whole) => {
                        for j in 0..LINE {
                            whole[j] = tile[j][i];
                        }
                    }
                    Err(_) => to.iter_mut().zip(&tile).for_each(|(y, line)| *y = line[i]),
                }
            }
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

/// Where a tile is.
pub struct Tile<const K: usize> {
    /// Its first element in each operand.
    pub start: [usize; K],
    /// Rows and columns.
    pub size: [usize; 2],
}

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
                f(Tile { start, size: [n, m] }, &mut slabs[done..end]);
                done += m;
            }
            (at, out) = (at + n, rest);
        }
    }
}

/// Writes the elements of an operand in row-major order, for any strides. Returns how.
#[inline(never)]
pub fn copy<T: Copy + Default + Send + Sync>(
    nest: &LoopNest<1>,
    data: &[T],
    out: &mut [T],
) -> &'static str {
    if let Some(tiles) = Tiles::new(nest) {
        par::fill(out, tiles.chunk_len(Cost::MOVE), Cost::MOVE, |first, out| {
            tiles.each(first, out, &mut |Tile { start: [start], size }, out| {
                transpose(data, start, nest.stride(0), size, out, tiles.slab());
            });
        });
        return "transposed tiles";
    }
    par::fill(out, Cost::MOVE.chunk_len(), Cost::MOVE, |first, part| {
        let mut cursor = nest.cursor(first);
        let mut done = 0;
        while done < part.len() {
            let (n, [start]) = cursor.next(part.len() - done);
            gather(data, start, nest.stride(0), &mut part[done..done + n]);
            done += n;
        }
    });
    if nest.stride(0) == 1 { "contiguous runs" } else { "strided runs" }
}
