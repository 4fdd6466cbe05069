//! Optimisers.
//!
//! A step is one fused pass over all parameters. It updates all parameters or none: a missing or
//! non-finite gradient is an error that names the parameter.

mod adam;
mod hyperparameters;
mod muon;
mod optimizer;
mod param_states;
mod sgd;

pub use adam::{Adam, AdamConfig, AdamW};
pub use muon::{Muon, MuonConfig, MuonScale, orthogonalize};
pub use optimizer::{Group, Optimizer, StepError};
pub use sgd::{Sgd, SgdConfig};
