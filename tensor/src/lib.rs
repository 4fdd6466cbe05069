//! Strided tensors.
