//! Strided tensors with SIMD kernels that are chosen at run time.
//!
//! ```
//! use retrograd_tensor::Tensor;
//!
//! let x = Tensor::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
//! let centred = &x - &x.mean_keepdim(-1); // broadcasting as in NumPy
//! assert_eq!(centred.to_vec(), [-1.0, 0.0, 1.0, -1.0, 0.0, 1.0]);
//! assert!(x.t().shares_storage(&x)); // views copy nothing
//! assert_eq!(x.matmul(&x.t()).to_vec(), [14.0, 32.0, 32.0, 77.0]);
//! ```
//!
//! A [`Tensor`] is a layout over shared storage. What it can do are its methods; their formulas
//! are in [`ops`], what runs them over strides, threads and instruction sets in [`drive`]. Shapes
//! that do not fit panic at the caller's line, and say why. Results do not depend on the number
//! of threads. Random tensors are functions of a [key](random::Key).

#[doc(hidden)]
pub mod compiled;
mod display;
pub mod drive;
pub mod element;
pub mod error;
pub mod gemm;
pub mod layout;
pub mod machine;
pub mod matrix;
pub mod ops;
pub mod par;
pub mod precision;
pub mod random;
pub mod settings;
pub mod shape;
pub mod simd;
pub mod storage;
pub mod tensor;
pub mod torch_random;
mod transpose;
pub mod walk;

pub use element::{DType, Element, Integer, Steps};
pub use error::{ErrorKind, ShapeError};
pub use par::{threads, with_threads};
pub use precision::{MatmulPrecision, matmul_precision, with_matmul_precision};
pub use shape::{Axes, AxisSet, INFER, MAX_RANK, Shape};
pub use simd::Real;
pub use tensor::Tensor;
