//! Concatenation, stacking and padding.

use crate::cost::Cost;
use crate::element::Element;
use crate::error::{ErrorKind, OrPanic, Result, ShapeError, require};
use crate::loop_nest::{LoopNest, gather};
use crate::observe;
use crate::par;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// # Joining and padding
impl<T: Element> Tensor<T> {
    /// Concatenates tensors along an axis. Their sizes agree on all other
    /// axes; the size of the result is the sum.
    ///
    /// # Panics
    /// If there are no parts, or sizes differ on another axis.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (a, b) = (Tensor::from([[1i64], [2]]), Tensor::from([[3i64, 4], [5, 6]]));
    /// assert_eq!(Tensor::cat(&[&a, &b], 1).to_vec(), [1, 3, 4, 2, 5, 6]);
    /// ```
    #[doc(alias = "concat")]
    #[doc(alias = "concatenate")]
    #[track_caller]
    pub fn cat(parts: &[&Tensor<T>], axis: isize) -> Tensor<T> {
        join("cat", parts, axis)
    }

    /// Joins tensors of equal shape along a new axis before `axis`; `-1` makes it the last.
    ///
    /// # Panics
    /// If there are no parts, or their shapes differ.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (a, b) = (Tensor::from([1i64, 2]), Tensor::from([3i64, 4]));
    /// assert_eq!(Tensor::stack(&[&a, &b], 0), Tensor::from([[1, 2], [3, 4]]));
    /// assert_eq!(Tensor::stack(&[&a, &b], -1), Tensor::from([[1, 3], [2, 4]]));
    /// ```
    #[track_caller]
    pub fn stack(parts: &[&Tensor<T>], axis: isize) -> Tensor<T> {
        same_shapes(parts).or_panic();
        let parts: Vec<_> = parts.iter().map(|p| p.unsqueeze(axis)).collect();
        join("stack", &parts.iter().collect::<Vec<_>>(), axis)
    }

    /// Pads an axis with `value`: `before` elements in front and `after` elements behind.
    ///
    /// # Panics
    /// If the axis does not exist or would be too long.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.pad(1, 1, 0, 9).to_vec(), [9, 1, 2, 9, 3, 4]);
    /// ```
    #[track_caller]
    pub fn pad(&self, axis: isize, before: usize, after: usize, value: T) -> Tensor<T> {
        let edges = edges(self.shape(), axis, before, after).or_panic();
        let value = Tensor::scalar(value);
        let [before, after] = edges.map(|edge| value.broadcast_to(edge));
        join("pad", &[&before, self, &after], axis)
    }
}

/// The shapes of the padding before and after an axis, if the result is not too large.
fn edges(shape: &Shape, axis: isize, before: usize, after: usize) -> Result<[Shape; 2]> {
    let axis = shape.axis("pad", axis)?;
    let with = |size| {
        let mut dims = shape.to_vec();
        dims[axis] = size;
        Shape::checked("pad", &dims)
    };
    let sizes = [before, shape[axis], after];
    let total = sizes.iter().try_fold(0usize, |sum, &n| sum.checked_add(n));
    let fits = total.is_some_and(|n| with(n).is_ok());
    require(fits, "pad", ErrorKind::Overflow, || {
        format!(
            "{shape:?} with {before} before and {after} after axis {axis} has more than {} elements",
            isize::MAX
        )
    })?;
    Ok([with(before)?, with(after)?])
}

fn same_shapes<T: Element>(parts: &[&Tensor<T>]) -> Result<()> {
    let odd = parts.iter().position(|p| p.shape() != parts[0].shape());
    require(odd.is_none(), "stack", ErrorKind::Mismatch, || {
        let i = odd.unwrap_or(0);
        format!("part {i} is {:?}, part 0 is {:?}", parts[i].shape(), parts[0].shape())
    })
}

/// The resolved axis and the shape of the parts together.
fn joined<T: Element>(
    op: &'static str,
    parts: &[&Tensor<T>],
    axis: isize,
) -> Result<(usize, Shape)> {
    let Some(first) = parts.first() else {
        return Err(ShapeError::new(op, ErrorKind::Value, "needs at least one tensor"));
    };
    let first = first.shape();
    let axis = first.axis(op, axis)?;
    let mut dims = first.to_vec();
    for (i, part) in parts.iter().enumerate().skip(1) {
        let shape = part.shape();
        require(shape.rank() == first.rank(), op, ErrorKind::Rank, || {
            format!("part {i} is {shape:?}, part 0 is {first:?}: ranks differ")
        })?;
        let other = (0..first.rank()).find(|&a| a != axis && shape[a] != first[a]);
        require(other.is_none(), op, ErrorKind::Mismatch, || {
            let other = other.unwrap_or(axis);
            format!("part {i} is {shape:?}, part 0 is {first:?}: axis {other} differs")
        })?;
        // A sum that saturates has too many elements, too.
        dims[axis] = dims[axis].saturating_add(shape[axis]);
    }
    Ok((axis, Shape::checked(op, &dims)?))
}

/// Pieces of fewer elements than this are read together.
const SHORT: usize = 16;

/// A part: its elements, and the start and length of its piece in each row of the result.
struct Part<'a, T> {
    nest: LoopNest<1>,
    data: &'a [T],
    start: usize,
    len: usize,
}

/// Concatenates parts along an axis: a row of the result has one piece of each part.
#[inline(never)]
#[track_caller]
fn join<T: Element>(op: &'static str, parts: &[&Tensor<T>], axis: isize) -> Tensor<T> {
    let (axis, shape) = joined(op, parts, axis).or_panic();
    let inner: usize = shape[axis + 1..].iter().product();
    let row = shape[axis] * inner;
    let mut start = 0;
    let pieces: Vec<Part<T>> = parts
        .iter()
        .map(|p| {
            let len = p.shape()[axis] * inner;
            start += len;
            let nest = LoopNest::new(p.shape(), [p.layout()]);
            Part { nest, data: p.data(), start: start - len, len }
        })
        .filter(|p| p.len > 0)
        .collect();
    let call = observe::begin();
    let out = Tensor::build(op, shape, |out| {
        // Whole rows, if they are not longer than a chunk.
        let chunk = Cost::MOVE.chunk_len();
        let chunk = if row < chunk { chunk - chunk % row.max(1) } else { chunk };
        par::fill(out, chunk, Cost::MOVE, |first, out| {
            for part in &pieces {
                if part.len < SHORT && row <= chunk {
                    copy_short_pieces(part, row, first, out);
                } else {
                    copy_pieces(part, row, first, out);
                }
            }
        });
    });
    observe::end(call, || out.moved(op, "copy", parts.iter().map(|p| p.distinct_bytes()).sum()));
    out
}

/// Copies the pieces of a part within whole rows of the result from element `first` on.
fn copy_short_pieces<T: Element>(part: &Part<T>, row: usize, first: usize, out: &mut [T]) {
    let &Part { ref nest, data, start, len } = part;
    let mut cursor = nest.cursor(first / row * len);
    let mut buffer = [T::ZERO; 256];
    let together = buffer.len() / len;
    for rows in out.chunks_mut(together * row) {
        let pieces = &mut buffer[..rows.len() / row * len];
        cursor.read(data, pieces);
        if len == 1 {
            rows.iter_mut().skip(start).step_by(row).zip(pieces).for_each(|(y, x)| *y = *x);
            continue;
        }
        for (row, piece) in rows.chunks_exact_mut(row).zip(pieces.chunks_exact(len)) {
            row[start..start + len].iter_mut().zip(piece).for_each(|(y, &x)| *y = x);
        }
    }
}

/// Copies the pieces of a part within the elements of the result from `first` on.
fn copy_pieces<T: Element>(part: &Part<T>, row: usize, first: usize, out: &mut [T]) {
    let &Part { ref nest, data, start, len } = part;
    let end = first + out.len();
    // The offset in this part's piece of the row in which the chunk starts.
    let begun = first % row;
    let skip = begun.saturating_sub(start).min(len);
    let mut at = first - begun + start + skip;
    let mut left = len - skip;
    let mut cursor = nest.cursor(first / row * len + skip);
    while at < end {
        let mut want = left.min(end - at);
        while want > 0 {
            let (n, [from]) = cursor.next(want);
            gather(data, from, nest.stride(0), &mut out[at - first..][..n]);
            at += n;
            want -= n;
            left -= n;
        }
        if left == 0 {
            at += row - len;
            left = len;
        }
    }
}
