//! Reverse-mode automatic differentiation.
#![forbid(unsafe_code)]
