//! Optimisers.
//!
//! A step is one pass over all parameters with everything fused into it. It is taken for all
//! parameters or for none: a parameter without a gradient, or with one that is not finite,
//! is an error that names it.

mod adam;
mod sgd;

pub use adam::{Adam, AdamConfig, AdamW};
pub use sgd::{Sgd, SgdConfig};

use crate::config_error::ConfigError;
use crate::module::Module;
use crate::param::Param;
use crate::state::{LoadError, StateDict};
use retrograd_autograd::Gradients;
use retrograd_tensor::kernels::update::{Item, Update, update_all};
use retrograd_tensor::{Real, Tensor};
use std::fmt;

/// Something that improves parameters, given gradients.
pub trait Optimizer<T: Real = f32> {
    /// Changes every trainable parameter.
    ///
    /// # Errors
    /// If one has no gradient or one that is not finite; then none has been changed.
    fn step(&mut self, grads: &Gradients<T>) -> Result<(), StepError>;

    /// The learning rate.
    fn lr(&self) -> f64;

    /// Sets the learning rate for the steps to come.
    ///
    /// # Panics
    /// If it is negative or not finite.
    #[track_caller]
    fn set_lr(&mut self, lr: f64);

    /// Number of steps taken.
    fn steps(&self) -> u64;

    /// What it remembers of each parameter, by name (`m.<parameter>` and so on).
    fn state_dict(&self) -> StateDict<T>;

    /// Takes up the state of a run that had taken `steps` steps.
    ///
    /// # Errors
    /// If the state does not fit; then nothing has been changed.
    fn load_state_dict(&mut self, steps: u64, dict: &StateDict<T>) -> Result<(), LoadError>;
}

/// Parameters that are treated alike.
#[derive(Clone, Debug)]
pub struct Group<T: Real = f32> {
    /// The parameters by name.
    pub params: Vec<(String, Param<T>)>,
    /// Weight decay of these parameters.
    pub weight_decay: f64,
}

impl<T: Real> Group<T> {
    /// The parameters of a module in two groups: those of rank 2 and more (matrices and
    /// embeddings) with `weight_decay`, the others (biases and norms) without.
    pub fn by_rank(module: &impl Module<T>, weight_decay: f64) -> Vec<Group<T>> {
        let (decayed, rest) =
            module.named_parameters().into_iter().partition(|(_, p)| p.shape().rank() >= 2);
        vec![Group { params: decayed, weight_decay }, Group { params: rest, weight_decay: 0.0 }]
    }

    /// All parameters of a module in one group.
    pub fn all(module: &impl Module<T>, weight_decay: f64) -> Vec<Group<T>> {
        vec![Group { params: module.named_parameters(), weight_decay }]
    }
}

/// Why a step was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepError {
    /// Trainable parameters without a gradient: they have no part in the loss.
    MissingGradient(Vec<String>),
    /// Parameters whose gradient holds NaN or an infinity.
    NotFinite(Vec<String>),
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepError::MissingGradient(names) => write!(
                f,
                "no step was taken: no gradient for {} (hint: freeze parameters that have no part \
                 in the loss)",
                names.join(", ")
            ),
            StepError::NotFinite(names) => {
                write!(f, "no step was taken: the gradient is not finite for {}", names.join(", "))
            }
        }
    }
}

impl std::error::Error for StepError {}

/// A parameter with what the optimiser remembers of it: `N` tensors of its shape.
#[derive(Debug)]
struct Slot<T: Real, const N: usize> {
    name: String,
    param: Param<T>,
    weight_decay: f64,
    memory: [Tensor<T>; N],
    /// Steps that changed it: not those while it was frozen.
    steps: u64,
}

/// All slots of an optimiser, whose memories are named `NAMES`.
#[derive(Debug)]
struct Slots<T: Real, const N: usize> {
    names: [&'static str; N],
    slots: Vec<Slot<T, N>>,
}

impl<T: Real, const N: usize> Slots<T, N> {
    #[inline(never)]
    fn new(names: [&'static str; N], groups: Vec<Group<T>>) -> Result<Self, ConfigError> {
        let mut slots: Vec<Slot<T, N>> = Vec::new();
        for group in groups {
            at_least_0("weight decay", group.weight_decay)?;
            for (name, param) in group.params {
                if slots.iter().any(|s| s.param.id() == param.id()) {
                    return Err(ConfigError(format!("parameter {name} is given twice")));
                }
                // Their state would be saved under one name.
                if slots.iter().any(|s| s.name == name) {
                    return Err(ConfigError(format!("two parameters are named {name}")));
                }
                let memory = std::array::from_fn(|_| Tensor::zeros(param.shape()));
                let weight_decay = group.weight_decay;
                slots.push(Slot { name, param, weight_decay, memory, steps: 0 });
            }
        }
        if slots.is_empty() {
            return Err(ConfigError("there is no parameter to optimise".into()));
        }
        Ok(Slots { names, slots })
    }

    /// Takes a step: `rule` gives the formula of each slot, which replaces the parameter and its
    /// memories, given the gradient. All of it is one pass, once it is clear that every
    /// parameter can be changed.
    fn step<U: Update<T, W, 1>, const W: usize>(
        &mut self,
        name: &'static str,
        grads: &Gradients<T>,
        mut rule: impl FnMut(&Slot<T, N>) -> U,
    ) -> Result<(), StepError> {
        const { assert!(W == N + 1, "the parameter and its memories") };
        let named = |wrong: &dyn Fn(&Slot<T, N>) -> bool| -> Vec<String> {
            let trained = self.slots.iter().filter(|s| s.param.is_trainable());
            trained.filter(|s| wrong(s)).map(|s| s.name.clone()).collect()
        };
        let missing = named(&|s| grads.by_id(s.param.id()).is_none());
        if !missing.is_empty() {
            return Err(StepError::MissingGradient(missing));
        }
        let not_finite = grads.not_finite();
        let wild = named(&|s| not_finite.contains(&s.param.id()));
        if !wild.is_empty() {
            return Err(StepError::NotFinite(wild));
        }
        let (mut params, mut rest) = (Vec::new(), Vec::new());
        for slot in self.slots.iter_mut().filter(|s| s.param.is_trainable()) {
            let op = rule(slot);
            slot.steps = slot.steps.saturating_add(1);
            params.push(&slot.param);
            let g = grads.by_id(slot.param.id()).expect("checked above");
            rest.push((op, &mut slot.memory, g));
        }
        Param::update_all(&params, |values| {
            let items = values.into_iter().zip(rest).map(|(value, (op, memory, g))| {
                let mut w = Some(value).into_iter().chain(memory);
                let w = std::array::from_fn(|_| w.next().expect("one more than memories"));
                Item { op, w, r: [g] }
            });
            update_all(name, items.collect());
        });
        Ok(())
    }

    fn state_dict(&self) -> StateDict<T> {
        let mut dict = StateDict::new();
        for slot in &self.slots {
            for (name, memory) in self.names.iter().zip(&slot.memory) {
                dict.insert(format!("{name}.{}", slot.name), memory.clone());
            }
        }
        dict
    }

    /// `invalid` is what the optimiser has found wrong in the rest of its state.
    fn load_state_dict(
        &mut self,
        dict: &StateDict<T>,
        invalid: Vec<(String, String)>,
    ) -> Result<(), LoadError> {
        let mut error = LoadError { invalid, ..LoadError::default() };
        let mut known = Vec::new();
        for slot in &self.slots {
            for name in self.names {
                let name = format!("{name}.{}", slot.name);
                match dict.get(&name) {
                    None => error.missing.push(name.clone()),
                    Some(value) if *value.shape() != slot.param.shape() => {
                        error.misshapen.push((name.clone(), slot.param.shape(), *value.shape()));
                    }
                    Some(_) => {}
                }
                known.push(name);
            }
        }
        error.unexpected = dict.keys().filter(|name| !known.contains(name)).cloned().collect();
        if error != LoadError::default() {
            return Err(error);
        }
        for slot in &mut self.slots {
            for (name, memory) in self.names.iter().zip(&mut slot.memory) {
                *memory = dict[&format!("{name}.{}", slot.name)].contiguous();
            }
        }
        Ok(())
    }
}

/// Checks a hyperparameter.
fn at_least_0(name: &str, x: f64) -> Result<(), ConfigError> {
    if x.is_finite() && x >= 0.0 {
        return Ok(());
    }
    Err(ConfigError(format!("the {name} must be finite and at least 0, got {x}")))
}

/// Checks the argument of [`Optimizer::set_lr`].
#[track_caller]
fn new_lr(lr: f64) -> f64 {
    match at_least_0("learning rate", lr) {
        Ok(()) => lr,
        Err(e) => panic!("set_lr: {e}"),
    }
}

/// Checks a decay rate of an average.
fn in_unit(name: &str, x: f64) -> Result<(), ConfigError> {
    if (0.0..1.0).contains(&x) {
        return Ok(());
    }
    Err(ConfigError(format!("{name} must be in [0, 1), got {x}")))
}
