//! The interface of optimisers, parameter groups, and errors of a step.

use crate::module::Module;
use crate::param::Param;
use crate::state::{LoadError, StateDict};
use retrograd_autograd::Gradients;
use retrograd_tensor::Real;
use std::fmt;

/// An optimiser: updates parameters, given gradients.
pub trait Optimizer<T: Real = f32> {
    /// Updates every trainable parameter.
    ///
    /// # Errors
    /// If a gradient is missing or not finite; then no parameter has been changed.
    fn step(&mut self, grads: &Gradients<T>) -> Result<(), StepError>;

    /// The error that [`Optimizer::step`] would return; changes nothing.
    /// `DataParallel` of the crate `distributed` calls it, so that all ranks take a step or none.
    ///
    /// # Errors
    /// As `step`. The default never returns one.
    fn check(&self, _grads: &Gradients<T>) -> Result<(), StepError> {
        Ok(())
    }

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

    /// The state of each parameter, by name (`m.<parameter>` and so on).
    fn state_dict(&self) -> StateDict<T>;

    /// Loads the state of a run after `steps` steps.
    ///
    /// # Errors
    /// If the state does not match the parameters; then nothing has been changed.
    fn load_state_dict(&mut self, steps: u64, dict: &StateDict<T>) -> Result<(), LoadError>;
}

/// A parameter group: parameters with the same options.
///
/// ```
/// use retrograd::prelude::*;
/// let (body, head) = (Linear::<f32>::new(3, 2, &mut Rng::new(1)), Linear::<f32>::new(2, 1, &mut Rng::new(2)));
/// let named = |prefix: &str, layer: &Linear| {
///     layer.named_parameters().into_iter().map(|(n, p)| (format!("{prefix}.{n}"), p)).collect()
/// };
/// let slow = Group { params: named("body", &body), lr_scale: 0.1, ..Group::default() };
/// let fast = Group { params: named("head", &head), eps: Some(1e-6), ..Group::default() };
/// assert!(AdamW::with_groups(vec![slow, fast], AdamConfig::default()).is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct Group<T: Real = f32> {
    /// The parameters by name.
    pub params: Vec<(String, Param<T>)>,
    /// Weight decay of these parameters.
    pub weight_decay: f64,
    /// Multiplies the learning rate of the optimiser.
    pub lr_scale: f64,
    /// Decay rates of averages, in place of the optimiser's. An error for an optimiser without betas.
    pub betas: Option<(f64, f64)>,
    /// The eps, in place of the optimiser's. An error for an optimiser without one.
    pub eps: Option<f64>,
}

impl<T: Real> Default for Group<T> {
    /// No parameters, no weight decay, and the options of the optimiser.
    fn default() -> Self {
        Group { params: Vec::new(), weight_decay: 0.0, lr_scale: 1.0, betas: None, eps: None }
    }
}

impl<T: Real> Group<T> {
    /// The parameters of a module in two groups: rank 2 and more (matrices and
    /// embeddings) with `weight_decay`, the others (biases and norms) without.
    pub fn by_rank(module: &impl Module<T>, weight_decay: f64) -> Vec<Group<T>> {
        let (decayed, rest) =
            module.named_parameters().into_iter().partition(|(_, p)| p.shape().rank() >= 2);
        let decayed = Group { params: decayed, weight_decay, ..Group::default() };
        vec![decayed, Group { params: rest, ..Group::default() }]
    }

    /// All parameters of a module in one group.
    pub fn all(module: &impl Module<T>, weight_decay: f64) -> Vec<Group<T>> {
        vec![Group { params: module.named_parameters(), weight_decay, ..Group::default() }]
    }
}

/// The reason why a step was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepError {
    /// Trainable parameters without a gradient: the loss does not depend on them.
    MissingGradient(Vec<String>),
    /// Parameters whose gradient contains NaN or an infinity.
    NotFinite(Vec<String>),
    /// Another rank of a job with several processes has this error.
    OtherRank(usize, Box<StepError>),
}

impl StepError {
    /// The names of the parameters.
    pub fn names(&self) -> &[String] {
        match self {
            StepError::MissingGradient(names) | StepError::NotFinite(names) => names,
            StepError::OtherRank(_, error) => error.names(),
        }
    }
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
            StepError::OtherRank(rank, error) => write!(f, "rank {rank}: {error}"),
        }
    }
}

impl std::error::Error for StepError {}
