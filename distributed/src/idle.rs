//! The optimiser of a rank without parameters.

use retrograd_autograd::Gradients;
use retrograd_nn::optim::{Optimizer, StepError};
use retrograd_nn::{LoadError, StateDict};
use retrograd_tensor::Real;

/// Counts steps.
#[derive(Debug, Default)]
pub struct Idle {
    lr: f64,
    steps: u64,
}

impl<T: Real> Optimizer<T> for Idle {
    fn step(&mut self, _: &Gradients<T>) -> Result<(), StepError> {
        self.steps += 1;
        Ok(())
    }

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    fn steps(&self) -> u64 {
        self.steps
    }

    fn state_dict(&self) -> StateDict<T> {
        StateDict::new()
    }

    fn load_state_dict(&mut self, steps: u64, dict: &StateDict<T>) -> Result<(), LoadError> {
        if !dict.is_empty() {
            let unexpected = dict.keys().cloned().collect();
            return Err(LoadError { unexpected, ..LoadError::default() });
        }
        self.steps = steps;
        Ok(())
    }
}
