//! What can be wrong with shapes, in one message format.
//!
//! The rules about shapes are pure functions returning `Result<_, ShapeError>`. Methods on
//! tensors are for model code, where a wrong shape is a mistake in the program: they panic at
//! the caller's line with the same text.

use std::fmt;

/// Which rule was broken; stable, for matching. The text is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The number of elements or bytes does not fit the address space.
    Overflow,
    /// The allocator has no memory of that size.
    OutOfMemory,
    /// More than [`MAX_RANK`](crate::shape::MAX_RANK) axes.
    RankTooLarge,
    /// The tensor has too few or too many axes for this operation.
    Rank,
    /// An axis that the tensor does not have, or named twice.
    Axis,
    /// Shapes that do not broadcast together, or to the target.
    Broadcast,
    /// Sizes that must agree and do not.
    Mismatch,
    /// A reshape to another number of elements.
    Reshape,
    /// The data is longer or shorter than the shape says.
    Length,
    /// Strides that an operation cannot use, or that exceed the storage.
    Layout,
    /// An index or slice outside the axis.
    Index,
    /// A reduction that has no value over nothing (`max`, `argmax`).
    Empty,
    /// A number outside its domain (a probability, a step of zero).
    Value,
}

/// A broken shape rule: the operation, what is wrong with which numbers, and a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeError {
    /// The operation as the caller knows it, e.g. `matmul`.
    pub op: &'static str,
    /// The rule.
    pub kind: ErrorKind,
    /// What is wrong, with the numbers.
    pub detail: String,
    /// What to do about it, if there is something useful to say.
    pub hint: Option<&'static str>,
}

impl ShapeError {
    /// An error without a hint.
    pub fn new(op: &'static str, kind: ErrorKind, detail: impl Into<String>) -> Self {
        ShapeError { op, kind, detail: detail.into(), hint: None }
    }

    /// The same with a hint.
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

/// `Ok` if the condition holds, else the error: one line of a shape rule.
///
/// ```
/// use retrograd_tensor::error::{ErrorKind, ShapeError, require};
///
/// fn dot_rule(a: &[usize], b: &[usize]) -> Result<(), ShapeError> {
///     require(a == b, "dot", ErrorKind::Mismatch, || format!("{a:?} and {b:?} differ"))
/// }
/// assert!(dot_rule(&[3], &[3]).is_ok());
/// assert_eq!(dot_rule(&[3], &[4]).unwrap_err().to_string(), "dot: [3] and [4] differ");
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

/// Turns a broken rule into a panic at the caller's line.
pub trait OrPanic<T> {
    /// The value, or a panic with the error's text.
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
