//! Strided tensors.

pub mod element;
pub mod simd;
