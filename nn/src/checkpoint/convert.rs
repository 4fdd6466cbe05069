//! Conversions between the element types of tensors.

use super::any_tensor::{AnyTensor, Storable};
use retrograd_tensor::{DType, Element, Float, Integer, Tensor};
use std::fmt;

/// The reason why a tensor cannot be converted to another element type.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConvertError {
    /// Elements of this type are not converted to the other.
    Type(DType, DType),
    /// The type has no such value.
    Element {
        /// The indices of the first such element.
        index: Vec<usize>,
        /// The element.
        value: String,
        /// The type.
        to: DType,
    },
    /// There is no memory for so many bytes.
    OutOfMemory(usize),
}

impl fmt::Display for ConvertError {
    /// A clause about the tensor.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConvertError::Type(from, DType::I64) => write!(f, "it is {from}, not of integers"),
            ConvertError::Type(from, _) => write!(f, "it is {from}"),
            ConvertError::Element { index, value, to } => {
                write!(f, "its element {value} at {index:?} has no value in {to}")
            }
            ConvertError::OutOfMemory(bytes) => write!(f, "no memory for {bytes} bytes"),
        }
    }
}

impl std::error::Error for ConvertError {}

impl AnyTensor {
    /// The elements as floats of this type: other floats rounded to the nearest, integers and
    /// booleans (0 and 1) if all of them can be represented exactly.
    ///
    /// # Errors
    /// If a finite float is too large for the type, an integer would be rounded, or there is no
    /// memory.
    ///
    /// ```
    /// use retrograd::nn::checkpoint::AnyTensor;
    /// use retrograd::prelude::*;
    ///
    /// let pixels = AnyTensor::from(Tensor::from([0i64, 128, 255]));
    /// assert_eq!(pixels.to_float::<f32>().unwrap().to_vec(), [0.0, 128.0, 255.0]);
    /// let large = AnyTensor::from(Tensor::from([1i64, (1 << 24) + 1]));
    /// assert_eq!(
    ///     large.to_float::<f32>().unwrap_err().to_string(),
    ///     "its element 16777217 at [1] has no value in f32"
    /// );
    /// ```
    pub fn to_float<T: Storable>(&self) -> Result<Tensor<T>, ConvertError> {
        match self {
            AnyTensor::F32(_) | AnyTensor::F64(_) => self.as_float(),
            AnyTensor::I64(t) => convert(t, exact),
            AnyTensor::U32(t) => convert(t, exact),
            AnyTensor::Bool(t) => convert(t, |x| Some(if x { T::ONE } else { T::ZERO })),
        }
    }

    /// [`AnyTensor::to_float`] of floats only.
    pub(crate) fn as_float<T: Storable>(&self) -> Result<Tensor<T>, ConvertError> {
        match (T::unwrap(self), self) {
            (Some(same), _) => Ok(same),
            (None, AnyTensor::F32(t)) => convert(t, rounded),
            (None, AnyTensor::F64(t)) => convert(t, rounded),
            (None, other) => Err(ConvertError::Type(other.dtype(), T::DTYPE)),
        }
    }

    /// The elements as signed integers: integers, and booleans as 0 and 1.
    ///
    /// # Errors
    /// If the elements are floats, or there is no memory.
    pub fn to_i64(&self) -> Result<Tensor<i64>, ConvertError> {
        match self {
            AnyTensor::I64(t) => Ok(t.clone()),
            AnyTensor::U32(t) => convert(t, |x| Some(x.into())),
            AnyTensor::Bool(t) => convert(t, |x| Some(x.into())),
            AnyTensor::F32(_) | AnyTensor::F64(_) => {
                Err(ConvertError::Type(self.dtype(), DType::I64))
            }
        }
    }
}

/// The nearest value, unless a finite one would become infinite.
fn rounded<S: Float, T: Float>(x: S) -> Option<T> {
    let (x, y) = (x.to_f64(), T::from_f64(x.to_f64()));
    (y.to_f64().is_finite() || !x.is_finite()).then_some(y)
}

/// The same value, if there is one.
fn exact<S: Integer, T: Float>(x: S) -> Option<T> {
    // Integers of these types are below 2^64, where f32 and f64 have no infinities.
    let y = T::from_f64(x.to_i128() as f64);
    (y.to_f64() as i128 == x.to_i128()).then_some(y)
}

/// The image of every element, unless there is none.
fn convert<S: Element, T: Element>(
    tensor: &Tensor<S>,
    image: impl Fn(S) -> Option<T>,
) -> Result<Tensor<T>, ConvertError> {
    let shape = tensor.shape();
    let mut out = Tensor::try_full(shape, T::ZERO)
        .map_err(|_| ConvertError::OutOfMemory(shape.numel() * size_of::<T>()))?;
    let tensor = tensor.contiguous();
    for (i, (y, &x)) in out.make_mut().iter_mut().zip(tensor.as_slice()).enumerate() {
        *y = image(x).ok_or_else(|| {
            let mut rest = i;
            let mut index: Vec<usize> =
                shape.iter().rev().map(|&n| (rest % n, rest /= n).0).collect();
            index.reverse();
            ConvertError::Element { index, value: format!("{x:?}"), to: T::DTYPE }
        })?;
    }
    Ok(out)
}
