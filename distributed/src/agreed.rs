//! An optimiser whose steps all ranks take, or none.

use crate::communicator::Collectives;
use retrograd_autograd::Gradients;
use retrograd_nn::optim::{Optimizer, StepError};
use retrograd_nn::{LoadError, StateDict};
use retrograd_tensor::Real;
use std::sync::Arc;

/// The optimiser of a rank, which asks the others before each step.
pub struct Agreed<T: Real> {
    pub own: Box<dyn Optimizer<T>>,
    pub comm: Arc<dyn Collectives<T>>,
}

impl<T: Real> Optimizer<T> for Agreed<T> {
    fn step(&mut self, grads: &Gradients<T>) -> Result<(), StepError> {
        self.comm.begin("step");
        let mine = self.own.check(grads);
        let (is_missing, names) = match &mine {
            Ok(()) => (false, &[][..]),
            Err(error) => (matches!(error, StepError::MissingGradient(_)), error.names()),
        };
        let json = serde_json::to_vec(&(is_missing, names)).expect("names");
        let all = self.comm.all_gather_bytes(&json);
        mine?;
        if let Some(rank) = all.iter().position(|other| *other != json) {
            let all = serde_json::from_slice(&all[rank]);
            let (is_missing, names) = all.expect("written by a rank");
            let new = if is_missing { StepError::MissingGradient } else { StepError::NotFinite };
            return Err(StepError::OtherRank(rank, Box::new(new(names))));
        }
        self.own.step(grads)
    }

    fn check(&self, grads: &Gradients<T>) -> Result<(), StepError> {
        self.own.check(grads)
    }

    fn lr(&self) -> f64 {
        self.own.lr()
    }

    #[track_caller]
    fn set_lr(&mut self, lr: f64) {
        self.own.set_lr(lr);
    }

    fn steps(&self) -> u64 {
        self.own.steps()
    }

    fn state_dict(&self) -> StateDict<T> {
        self.own.state_dict()
    }

    fn load_state_dict(&mut self, steps: u64, dict: &StateDict<T>) -> Result<(), LoadError> {
        self.own.load_state_dict(steps, dict)
    }
}
