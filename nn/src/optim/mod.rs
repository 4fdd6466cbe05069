//! Optimisers.
//!
//! A step is one pass over all parameters with everything fused into it. It is taken for all
//! parameters or for none: a parameter without a gradient, or with one that is not finite,
//! is an error that names it.

mod adam;
mod hyperparameters;
mod optimizer;
mod sgd;
mod slots;

pub use adam::{Adam, AdamConfig, AdamW};
pub use optimizer::{Group, Optimizer, StepError};
pub use sgd::{Sgd, SgdConfig};
