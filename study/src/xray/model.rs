//! X-rays of models: [`XRay::of`].

use crate::module::{Module, visit_modules};
use crate::state::StateDict;
use crate::summary::short_type;
use retrograd_study::RecordedStep;
use retrograd_tensor::Real;
use retrograd_tensor::machine::Roofline;

/// Records a step of a model, and makes a page of it: the forward and the backward pass, event by event,
/// with values. See [`retrograd_study::XRay`].
///
/// ```
/// use retrograd_nn::{Linear, Layer, Pass, XRay};
/// use retrograd_autograd::Var;
/// use retrograd_tensor::{Tensor, random::Rng};
///
/// let model = Linear::<f32>::new(3, 2, &mut Rng::new(1));
/// let x = Var::constant(Tensor::ones([4, 3]));
/// let step = XRay::of(&model).record(|| {
///     model.forward(&x, &mut Pass::train(1)).square().mean(..).backward()
/// });
/// let html = step.page().html();
/// assert!(html.contains("\"weight\"") && html.contains("linear"));
/// ```
#[derive(Clone, Debug)]
pub struct XRay(retrograd_study::XRay);

impl XRay {
    /// An X-ray of a model, whose parameters and modules have their names.
    pub fn of<T: Real, M: Module<T>>(model: &M) -> XRay {
        let (modules, params) = visit_modules(model);
        let title = format!("One step of {}", short_type(modules[0].type_name));
        let mut xray = retrograd_study::XRay::new(&title);
        for module in &modules {
            xray = xray.module(&module.path, &short_type(module.type_name));
        }
        for (name, param) in &params {
            let leaf = param.leaf();
            xray = xray.parameter(name, param.id(), &leaf, param.is_trainable());
            let (read, written) = (param.clone(), param.clone());
            xray =
                xray.adjustable(param.id(), move || read.value(), move |value| written.set(value));
        }
        XRay(xray)
    }

    /// Sets the title of the page, instead of the type of the model.
    pub fn title(self, title: &str) -> XRay {
        XRay(self.0.title(title))
    }

    /// Shows times relative to the limits of the machine.
    pub fn limits(self, limits: impl Into<Roofline>) -> XRay {
        XRay(self.0.limits(limits))
    }

    /// Also shows the norm of the last update of each parameter, relative to its norm before: `before` are the
    /// parameters ([`Module::state_dict`]) from before the update.
    ///
    /// ```
    /// use retrograd_nn::optim::{Optimizer, Sgd, SgdConfig};
    /// use retrograd_nn::{Layer, Linear, Module, Pass, XRay};
    /// use retrograd_autograd::Var;
    /// use retrograd_tensor::{Tensor, random::Rng};
    ///
    /// let model = Linear::<f32>::new(3, 2, &mut Rng::new(1));
    /// let x = Var::constant(Tensor::ones([4, 3]));
    /// let loss = || model.forward(&x, &mut Pass::eval()).square().mean(..);
    /// let before = model.state_dict();
    /// let mut sgd = Sgd::new(&model, SgdConfig { lr: 1e3, ..SgdConfig::default() }).unwrap();
    /// sgd.step(&loss().backward()).unwrap();
    /// let step = XRay::of(&model).updates(&model, &before).record(|| loss().backward());
    /// assert!(step.findings()[0].contains("was changed by"));
    /// ```
    pub fn updates<T: Real, M: Module<T>>(mut self, model: &M, before: &StateDict<T>) -> XRay {
        for (name, param) in model.named_parameters() {
            if let Some(old) = before.get(&name) {
                let change = (&param.value() - old).norm(..).item().to_f64();
                let ratio = change / old.norm(..).item().to_f64();
                if change > 0.0 {
                    self.0 = self.0.update(param.id(), ratio);
                }
            }
        }
        self
    }

    /// Also compares `n` elements of the gradient of each parameter with a central difference of the recorded
    /// closure, which is run again several times for each of them: see [`retrograd_study::XRay::checked`]. The
    /// parameters have their values again afterwards.
    ///
    /// ```
    /// use retrograd_nn::{Linear, Layer, Pass, XRay};
    /// use retrograd_autograd::Var;
    /// use retrograd_tensor::{Tensor, random::Rng};
    ///
    /// let model = Linear::<f64>::new(3, 2, &mut Rng::new(1));
    /// let x = Var::constant(Tensor::ones([4, 3]));
    /// let step = XRay::of(&model).checked(2).record(|| {
    ///     model.forward(&x, &mut Pass::train(1)).square().mean(..).backward()
    /// });
    /// assert!(step.json().contains("\"check\":{\"difference\":") && step.findings().is_empty());
    /// ```
    pub fn checked(self, n: usize) -> XRay {
        XRay(self.0.checked(n))
    }

    /// Runs `f` several times, and records it with times and with values: see [`retrograd_study::XRay::record`].
    pub fn record<R>(self, f: impl FnMut() -> R) -> RecordedStep {
        self.0.record(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gpt, GptConfig, Pass};
    use retrograd_tensor::Tensor;
    use retrograd_tensor::random::Rng;

    /// With dropout, which is the same in each run of a step.
    #[test]
    fn gradients_of_a_model_are_checked() {
        let config = GptConfig {
            layers: 1,
            heads: 2,
            width: 16,
            vocab: 12,
            context: 8,
            dropout: 0.1,
            ..GptConfig::default()
        };
        let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
        let tokens = Tensor::from_vec((0..16i64).map(|i| i * i % 12).collect(), [2, 8]);
        let before = model.state_dict();
        let step = XRay::of(&model)
            .checked(1)
            .record(|| model.loss(&tokens, &tokens, &mut Pass::train_step(5, 0)).backward());
        let json = step.json();
        let checks = json.matches("\"check\":{").count();
        assert_eq!(checks, model.named_parameters().len());
        assert!(json.matches("\"agrees\":true").count() == checks, "{:?}", step.findings());
        let after = model.state_dict();
        for (name, value) in before.iter() {
            assert_eq!(value.to_vec(), after.get(name).unwrap().to_vec(), "{name}");
        }
    }
}
