//! Lion: the sign of an average.

use super::hyperparameters::{at_least_0, checked_lr, in_unit_interval};
use super::optimizer::{Group, Optimizer, StepError, common_methods, no_eps};
use super::param_states::ParamStates;
use crate::config_error::ConfigError;
use crate::module::Module;
use crate::state::{LoadError, StateDict};
use retrograd_autograd::Gradients;
use retrograd_tensor::Real;
use retrograd_tensor::cost::Cost;
use retrograd_tensor::formula::{Algebra, Expr};
use retrograd_tensor::kernels::update::Update;

/// Hyperparameters of [`Lion`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LionConfig {
    /// Learning rate: the size of each step. Three to ten times smaller than AdamW's.
    pub lr: f64,
    /// The share of the average in the update, and the decay rate of the average.
    pub betas: (f64, f64),
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

impl Default for LionConfig {
    /// The defaults of the paper.
    fn default() -> Self {
        LionConfig { lr: 1e-4, betas: (0.9, 0.99), weight_decay: 0.0 }
    }
}

/// Lion: `p = (1 - lr · decay) · p - lr · sign(β₁ m + (1 - β₁) g)`, then `m = β₂ m + (1 - β₂) g`.
///
/// The state is `m.<parameter>`. Chen et al. 2023 (arXiv 2302.06675).
#[derive(Debug)]
pub struct Lion<T: Real = f32> {
    config: LionConfig,
    states: ParamStates<T, 1>,
}

impl<T: Real> Lion<T> {
    /// An optimiser for all parameters of a module, with weight decay of those of rank 2 and more.
    ///
    /// # Errors
    /// As [`Lion::with_groups`].
    ///
    /// ```
    /// # use retrograd_nn::Linear;
    /// # use retrograd_nn::optim::{Lion, LionConfig};
    /// # use retrograd_tensor::random::Rng;
    /// let layer = Linear::<f32>::new(3, 2, &mut Rng::new(1));
    /// assert!(Lion::new(&layer, LionConfig::default()).is_ok());
    /// ```
    pub fn new(module: &impl Module<T>, config: LionConfig) -> Result<Self, ConfigError> {
        Lion::with_groups(Group::by_rank(module, config.weight_decay), config)
    }

    /// An optimiser for groups.
    ///
    /// # Errors
    /// If a hyperparameter is out of range, there is no parameter, one (or its name) is given twice, or a
    /// group sets eps.
    pub fn with_groups(groups: Vec<Group<T>>, config: LionConfig) -> Result<Self, ConfigError> {
        at_least_0("learning rate", config.lr)?;
        at_least_0("weight decay", config.weight_decay)?;
        in_unit_interval("beta 1", config.betas.0)?;
        in_unit_interval("beta 2", config.betas.1)?;
        no_eps("Lion", &groups)?;
        Ok(Lion { config, states: ParamStates::new(["m"], groups)? })
    }
}

#[derive(Clone, Copy)]
struct Step {
    lr: f64,
    shrink: f64,
    betas: (f64, f64),
}

impl<T: Real> Update<T, 2, 1> for Step {
    const COST: Cost = Cost::CHEAP;
    #[inline(always)]
    fn f<A: Algebra<T>>(self, [p, m]: [Expr<T, A>; 2], [g]: [Expr<T, A>; 1]) -> [Expr<T, A>; 2] {
        let (b1, b2) = self.betas;
        let update = m.mul_add(b1, (1.0 - b1) * g);
        let m = m.mul_add(b2, (1.0 - b2) * g);
        [update.sign().mul_add(-self.lr, p * self.shrink), m]
    }
}

impl<T: Real> Optimizer<T> for Lion<T> {
    fn step(&mut self, grads: &Gradients<T>) -> Result<(), StepError> {
        let LionConfig { lr, betas, .. } = self.config;
        self.states.step("lion", grads, |slot| {
            let lr = lr * slot.lr_scale;
            let betas = slot.betas.unwrap_or(betas);
            Step { lr, shrink: 1.0 - lr * slot.weight_decay, betas }
        })
    }

    common_methods!(T);
}
