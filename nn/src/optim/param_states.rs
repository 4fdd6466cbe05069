//! The state of an optimiser: tensors for each parameter, updated in one pass.

use super::hyperparameters::{at_least_0, in_unit_interval};
use super::optimizer::{Group, StepError};
use crate::config_error::ConfigError;
use crate::param::Param;
use crate::state::{LoadError, StateDict};
use retrograd_autograd::Gradients;
use retrograd_tensor::kernels::update::{Item, Update, update_all};
use retrograd_tensor::{Real, Tensor};

/// A parameter and its optimiser state: `N` tensors of its shape.
#[derive(Debug)]
pub(super) struct ParamState<T: Real, const N: usize> {
    pub name: String,
    pub param: Param<T>,
    pub weight_decay: f64,
    pub lr_scale: f64,
    pub betas: Option<(f64, f64)>,
    pub eps: Option<f64>,
    pub state: [Tensor<T>; N],
    /// The number of steps that updated the parameter, without those while it was frozen.
    pub steps: u64,
}

/// All slots of an optimiser, with the names of the `N` state tensors.
#[derive(Debug)]
pub(super) struct ParamStates<T: Real, const N: usize> {
    pub names: [&'static str; N],
    pub slots: Vec<ParamState<T, N>>,
}

impl<T: Real, const N: usize> ParamStates<T, N> {
    #[inline(never)]
    pub fn new(names: [&'static str; N], groups: Vec<Group<T>>) -> Result<Self, ConfigError> {
        let mut slots: Vec<ParamState<T, N>> = Vec::new();
        for group in groups {
            let Group { weight_decay, lr_scale, betas, eps, .. } = group;
            at_least_0("weight decay", weight_decay)?;
            at_least_0("scale of the learning rate", lr_scale)?;
            at_least_0("epsilon", eps.unwrap_or(0.0))?;
            for beta in betas.into_iter().flat_map(|(a, b)| [a, b]) {
                in_unit_interval("a beta", beta)?;
            }
            for (name, param) in group.params {
                if slots.iter().any(|s| s.param.id() == param.id()) {
                    return Err(ConfigError(format!("parameter {name} is given twice")));
                }
                // State dicts cannot have two entries of one name.
                if slots.iter().any(|s| s.name == name) {
                    return Err(ConfigError(format!("two parameters are named {name}")));
                }
                let state = std::array::from_fn(|_| Tensor::zeros(param.shape()));
                slots.push(ParamState {
                    name,
                    param,
                    weight_decay,
                    lr_scale,
                    betas,
                    eps,
                    state,
                    steps: 0,
                });
            }
        }
        if slots.is_empty() {
            return Err(ConfigError("there is no parameter to optimise".into()));
        }
        Ok(ParamStates { names, slots })
    }

    /// Takes a step: `rule` returns the formula of each slot, which updates the parameter and its
    /// state, given the gradient. After all gradients have been checked, the update is one pass.
    pub fn step<U: Update<T, W, 1>, const W: usize>(
        &mut self,
        name: &'static str,
        grads: &Gradients<T>,
        mut rule: impl FnMut(&ParamState<T, N>) -> U,
    ) -> Result<(), StepError> {
        const { assert!(W == N + 1, "the parameter and its state") };
        self.check(grads)?;
        let (mut params, mut rest) = (Vec::new(), Vec::new());
        for slot in self.slots.iter_mut().filter(|s| s.param.is_trainable()) {
            let op = rule(slot);
            slot.steps = slot.steps.saturating_add(1);
            params.push(&slot.param);
            let g = grads.by_id(slot.param.id()).expect("checked above");
            rest.push((op, &mut slot.state, g));
        }
        Param::update_all(&params, |values| {
            let items = values.into_iter().zip(rest).map(|(value, (op, state, g))| {
                let mut w = Some(value).into_iter().chain(state);
                let w = std::array::from_fn(|_| w.next().expect("one more than state tensors"));
                Item { op, w, r: [g] }
            });
            update_all(name, items.collect());
        });
        Ok(())
    }

    /// Sets the number of steps of every parameter.
    pub fn set_steps(&mut self, steps: u64) {
        self.slots.iter_mut().for_each(|slot| slot.steps = steps);
    }

    /// Checks that every trainable parameter has a finite gradient.
    pub fn check(&self, grads: &Gradients<T>) -> Result<(), StepError> {
        let named = |wrong: &dyn Fn(&ParamState<T, N>) -> bool| -> Vec<String> {
            let trained = self.slots.iter().filter(|s| s.param.is_trainable());
            trained.filter(|s| wrong(s)).map(|s| s.name.clone()).collect()
        };
        let missing = named(&|s| grads.by_id(s.param.id()).is_none());
        if !missing.is_empty() {
            return Err(StepError::MissingGradient(missing));
        }
        let ids = grads.not_finite();
        let non_finite = named(&|s| ids.contains(&s.param.id()));
        if !non_finite.is_empty() {
            return Err(StepError::NotFinite(non_finite));
        }
        Ok(())
    }

    pub fn state_dict(&self) -> StateDict<T> {
        let mut dict = StateDict::new();
        for slot in &self.slots {
            for (name, state) in self.names.iter().zip(&slot.state) {
                dict.insert(format!("{name}.{}", slot.name), state.clone());
            }
        }
        dict
    }

    /// Loads the state; `invalid` lists errors that the optimiser found in the rest of the dict.
    pub fn load_state_dict(
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
                        error.mismatched.push((name.clone(), slot.param.shape(), *value.shape()));
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
            for (name, state) in self.names.iter().zip(&mut slot.state) {
                *state = dict[&format!("{name}.{}", slot.name)].contiguous();
            }
        }
        Ok(())
    }
}
