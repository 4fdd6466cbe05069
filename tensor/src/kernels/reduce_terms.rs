//! Reductions of terms that are computed from the operands, a block at a time.

use crate::cost::Cost;
use crate::kernels::elementwise::{Elementwise, common_shape, elementwise};
use crate::kernels::reduce::{Identity, NARROW, PIECE, ROWS, Reducer, Terms, describe, reduce};
use crate::kernels::{Real, lane_arrays, level_of};
use crate::observe::{self, KernelCall};
use crate::par;
use crate::settings;
use crate::shape::AxisSet;
use crate::tensor::Tensor;

/// The reduction over `axes` of `formula` over operands, broadcast together. It has the bits of
/// [`reduce`] after [`elementwise`], but blocks of terms stay in the cache instead of a tensor of all.
#[inline(never)]
#[track_caller]
pub fn reduce_terms<T: Real, F: Reducer<T>, E: Elementwise<T, K>, const K: usize>(
    name: &'static str,
    op: F,
    formula: E,
    x: [&Tensor<T>; K],
    axes: AxisSet,
) -> Tensor<T> {
    let (shape, level) = (common_shape(name, x.map(|t| t.shape())), settings::level());
    let x = x.map(|t| t.broadcast_to(shape));
    let piece = |start, n| {
        let x = lane_arrays::parts(&x.each_ref().map(|t| t.as_slice()), [start; K], n);
        let mut y = [T::ZERO];
        T::dispatch(level, Terms { op, formula, x, out: &mut y });
        y[0]
    };
    let whole = |x: &[Tensor<T>], axes| {
        let x: &[Tensor<T>; K] = x.try_into().expect("as many operands");
        reduce(name, op, &elementwise(name, formula, x.each_ref()), axes)
    };
    let of_parts = |parts: &[T]| of_elements(op, parts);
    let partial = |x: &Tensor<T>| reduce(name, op, x, AxisSet::EMPTY.insert(0));
    in_order(name, &x, axes, &piece, &of_parts, &whole, &partial)
}

/// Computes terms of the operands and reduces them over axes.
type Whole<'a, T> = dyn Fn(&[Tensor<T>], AxisSet) -> Tensor<T> + Sync + 'a;
/// Computes so many terms of the operands from a position on, and reduces them to one element.
type Piece<'a, T> = dyn Fn(usize, usize) -> T + Send + Sync + 'a;

/// [`reduce_terms`] without the formula; `of_parts` and `partial` reduce partial results, the latter over axis 0.
#[inline(never)]
fn in_order<T: Real>(
    name: &'static str,
    x: &[Tensor<T>],
    axes: AxisSet,
    piece: &Piece<'_, T>,
    of_parts: &dyn Fn(&[T]) -> T,
    whole: &Whole<'_, T>,
    partial: &(dyn Fn(&Tensor<T>) -> Tensor<T> + Sync),
) -> Tensor<T> {
    let shape = x[0].shape();
    let out_shape = shape.reduced(axes, false);
    if out_shape.numel() != 1 || shape.numel() == 0 || !x.iter().all(|t| t.is_contiguous()) {
        return in_blocks(x, axes, whole, partial);
    }
    let call = observe::begin();
    let sum = sequence(shape.numel(), piece, of_parts);
    observe::end(call, || {
        let read = x.iter().map(|t| t.distinct_bytes()).sum();
        let level = level_of::<T>(settings::level());
        KernelCall { read, ..describe::<T, T>(name, "inner reduction", level, &x[0], 1) }
    });
    Tensor::full(out_shape, sum)
}

/// A sequence of `n` terms, reduced to one element.
fn sequence<T: Real>(n: usize, piece: &Piece<'_, T>, of_parts: &dyn Fn(&[T]) -> T) -> T {
    if n <= PIECE {
        return piece(0, n);
    }
    of_parts(&par::map(n.div_ceil(PIECE), PIECE, Cost::MOVE, |i| {
        piece(i * PIECE, PIECE.min(n - i * PIECE))
    }))
}

/// [`sequence`] of elements.
fn of_elements<T: Real, F: Reducer<T>>(op: F, x: &[T]) -> T {
    let level = settings::level();
    let piece = |start, n| {
        let (x, mut y) = ([&x[start..start + n]], [T::ZERO]);
        T::dispatch(level, Terms { op, formula: Identity, x, out: &mut y });
        y[0]
    };
    sequence(x.len(), &piece, &|parts| of_elements(op, parts))
}

/// [`reduce_terms`] block by block.
fn in_blocks<T: Real>(
    x: &[Tensor<T>],
    axes: AxisSet,
    whole: &Whole<'_, T>,
    partial: &(dyn Fn(&Tensor<T>) -> Tensor<T> + Sync),
) -> Tensor<T> {
    let shape = *x[0].shape();
    let mut long = (0..shape.rank()).filter(|&i| shape[i] > 1);
    let (kept, last) = (long.clone().find(|&i| !axes.contains(i)), long.next_back());
    if shape.numel() <= PIECE {
        return whole(x, axes);
    }
    let out_shape = shape.reduced(axes, false);
    // Blocks of the results: each is reduced as it is in the whole.
    if let Some(axis) = kept.filter(|&axis| Some(axis) != last) {
        let size = (PIECE as u64 * shape[axis] as u64 / shape.numel() as u64).max(1) as usize;
        let results = map_blocks(x, axis, size, &|x| in_blocks(x, axes, whole, partial));
        return Tensor::from_vec(results, out_shape);
    }
    // Blocks of one sequence, or of rows, by which `reduce` divides them, too.
    let width = kept.map_or(1, |axis| shape[axis]);
    let (rows, size) = (shape.numel() / width, if width == 1 { PIECE } else { ROWS });
    if rows <= size || (2..NARROW).contains(&width) {
        return whole(x, axes);
    }
    let x: Vec<_> = x.iter().map(|t| t.reshape([rows, width])).collect();
    let parts = map_blocks(&x, 0, size, &|x| whole(x, AxisSet::EMPTY.insert(0)));
    let parts = Tensor::from_vec(parts, [rows.div_ceil(size), width]);
    partial(&parts).reshape(out_shape)
}

/// The results of blocks of `size` along an axis, one after the other.
#[inline(never)]
fn map_blocks<T: Real>(
    x: &[Tensor<T>],
    axis: usize,
    size: usize,
    f: &(dyn Fn(&[Tensor<T>]) -> Tensor<T> + Sync),
) -> Vec<T> {
    let n = x[0].shape()[axis];
    let parts = par::shards(n.div_ceil(size), |i| {
        let narrow = |t: &Tensor<T>| t.narrow(axis as isize, i * size, size.min(n - i * size));
        f(&x.iter().map(narrow).collect::<Vec<_>>()).to_vec()
    });
    parts.concat()
}
