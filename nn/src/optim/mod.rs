//! Optimisers.
//!
//! A step is one fused pass over all parameters. It updates all parameters or none: a missing or
//! non-finite gradient is an error that names the parameter.
//!
//! # An optimiser of your own
//!
//! [`ParamStates`] holds the parameters and the state; the rule of the optimiser is all that is left to
//! write. This is sign descent with momentum, with a state dict and checks of gradients:
//!
//! ```
//! use retrograd::nn::{LoadError, optim::{ParamStates, StepError}};
//! use retrograd::prelude::*;
//!
//! struct Signum {
//!     lr: f64,
//!     states: ParamStates<f32, 1>, // one state tensor for each parameter
//! }
//!
//! impl Optimizer for Signum {
//!     fn step(&mut self, grads: &Gradients) -> Result<(), StepError> {
//!         let lr = self.lr;
//!         self.states.step_each(grads, |slot, g| {
//!             let velocity = &slot.state[0] * 0.9 + g * 0.1;
//!             let rate = (lr * slot.lr_scale) as f32;
//!             slot.param.update(|p| p.add_assign(&(velocity.sign() * -rate)));
//!             slot.state[0] = velocity;
//!         })
//!     }
//!     fn lr(&self) -> f64 {
//!         self.lr
//!     }
//!     fn set_lr(&mut self, lr: f64) {
//!         self.lr = lr;
//!     }
//!     fn steps(&self) -> u64 {
//!         self.states.steps()
//!     }
//!     fn state_dict(&self) -> StateDict {
//!         self.states.state_dict()
//!     }
//!     fn load_state_dict(&mut self, steps: u64, dict: &StateDict) -> Result<(), LoadError> {
//!         self.states.load_state_dict(steps, dict)
//!     }
//! }
//!
//! let layer = Linear::new(2, 1, &mut Rng::new(1));
//! let groups = Group::all(&layer, 0.0);
//! let mut optimizer = Signum { lr: 0.01, states: ParamStates::new(["velocity"], groups).unwrap() };
//! let x = Var::constant(Tensor::from([[1.0, 2.0], [3.0, 4.0]]));
//! let loss = || layer.forward(&x, &mut Pass::eval()).square().mean(..);
//! let before = loss().item();
//! for _ in 0..10 {
//!     optimizer.step(&loss().backward()).unwrap();
//! }
//! assert!(loss().item() < before);
//! assert_eq!(optimizer.steps(), 10);
//! ```

mod hyperparameters;
mod muon;
mod optimizer;
mod param_states;
mod rules;
mod step_count;

pub use muon::{Muon, MuonConfig, MuonScale, orthogonalize};
pub use optimizer::{Group, Optimizer, StepError};
pub use param_states::{ParamState, ParamStates};
pub use rules::{
    Adagrad, AdagradConfig, Adam, AdamConfig, AdamW, Lion, LionConfig, RmsProp, RmsPropConfig, Sgd,
    SgdConfig,
};
