//! Adam and AdamW.

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

    fn check(&self) -> Result<(), ConfigError> {
        at_least_0("learning rate", self.lr)?;
        at_least_0("epsilon", self.eps)?;
        at_least_0("weight decay", self.weight_decay)?;
        in_unit_interval("beta 1", self.betas.0)?;
        in_unit_interval("beta 2", self.betas.1)
    }
}

/// The implementation of both variants.
#[derive(Debug)]
struct Moments<T: Real> {
    config: AdamConfig,
    states: States<T>,
}

/// The state: without the largest `v`, or with it for AMSGrad.
#[derive(Debug)]
enum States<T: Real> {
    Two(ParamStates<T, 2>),
    Three(ParamStates<T, 3>),
}

/// The `n`-th step of a parameter. `m = β₁m + (1-β₁)g`, `v = β₂v + (1-β₂)g²`, and with `m̂` and
/// `v̂` corrected for their start at 0, `m̂ = m / (1 - β₁ⁿ)` and `v̂ = v / (1 - β₂ⁿ)`:
/// `p -= lr · m̂ / (√v̂ + eps)`.
#[derive(Clone, Copy)]
struct Step {
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

impl Step {
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

impl<T: Real> Update<T, 3, 1> for Step {
    const COST: Cost = Cost(600);
    #[inline(always)]
    fn f<A: Algebra<T>>(self, [p, m, v]: [Expr<T, A>; 3], [g]: [Expr<T, A>; 1]) -> [Expr<T, A>; 3] {
        let [m, v] = self.averages([p, m, v, g]);
        [self.moved([p, m, v]), m, v]
    }
}

/// AMSGrad: the same with the largest `v` so far in place of `v`.
#[derive(Clone, Copy)]
struct MaxStep(Step);

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
struct Rule {
    config: AdamConfig,
    decoupled: bool,
    last: Option<Corrections>,
}

impl Rule {
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

    fn step<T: Real, const N: usize>(&mut self, slot: &ParamState<T, N>) -> Step {
        let (b1, b2) = slot.betas.unwrap_or(self.config.betas);
        let (fix1, fix2) = self.corrections((b1, b2), slot.steps);
        let (lr, decay) = (self.config.lr * slot.lr_scale, slot.weight_decay);
        let eps = slot.eps.unwrap_or(self.config.eps);
        Step {
            shrink: if self.decoupled { 1.0 - lr * decay } else { 1.0 },
            decay: if self.decoupled { 0.0 } else { decay },
            betas: (b1, b2),
            rate: lr / fix1,
            root: 1.0 / fix2.sqrt(),
            eps,
        }
    }
}

impl<T: Real> Moments<T> {
    fn new(groups: Vec<Group<T>>, config: AdamConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let states = match config.amsgrad {
            false => States::Two(ParamStates::new(["m", "v"], groups)?),
            true => States::Three(ParamStates::new(["m", "v", "v_max"], groups)?),
        };
        Ok(Moments { config, states })
    }

    #[inline(never)]
    fn step(&mut self, grads: &Gradients<T>, decoupled: bool) -> Result<(), StepError> {
        let mut rule = Rule { config: self.config, decoupled, last: None };
        match &mut self.states {
            States::Two(states) => states.step("adam", grads, |slot| rule.step(slot)),
            States::Three(states) => states.step("adam", grads, |slot| MaxStep(rule.step(slot))),
        }
    }

    fn check(&self, grads: &Gradients<T>) -> Result<(), StepError> {
        match &self.states {
            States::Two(states) => states.check(grads),
            States::Three(states) => states.check(grads),
        }
    }

    fn steps(&self) -> u64 {
        match &self.states {
            States::Two(states) => states.steps(),
            States::Three(states) => states.steps(),
        }
    }

    fn state_dict(&self) -> StateDict<T> {
        match &self.states {
            States::Two(states) => states.state_dict(),
            States::Three(states) => states.state_dict(),
        }
    }

    fn load_state_dict(&mut self, steps: u64, dict: &StateDict<T>) -> Result<(), LoadError> {
        match &mut self.states {
            States::Two(states) => states.load_state_dict(steps, dict),
            States::Three(states) => states.load_state_dict(steps, dict),
        }
    }
}

macro_rules! adam {
    ($(#[$doc:meta])* $name:ident, $groups:path, $decoupled:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<T: Real = f32>(Moments<T>);

        impl<T: Real> $name<T> {
            /// An optimiser for the parameters of a module.
            ///
            /// # Errors
            /// If a hyperparameter is out of range.
            ///
            /// ```
            /// # use retrograd_nn::Linear;
            /// # use retrograd_nn::optim::{Adam, AdamConfig, Optimizer};
            /// # use retrograd_tensor::Tensor;
            /// # use retrograd_tensor::random::Rng;
            /// let layer = Linear::<f32>::without_bias(1, 1, &mut Rng::new(1));
            /// layer.weight.set(Tensor::from([[1.0]]));
            /// let config = AdamConfig { lr: 0.1, ..AdamConfig::default() };
            /// let mut adam = Adam::new(&layer, config).unwrap();
            /// adam.step(&layer.weight.to_var().sum(..).backward()).unwrap();
            /// assert!((layer.weight.value().item() - 0.9).abs() < 1e-6); // the first step is lr
            /// ```
            pub fn new(module: &impl Module<T>, config: AdamConfig) -> Result<Self, ConfigError> {
                Self::with_groups($groups(module, config.weight_decay), config)
            }

            /// An optimiser for groups, each with its own weight decay.
            ///
            /// # Errors
            /// If a hyperparameter is out of range, there is no parameter, or one (or its
            /// name) is given twice.
            pub fn with_groups(
                groups: Vec<Group<T>>,
                config: AdamConfig,
            ) -> Result<Self, ConfigError> {
                Moments::new(groups, config).map($name)
            }
        }

        impl<T: Real> Optimizer<T> for $name<T> {
            fn step(&mut self, grads: &Gradients<T>) -> Result<(), StepError> {
                self.0.step(grads, $decoupled)
            }

            fn check(&self, grads: &Gradients<T>) -> Result<(), StepError> {
                self.0.check(grads)
            }

            fn lr(&self) -> f64 {
                self.0.config.lr
            }

            #[track_caller]
            fn set_lr(&mut self, lr: f64) {
                self.0.config.lr = checked_lr(lr);
            }

            fn steps(&self) -> u64 {
                self.0.steps()
            }

            fn state_dict(&self) -> StateDict<T> {
                self.0.state_dict()
            }

            fn load_state_dict(
                &mut self,
                steps: u64,
                dict: &StateDict<T>,
            ) -> Result<(), LoadError> {
                self.0.load_state_dict(steps, dict)
            }
        }
    };
}

adam! {
    /// Adam: weight decay, if any, is added to the gradient. Kingma, Ba 2014 (arXiv 1412.6980).
    ///
    /// The bias correction uses the number of steps of each parameter, as in PyTorch: steps while
    /// it was frozen do not count. The state is `m.<parameter>`, `v.<parameter>`, and
    /// `step.<parameter>` for parameters with fewer steps than the optimiser; loading assumes the
    /// count of the optimiser where it is missing. With `amsgrad` there is `v_max.<parameter>`, too.
    Adam, Group::all, false
}

adam! {
    /// Adam with decoupled weight decay: parameters shrink by `lr · decay` at each step,
    /// whatever their gradient. Loshchilov, Hutter 2017 (arXiv 1711.05101). Steps are counted as
    /// in [`Adam`].
    AdamW, Group::by_rank, true
}
