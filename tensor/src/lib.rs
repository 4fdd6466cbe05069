//! Strided tensors with SIMD kernels that are selected at run time.
//!
//! ```
//! use retrograd::prelude::*;
//!
//! let x = Tensor::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
//! let centred = &x - &x.mean_keepdim(-1); // broadcasting as in NumPy
//! assert_eq!(centred.to_vec(), [-1.0, 0.0, 1.0, -1.0, 0.0, 1.0]);
//! assert!(x.t().shares_storage(&x)); // views copy nothing
//! assert_eq!(x.matmul(&x.t()).to_vec(), [14.0, 32.0, 32.0, 77.0]);
//! ```
//!
//! A [`Tensor`] is a layout over shared storage, and its operations are methods. Invalid shapes
//! panic at the caller's line with a message that names them. The axis of an operation is its first
//! argument, counted from the end if it is negative. Results do not depend on the number of threads.
//! Random tensors are functions of a [key](random::Key).
//!
//! # Modules
//!
//! Each layer uses the layers below it only.
//!
//! | layer | modules | contents |
//! |---|---|---|
//! | operations | [`ops`], [`torch_random`], `display`, `describe` | the methods of [`Tensor`]: formulas and their derivatives |
//! | kernels | [`kernels`] | strides, threads and instruction sets around a formula; attention; GEMM |
//! | tensors | `tensor`, `views`, `rows` | storage and layout together: constructors, views, elements |
//! | loops | `loop_nest`, `transpose`, [`matrix`], [`par`], [`cost`], [`random`] | strided loop nests, matrices in slices, threads, the cost model, random numbers |
//! | instructions | [`simd`], [`settings`], [`precision`], [`machine`] | vectors on every instruction set, the selection of one, and the limits of the CPU |
//! | formulas | [`formula`] | what formulas are written in, for vectors, dual numbers, variables and text |
//! | data | [`shape`], [`layout`], [`indexing`], [`storage`], [`observe`], [`element`], [`error`] | shapes, strides, indices, memory, who is told of its use, element types, errors |
//!
mod box_muller;
#[doc(hidden)]
pub mod compiled;
pub mod cost;
mod describe;
mod display;
pub mod element;
pub mod error;
pub mod formula;
pub mod indexing;
pub mod kernels;
pub mod layout;
mod loop_nest;
pub mod machine;
pub mod matrix;
pub mod observe;
pub mod ops;
pub mod par;
pub mod precision;
pub mod random;
mod rows;
pub mod settings;
pub mod shape;
pub mod simd;
pub mod storage;
mod tensor;
pub mod torch_random;
mod transpose;
mod views;

pub use describe::Description;
pub use element::{DType, Element, Float, Integer, Steps};
pub use error::{ErrorKind, ShapeError};
pub use indexing::{Ellipsis, NewAxis, StepBy};
pub use kernels::{Number, Real};
pub use ops::binary::TensorOrNumber;
pub use ops::close::NotClose;
pub use ops::scatter::ScatterReduce;
pub use par::{threads, with_threads};
pub use precision::MatmulPrecision;
pub use rows::Rows;
pub use settings::{matmul_precision, with_matmul_precision};
pub use shape::{Axes, AxisSet, INFER, IntoShape, MAX_RANK, Shape};
pub use tensor::Tensor;

/// Parts that only the tests of this crate use.
#[doc(hidden)]
pub mod internals {
    pub use crate::box_muller::box_muller;
    pub use crate::kernels::gemm::operands::b_in_place;
    pub use crate::kernels::gemm::partition::{Partition, Problem};
    pub use crate::loop_nest::LoopNest;
    pub use crate::machine::probe::{CHUNK, following};
    pub use crate::simd::counting::Counting;
    pub use crate::simd::level::choose;
}

/// What most programs need of tensors.
pub mod prelude {
    pub use crate::ops::loss::{CrossEntropy, Reduction};
    pub use crate::random::Rng;
    pub use crate::{Ellipsis, INFER, MatmulPrecision, NewAxis, Shape, StepBy, Tensor};
    pub use crate::{with_matmul_precision, with_threads};
}
