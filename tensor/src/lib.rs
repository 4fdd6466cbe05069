//! Strided tensors.

mod display;
pub mod drive;
pub mod element;
pub mod error;
pub mod layout;
pub mod matrix;
pub mod ops;
pub mod par;
pub mod random;
pub mod shape;
pub mod simd;
pub mod storage;
pub mod tensor;
pub mod torch_random;
pub mod walk;

pub use element::{DType, Element, Integer};
pub use error::{ErrorKind, ShapeError};
pub use par::{threads, with_threads};
pub use shape::{Axes, AxisSet, INFER, MAX_RANK, Shape};
pub use simd::Real;
pub use tensor::Tensor;
