//! Copies to row-major order, tiled where axes are transposed.
//!
//! Copying a transposed operand element by element uses one element of a cache line and returns to
//! the line a whole row later, when it has been evicted. A tile of 16 × 16 is read along the
//! contiguous axis, transposed in a buffer that stays in the L1 cache, and written along the other
//! axis.

use crate::cost::Cost;
use crate::loop_nest::{LoopNest, gather};
use crate::par;

/// Rows and columns of a tile: a cache line of `f32`.
const SIDE: usize = 16;

/// Writes the elements of an operand in row-major order, for any strides. Returns how.
#[inline(never)]
pub fn copy<T: Copy + Default + Send + Sync>(
    nest: &LoopNest<1>,
    data: &[T],
    out: &mut [T],
) -> &'static str {
    if let Some(transposed) = Transposed::new(nest) {
        transposed.copy(data, out);
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

/// An operand that is contiguous along another axis than the last. The output is a sequence of
/// slabs, one for each index of that axis (and of the axes before it).
struct Transposed<'a> {
    nest: &'a LoopNest<1>,
    /// The size of the contiguous axis.
    size: usize,
    /// The number of elements of a slab, and of its last axis.
    slab: usize,
    width: usize,
}

impl<'a> Transposed<'a> {
    fn new(nest: &'a LoopNest<1>) -> Option<Self> {
        let (dims, strides) = (nest.dims(), nest.strides(0));
        let last = dims.len() - 1;
        if strides[last] == 1 || dims[last] < SIDE / 2 {
            return None;
        }
        let axis = (0..last).find(|&i| strides[i] == 1 && dims[i] >= SIDE / 2)?;
        let slab = dims[axis + 1..].iter().product();
        Some(Transposed { nest, size: dims[axis], slab, width: dims[last] })
    }

    fn copy<T: Copy + Default + Send + Sync>(&self, data: &[T], out: &mut [T]) {
        let slabs = Cost::MOVE.units_per_chunk(self.slab).next_multiple_of(SIDE);
        par::fill(out, slabs * self.slab, Cost::MOVE, |first, out| {
            let (mut at, end) = (first / self.slab, (first + out.len()) / self.slab);
            let mut out = out;
            while at < end {
                // At most `SIDE` slabs, which must be adjacent in memory.
                let n = SIDE.min(end - at).min(self.size - at % self.size);
                let (part, rest) = out.split_at_mut(n * self.slab);
                self.slabs(data, at, n, part);
                (at, out) = (at + n, rest);
            }
        });
    }

    /// Writes `n` slabs that are adjacent in memory, from index `at` on.
    fn slabs<T: Copy + Default>(&self, data: &[T], at: usize, n: usize, out: &mut [T]) {
        let stride = self.nest.stride(0);
        let mut tile = [[T::default(); SIDE]; SIDE];
        let mut cursor = self.nest.cursor(at * self.slab);
        for row in (0..self.slab).step_by(self.width) {
            for column in (0..self.width).step_by(SIDE) {
                let m = SIDE.min(self.width - column);
                let (_, [start]) = cursor.next(m);
                for (j, line) in tile[..m].iter_mut().enumerate() {
                    let from = (start as isize + j as isize * stride) as usize;
                    let source = &data[from..from + n];
                    match <&[T; SIDE]>::try_from(source) {
                        Ok(whole) => *line = *whole,
                        Err(_) => line[..n].copy_from_slice(source),
                    }
                }
                for i in 0..n {
                    let to = &mut out[i * self.slab + row + column..][..m];
                    match <&mut [T; SIDE]>::try_from(&mut *to) {
                        Ok(whole) => *whole = std::array::from_fn(|j| tile[j][i]),
                        Err(_) => to.iter_mut().zip(&tile).for_each(|(y, line)| *y = line[i]),
                    }
                }
            }
        }
    }
}
