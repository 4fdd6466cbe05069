//! Adagrad: gradients divided by the root of the sum of their squares.

use super::hyperparameters::{at_least_0, checked_lr};
use super::optimizer::{Group, Optimizer, StepError, common_methods, no_betas};
use super::param_states::{ParamStates, quotient_or_zero};
use crate::config_error::ConfigError;
use crate::module::Module;
use crate::state::{LoadError, StateDict};
use retrograd_autograd::Gradients;
use retrograd_tensor::Real;
use retrograd_tensor::cost::Cost;
use retrograd_tensor::formula::{Algebra, Expr};
use retrograd_tensor::kernels::update::Update;

/// Hyperparameters of [`Adagrad`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdagradConfig {
    /// Learning rate.
    pub lr: f64,
    /// The decay of the learning rate: it is divided by `1 + n · lr_decay` after `n` steps.
    pub lr_decay: f64,
    /// Added to the root, against division by 0.
    pub eps: f64,
    /// Weight decay: this factor times the parameter is added to the gradient.
    pub weight_decay: f64,
}

impl Default for AdagradConfig {
    /// PyTorch's defaults.
    fn default() -> Self {
        AdagradConfig { lr: 0.01, lr_decay: 0.0, eps: 1e-10, weight_decay: 0.0 }
    }
}

/// Adagrad, as in PyTorch: `g += decay · p`, `s += g²`, `p -= lr / (1 + n · lr_decay) · g / (√s + eps)`
/// after `n` steps.
///
/// The state is `sum.<parameter>`. Duchi, Hazan, Singer 2011.
#[derive(Debug)]
pub struct Adagrad<T: Real = f32> {
    config: AdagradConfig,
    states: ParamStates<T, 1>,
}

impl<T: Real> Adagrad<T> {
    /// An optimiser for all parameters of a module.
    ///
    /// # Errors
    /// As [`Adagrad::with_groups`].
    ///
    /// ```
    /// # use retrograd_nn::Linear;
    /// # use retrograd_nn::optim::{Adagrad, AdagradConfig};
    /// # use retrograd_tensor::random::Rng;
    /// let layer = Linear::<f32>::new(3, 2, &mut Rng::new(1));
    /// assert!(Adagrad::new(&layer, AdagradConfig::default()).is_ok());
    /// ```
    pub fn new(module: &impl Module<T>, config: AdagradConfig) -> Result<Self, ConfigError> {
        Adagrad::with_groups(Group::all(module, config.weight_decay), config)
    }

    /// An optimiser for groups.
    ///
    /// # Errors
    /// If a hyperparameter is out of range, there is no parameter, one (or its name) is given twice, or a
    /// group sets betas.
    pub fn with_groups(groups: Vec<Group<T>>, config: AdagradConfig) -> Result<Self, ConfigError> {
        at_least_0("learning rate", config.lr)?;
        at_least_0("decay of the learning rate", config.lr_decay)?;
        at_least_0("epsilon", config.eps)?;
        at_least_0("weight decay", config.weight_decay)?;
        no_betas("Adagrad", &groups)?;
        Ok(Adagrad { config, states: ParamStates::new(["sum"], groups)? })
    }
}

#[derive(Clone, Copy)]
struct Step {
    lr: f64,
    eps: f64,
    decay: f64,
}

impl<T: Real> Update<T, 2, 1> for Step {
    const COST: Cost = Cost(600);
    #[inline(always)]
    fn f<A: Algebra<T>>(self, [p, sum]: [Expr<T, A>; 2], [g]: [Expr<T, A>; 1]) -> [Expr<T, A>; 2] {
        let g = p.mul_add(self.decay, g);
        let sum = g.mul_add(g, sum);
        let step = quotient_or_zero(g, sum.sqrt() + self.eps);
        [step.mul_add(-self.lr, p), sum]
    }
}

impl<T: Real> Optimizer<T> for Adagrad<T> {
    fn step(&mut self, grads: &Gradients<T>) -> Result<(), StepError> {
        let AdagradConfig { lr, lr_decay, eps, .. } = self.config;
        self.states.step("adagrad", grads, |slot| Step {
            lr: lr * slot.lr_scale / (1.0 + slot.steps as f64 * lr_decay),
            eps: slot.eps.unwrap_or(eps),
            decay: slot.weight_decay,
        })
    }

    common_methods!(T);
}
