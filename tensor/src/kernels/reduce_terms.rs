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
    let shape = common_shape(name, x.map(|t| t.shape()));
    let x = x.map(|t| t.broadcast_to(shape));
    let whole = |x: &[Tensor<T>; K], axes| {
        reduce(name, op, &elementwise(name, formula, x.each_ref()), axes)
    };
    let out_shape = shape.reduced(axes, false);
    if out_shape.numel() == 1 && shape.numel() > 0 && x.iter().all(|t| t.is_contiguous()) {
        let call = observe::begin();
        let sum = sequence(op, formula, x.each_ref().map(|t| t.as_slice()));
        observe::end(call, || {
            let read = x.iter().map(|t| t.distinct_bytes()).sum();
            let level = level_of::<T>(settings::level());
            KernelCall { read, ..describe::<T, T>(name, "inner reduction", level, &x[0], 1) }
        });
        return Tensor::full(out_shape, sum);
    }
    in_blocks(&x, axes, &whole, &|x| reduce(name, op, x, AxisSet::EMPTY.insert(0)))
}

/// The terms of contiguous operands, reduced to one element.
fn sequence<T: Real, F: Reducer<T>, E: Elementwise<T, K>, const K: usize>(
    op: F,
    formula: E,
    x: [&[T]; K],
) -> T {
    let (level, n) = (settings::level(), x[0].len());
    let piece = |start| {
        let x = lane_arrays::parts(&x, [start; K], PIECE.min(n - start));
        let mut y = [T::ZERO];
        T::dispatch(level, Terms { op, formula, x, out: &mut y });
        y[0]
    };
    if n <= PIECE {
        return piece(0);
    }
    let parts = par::map(n.div_ceil(PIECE), PIECE, Cost::MOVE, |i| piece(i * PIECE));
    sequence(op, Identity, [&parts])
}

/// Computes terms of the operands and reduces them over axes.
type Whole<'a, T, const K: usize> = dyn Fn(&[Tensor<T>; K], AxisSet) -> Tensor<T> + Sync + 'a;

/// [`reduce_terms`] without the formula; `partial` reduces partial results over axis 0.
fn in_blocks<T: Real, const K: usize>(
    x: &[Tensor<T>; K],
    axes: AxisSet,
    whole: &Whole<'_, T, K>,
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
        let size = (PIECE * shape[axis] / shape.numel()).max(1);
        let results = map_blocks(x, axis, size, |x| in_blocks(x, axes, whole, partial));
        return Tensor::from_vec(results, out_shape);
    }
    // Blocks of one sequence, or of rows, by which `reduce` divides them, too.
    let width = kept.map_or(1, |axis| shape[axis]);
    let (rows, size) = (shape.numel() / width, if width == 1 { PIECE } else { ROWS });
    if rows <= size || (2..NARROW).contains(&width) {
        return whole(x, axes);
    }
    let x = x.each_ref().map(|t| t.reshape([rows, width]));
    let first = AxisSet::EMPTY.insert(0);
    let parts = map_blocks(&x, 0, size, |x| whole(x, first));
    let parts = Tensor::from_vec(parts, [rows.div_ceil(size), width]);
    partial(&parts).reshape(out_shape)
}

/// The results of blocks of `size` along an axis, one after the other.
fn map_blocks<T: Real, const K: usize>(
    x: &[Tensor<T>; K],
    axis: usize,
    size: usize,
    f: impl Fn(&[Tensor<T>; K]) -> Tensor<T> + Sync + Send,
) -> Vec<T> {
    let n = x[0].shape()[axis];
    let parts = par::shards(n.div_ceil(size), |i| {
        let narrow = |t| Tensor::narrow(t, axis as isize, i * size, size.min(n - i * size));
        f(&x.each_ref().map(narrow)).to_vec()
    });
    parts.concat()
}
