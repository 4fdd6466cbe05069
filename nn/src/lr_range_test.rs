//! The learning rate range test.

use crate::config_error::ConfigError;
use crate::module::Module;
use crate::optim::{Optimizer, StepError};
use retrograd_autograd::Gradients;
use retrograd_tensor::Real;
use std::fmt;
use std::ops::RangeInclusive;

/// The losses of steps with rising learning rates: a test that finds the range of usable rates.
///
/// Smith 2015 (arXiv 1506.01186). The rate is raised exponentially; the loss falls fastest where the rate is
/// large, and rises where it is too large.
///
/// ```
/// use retrograd::nn::LrRangeTest;
/// use retrograd::prelude::*;
///
/// let model = Linear::<f32>::without_bias(1, 1, &mut Rng::new(1));
/// model.weight.set(Tensor::from([[1.0]]));
/// let mut sgd = Sgd::new(&model, SgdConfig::default()).unwrap();
/// // The loss is w². Rates above 1 diverge.
/// let test = LrRangeTest::run(&model, &mut sgd, 1e-3..=10.0, 50, |_| {
///     let loss = model.weight.to_var().square().sum(..);
///     (loss.item(), loss.backward())
/// });
/// let lr = test.unwrap().suggestion().unwrap();
/// assert!(lr > 0.01 && lr < 1.0);
/// assert_eq!(model.weight.value().item(), 1.0); // as before the test
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LrRangeTest {
    /// The learning rate of each step, and the loss before the step.
    pub points: Vec<(f64, f64)>,
}

/// Why a range test failed.
#[derive(Clone, Debug, PartialEq)]
pub enum LrRangeTestError {
    /// The range or the number of steps is invalid.
    Config(ConfigError),
    /// A gradient is missing, or that of the first step is not finite.
    Step(StepError),
}

impl fmt::Display for LrRangeTestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LrRangeTestError::Config(e) => e.fmt(f),
            LrRangeTestError::Step(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for LrRangeTestError {}

/// The weight of earlier losses in the smoothed loss.
const SMOOTHING: f64 = 0.9;
/// The test ends when the smoothed loss is this many times the lowest one.
const DIVERGED: f64 = 4.0;

impl LrRangeTest {
    /// Takes up to `steps` steps, with learning rates from the first to the last of `rates`, each the same
    /// factor above the one before. `loss_and_gradients` is called with the number of the step, from 0 on.
    /// The test ends early if the loss is 4 times its lowest value (smoothed), or not finite. The weights,
    /// the state of the optimiser and its learning rate are then as before the test.
    ///
    /// # Errors
    /// If the rates are not finite, above 0 and rising, or there are fewer than 2 steps; if a gradient is
    /// missing; or if a gradient of the first step is not finite.
    pub fn run<T: Real>(
        model: &impl Module<T>,
        optimizer: &mut dyn Optimizer<T>,
        rates: RangeInclusive<f64>,
        steps: u64,
        mut loss_and_gradients: impl FnMut(u64) -> (T, Gradients<T>),
    ) -> Result<LrRangeTest, LrRangeTestError> {
        let (first, last) = rates.into_inner();
        let config = |text: String| Err(LrRangeTestError::Config(ConfigError(text)));
        if !(first > 0.0 && last > first && last.is_finite()) {
            return config(format!(
                "rates must be finite, above 0 and rising, got {first} to {last}"
            ));
        }
        if steps < 2 {
            return config(format!("a range test needs at least 2 steps, got {steps}"));
        }
        let weights = model.state_dict();
        let (state, taken, lr) = (optimizer.state_dict(), optimizer.steps(), optimizer.lr());

        let mut test = LrRangeTest { points: Vec::new() };
        let (mut smooth, mut lowest) = (Smooth::default(), f64::INFINITY);
        let mut run = || {
            for step in 0..steps {
                let rate = first * (last / first).powf(step as f64 / (steps - 1) as f64);
                let (loss, gradients) = loss_and_gradients(step);
                let loss = loss.to_f64();
                if !loss.is_finite() {
                    return Ok(());
                }
                test.points.push((rate, loss));
                let average = smooth.add(loss);
                lowest = lowest.min(average);
                if average > DIVERGED * lowest && step > 0 {
                    return Ok(());
                }
                optimizer.set_lr(rate);
                match optimizer.step(&gradients) {
                    Err(StepError::NotFinite(_)) if step > 0 => return Ok(()),
                    done => done?,
                }
            }
            Ok(())
        };
        let done = run();
        model.load_state_dict(&weights).expect("the model's own weights");
        optimizer.load_state_dict(taken, &state).expect("the optimiser's own state");
        optimizer.set_lr(lr);
        done.map(|()| test).map_err(LrRangeTestError::Step)
    }

    /// The learning rate at which the smoothed loss falls fastest, per factor of the rate; `None` if it
    /// never falls. A rate between a third of it and itself is a good peak for a schedule.
    ///
    /// ```
    /// use retrograd::nn::LrRangeTest;
    /// let points = vec![(0.001, 1.0), (0.01, 1.0), (0.1, 0.2), (1.0, 0.1), (10.0, 9.0)];
    /// assert_eq!(LrRangeTest { points }.suggestion(), Some(0.1));
    /// assert_eq!(LrRangeTest { points: vec![(0.1, 1.0), (1.0, 2.0)] }.suggestion(), None);
    /// ```
    pub fn suggestion(&self) -> Option<f64> {
        let mut smooth = Smooth::default();
        let averages: Vec<f64> = self.points.iter().map(|(_, loss)| smooth.add(*loss)).collect();
        // The factor between rates is the same everywhere.
        let falls = averages.windows(2).map(|pair| pair[0] - pair[1]);
        let (at, fall) = falls.enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
        (fall > 0.0).then(|| self.points[at + 1].0)
    }
}

/// An exponential moving average whose first values are not biased towards 0.
#[derive(Default)]
struct Smooth {
    sum: f64,
    weight: f64,
}

impl Smooth {
    fn add(&mut self, x: f64) -> f64 {
        self.sum = SMOOTHING * self.sum + x;
        self.weight = SMOOTHING * self.weight + 1.0;
        self.sum / self.weight
    }
}
