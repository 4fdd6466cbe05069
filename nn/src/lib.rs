//! Modules over autograd.
#![forbid(unsafe_code)]
