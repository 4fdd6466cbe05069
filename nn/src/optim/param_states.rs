//! The state of an optimiser: tensors for each parameter, updated in one pass.

use super::hyperparameters::{at_least_0, in_unit_interval};
use super::optimizer::{Group, StepError};
use super::step_count;
use crate::config_error::ConfigError;
use crate::param::Param;
use crate::state::{LoadError, StateDict};
use retrograd_autograd::Gradients;
use retrograd_tensor::formula::{Algebra, Expr};
use retrograd_tensor::kernels::update::{Item, Update, update_all};
use retrograd_tensor::par::span;
use retrograd_tensor::{Real, Tensor};

/// A parameter and its optimiser state: `N` tensors of its shape.
#[derive(Debug)]
pub struct ParamState<T: Real, const N: usize> {
    /// The name of the parameter, which is part of the names of the state dict.
    pub name: String,
    /// The parameter.
    pub param: Param<T>,
    /// Weight decay, as in [`Group`].
    pub weight_decay: f64,
    /// Multiplies the learning rate, as in [`Group`].
    pub lr_scale: f64,
    /// Decay rates of averages, in place of the optimiser's, as in [`Group`].
    pub betas: Option<(f64, f64)>,
    /// The eps, in place of the optimiser's, as in [`Group`].
    pub eps: Option<f64>,
    /// The state, initially 0.
    pub state: [Tensor<T>; N],
    /// The number of steps that updated the parameter, without those while it was frozen.
    pub steps: u64,
}

impl<T: Real, const N: usize> ParamState<T, N> {
    fn count(&mut self) {
        self.steps = self.steps.saturating_add(1);
    }
}

/// The parameters of an optimiser, each with `N` state tensors of its shape: what the optimisers of
/// this module are written with.
///
/// It checks gradients, skips frozen parameters, counts steps, and saves and loads the state. A step is
/// written as operations on tensors ([`ParamStates::step_each`], see
/// [the example](super#an-optimiser-of-your-own)) or as a formula that is evaluated on all parameters
/// in one pass ([`ParamStates::step`]).
///
/// In state dicts, tensors are named `<state>.<parameter>`. For parameters with fewer steps than the
/// optimiser there is `step.<parameter>`, their number of steps; loading assumes the number of the
/// optimiser where it is missing.
#[derive(Debug)]
pub struct ParamStates<T: Real, const N: usize> {
    names: [&'static str; N],
    pub(super) slots: Vec<ParamState<T, N>>,
    steps: u64,
}

impl<T: Real, const N: usize> ParamStates<T, N> {
    /// States of 0, with a name for each, for the parameters of groups.
    ///
    /// # Errors
    /// If an option of a group is out of range, there is no parameter, or one (or its name) is given
    /// twice; if a name of a state is empty, contains a dot, is given twice or is `step`.
    #[inline(never)]
    pub fn new(names: [&'static str; N], groups: Vec<Group<T>>) -> Result<Self, ConfigError> {
        for (i, name) in names.iter().enumerate() {
            let taken = *name == step_count::NAME || names[..i].contains(name);
            if taken || name.is_empty() || name.contains('.') {
                return Err(ConfigError(format!("{name:?} cannot be the name of a state")));
            }
        }
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
        Ok(ParamStates { names, slots, steps: 0 })
    }

    /// Takes a step in one pass over all trainable parameters: `rule` returns the formula of each, which
    /// replaces the parameter and its `N` state tensors, given the gradient. `name` is shown in errors
    /// of the kernel. The bits do not depend on the number of threads or on the instruction set.
    ///
    /// # Errors
    /// If a gradient is missing or not finite; then nothing has been changed.
    ///
    /// ```
    /// use retrograd::nn::optim::ParamStates;
    /// use retrograd::prelude::*;
    /// use retrograd::tensor::{cost::Cost, formula::{Algebra, Expr}, kernels::update::Update};
    ///
    /// /// `v = 0.9 v + g`, `p -= lr · v`.
    /// #[derive(Clone, Copy)]
    /// struct Momentum {
    ///     lr: f64,
    /// }
    ///
    /// impl Update<f32, 2, 1> for Momentum {
    ///     const COST: Cost = Cost::CHEAP;
    ///     #[inline(always)]
    ///     fn f<A: Algebra<f32>>(self, [p, v]: [Expr<f32, A>; 2], [g]: [Expr<f32, A>; 1]) -> [Expr<f32, A>; 2] {
    ///         let v = v.mul_add(0.9, g);
    ///         [v.mul_add(-self.lr, p), v]
    ///     }
    /// }
    ///
    /// let p = Param::new(Tensor::from([1.0f32, 2.0]));
    /// let group = Group { params: vec![("p".into(), p.clone())], ..Group::default() };
    /// let mut states = ParamStates::new(["velocity"], vec![group]).unwrap();
    /// let grads = p.to_var().sum(..).backward(); // 1
    /// states.step("momentum", &grads, |slot| Momentum { lr: 0.5 * slot.lr_scale }).unwrap();
    /// assert_eq!(p.value().to_vec(), [0.5, 1.5]);
    /// ```
    pub fn step<U: Update<T, W, 1>, const W: usize>(
        &mut self,
        name: &'static str,
        grads: &Gradients<T>,
        mut rule: impl FnMut(&ParamState<T, N>) -> U,
    ) -> Result<(), StepError> {
        const { assert!(W == N + 1, "the parameter and its state") };
        let _span = span(name);
        self.check(grads)?;
        let (mut params, mut rest) = (Vec::new(), Vec::new());
        for slot in self.slots.iter_mut().filter(|s| s.param.is_trainable()) {
            let op = rule(slot);
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
        // After what can fail for lack of memory.
        self.slots.iter_mut().filter(|s| s.param.is_trainable()).for_each(ParamState::count);
        self.steps = self.steps.saturating_add(1);
        Ok(())
    }

    /// Takes a step parameter by parameter: `f` updates each trainable parameter and its state, given
    /// the gradient. [`ParamState::steps`] is the number of steps before this one.
    ///
    /// # Errors
    /// If a gradient is missing or not finite; then nothing has been changed.
    pub fn step_each(
        &mut self,
        grads: &Gradients<T>,
        mut f: impl FnMut(&mut ParamState<T, N>, &Tensor<T>),
    ) -> Result<(), StepError> {
        self.check(grads)?;
        for slot in self.slots.iter_mut().filter(|s| s.param.is_trainable()) {
            let g = grads.by_id(slot.param.id()).expect("checked above");
            f(slot, g);
            slot.count();
        }
        self.steps = self.steps.saturating_add(1);
        Ok(())
    }

    /// Number of steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The parameters with their state, in the order of the groups.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &ParamState<T, N>> {
        self.slots.iter()
    }

    /// Checks that every trainable parameter has a finite gradient.
    ///
    /// # Errors
    /// If one is missing or not finite; the error has the names of all such parameters.
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

    /// The state by name: `<state>.<parameter>`, and `step.<parameter>` for parameters with fewer steps
    /// than the optimiser.
    pub fn state_dict(&self) -> StateDict<T> {
        let mut dict = StateDict::new();
        for slot in &self.slots {
            for (name, state) in self.names.iter().zip(&slot.state) {
                dict.insert(format!("{name}.{}", slot.name), state.clone());
            }
            if slot.steps != self.steps {
                dict.insert(step_count::key(&slot.name), step_count::to_tensor(slot.steps));
            }
        }
        dict
    }

    /// Loads the state of a run after `steps` steps.
    ///
    /// # Errors
    /// If the state does not match the parameters; then nothing has been changed.
    pub fn load_state_dict(&mut self, steps: u64, dict: &StateDict<T>) -> Result<(), LoadError> {
        let counts = self.check_state_dict(steps, dict)?;
        for (slot, count) in self.slots.iter_mut().zip(counts) {
            for (name, state) in self.names.iter().zip(&mut slot.state) {
                *state = dict[&format!("{name}.{}", slot.name)].contiguous();
            }
            slot.steps = count;
        }
        self.steps = steps;
        Ok(())
    }

    /// The step counts of all parameters, if a state dict can be loaded.
    pub(super) fn check_state_dict(
        &self,
        steps: u64,
        dict: &StateDict<T>,
    ) -> Result<Vec<u64>, LoadError> {
        let (mut error, mut known) = (LoadError::default(), Vec::new());
        let mut counts = Vec::new();
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
            let name = step_count::key(&slot.name);
            match dict.get(&name).map_or(Some(steps), step_count::from_tensor) {
                Some(count) => counts.push(count),
                None => error.invalid.push((name.clone(), step_count::EXPECTED.to_string())),
            }
            known.push(name);
        }
        error.unexpected = dict.keys().filter(|name| !known.contains(name)).cloned().collect();
        if error == LoadError::default() { Ok(counts) } else { Err(error) }
    }
}

/// `a / b`, and 0 where `b` is 0: with an `eps` of 0 and only zero gradients so far, a step is 0 and not
/// `0 / 0`.
#[inline(always)]
pub(super) fn quotient_or_zero<T: Real, A: Algebra<T>>(a: Expr<T, A>, b: Expr<T, A>) -> Expr<T, A> {
    b.eq(0.0).select(0.0, a / b)
}
