//! Comparison of tensors up to rounding errors.

use crate::element::Float;
use crate::error::{ErrorKind, OrPanic, Result, assert, require};
use crate::kernels::elementwise::zip_with;
use crate::kernels::integers::index_of;
use crate::ops::binary::TensorOrNumber;
use crate::tensor::Tensor;
use std::fmt;

/// The result of [`Tensor::close_to`] for tensors that are not close.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum NotClose {
    /// The shapes differ.
    Shapes {
        /// The shape of the tensor.
        actual: Vec<usize>,
        /// The shape of the expected one.
        expected: Vec<usize>,
    },
    /// Elements differ: the one whose difference is the largest multiple of what is allowed.
    Elements {
        /// The index of this element.
        index: Vec<usize>,
        /// Its value.
        actual: f64,
        /// The expected value.
        expected: f64,
        /// Their distance; NaN if one is NaN.
        difference: f64,
        /// The largest distance that is allowed, `atol + rtol · |expected|`.
        allowed: f64,
        /// How many elements are not close.
        mismatched: usize,
        /// The number of all elements.
        total: usize,
    },
}

impl fmt::Display for NotClose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotClose::Shapes { actual, expected } => {
                write!(f, "the shape is {actual:?}, expected {expected:?}")
            }
            NotClose::Elements {
                index,
                actual,
                expected,
                difference,
                allowed,
                mismatched,
                total,
            } => write!(
                f,
                "{mismatched} of {total} elements are not close; the worst, at {index:?}, is {actual:?}, \
                 expected {expected:?}: a difference of {difference:.3e}, where {allowed:.3e} is allowed"
            ),
        }
    }
}

impl std::error::Error for NotClose {}

/// The largest allowed distance from `expected`.
fn allowed(expected: f64, rtol: f64, atol: f64) -> f64 {
    atol + rtol * expected.abs()
}

/// Whether two numbers are equal, or finite and close.
fn is_close(actual: f64, expected: f64, rtol: f64, atol: f64) -> bool {
    let finite = actual.is_finite() && expected.is_finite();
    actual == expected || finite && (actual - expected).abs() <= allowed(expected, rtol, atol)
}

fn check_tolerances(op: &'static str, rtol: f64, atol: f64) -> Result<()> {
    require(rtol >= 0.0 && atol >= 0.0, op, ErrorKind::Value, || {
        format!("tolerances must not be negative, got rtol {rtol} and atol {atol}")
    })
}

/// # Comparisons up to rounding errors
///
/// A number `a` is close to an expected number `b` if `|a - b| ≤ atol + rtol · |b|`. NaN is close to
/// nothing, an infinity to itself only. PyTorch's defaults are `rtol` 1e-5 and `atol` 1e-8.
impl<T: Float> Tensor<T> {
    /// Whether each element is close to the element of another tensor, or to a number; broadcast.
    ///
    /// # Panics
    /// If the shapes do not broadcast, or a tolerance is negative or NaN.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([1.0f32, 1.001, f32::NAN]);
    /// assert_eq!(x.isclose(1.0, 1e-5, 0.0).to_vec(), [true, false, false]);
    /// ```
    #[track_caller]
    pub fn isclose(&self, other: impl TensorOrNumber<T>, rtol: f64, atol: f64) -> Tensor<bool> {
        check_tolerances("isclose", rtol, atol).or_panic();
        zip_with("isclose", self, &other.into_tensor(), |a, b| {
            is_close(a.to_f64(), b.to_f64(), rtol, atol)
        })
    }

    /// Whether all elements are close to the elements of another tensor, or to a number; broadcast. The result of
    /// [`Tensor::close_to`] names the worst element.
    ///
    /// # Panics
    /// If the shapes do not broadcast, or a tolerance is negative or NaN.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([1.0f32, 1.001]);
    /// assert!(x.allclose(1.0, 0.0, 0.01) && !x.allclose(1.0, 0.0, 1e-4));
    /// ```
    #[track_caller]
    pub fn allclose(&self, other: impl TensorOrNumber<T>, rtol: f64, atol: f64) -> bool {
        check_tolerances("allclose", rtol, atol).or_panic();
        let close = zip_with("allclose", self, &other.into_tensor(), |a, b| {
            is_close(a.to_f64(), b.to_f64(), rtol, atol)
        });
        close.count_true() == close.numel()
    }

    /// `Ok` if the shape equals the shape of `expected` and all elements are close; else an error that names the
    /// worst element: that whose difference is the largest multiple of what is allowed, and the first of
    /// these.
    ///
    /// # Panics
    /// If a tolerance is negative or NaN.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (x, y) = (Tensor::from([[1.0f32, 2.0], [3.0, 4.5]]), Tensor::from([[1.0, 2.5], [3.0, 4.0]]));
    /// assert_eq!(
    ///     x.close_to(&y, 0.1, 0.0).unwrap_err().to_string(),
    ///     "2 of 4 elements are not close; the worst, at [0, 1], is 2.0, expected 2.5: a difference of \
    ///      5.000e-1, where 2.500e-1 is allowed"
    /// );
    /// ```
    #[track_caller]
    pub fn close_to(&self, expected: &Tensor<T>, rtol: f64, atol: f64) -> Result<(), NotClose> {
        check_tolerances("close_to", rtol, atol).or_panic();
        if self.shape() != expected.shape() {
            let (actual, expected) = (self.shape().to_vec(), expected.shape().to_vec());
            return Err(NotClose::Shapes { actual, expected });
        }
        let (a, b) = (self.contiguous(), expected.contiguous());
        let mut worst: Option<(f64, usize)> = None;
        let mut mismatched = 0;
        for (i, (a, b)) in a.as_slice().iter().zip(b.as_slice()).enumerate() {
            let (a, b) = (a.to_f64(), b.to_f64());
            if is_close(a, b, rtol, atol) {
                continue;
            }
            mismatched += 1;
            let share = (a - b).abs() / allowed(b, rtol, atol);
            // NaN, and infinities that are not equal, are as far apart as can be.
            let share = if a.is_finite() && b.is_finite() { share } else { f64::INFINITY };
            if worst.is_none_or(|(most, _)| share > most) {
                worst = Some((share, i));
            }
        }
        let Some((_, at)) = worst else { return Ok(()) };
        let (actual, expected) = (a.as_slice()[at].to_f64(), b.as_slice()[at].to_f64());
        Err(NotClose::Elements {
            index: index_of(at, self.shape()),
            actual,
            expected,
            difference: (actual - expected).abs(),
            allowed: allowed(expected, rtol, atol),
            mismatched,
            total: self.numel(),
        })
    }

    /// Panics with the message of [`Tensor::close_to`] unless all elements are close: for tests.
    ///
    /// # Panics
    /// If they are not, or a tolerance is negative or NaN.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([0.1f64, 0.2]);
    /// (&x + &x).assert_close(&(x * 2.0), 1e-12, 0.0);
    /// ```
    #[track_caller]
    pub fn assert_close(&self, expected: &Tensor<T>, rtol: f64, atol: f64) {
        if let Err(error) = self.close_to(expected, rtol, atol) {
            panic!("assert_close: {error}");
        }
    }

    /// The largest distance of two elements, counted in floating-point numbers of this type (units in the
    /// last place): 0 for equal numbers, zeros of either sign included, and 1 for neighbours. NaN has the
    /// distance 0 to NaN and [`u64::MAX`] to all else. Of no elements it is 0.
    ///
    /// # Panics
    /// If the shapes differ.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (x, y) = (Tensor::from([0.3f64, -0.0]), Tensor::from([0.1 + 0.2, 0.0]));
    /// assert_eq!(x.max_ulp_distance(&y), 1);
    /// ```
    #[track_caller]
    pub fn max_ulp_distance(&self, other: &Tensor<T>) -> u64 {
        assert(self.shape() == other.shape(), "max_ulp_distance", ErrorKind::Mismatch, || {
            format!("shapes {:?} and {:?} differ", self.shape(), other.shape())
        });
        let (a, b) = (self.contiguous(), other.contiguous());
        let distance = |(a, b): (&T, &T)| match (a.is_nan(), b.is_nan()) {
            (true, true) => 0,
            (false, false) => a.ordinal().abs_diff(b.ordinal()),
            _ => u64::MAX,
        };
        a.as_slice().iter().zip(b.as_slice()).map(distance).max().unwrap_or(0)
    }
}
