//! Stochastic gradient descent.

use super::hyperparameters::{at_least_0, checked_lr};
use super::optimizer::{Group, Optimizer, StepError, common_methods, no_betas, no_eps};
use super::param_states::ParamStates;
use crate::config_error::ConfigError;
use crate::module::Module;
use crate::state::{LoadError, StateDict};
use retrograd_autograd::Gradients;
use retrograd_tensor::Real;
use retrograd_tensor::cost::Cost;
use retrograd_tensor::formula::{Algebra, Expr};
use retrograd_tensor::kernels::update::Update;

/// Hyperparameters of [`Sgd`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdConfig {
    /// Learning rate.
    pub lr: f64,
    /// Momentum: the factor by which the velocity (PyTorch's momentum buffer) is multiplied at each
    /// step.
    pub momentum: f64,
    /// Dampening: the gradient is multiplied by `1 - dampening` before it is added to the velocity,
    /// except at the first step. It requires momentum, and Nesterov momentum requires 0.
    pub dampening: f64,
    /// Whether to use Nesterov momentum. Nesterov 1983; Sutskever et al. 2013.
    pub nesterov: bool,
    /// Weight decay: this factor times the parameter is added to the gradient. Used by
    /// [`Sgd::new`]; [`Sgd::with_groups`] uses the weight decay of each group instead.
    pub weight_decay: f64,
}

impl Default for SgdConfig {
    fn default() -> Self {
        SgdConfig { lr: 0.01, momentum: 0.0, dampening: 0.0, nesterov: false, weight_decay: 0.0 }
    }
}

/// Gradient descent with momentum, as in PyTorch: `g += weight_decay · p`,
/// `v = momentum · v + (1 - dampening) · g` (`v = g` at the first step of a parameter),
/// `p -= lr · v`; with Nesterov `p -= lr · (g + momentum · v)`.
#[derive(Debug)]
pub struct Sgd<T: Real = f32> {
    config: SgdConfig,
    states: ParamStates<T, 1>,
}

impl<T: Real> Sgd<T> {
    /// An optimiser for all parameters of a module.
    ///
    /// # Errors
    /// As [`Sgd::with_groups`].
    ///
    /// ```
    /// # use retrograd_nn::Linear;
    /// # use retrograd_nn::optim::{Sgd, SgdConfig, Optimizer};
    /// # use retrograd_tensor::Tensor;
    /// # use retrograd_tensor::random::Rng;
    /// let layer = Linear::<f32>::without_bias(1, 1, &mut Rng::new(1));
    /// layer.weight.set(Tensor::from([[1.0]]));
    /// let config = SgdConfig { lr: 0.1, ..SgdConfig::default() };
    /// let mut sgd = Sgd::new(&layer, config).unwrap();
    /// let grads = layer.weight.to_var().sum(..).backward(); // 1
    /// sgd.step(&grads).unwrap();
    /// assert_eq!(layer.weight.value().item(), 0.9);
    /// ```
    pub fn new(module: &impl Module<T>, config: SgdConfig) -> Result<Self, ConfigError> {
        Sgd::with_groups(Group::all(module, config.weight_decay), config)
    }

    /// An optimiser for parameter groups, each with its own weight decay and scale of the learning
    /// rate.
    ///
    /// # Errors
    /// If a hyperparameter is out of range, if there is no parameter, if a parameter or a name is given
    /// twice, if there is dampening or Nesterov momentum without momentum, or if a group sets betas or eps.
    pub fn with_groups(groups: Vec<Group<T>>, config: SgdConfig) -> Result<Self, ConfigError> {
        at_least_0("learning rate", config.lr)?;
        at_least_0("momentum", config.momentum)?;
        at_least_0("dampening", config.dampening)?;
        if config.nesterov && config.dampening > 0.0 {
            return Err(ConfigError("Nesterov momentum requires a dampening of 0".into()));
        }
        if config.nesterov && config.momentum == 0.0 {
            return Err(ConfigError("Nesterov momentum requires a momentum above 0".into()));
        }
        if config.dampening > 0.0 && config.momentum == 0.0 {
            return Err(ConfigError("dampening requires a momentum above 0".into()));
        }
        no_betas("SGD", &groups)?;
        no_eps("SGD", &groups)?;
        Ok(Sgd { config, states: ParamStates::new(["velocity"], groups)? })
    }
}

#[derive(Clone, Copy)]
struct Step {
    lr: f64,
    momentum: f64,
    /// Multiplies the gradient that is added to the velocity.
    share: f64,
    decay: f64,
    nesterov: bool,
}

impl<T: Real> Update<T, 2, 1> for Step {
    const COST: Cost = Cost::CHEAP;
    #[inline(always)]
    fn f<A: Algebra<T>>(self, [p, v]: [Expr<T, A>; 2], [g]: [Expr<T, A>; 1]) -> [Expr<T, A>; 2] {
        let g = p.mul_add(self.decay, g);
        let v = v.mul_add(self.momentum, self.share * g);
        let direction = if self.nesterov { v.mul_add(self.momentum, g) } else { v };
        [direction.mul_add(-self.lr, p), v]
    }
}

impl<T: Real> Optimizer<T> for Sgd<T> {
    fn step(&mut self, grads: &Gradients<T>) -> Result<(), StepError> {
        let SgdConfig { lr, momentum, dampening, nesterov, .. } = self.config;
        self.states.step("sgd", grads, |slot| Step {
            lr: lr * slot.lr_scale,
            share: if slot.steps == 0 { 1.0 } else { 1.0 - dampening },
            momentum,
            decay: slot.weight_decay,
            nesterov,
        })
    }

    common_methods!(T);
}
