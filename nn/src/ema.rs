//! Averages of weights.

use crate::config_error::ConfigError;
use crate::module::Module;
use crate::param::Param;
use crate::state::{LoadError, StateDict, load};
use retrograd_tensor::{Real, Tensor};

/// The exponential moving average of the parameters of a model: `a ← d · a + (1 - d) · w` after each step.
///
/// The average is less noisy than the weights, and often has a lower loss while the learning rate is
/// high. It starts with the weights at its construction. With [`Ema::with_warmup`], `d` is at most `(1 + n) /
/// (10 + n)` at update `n`, counted from 0, so that early weights are soon forgotten. Polyak, Juditsky 1992;
/// the warm-up is as in TensorFlow's `ExponentialMovingAverage`. `AveragedModel` with
/// `get_ema_multi_avg_fn` in PyTorch.
///
/// ```
/// use retrograd::nn::Ema;
/// use retrograd::prelude::*;
///
/// let model = Linear::<f32>::without_bias(1, 1, &mut Rng::new(1));
/// model.weight.set(Tensor::from([[0.0]]));
/// let mut ema = Ema::new(&model, 0.75).unwrap();
/// model.weight.set(Tensor::from([[4.0]])); // in place of a step
/// ema.update();
/// // The model has the average within this function only.
/// assert_eq!(ema.with_average(|| model.weight.value().item()), 1.0);
/// assert_eq!(model.weight.value().item(), 4.0);
/// ```
#[derive(Debug)]
pub struct Ema<T: Real = f32> {
    decay: f64,
    has_warmup: bool,
    updates: u64,
    params: Vec<Param<T>>,
    averages: Vec<(String, Param<T>)>,
}

impl<T: Real> Ema<T> {
    /// The average of the parameters of a model, tied ones once, with the decay `d`.
    ///
    /// # Errors
    /// If the decay is not in `[0, 1]`.
    pub fn new(model: &impl Module<T>, decay: f64) -> Result<Self, ConfigError> {
        if !(0.0..=1.0).contains(&decay) {
            return Err(ConfigError(format!("the decay must be in [0, 1], got {decay}")));
        }
        let named = model.named_parameters();
        let params = named.iter().map(|(_, param)| param.clone()).collect();
        let copy = |(name, param): (String, Param<T>)| (name, Param::new(param.value()));
        let averages = named.into_iter().map(copy).collect();
        Ok(Ema { decay, has_warmup: false, updates: 0, params, averages })
    }

    /// Limits the decay of early updates.
    pub fn with_warmup(mut self) -> Self {
        self.has_warmup = true;
        self
    }

    /// Adds the present weights to the average, as after a step of the optimiser.
    pub fn update(&mut self) {
        let n = self.updates as f64;
        let warm = if self.has_warmup { (1.0 + n) / (10.0 + n) } else { 1.0 };
        let fresh = T::from_f64(1.0 - self.decay.min(warm));
        for (param, (_, average)) in self.params.iter().zip(&self.averages) {
            let a = average.value();
            average.set(&a + &(param.value() - &a) * fresh);
        }
        self.updates += 1;
    }

    /// Number of updates.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// The result of `f`, during which the model has the averages as its weights; to evaluate or to save it.
    /// Afterwards it has its own weights again, even if `f` panics. `f` must not train the model: changes of
    /// the weights are lost.
    pub fn with_average<R>(&self, f: impl FnOnce() -> R) -> R {
        let own = self.params.iter().map(|param| (param.clone(), param.value()));
        let _restore = Restore(own.collect());
        for (param, (_, average)) in self.params.iter().zip(&self.averages) {
            param.set(average.value());
        }
        f()
    }

    /// The averages by the names of their parameters. The number of updates is [`Ema::updates`].
    pub fn state_dict(&self) -> StateDict<T> {
        self.averages.iter().map(|(name, average)| (name.clone(), average.value())).collect()
    }

    /// Sets the averages after `updates` updates.
    ///
    /// # Errors
    /// If a name is missing or unexpected, or a shape differs; then nothing has been changed.
    pub fn load_state_dict(&mut self, updates: u64, dict: &StateDict<T>) -> Result<(), LoadError> {
        load(&self.averages, dict)?;
        self.updates = updates;
        Ok(())
    }
}

/// Sets parameters to their own values when it is dropped.
struct Restore<T: Real>(Vec<(Param<T>, Tensor<T>)>);

impl<T: Real> Drop for Restore<T> {
    fn drop(&mut self) {
        for (param, value) in self.0.drain(..) {
            param.set(value);
        }
    }
}
