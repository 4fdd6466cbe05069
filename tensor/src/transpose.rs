//! Copies that exchange axes, in tiles that use every cache line they touch.
//!
//! Reading a transposed operand element by element takes one element of a cache line and comes
//! back for the next one a whole row later, when the line is long gone. A tile of 16 x 16 is
//! read along the axis that lies in order in memory, turned in a buffer that stays in the
//! innermost cache, and written along the other.

use crate::cost::Cost;
use crate::loop_nest::{LoopNest, gather};
use crate::par;

/// Elements along the side of a tile: a cache line of `f32`.
const SIDE: usize = 16;

/// Writes the elements of an operand in row-major order, for any strides.
#[inline(never)]
pub fn copy<T: Copy + Default + Send + Sync>(nest: &LoopNest<1>, data: &[T], out: &mut [T]) {
    if let Some(turned) = Turned::new(nest) {
        return turned.copy(data, out);
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
}

/// An operand whose elements lie in order along another axis than the last. The result is a
/// sequence of slabs: one for each index of that axis (and of those before it).
struct Turned<'a> {
    nest: &'a LoopNest<1>,
    /// The size of that axis.
    size: usize,
    /// Elements of a slab, and how many of them lie along the last axis.
    slab: usize,
    width: usize,
}

impl<'a> Turned<'a> {
    fn new(nest: &'a LoopNest<1>) -> Option<Self> {
        let (dims, strides) = (nest.dims(), nest.strides(0));
        let last = dims.len() - 1;
        if strides[last] == 1 || dims[last] < SIDE / 2 {
            return None;
        }
        let axis = (0..last).find(|&i| strides[i] == 1 && dims[i] >= SIDE / 2)?;
        let slab = dims[axis + 1..].iter().product();
        Some(Turned { nest, size: dims[axis], slab, width: dims[last] })
    }

    fn copy<T: Copy + Default + Send + Sync>(&self, data: &[T], out: &mut [T]) {
        let slabs = Cost::MOVE.units_per_chunk(self.slab).next_multiple_of(SIDE);
        par::fill(out, slabs * self.slab, Cost::MOVE, |first, out| {
            let (mut at, end) = (first / self.slab, (first + out.len()) / self.slab);
            let mut out = out;
            while at < end {
                // Up to a tile's side of slabs, which must be neighbours in memory.
                let n = SIDE.min(end - at).min(self.size - at % self.size);
                let (part, rest) = out.split_at_mut(n * self.slab);
                self.slabs(data, at, n, part);
                (at, out) = (at + n, rest);
            }
        });
    }

    /// `n` neighbouring slabs, from number `at`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::shape::Shape;

    /// Every order of three axes, sizes around the side of a tile, whole and cut from a
    /// larger tensor.
    #[test]
    fn copies_are_those_of_single_elements() {
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        for dims in [[3, 40, 17], [16, 1, 32], [33, 9, 8], [7, 100, 64], [1, 130, 15]] {
            let shape = Shape::from(dims);
            let data: Vec<u32> = (0..shape.numel() as u32).collect();
            for order in orders {
                let whole = Layout::contiguous(shape).permute("t", &order).unwrap();
                let last = whole.shape()[2];
                let cut = whole.slice("t", 2, last / 3, last, 1).unwrap();
                for layout in [whole, cut] {
                    let nest = LoopNest::new(layout.shape(), [&layout]);
                    let mut out = vec![0; layout.shape().numel()];
                    copy(&nest, &data, &mut out);
                    let mut cursor = nest.cursor(0);
                    for (i, &y) in out.iter().enumerate() {
                        assert_eq!(y as usize, cursor.next(1).1[0], "{dims:?} {order:?} at {i}");
                    }
                }
            }
        }
    }
}
