//! Optimisers.
//!
//! A step is one fused pass over all parameters. It updates all parameters or none: a missing or
//! non-finite gradient is an error that names the parameter.

mod adagrad;
mod adam;
mod hyperparameters;
mod lion;
mod muon;
mod optimizer;
mod param_states;
mod rms_prop;
mod sgd;

pub use adagrad::{Adagrad, AdagradConfig};
pub use adam::{Adam, AdamConfig, AdamW};
pub use lion::{Lion, LionConfig};
pub use muon::{Muon, MuonConfig, MuonScale, orthogonalize};
pub use optimizer::{Group, Optimizer, StepError};
pub use rms_prop::{RmsProp, RmsPropConfig};
pub use sgd::{Sgd, SgdConfig};
