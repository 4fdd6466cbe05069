//! Selection by boolean masks. Values are selected, never multiplied by a mask: values that are not
//! selected have no influence, even if they are non-finite.

use crate::cost::Cost;
use crate::element::Element;
use crate::error::{ErrorKind, OrPanic, assert};
use crate::kernels::elementwise::{common_shape, map_with, zip_with, zip3_with};
use crate::observe;
use crate::par;
use crate::tensor::Tensor;
use std::hint::select_unpredictable;
use std::ops::{BitAnd, BitOr, Not};

/// # Masks and selection
impl Tensor<bool> {
    /// `a` where `self` is true, `b` elsewhere; all three are broadcast together.
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let keep = Tensor::from([true, false]);
    /// let y = keep.where_(&Tensor::from([1.0f32, f32::NAN]), &Tensor::scalar(0.0));
    /// assert_eq!(y.to_vec(), [1.0, 0.0]);
    /// ```
    #[doc(alias = "where")]
    #[doc(alias = "select")]
    #[track_caller]
    pub fn where_<T: Element>(&self, a: &Tensor<T>, b: &Tensor<T>) -> Tensor<T> {
        zip3_with("where_", SELECTION, self, a, b, select_unpredictable)
    }

    /// `self ∧ other`, broadcast; also `self & other`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (a, b) = (Tensor::from([true, true]), Tensor::from([true, false]));
    /// assert_eq!((&a & &b).to_vec(), [true, false]); // the same as a.and(&b)
    /// ```
    #[track_caller]
    pub fn and(&self, other: &Tensor<bool>) -> Tensor<bool> {
        zip_with("and", self, other, |a, b| a & b)
    }

    /// `self ∨ other`, broadcast; also `self | other`.
    #[track_caller]
    pub fn or(&self, other: &Tensor<bool>) -> Tensor<bool> {
        zip_with("or", self, other, |a, b| a | b)
    }

    /// `¬ self`; also `!self`.
    pub fn not(&self) -> Tensor<bool> {
        map_with("not", self, |a: bool| !a)
    }
}

/// # Masks and selection
impl<T: Element> Tensor<T> {
    /// The indices of all elements other than 0 (or `false`), in row-major order, one per row: `[count,
    /// rank]`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[0.0f32, 2.0], [3.0, 0.0]]);
    /// assert_eq!(x.nonzero(), Tensor::from([[0, 1], [1, 0]]));
    /// assert_eq!(x.gt(2.0).nonzero(), Tensor::from([[1, 0]]));
    /// ```
    #[doc(alias = "argwhere")]
    #[track_caller]
    pub fn nonzero(&self) -> Tensor<i64> {
        let (shape, rank) = (*self.shape(), self.rank());
        let is_other = map_with("nonzero", self, |x| x != T::ZERO);
        let found = for_each_true("nonzero", &is_other, rank, &|mut at, index: &mut [i64]| {
            for (i, &size) in index.iter_mut().zip(shape.iter()).rev() {
                (*i, at) = ((at % size) as i64, at / size);
            }
        });
        let count = found.numel().checked_div(rank).unwrap_or_else(|| is_other.count_true());
        found.reshape([count, rank])
    }

    /// The elements where the mask is true, in row-major order, along one axis; both are broadcast
    /// together.
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    pub fn masked_select(&self, mask: &Tensor<bool>) -> Tensor<T> {
        let shape = common_shape("masked_select", [self.shape(), mask.shape()]);
        let (x, mask) = (self.broadcast_to(shape), mask.broadcast_to(shape));
        let (x, mask) = (x.contiguous(), mask.contiguous());
        let x = x.as_slice();
        for_each_true("masked_select", &mask, 1, &|at, y: &mut [T]| y[0] = x[at])
    }

    /// `value` where `mask` is true, `self` elsewhere. The mask is broadcast to the shape of
    /// `self`, which the result has.
    ///
    /// # Panics
    /// If the mask does not broadcast to the shape of `self`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let scores = Tensor::<f32>::zeros([2, 2]);
    /// let future = Tensor::<bool>::ones([2, 2]).triu(1);
    /// let y = scores.masked_fill(&future, f32::NEG_INFINITY);
    /// assert_eq!(y.to_vec(), [0.0, f32::NEG_INFINITY, 0.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor<bool>, value: T) -> Tensor<T> {
        let (value, shape) = (Tensor::scalar(value), self.shape());
        mask.layout().broadcast_to("masked_fill", shape).or_panic();
        zip3_with("masked_fill", SELECTION, mask, &value, self, select_unpredictable)
    }

    /// The lower triangle of the last two axes: element `[.., i, j]` if `j - i <= diagonal`,
    /// else 0. A diagonal of 0 is the main one, positive ones lie above it.
    ///
    /// # Panics
    /// If there are fewer than two axes.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::<i64>::ones([2, 3]);
    /// assert_eq!(x.tril(0).to_vec(), [1, 0, 0, 1, 1, 0]);
    /// assert_eq!(x.triu(1).to_vec(), [0, 1, 1, 0, 0, 1]);
    /// ```
    #[track_caller]
    pub fn tril(&self, diagonal: isize) -> Tensor<T> {
        triangle("tril", self, |row| row.saturating_add(diagonal).saturating_add(1), true)
    }

    /// As [`Tensor::tril`] for the upper triangle: element `[.., i, j]` if `j - i >= diagonal`.
    #[track_caller]
    pub fn triu(&self, diagonal: isize) -> Tensor<T> {
        triangle("triu", self, |row| row.saturating_add(diagonal), false)
    }
}

/// The cost and the operations of a selection of one of two elements. Both are read everywhere, so that there is no
/// branch to mispredict.
const SELECTION: (Cost, u64) = (Cost::CHEAP, 0);
/// Elements per block.
const BLOCK: usize = 256;

/// The elements, `width` for each true one in row-major order, that `write` writes for its position.
#[track_caller]
fn for_each_true<U: Element>(
    op: &'static str,
    mask: &Tensor<bool>,
    width: usize,
    write: &(dyn Fn(usize, &mut [U]) + Sync),
) -> Tensor<U> {
    let chunk = Cost::CHEAP.chunk_len();
    let mask = mask.contiguous();
    let parts: Vec<&[bool]> = mask.as_slice().chunks(chunk).collect();
    let counts = par::map(parts.len(), chunk, Cost::MOVE, |i| count(parts[i]));
    Tensor::build(op, [width * counts.iter().sum::<usize>()].into(), |mut out| {
        let mut pieces = Vec::with_capacity(parts.len());
        for (i, &count) in counts.iter().enumerate() {
            let (piece, rest) = out.split_at_mut(width * count);
            pieces.push((i, piece));
            out = rest;
        }
        par::each(pieces, chunk, Cost::CHEAP, |(i, piece)| {
            let mut rest = piece;
            for (j, block) in parts[i].chunks(BLOCK).enumerate() {
                // Without a branch, which random masks would mispredict.
                let (mut found, mut n) = ([0u8; BLOCK], 0);
                for (k, &is_true) in block.iter().enumerate() {
                    found[n] = k as u8;
                    n += usize::from(is_true);
                }
                let (here, later) = rest.split_at_mut(width * n);
                for (&k, out) in found[..n].iter().zip(here.chunks_exact_mut(width.max(1))) {
                    write(i * chunk + j * BLOCK + usize::from(k), out);
                }
                rest = later;
            }
        });
    })
}

/// The number of true elements.
pub(super) fn count(part: &[bool]) -> usize {
    part.iter().map(|&is_true| usize::from(is_true)).sum()
}

/// Keeps the elements of each row before a column (or after it), and sets the others to 0.
#[track_caller]
fn triangle<T: Element>(
    op: &'static str,
    x: &Tensor<T>,
    cut: impl Fn(isize) -> isize + Send + Sync,
    keep_before: bool,
) -> Tensor<T> {
    assert(x.rank() >= 2, op, ErrorKind::Rank, || {
        format!("{:?} has rank {}, needs at least 2", x.shape(), x.rank())
    });
    let (rows, cols) = (x.size(-2), x.size(-1));
    let call = observe::begin();
    let x = x.contiguous();
    let data = x.as_slice();
    let out = Tensor::build(op, *x.shape(), |out| {
        if out.is_empty() {
            return;
        }
        let chunk = Cost::MOVE.units_per_chunk(cols) * cols;
        par::fill(out, chunk, Cost::MOVE, |first, out| {
            for (i, y) in out.chunks_exact_mut(cols).enumerate() {
                let at = first + i * cols;
                let cut = cut((at / cols % rows) as isize).clamp(0, cols as isize) as usize;
                y.copy_from_slice(&data[at..at + cols]);
                if keep_before { &mut y[cut..] } else { &mut y[..cut] }.fill(T::ZERO);
            }
        });
    });
    observe::end(call, || out.moved(op, "rows", x.distinct_bytes()));
    out
}

macro_rules! operator {
    ($trait:ident, $method:ident, $f:ident) => {
        operator!($trait, $method, $f, Tensor<bool>, Tensor<bool>);
        operator!($trait, $method, $f, Tensor<bool>, &Tensor<bool>);
        operator!($trait, $method, $f, &Tensor<bool>, Tensor<bool>);
        operator!($trait, $method, $f, &Tensor<bool>, &Tensor<bool>);
    };
    ($trait:ident, $method:ident, $f:ident, $a:ty, $b:ty) => {
        impl $trait<$b> for $a {
            type Output = Tensor<bool>;
            #[track_caller]
            fn $method(self, other: $b) -> Tensor<bool> {
                Tensor::$f(&self, &other)
            }
        }
    };
}

operator!(BitAnd, bitand, and);
operator!(BitOr, bitor, or);

impl Not for &Tensor<bool> {
    type Output = Tensor<bool>;
    fn not(self) -> Tensor<bool> {
        Tensor::not(self)
    }
}

impl Not for Tensor<bool> {
    type Output = Tensor<bool>;
    fn not(self) -> Tensor<bool> {
        Tensor::not(&self)
    }
}
