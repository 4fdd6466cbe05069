//! Tensors: constructors, access to elements and conversions.

use crate::cost::Cost;
use crate::element::{Element, Float, Integer, Steps};
use crate::error::{ErrorKind, OrPanic, Result, ShapeError, assert, require};
use crate::layout::Layout;
use crate::loop_nest::LoopNest;
use crate::observe::{self, KernelCall};
use crate::par;
use crate::settings;
use crate::shape::{IntoShape, Shape};
use crate::simd::{inlined, vectorized};
use crate::storage::{Storage, reserved};
use crate::transpose;
use std::sync::Arc;

/// An n-dimensional array of `T`: a strided view of storage that clones and views share. Cloning is
/// cheap; writing is copy-on-write ([`Tensor::make_mut`]), so writing a tensor never changes
/// another one.
///
/// An invalid shape is a programming error and panics at the caller's line; constructors from data
/// of unknown size also have a `try_` form that returns an error.
///
/// ```
/// use retrograd::prelude::*;
/// let x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
/// assert_eq!(x.t().select(0, 1).to_vec(), [2.0, 5.0]);
/// ```
#[derive(Clone)]
pub struct Tensor<T: Element = f32> {
    storage: Arc<Storage<T>>,
    layout: Layout,
}

/// # Constructors
impl<T: Element> Tensor<T> {
    /// A row-major tensor of the given elements; an error if their number does not fit the shape.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// assert!(Tensor::try_from_vec(vec![1.0f32; 6], &[2, 3]).is_ok());
    /// assert!(Tensor::try_from_vec(vec![1.0f32; 6], &[2, 2]).is_err());
    /// ```
    pub fn try_from_vec(data: Vec<T>, shape: &[usize]) -> Result<Tensor<T>> {
        let shape = Shape::checked("from_vec", shape)?;
        require(data.len() == shape.numel(), "from_vec", ErrorKind::Length, || {
            format!("shape {shape:?} needs {} elements, got {}", shape.numel(), data.len())
        })?;
        Tensor::try_build("from_vec", shape, |out| {
            par::fill(out, Cost::MOVE.chunk_len(), Cost::MOVE, |first, out| {
                out.copy_from_slice(&data[first..first + out.len()]);
            });
        })
    }

    /// A row-major tensor of the given elements.
    ///
    /// # Panics
    /// If their number does not fit the shape.
    #[track_caller]
    pub fn from_vec(data: Vec<T>, shape: impl IntoShape) -> Tensor<T> {
        Tensor::try_from_vec(data, &shape.into()).or_panic()
    }

    /// A tensor of rank 0.
    pub fn scalar(x: T) -> Tensor<T> {
        Tensor::full(Shape::SCALAR, x)
    }

    /// A tensor with every element `x`; an error if it is too large.
    pub fn try_full(shape: &[usize], x: T) -> Result<Tensor<T>> {
        Tensor::try_build("full", Shape::checked("full", shape)?, |out| out.fill(x))
    }

    /// A tensor with every element `x`.
    #[track_caller]
    pub fn full(shape: impl IntoShape, x: T) -> Tensor<T> {
        let shape = shape.into();
        // A number is not worth a report.
        let call = if shape.rank() > 0 { observe::begin() } else { None };
        let out = Tensor::build("full", shape, |out| {
            par::fill(out, Cost::MOVE.chunk_len(), Cost::MOVE, |_, out| out.fill(x));
        });
        observe::end(call, || out.moved("full", "fill", 0));
        out
    }

    /// A tensor with every element 0 (or `false`).
    #[track_caller]
    pub fn zeros(shape: impl IntoShape) -> Tensor<T> {
        Tensor::full(shape, T::ZERO)
    }

    /// A tensor with every element 1 (or `true`).
    #[track_caller]
    pub fn ones(shape: impl IntoShape) -> Tensor<T> {
        Tensor::full(shape, T::ONE)
    }

    /// [`Tensor::zeros`] of the same shape.
    #[track_caller]
    pub fn zeros_like(&self) -> Tensor<T> {
        Tensor::zeros(*self.shape())
    }

    /// [`Tensor::ones`] of the same shape.
    #[track_caller]
    pub fn ones_like(&self) -> Tensor<T> {
        Tensor::ones(*self.shape())
    }

    /// [`Tensor::full`] of the same shape.
    #[track_caller]
    pub fn full_like(&self, x: T) -> Tensor<T> {
        Tensor::full(*self.shape(), x)
    }

    /// The identity matrix of `n` rows.
    #[track_caller]
    pub fn eye(n: usize) -> Tensor<T> {
        Tensor::build("eye", [n, n].into(), |out| {
            out.fill(T::ZERO);
            out.iter_mut().step_by(n + 1).for_each(|x| *x = T::ONE);
        })
    }

    /// A tensor whose element at each index is computed by `f`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let causal = Tensor::from_fn([3, 3], |i| i[1] <= i[0]);
    /// assert_eq!(causal.to_vec().iter().filter(|&&keep| keep).count(), 6);
    /// ```
    #[track_caller]
    pub fn from_fn(shape: impl IntoShape, mut f: impl FnMut(&[usize]) -> T) -> Tensor<T> {
        let shape = shape.into();
        let mut index = vec![0; shape.rank()];
        Tensor::build("from_fn", shape, |out| {
            for x in out {
                *x = f(&index);
                for axis in (0..index.len()).rev() {
                    index[axis] += 1;
                    if index[axis] < shape[axis] {
                        break;
                    }
                    index[axis] = 0;
                }
            }
        })
    }

    /// A vector of `n` elements, each a function of its position.
    #[track_caller]
    fn from_positions(n: usize, f: impl Fn(usize) -> T + Copy + Send + Sync) -> Tensor<T> {
        Tensor::build("arange", [n].into(), |out| {
            par::fill(out, Cost::CHEAP.chunk_len(), Cost::CHEAP, |first, out| {
                vectorized(
                    settings::level(),
                    inlined!(move || {
                        for i in 0..out.len() {
                            out[i] = f(first + i);
                        }
                    }),
                );
            });
        })
    }

    /// A new contiguous tensor; `write` must set all elements, since it is given recycled memory
    /// with unspecified contents.
    #[track_caller]
    pub(crate) fn build(op: &'static str, shape: Shape, write: impl FnOnce(&mut [T])) -> Tensor<T> {
        // This function is compiled once per `write`, so most of its work is in other functions.
        let mut storage = Storage::recycled_or_panic(op, shape.numel());
        write(&mut storage);
        Tensor::contiguous_from(storage, shape)
    }

    fn try_build(
        op: &'static str,
        shape: Shape,
        write: impl FnOnce(&mut [T]),
    ) -> Result<Tensor<T>> {
        let mut storage = Storage::recycled(op, shape.numel())?;
        write(&mut storage);
        Ok(Tensor::contiguous_from(storage, shape))
    }

    #[inline(never)]
    fn contiguous_from(storage: Storage<T>, shape: Shape) -> Tensor<T> {
        Tensor { storage: Arc::new(storage), layout: Layout::contiguous(shape) }
    }
}

/// Pairs of tensors.
impl<T: Element> Tensor<T> {
    /// Two new contiguous tensors that are written together, see [`Tensor::build`].
    #[track_caller]
    pub(crate) fn build2<U: Element>(
        op: &'static str,
        a: Shape,
        b: Shape,
        write: impl FnOnce(&mut [T], &mut [U]),
    ) -> (Tensor<T>, Tensor<U>) {
        let mut second = None;
        let first = Tensor::build(op, a, |x| {
            second = Some(Tensor::build(op, b, |y| write(x, y)));
        });
        (first, second.expect("written with the first"))
    }
}

/// # Constructors of sequences
impl<T: Steps> Tensor<T> {
    /// `start, start + step, ..` up to but not including `stop`, which are `f64` for floats and
    /// `i64` for integers.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// assert_eq!(Tensor::<f32>::arange(0.0, 1.0, 0.25).to_vec(), [0.0, 0.25, 0.5, 0.75]);
    /// assert_eq!(Tensor::<i64>::arange(5, -1, -2).to_vec(), [5, 3, 1]);
    /// ```
    ///
    /// # Panics
    /// If `step` is 0, the range has no finite length, or a number does not fit the type.
    #[track_caller]
    pub fn arange(start: T::Bound, stop: T::Bound, step: T::Bound) -> Tensor<T> {
        let n = T::count(start, stop, step);
        assert(n.is_some(), "arange", ErrorKind::Value, || {
            format!("{start}..{stop} by {step} has no finite length")
        });
        Tensor::from_positions(n.unwrap_or(0), inlined!(move |i| T::nth(start, step, i)))
    }
}

/// # Constructors of sequences of floats
impl<T: Float> Tensor<T> {
    /// `n` evenly spaced numbers from `start` to `stop`, both included.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// assert_eq!(Tensor::<f32>::linspace(-1.0, 1.0, 5).to_vec(), [-1.0, -0.5, 0.0, 0.5, 1.0]);
    /// ```
    #[track_caller]
    pub fn linspace(start: f64, stop: f64, n: usize) -> Tensor<T> {
        let step = if n > 1 { (stop - start) / (n - 1) as f64 } else { 0.0 };
        Tensor::from_positions(n, |i| {
            // From the nearer end, so that both are exact.
            T::from_f64(if 2 * i < n {
                start + step * i as f64
            } else {
                stop - step * (n - 1 - i) as f64
            })
        })
    }
}

/// # Constructors of indices
impl<I: Integer> Tensor<I> {
    /// `0, 1, .., n - 1`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// assert_eq!(Tensor::<i64>::indices(3).to_vec(), [0, 1, 2]);
    /// ```
    #[track_caller]
    pub fn indices(n: usize) -> Tensor<I> {
        Tensor::from_positions(n, I::from_usize)
    }
}

/// # Metadata and elements
impl<T: Element> Tensor<T> {
    /// The sizes of the axes.
    #[inline]
    pub fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// The number of axes.
    #[inline]
    pub fn rank(&self) -> usize {
        self.shape().rank()
    }

    /// The number of elements.
    #[doc(alias = "len")]
    #[doc(alias = "nelement")]
    #[inline]
    pub fn numel(&self) -> usize {
        self.shape().numel()
    }

    /// The size of one axis; `-1` is the last.
    #[track_caller]
    pub fn size(&self, axis: isize) -> usize {
        self.shape()[self.shape().axis("size", axis).or_panic()]
    }

    /// The layout in the storage.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Other elements of the same storage.
    pub(crate) fn view(&self, layout: Layout) -> Tensor<T> {
        Tensor { storage: self.storage.clone(), layout }
    }

    /// The whole storage, which may have other elements as well.
    #[inline]
    pub(crate) fn data(&self) -> &[T] {
        &self.storage
    }

    /// Whether the elements are in row-major order without gaps.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// Whether two tensors share storage.
    pub fn shares_storage(&self, other: &Tensor<T>) -> bool {
        Arc::ptr_eq(&self.storage, &other.storage)
    }

    /// The address of the storage: equal for tensors that share it, and the address in
    /// [`Event::Allocated`](crate::observe::Event::Allocated). It identifies the storage while this
    /// tensor exists.
    #[doc(hidden)]
    pub fn storage_address(&self) -> usize {
        self.storage.as_ptr().addr()
    }

    /// The elements of a contiguous tensor.
    ///
    /// # Panics
    /// If it is not contiguous; call [`Tensor::contiguous`] first.
    #[track_caller]
    pub fn as_slice(&self) -> &[T] {
        require(self.is_contiguous(), "as_slice", ErrorKind::Layout, || {
            format!("{:?} with strides {:?} is not contiguous", self.shape(), self.layout.strides())
        })
        .map_err(|error| error.hint("call contiguous() first"))
        .or_panic();
        let n = self.numel();
        if n == 0 { &[] } else { &self.storage[self.layout.offset()..][..n] }
    }

    /// The elements in row-major order.
    ///
    /// # Panics
    /// If there is not enough memory.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.t().to_vec(), [1.0, 3.0, 2.0, 4.0]); // logical order
    /// ```
    #[track_caller]
    pub fn to_vec(&self) -> Vec<T> {
        let source = self.contiguous();
        let mut out = reserved("to_vec", source.numel()).or_panic();
        out.extend_from_slice(source.as_slice());
        out
    }

    /// The only element of a tensor with one element.
    ///
    /// # Panics
    /// If there is not exactly one.
    #[track_caller]
    pub fn item(&self) -> T {
        assert(self.numel() == 1, "item", ErrorKind::Length, || {
            format!("{:?} has {} elements, not one", self.shape(), self.numel())
        });
        self.storage[self.layout.offset()]
    }

    /// The element at an index.
    #[track_caller]
    pub fn at(&self, index: &[usize]) -> T {
        self.storage[self.layout.position("at", index).or_panic()]
    }

    /// The tensor in row-major order without gaps: itself if it is contiguous, else a copy.
    ///
    /// # Panics
    /// If there is not enough memory for a copy.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::<f32>::ones([2, 3]);
    /// assert!(x.t().contiguous().is_contiguous());
    /// assert!(x.contiguous().shares_storage(&x)); // nothing to copy
    /// ```
    #[track_caller]
    pub fn contiguous(&self) -> Tensor<T> {
        if self.is_contiguous() {
            return self.clone();
        }
        let nest = LoopNest::new(self.shape(), [&self.layout]);
        let data = self.data();
        let (call, mut kernel) = (observe::begin(), "");
        let out = Tensor::build("contiguous", *self.shape(), |out| {
            kernel = transpose::copy(&nest, data, out);
        });
        observe::end(call, || out.moved("contiguous", kernel, self.distinct_bytes()));
        out
    }

    /// The bytes of the different elements: those along broadcast axes are the same.
    pub(crate) fn distinct_bytes(&self) -> u64 {
        (self.layout.distinct() * size_of::<T>()) as u64
    }

    /// The report of an operation that moves elements, of which this is the result.
    #[cold]
    pub(crate) fn moved(
        &self,
        operation: &'static str,
        kernel: &'static str,
        read: u64,
    ) -> KernelCall {
        let written = (self.numel() * size_of::<T>()) as u64;
        KernelCall { read, written, ..KernelCall::new(operation, kernel, T::DTYPE, *self.shape()) }
    }

    /// The elements as a mutable slice in row-major order: in place if the tensor is the only user
    /// of its storage and covers it contiguously, else in a new copy.
    ///
    /// # Panics
    /// If there is not enough memory for a copy.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let mut x = Tensor::from([1.0f32, 2.0]);
    /// let copy = x.clone();
    /// x.make_mut()[0] = 9.0;
    /// assert_eq!((x.to_vec(), copy.to_vec()), (vec![9.0, 2.0], vec![1.0, 2.0]));
    /// ```
    #[track_caller]
    pub fn make_mut(&mut self) -> &mut [T] {
        let whole = self.is_contiguous() && self.numel() == self.storage.len();
        if !whole || Arc::get_mut(&mut self.storage).is_none() {
            let call = observe::begin();
            let source = self.contiguous();
            *self = Tensor::build("make_mut", *self.shape(), |out| {
                out.copy_from_slice(source.as_slice());
            });
            observe::end(call, || self.moved("make_mut", "copy", source.distinct_bytes()));
        }
        Arc::get_mut(&mut self.storage).expect("just made unique")
    }

    /// Whether [`Tensor::make_mut`] works in place.
    pub fn is_unique(&mut self) -> bool {
        self.is_contiguous()
            && self.numel() == self.storage.len()
            && Arc::get_mut(&mut self.storage).is_some()
    }
}

impl<T: Element> From<T> for Tensor<T> {
    fn from(x: T) -> Self {
        Tensor::scalar(x)
    }
}

/// The elements of an array, in as many axes as it is nested.
///
/// ```
/// use retrograd::prelude::*;
/// let x = Tensor::from([[[1i64, 2], [3, 4], [5, 6]]]);
/// assert_eq!((x.shape().to_vec(), x.at(&[0, 2, 1])), (vec![1, 3, 2], 6));
/// ```
impl<T: Element, const N: usize> From<[T; N]> for Tensor<T> {
    fn from(x: [T; N]) -> Self {
        Tensor::from_vec(x.to_vec(), [N])
    }
}

impl<T: Element, const N: usize, const M: usize> From<[[T; M]; N]> for Tensor<T> {
    fn from(x: [[T; M]; N]) -> Self {
        Tensor::from_vec(x.concat(), [N, M])
    }
}

impl<T: Element, const N: usize, const M: usize, const K: usize> From<[[[T; K]; M]; N]>
    for Tensor<T>
{
    fn from(x: [[[T; K]; M]; N]) -> Self {
        Tensor::from_vec(x.concat().concat(), [N, M, K])
    }
}

impl<T: Element, const N: usize, const M: usize, const K: usize, const L: usize>
    From<[[[[T; L]; K]; M]; N]> for Tensor<T>
{
    fn from(x: [[[[T; L]; K]; M]; N]) -> Self {
        Tensor::from_vec(x.concat().concat().concat(), [N, M, K, L])
    }
}

/// The elements of a vector along one axis.
impl<T: Element> From<Vec<T>> for Tensor<T> {
    fn from(x: Vec<T>) -> Self {
        let n = x.len();
        Tensor::from_vec(x, [n])
    }
}

/// The items of an iterator along one axis.
///
/// ```
/// use retrograd::prelude::*;
/// let squares: Tensor<i64> = (1..4).map(|i| i * i).collect();
/// assert_eq!(squares, Tensor::from([1, 4, 9]));
/// ```
impl<T: Element> FromIterator<T> for Tensor<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Tensor::from(items.into_iter().collect::<Vec<T>>())
    }
}

/// The rows of a matrix; an error if they differ in length.
///
/// ```
/// use retrograd::prelude::*;
/// let x = Tensor::try_from(vec![vec![1i64, 2], vec![3, 4]]).unwrap();
/// assert_eq!(x, Tensor::from([[1, 2], [3, 4]]));
/// let error = Tensor::try_from(vec![vec![1i64, 2], vec![3]]).unwrap_err();
/// assert_eq!(error.to_string(), "try_from: row 1 has length 1, row 0 has length 2");
/// ```
impl<T: Element> TryFrom<Vec<Vec<T>>> for Tensor<T> {
    type Error = ShapeError;
    fn try_from(rows: Vec<Vec<T>>) -> Result<Self> {
        let width = equal_lengths("row", rows.iter().map(Vec::len))?;
        Tensor::try_from_vec(rows.concat(), &[rows.len(), width])
    }
}

/// The matrices of a tensor of rank 3; an error if they differ in shape.
impl<T: Element> TryFrom<Vec<Vec<Vec<T>>>> for Tensor<T> {
    type Error = ShapeError;
    fn try_from(matrices: Vec<Vec<Vec<T>>>) -> Result<Self> {
        let height = equal_lengths("matrix", matrices.iter().map(Vec::len))?;
        let width = equal_lengths("row", matrices.iter().flatten().map(Vec::len))?;
        let count = matrices.len();
        Tensor::try_from_vec(matrices.concat().concat(), &[count, height, width])
    }
}

/// The length that all have, 0 if there are none.
fn equal_lengths(what: &str, lengths: impl Iterator<Item = usize>) -> Result<usize> {
    let lengths: Vec<usize> = lengths.collect();
    let first = lengths.first().copied().unwrap_or(0);
    let odd = lengths.iter().position(|&len| len != first);
    require(odd.is_none(), "try_from", ErrorKind::Length, || {
        let i = odd.unwrap_or(0);
        format!("{what} {i} has length {}, {what} 0 has length {first}", lengths[i])
    })?;
    Ok(first)
}

/// Equality of shapes and elements; false if any element is NaN.
impl<T: Element> PartialEq for Tensor<T> {
    #[track_caller]
    fn eq(&self, other: &Self) -> bool {
        self.shape() == other.shape()
            && self.contiguous().as_slice() == other.contiguous().as_slice()
    }
}
