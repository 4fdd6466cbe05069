//! X-rays of models.

use super::XRay;
use retrograd_nn::{Module, StateDict, for_each_module, short_type};
use retrograd_tensor::Real;

impl XRay {
    /// An X-ray of a model, whose parameters and modules have their names.
    ///
    /// ```
    /// use retrograd::prelude::*;
    ///
    /// let model = Linear::<f32>::new(3, 2, &mut Rng::new(1));
    /// let x = Var::constant(Tensor::ones([4, 3]));
    /// let step = XRay::of(&model).record(|| {
    ///     model.forward(&x, &mut Pass::train(1)).square().mean(..).backward()
    /// });
    /// let html = step.page().html();
    /// assert!(html.contains("\"weight\"") && html.contains("linear"));
    /// ```
    pub fn of<T: Real, M: Module<T>>(model: &M) -> XRay {
        let mut xray = XRay::new(&format!("One step of {}", short_type(model.type_name())));
        for_each_module(model, &mut |path, module| {
            xray.names.add_module(path, &short_type(module.type_name()));
        });
        let mut params = Vec::new();
        model.for_each_parameter(&mut |name, param| params.push((name.to_string(), param.clone())));
        for (name, param) in params {
            let id = param.id();
            xray = xray.parameter(&name, id, &param.value().into(), param.is_trainable());
            let written = param.clone();
            xray = xray.adjustable(id, move || param.value(), move |value| written.set(value));
        }
        xray
    }

    /// Also shows the norm of the last update of each parameter, relative to its norm before: `before` are the
    /// parameters ([`Module::state_dict`]) from before the update.
    pub fn updates<T: Real, M: Module<T>>(mut self, model: &M, before: &StateDict<T>) -> XRay {
        for (name, param) in model.named_parameters() {
            if let Some(old) = before.get(&name) {
                let change = (&param.value() - old).norm(..).item().to_f64();
                let ratio = change / old.norm(..).item().to_f64();
                if change > 0.0 {
                    self = self.update(param.id(), ratio);
                }
            }
        }
        self
    }
}
