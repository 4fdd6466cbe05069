//! Errors of shapes and arguments, in one message format.
//!
//! The rules about shapes are pure functions that return `Result<_, ShapeError>`. Methods of
//! tensors panic at the caller's line with the same message, since an invalid shape is a
//! programming error.

use std::fmt;

/// The kind of error, for matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The number of elements or bytes exceeds the address space.
    Overflow,
    /// The allocator cannot provide the memory.
    OutOfMemory,
    /// More than [`MAX_RANK`](crate::shape::MAX_RANK) axes.
    RankTooLarge,
    /// The tensor has too few or too many axes for the operation.
    Rank,
    /// An axis that the tensor does not have, or that is given twice.
    Axis,
    /// Shapes that do not broadcast to a common shape, or to the target.
    Broadcast,
    /// Sizes that do not agree.
    Mismatch,
    /// A reshape to another number of elements.
    Reshape,
    /// A number of elements that does not fit the shape.
    Length,
    /// Strides that an operation cannot use, or that exceed the storage.
    Layout,
    /// An index or range outside the axis.
    Index,
    /// A reduction without a neutral element (`max`, `argmax`) over no elements.
    Empty,
    /// A value outside its domain (a probability, a step of 0).
    Value,
}

/// An invalid shape or argument: the operation, the kind of error, its details, and a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeError {
    /// The operation, e.g. `matmul`.
    pub op: &'static str,
    /// The kind of error.
    pub kind: ErrorKind,
    /// The error in words, with the shapes and values.
    pub detail: String,
    /// How to correct the error, where a hint helps.
    pub hint: Option<&'static str>,
}

impl ShapeError {
    /// An error without a hint.
    pub fn new(op: &'static str, kind: ErrorKind, detail: impl Into<String>) -> Self {
        ShapeError { op, kind, detail: detail.into(), hint: None }
    }

    /// The error with a hint.
    ///
    /// ```
    /// use retrograd::tensor::{ErrorKind, ShapeError};
    /// let error = ShapeError::new("dot", ErrorKind::Rank, "needs vectors").hint("flatten first");
    /// assert_eq!(error.to_string(), "dot: needs vectors (hint: flatten first)");
    /// ```
    pub fn hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.op, self.detail)?;
        if let Some(hint) = self.hint {
            write!(f, " (hint: {hint})")?;
        }
        Ok(())
    }
}

impl std::error::Error for ShapeError {}

/// The result of a shape rule.
pub type Result<T, E = ShapeError> = std::result::Result<T, E>;

/// Returns `Ok` if the condition holds, else the error: one line of a shape rule.
///
/// ```
/// use retrograd::tensor::error::{ErrorKind, ShapeError, require};
///
/// fn check_dot(a: &[usize], b: &[usize]) -> Result<(), ShapeError> {
///     require(a == b, "dot", ErrorKind::Mismatch, || format!("{a:?} and {b:?} differ"))
/// }
/// assert!(check_dot(&[3], &[3]).is_ok());
/// assert_eq!(check_dot(&[3], &[4]).unwrap_err().to_string(), "dot: [3] and [4] differ");
/// ```
#[inline]
pub fn require(
    condition: bool,
    op: &'static str,
    kind: ErrorKind,
    detail: impl FnOnce() -> String,
) -> Result<()> {
    if condition { Ok(()) } else { Err(ShapeError::new(op, kind, detail())) }
}

/// [`require`] with a panic at the caller's line in place of the error.
///
/// ```
/// use retrograd::tensor::error::{ErrorKind, assert};
///
/// fn first(n: usize) -> Vec<i32> {
///     assert(n <= 3, "first", ErrorKind::Index, || format!("{n} of 3 elements"));
///     [1, 2, 3][..n].to_vec()
/// }
/// assert_eq!(first(2), [1, 2]);
/// assert!(std::panic::catch_unwind(|| first(4)).is_err());
/// ```
#[inline]
#[track_caller]
pub fn assert(condition: bool, op: &'static str, kind: ErrorKind, detail: impl FnOnce() -> String) {
    require(condition, op, kind, detail).or_panic();
}

/// Conversion of an error to a panic at the caller's line.
pub trait OrPanic<T> {
    /// The value; panics with the message of the error.
    #[track_caller]
    fn or_panic(self) -> T;
}

impl<T> OrPanic<T> for Result<T> {
    #[track_caller]
    fn or_panic(self) -> T {
        match self {
            Ok(value) => value,
            Err(error) => panic!("{error}"),
        }
    }
}
