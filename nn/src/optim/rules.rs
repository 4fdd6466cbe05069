//! The optimisers whose step is a formula of a parameter, its state and its gradient.

use super::hyperparameters::{at_least_0, checked_lr, in_unit_interval};
use super::optimizer::{Group, Optimizer, StepError};
use super::param_states::{ParamState, ParamStates, quotient_or_zero};
use crate::config_error::ConfigError;
use crate::module::Module;
use crate::state::{LoadError, StateDict};
use retrograd_autograd::Gradients;
use retrograd_tensor::Real;
use retrograd_tensor::cost::Cost;
use retrograd_tensor::formula::{Algebra, Expr};
use retrograd_tensor::kernels::update::Update;

/// Declares an optimiser: its documentation, its hyperparameters with a method `states`, the states
/// of the parameters, the groups of a module, and the step.
macro_rules! optimizer {
    (
        $(#[$doc:meta])*
        $name:ident: $config:ident, $states:ty, $groups:path,
        |$hyper:ident, $state:ident, $gradients:ident| $step:expr
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<T: Real = f32> {
            config: $config,
            states: $states,
        }

        impl<T: Real> $name<T> {
            /// An optimiser for the parameters of a module.
            ///
            /// # Errors
            /// If a hyperparameter is out of range, or there is no parameter.
            pub fn new(module: &impl Module<T>, config: $config) -> Result<Self, ConfigError> {
                Self::with_groups($groups(module, config.weight_decay), config)
            }

            /// An optimiser for groups, each with its own options; those of the group replace the
            /// weight decay of `config`.
            ///
            /// # Errors
            /// If a hyperparameter is out of range, there is no parameter, one (or its name) is given
            /// twice, or a group sets an option that the optimiser does not have.
            pub fn with_groups(
                groups: Vec<Group<T>>,
                config: $config,
            ) -> Result<Self, ConfigError> {
                Ok($name { states: config.states(groups)?, config })
            }
        }

        impl<T: Real> Optimizer<T> for $name<T> {
            fn step(&mut self, grads: &Gradients<T>) -> Result<(), StepError> {
                let ($hyper, $state, $gradients) = (self.config, &mut self.states, grads);
                $step
            }

            fn check(&self, grads: &Gradients<T>) -> Result<(), StepError> {
                self.states.check(grads)
            }

            fn lr(&self) -> f64 {
                self.config.lr
            }

            #[track_caller]
            fn set_lr(&mut self, lr: f64) {
                self.config.lr = checked_lr(lr);
            }

            fn steps(&self) -> u64 {
                self.states.steps()
            }

            fn state_dict(&self) -> StateDict<T> {
                self.states.state_dict()
            }

            fn load_state_dict(
                &mut self,
                steps: u64,
                dict: &StateDict<T>,
            ) -> Result<(), LoadError> {
                self.states.load_state_dict(steps, dict)
            }
        }
    };
}

/// Rejects groups with betas, for an optimiser that has none.
fn no_betas<T: Real>(optimizer: &str, groups: &[Group<T>]) -> Result<(), ConfigError> {
    match groups.iter().any(|group| group.betas.is_some()) {
        true => Err(ConfigError(format!("{optimizer} has no betas, but a group sets them"))),
        false => Ok(()),
    }
}

/// Rejects groups with an eps, for an optimiser that has none.
fn no_eps<T: Real>(optimizer: &str, groups: &[Group<T>]) -> Result<(), ConfigError> {
    match groups.iter().any(|group| group.eps.is_some()) {
        true => Err(ConfigError(format!("{optimizer} has no eps, but a group sets it"))),
        false => Ok(()),
    }
}

optimizer! {
    /// Gradient descent with momentum, as in PyTorch: `g += weight_decay · p`,
    /// `v = momentum · v + (1 - dampening) · g` (`v = g` at the first step of a parameter),
    /// `p -= lr · v`; with Nesterov `p -= lr · (g + momentum · v)`.
    ///
    /// The state is `velocity.<parameter>`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let layer = Linear::<f32>::without_bias(1, 1, &mut Rng::new(1));
    /// layer.weight.set(Tensor::from([[1.0]]));
    /// let config = SgdConfig { lr: 0.1, ..SgdConfig::default() };
    /// let mut sgd = Sgd::new(&layer, config).unwrap();
    /// let grads = layer.weight.to_var().sum(..).backward(); // 1
    /// sgd.step(&grads).unwrap();
    /// assert_eq!(layer.weight.value().item(), 0.9);
    /// ```
    Sgd: SgdConfig, ParamStates<T, 1>, Group::all,
    |config, states, grads| states.step("sgd", grads, |slot| SgdStep {
        lr: config.lr * slot.lr_scale,
        share: if slot.steps == 0 { 1.0 } else { 1.0 - config.dampening },
        momentum: config.momentum,
        decay: slot.weight_decay,
        nesterov: config.nesterov,
    })
}

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
    /// Weight decay: this factor times the parameter is added to the gradient.
    pub weight_decay: f64,
}

impl Default for SgdConfig {
    fn default() -> Self {
        SgdConfig { lr: 0.01, momentum: 0.0, dampening: 0.0, nesterov: false, weight_decay: 0.0 }
    }
}

impl SgdConfig {
    fn states<T: Real>(&self, groups: Vec<Group<T>>) -> Result<ParamStates<T, 1>, ConfigError> {
        at_least_0("learning rate", self.lr)?;
        at_least_0("momentum", self.momentum)?;
        at_least_0("dampening", self.dampening)?;
        if self.nesterov && self.dampening > 0.0 {
            return Err(ConfigError("Nesterov momentum requires a dampening of 0".into()));
        }
        if self.nesterov && self.momentum == 0.0 {
            return Err(ConfigError("Nesterov momentum requires a momentum above 0".into()));
        }
        if self.dampening > 0.0 && self.momentum == 0.0 {
            return Err(ConfigError("dampening requires a momentum above 0".into()));
        }
        no_betas("SGD", &groups)?;
        no_eps("SGD", &groups)?;
        ParamStates::new(["velocity"], groups)
    }
}

#[derive(Clone, Copy)]
struct SgdStep {
    lr: f64,
    momentum: f64,
    /// Multiplies the gradient that is added to the velocity.
    share: f64,
    decay: f64,
    nesterov: bool,
}

impl<T: Real> Update<T, 2, 1> for SgdStep {
    const COST: Cost = Cost::CHEAP;
    #[inline(always)]
    fn f<A: Algebra<T>>(self, [p, v]: [Expr<T, A>; 2], [g]: [Expr<T, A>; 1]) -> [Expr<T, A>; 2] {
        let g = p.mul_add(self.decay, g);
        let v = v.mul_add(self.momentum, self.share * g);
        let direction = if self.nesterov { v.mul_add(self.momentum, g) } else { v };
        [direction.mul_add(-self.lr, p), v]
    }
}

optimizer! {
    /// Adam: weight decay, if any, is added to the gradient. Kingma, Ba 2014 (arXiv 1412.6980).
    ///
    /// The bias correction uses the number of steps of each parameter, as in PyTorch: steps while
    /// it was frozen do not count. The state is `m.<parameter>`, `v.<parameter>`, and
    /// `step.<parameter>` for parameters with fewer steps than the optimiser; loading assumes the
    /// count of the optimiser where it is missing. With `amsgrad` there is `v_max.<parameter>`, too.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let layer = Linear::<f32>::without_bias(1, 1, &mut Rng::new(1));
    /// layer.weight.set(Tensor::from([[1.0]]));
    /// let config = AdamConfig { lr: 0.1, ..AdamConfig::default() };
    /// let mut adam = Adam::new(&layer, config).unwrap();
    /// adam.step(&layer.weight.to_var().sum(..).backward()).unwrap();
    /// assert!((layer.weight.value().item() - 0.9).abs() < 1e-6); // the first step is lr
    /// ```
    Adam: AdamConfig, Moments<T>, Group::all,
    |config, states, grads| AdamRule { config, decoupled: false, last: None }.take(states, grads)
}

optimizer! {
    /// Adam with decoupled weight decay: parameters shrink by `lr · decay` at each step,
    /// whatever their gradient. Loshchilov, Hutter 2017 (arXiv 1711.05101). Steps are counted as
    /// in [`Adam`]. [`AdamW::new`] decays parameters of rank 2 and more.
    AdamW: AdamConfig, Moments<T>, Group::by_rank,
    |config, states, grads| AdamRule { config, decoupled: true, last: None }.take(states, grads)
}

/// Hyperparameters of [`Adam`] and [`AdamW`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamConfig {
    /// Learning rate.
    pub lr: f64,
    /// The decay rates of the averages of the gradient and of its square.
    pub betas: (f64, f64),
    /// Added to the root of the averaged square, against division by 0.
    pub eps: f64,
    /// Weight decay: of parameters of rank 2 and more for [`AdamW::new`], of all for
    /// [`Adam::new`].
    pub weight_decay: f64,
    /// Whether to divide by the root of the largest averaged square so far, in place of the last one:
    /// AMSGrad. Reddi, Kale, Kumar 2018 (arXiv 1904.09237).
    pub amsgrad: bool,
}

impl Default for AdamConfig {
    /// PyTorch's defaults for `Adam`, without weight decay; for `AdamW` see
    /// [`AdamConfig::decoupled`].
    fn default() -> Self {
        AdamConfig { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0, amsgrad: false }
    }
}

impl AdamConfig {
    /// PyTorch's defaults for `AdamW`: the same but for a weight decay of 0.01.
    pub fn decoupled() -> Self {
        AdamConfig { weight_decay: 0.01, ..AdamConfig::default() }
    }

    fn states<T: Real>(&self, groups: Vec<Group<T>>) -> Result<Moments<T>, ConfigError> {
        at_least_0("learning rate", self.lr)?;
        at_least_0("epsilon", self.eps)?;
        at_least_0("weight decay", self.weight_decay)?;
        in_unit_interval("beta 1", self.betas.0)?;
        in_unit_interval("beta 2", self.betas.1)?;
        Ok(match self.amsgrad {
            false => Moments::Two(ParamStates::new(["m", "v"], groups)?),
            true => Moments::Three(ParamStates::new(["m", "v", "v_max"], groups)?),
        })
    }
}

/// The state of Adam: without the largest `v`, or with it for AMSGrad.
#[derive(Debug)]
enum Moments<T: Real> {
    Two(ParamStates<T, 2>),
    Three(ParamStates<T, 3>),
}

/// Calls a method of the states in either form.
macro_rules! either {
    ($moments:expr, $states:ident => $call:expr) => {
        match $moments {
            Moments::Two($states) => $call,
            Moments::Three($states) => $call,
        }
    };
}

impl<T: Real> Moments<T> {
    fn check(&self, grads: &Gradients<T>) -> Result<(), StepError> {
        either!(self, states => states.check(grads))
    }

    fn steps(&self) -> u64 {
        either!(self, states => states.steps())
    }

    fn state_dict(&self) -> StateDict<T> {
        either!(self, states => states.state_dict())
    }

    fn load_state_dict(&mut self, steps: u64, dict: &StateDict<T>) -> Result<(), LoadError> {
        either!(self, states => states.load_state_dict(steps, dict))
    }
}

/// The `n`-th step of a parameter. `m = β₁m + (1-β₁)g`, `v = β₂v + (1-β₂)g²`, and with `m̂` and
/// `v̂` corrected for their start at 0, `m̂ = m / (1 - β₁ⁿ)` and `v̂ = v / (1 - β₂ⁿ)`:
/// `p -= lr · m̂ / (√v̂ + eps)`.
#[derive(Clone, Copy)]
struct AdamStep {
    /// Multiplies the parameter: decoupled weight decay.
    shrink: f64,
    /// Times the parameter, is added to the gradient: coupled weight decay.
    decay: f64,
    betas: (f64, f64),
    /// `lr` over the correction of `m`.
    rate: f64,
    /// One over the root of the correction of `v`.
    root: f64,
    eps: f64,
}

impl AdamStep {
    /// The gradient, with coupled weight decay, in the averages.
    #[inline(always)]
    fn averages<T: Real, A: Algebra<T>>(self, [p, m, v, g]: [Expr<T, A>; 4]) -> [Expr<T, A>; 2] {
        let (b1, b2) = self.betas;
        let g = p.mul_add(self.decay, g);
        let m = m.mul_add(b1, (1.0 - b1) * g);
        let v = v.mul_add(b2, (1.0 - b2) * g * g);
        [normal_or_zero(m), normal_or_zero(v)]
    }

    /// The new parameter.
    #[inline(always)]
    fn moved<T: Real, A: Algebra<T>>(self, [p, m, v]: [Expr<T, A>; 3]) -> Expr<T, A> {
        let size = v.sqrt().mul_add(self.root, self.eps);
        p * self.shrink - quotient_or_zero(self.rate * m, size)
    }
}

impl<T: Real> Update<T, 3, 1> for AdamStep {
    const COST: Cost = Cost(600);
    #[inline(always)]
    fn f<A: Algebra<T>>(self, [p, m, v]: [Expr<T, A>; 3], [g]: [Expr<T, A>; 1]) -> [Expr<T, A>; 3] {
        let [m, v] = self.averages([p, m, v, g]);
        [self.moved([p, m, v]), m, v]
    }
}

/// AMSGrad: the same with the largest `v` so far in place of `v`.
#[derive(Clone, Copy)]
struct MaxStep(AdamStep);

impl<T: Real> Update<T, 4, 1> for MaxStep {
    const COST: Cost = Cost(700);
    #[inline(always)]
    fn f<A: Algebra<T>>(
        self,
        [p, m, v, max]: [Expr<T, A>; 4],
        [g]: [Expr<T, A>; 1],
    ) -> [Expr<T, A>; 4] {
        let [m, v] = self.0.averages([p, m, v, g]);
        let max = max.max(v);
        [self.0.moved([p, m, max]), m, v, max]
    }
}

/// Replaces subnormal numbers by 0. Where gradients are 0, averages decay through the subnormal
/// range, where arithmetic can be a hundred times slower.
#[inline(always)]
fn normal_or_zero<T: Real, A: Algebra<T>>(x: Expr<T, A>) -> Expr<T, A> {
    let is_normal = x.constant(T::MIN_POSITIVE.to_f64()).le(x.abs());
    (is_normal | x.is_nan()).select(x, 0.0)
}

/// `1 - β₁ⁿ` and `1 - β₂ⁿ` for the `n`-th step.
#[derive(Clone, Copy)]
struct Corrections {
    betas: (f64, f64),
    /// The steps before this one.
    steps: u64,
    factors: (f64, f64),
}

/// Computes the step of a parameter. Nearly always all parameters have the same decay rates and number
/// of steps, so the corrections of the last one are kept.
struct AdamRule {
    config: AdamConfig,
    decoupled: bool,
    last: Option<Corrections>,
}

impl AdamRule {
    #[inline(never)]
    fn take<T: Real>(
        mut self,
        moments: &mut Moments<T>,
        grads: &Gradients<T>,
    ) -> Result<(), StepError> {
        match moments {
            Moments::Two(states) => states.step("adam", grads, |slot| self.step(slot)),
            Moments::Three(states) => states.step("adam", grads, |slot| MaxStep(self.step(slot))),
        }
    }

    fn corrections(&mut self, betas: (f64, f64), steps: u64) -> (f64, f64) {
        let last = self.last.filter(|last| last.betas == betas && last.steps == steps);
        let corrections = last.unwrap_or_else(|| {
            let n = steps as f64 + 1.0;
            let factors = (1.0 - betas.0.powf(n), 1.0 - betas.1.powf(n));
            Corrections { betas, steps, factors }
        });
        self.last = Some(corrections);
        corrections.factors
    }

    fn step<T: Real, const N: usize>(&mut self, slot: &ParamState<T, N>) -> AdamStep {
        let (b1, b2) = slot.betas.unwrap_or(self.config.betas);
        let (fix1, fix2) = self.corrections((b1, b2), slot.steps);
        let (lr, decay) = (self.config.lr * slot.lr_scale, slot.weight_decay);
        let eps = slot.eps.unwrap_or(self.config.eps);
        AdamStep {
            shrink: if self.decoupled { 1.0 - lr * decay } else { 1.0 },
            decay: if self.decoupled { 0.0 } else { decay },
            betas: (b1, b2),
            rate: lr / fix1,
            root: 1.0 / fix2.sqrt(),
            eps,
        }
    }
}

optimizer! {
    /// Lion, the sign of an average: `p = (1 - lr · decay) · p - lr · sign(β₁ m + (1 - β₁) g)`, then
    /// `m = β₂ m + (1 - β₂) g`.
    ///
    /// The state is `m.<parameter>`. [`Lion::new`] decays parameters of rank 2 and more. Chen et al.
    /// 2023 (arXiv 2302.06675).
    Lion: LionConfig, ParamStates<T, 1>, Group::by_rank,
    |config, states, grads| states.step("lion", grads, |slot| {
        let lr = config.lr * slot.lr_scale;
        let betas = slot.betas.unwrap_or(config.betas);
        LionStep { lr, shrink: 1.0 - lr * slot.weight_decay, betas }
    })
}

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

impl LionConfig {
    fn states<T: Real>(&self, groups: Vec<Group<T>>) -> Result<ParamStates<T, 1>, ConfigError> {
        at_least_0("learning rate", self.lr)?;
        at_least_0("weight decay", self.weight_decay)?;
        in_unit_interval("beta 1", self.betas.0)?;
        in_unit_interval("beta 2", self.betas.1)?;
        no_eps("Lion", &groups)?;
        ParamStates::new(["m"], groups)
    }
}

#[derive(Clone, Copy)]
struct LionStep {
    lr: f64,
    shrink: f64,
    betas: (f64, f64),
}

impl<T: Real> Update<T, 2, 1> for LionStep {
    const COST: Cost = Cost::CHEAP;
    #[inline(always)]
    fn f<A: Algebra<T>>(self, [p, m]: [Expr<T, A>; 2], [g]: [Expr<T, A>; 1]) -> [Expr<T, A>; 2] {
        let (b1, b2) = self.betas;
        let update = m.mul_add(b1, (1.0 - b1) * g);
        let m = m.mul_add(b2, (1.0 - b2) * g);
        [update.sign().mul_add(-self.lr, p * self.shrink), m]
    }
}

optimizer! {
    /// RMSprop, gradients divided by the root of their average square, as in PyTorch:
    /// `g += decay · p`, `v = α v + (1 - α) g²`, and if centred `a = α a + (1 - α) g`, else `a = 0`;
    /// then `b = momentum · b + g / (√(v - a²) + eps)`, `p -= lr · b`.
    ///
    /// The state is `v.<parameter>`, `a.<parameter>` and `b.<parameter>`. Hinton 2012 (lecture 6e of
    /// Neural Networks for Machine Learning); Graves 2013 (arXiv 1308.0850) for the centred form.
    RmsProp: RmsPropConfig, ParamStates<T, 3>, Group::all,
    |config, states, grads| states.step("rms_prop", grads, |slot| RmsPropStep {
        lr: config.lr * slot.lr_scale,
        alpha: config.alpha,
        centre: if config.centered { 1.0 - config.alpha } else { 0.0 },
        eps: slot.eps.unwrap_or(config.eps),
        momentum: config.momentum,
        decay: slot.weight_decay,
    })
}

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

impl RmsPropConfig {
    fn states<T: Real>(&self, groups: Vec<Group<T>>) -> Result<ParamStates<T, 3>, ConfigError> {
        at_least_0("learning rate", self.lr)?;
        at_least_0("epsilon", self.eps)?;
        at_least_0("momentum", self.momentum)?;
        at_least_0("weight decay", self.weight_decay)?;
        in_unit_interval("alpha", self.alpha)?;
        no_betas("RMSprop", &groups)?;
        ParamStates::new(["v", "a", "b"], groups)
    }
}

#[derive(Clone, Copy)]
struct RmsPropStep {
    lr: f64,
    alpha: f64,
    /// `1 - α` if centred, else 0.
    centre: f64,
    eps: f64,
    momentum: f64,
    decay: f64,
}

impl<T: Real> Update<T, 4, 1> for RmsPropStep {
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

optimizer! {
    /// Adagrad, gradients divided by the root of the sum of their squares, as in PyTorch:
    /// `g += decay · p`, `s += g²`, `p -= lr / (1 + n · lr_decay) · g / (√s + eps)` after `n` steps.
    ///
    /// The state is `sum.<parameter>`. Duchi, Hazan, Singer 2011.
    Adagrad: AdagradConfig, ParamStates<T, 1>, Group::all,
    |config, states, grads| states.step("adagrad", grads, |slot| AdagradStep {
        lr: config.lr * slot.lr_scale / (1.0 + slot.steps as f64 * config.lr_decay),
        eps: slot.eps.unwrap_or(config.eps),
        decay: slot.weight_decay,
    })
}

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

impl AdagradConfig {
    fn states<T: Real>(&self, groups: Vec<Group<T>>) -> Result<ParamStates<T, 1>, ConfigError> {
        at_least_0("learning rate", self.lr)?;
        at_least_0("decay of the learning rate", self.lr_decay)?;
        at_least_0("epsilon", self.eps)?;
        at_least_0("weight decay", self.weight_decay)?;
        no_betas("Adagrad", &groups)?;
        ParamStates::new(["sum"], groups)
    }
}

#[derive(Clone, Copy)]
struct AdagradStep {
    lr: f64,
    eps: f64,
    decay: f64,
}

impl<T: Real> Update<T, 2, 1> for AdagradStep {
    const COST: Cost = Cost(600);
    #[inline(always)]
    fn f<A: Algebra<T>>(self, [p, sum]: [Expr<T, A>; 2], [g]: [Expr<T, A>; 1]) -> [Expr<T, A>; 2] {
        let g = p.mul_add(self.decay, g);
        let sum = g.mul_add(g, sum);
        let step = quotient_or_zero(g, sum.sqrt() + self.eps);
        [step.mul_add(-self.lr, p), sum]
    }
}
