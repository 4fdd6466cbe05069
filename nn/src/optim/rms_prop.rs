//! RMSprop: gradients divided by the root of their average square.

use super::hyperparameters::{at_least_0, checked_lr, in_unit_interval};
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

/// Hyperparameters of [`RmsProp`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsPropConfig {
    /// Learning rate.
    pub lr: f64,
    /// The decay rate of the averages.
    pub alpha: f64,
    /// Added to the root, against division by 0.
    pub eps: f64,
    /// Momentum.
    pub momentum: f64,
    /// Whether the square of the average gradient is subtracted: the variance in place of the mean square.
    pub centered: bool,
    /// Weight decay: this factor times the parameter is added to the gradient.
    pub weight_decay: f64,
}

impl Default for RmsPropConfig {
    /// PyTorch's defaults.
    fn default() -> Self {
        RmsPropConfig {
            lr: 0.01,
            alpha: 0.99,
            eps: 1e-8,
            momentum: 0.0,
            centered: false,
            weight_decay: 0.0,
        }
    }
}

/// RMSprop, as in PyTorch: `g += decay · p`, `v = α v + (1 - α) g²`, and if centred
/// `a = α a + (1 - α) g`, else `a = 0`; then `b = momentum · b + g / (√(v - a²) + eps)`, `p -= lr · b`.
///
/// The state is `v.<parameter>`, `a.<parameter>` and `b.<parameter>`. Hinton 2012 (lecture 6e of Neural
/// Networks for Machine Learning); Graves 2013 (arXiv 1308.0850) for the centred form.
#[derive(Debug)]
pub struct RmsProp<T: Real = f32> {
    config: RmsPropConfig,
    states: ParamStates<T, 3>,
}

impl<T: Real> RmsProp<T> {
    /// An optimiser for all parameters of a module.
    ///
    /// # Errors
    /// As [`RmsProp::with_groups`].
    ///
    /// ```
    /// # use retrograd_nn::Linear;
    /// # use retrograd_nn::optim::{RmsProp, RmsPropConfig};
    /// # use retrograd_tensor::random::Rng;
    /// let layer = Linear::<f32>::new(3, 2, &mut Rng::new(1));
    /// assert!(RmsProp::new(&layer, RmsPropConfig::default()).is_ok());
    /// ```
    pub fn new(module: &impl Module<T>, config: RmsPropConfig) -> Result<Self, ConfigError> {
        RmsProp::with_groups(Group::all(module, config.weight_decay), config)
    }

    /// An optimiser for groups.
    ///
    /// # Errors
    /// If a hyperparameter is out of range, there is no parameter, one (or its name) is given twice, or a
    /// group sets betas.
    pub fn with_groups(groups: Vec<Group<T>>, config: RmsPropConfig) -> Result<Self, ConfigError> {
        at_least_0("learning rate", config.lr)?;
        at_least_0("epsilon", config.eps)?;
        at_least_0("momentum", config.momentum)?;
        at_least_0("weight decay", config.weight_decay)?;
        in_unit_interval("alpha", config.alpha)?;
        no_betas("RMSprop", &groups)?;
        Ok(RmsProp { config, states: ParamStates::new(["v", "a", "b"], groups)? })
    }
}

#[derive(Clone, Copy)]
struct Step {
    lr: f64,
    alpha: f64,
    /// `1 - α` if centred, else 0.
    centre: f64,
    eps: f64,
    momentum: f64,
    decay: f64,
}

impl<T: Real> Update<T, 4, 1> for Step {
    const COST: Cost = Cost(600);
    #[inline(always)]
    fn f<A: Algebra<T>>(
        self,
        [p, v, a, b]: [Expr<T, A>; 4],
        [g]: [Expr<T, A>; 1],
    ) -> [Expr<T, A>; 4] {
        let g = p.mul_add(self.decay, g);
        let v = v.mul_add(self.alpha, (1.0 - self.alpha) * g * g);
        let a = a.mul_add(self.alpha, self.centre * g);
        // Rounding may make the variance negative.
        let variance = (v - a * a).max(0.0);
        let step = quotient_or_zero(g, variance.sqrt() + self.eps);
        let b = b.mul_add(self.momentum, step);
        [b.mul_add(-self.lr, p), v, a, b]
    }
}

impl<T: Real> Optimizer<T> for RmsProp<T> {
    fn step(&mut self, grads: &Gradients<T>) -> Result<(), StepError> {
        let RmsPropConfig { lr, alpha, eps, momentum, centered, .. } = self.config;
        self.states.step("rms_prop", grads, |slot| Step {
            lr: lr * slot.lr_scale,
            alpha,
            centre: if centered { 1.0 - alpha } else { 0.0 },
            eps: slot.eps.unwrap_or(eps),
            momentum,
            decay: slot.weight_decay,
        })
    }

    common_methods!(T);
}
