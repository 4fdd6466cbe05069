//! Work on whole rows: operations that need all of the last axis at once.

use crate::error::OrPanic;
use crate::par::{self, Cost};
use crate::simd::{self, Kernel, Lanes, Real};
use crate::tensor::Tensor;
use crate::walk::Walk;

/// A formula from `K` rows of equal length to one, on lanes.
pub trait RowKernel<T: Real, const K: usize>: Copy + Send + Sync {
    /// Estimated time per element.
    const COST: Cost;
    /// Writes all of `out`; `index` counts rows. Mark it `#[inline(always)]`.
    fn row<S: Lanes<T>>(self, s: S, index: usize, x: [&[T]; K], out: &mut [T]);
}

/// Applies a row kernel along the last axis of `K` tensors of equal shape.
#[track_caller]
pub fn rows<T: Real, R: RowKernel<T, K>, const K: usize>(
    name: &'static str,
    op: R,
    x: [&Tensor<T>; K],
) -> Tensor<T> {
    let shape = *x[0].shape();
    rows_to(name, op, x, shape[shape.rank() - 1])
}

/// [`rows`] whose result has rows of another width.
///
/// Rows whose elements lie in order are read in place, wherever they are; so an operand that
/// was broadcast over leading axes is not copied.
#[track_caller]
pub fn rows_to<T: Real, R: RowKernel<T, K>, const K: usize>(
    name: &'static str,
    op: R,
    x: [&Tensor<T>; K],
    out_width: usize,
) -> Tensor<T> {
    let shape = *x[0].shape();
    for other in &x[1..] {
        assert!(*other.shape() == shape, "{name}: {shape:?} and {:?} differ", other.shape());
    }
    let last = shape.rank() - 1;
    let width = shape[last];
    let out_shape = shape.with(last, out_width).or_panic();
    if out_shape.numel() == 0 || width == 0 {
        debug_assert!(out_shape.numel() == 0, "{name}: rows of nothing");
        return Tensor::zeros(out_shape);
    }
    let in_order = |t: &Tensor<T>| width == 1 || t.layout().strides()[last] == 1;
    let x = x.map(|t| if in_order(t) { t.clone() } else { t.contiguous() });
    let heads: [_; K] = std::array::from_fn(|k| x[k].layout().select(name, -1, 0).or_panic());
    let walk = Walk::new(&shape.without(last), std::array::from_fn(|k| &heads[k]));
    let data: [&[T]; K] = std::array::from_fn(|k| x[k].data());
    let level = simd::level();
    Tensor::build(name, out_shape, |out| {
        let work = Cost(R::COST.0.saturating_mul((width / out_width).max(1) as u32));
        let per_chunk = par::units_per_chunk(R::COST, width.max(out_width));
        par::fill(out, per_chunk * out_width, work, |first, out| {
            let first = first / out_width;
            T::dispatch(level, Chunk { op, walk: &walk, data, first, width, out_width, out });
        });
    })
}

struct Chunk<'a, T: Real, R, const K: usize> {
    op: R,
    walk: &'a Walk<K>,
    data: [&'a [T]; K],
    first: usize,
    width: usize,
    out_width: usize,
    out: &'a mut [T],
}

impl<T: Real, R: RowKernel<T, K>, const K: usize> Kernel<T> for Chunk<'_, T, R, K> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let Chunk { op, walk, data, first, width, out_width, out } = self;
        let mut cursor = walk.cursor(first);
        for (i, out) in out.chunks_exact_mut(out_width).enumerate() {
            let (_, start) = cursor.next(1);
            let x = std::array::from_fn(
                #[inline(always)]
                |k| &data[k][start[k]..start[k] + width],
            );
            op.row(s, first + i, x, out);
        }
    }
}

/// A row kernel along any axis: the axis is moved last, and back.
#[track_caller]
pub fn rows_along<T: Real, R: RowKernel<T, K>, const K: usize>(
    name: &'static str,
    op: R,
    x: [&Tensor<T>; K],
    axis: usize,
) -> Tensor<T> {
    let rank = x[0].rank();
    if axis + 1 == rank {
        return rows(name, op, x);
    }
    let moved = x.map(|t| t.view_moved_last(axis));
    let out = rows(name, op, std::array::from_fn(|k| &moved[k]));
    let mut back: Vec<isize> = (0..rank as isize - 1).collect();
    back.insert(axis, rank as isize - 1);
    out.permute(back)
}

/// The vectors of a row, with a partial one at the end.
///
/// `f(acc, i, v)` gets each vector with the index of its first element; the lanes beyond
/// the end hold `fill`.
#[inline(always)]
pub fn fold_row<T: Real, S: Lanes<T>, A>(
    s: S,
    x: &[T],
    fill: T,
    init: A,
    f: impl Fn(A, S::V) -> A,
) -> A {
    let full = x.len() / S::N * S::N;
    let (mut acc, mut i) = (init, 0);
    while i < full {
        acc = f(acc, s.load(&x[i..]));
        i += S::N;
    }
    if full < x.len() {
        acc = f(acc, s.load_or(&x[full..], fill));
    }
    acc
}

/// `out[i] = f(x₀[i], ..)` over rows of equal length.
#[inline(always)]
pub fn map_row<T: Real, S: Lanes<T>, const K: usize>(
    s: S,
    x: [&[T]; K],
    out: &mut [T],
    f: impl Fn([S::V; K]) -> S::V,
) {
    let full = out.len() / S::N * S::N;
    let mut i = 0;
    while i < full {
        let v = std::array::from_fn(
            #[inline(always)]
            |k| s.load(&x[k][i..]),
        );
        s.store(f(v), &mut out[i..]);
        i += S::N;
    }
    if full < out.len() {
        let v = std::array::from_fn(
            #[inline(always)]
            |k| s.load_or(&x[k][full..], T::ONE),
        );
        s.store_part(f(v), &mut out[full..]);
    }
}

/// `x[i] = f(x[i])` over a row.
#[inline(always)]
pub fn update_row<T: Real, S: Lanes<T>>(s: S, x: &mut [T], f: impl Fn(S::V) -> S::V) {
    let full = x.len() / S::N * S::N;
    let mut i = 0;
    while i < full {
        s.store(f(s.load(&x[i..])), &mut x[i..]);
        i += S::N;
    }
    if full < x.len() {
        s.store_part(f(s.load_or(&x[full..], T::ONE)), &mut x[full..]);
    }
}
