//! `retrograd` as far as tensors go, for the examples in the documentation of `retrograd-tensor`: with the whole
//! of it, every change of a kernel would compile all crates before a test runs.

pub use retrograd_tensor as tensor;
pub use retrograd_tensor::prelude;
