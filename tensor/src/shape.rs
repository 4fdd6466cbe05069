//! Shapes: the sizes of axes, and the rules that combine them.

use crate::error::{ErrorKind, OrPanic, Result, ShapeError, require};
use std::fmt;
use std::ops::{Deref, RangeFull};

/// The largest number of axes a tensor may have.
pub const MAX_RANK: usize = 8;

/// A size that [`reshape`](crate::Tensor::reshape) infers from the number of elements, like `-1` in
/// NumPy and PyTorch.
pub const INFER: usize = usize::MAX;

/// The sizes of a tensor's axes, outermost first.
///
/// Invariant: the product of the non-zero sizes fits `isize`, whatever the order of the axes
/// and whether or not one of them is zero, so no later product of sizes can overflow.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [usize; MAX_RANK],
    rank: u8,
}

impl Shape {
    /// The shape of a single number: no axes.
    pub const SCALAR: Shape = Shape { dims: [0; MAX_RANK], rank: 0 };

    /// A shape; an error if there are too many axes or elements.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// assert_eq!(Shape::try_new(&[2, 3]).unwrap().numel(), 6);
    /// assert!(Shape::try_new(&[1; 20]).is_err()); // too many axes
    /// ```
    pub fn try_new(dims: &[usize]) -> Result<Shape> {
        Shape::checked("tensor", dims)
    }

    /// [`Shape::try_new`], with the name of an operation for errors.
    pub fn checked(op: &'static str, dims: &[usize]) -> Result<Shape> {
        require(dims.len() <= MAX_RANK, op, ErrorKind::RankTooLarge, || {
            format!("{dims:?} has {} axes, the most is {MAX_RANK}", dims.len())
        })?;
        let product = dims
            .iter()
            .filter(|&&d| d != 0)
            .try_fold(1usize, |n, &d| n.checked_mul(d))
            .filter(|&n| n <= isize::MAX as usize);
        require(product.is_some(), op, ErrorKind::Overflow, || {
            format!("shape {dims:?} has more than {} elements", isize::MAX)
        })?;
        let mut shape = Shape { dims: [0; MAX_RANK], rank: dims.len() as u8 };
        shape.dims[..dims.len()].copy_from_slice(dims);
        Ok(shape)
    }

    /// The number of axes.
    #[inline]
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// The number of elements; 1 for a scalar.
    #[inline]
    pub fn numel(&self) -> usize {
        self.iter().product()
    }

    /// Resolves an axis: `-1` is the last one.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let shape = Shape::from([2, 3]);
    /// assert_eq!(shape.axis("sum", -1), Ok(1));
    /// assert!(shape.axis("sum", 2).is_err());
    /// ```
    #[inline]
    pub fn axis(&self, op: &'static str, axis: isize) -> Result<usize> {
        let rank = self.rank() as isize;
        let resolved = if axis < 0 { axis + rank } else { axis };
        if (0..rank).contains(&resolved) {
            Ok(resolved as usize)
        } else {
            Err(ShapeError::new(
                op,
                ErrorKind::Axis,
                format!("axis {axis} is out of range for {self:?}, which has rank {rank}"),
            ))
        }
    }

    /// The shape with another size of one axis.
    pub fn with(&self, axis: usize, size: usize) -> Result<Shape> {
        let mut dims = self.dims;
        dims[axis] = size;
        Shape::try_new(&dims[..self.rank()])
    }

    /// The shape without an axis.
    pub fn without(&self, axis: usize) -> Shape {
        let mut out = Shape { dims: [0; MAX_RANK], rank: self.rank - 1 };
        for (to, from) in (0..self.rank()).filter(|&i| i != axis).enumerate() {
            out.dims[to] = self.dims[from];
        }
        out
    }

    /// The shape after a reduction over `axes`, which get size 1 if `keep`, else are removed.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// use retrograd::tensor::AxisSet;
    /// let (shape, axes) = (Shape::from([2, 3]), AxisSet::all(0).insert(0));
    /// assert_eq!(shape.reduced(axes, true), [1, 3]);
    /// assert_eq!(shape.reduced(axes, false), [3]);
    /// ```
    pub fn reduced(&self, axes: AxisSet, keep: bool) -> Shape {
        let mut out = Shape::SCALAR;
        for (i, &d) in self.iter().enumerate() {
            if keep || !axes.contains(i) {
                out.dims[out.rank as usize] = if axes.contains(i) { 1 } else { d };
                out.rank += 1;
            }
        }
        out
    }

    /// Whether a tensor of this shape can be broadcast to another shape.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// assert!(Shape::from([3, 1]).broadcasts_to(&Shape::from([2, 3, 4])));
    /// assert!(!Shape::from([2, 3, 4]).broadcasts_to(&Shape::from([3, 4])));
    /// ```
    pub fn broadcasts_to(&self, shape: &Shape) -> bool {
        let mut sizes = self.iter().rev().zip(shape.iter().rev());
        self.rank() <= shape.rank() && sizes.all(|(&a, &b)| a == b || a == 1)
    }

    /// Broadcasts two shapes by NumPy's rules: they are aligned at the last axis, and sizes must be
    /// equal or one of them 1.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (a, b) = (Shape::from([5, 1, 3]), Shape::from([4, 1]));
    /// assert_eq!(Shape::broadcast("add", &a, &b).unwrap(), [5, 4, 3]);
    /// ```
    pub fn broadcast(op: &'static str, a: &Shape, b: &Shape) -> Result<Shape> {
        let rank = a.rank().max(b.rank());
        let mut dims = [0; MAX_RANK];
        for i in 0..rank {
            let size = |s: &Shape| (i + s.rank()).checked_sub(rank).map_or(1, |j| s[j]);
            dims[i] = match (size(a), size(b)) {
                (x, y) if x == y => x,
                (1, y) => y,
                (x, 1) => x,
                (x, y) => {
                    let axis = i as isize - rank as isize;
                    let text =
                        format!("cannot broadcast {a:?} with {b:?}: axis {axis} is {x} and {y}");
                    return Err(ShapeError::new(op, ErrorKind::Broadcast, text));
                }
            };
        }
        Shape::checked(op, &dims[..rank])
    }

    /// Resolves [`INFER`] in `dims` for the elements of `from`, and checks their number.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// assert_eq!(Shape::infer("reshape", &Shape::from([4, 6]), &[3, INFER]).unwrap(), [3, 8]);
    /// ```
    pub fn infer(op: &'static str, from: &Shape, dims: &[usize]) -> Result<Shape> {
        let fail = |why: String| Err(ShapeError::new(op, ErrorKind::Reshape, why));
        let shown = || {
            let d: Vec<String> =
                dims.iter().map(|&d| if d == INFER { "_".into() } else { d.to_string() }).collect();
            format!("[{}]", d.join(", "))
        };
        let holes = dims.iter().filter(|&&d| d == INFER).count();
        if holes > 1 {
            return fail(format!("only one axis of {} can be inferred", shown()));
        }
        let mut resolved: Vec<usize> = dims.to_vec();
        if let Some(hole) = dims.iter().position(|&d| d == INFER) {
            resolved[hole] = 1;
            let known = Shape::checked(op, &resolved)?.numel();
            if known == 0 {
                return fail(format!("the inferred axis of {} could have any size", shown()));
            }
            if !from.numel().is_multiple_of(known) {
                return fail(format!(
                    "{from:?} has {} elements, which {} does not divide for {}",
                    from.numel(),
                    known,
                    shown()
                ));
            }
            resolved[hole] = from.numel() / known;
        }
        let shape = Shape::checked(op, &resolved)?;
        if shape.numel() != from.numel() {
            return fail(format!(
                "{from:?} has {} elements and {shape:?} has {}",
                from.numel(),
                shape.numel()
            ));
        }
        Ok(shape)
    }
}

impl Deref for Shape {
    type Target = [usize];
    #[inline]
    fn deref(&self) -> &[usize] {
        &self.dims[..self.rank()]
    }
}

impl AsRef<[usize]> for Shape {
    fn as_ref(&self) -> &[usize] {
        self
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self[..])
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl PartialEq<[usize]> for Shape {
    fn eq(&self, other: &[usize]) -> bool {
        self[..] == *other
    }
}

impl<const N: usize> PartialEq<[usize; N]> for Shape {
    fn eq(&self, other: &[usize; N]) -> bool {
        self[..] == other[..]
    }
}

impl From<&[usize]> for Shape {
    #[track_caller]
    fn from(dims: &[usize]) -> Shape {
        Shape::try_new(dims).or_panic()
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    #[track_caller]
    fn from(dims: [usize; N]) -> Shape {
        Shape::try_new(&dims).or_panic()
    }
}

impl From<&Shape> for Shape {
    #[inline]
    fn from(shape: &Shape) -> Shape {
        *shape
    }
}

impl From<Vec<usize>> for Shape {
    #[track_caller]
    fn from(dims: Vec<usize>) -> Shape {
        Shape::try_new(&dims).or_panic()
    }
}

/// A set of axes of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisSet(u8);

impl AxisSet {
    /// No axis.
    pub const EMPTY: AxisSet = AxisSet(0);

    /// The first `rank` axes.
    pub fn all(rank: usize) -> AxisSet {
        AxisSet(((1u16 << rank) - 1) as u8)
    }

    /// The set with another axis.
    pub fn insert(self, axis: usize) -> AxisSet {
        AxisSet(self.0 | 1 << axis)
    }

    /// Whether the set contains `axis`.
    pub fn contains(self, axis: usize) -> bool {
        self.0 >> axis & 1 == 1
    }

    /// The number of axes in the set.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The permutation of the axes of a tensor of this rank that moves the axes of the set to the end.
    ///
    /// ```
    /// use retrograd::tensor::AxisSet;
    /// assert_eq!(AxisSet::all(0).insert(0).moved_last(3), [1, 2, 0]);
    /// ```
    pub fn moved_last(self, rank: usize) -> Vec<isize> {
        let kept = (0..rank).filter(|&i| !self.contains(i));
        kept.chain(self.iter()).map(|i| i as isize).collect()
    }

    /// The axes, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_RANK).filter(move |&i| self.contains(i))
    }
}

/// The inverse of a permutation of axes.
///
/// ```
/// use retrograd::tensor::shape::inverse_order;
/// assert_eq!(inverse_order(&[2, 0, 1]), [1, 2, 0]);
/// ```
pub fn inverse_order(order: &[isize]) -> Vec<isize> {
    let mut back = vec![0; order.len()];
    for (to, &from) in order.iter().enumerate() {
        back[from as usize] = to as isize;
    }
    back
}

/// Arguments that denote a shape: whatever [`Shape`] can be made from, such as `[2, 3]`.
///
/// ```
/// use retrograd::prelude::*;
/// use retrograd::tensor::IntoShape;
///
/// fn numel(shape: impl IntoShape) -> usize {
///     shape.into().numel()
/// }
///
/// assert_eq!((numel([2, 3]), numel(vec![4, 5]), numel(&Shape::from([]))), (6, 20, 1));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no shape",
    label = "not an array, a slice or a `Vec` of `usize`",
    note = "a shape is one array of sizes: `Tensor::<f32>::zeros([2, 3])`; that of a scalar is `[]`",
    note = "sizes are `usize`: `n as usize` converts an integer"
)]
pub trait IntoShape: Into<Shape> {}

#[diagnostic::do_not_recommend]
impl<S: Into<Shape>> IntoShape for S {}

/// Arguments that denote axes: `-1`, `[0, 2]`, or `..` for all.
#[diagnostic::on_unimplemented(
    message = "`{Self}` denotes no axes",
    label = "not an `isize`, an array of `isize`, or `..`",
    note = "`0` is the first axis, `-1` the last, `[0, 2]` are two, and `..` is all of them",
    note = "axes are `isize`: `axis as isize` converts a `usize`"
)]
pub trait Axes: Copy {
    /// The axes of a tensor of this shape; an axis that is given twice is an error.
    fn resolve(&self, op: &'static str, shape: &Shape) -> Result<AxisSet>;
}

impl Axes for &[isize] {
    fn resolve(&self, op: &'static str, shape: &Shape) -> Result<AxisSet> {
        self.iter().try_fold(AxisSet::EMPTY, |set, &axis| {
            let i = shape.axis(op, axis)?;
            require(!set.contains(i), op, ErrorKind::Axis, || {
                format!("axis {axis} of {shape:?} is named twice in {self:?}")
            })?;
            Ok(set.insert(i))
        })
    }
}

impl<const N: usize> Axes for [isize; N] {
    fn resolve(&self, op: &'static str, shape: &Shape) -> Result<AxisSet> {
        (&self[..]).resolve(op, shape)
    }
}

impl Axes for isize {
    fn resolve(&self, op: &'static str, shape: &Shape) -> Result<AxisSet> {
        Ok(AxisSet::EMPTY.insert(shape.axis(op, *self)?))
    }
}

impl Axes for RangeFull {
    fn resolve(&self, _: &'static str, shape: &Shape) -> Result<AxisSet> {
        Ok(AxisSet::all(shape.rank()))
    }
}

impl Axes for AxisSet {
    fn resolve(&self, op: &'static str, shape: &Shape) -> Result<AxisSet> {
        for axis in self.iter() {
            shape.axis(op, axis as isize)?;
        }
        Ok(*self)
    }
}
