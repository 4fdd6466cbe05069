//! Tensors of any element type, and their elements as bytes.

use retrograd_tensor::{DType, Element, Real, ShapeError, Tensor};
use std::io;

/// Size in bytes of the buffer on the stack in which elements are converted, so that saving and
/// loading allocate no memory besides the tensors.
const PIECE: usize = 1 << 15;

/// A tensor of any element type that a file may hold.
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
    pub(super) fn sizes(&self) -> &[usize] {
        match self {
            AnyTensor::F32(t) => t.shape(),
            AnyTensor::F64(t) => t.shape(),
            AnyTensor::I64(t) => t.shape(),
            AnyTensor::U32(t) => t.shape(),
            AnyTensor::Bool(t) => t.shape(),
        }
    }

    /// Passes the elements in row-major order to `sink`, as little-endian bytes, in pieces.
    pub(super) fn write(&self, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut pieces = Pieces { buffer: [0; PIECE], len: 0, sink };
        match self {
            AnyTensor::F32(t) => pieces.tensor(t, f32::to_le_bytes),
            AnyTensor::F64(t) => pieces.tensor(t, f64::to_le_bytes),
            AnyTensor::I64(t) => pieces.tensor(t, i64::to_le_bytes),
            AnyTensor::U32(t) => pieces.tensor(t, u32::to_le_bytes),
            AnyTensor::Bool(t) => pieces.tensor(t, |b| [b as u8]),
        }?;
        pieces.flush()
    }

    /// The inverse of [`AnyTensor::write`]; `source` fills each piece.
    pub(super) fn read(
        dtype: DType,
        shape: &[usize],
        source: &mut dyn FnMut(&mut [u8]) -> io::Result<()>,
    ) -> Result<AnyTensor, ReadError> {
        Ok(match dtype {
            DType::F32 => AnyTensor::F32(read(shape, f32::from_le_bytes, source)?),
            DType::F64 => AnyTensor::F64(read(shape, f64::from_le_bytes, source)?),
            DType::I64 => AnyTensor::I64(read(shape, i64::from_le_bytes, source)?),
            DType::U32 => AnyTensor::U32(read(shape, u32::from_le_bytes, source)?),
            DType::Bool => AnyTensor::Bool(read(shape, |[b]: [u8; 1]| b != 0, source)?),
        })
    }
}

/// An error of reading a tensor.
pub(super) enum ReadError {
    /// The file could not be read.
    Io(io::Error),
    /// The tensor cannot be allocated.
    Shape(ShapeError),
}

fn read<T: Element, const N: usize>(
    shape: &[usize],
    from: impl Fn([u8; N]) -> T,
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
