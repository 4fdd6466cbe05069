//! Selection by tensors of indices, and its adjoint, addition at indices.
//!
//! Every index is checked before anything is written. If an index occurs more than once, additions
//! are in ascending order of position for any number of threads: work is divided by destination,
//! never by source.

use crate::cost::Cost;
use crate::element::{Element, Float, Integer};
use crate::error::{ErrorKind, OrPanic, Result, ShapeError, require};
use crate::kernels::Real;
use crate::kernels::elementwise::map_with;
use crate::loop_nest::LoopNest;
use crate::observe::{self, KernelCall};
use crate::par;
use crate::shape::Shape;
use crate::storage::filled;
use crate::tensor::Tensor;

/// Slices of fewer elements than this are added one after the other.
const SHORT: usize = 8;

/// # Indexing
///
/// Selection.
impl<T: Element> Tensor<T> {
    /// `out[.., i, ..] = self[.., idx[.., i, ..], ..]`, where the index replaces the position
    /// on `axis`.
    ///
    /// The result has the shape of `idx`, which has as many axes as `self` and is no longer
    /// than `self` on any axis but `axis`. The adjoint is [`Tensor::scatter_add`].
    ///
    /// # Panics
    /// If the shapes do not fit, or an index is outside the axis (negative ones are).
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// let label = Tensor::from([[1i64], [0]]);
    /// assert_eq!(x.gather(-1, &label).to_vec(), [2.0, 3.0]);
    /// ```
    #[track_caller]
    pub fn gather<I: Integer>(&self, axis: isize, idx: &Tensor<I>) -> Tensor<T> {
        let axis = self.shape().axis("gather", axis).or_panic();
        check_lines("gather", self.shape(), idx.shape(), axis).or_panic();
        let picks = idx.checked_indices("gather", self.shape()[axis]);
        let picks = picks.as_slice();
        if picks.is_empty() {
            return Tensor::zeros(*idx.shape());
        }
        // The first element of each line, repeated along the axis.
        let mut heads = self.clone();
        for (i, &n) in idx.shape().iter().enumerate() {
            heads = heads.narrow(i as isize, 0, if i == axis { 1 } else { n });
        }
        let heads = heads.broadcast_to(*idx.shape());
        let nest = LoopNest::new(idx.shape(), [heads.layout()]);
        let (data, along) = (self.data(), self.layout().strides()[axis]);
        let call = observe::begin();
        let out = Tensor::build("gather", *idx.shape(), |out| {
            par::fill(out, Cost::CHEAP.chunk_len(), Cost::CHEAP, |first, out| {
                let picks = &picks[first..first + out.len()];
                let mut cursor = nest.cursor(first);
                let mut done = 0;
                while done < out.len() {
                    let (n, [start]) = cursor.next(out.len() - done);
                    let mut head = start as isize;
                    for (y, &i) in out[done..done + n].iter_mut().zip(&picks[done..done + n]) {
                        *y = data[(head + i as isize * along) as usize];
                        head += nest.stride(0);
                    }
                    done += n;
                }
            });
        });
        observe::end(call, || {
            out.moved(
                "gather",
                "indexed",
                (size_of::<T>() * picks.len()) as u64 + idx.distinct_bytes(),
            )
        });
        out
    }

    /// The slices of `axis` at each index of `idx`, in that order: `out[.., i, ..] =
    /// self[.., idx[i], ..]`.
    ///
    /// `idx` has one axis; the result has the shape of `self` with as many slices on `axis`
    /// as there are indices. The adjoint is [`Tensor::index_add`].
    ///
    /// # Panics
    /// If `idx` has not exactly one axis, or an index is outside the axis.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// let y = x.index_select(1, &Tensor::from([1i64, 1, 0]));
    /// assert_eq!(y.to_vec(), [2.0, 2.0, 1.0, 4.0, 4.0, 3.0]);
    /// ```
    #[track_caller]
    pub fn index_select<I: Integer>(&self, axis: isize, idx: &Tensor<I>) -> Tensor<T> {
        let axis = self.shape().axis("index_select", axis).or_panic();
        check_rank("index_select", "indices", idx.shape(), 1).or_panic();
        let rows = idx.checked_indices("index_select", self.shape()[axis]);
        let mut dims = self.shape().to_vec();
        dims[axis] = rows.numel();
        take("index_select", self, axis, rows.as_slice(), &dims)
    }

    /// The row of a table at each index: `out[i.., :] = self[idx[i..], :]`.
    ///
    /// Shapes: `[V, C]`, any shape `[..]` of indices, to `[.., C]`. The gradient of the table
    /// is [`Tensor::embedding_vjp`].
    ///
    /// # Panics
    /// If the table is not a matrix, or an index is not one of its rows.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let table = Tensor::from([[0.0f32, 1.0], [2.0, 3.0], [4.0, 5.0]]);
    /// let y = table.embedding(&Tensor::from([[2i64, 0]]));
    /// assert_eq!(*y.shape(), [1, 2, 2]);
    /// assert_eq!(y.to_vec(), [4.0, 5.0, 0.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn embedding<I: Integer>(&self, idx: &Tensor<I>) -> Tensor<T> {
        check_rank("embedding", "the table", self.shape(), 2).or_panic();
        let rows = idx.checked_indices("embedding", self.shape()[0]);
        let dims = [&idx.shape()[..], &self.shape()[1..]].concat();
        take("embedding", self, 0, rows.as_slice(), &dims)
    }
}

/// # Constructors of sequences of floats
impl<T: Float> Tensor<T> {
    /// A row per index: 1 at the index, 0 elsewhere. Shape `[.., classes]`.
    ///
    /// # Panics
    /// If an index is outside `0..classes`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::<f32>::one_hot(&Tensor::from([2i64, 0]), 3);
    /// assert_eq!(x.to_vec(), [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn one_hot<I: Integer>(indices: &Tensor<I>, classes: usize) -> Tensor<T> {
        let mut dims = indices.shape().to_vec();
        dims.push(classes);
        let rows = indices.checked_indices("one_hot", classes);
        let mut out = Tensor::zeros(dims);
        let elements = out.make_mut();
        for (row, &i) in rows.as_slice().iter().enumerate() {
            elements[row * classes + i as usize] = T::ONE;
        }
        out
    }
}

impl<I: Integer> Tensor<I> {
    /// The elements in row-major order as `i64`, which every `u32` fits.
    pub(crate) fn contiguous_i64(&self, op: &'static str) -> Tensor<i64> {
        match (self as &dyn std::any::Any).downcast_ref::<Tensor<i64>>() {
            Some(same) => same.contiguous(),
            None => map_with(op, self, |i| i.to_i128() as i64),
        }
    }

    /// The elements in row-major order, all of which are indices below `len`.
    #[track_caller]
    pub(crate) fn checked_indices(&self, op: &'static str, len: usize) -> Tensor<i64> {
        let indices = self.contiguous_i64(op);
        let data = indices.as_slice();
        let chunk = Cost::MOVE.chunk_len();
        // Negative ones are larger than every length. Without a branch, the loop is vectorised.
        let outside = |i: i64| i as u64 >= len as u64;
        let any = par::map(data.len().div_ceil(chunk), chunk, Cost::MOVE, |i| {
            let part = &data[i * chunk..data.len().min((i + 1) * chunk)];
            part.iter().fold(false, |any, &i| any | outside(i))
        });
        if any.contains(&true) {
            let at = data.iter().position(|&i| outside(i)).unwrap_or(0);
            let text = format!("index {} at position {at} is outside 0..{len}", data[at]);
            Err(ShapeError::new(op, ErrorKind::Index, text)).or_panic()
        }
        indices
    }
}

/// # Indexing
///
/// Addition at indices.
impl<T: Real> Tensor<T> {
    /// A copy of `self` with slice `i` of `src` added to slice `idx[i]`, along `axis`: the
    /// adjoint of [`Tensor::index_select`].
    ///
    /// `idx` has one axis; `src` has the shape of `self` with as many slices on `axis` as
    /// there are indices. Values with the same index are added in ascending order of position.
    ///
    /// # Panics
    /// If the shapes do not fit, or an index is outside the axis.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::<f32>::zeros([2, 2]);
    /// let rows = Tensor::from([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
    /// let y = x.index_add(0, &Tensor::from([1i64, 0, 1]), &rows);
    /// assert_eq!(y.to_vec(), [3.0, 4.0, 6.0, 8.0]);
    /// ```
    #[track_caller]
    pub fn index_add<I: Integer>(
        &self,
        axis: isize,
        idx: &Tensor<I>,
        src: &Tensor<T>,
    ) -> Tensor<T> {
        let axis = self.shape().axis("index_add", axis).or_panic();
        check_rank("index_add", "indices", idx.shape(), 1).or_panic();
        let expected = self.shape().with(axis, idx.numel()).or_panic();
        check_equal("index_add", src.shape(), &expected).or_panic();
        let rows = idx.checked_indices("index_add", self.shape()[axis]);
        let call = observe::begin();
        let mut out = self.clone();
        let inner = self.shape()[axis + 1..].iter().product();
        let src = src.contiguous();
        let len = self.shape()[axis];
        add_rows("index_add", out.make_mut(), len, inner, rows.as_slice(), src.as_slice());
        observe::end(call, || added("index_add", &out, &src));
        out
    }

    /// The gradient of an embedding's table: row `v` is the sum of the rows `grad[i.., :]`
    /// with `idx[i..] = v`, in ascending order of position, and 0 if there is none.
    ///
    /// Shapes: `[.., C]` and the indices `[..]`, to `[rows, C]`.
    ///
    /// # Panics
    /// If the shapes do not fit, or an index is not below `rows`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let grad = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// let table = Tensor::embedding_vjp(&grad, &Tensor::from([1i64, 1]), 3);
    /// assert_eq!(table.to_vec(), [0.0, 0.0, 4.0, 6.0, 0.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn embedding_vjp<I: Integer>(grad: &Tensor<T>, idx: &Tensor<I>, rows: usize) -> Tensor<T> {
        check_rank("embedding_vjp", "the gradient", grad.shape(), idx.rank() + 1).or_panic();
        let width = grad.shape()[idx.rank()];
        let expected = [&idx.shape()[..], &[width]].concat();
        check_equal("embedding_vjp", grad.shape(), &expected.into()).or_panic();
        let picks = idx.checked_indices("embedding_vjp", rows);
        let call = observe::begin();
        let mut out = Tensor::zeros([rows, width]);
        let grad = grad.contiguous();
        let (to, picks) = (out.make_mut(), picks.as_slice());
        add_rows("embedding_vjp", to, rows, width, picks, grad.as_slice());
        observe::end(call, || added("embedding_vjp", &out, &grad));
        out
    }
}

/// Slices of `axis`, copied in the order of `rows`.
#[track_caller]
fn take<T: Element>(
    op: &'static str,
    x: &Tensor<T>,
    axis: usize,
    rows: &[i64],
    dims: &[usize],
) -> Tensor<T> {
    let shape = Shape::checked(op, dims).or_panic();
    let call = observe::begin();
    let x = x.contiguous();
    let data = x.as_slice();
    let len = x.shape()[axis];
    let inner: usize = x.shape()[axis + 1..].iter().product();
    let out = Tensor::build(op, shape, |out| {
        if out.is_empty() {
            return;
        }
        let chunk = Cost::CHEAP.units_per_chunk(inner) * inner;
        par::fill(out, chunk, Cost::CHEAP, |first, out| {
            let (mut outer, mut at) = (first / inner / rows.len(), first / inner % rows.len());
            let mut out = out;
            while !out.is_empty() {
                // The slices of one index of the axes before.
                let n = (rows.len() - at).min(out.len() / inner);
                let (here, rest) = out.split_at_mut(n * inner);
                let x = &data[outer * len * inner..][..len * inner];
                let rows = &rows[at..at + n];
                if inner == 1 {
                    here.iter_mut().zip(rows).for_each(|(y, &r)| *y = x[r as usize]);
                } else {
                    for (y, &r) in here.chunks_exact_mut(inner).zip(rows) {
                        y.copy_from_slice(&x[r as usize * inner..][..inner]);
                    }
                }
                (outer, at, out) = (outer + 1, 0, rest);
            }
        });
    });
    // At most: indices may be equal.
    let read = out.distinct_bytes().min(x.distinct_bytes());
    observe::end(call, || out.moved(op, "slices copied", read));
    out
}

/// The report of `src` added to parts of `out`.
#[cold]
pub(super) fn added<T: Real>(
    operation: &'static str,
    out: &Tensor<T>,
    src: &Tensor<T>,
) -> KernelCall {
    // At most as many elements as there are in either are read and written.
    let changed = src.distinct_bytes().min(out.distinct_bytes());
    KernelCall {
        flops: src.numel() as u64,
        written: changed,
        ..out.moved(operation, "sums by index", src.distinct_bytes() + changed)
    }
}

/// `out[o, rows[i], :] += src[o, i, :]` for row-major `out[_, len, inner]`.
#[inline(never)]
#[track_caller]
fn add_rows<T: Real>(
    op: &'static str,
    out: &mut [T],
    len: usize,
    inner: usize,
    rows: &[i64],
    src: &[T],
) {
    if src.is_empty() {
        return;
    }
    let outer = out.len() / (len * inner);
    if inner < SHORT && outer >= SHORT {
        // The destinations of each index of the axes before, in the order of the sources.
        let each = Cost::CHEAP.times(1 + rows.len() / len);
        let chunk = each.units_per_chunk(len * inner) * len * inner;
        par::fill(out, chunk, each, |first, out| {
            let src = &src[first / len * rows.len()..];
            let lines = out.chunks_exact_mut(len * inner).zip(src.chunks_exact(rows.len() * inner));
            for (y, src) in lines {
                if inner == 1 {
                    for (&x, &r) in src.iter().zip(rows) {
                        y[r as usize] += x;
                    }
                    continue;
                }
                for (x, &r) in src.chunks_exact(inner).zip(rows) {
                    let y = &mut y[r as usize * inner..][..inner];
                    y.iter_mut().zip(x).for_each(|(y, &x)| *y += x);
                }
            }
        });
        return;
    }
    // The positions of each destination, ascending, one destination after the other.
    let mut ends = filled(op, len + 1, 0);
    for &r in rows {
        ends[r as usize + 1] += 1;
    }
    for r in 0..len {
        ends[r + 1] += ends[r];
    }
    let mut order = filled(op, rows.len(), 0);
    for (at, &r) in rows.iter().enumerate() {
        order[ends[r as usize]] = at;
        ends[r as usize] += 1;
    }
    // Now `ends[r]` is the end of destination r, and so the start of r + 1.
    let each = Cost::MOVE.times(1 + rows.len() / len);
    let chunk = each.units_per_chunk(inner) * inner;
    par::fill(out, chunk, each, |first, out| {
        for (i, y) in out.chunks_exact_mut(inner).enumerate() {
            let (o, r) = ((first / inner + i) / len, (first / inner + i) % len);
            let start = if r == 0 { 0 } else { ends[r - 1] };
            for &at in &order[start..ends[r]] {
                let x = &src[(o * rows.len() + at) * inner..][..inner];
                y.iter_mut().zip(x).for_each(|(y, &x)| *y += x);
            }
        }
    });
}

fn check_rank(op: &'static str, what: &str, shape: &Shape, rank: usize) -> Result<()> {
    require(shape.rank() == rank, op, ErrorKind::Rank, || {
        format!("{what} {shape:?} must have rank {rank}, not {}", shape.rank())
    })
}

pub(super) fn check_equal(op: &'static str, got: &Shape, expected: &Shape) -> Result<()> {
    require(got == expected, op, ErrorKind::Mismatch, || {
        format!("the values must have shape {expected:?}, not {got:?}")
    })
}

/// Indices for the lines along `axis`: as many axes, and no longer on the others.
pub(super) fn check_lines(op: &'static str, x: &Shape, idx: &Shape, axis: usize) -> Result<()> {
    check_rank(op, "indices", idx, x.rank())?;
    let long = (0..x.rank()).find(|&i| i != axis && idx[i] > x[i]);
    require(long.is_none(), op, ErrorKind::Mismatch, || {
        let i = long.unwrap_or(axis);
        format!("axis {i} of indices {idx:?} is longer than that of {x:?}")
    })
}
