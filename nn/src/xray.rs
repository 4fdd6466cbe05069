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

    /// Runs `f` three times, and records the third and the second: with values, and with times.
    pub fn record<R>(self, f: impl FnMut() -> R) -> RecordedStep {
        self.0.record(f)
    }
}
