//! Tensors of any element type, and their elements as bytes.

use super::stored::{Stored, bf16, f16, to_bf16, to_f16};
use retrograd_tensor::{DType, Element, Real, Shape, ShapeError, Tensor};
use std::io;

/// Size in bytes of the buffer on the stack in which elements are converted, so that saving and
/// loading allocate no memory besides the tensors.
const PIECE: usize = 1 << 15;

/// A tensor of any element type.
///
/// Elements of other types of a file are converted when they are read, without a change of value:
/// 16-bit floats (`F16`, `BF16`) to `f32`, and integers of 8 and 16 bits, signed ones of 32 and
/// unsigned ones of 64 bits to `i64`. [`AnyTensor::to_float`] and [`AnyTensor::to_i64`] convert
/// further.
#[derive(Clone, Debug)]
pub enum AnyTensor {
    /// 32-bit floats.
    F32(Tensor<f32>),
    /// 64-bit floats.
    F64(Tensor<f64>),
    /// 64-bit signed integers.
    I64(Tensor<i64>),
    /// 32-bit unsigned integers.
    U32(Tensor<u32>),
    /// Booleans.
    Bool(Tensor<bool>),
}

impl AnyTensor {
    /// The element type.
    pub fn dtype(&self) -> DType {
        match self {
            AnyTensor::F32(_) => DType::F32,
            AnyTensor::F64(_) => DType::F64,
            AnyTensor::I64(_) => DType::I64,
            AnyTensor::U32(_) => DType::U32,
            AnyTensor::Bool(_) => DType::Bool,
        }
    }

    /// The sizes of the axes.
    pub fn shape(&self) -> &Shape {
        match self {
            AnyTensor::F32(t) => t.shape(),
            AnyTensor::F64(t) => t.shape(),
            AnyTensor::I64(t) => t.shape(),
            AnyTensor::U32(t) => t.shape(),
            AnyTensor::Bool(t) => t.shape(),
        }
    }

    /// Passes the elements in row-major order to `sink`, as little-endian bytes, in pieces. Those of `f32` are
    /// rounded to the type `floats`.
    pub(super) fn write(
        &self,
        floats: Stored,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut pieces = Pieces { buffer: [0; PIECE], len: 0, sink };
        match self {
            AnyTensor::F32(t) => match floats {
                Stored::F16 => pieces.tensor(t, |x| to_f16(x).to_le_bytes()),
                Stored::Bf16 => pieces.tensor(t, |x| to_bf16(x).to_le_bytes()),
                _ => pieces.tensor(t, f32::to_le_bytes),
            },
            AnyTensor::F64(t) => pieces.tensor(t, f64::to_le_bytes),
            AnyTensor::I64(t) => pieces.tensor(t, i64::to_le_bytes),
            AnyTensor::U32(t) => pieces.tensor(t, u32::to_le_bytes),
            AnyTensor::Bool(t) => pieces.tensor(t, |b| [b as u8]),
        }?;
        pieces.flush()
    }

    /// The inverse of [`AnyTensor::write`], for every element type of a file; `source` fills each
    /// piece. If elements do not fit, `source` is called for the others all the same.
    pub(super) fn read(
        stored: Stored,
        shape: &[usize],
        source: &mut dyn FnMut(&mut [u8]) -> io::Result<()>,
    ) -> Result<AnyTensor, ReadError> {
        /// Elements that are integers of a narrower type.
        macro_rules! narrow {
            ($t:ty) => {
                AnyTensor::I64(read(shape, |b| i64::from(<$t>::from_le_bytes(b)), source)?)
            };
        }
        Ok(match stored {
            Stored::F16 => AnyTensor::F32(read(shape, |b| f16(u16::from_le_bytes(b)), source)?),
            Stored::Bf16 => AnyTensor::F32(read(shape, |b| bf16(u16::from_le_bytes(b)), source)?),
            Stored::F32 => AnyTensor::F32(read(shape, f32::from_le_bytes, source)?),
            Stored::F64 => AnyTensor::F64(read(shape, f64::from_le_bytes, source)?),
            Stored::I8 => narrow!(i8),
            Stored::U8 => narrow!(u8),
            Stored::I16 => narrow!(i16),
            Stored::U16 => narrow!(u16),
            Stored::I32 => narrow!(i32),
            Stored::U32 => AnyTensor::U32(read(shape, u32::from_le_bytes, source)?),
            Stored::I64 => AnyTensor::I64(read(shape, i64::from_le_bytes, source)?),
            Stored::U64 => {
                let mut too_large = None;
                let tensor = read(
                    shape,
                    |b| {
                        let x = u64::from_le_bytes(b);
                        x.try_into().unwrap_or_else(|_| *too_large.get_or_insert(x) as i64)
                    },
                    source,
                )?;
                match too_large {
                    None => AnyTensor::I64(tensor),
                    Some(x) => return Err(ReadError::Range(x)),
                }
            }
            Stored::Bool => AnyTensor::Bool(read(shape, |[b]: [u8; 1]| b != 0, source)?),
        })
    }
}

/// An error of reading a tensor.
pub(super) enum ReadError {
    /// The file could not be read.
    Io(io::Error),
    /// The tensor cannot be allocated.
    Shape(ShapeError),
    /// An element does not fit the type of the tensor.
    Range(u64),
}

fn read<T: Element, const N: usize>(
    shape: &[usize],
    mut from: impl FnMut([u8; N]) -> T,
    source: &mut dyn FnMut(&mut [u8]) -> io::Result<()>,
) -> Result<Tensor<T>, ReadError> {
    let mut tensor = Tensor::try_full(shape, T::ZERO).map_err(ReadError::Shape)?;
    let mut buffer = [0; PIECE];
    for part in tensor.make_mut().chunks_mut(PIECE / N) {
        let bytes = &mut buffer[..part.len() * N];
        source(bytes).map_err(ReadError::Io)?;
        for (x, &bytes) in part.iter_mut().zip(bytes.as_chunks().0) {
            *x = from(bytes);
        }
    }
    Ok(tensor)
}

/// A buffer of bytes, passed to `sink` when it is full.
struct Pieces<'a> {
    buffer: [u8; PIECE],
    len: usize,
    sink: &'a mut dyn FnMut(&[u8]) -> io::Result<()>,
}

impl Pieces<'_> {
    /// Writes a tensor; a non-contiguous one row by row, because a contiguous copy might not fit in
    /// memory.
    fn tensor<T: Element, const N: usize>(
        &mut self,
        t: &Tensor<T>,
        to: impl Fn(T) -> [u8; N] + Copy,
    ) -> io::Result<()> {
        if t.is_contiguous() {
            return self.elements(t.as_slice(), to);
        }
        for i in 0..t.size(0) {
            match t.rank() {
                1 => self.elements(&[t.at(&[i])], to)?,
                _ => self.tensor(&t.select(0, i), to)?,
            }
        }
        Ok(())
    }

    fn elements<T: Element, const N: usize>(
        &mut self,
        mut elements: &[T],
        to: impl Fn(T) -> [u8; N],
    ) -> io::Result<()> {
        while !elements.is_empty() {
            if PIECE - self.len < N {
                self.flush()?;
            }
            let free = self.buffer[self.len..].as_chunks_mut::<N>().0;
            let (now, later) = elements.split_at(elements.len().min(free.len()));
            for (bytes, &x) in free.iter_mut().zip(now) {
                *bytes = to(x);
            }
            self.len += now.len() * N;
            elements = later;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let len = std::mem::take(&mut self.len);
        (self.sink)(&self.buffer[..len])
    }
}

/// A real element type, stored as itself.
pub trait Storable: Real {
    /// Wraps a tensor of this type.
    fn wrap(tensor: Tensor<Self>) -> AnyTensor;
    /// The tensor, if it is of this type.
    fn unwrap(tensor: &AnyTensor) -> Option<Tensor<Self>>;
}

macro_rules! storable {
    ($t:ty, $variant:ident) => {
        impl Storable for $t {
            fn wrap(tensor: Tensor<$t>) -> AnyTensor {
                AnyTensor::$variant(tensor)
            }
            fn unwrap(tensor: &AnyTensor) -> Option<Tensor<$t>> {
                match tensor {
                    AnyTensor::$variant(tensor) => Some(tensor.clone()),
                    _ => None,
                }
            }
        }
    };
}

storable!(f32, F32);
storable!(f64, F64);

macro_rules! from_tensor {
    ($($t:ty => $variant:ident),+) => {$(
        impl From<Tensor<$t>> for AnyTensor {
            fn from(tensor: Tensor<$t>) -> AnyTensor {
                AnyTensor::$variant(tensor)
            }
        }

        impl From<&Tensor<$t>> for AnyTensor {
            fn from(tensor: &Tensor<$t>) -> AnyTensor {
                AnyTensor::$variant(tensor.clone())
            }
        }
    )+};
}

impl From<&AnyTensor> for AnyTensor {
    fn from(tensor: &AnyTensor) -> AnyTensor {
        tensor.clone()
    }
}

from_tensor!(f32 => F32, f64 => F64, i64 => I64, u32 => U32, bool => Bool);
