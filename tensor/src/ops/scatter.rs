//! Replacement of elements: at indices of axes, through a layout, and at tensors of indices. The tensor
//! itself is not changed.

use crate::cost::Cost;
use crate::element::{Element, Integer};
use crate::error::{ErrorKind, OrPanic, assert};
use crate::indexing::Indices;
use crate::kernels::Real;
use crate::layout::Layout;
use crate::loop_nest::LoopNest;
use crate::observe::{self, KernelCall};
use crate::ops::binary::TensorOrNumber;
use crate::ops::index::{added, check_equal, check_lines};
use crate::ops::strided::write_through;
use crate::par;
use crate::tensor::Tensor;

/// How [`Tensor::scatter_reduce`] combines values with the same index, and the element there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScatterReduce {
    /// Their sum.
    Sum,
    /// Their product.
    Prod,
    /// The largest; NaN if one is NaN.
    Amax,
    /// The smallest; NaN if one is NaN.
    Amin,
}

/// # Assignment
///
/// Copies in which some elements are replaced.
impl<T: Element> Tensor<T> {
    /// A copy in which the elements at the given [indices](crate::indexing) come from `source`, which is
    /// broadcast: `x.i(indices)` of the result is `source`.
    ///
    /// # Panics
    /// If an index is outside its axis, or `source` does not broadcast.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    /// let y = x.slice_assign((.., 1..), &Tensor::from([7.0, 8.0]));
    /// assert_eq!(y, Tensor::from([[1.0, 7.0, 8.0], [4.0, 7.0, 8.0]]));
    /// assert_eq!(x.slice_assign((-1, 0), 0.0).to_vec(), [1.0, 2.0, 3.0, 0.0, 5.0, 6.0]);
    /// ```
    #[doc(alias = "slice_scatter")]
    #[doc(alias = "index_put")]
    #[track_caller]
    pub fn slice_assign(&self, indices: impl Indices, source: impl TensorOrNumber<T>) -> Tensor<T> {
        let whole = Layout::contiguous(*self.shape());
        let layout = whole.index("slice_assign", &indices.to_indices()).or_panic();
        replace("slice_assign", self, &layout, &source.into_tensor())
    }

    /// A copy in which the slice at one index of an axis is `source`, which is broadcast.
    ///
    /// # Panics
    /// If the index is outside the axis, or `source` does not broadcast.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::<f32>::zeros([2, 2]);
    /// assert_eq!(x.select_scatter(1, 0, &Tensor::from([1.0, 2.0])).to_vec(), [1.0, 0.0, 2.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn select_scatter(
        &self,
        axis: isize,
        index: usize,
        source: impl TensorOrNumber<T>,
    ) -> Tensor<T> {
        let whole = Layout::contiguous(*self.shape());
        let layout = whole.select("select_scatter", axis, index).or_panic();
        replace("select_scatter", self, &layout, &source.into_tensor())
    }

    /// A copy in which the elements at the positions of `layout`, counted in row-major order, are replaced by
    /// `source`, which is broadcast: [`Tensor::as_strided`] of the result is `source`.
    ///
    /// # Panics
    /// If the layout exceeds the tensor, several of its elements may have one position, or `source` does
    /// not broadcast.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// use retrograd::tensor::layout::Layout;
    /// let every_other = Layout::contiguous([4].into()).slice("", 0, 0, 4, 2).unwrap();
    /// let x = Tensor::from([1.0f32, 2.0, 3.0, 4.0]);
    /// let y = x.as_strided_scatter(&every_other, &Tensor::from([8.0, 9.0]));
    /// assert_eq!(y.to_vec(), [8.0, 2.0, 9.0, 4.0]);
    /// ```
    #[track_caller]
    pub fn as_strided_scatter(&self, layout: &Layout, source: &Tensor<T>) -> Tensor<T> {
        replace("as_strided_scatter", self, layout, source)
    }

    /// A copy in which `src[.., i, ..]` replaces the element at `[.., idx[.., i, ..], ..]`, where the index
    /// replaces the position on `axis`. Of several values with the same index the last one is kept.
    ///
    /// `src` has the shape of `idx`, or is a number; `idx` has as many axes as `self` and is no longer than
    /// `self` on any axis but `axis`. [`Tensor::scatter_add`] and [`Tensor::scatter_reduce`] combine values.
    ///
    /// # Panics
    /// If the shapes do not fit, or an index is outside the axis.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::<f32>::zeros([2, 3]);
    /// let label = Tensor::from([[2i64], [0]]);
    /// assert_eq!(x.scatter(-1, &label, 1.0).to_vec(), [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn scatter<I: Integer>(
        &self,
        axis: isize,
        idx: &Tensor<I>,
        src: impl TensorOrNumber<T>,
    ) -> Tensor<T> {
        self.scatter_selected("scatter", axis, idx, &src.into_tensor(), |_, _| true).0
    }

    /// [`Tensor::scatter`] of values that replace an element if `replaces(value, element)`; and for each
    /// element of the result the position on `axis` of the value that it is, or -1 if it is the original.
    #[doc(hidden)]
    #[inline(never)]
    #[track_caller]
    pub fn scatter_selected<I: Integer>(
        &self,
        op: &'static str,
        axis: isize,
        idx: &Tensor<I>,
        src: &Tensor<T>,
        replaces: impl Fn(T, T) -> bool + Send + Sync,
    ) -> (Tensor<T>, Tensor<i64>) {
        let lines = Lines::new(op, self, axis, idx, src);
        let call = observe::begin();
        let x = self.view_moved_last(lines.axis).contiguous();
        let (shape, len) = (*x.shape(), lines.len);
        let (values, from) = Tensor::build2(op, shape, shape, |values, from| {
            values.copy_from_slice(x.as_slice());
            from.fill(-1);
            let chunk = lines.cost.units_per_chunk(len) * len;
            par::fill2((values, chunk), (from, chunk), lines.cost, |at, values, from| {
                let outputs = values.chunks_exact_mut(len).zip(from.chunks_exact_mut(len));
                for (line, (values, from)) in (at * (chunk / len)..).zip(outputs) {
                    let pairs = lines.of(line);
                    for (i, (pick, x)) in pairs.enumerate() {
                        if replaces(x, values[pick]) {
                            (values[pick], from[pick]) = (x, i as i64);
                        }
                    }
                }
            });
        });
        observe::end(call, || {
            let read = x.distinct_bytes() + lines.src.distinct_bytes();
            let of_values = values.moved(op, "indexed lines", read);
            KernelCall { written: of_values.written + from.distinct_bytes(), ..of_values }
        });
        (values.view_moved_back(lines.axis), from.view_moved_back(lines.axis))
    }
}

/// # Reduction at indices
impl<T: Real> Tensor<T> {
    /// A copy of `self` with `src[.., i, ..]` added to `[.., idx[.., i, ..], ..]`, where the
    /// index replaces the position on `axis`: the adjoint of [`Tensor::gather`].
    ///
    /// `src` has the shape of `idx`, which has as many axes as `self` and is no longer than
    /// `self` on any axis but `axis`. Values with the same index are added in ascending
    /// order of position.
    ///
    /// # Panics
    /// If the shapes do not fit, or an index is outside the axis.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::<f32>::ones([3]);
    /// let y = x.scatter_add(0, &Tensor::from([2i64, 0, 2]), &Tensor::from([1.0, 2.0, 3.0]));
    /// assert_eq!(y.to_vec(), [3.0, 1.0, 5.0]);
    /// ```
    #[track_caller]
    pub fn scatter_add<I: Integer>(
        &self,
        axis: isize,
        idx: &Tensor<I>,
        src: &Tensor<T>,
    ) -> Tensor<T> {
        let lines = Lines::new("scatter_add", self, axis, idx, src);
        check_equal("scatter_add", src.shape(), idx.shape()).or_panic(); // not a number
        let call = observe::begin();
        let out = lines.combined(self, |y, x| *y += x);
        observe::end(call, || added("scatter_add", &out, &lines.src));
        out.view_moved_back(lines.axis)
    }

    /// A copy in which `src[.., i, ..]` is combined with the element at `[.., idx[.., i, ..], ..]`, where
    /// the index replaces the position on `axis`: their sum, product, maximum or minimum. The element itself
    /// is included.
    ///
    /// Shapes as in [`Tensor::scatter`]. Values with the same index are combined in ascending order of
    /// position.
    ///
    /// # Panics
    /// If the shapes do not fit, or an index is outside the axis.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// use retrograd::tensor::ScatterReduce;
    /// let x = Tensor::from([1.0f32, 1.0, 1.0]);
    /// let (idx, src) = (Tensor::from([2i64, 0, 2]), Tensor::from([3.0, -1.0, 5.0]));
    /// assert_eq!(x.scatter_reduce(0, &idx, &src, ScatterReduce::Prod).to_vec(), [-1.0, 1.0, 15.0]);
    /// assert_eq!(x.scatter_reduce(0, &idx, &src, ScatterReduce::Amax).to_vec(), [1.0, 1.0, 5.0]);
    /// ```
    #[track_caller]
    pub fn scatter_reduce<I: Integer>(
        &self,
        axis: isize,
        idx: &Tensor<I>,
        src: &Tensor<T>,
        how: ScatterReduce,
    ) -> Tensor<T> {
        match how {
            ScatterReduce::Sum => self.scatter_add(axis, idx, src),
            ScatterReduce::Prod => self.scatter_prod(axis, idx, src),
            ScatterReduce::Amax | ScatterReduce::Amin => {
                self.scatter_extremum(axis, idx, src, how == ScatterReduce::Amax).0
            }
        }
    }

    /// The largest or smallest values, and their positions, see [`Tensor::scatter_selected`]. The first of
    /// equals is kept, and the first NaN.
    #[doc(hidden)]
    #[track_caller]
    pub fn scatter_extremum<I: Integer>(
        &self,
        axis: isize,
        idx: &Tensor<I>,
        src: &Tensor<T>,
        largest: bool,
    ) -> (Tensor<T>, Tensor<i64>) {
        self.scatter_selected("scatter_reduce", axis, idx, src, move |new, old| {
            let is_better = if largest { new > old } else { new < old };
            is_better || new.is_nan() && !old.is_nan()
        })
    }

    #[track_caller]
    fn scatter_prod<I: Integer>(&self, axis: isize, idx: &Tensor<I>, src: &Tensor<T>) -> Tensor<T> {
        let lines = Lines::new("scatter_reduce", self, axis, idx, src);
        let call = observe::begin();
        let out = lines.combined(self, |y, x| *y *= x);
        observe::end(call, || KernelCall {
            flops: lines.src.numel() as u64,
            ..out.moved(
                "scatter_reduce",
                "indexed lines",
                out.distinct_bytes() + lines.src.distinct_bytes(),
            )
        });
        out.view_moved_back(lines.axis)
    }

    /// For [`ScatterReduce::Prod`], the product of all other factors of the same product: for each element of
    /// `self`, and for each value.
    #[doc(hidden)]
    #[track_caller]
    pub fn scatter_prod_of_others<I: Integer>(
        &self,
        axis: isize,
        idx: &Tensor<I>,
        src: &Tensor<T>,
    ) -> (Tensor<T>, Tensor<T>) {
        let lines = Lines::new("scatter_reduce", self, axis, idx, src);
        let call = observe::begin();
        let x = self.view_moved_last(lines.axis).contiguous();
        let mut of_self = x.ones_like();
        let mut of_values = lines.src.clone();
        let (after, others) = (of_self.make_mut(), of_values.make_mut());
        for (line, x) in x.as_slice().chunks_exact(lines.len).enumerate() {
            let (picks, src) = lines.pieces(line);
            let others = &mut others[lines.range(line)];
            let mut before = x.to_vec();
            for (i, &pick) in picks.iter().enumerate() {
                others[i] = before[pick as usize];
                before[pick as usize] *= src[i];
            }
            let after = &mut after[line * lines.len..][..lines.len];
            for (i, &pick) in picks.iter().enumerate().rev() {
                others[i] *= after[pick as usize];
                after[pick as usize] *= src[i];
            }
        }
        observe::end(call, || {
            let read = x.distinct_bytes() + lines.src.distinct_bytes();
            KernelCall {
                flops: 2 * lines.src.numel() as u64,
                written: read, // results of the same sizes
                ..of_self.moved("scatter_reduce_vjp", "indexed lines", read)
            }
        });
        (of_self.view_moved_back(lines.axis), of_values.view_moved_back(lines.axis))
    }
}

/// The values and indices of each line along an axis.
struct Lines<T: Element> {
    axis: usize,
    /// The length of a line of the tensor, at least 1.
    len: usize,
    /// The number of values of a line.
    count: usize,
    /// The sizes of the other axes of the tensor and of the indices.
    large: Vec<usize>,
    small: Vec<usize>,
    picks: Tensor<i64>,
    src: Tensor<T>,
    cost: Cost,
}

impl<T: Element> Lines<T> {
    /// Checks all arguments.
    #[track_caller]
    fn new<I: Integer>(
        op: &'static str,
        x: &Tensor<T>,
        axis: isize,
        idx: &Tensor<I>,
        src: &Tensor<T>,
    ) -> Lines<T> {
        let axis = x.shape().axis(op, axis).or_panic();
        check_lines(op, x.shape(), idx.shape(), axis).or_panic();
        // A number is repeated.
        let src = if src.rank() == 0 { src.broadcast_to(*idx.shape()) } else { src.clone() };
        check_equal(op, src.shape(), idx.shape()).or_panic();
        // Checked before they are moved, so that the message names the caller's position.
        let idx = idx.checked_indices(op, x.shape()[axis]).view_moved_last(axis);
        let (len, count) = (x.shape()[axis].max(1), idx.shape()[x.rank() - 1]);
        Lines {
            axis,
            len,
            count,
            large: x.shape().without(axis).to_vec(),
            small: idx.shape()[..x.rank() - 1].to_vec(),
            picks: idx.contiguous(),
            src: src.view_moved_last(axis).contiguous(),
            cost: Cost::CHEAP.times(1 + count / len),
        }
    }

    /// The positions of the values of a line of the tensor.
    fn range(&self, line: usize) -> std::ops::Range<usize> {
        match same_line(line, &self.large, &self.small) {
            Some(line) => line * self.count..(line + 1) * self.count,
            None => 0..0,
        }
    }

    fn pieces(&self, line: usize) -> (&[i64], &[T]) {
        let range = self.range(line);
        (&self.picks.as_slice()[range.clone()], &self.src.as_slice()[range])
    }

    /// The indices and values of a line.
    fn of(&self, line: usize) -> impl Iterator<Item = (usize, T)> {
        let (picks, src) = self.pieces(line);
        picks.iter().zip(src).map(|(&pick, &x)| (pick as usize, x))
    }

    /// A copy of `x`, with the axis last, in which `f` combines elements with values, in ascending order of position.
    fn combined(&self, x: &Tensor<T>, f: impl Fn(&mut T, T) + Send + Sync) -> Tensor<T> {
        let mut out = x.view_moved_last(self.axis).contiguous();
        let chunk = self.cost.units_per_chunk(self.len) * self.len;
        par::fill(out.make_mut(), chunk, self.cost, |first, out| {
            for (i, y) in out.chunks_exact_mut(self.len).enumerate() {
                for (pick, x) in self.of(first / self.len + i) {
                    f(&mut y[pick], x);
                }
            }
        });
        out
    }
}

/// `x` with `source` at the positions of `layout`.
#[inline(never)]
#[track_caller]
fn replace<T: Element>(
    op: &'static str,
    x: &Tensor<T>,
    layout: &Layout,
    source: &Tensor<T>,
) -> Tensor<T> {
    assert(layout.fits(x.numel()) && layout.is_injective(), op, ErrorKind::Layout, || {
        format!("{layout:?} exceeds {:?}, or has elements with one position", x.shape())
    });
    let wide = source.layout().broadcast_to(op, layout.shape()).or_panic();
    let nest = LoopNest::new(layout.shape(), [layout, &wide]);
    let call = observe::begin();
    let mut out = x.clone();
    write_through(&nest, out.make_mut(), source.data(), layout.shape().numel(), |y, x| *y = x);
    observe::end(call, || KernelCall {
        written: (layout.shape().numel() * size_of::<T>()) as u64,
        ..out.moved(op, "runs replaced", source.distinct_bytes())
    });
    out
}

/// The index, in an array of smaller sizes, of line `line` of an array of larger sizes.
fn same_line(mut line: usize, large: &[usize], small: &[usize]) -> Option<usize> {
    let (mut number, mut weight) = (0, 1);
    for (&large, &small) in large.iter().zip(small).rev() {
        let at = line % large;
        line /= large;
        if at >= small {
            return None;
        }
        number += at * weight;
        weight *= small;
    }
    Some(number)
}
