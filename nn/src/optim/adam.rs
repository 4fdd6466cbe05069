//! Adam and AdamW.

use super::hyperparameters::{at_least_0, checked_lr, in_unit_interval};
use super::optimizer::{Group, Optimizer, StepError};
use super::param_states::ParamStates;
use crate::config_error::ConfigError;
use crate::module::Module;
use crate::state::{LoadError, StateDict};
use retrograd_autograd::Gradients;
use retrograd_tensor::cost::Cost;
use retrograd_tensor::kernels::update::Update;
use retrograd_tensor::simd::Lanes;
use retrograd_tensor::{Real, Tensor};

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
}

impl Default for AdamConfig {
    /// PyTorch's defaults for `Adam`, without weight decay; for `AdamW` see
    /// [`AdamConfig::decoupled`].
    fn default() -> Self {
        AdamConfig { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0 }
    }
}

impl AdamConfig {
    /// PyTorch's defaults for `AdamW`: the same but for a weight decay of 0.01.
    ///
    /// ```
    /// # use retrograd_nn::optim::AdamConfig;
    /// assert_eq!(AdamConfig::decoupled().weight_decay, 0.01);
    /// ```
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
    slots: ParamStates<T, 2>,
    steps: u64,
}

/// The `n`-th step of a parameter. `m = β₁m + (1-β₁)g`, `v = β₂v + (1-β₂)g²`, and with `m̂` and
/// `v̂` corrected for their start at 0, `m̂ = m / (1 - β₁ⁿ)` and `v̂ = v / (1 - β₂ⁿ)`:
/// `p -= lr · m̂ / (√v̂ + eps)`.
#[derive(Clone, Copy)]
struct Step<T> {
    /// Multiplies the parameter: decoupled weight decay.
    shrink: T,
    /// Times the parameter, is added to the gradient: coupled weight decay.
    decay: T,
    beta: (T, T),
    one_minus_beta: (T, T),
    /// `lr` over the correction of `m`.
    rate: T,
    /// One over the root of the correction of `v`.
    root: T,
    eps: T,
}

impl<T: Real> Update<T, 3, 1> for Step<T> {
    const COST: Cost = Cost(600);
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, [p, m, v]: [S::V; 3], [g]: [S::V; 1]) -> [S::V; 3] {
        let g = s.fma(s.splat(self.decay), p, g);
        let m = s.fma(s.splat(self.beta.0), m, s.mul(s.splat(self.one_minus_beta.0), g));
        let v = s.fma(s.splat(self.beta.1), v, s.mul(s.mul(s.splat(self.one_minus_beta.1), g), g));
        let (m, v) = (normal_or_zero(s, m), normal_or_zero(s, v));
        let size = s.fma(s.sqrt(v), s.splat(self.root), s.splat(self.eps));
        // With eps = 0 and only zero gradients so far, the step is 0 and not 0/0.
        let still = s.eq(size, s.splat(T::ZERO));
        let step = s.select(still, s.splat(T::ZERO), s.div(s.mul(s.splat(self.rate), m), size));
        [s.sub(s.mul(p, s.splat(self.shrink)), step), m, v]
    }
}

/// Replaces subnormal numbers by 0. Where gradients are 0, averages decay through the subnormal
/// range, where arithmetic can be a hundred times slower.
#[inline(always)]
fn normal_or_zero<T: Real, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    let normal = s.le(s.splat(T::MIN_POSITIVE), s.abs(x));
    s.select(s.or(normal, s.is_nan(x)), x, s.splat(T::ZERO))
}

impl<T: Real> Moments<T> {
    fn new(groups: Vec<Group<T>>, config: AdamConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Moments { config, slots: ParamStates::new(["m", "v"], groups)?, steps: 0 })
    }

    #[inline(never)]
    fn step(&mut self, grads: &Gradients<T>, decoupled: bool) -> Result<(), StepError> {
        let AdamConfig { lr, betas, eps, .. } = self.config;
        let corrections = |(b1, b2): (f64, f64), steps: u64| {
            let n = steps as f64 + 1.0;
            (1.0 - b1.powf(n), 1.0 - b2.powf(n))
        };
        // Nearly always all parameters have the same decay rates and number of steps.
        let mut last = ((betas, self.steps), corrections(betas, self.steps));
        self.slots.step("adam", grads, |slot| {
            let betas = slot.betas.unwrap_or(betas);
            if (betas, slot.steps) != last.0 {
                last = ((betas, slot.steps), corrections(betas, slot.steps));
            }
            let ((b1, b2), (decay, (fix1, fix2))) = (betas, (slot.weight_decay, last.1));
            let (lr, eps) = (lr * slot.lr_scale, slot.eps.unwrap_or(eps));
            Step {
                shrink: T::from_f64(if decoupled { 1.0 - lr * decay } else { 1.0 }),
                decay: T::from_f64(if decoupled { 0.0 } else { decay }),
                beta: (T::from_f64(b1), T::from_f64(b2)),
                one_minus_beta: (T::from_f64(1.0 - b1), T::from_f64(1.0 - b2)),
                rate: T::from_f64(lr / fix1),
                root: T::from_f64(1.0 / fix2.sqrt()),
                eps: T::from_f64(eps),
            }
        })?;
        self.steps = self.steps.saturating_add(1);
        Ok(())
    }

    /// Step counts are stored only for parameters that have taken fewer steps than the optimiser.
    fn state_dict(&self) -> StateDict<T> {
        let mut dict = self.slots.state_dict();
        for slot in self.slots.slots.iter().filter(|slot| slot.steps != self.steps) {
            dict.insert(format!("step.{}", slot.name), count_to_tensor(slot.steps));
        }
        dict
    }

    fn load_state_dict(&mut self, steps: u64, dict: &StateDict<T>) -> Result<(), LoadError> {
        let (mut rest, mut counts, mut invalid) = (dict.clone(), Vec::new(), Vec::new());
        for slot in &self.slots.slots {
            let name = format!("step.{}", slot.name);
            let count = rest.remove(&name).map_or(Some(steps), |count| tensor_to_count(&count));
            if count.is_none() {
                invalid.push((name, "a whole number of steps, at least 0".to_string()));
            }
            counts.push(count);
        }
        self.slots.load_state_dict(&rest, invalid)?;
        self.steps = steps;
        for (slot, count) in self.slots.slots.iter_mut().zip(counts) {
            slot.steps = count.expect("checked");
        }
        Ok(())
    }
}

/// Bits of a count in one element: `f32` represents all integers below 2²⁴.
const COUNT_BITS: u32 = 24;

/// A count as a tensor: of rank 0, as in PyTorch, or, if it has more than 24 bits, of rank 1, the
/// lowest 24 bits first.
fn count_to_tensor<T: Real>(count: u64) -> Tensor<T> {
    let digit = |i: u32| T::from_f64((count >> (i * COUNT_BITS) & ((1 << COUNT_BITS) - 1)) as f64);
    match count >> COUNT_BITS {
        0 => Tensor::scalar(digit(0)),
        _ => Tensor::from_vec((0..u64::BITS.div_ceil(COUNT_BITS)).map(digit).collect(), [3]),
    }
}

/// The inverse of [`count_to_tensor`]; `None` for an invalid count. A single element may be any
/// integer.
fn tensor_to_count<T: Real>(tensor: &Tensor<T>) -> Option<u64> {
    let digits: Vec<f64> = tensor.to_vec().into_iter().map(|x| x.to_f64()).collect();
    let below = |bits: u32| (bits as f64).exp2();
    let most = if digits.len() == 1 { below(u64::BITS) } else { below(COUNT_BITS) };
    if digits.is_empty() || digits.iter().any(|&x| !(0.0 <= x && x < most && x.fract() == 0.0)) {
        return None;
    }
    let add = |sum: u64, &x: &f64| sum.checked_mul(1 << COUNT_BITS)?.checked_add(x as u64);
    digits.iter().rev().try_fold(0, add)
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
            ///
            /// ```
            /// # use retrograd_nn::Linear;
            /// # use retrograd_nn::optim::{AdamConfig, AdamW, Group};
            /// # use retrograd_tensor::random::Rng;
            /// let layer = Linear::<f32>::new(3, 2, &mut Rng::new(1));
            /// let adam = AdamW::with_groups(Group::by_rank(&layer, 0.1), AdamConfig::decoupled());
            /// assert!(adam.is_ok());
            /// ```
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

            fn lr(&self) -> f64 {
                self.0.config.lr
            }

            #[track_caller]
            fn set_lr(&mut self, lr: f64) {
                self.0.config.lr = checked_lr(lr);
            }

            fn steps(&self) -> u64 {
                self.0.steps
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
    /// count of the optimiser where it is missing.
    Adam, Group::all, false
}

adam! {
    /// Adam with decoupled weight decay: parameters shrink by `lr · decay` at each step,
    /// whatever their gradient. Loshchilov, Hutter 2017 (arXiv 1711.05101). Steps are counted as
    /// in [`Adam`].
    AdamW, Group::by_rank, true
}
